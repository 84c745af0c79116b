#!/usr/bin/env python3
"""A control loop on a third-party client: ur_rtde 1.6.5 from PyPI.

Usage: ur_rtde_loop.py HOST

Waits for each new state from port 30004 of HOST and answers it with a new speed slider, on a second connection of ur_rtde's own. Prints
"ready" after the first state; runs until it is ended. Exits 3 when ur_rtde is not installed.
"""

import sys
import time

try:
    import rtde_io
    import rtde_receive
except ImportError as missing:
    print(f"ur_rtde is not installed: {missing}")
    sys.exit(3)


def main():
    host = sys.argv[1]
    receive = rtde_receive.RTDEReceiveInterface(host, 125.0)
    outputs = rtde_io.RTDEIOInterface(host)
    newest, count = receive.getTimestamp(), 0
    print("ready", flush=True)
    while True:
        stamp = receive.getTimestamp()
        if stamp == newest:
            time.sleep(0.0005)
            continue
        newest, count = stamp, count + 1
        outputs.setSpeedSlider(0.5 + 0.25 * (count % 2))


if __name__ == "__main__":
    main()
