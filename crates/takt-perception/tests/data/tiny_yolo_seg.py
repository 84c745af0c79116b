#!/usr/bin/env python3
"""Writes tiny_yolo_seg.onnx: a network with the interface of a YOLO segmentation export and known answers.

Input [1, 3, 32, 64]. One class. Two boxes on the left and on the right half, whose scores are the mean of red
and of green over the image; the mask of both is where red is brighter than 0.5. Needs numpy and onnx.
"""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

H, W, N = 32, 64, 2
boxes = np.zeros((1, 37, N), np.float32)
boxes[0, 0:4, 0] = [16, 16, 24, 28]  # centre x, centre y, width, height
boxes[0, 0:4, 1] = [48, 16, 24, 28]
boxes[0, 5, :] = 40.0  # coefficient of prototype 0
pick = np.zeros((1, 37, N), np.float32)
weights = np.zeros((32, 3, 4, 4), np.float32)
weights[0, 0] = 1 / 16
bias = np.zeros(32, np.float32)
bias[0] = -0.5
red, green = pick.copy(), pick.copy()
red[0, 4, 0] = 1
green[0, 4, 1] = 1
constants = {"boxes": boxes, "weights": weights, "bias": bias, "red": red, "green": green,
             "channel0": np.array([0], np.int64), "channel1": np.array([1], np.int64)}
nodes = [
    helper.make_node("Conv", ["images", "weights", "bias"], ["output1"], kernel_shape=[4, 4], strides=[4, 4]),
    helper.make_node("ReduceMean", ["images"], ["means"], axes=[2, 3], keepdims=1),
    helper.make_node("Gather", ["means", "channel0"], ["mean_red4"], axis=1),
    helper.make_node("Gather", ["means", "channel1"], ["mean_green4"], axis=1),
    helper.make_node("Squeeze", ["mean_red4", "channel1"], ["mean_red"]),
    helper.make_node("Squeeze", ["mean_green4", "channel1"], ["mean_green"]),
    helper.make_node("Mul", ["mean_red", "red"], ["score_red"]),
    helper.make_node("Mul", ["mean_green", "green"], ["score_green"]),
    helper.make_node("Add", ["score_red", "score_green"], ["scores"]),
    helper.make_node("Add", ["scores", "boxes"], ["output0"]),
]
graph = helper.make_graph(
    nodes, "tiny_yolo_seg",
    [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, H, W])],
    [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 37, N]),
     helper.make_tensor_value_info("output1", TensorProto.FLOAT, [1, 32, H // 4, W // 4])],
    [numpy_helper.from_array(value, name) for name, value in constants.items()])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny_yolo_seg.onnx"))
