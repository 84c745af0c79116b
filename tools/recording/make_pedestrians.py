#!/usr/bin/env python3
"""Makes `recordings/pedestrians`: five depth-camera recordings from one video of real pedestrians.

    apt-get install opencv-doc
    pip install -r tools/recording/requirements.txt
    python3 tools/recording/make_pedestrians.py            # from the repository's root; about three minutes

How the depth is made is described in recordings/pedestrians/NOTES.md; calibration.toml and SHA256SUMS are written
here, the fit is printed.
"""

import argparse
import hashlib
import pathlib

import cv2
import mcap.writer
import numpy as np
import zstandard
from foxglove_schemas_protobuf.CameraCalibration_pb2 import CameraCalibration
from foxglove_schemas_protobuf.CompressedImage_pb2 import CompressedImage
from foxglove_schemas_protobuf.FrameTransform_pb2 import FrameTransform
from foxglove_schemas_protobuf.RawImage_pb2 import RawImage
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from mcap.writer import CompressionType, Writer

import ground
import people

FPS = 10
FIRST_FRAME, FRAMES = 275, 150
VIEW_SIZE = (384, 288)
VIEW_ORIGINS = [(0, 90), (120, 110), (240, 130), (330, 150), (384, 180)]
BASE_IN_WORLD = np.array([4.0, 19.0, 0.0])  # where the robot stands: on the plaza, where people pass by
MAX_DEPTH_M = 40.0
DEPTH_STEP_MM = 10
JPEG_QUALITY = 58
CHUNK_BYTES = 8 << 20
ZSTD_LEVEL = 19
EPOCH_NS = 1_000_000_000  # the video carries no date; recordings start at one second


class _StrongZstd:
    """The MCAP writer has no setting for the level; the depth of a still scene shrinks fivefold with this."""

    @staticmethod
    def compress(data):
        return zstandard.compress(bytes(data), ZSTD_LEVEL)


mcap.writer.zstandard = _StrongZstd


def read_video(path):
    video = cv2.VideoCapture(str(path))
    frames = []
    while True:
        ok, frame = video.read()
        if not ok:
            break
        frames.append(frame)
    if not frames:
        raise SystemExit(f"{path}: no frame could be decoded; is the package opencv-doc installed?")
    return np.stack(frames)


def upright_people(detections, size):
    """(foot column, head row, foot row) of confident, whole, unoccluded people."""
    rows = []
    for boxes in detections:
        for i, (x0, y0, x1, y1, score) in enumerate(boxes):
            whole = x0 > 8 and y0 > 8 and x1 < size[0] - 8 and y1 < size[1] - 11
            slim = 0.2 < (x1 - x0) / max(y1 - y0, 1) < 0.55
            alone = all(people.iou(boxes[i], other) < 0.02 for j, other in enumerate(boxes) if j != i)
            if score > 0.5 and whole and slim and alone:
                rows.append(((x0 + x1) / 2, y0, y1))
    return np.array(rows)


def smooth(values, width=7):
    half = width // 2
    return np.convolve(np.pad(values, half, mode="edge"), np.ones(width) / width, "valid")


def place(track, camera, image_height):
    """{frame: (box, foot point on the ground)}; the foot's path is smoothed over seven frames."""
    frames = sorted(track)
    boxes = np.stack([track[f] for f in frames])
    foot = boxes[:, 3].copy()
    # Where the feet are outside the image, they follow from the head: the foot row whose head row fits.
    rows = np.arange(image_height // 4, 2 * image_height, dtype=float)
    for i in np.nonzero(boxes[:, 3] > image_height - 6)[0]:
        u = np.full_like(rows, (boxes[i, 0] + boxes[i, 2]) / 2)
        heads = camera.project(camera.ground_point(u, rows) + (0, 0, ground.PERSON_HEIGHT_M))[:, 1]
        foot[i] = max(rows[np.argmin(abs(heads - boxes[i, 1]))], foot[i])
    points = camera.ground_point(smooth((boxes[:, 0] + boxes[:, 2]) / 2), smooth(foot))
    return {f: (boxes[i], points[i]) for i, f in enumerate(frames)}


def silhouette(frame, background, box, segmenter):
    """Whether each pixel belongs to the person in the box: the network's mask, inside the widened box,
    supported by the difference to the empty scene where the network is unsure."""
    mask = segmenter(frame, box)
    difference = cv2.GaussianBlur(np.abs(frame.astype(np.int16) - background).max(-1).astype(np.float32), (5, 5), 0)
    moving = difference > 24
    inside = np.zeros(mask.shape, bool)
    dx, dy = 0.15 * (box[2] - box[0]), 0.06 * (box[3] - box[1])
    inside[max(int(box[1] - dy), 0) : int(box[3] + dy) + 1, max(int(box[0] - dx), 0) : int(box[2] + dx) + 1] = True
    person = inside & ((mask > 0.5) | ((mask > 0.2) & moving))
    share_moving = moving[person].mean() if person.any() else 0.0
    return person, share_moving


def depth_of(camera, u, v, silhouettes):
    """Depth image in millimetres: the ground, and over it every person's upright plane, farthest first."""
    depth = camera.ground_depth(u, v)
    for person, foot in sorted(silhouettes, key=lambda s: -np.linalg.norm(s[1] - camera.centre)):
        depth[person] = camera.upright_depth(u[person], v[person], foot)
    depth = np.where(depth <= MAX_DEPTH_M, depth, 0.0)
    return (np.round(depth * 1000 / DEPTH_STEP_MM) * DEPTH_STEP_MM).astype(np.uint16)


def schema_of(message):
    """FileDescriptorSet of a message with everything it imports."""
    files, todo = {}, [message.DESCRIPTOR.file]
    while todo:
        file = todo.pop()
        if file.name not in files:
            files[file.name] = file
            todo += file.dependencies
    result = FileDescriptorSet()
    for file in reversed(files.values()):
        file.CopyToProto(result.file.add())
    return result.SerializeToString()


def quaternion(rotation):
    """(x, y, z, w) of a rotation matrix (largest-component method)."""
    trace = np.array([np.trace(rotation), rotation[0, 0], rotation[1, 1], rotation[2, 2]])
    i = int(np.argmax(trace))
    if i == 0:
        w = np.sqrt(1 + trace[0]) / 2
        xyz = np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]])
        return np.array([*(xyz / (4 * w)), w])
    a, b, c = i - 1, i % 3, (i + 1) % 3
    q = np.zeros(4)
    q[a] = np.sqrt(1 + rotation[a, a] - rotation[b, b] - rotation[c, c]) / 2
    q[b] = (rotation[b, a] + rotation[a, b]) / (4 * q[a])
    q[c] = (rotation[c, a] + rotation[a, c]) / (4 * q[a])
    q[3] = (rotation[c, b] - rotation[b, c]) / (4 * q[a])
    return q if q[3] >= 0 else -q


