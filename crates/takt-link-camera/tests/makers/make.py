"""Writes recordings with the makers' own libraries, for tests of replay.

usage: make.py FOLDER

Each file holds 6 frames of 64x48 at 10 Hz whose pixels follow from their place and number, so that a reader can compute
what it must find (`colour` and `depth` below are the truth; recorded.rs computes the same):
    colour(n, x, y) = (4 x, 5 y, 40 n)        depth(n, x, y) = 500 + 10 x + y + 100 n mm, 0 where x == 0

Writers: rosbags (ROS 2's bag with MCAP storage), mcap-ros2-support, mcap-protobuf-support with Foxglove's schemas, mcap (JSON),
foxglove-sdk.
"""
import base64
import io
import json
import struct
import sys
from pathlib import Path

import numpy as np
from PIL import Image as Pil

W, H, N, PERIOD, T0 = 64, 48, 6, 100_000_000, 1_700_000_000_000_000_000
FX, FY, CX, CY = 60.0, 61.0, 31.5, 23.5
OUT = Path(sys.argv[1])


def colour(n):
    y, x = np.mgrid[0:H, 0:W]
    return np.stack([4 * x, 5 * y, np.full_like(x, 40 * n)], axis=-1).astype(np.uint8)


def depth(n):
    y, x = np.mgrid[0:H, 0:W]
    return np.where(x == 0, 0, 500 + 10 * x + y + 100 * n).astype(np.uint16)


def metres(n):
    d = depth(n).astype(np.float32) / 1000
    return np.where(d == 0, np.where(np.arange(H)[:, None] % 2 == 0, np.nan, np.inf), d).astype(np.float32)


def encoded(array, kind):
    out = io.BytesIO()
    Pil.fromarray(array).save(out, kind, **({"quality": 95, "subsampling": 0} if kind == "JPEG" else {}))
    return out.getvalue()


def padded(array, pad):
    """Rows with `pad` bytes of rubbish after each, and the step."""
    rows = np.ascontiguousarray(array).reshape(array.shape[0], -1).view(np.uint8)
    rubbish = np.full((rows.shape[0], pad), 0xA5, np.uint8)
    joined = np.concatenate([rows, rubbish], axis=1)
    return joined.reshape(-1), joined.shape[1]


