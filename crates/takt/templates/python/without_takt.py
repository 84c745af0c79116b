"""What controller.py uses of the module `takt`, where it is not installed: the same grid of releases, and no records.

Takt then follows the loop by the kernel's events. Delete this file once the wheel is installed.
"""

import time


def thread(name: str) -> None:
    with open("/proc/thread-self/comm", "w") as comm:
        comm.write(name)


class loop:
    def __init__(self, name: str, hz: float) -> None:
        self.period_ns = round(1e9 / hz)

    def __enter__(self) -> "loop":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __iter__(self):
        next_ns = time.monotonic_ns() + self.period_ns
        while True:
            # An overrun keeps the phase: the next release is the next one of the grid.
            over_ns = time.monotonic_ns() - next_ns
            next_ns += max(0, over_ns // self.period_ns) * self.period_ns
            time.sleep(max(0, next_ns - time.monotonic_ns()) / 1e9)
            yield next_ns
            next_ns += self.period_ns

    def value(self, value: float) -> None:
        pass
