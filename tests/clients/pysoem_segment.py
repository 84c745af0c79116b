#!/usr/bin/env python3
"""A master that nobody here wrote: pysoem 1.1.13 (SOEM) from PyPI, on one end of a cable with a segment.

Usage: pysoem_segment.py INTERFACE DEVICES MODE SECONDS [LOG]

MODE check: DEVICES sub-devices reach OP, SDO transfers (expedited, normal, segmented, both ways), process data: all
drives are enabled and one joint moves. MODE bench: cycles for SECONDS as fast as they go, then for SECONDS at 1 kHz, then with all data used.
MODE cost: CPU time of a cycle at 1 kHz, and of a loop that only sleeps.
MODE plant: cycles at 250 Hz with a stretch for each place where somebody plants a delay: before it, "plant PLACE" is printed and a
line awaited; in the last one this program itself is late by SECONDS. Its own stamps go to LOG (CSV, CLOCK_MONOTONIC).
MODE steered: cycles of 20 ms, at real-time priority on CPU SECONDS where that is permitted. A line on standard input asks for a delay in the next
one: "long" computes for 9 ms before the frame, "full" fills the interface's queue before it, "end" ends. Each is printed when it is done.
MODE hold: OP and cycles at 1 kHz for SECONDS; prints every change of working counter and states.
Prints one line per finding, the last one as JSON. Exits 0 when all is as expected, 3 when pysoem is not installed.
"""

import json
import os
import select
import socket
import struct
import sys
import time

try:
    import pysoem
except ImportError as missing:
    print(f"pysoem is not installed: {missing}")
    sys.exit(3)

TIMEOUT_US = 100_000
DRIVE = 0x04020001
VENDOR = 0x54414B54


def expect(what, found):
    print(f"{what}: {found}", flush=True)
    if not found:
        sys.exit(f"not as expected: {what}")


def exchange(master):
    master.send_processdata()
    return master.receive_processdata(TIMEOUT_US)


def bring_up(interface, devices, sync0=False):
    begin = time.monotonic()
    master = pysoem.Master()
    master.open(interface)
    expect(f"{devices} devices found", master.config_init() == devices)
    expect("all from the simulated vendor", all(slave.man == VENDOR for slave in master.slaves))
    size = master.config_map()
    expect(f"process data mapped ({size} bytes)", size > 0)
    expect("distributed clocks", master.config_dc())
    for slave in master.slaves:
        # Drives act at Sync0; the others by frames.
        if sync0 and slave.id == DRIVE:
            slave.dc_sync(True, 1_000_000)
    master.state_check(pysoem.SAFEOP_STATE, 5_000_000)
    master.read_state()
    expect("all in SAFEOP", all(slave.state == pysoem.SAFEOP_STATE for slave in master.slaves))
    exchange(master)
    master.state = pysoem.OP_STATE
    master.write_state()
    for _ in range(200):
        exchange(master)
        if master.state_check(pysoem.OP_STATE, 10_000) == pysoem.OP_STATE:
            break
    master.read_state()
    in_op = sum(slave.state == pysoem.OP_STATE for slave in master.slaves)
    expect(f"{devices} devices in OP", in_op == devices)
    wkc = exchange(master)
    expect(f"working counter {wkc} of {master.expected_wkc}", wkc == master.expected_wkc)
    return master, in_op, time.monotonic() - begin


def transfers(master):
    slave = next(slave for slave in master.slaves if slave.id == DRIVE)
    expect("expedited upload: identity", struct.unpack("<I", slave.sdo_read(0x1018, 1))[0] == VENDOR)
    name = slave.sdo_read(0x1008, 0).rstrip(b"\0").decode()
    expect(f"normal upload: device name {name}", "-" in name)
    ramp = slave.sdo_read(0x2000, 0, 512)
    expect("segmented upload", ramp == bytes(i % 256 for i in range(512)))
    table = bytes((7 * i + 3) % 256 for i in range(512))
    slave.sdo_write(0x2000, 0, table)
    expect("segmented download reads back", slave.sdo_read(0x2000, 0, 512) == table)
    slave.sdo_write(0x6060, 0, struct.pack("<b", 8))
    expect("expedited download reads back", slave.sdo_read(0x6061, 0) == b"\x08")
    try:
        slave.sdo_read(0x5FFF, 0)
        sys.exit("not as expected: an unknown object was read")
    except pysoem.SdoError as error:
        expect("unknown object aborted with 0x06020000", error.abort_code == 0x06020000)


def move(master):
    drives = [slave for slave in master.slaves if slave.id == DRIVE]

    def status(slave):
        return struct.unpack("<Hi", slave.input)

    targets = [status(slave)[1] for slave in drives]
    # Shutdown, switch on, enable operation.
    for control, pattern, mask in ((0x06, 0x21, 0x6F), (0x07, 0x23, 0x6F), (0x0F, 0x27, 0x6F)):
        for slave, target in zip(drives, targets):
            slave.output = struct.pack("<Hi", control, target)
        end = time.monotonic() + 10
        while any(status(slave)[0] & mask != pattern for slave in drives):
            exchange(master)
            time.sleep(0.001)
            if time.monotonic() > end:
                sys.exit(f"never came: {len(drives)} drives with statusword {pattern:#x}")
    expect(f"{len(drives)} drives enabled", True)
    goal = targets[0] + 4000
    end = time.monotonic() + 20
    while abs(status(drives[0])[1] - goal) > 200:
        step = max(-100, min(100, goal - targets[0]))
        targets[0] += step
        drives[0].output = struct.pack("<Hi", 0x0F, targets[0])
        exchange(master)
        time.sleep(0.001)
        if time.monotonic() > end:
            sys.exit(f"never came: the joint at {goal}, it is at {status(drives[0])}")
    expect("the joint has moved", True)