def inverse_depth(n, packing):
    """compressed_depth_image_transport's quantisation of 32FC1 (codec.cpp)."""
    z0, most = 100.0, 10.0
    a = np.float32(z0 * (z0 + 1.0))
    b = np.float32(1.0) - a / np.float32(most)
    d = metres(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(d < most, a / d + b, 0)
    q = np.nan_to_num(q, nan=0.0, posinf=0.0).astype(np.uint16)
    return struct.pack("<iff", 1, a, b) + packing(q)


def rvl(values):
    """RVL as rvl_codec.cpp writes it."""
    words, state = [], [0, 0]

    def put(value):
        while True:
            nibble = value & 7
            value >>= 3
            state[0] = (state[0] << 4) | nibble | (8 if value else 0)
            state[1] += 1
            if state[1] == 8:
                words.append(state[0])
                state[0] = state[1] = 0
            if not value:
                return

    flat, at, last = values.reshape(-1).tolist(), 0, 0
    while at < len(flat):
        zeros = at
        while at < len(flat) and flat[at] == 0:
            at += 1
        put(at - zeros)
        end = at
        while end < len(flat) and flat[end] != 0:
            end += 1
        put(end - at)
        for value in flat[at:end]:
            delta = value - last
            put(2 * delta if delta >= 0 else -2 * delta - 1)
            last = value
        at = end
    if state[1]:
        words.append(state[0] << 4 * (8 - state[1]))
    return struct.pack("<II", values.shape[1], values.shape[0]) + b"".join(struct.pack("<I", w) for w in words)


def png16(values):
    return encoded(values, "PNG")


# Each variant: kind of message, encoding or format, big-endian, bytes a row has more, and the pixels.
COLOUR = {
    "rgb8": lambda n: colour(n),
    "bgr8": lambda n: colour(n)[:, :, ::-1],
    "rgba8": lambda n: np.dstack([colour(n), np.full((H, W), 7, np.uint8)]),
    "bgra8": lambda n: np.dstack([colour(n)[:, :, ::-1], np.full((H, W), 7, np.uint8)]),
    "mono8": lambda n: colour(n)[:, :, 0],
}


def rosbags_files():
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    T = store.types
    Image, Compressed, Info = (T[f"sensor_msgs/msg/{n}"] for n in ("Image", "CompressedImage", "CameraInfo"))
    Header, Time, Roi = T["std_msgs/msg/Header"], T["builtin_interfaces/msg/Time"], T["sensor_msgs/msg/RegionOfInterest"]

    def header(n, late=0, frame="camera_color_optical_frame"):
        ns = T0 + n * PERIOD + late
        return Header(stamp=Time(sec=ns // 10**9, nanosec=ns % 10**9), frame_id=frame)

    def info(n, w=W, h=H, fx=FX, d=(0.0,) * 5, frame="camera_color_optical_frame", binning=0):
        k = np.array([fx, 0, CX, 0, FY, CY, 0, 0, 1], np.float64)
        p = np.array([fx, 0, CX, 0, 0, FY, CY, 0, 0, 0, 1, 0], np.float64)
        return Info(header=header(n, frame=frame), height=h, width=w, distortion_model="plumb_bob", d=np.array(d), k=k, r=np.eye(3).reshape(-1),
                    p=p, binning_x=binning, binning_y=binning, roi=Roi(x_offset=0, y_offset=0, height=0, width=0, do_rectify=False))

    def image(n, encoding, array, big=False, pad=0, late=0, frame="camera_color_optical_frame"):
        if big:
            array = array.astype(array.dtype.newbyteorder(">"))
        data, step = padded(array, pad)
        return Image(header=header(n, late, frame), height=array.shape[0], width=array.shape[1], encoding=encoding, is_bigendian=int(big), step=step, data=data)

    def packed(n, fmt, data, late=0):
        return Compressed(header=header(n, late), format=fmt, data=np.frombuffer(data, np.uint8))

    def bag(name, colour_of, depth_of, little=True, colour_topic="/camera/color/image_raw", depth_topic="/camera/aligned_depth_to_color/image_raw",
            extra=(), info_of=info, **how):
        path = OUT / name
        with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP, **how) as writer:
            def connect(topic, sample):
                return writer.add_connection(topic, sample.__msgtype__, typestore=store)

            def put(connection, ns, message):
                writer.write(connection, ns, store.serialize_cdr(message, message.__msgtype__, little_endian=little))

            sources = [(colour_topic, colour_of), (depth_topic, depth_of), ("/camera/color/camera_info", info_of), *extra]
            connections = [(connect(topic, make(0)), make) for topic, make in sources]
            for n in range(N):
                for connection, make in connections:
                    put(connection, T0 + n * PERIOD, make(n))

    for encoding, make in COLOUR.items():
        bag(f"ros2-{encoding}", lambda n: image(n, encoding, make(n)), lambda n: image(n, "16UC1", depth(n)))
    bag("ros2-big-endian", lambda n: image(n, "rgb8", colour(n)), lambda n: image(n, "16UC1", depth(n), big=True), little=False)
    bag("ros2-32fc1", lambda n: image(n, "rgb8", colour(n)), lambda n: image(n, "32FC1", metres(n)))
    bag("ros2-32fc1-big", lambda n: image(n, "bgr8", colour(n)[:, :, ::-1]), lambda n: image(n, "32FC1", metres(n), big=True), little=False)
    bag("ros2-padded", lambda n: image(n, "rgb8", colour(n), pad=13), lambda n: image(n, "16UC1", depth(n), pad=6))
    bag("ros2-jpeg-compressed-depth", lambda n: packed(n, "rgb8; jpeg compressed bgr8", encoded(colour(n), "JPEG")),
        lambda n: packed(n, "16UC1; compressedDepth png", struct.pack("<iff", 1, 0, 0) + png16(depth(n))),
        colour_topic="/camera/color/image_raw/compressed", depth_topic="/camera/aligned_depth_to_color/image_raw/compressedDepth")
    bag("ros2-png-old-compressed-depth", lambda n: packed(n, "rgb8; png compressed bgr8", encoded(colour(n), "PNG")),
        lambda n: packed(n, "16UC1; compressedDepth", struct.pack("<iff", 0, 0, 0) + png16(depth(n))),
        colour_topic="/camera/color/image_raw/compressed", depth_topic="/camera/aligned_depth_to_color/image_raw/compressedDepth")
    bag("ros2-quantised-depth", lambda n: image(n, "rgb8", colour(n)), lambda n: packed(n, "32FC1; compressedDepth png", inverse_depth(n, png16)),
        depth_topic="/camera/aligned_depth_to_color/image_raw/compressedDepth")
    bag("ros2-rvl-depth", lambda n: image(n, "rgb8", colour(n)),
        lambda n: packed(n, "16UC1; compressedDepth rvl", struct.pack("<iff", 1, 0, 0) + rvl(depth(n))),
        depth_topic="/camera/aligned_depth_to_color/image_raw/compressedDepth")
    bag("ros2-depth-late", lambda n: image(n, "rgb8", colour(n)), lambda n: image(n, "16UC1", depth(n), late=20_000_000))
    bag("ros2-depth-of-depth", lambda n: image(n, "rgb8", colour(n)), lambda n: image(n, "16UC1", depth(n), frame="camera_depth_optical_frame"))
    bag("ros2-depth-other-camera", lambda n: image(n, "rgb8", colour(n)), lambda n: image(n, "16UC1", depth(n)),
        extra=[("/camera/aligned_depth_to_color/camera_info", lambda n: info(n, fx=90.0))])
    bag("ros2-depth-other-size", lambda n: image(n, "rgb8", colour(n)), lambda n: image(n, "16UC1", depth(n)[::2, ::2]))
    bag("ros2-distorted", lambda n: image(n, "rgb8", colour(n)), lambda n: image(n, "16UC1", depth(n)), info_of=lambda n: info(n, d=(0.1, 0, 0, 0, 0)))
    bag("ros2-rectified", lambda n: image(n, "rgb8", colour(n)), lambda n: image(n, "16UC1", depth(n)), info_of=lambda n: info(n, d=(0.1, 0, 0, 0, 0)),
        colour_topic="/camera/color/image_rect")
    bag("ros2-yuv", lambda n: image(n, "yuv422_yuy2", colour(n)[:, :, :2]), lambda n: image(n, "16UC1", depth(n)))
    # Every message compressed on its own, as `ros2 bag record --compression-mode message` does.
    from rosbags.rosbag2 import CompressionFormat, CompressionMode
    path = OUT / "ros2-messages-compressed"
    writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(CompressionMode.MESSAGE, CompressionFormat.ZSTD)
    with writer:
        topics = [("/camera/color/image_raw", lambda n: image(n, "rgb8", colour(n))), ("/camera/aligned_depth_to_color/image_raw", lambda n: image(n, "16UC1", depth(n))),
                  ("/camera/color/camera_info", info)]
        made = [(writer.add_connection(topic, make(0).__msgtype__, typestore=store), make) for topic, make in topics]
        for n in range(N):
            for connection, make in made:
                writer.write(connection, T0 + n * PERIOD, store.serialize_cdr(make(n), make(n).__msgtype__))


def mcap_ros2_files():
    """The same with mcap-ros2-support, topic by topic, and with chunks and indexes of every kind."""
    from mcap.writer import CompressionType
    from mcap_ros2.writer import Writer

    time = "uint32 sec\nuint32 nanosec\n"
    text = {
        "sensor_msgs/msg/Image": "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data\n",
        "sensor_msgs/msg/CameraInfo": "std_msgs/Header header\nuint32 height\nuint32 width\nstring distortion_model\nfloat64[] d\nfloat64[9] k\nfloat64[9] r\n"
        "float64[12] p\nuint32 binning_x\nuint32 binning_y\nsensor_msgs/RegionOfInterest roi\n",
    }
    rest = ("=" * 80 + "\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n" + "=" * 80 + "\nMSG: builtin_interfaces/Time\n" + time + "=" * 80
            + "\nMSG: sensor_msgs/RegionOfInterest\nuint32 x_offset\nuint32 y_offset\nuint32 height\nuint32 width\nbool do_rectify\n")

    def stamp(n):
        ns = T0 + n * PERIOD
        return {"stamp": {"sec": ns // 10**9, "nanosec": ns % 10**9}, "frame_id": "cam"}

    def of(kind, n):
        if kind == "colour":
            return {"header": stamp(n), "height": H, "width": W, "encoding": "rgb8", "is_bigendian": 0, "step": 3 * W, "data": colour(n).tobytes()}
        if kind == "depth":
            return {"header": stamp(n), "height": H, "width": W, "encoding": "16UC1", "is_bigendian": 0, "step": 2 * W, "data": depth(n).tobytes()}
        return {"header": stamp(n), "height": H, "width": W, "distortion_model": "", "d": [], "k": [FX, 0, CX, 0, FY, CY, 0, 0, 1], "r": [1.0, 0, 0, 0, 1, 0, 0, 0, 1],
                "p": [FX, 0, CX, 0, 0, FY, CY, 0, 0, 0, 1, 0], "binning_x": 0, "binning_y": 0,
                "roi": {"x_offset": 0, "y_offset": 0, "height": 0, "width": 0, "do_rectify": False}}

    topics = {"colour": ("/c/color", "sensor_msgs/msg/Image"), "depth": ("/c/depth", "sensor_msgs/msg/Image"), "info": ("/c/calibration", "sensor_msgs/msg/CameraInfo")}
    backwards = [(kind, n) for n in reversed(range(N)) for kind in ("depth", "info", "colour")]
    by_topic = [(kind, n) for kind in ("info", "colour", "depth") for n in range(N)]
    for name, order, how in [
        ("mcap-by-topic", by_topic, {"chunk_size": 20_000}),
        ("mcap-by-topic-one-chunk", by_topic, {"chunk_size": 1 << 24}),
        ("mcap-backwards-lz4", backwards, {"chunk_size": 30_000, "compression": CompressionType.LZ4}),
        ("mcap-uncompressed", by_topic, {"chunk_size": 15_000, "compression": CompressionType.NONE}),
        ("mcap-no-chunks", by_topic, {"use_chunking": False}),
        ("mcap-no-index", by_topic, {"chunk_size": 20_000, "index_types": 0}),
        ("mcap-no-repeats", by_topic, {"chunk_size": 20_000, "repeat_channels": False, "repeat_schemas": False, "use_summary_offsets": False, "use_statistics": False}),
    ]:
        from mcap.writer import IndexType
        if how.get("index_types") == 0:
            how["index_types"] = IndexType.NONE
        with open(OUT / f"{name}.mcap", "wb") as file:
            writer = Writer(file, **{key: value for key, value in how.items() if key in ("chunk_size", "compression")})
            # Its own options are fewer than those of the writer below it.
            from mcap.writer import Writer as Plain
            options = {"chunk_size": 1 << 20, "compression": CompressionType.ZSTD} | how
            file.seek(0)
            file.truncate()
            writer._writer = Plain(file, **options)
            writer._writer.start(profile="ros2", library="test")
            schemas = {name: writer.register_msgdef(name, text[name] + rest) for _, name in topics.values()}
            if name == "mcap-by-topic":
                writer._writer.add_attachment(T0, T0, "large", "application/octet-stream", bytes(200_000))
            for kind, n in order:
                topic, schema = topics[kind]
                writer.write_message(topic, schemas[schema], of(kind, n), log_time=T0 + n * PERIOD, publish_time=T0 + n * PERIOD)
            writer.finish()


def foxglove_files():
    from foxglove_schemas_protobuf.CameraCalibration_pb2 import CameraCalibration
    from foxglove_schemas_protobuf.CompressedImage_pb2 import CompressedImage
    from foxglove_schemas_protobuf.RawImage_pb2 import RawImage
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.timestamp_pb2 import Timestamp
    from mcap.writer import Writer as Plain
    from mcap_protobuf.writer import Writer

    def stamp(n):
        ns = T0 + n * PERIOD
        return Timestamp(seconds=ns // 10**9, nanos=ns % 10**9)

    calibration = CameraCalibration(timestamp=stamp(0), frame_id="cam", width=W, height=H, K=[FX, 0, CX, 0, FY, CY, 0, 0, 1],
                                    P=[FX, 0, CX, 0, 0, FY, CY, 0, 0, 0, 1, 0])

    def raw(n, encoding, array):
        return RawImage(timestamp=stamp(n), frame_id="cam", width=W, height=H, encoding=encoding, step=array.nbytes // H, data=array.tobytes())

    variants = {
        "foxglove-jpeg": (lambda n: CompressedImage(timestamp=stamp(n), frame_id="cam", data=encoded(colour(n), "JPEG"), format="jpeg"),
                          lambda n: raw(n, "16UC1", depth(n))),
        "foxglove-png": (lambda n: CompressedImage(timestamp=stamp(n), frame_id="cam", data=encoded(colour(n), "PNG"), format="png"),
                         lambda n: CompressedImage(timestamp=stamp(n), frame_id="cam", data=png16(depth(n)), format="png")),
        "foxglove-raw-32fc1": (lambda n: raw(n, "rgba8", np.ascontiguousarray(COLOUR["rgba8"](n))), lambda n: raw(n, "32FC1", metres(n))),
    }
    for name, (colour_of, depth_of) in variants.items():
        with open(OUT / f"{name}.mcap", "wb") as file, Writer(file) as writer:
            for n in range(N):
                for topic, message in (("/c/depth", depth_of(n)), ("/c/calibration", calibration), ("/c/color", colour_of(n))):
                    writer.write_message(topic=topic, message=message, log_time=T0 + n * PERIOD, publish_time=T0 + n * PERIOD)

    def by_schema(message, **bytes_fields):
        """Foxglove's JSON schema: names as in the .proto file, times in sec and nsec, bytes in base64."""
        fields = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        fields["timestamp"] = {"sec": message.timestamp.seconds, "nsec": message.timestamp.nanos}
        return fields

    def by_protobuf(message):
        return MessageToDict(message)

    for name, form in (("json-by-schema", by_schema), ("json-by-protobuf", by_protobuf)):
        with open(OUT / f"{name}.mcap", "wb") as file:
            writer = Plain(file)
            writer.start()
            channels = {}
            for n in range(N):
                for topic, message in (("/c/color", variants["foxglove-jpeg"][0](n)), ("/c/depth", raw(n, "16UC1", depth(n))), ("/c/calibration", calibration)):
                    if topic not in channels:
                        schema = writer.register_schema(message.DESCRIPTOR.full_name, "jsonschema", b'{"type": "object"}')
                        channels[topic] = writer.register_channel(topic, "json", schema)
                    writer.add_message(channels[topic], log_time=T0 + n * PERIOD, publish_time=T0 + n * PERIOD, data=json.dumps(form(message)).encode())
            writer.finish()


def sdk_file():
    import foxglove
    from foxglove import messages as s
    from foxglove.channels import CameraCalibrationChannel, CompressedImageChannel, RawImageChannel

    context = foxglove.Context()
    with foxglove.open_mcap(str(OUT / "foxglove-sdk.mcap"), allow_overwrite=True, context=context):
        colours, depths, infos = CompressedImageChannel("/c/color", context=context), RawImageChannel("/c/depth", context=context), CameraCalibrationChannel("/c/calibration", context=context)
        for n in range(N):
            ns = T0 + n * PERIOD
            stamp = s.Timestamp(ns // 10**9, ns % 10**9)
            infos.log(s.CameraCalibration(timestamp=stamp, frame_id="cam", width=W, height=H, K=[FX, 0, CX, 0, FY, CY, 0, 0, 1]), log_time=ns)
            colours.log(s.CompressedImage(timestamp=stamp, frame_id="cam", data=encoded(colour(n), "JPEG"), format="jpeg"), log_time=ns)
            depths.log(s.RawImage(timestamp=stamp, frame_id="cam", width=W, height=H, encoding="16UC1", step=2 * W, data=depth(n).tobytes()), log_time=ns)


rosbags_files()
mcap_ros2_files()
foxglove_files()
sdk_file()
