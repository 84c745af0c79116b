"""Writes a recording of 40 frames at 10 Hz in seven files and its metadata.yaml, as `ros2 bag record --max-bag-size` does, with
rosbags' types and mcap's writer; reads it again with rosbags' reader, and prints the stamps of the colour images.

usage: split.py FOLDER
"""
import sys
from pathlib import Path

import numpy as np
from mcap.writer import Writer
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore

W, H, N, PERIOD, T0, EACH = 32, 24, 40, 100_000_000, 1_700_000_000_000_000_000, 19
store = get_typestore(Stores.ROS2_HUMBLE)
T = store.types
Header, Time, Roi = T["std_msgs/msg/Header"], T["builtin_interfaces/msg/Time"], T["sensor_msgs/msg/RegionOfInterest"]
TOPICS = {
    "/camera/color/camera_info": "sensor_msgs/msg/CameraInfo",
    "/camera/color/image_raw": "sensor_msgs/msg/Image",
    "/camera/aligned_depth_to_color/image_raw": "sensor_msgs/msg/Image",
}


def header(n):
    ns = T0 + n * PERIOD
    return Header(stamp=Time(sec=ns // 10**9, nanosec=ns % 10**9), frame_id="camera_color_optical_frame")


def message(topic, n):
    if topic.endswith("camera_info"):
        k = np.array([30.0, 0, 15.5, 0, 30.0, 11.5, 0, 0, 1])
        p = np.array([30.0, 0, 15.5, 0, 0, 30.0, 11.5, 0, 0, 0, 1, 0])
        return T[TOPICS[topic]](header=header(n), height=H, width=W, distortion_model="plumb_bob", d=np.zeros(5), k=k, r=np.eye(3).reshape(-1), p=p,
                                binning_x=0, binning_y=0, roi=Roi(x_offset=0, y_offset=0, height=0, width=0, do_rectify=False))
    size, encoding = (3, "rgb8") if "/color/" in topic else (2, "16UC1")
    data = np.full(W * H * size, n + 1, np.uint8)
    return T[TOPICS[topic]](header=header(n), height=H, width=W, encoding=encoding, is_bigendian=0, step=W * size, data=data)


bag = Path(sys.argv[1]) / "bag"
bag.mkdir()
messages = [(topic, n) for n in range(N) for topic in TOPICS]
files = []
for first in range(0, len(messages), EACH):
    name = f"bag_{len(files)}.mcap"
    part = messages[first:first + EACH]
    with open(bag / name, "wb") as out:
        writer = Writer(out)
        writer.start(profile="ros2", library="split.py")
        channels = {}
        for topic, kind in TOPICS.items():
            text, _ = store.generate_msgdef(kind, ros_version=2)
            schema = writer.register_schema(name=kind, encoding="ros2msg", data=text.encode())
            channels[topic] = writer.register_channel(topic=topic, message_encoding="cdr", schema_id=schema)
        for topic, n in part:
            ns = T0 + n * PERIOD + 5_000_000
            writer.add_message(channel_id=channels[topic], log_time=ns, publish_time=ns, data=bytes(store.serialize_cdr(message(topic, n), TOPICS[topic])))
        writer.finish()
    files.append((name, part))
topics = "".join(
    f"    - topic_metadata:\n        name: {topic}\n        type: {kind}\n        serialization_format: cdr\n        offered_qos_profiles: \"\"\n"
    f"      message_count: {N}\n" for topic, kind in TOPICS.items())
(bag / "metadata.yaml").write_text(
    "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: mcap\n"
    f"  duration:\n    nanoseconds: {(N - 1) * PERIOD}\n  starting_time:\n    nanoseconds_since_epoch: {T0}\n  message_count: {len(messages)}\n"
    f"  topics_with_message_count:\n{topics}  compression_format: \"\"\n  compression_mode: \"\"\n"
    "  relative_file_paths:\n" + "".join(f"    - {name}\n" for name, _ in files)
    + "  files:\n" + "".join(
        f"    - path: {name}\n      starting_time:\n        nanoseconds_since_epoch: {T0 + part[0][1] * PERIOD}\n      duration:\n        "
        f"nanoseconds: {(part[-1][1] - part[0][1]) * PERIOD}\n      message_count: {len(part)}\n" for name, part in files))
stamps = []
with Reader(bag) as reader:
    for connection, _, raw in reader.messages():
        if connection.topic == "/camera/color/image_raw":
            stamp = store.deserialize_cdr(raw, connection.msgtype).header.stamp
            stamps.append(stamp.sec * 10**9 + stamp.nanosec)
print(*stamps)
