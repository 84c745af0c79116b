#!/usr/bin/env python3
"""What a third-party client sees while somebody else streams joint targets: ur_rtde 1.6.5 from PyPI.

Usage: ur_rtde_servo.py HOST SAMPLES

Reads the controller's time and joint angles from port 30004 of HOST and prints one line per new state, "TIME Q0 .. Q5",
until there are SAMPLES of them; exits 3 when ur_rtde is not installed.
"""

import sys
import time

try:
    import rtde_receive
except ImportError as missing:
    print(f"ur_rtde is not installed: {missing}")
    sys.exit(3)

PATIENCE_S = 60.0


def main():
    receive = rtde_receive.RTDEReceiveInterface(sys.argv[1])
    samples, newest, end = 0, 0.0, time.monotonic() + PATIENCE_S
    while samples < int(sys.argv[2]):
        if time.monotonic() > end:
            sys.exit(f"{samples} states in {PATIENCE_S} s")
        before = receive.getTimestamp()
        joints = receive.getActualQ()
        # Of one packet only where the time did not go on meanwhile.
        if before != newest and receive.getTimestamp() == before:
            newest = before
            samples += 1
            print(repr(before), *map(repr, joints))
        time.sleep(0.001)
    receive.disconnect()


if __name__ == "__main__":
    main()