class ViewWriter:
    """One camera's MCAP file: /camN/color, /camN/depth, /camN/calibration, /camN/transform."""

    def __init__(self, path, index, intrinsics, position, rotation):
        self.file = open(path, "wb")
        self.writer = Writer(self.file, chunk_size=CHUNK_BYTES, compression=CompressionType.ZSTD)
        self.writer.start(profile="", library="takt recording tool")
        self.name = f"cam{index}"
        self.intrinsics, self.position, self.rotation = intrinsics, position, rotation
        self.channels = {
            topic: self.writer.register_channel(
                topic=f"/{self.name}/{topic}",
                message_encoding="protobuf",
                schema_id=self.writer.register_schema(
                    name=message.DESCRIPTOR.full_name, encoding="protobuf", data=schema_of(message)
                ),
            )
            for topic, message in (
                ("color", CompressedImage),
                ("depth", RawImage),
                ("calibration", CameraCalibration),
                ("transform", FrameTransform),
            )
        }
        self.sequence = 0

    def _add(self, topic, stamp, message, sequence):
        message.timestamp.FromNanoseconds(stamp)
        self.writer.add_message(
            self.channels[topic], stamp, message.SerializeToString(), stamp, sequence=sequence
        )

    def add(self, stamp, bgr, depth_mm):
        self.sequence += 1
        width, height, focal, cx, cy = self.intrinsics
        if self.sequence == 1:
            calibration = CameraCalibration(frame_id=self.name, width=width, height=height)
            calibration.K.extend([focal, 0, cx, 0, focal, cy, 0, 0, 1])
            calibration.R.extend([1, 0, 0, 0, 1, 0, 0, 0, 1])
            calibration.P.extend([focal, 0, cx, 0, 0, focal, cy, 0, 0, 0, 1, 0])
            self._add("calibration", stamp, calibration, 1)
            transform = FrameTransform(parent_frame_id="base", child_frame_id=self.name)
            transform.translation.x, transform.translation.y, transform.translation.z = self.position
            r = transform.rotation
            r.x, r.y, r.z, r.w = self.rotation
            self._add("transform", stamp, transform, 1)
        options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
        jpeg = cv2.imencode(".jpg", bgr, options)[1].tobytes()
        self._add("color", stamp, CompressedImage(frame_id=self.name, data=jpeg, format="jpeg"), self.sequence)
        depth = RawImage(
            frame_id=self.name, width=width, height=height, encoding="16UC1", step=2 * width, data=depth_mm.tobytes()
        )
        self._add("depth", stamp, depth, self.sequence)

    def finish(self):
        self.writer.finish()
        self.file.close()


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", default="/usr/share/doc/opencv-doc/examples/data/vtest.avi")
    parser.add_argument("--models", type=pathlib.Path, default=root / "models")
    parser.add_argument("--out", type=pathlib.Path, default=root / "recordings" / "pedestrians")
    parser.add_argument("--check", type=pathlib.Path, help="folder for pictures of masks and depth, to look at")
    args = parser.parse_args()

    frames = read_video(args.video)
    size = (frames.shape[2], frames.shape[1])
    background = np.median(frames[::6], axis=0).astype(np.int16)
    detector = people.Detector(args.models / "nanodet_g_416.onnx", threshold=0.3)
    segmenter = people.Segmenter(args.models / "selfie_square_256.onnx")
    print(f"{len(frames)} frames of {size[0]}x{size[1]}; looking for people ...")
    detections = [detector(frame) for frame in frames]
    tracks = people.track(detections, min_length=5)
    camera, said = ground.fit(upright_people(detections, size), tracks, size, FPS)
    print(f"fit: {said}")
    print(
        f"camera: focal {camera.focal_px:.1f} px, height {camera.height_m:.3f} m, "
        f"pitch {np.degrees(camera.pitch_rad):.2f} deg down, roll {np.degrees(camera.roll_rad):.2f} deg"
    )

    placed = [place(track, camera, size[1]) for track in tracks]
    wanted = range(FIRST_FRAME, FIRST_FRAME + FRAMES)
    silhouettes = {f: [] for f in wanted}
    for track in placed:
        mine = [(f, *silhouette(frames[f], background, track[f][0], segmenter)) for f in track if f in silhouettes]
        # Something that the detector takes for a person but that never differs from the empty scene is furniture.
        if mine and np.median([moving for _, _, moving in mine]) > 0.2:
            for f, person, _ in mine:
                silhouettes[f].append((person, track[f][1]))

    args.out.mkdir(parents=True, exist_ok=True)
    v, u = np.mgrid[0 : size[1], 0 : size[0]].astype(float)
    rotation = quaternion(camera.optical_from_world.T)
    position = camera.centre - BASE_IN_WORLD
    writers, calibration = [], []
    for index, (x0, y0) in enumerate(VIEW_ORIGINS):
        intrinsics = (*VIEW_SIZE, camera.focal_px, camera.cx - x0, camera.cy - y0)
        writers.append(ViewWriter(args.out / f"cam{index}.mcap", index, intrinsics, position, rotation))
        calibration.append(
            f'[[camera]]\nname = "cam{index}"\nfile = "cam{index}.mcap"\n'
            f"width = {VIEW_SIZE[0]}\nheight = {VIEW_SIZE[1]}\n"
            f"fx = {camera.focal_px:.6f}\nfy = {camera.focal_px:.6f}\n"
            f"cx = {camera.cx - x0:.6f}\ncy = {camera.cy - y0:.6f}\n"
            f"# Pose of the optical frame in the robot base frame, which stands on the ground.\n"
            f"translation_m = [{', '.join(f'{p:.6f}' for p in position)}]\n"
            f"rotation_xyzw = [{', '.join(f'{q:.9f}' for q in rotation)}]\n"
        )
    nearest = []
    for f in wanted:
        depth = depth_of(camera, u, v, silhouettes[f])
        stamp = EPOCH_NS + (f - FIRST_FRAME) * 1_000_000_000 // FPS
        for writer, (x0, y0) in zip(writers, VIEW_ORIGINS):
            cut = np.s_[y0 : y0 + VIEW_SIZE[1], x0 : x0 + VIEW_SIZE[0]]
            writer.add(stamp, np.ascontiguousarray(frames[f][cut]), np.ascontiguousarray(depth[cut]))
        everyone = np.zeros(depth.shape, bool)
        for person, _ in silhouettes[f]:
            everyone |= person
        everyone &= depth > 0
        points = camera.centre + camera.rays(u[everyone], v[everyone]) * (depth[everyone] / 1000.0)[:, None]
        from_tcp = np.linalg.norm(points - BASE_IN_WORLD - (0, 0, 1.0), axis=1)
        nearest.append(from_tcp.min() if len(from_tcp) else np.inf)
        if args.check and (f - FIRST_FRAME) % 15 == 0:
            args.check.mkdir(parents=True, exist_ok=True)
            shown = frames[f].copy()
            shown[everyone] = shown[everyone] // 2 + (0, 0, 127)
            base = camera.project(np.array([BASE_IN_WORLD, BASE_IN_WORLD + (0, 0, 1.0)])).astype(int)
            cv2.line(shown, tuple(map(int, base[0])), tuple(map(int, base[1])), (0, 255, 255), 3)
            colours = cv2.applyColorMap((depth / (MAX_DEPTH_M * 4)).astype(np.uint8), cv2.COLORMAP_TURBO)
            cv2.imwrite(str(args.check / f"{f}.png"), np.hstack([shown, colours]))
    for writer in writers:
        writer.finish()
    nearest = np.array(nearest)
    print("nearest person to a point 1 m over the base: least %.2f m, median %.2f m" % (nearest.min(), np.median(nearest)))
    print("share of frames nearer than 1.2 m: %.2f, 1.2 to 2.5 m: %.2f" % ((nearest < 1.2).mean(), ((nearest >= 1.2) & (nearest < 2.5)).mean()))
    (args.out / "calibration.toml").write_text(
        "# Written by tools/recording/make_pedestrians.py. Lengths in metres and pixels.\n\n" + "\n".join(calibration)
    )
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(args.out.glob("*.mcap"))]
    (args.out / "SHA256SUMS").write_text("".join(sums))
    total = sum(p.stat().st_size for p in args.out.glob("*.mcap"))
    print(f"{total / 2**20:.2f} MiB in {len(writers)} files")


if __name__ == "__main__":
    main()
