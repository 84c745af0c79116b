"""The camera over the ground plane: fitted to how the people of the video shrink with distance.

World frame: z up, z = 0 on the ground, origin under the camera, x to the right of the image, y away from the camera.
Optical frame: x right, y down, z forward. Pixel centres are integers.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

PERSON_HEIGHT_M = 1.75  # mean height in shoes; scales the whole scene


@dataclass
class GroundCamera:
    """Pinhole camera with square pixels, `height_m` over the ground, pitched down, rolled around its axis."""

    focal_px: float
    height_m: float
    pitch_rad: float
    roll_rad: float
    cx: float
    cy: float

    @property
    def centre(self):
        return np.array([0.0, 0.0, self.height_m])

    @property
    def optical_from_world(self):
        s, c = np.sin(self.pitch_rad), np.cos(self.pitch_rad)
        level = np.array([[1, 0, 0], [0, -s, -c], [0, c, -s]])
        s, c = np.sin(self.roll_rad), np.cos(self.roll_rad)
        return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ level

    def rays(self, u, v):
        """World directions of pixels, scaled to one metre along the optical axis."""
        u, v = np.asarray(u, float), np.asarray(v, float)
        optical = np.stack([(u - self.cx) / self.focal_px, (v - self.cy) / self.focal_px, np.ones_like(u)], -1)
        return optical @ self.optical_from_world

    def ground_depth(self, u, v):
        """Depth along the optical axis at which the pixel's ray meets the ground; 1000 km above the horizon."""
        down = -self.rays(u, v)[..., 2]
        return np.where(down > 1e-6, self.height_m / np.maximum(down, 1e-6), 1e6)

    def ground_point(self, u, v):
        """World point where the pixel's ray meets the ground."""
        return self.centre + self.rays(u, v) * self.ground_depth(u, v)[..., None]

    def upright_depth(self, u, v, foot):
        """Depth at which the pixel's ray meets the vertical plane through `foot` that faces the camera."""
        facing = (foot - self.centre)[:2]
        return facing @ facing / (self.rays(u, v)[..., :2] @ facing)

    def project(self, points):
        optical = (points - self.centre) @ self.optical_from_world.T
        return optical[..., :2] / optical[..., 2:] * self.focal_px + (self.cx, self.cy)


def _fit_with_focal(focal_px, people, cx, cy):
    """Height, pitch and roll that best explain the head rows from the feet, soft-L1 loss (scale 3 px)."""

    def camera(q):
        return GroundCamera(focal_px, q[0], q[1], q[2], cx, cy)

    def residual(q):
        model = camera(q)
        head = model.ground_point(people[:, 0], people[:, 2]) + (0, 0, PERSON_HEIGHT_M)
        return model.project(head)[:, 1] - people[:, 1]

    fit = least_squares(residual, [6.0, 0.3, 0.0], loss="soft_l1", f_scale=3.0)
    return camera(fit.x), float(np.median(np.abs(residual(fit.x))))


def walking_speeds(camera, tracks, fps):
    """Median speed of people walking across the image and of people walking along the viewing direction."""
    steps = []
    for t in tracks:
        if len(t) < 21:
            continue
        boxes = np.stack([t[f] for f in sorted(t)])
        mean = np.ones(9) / 9
        u = np.convolve((boxes[:, 0] + boxes[:, 2]) / 2, mean, "valid")
        v = np.convolve(boxes[:, 3], mean, "valid")
        ground = camera.ground_point(u, v)
        steps.append((ground[10:] - ground[:-10])[:, :2])
    steps = np.concatenate(steps) * fps / 10
    speed = np.linalg.norm(steps, axis=1)
    angle = np.degrees(np.arctan2(abs(steps[:, 1]), abs(steps[:, 0])))
    walking = speed > 0.7
    return float(np.median(speed[walking & (angle < 30)])), float(np.median(speed[walking & (angle > 60)]))


def fit(people, tracks, size, fps):
    """Fits the camera. `people`: rows (foot column, head row, foot row) of upright, unoccluded people.

    Heights alone hardly determine the focal length, so it is chosen such that people walk equally fast in
    all directions. Returns the camera and what the fit says.
    """
    cx, cy = (size[0] - 1) / 2, (size[1] - 1) / 2
    low, high = 500.0, 2500.0
    for _ in range(30):
        focal = (low + high) / 2
        camera, residual_px = _fit_with_focal(focal, people, cx, cy)
        across, along = walking_speeds(camera, tracks, fps)
        if along < across:
            low = focal
        else:
            high = focal
    return camera, {
        "observations": len(people),
        "median_residual_px": residual_px,
        "speed_across_m_s": across,
        "speed_along_m_s": along,
    }
