#!/usr/bin/env python3
"""A third-party client against a controller that speaks RTDE: ur_rtde 1.6.5 from PyPI.

Usage: ur_rtde_client.py HOST

Connects to ports 30004 and 29999 of HOST (ur_rtde knows no others), reads the state, moves the speed slider
and sets a standard digital output, and checks that what it wrote is what it reads. Prints one line per
finding and exits 0 when all are as expected; exits 3 when ur_rtde is not installed.
"""

import math
import sys
import time

try:
    import dashboard_client
    import rtde_io
    import rtde_receive
except ImportError as missing:
    print(f"ur_rtde is not installed: {missing}")
    sys.exit(3)

PATIENCE_S = 20.0


def expect(what, found):
    print(f"{what}: {found}", flush=True)
    if not found:
        sys.exit(f"not as expected: {what}")


def wait_for(what, look):
    end = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > end:
            sys.exit(f"never came: {what}")
        time.sleep(0.005)
    print(f"{what}: True", flush=True)


def main():
    host = sys.argv[1]

    dashboard = dashboard_client.DashboardClient(host)
    dashboard.connect()
    expect("dashboard connected", dashboard.isConnected())
    expect("polyscope version", dashboard.polyscopeVersion())
    expect("serial number", dashboard.getSerialNumber().isdigit())
    expect("robot mode", "RUNNING" in dashboard.robotmode())
    expect("program runs", dashboard.running())
    expect("remote control", dashboard.isInRemoteControl())

    receive = rtde_receive.RTDEReceiveInterface(host)
    expect("receive connected", receive.isConnected())
    joints = receive.getActualQ()
    expect("six joint angles", len(joints) == 6 and all(math.isfinite(angle) for angle in joints))
    pose = receive.getActualTCPPose()
    expect("a pose within reach", 0.1 < math.dist(pose[:3], (0, 0, 0)) < 1.6)
    expect("robot runs", receive.getRobotMode() == 7)
    expect("safety normal", receive.getSafetyMode() == 1)
    expect("program plays", receive.getRuntimeState() == 2)
    expect("full speed", receive.getTargetSpeedFraction() == 1.0)
    before = receive.getTimestamp()
    wait_for("controller time goes on", lambda: receive.getTimestamp() > before + 0.01)

    outputs = rtde_io.RTDEIOInterface(host)
    expect("slider set", outputs.setSpeedSlider(0.25))
    wait_for("slider read back", lambda: receive.getTargetSpeedFraction() == 0.25)
    expect("output set", outputs.setStandardDigitalOut(1, True))
    wait_for("output read back", lambda: receive.getDigitalOutState(1))
    expect("other outputs untouched", receive.getActualDigitalOutputBits() == 0b10)

    # An explicit list of variables, with another rate.
    few = rtde_receive.RTDEReceiveInterface(host, 125.0, ["timestamp", "actual_q", "actual_TCP_speed"])
    expect("explicit variables", len(few.getActualTCPSpeed()) == 6)

    dashboard.pause()
    wait_for("program paused", lambda: receive.getRuntimeState() == 4)
    dashboard.play()
    wait_for("program plays again", lambda: receive.getRuntimeState() == 2)

    for interface in (outputs, few, receive, dashboard):
        interface.disconnect()


if __name__ == "__main__":
    main()