def use_data(master, drives, count):
    """Writes every drive's target and reads every input, as a controller does."""
    for slave in drives:
        slave.output = struct.pack("<Hi", 6, count)
    return sum(len(slave.input) for slave in master.slaves)


def cycles(master, seconds, period_s, data=False):
    drives = [slave for slave in master.slaves if slave.id == DRIVE]
    begin, cpu = time.monotonic(), time.process_time()
    count, wrong, due = 0, 0, begin
    while time.monotonic() - begin < seconds:
        wrong += exchange(master) != master.expected_wkc
        if data:
            use_data(master, drives, count)
        count += 1
        if period_s:
            due += period_s
            pause = due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
    return {
        "cycles": count,
        "cycles_per_s": round(count / (time.monotonic() - begin)),
        "wrong_working_counters": wrong,
        "cpu_us_per_cycle": round((time.process_time() - cpu) / count * 1e6, 2),
    }


def hold(master, seconds):
    begin, last = time.monotonic(), None
    seen = []
    while time.monotonic() - begin < seconds:
        wkc = exchange(master)
        if wkc != last:
            last = wkc
            seen.append(wkc)
            print(f"working counter {wkc}", flush=True)
        time.sleep(0.001)
    master.read_state()
    return {"working_counters": seen, "states": [slave.state for slave in master.slaves]}


def steered(master, interface, cpu):
    other = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    other.bind((interface, 0))
    # An EtherType for experiments (IEEE 802).
    filler = b"\xff" * 6 + b"\x02\0\0\0\0\1" + b"\x88\xb5" + bytes(1400)
    os.sched_setaffinity(0, {cpu})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(40))
    except PermissionError:
        pass
    print("steered", flush=True)
    due, plant, count = time.monotonic(), "", 0
    while plant != "end":
        due += 0.02
        ready = select.select([sys.stdin], [], [], 0)[0]
        plant = sys.stdin.readline().strip() if ready else ""
        time.sleep(max(0, due - time.monotonic()))
        if plant == "long":
            begin = time.monotonic()
            while time.monotonic() < begin + 0.009:
                pass
        elif plant == "full":
            for _ in range(8):
                other.send(filler)
        exchange(master)
        count += 1
        if plant:
            print(plant, flush=True)
    other.close()
    return {"cycles": count}


PLANT_PERIOD_NS = 4_000_000


def paced(seconds, cycle):
    """CPU time a cycle at 1 kHz, microseconds."""
    count = int(seconds * 1000)
    cpu, due = time.process_time(), time.monotonic()
    for _ in range(count):
        cycle()
        due += 0.001
        pause = due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
    return (time.process_time() - cpu) / count * 1e6


def cost(master, seconds):
    wrong = 0

    def cycle():
        nonlocal wrong
        wrong += exchange(master) != master.expected_wkc

    cycle_us = paced(seconds, cycle)
    sleep_us = paced(seconds, lambda: None)
    print(f"cost {sleep_us} {cycle_us} {wrong}", flush=True)
    return {"sleep_us": round(sleep_us, 2), "cycle_us": round(cycle_us, 2)}


def plant(master, late_s, path):
    rows = []
    due = 0

    def cycle(late_s=0.0):
        nonlocal due
        due = max(due + PLANT_PERIOD_NS, time.monotonic_ns())
        planned = due
        time.sleep(max(0, planned - time.monotonic_ns()) / 1e9)
        wake = time.monotonic_ns()
        time.sleep(late_s)
        sent = time.monotonic_ns()
        master.send_processdata()
        # Longer than whatever is planted: it waits for the answer.
        wkc = master.receive_processdata(1_000_000)
        taken = time.monotonic_ns()
        rows.append((planned, wake, sent, taken if wkc > 0 else 0))
        return taken - sent

    def ask(what):
        print(f"plant {what}", flush=True)
        sys.stdin.readline()

    for place in ("device", "wire", "host", "application"):
        print(f"at {place} {time.monotonic_ns()}", flush=True)
        for _ in range(20):
            cycle()
        ask(place)
        if place == "application":
            cycle(late_s)
        elif place == "host":
            # Until the queue before the interface is full and holds frames up.
            for _ in range(60):
                if cycle() > 60_000_000:
                    break
            ask("unhost")
        for _ in range(20):
            cycle()
        # What is still under way belongs to this stretch.
        time.sleep(0.05)
        print(f"at {place}-end {time.monotonic_ns()}", flush=True)
    with open(path, "w") as file:
        file.write("planned_ns,wake_ns,sent_ns,taken_ns\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)
    return {"cycles_logged": len(rows)}


def main():
    interface, devices, mode, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    master, in_op, bring_up_s = bring_up(interface, devices, sync0=mode == "check")
    result = {"devices_op": in_op, "bring_up_s": round(bring_up_s, 2), "expected": master.expected_wkc}
    if mode == "check":
        transfers(master)
        move(master)
    elif mode == "bench":
        result["free"] = cycles(master, seconds, 0)
        result["paced"] = cycles(master, seconds, 0.001)
        result["with_data"] = cycles(master, seconds, 0.001, data=True)
    elif mode == "cost":
        result.update(cost(master, seconds))
    elif mode == "steered":
        result.update(steered(master, interface, int(seconds)))
    elif mode == "plant":
        result.update(plant(master, seconds, sys.argv[5]))
    else:
        result.update(hold(master, seconds))
    master.state = pysoem.INIT_STATE
    master.write_state()
    master.close()
    print(json.dumps(result), flush=True)


main()
