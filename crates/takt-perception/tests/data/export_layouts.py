#!/usr/bin/env python3
"""Exports the shipped NanoDet in the layouts of other detectors: the same people, written in another way.

usage: export_layouts.py NANODET.onnx FOLDER [KIND ...]

Each file takes R G B in 0..1 (YOLOX: B G R in 0..255) and turns that into NanoDet's input itself, so that every one
of them has to find what NanoDet finds. `-half` has float16 at its interface. Needs numpy and onnx; written after the
exporters of Ultralytics, YOLOX and RT-DETR, and checked with onnx's own checker.
"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE, STRIDES, CLASSES = 416, (8, 16, 32), 80
ROWS = [(SIZE // s) ** 2 for s in STRIDES]
N = sum(ROWS)


class Graph:
    def __init__(self, source):
        self.model = onnx.load(source)
        self.nodes, self.constants, self.count = [], [], 0

    def constant(self, value, dtype=np.float32):
        self.count += 1
        name = f"k{self.count}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, op, inputs, outputs=1, **attributes):
        self.count += 1
        names = [f"n{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def slices(self, value, start, end, axis):
        ends = [self.constant([x], np.int64) for x in (start, end, axis)]
        return self.node("Slice", [value, *ends])


def build(source, kind):
    g = Graph(source)
    half = kind.endswith("-half")
    base = kind.removesuffix("-half")
    image = "images"
    if half:
        image = g.node("Cast", [image], to=TensorProto.FLOAT)
    if base == "yolox":
        bgr = image
    else:
        bgr = g.node("Gather", [image, g.constant([2, 1, 0], np.int64)], axis=1)
        bgr = g.node("Mul", [bgr, g.constant(255.0)])
    mean = g.constant(np.array([103.53, 116.28, 123.675]).reshape(1, 3, 1, 1))
    deviation = g.constant(np.array([57.375, 57.12, 58.395]).reshape(1, 3, 1, 1))
    g.nodes.append(helper.make_node("Div", [g.node("Sub", [bgr, mean]), deviation], ["image"]))
    before, g.nodes = g.nodes, []

    corners, scores, centres, strides = [], [], [], []
    bins = g.constant(np.arange(11).reshape(1, 1, 1, 11))
    for s, rows in zip(STRIDES, ROWS):
        columns = SIZE // s
        cell = np.arange(rows)
        centre = np.stack([(cell % columns + 0.5) * s, (cell // columns + 0.5) * s], -1)[None]
        sides = g.node("Reshape", [f"reg_s{s}", g.constant([1, rows, 4, 11], np.int64)])
        sides = g.node("Mul", [g.node("Softmax", [sides], axis=3), bins])
        sides = g.node("Mul", [g.node("ReduceSum", [sides, g.constant([3], np.int64)], keepdims=0), g.constant(float(s))])
        where = g.constant(centre)
        corners.append(g.node("Concat", [
            g.node("Sub", [where, g.slices(sides, 0, 2, 2)]), g.node("Add", [where, g.slices(sides, 2, 4, 2)])], axis=2))
        scores.append(f"cls_s{s}")
        centres.append(np.stack([cell % columns, cell // columns], -1)[None])
        strides.append(np.full((1, rows, 1), float(s)))
    corners = g.node("Concat", corners, axis=1)
    scores = g.node("Concat", scores, axis=1)
    low, high = g.slices(corners, 0, 2, 2), g.slices(corners, 2, 4, 2)
    middle = g.node("Mul", [g.node("Add", [low, high]), g.constant(0.5)])
    size = g.node("Sub", [high, low])
    centred = g.node("Concat", [middle, size], axis=2)
    cells, stride = g.constant(np.concatenate(centres, 1)), g.constant(np.concatenate(strides, 1))

    def coefficients(rows):
        values = np.zeros((1, rows, 32))
        values[..., 0] = 8
        return g.constant(values)

    def best(rows=300):
        """The best boxes: scores, classes (both [1, rows]) and the index of each, for Gather on axis 1."""
        top = g.node("ReduceMax", [scores], axes=[2], keepdims=0)
        values, index = g.node("TopK", [top, g.constant([rows], np.int64)], outputs=2, axis=1)
        flat = g.node("Reshape", [index, g.constant([rows], np.int64)])
        label = g.node("Gather", [g.node("ArgMax", [scores], axis=2, keepdims=0), flat], axis=1)
        return values, label, flat

    prototypes = np.zeros((1, 32, SIZE // 4, SIZE // 4))
    prototypes[0, 0] = 1
    outputs, inputs = [], [("images", [1, 3, SIZE, SIZE])]
    seg = base.endswith("seg")
    if base in ("v8", "v8seg"):
        table = g.node("Concat", [centred, scores] + ([coefficients(N)] if seg else []), axis=2)
        outputs.append(g.node("Transpose", [table], perm=[0, 2, 1]))
    elif base in ("v5", "v5seg"):
        one = g.constant(np.ones((1, N, 1)))
        parts = []
        for anchor in range(3):
            # The third anchor has the object; class scores are no object's alone.
            objectness = one if anchor == 2 else g.constant(np.zeros((1, N, 1)))
            parts.append(g.node("Concat", [centred, objectness, scores] + ([coefficients(N)] if seg else []), axis=2))
        outputs.append(g.node("Concat", parts, axis=1))
    elif base in ("yolox", "yolox-decoded"):
        box = centred
        if base == "yolox":
            offset = g.node("Sub", [g.node("Div", [middle, stride]), cells])
            box = g.node("Concat", [offset, g.node("Log", [g.node("Div", [size, stride])])], axis=2)
        outputs.append(g.node("Concat", [box, g.constant(np.ones((1, N, 1))), scores], axis=2))
    elif base in ("e2e", "e2eseg"):
        values, label, flat = best()
        column = g.constant([1, 300, 1], np.int64)
        parts = [g.node("Gather", [corners, flat], axis=1), g.node("Reshape", [values, column])]
        parts.append(g.node("Reshape", [g.node("Cast", [label], to=TensorProto.FLOAT), column]))
        outputs.append(g.node("Concat", parts + ([coefficients(300)] if seg else []), axis=2))
    elif base in ("rtdetr", "detr"):
        _, _, flat = best()
        box = g.node("Div", [g.node("Gather", [centred, flat], axis=1), g.constant(float(SIZE))])
        score = g.node("Gather", [scores, flat], axis=1)
        if base == "rtdetr":
            outputs.append(g.node("Concat", [box, score], axis=2))
        else:
            score = g.node("Clip", [score, g.constant(1e-6), g.constant(1 - 1e-6)])
            odds = g.node("Div", [score, g.node("Sub", [g.constant(1.0), score])])
            outputs += [g.node("Log", [odds]), box]
    elif base == "rtdetr-own":
        values, label, flat = best()
        sizes = g.node("Cast", ["orig_target_sizes"], to=TensorProto.FLOAT)
        both = g.node("Reshape", [g.node("Concat", [sizes, sizes], axis=1), g.constant([1, 1, 4], np.int64)])
        share = g.node("Div", [g.node("Gather", [corners, flat], axis=1), g.constant(float(SIZE))])
        outputs += [label, g.node("Mul", [share, both]), values]
        inputs.append(("orig_target_sizes", [1, 2]))
    else:
        raise SystemExit(f"unknown kind {kind}")
    if seg:
        outputs.append(g.node("Identity", [g.constant(prototypes)]))
    names = ["labels", "boxes", "scores"] if base == "rtdetr-own" else [f"output{i}" for i in range(len(outputs))]
    declared = []
    for i, (value, name) in enumerate(zip(outputs, names)):
        kind_of = TensorProto.INT64 if name == "labels" else TensorProto.FLOAT
        # YOLO26's half precision keeps its boxes in float32.
        if half and not (base == "e2eseg" and i == 0):
            kind_of = TensorProto.FLOAT16
            g.nodes.append(helper.make_node("Cast", [value], [name], to=TensorProto.FLOAT16))
        else:
            g.nodes.append(helper.make_node("Identity", [value], [name]))
        rank = 2 if name in ("labels", "scores") else 4 if seg and i == 1 else 3
        declared.append(helper.make_tensor_value_info(name, kind_of, [f"{name}_{axis}" for axis in range(rank)]))
    picture = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    kinds = {"images": picture, "orig_target_sizes": TensorProto.INT64}
    core = g.model.graph
    graph = helper.make_graph(
        before + list(core.node) + g.nodes, kind,
        [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in inputs], declared,
        list(core.initializer) + g.constants)
    opset = max((o.version for o in g.model.opset_import if o.domain == ""), default=13)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    names = {i: "person" if i == 0 else f"thing {i}" for i in range(CLASSES)}
    facts = {"names": str(names), "task": "segment" if seg else "detect"}
    if base.startswith(("v8", "e2e")):
        facts["end2end"] = str(base.startswith("e2e"))
    for key, value in facts.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.checker.check_model(model)
    return model


KINDS = ["v8", "v8seg", "v5", "v5seg", "yolox", "yolox-decoded", "e2e", "e2eseg", "rtdetr", "detr", "rtdetr-own",
         "v8-half", "v8seg-half", "e2eseg-half", "v5-half"]

if __name__ == "__main__":
    for kind in sys.argv[3:] or KINDS:
        onnx.save(build(sys.argv[1], kind), f"{sys.argv[2]}/{kind}.onnx")
