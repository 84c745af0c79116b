"""Finds the people of a fixed camera's video: detector, tracker, masks.

The networks are the ones Takt ships (`models/`, facts about their inputs: `models/NOTES` in the repository).
Everything here runs offline, once, when the recording is made.
"""

import cv2
import numpy as np
import onnxruntime as ort

DETECTOR_SIDE = 416
SEGMENTER_SIDE = 256
STRIDES = (8, 16, 32)


def _session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Detector:
    """NanoDet, class person. Boxes are (left, top, right, bottom, confidence) in image pixels."""

    def __init__(self, path, threshold=0.35, overlap=0.5):
        self.session = _session(path)
        self.names = [o.name for o in self.session.get_outputs()]
        self.threshold = threshold
        self.overlap = overlap

    def __call__(self, bgr):
        height, width = bgr.shape[:2]
        scale = DETECTOR_SIDE / max(width, height)
        w, h = round(width * scale), round(height * scale)
        canvas = np.zeros((DETECTOR_SIDE, DETECTOR_SIDE, 3), np.float32)
        canvas[:h, :w] = cv2.resize(bgr, (w, h), interpolation=cv2.INTER_AREA)
        canvas = (canvas - (103.53, 116.28, 123.675)) / (57.375, 57.12, 58.395)
        tensor = canvas.transpose(2, 0, 1)[None].astype(np.float32)
        out = dict(zip(self.names, self.session.run(None, {"image": tensor})))
        boxes, scores = [], []
        for s in STRIDES:
            score = out[f"cls_s{s}"][0, :, 0]
            keep = np.nonzero(score > self.threshold)[0]
            if not len(keep):
                continue
            bins = out[f"reg_s{s}"][0, keep].reshape(-1, 4, 11)
            bins = np.exp(bins - bins.max(-1, keepdims=True))
            side = (bins / bins.sum(-1, keepdims=True) * np.arange(11)).sum(-1) * s
            cells = DETECTOR_SIDE // s
            x = (keep % cells + 0.5) * s
            y = (keep // cells + 0.5) * s
            box = np.stack([x - side[:, 0], y - side[:, 1], x + side[:, 2], y + side[:, 3]], -1) / scale
            boxes.append(box)
            scores.append(score[keep])
        if not boxes:
            return np.zeros((0, 5))
        boxes, scores = np.concatenate(boxes), np.concatenate(scores)
        boxes[:, 0::2] = boxes[:, 0::2].clip(0, width)
        boxes[:, 1::2] = boxes[:, 1::2].clip(0, height)
        kept = []
        for i in np.argsort(-scores):
            if all(iou(boxes[i], boxes[j]) < self.overlap for j in kept):
                kept.append(i)
        return np.concatenate([boxes[kept], scores[kept, None]], -1)


def iou(a, b):
    """Intersection over union of two boxes."""
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    if w <= 0 or h <= 0:
        return 0.0
    both = w * h
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


class Segmenter:
    """MediaPipe selfie segmentation on a square crop around one person; returns the crop's place and mask."""

    def __init__(self, path):
        self.session = _session(path)

    def __call__(self, bgr, box):
        side = int(np.ceil(1.25 * max(box[2] - box[0], box[3] - box[1])))
        x0 = int(round((box[0] + box[2] - side) / 2))
        y0 = int(round((box[1] + box[3] - side) / 2))
        pad = side
        padded = cv2.copyMakeBorder(bgr, pad, pad, pad, pad, cv2.BORDER_REPLICATE)
        crop = padded[y0 + pad : y0 + pad + side, x0 + pad : x0 + pad + side]
        rgb = cv2.resize(crop, (SEGMENTER_SIDE, SEGMENTER_SIDE))[:, :, ::-1].astype(np.float32) / 255
        mask = self.session.run(None, {"image": rgb.transpose(2, 0, 1)[None]})[0].reshape(
            SEGMENTER_SIDE, SEGMENTER_SIDE
        )
        whole = np.zeros((bgr.shape[0] + 2 * pad, bgr.shape[1] + 2 * pad), np.float32)
        whole[y0 + pad : y0 + pad + side, x0 + pad : x0 + pad + side] = cv2.resize(mask, (side, side))
        return whole[pad:-pad, pad:-pad]


def track(detections, min_overlap=0.3, patience=8, min_length=12):
    """Links boxes over time by overlap with a constant-velocity guess and fills short holes linearly.

    `detections`: one array (n, 5) per frame. Returns a list of {frame: box (4,)}.
    """
    live, done = [], []
    for frame, boxes in enumerate(detections):
        guesses = []
        for t in live:
            gap = frame - t["last"]
            guesses.append(t["box"] + np.tile(t["speed"], 2) * gap)
        pairs = sorted(
            ((iou(g, b), i, j) for i, g in enumerate(guesses) for j, b in enumerate(boxes[:, :4])), reverse=True
        )
        used_tracks, used_boxes = set(), set()
        for overlap, i, j in pairs:
            if overlap < min_overlap or i in used_tracks or j in used_boxes:
                continue
            t, box = live[i], boxes[j, :4]
            gap = frame - t["last"]
            centre = lambda b: np.array([(b[0] + b[2]) / 2, (b[1] + b[3]) / 2])
            t["speed"] = 0.7 * t["speed"] + 0.3 * (centre(box) - centre(t["box"])) / gap
            t["boxes"][frame], t["box"], t["last"] = box, box, frame
            used_tracks.add(i)
            used_boxes.add(j)
        for j, box in enumerate(boxes[:, :4]):
            if j not in used_boxes:
                live.append({"boxes": {frame: box}, "box": box, "last": frame, "speed": np.zeros(2)})
        done += [t for t in live if frame - t["last"] >= patience]
        live = [t for t in live if frame - t["last"] < patience]
    tracks = []
    for t in done + live:
        if len(t["boxes"]) < min_length:
            continue
        frames = np.array(sorted(t["boxes"]))
        known = np.stack([t["boxes"][f] for f in frames])
        every = np.arange(frames[0], frames[-1] + 1)
        filled = np.stack([np.interp(every, frames, known[:, k]) for k in range(4)], -1)
        tracks.append(dict(zip(every.tolist(), filled)))
    return tracks
