#!/usr/bin/env python3
"""Reference numbers for tests/reference.rs, by ONNX Runtime and NumPy alone.

Needs numpy, onnxruntime, opencv-python-headless. With a video as argument, frame 200 is taken from it,
scaled to 384x288, and written to pedestrians.png first (vtest.avi of Debian's opencv-doc package).
"""
import os
import sys

import cv2
import numpy as np
import onnxruntime as ort

here = os.path.dirname(os.path.abspath(__file__))
models = os.path.join(here, "../../../../models")
image_path = os.path.join(here, "pedestrians.png")

if len(sys.argv) > 1:
    video = cv2.VideoCapture(sys.argv[1])
    video.set(cv2.CAP_PROP_POS_FRAMES, 200)
    frame = cv2.resize(video.read()[1], (384, 288), interpolation=cv2.INTER_AREA)
    cv2.imwrite(image_path, frame, [cv2.IMWRITE_PNG_COMPRESSION, 9])

rgb = cv2.imread(image_path)[:, :, ::-1].astype(np.float32)
height, width = rgb.shape[:2]


def session(name):
    return ort.InferenceSession(os.path.join(models, name), providers=["CPUExecutionProvider"])


def window(size, origin, scale, padding=0.0):
    """Bilinear sample of `size` (w, h) pixels; pixel i lies at origin + (i + 0.5) * scale."""
    taps = []
    for axis, end in enumerate((width, height)):
        at = origin[axis] + (np.arange(size[axis]) + 0.5) * scale
        floor = np.floor(at - 0.5)
        taps.append((np.clip(floor, 0, end - 1).astype(int), np.clip(floor + 1, 0, end - 1).astype(int),
                     at - 0.5 - floor, (at >= 0) & (at < end)))
    (x0, x1, wx, inx), (y0, y1, wy, iny) = taps
    wx, wy = wx[None, :, None], wy[:, None, None]
    top = rgb[y0][:, x0] * (1 - wx) + rgb[y0][:, x1] * wx
    bottom = rgb[y1][:, x0] * (1 - wx) + rgb[y1][:, x1] * wx
    out = top * (1 - wy) + bottom * wy
    out[~(iny[:, None] & inx[None, :])] = padding
    return out


def iou(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    overlap = max(w, 0) * max(h, 0)
    return overlap / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - overlap)


size = 416
scale = max(width, height) / size
origin = [(width - size * scale) / 2, (height - size * scale) / 2]
bgr = window((size, size), origin, scale)[:, :, ::-1]
mean, deviation = np.array([103.53, 116.28, 123.675]), np.array([57.375, 57.12, 58.395])
tensor = ((bgr - mean) / deviation).astype(np.float32).transpose(2, 0, 1)[None]
net = session("nanodet_g_416.onnx")
outputs = dict(zip([o.name for o in net.get_outputs()], net.run(None, {"image": tensor})))
found = []
for stride in (8, 16, 32):
    scores, sides = outputs[f"cls_s{stride}"][0][:, 0], outputs[f"reg_s{stride}"][0]
    bins = np.exp(sides.reshape(-1, 4, 11) - sides.reshape(-1, 4, 11).max(-1, keepdims=True))
    distance = (bins / bins.sum(-1, keepdims=True) * np.arange(11)).sum(-1) * stride
    columns = size // stride
    for i in np.nonzero(scores >= 0.35)[0]:
        x, y = (i % columns + 0.5) * stride, (i // columns + 0.5) * stride
        l, t, r, b = distance[i]
        box = np.array([x - l, y - t, x + r, y + b]) * scale + np.array(origin * 2)
        found.append((float(scores[i]), np.clip(box, 0, [width, height, width, height])))
found.sort(key=lambda f: -f[0])
kept = []
for score, box in found:
    if all(iou(box, other) <= 0.5 for _, other in kept):
        kept.append((score, box))
print("// score, left, top, right, bottom")
for score, box in kept:
    print(f"({score:.4f}, [{', '.join(f'{v:.2f}' for v in box)}]),")

for name, (w, h) in (("selfie_square_256", (256, 256)), ("selfie_landscape_144x256", (256, 144))):
    net = session(name + ".onnx")
    print(f"// {name}: for each box, mean of the mask and share of the box with mask >= 0.5")
    for score, box in kept:
        s = max((box[2] - box[0]) / w, (box[3] - box[1]) / h) * 1.25
        o = [(box[0] + box[2]) / 2 - w * s / 2, (box[1] + box[3]) / 2 - h * s / 2]
        crop = (window((w, h), o, s) / 255).astype(np.float32).transpose(2, 0, 1)[None]
        mask = net.run(None, {"image": crop})[0].reshape(h, w)
        x0, y0, x1, y1 = [int(max(0, (v - o[i % 2]) / s)) for i, v in enumerate(box)]
        inner = mask[y0:min(y1, h), x0:min(x1, w)]
        print(f"({mask.mean():.5f}, {(inner >= 0.5).mean():.4f}),")
