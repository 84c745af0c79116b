#!/usr/bin/env python3
"""The node of the test system that is in Python: a timer that publishes, and a subscription. Writes what it did as truth.hpp says."""

import os
import threading
import time

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import Temperature

SCALE = float(os.environ.get("TAKT_TRUTH_SCALE", "1"))


def burn(ms):
    end_ns = time.thread_time_ns() + int(ms * SCALE * 1e6)
    while time.thread_time_ns() < end_ns:
        pass


class Talker(Node):
    def __init__(self, file):
        super().__init__("talker")
        self.file = file
        self.number = 0
        self.written_ns = 0
        self.out = self.create_publisher(Temperature, "/said", 10)
        self.create_subscription(Temperature, "/charge", self.heard, 10)
        self.create_timer(0.1, self.tick)

    def write(self, callback, start_ns, cpu_ns, inputs, outputs):
        end_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns() - cpu_ns
        fields = ["run", callback, "python", threading.get_native_id(), 0, start_ns, end_ns, cpu_ns, inputs, outputs, self.written_ns]
        os.write(self.file, ("\t".join(map(str, fields)) + "\n").encode())
        self.written_ns = time.monotonic_ns()

    def tick(self):
        start_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        burn(0.5)
        message = Temperature()
        message.header.frame_id = f"/talker>/said#{self.number}"
        self.number += 1
        sent_ns = time.monotonic_ns()
        self.out.publish(message)
        self.write("/talker timer 100ms", start_ns, cpu_ns, "", f"{message.header.frame_id}@{sent_ns}")

    def heard(self, message):
        start_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        burn(0.3)
        self.write("/talker subscription /charge", start_ns, cpu_ns, f"{message.header.frame_id}@0", "")


def main():
    path = os.path.join(os.environ.get("TAKT_TRUTH_DIR", "."), f"{os.getpid()}.truth")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"process\ttalker\t{os.getpid()}\n".encode())
    rclpy.init()
    try:
        rclpy.spin(Talker(file))
    except (KeyboardInterrupt, ExternalShutdownException):
        pass


main()
