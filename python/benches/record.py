"""What a job costs in Python: `python3 record.py`, with the wheel installed. Nanoseconds for each job, the least of many rounds.

Without a session, with one (this script attaches as one and reads between rounds), and, to compare, two calls of
`time.perf_counter` whose difference goes into a list.
"""

import pathlib
import sys
import time

import takt

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
from session import Session  # noqa: E402

JOBS, ROUNDS = 2000, 200


def least_ns(round_, between=lambda: None):
    best = float("inf")
    for _ in range(ROUNDS):
        between()
        begin = time.perf_counter_ns()
        round_()
        best = min(best, (time.perf_counter_ns() - begin) / JOBS)
    return best


def nothing():
    for _ in range(JOBS):
        pass


def list_of_times():
    times = []
    for _ in range(JOBS):
        begin = time.perf_counter()
        times.append(time.perf_counter() - begin)


def main():
    loop = takt.driven("record")
    camera = takt.callback("camera")
    plain = lambda: None  # noqa: E731
    decorated = camera(plain)
    decorated()

    def jobs():
        for _ in range(JOBS):
            loop.release()
            loop.end()

    def calls():
        for _ in range(JOBS):
            decorated()

    def plain_calls():
        for _ in range(JOBS):
            plain()

    empty = least_ns(nothing)
    call = least_ns(plain_calls)
    print(f"two perf_counter and a list   {least_ns(list_of_times) - empty:6.0f} ns")
    print(f"release and end, no session   {least_ns(jobs) - empty:6.0f} ns")
    print(f"callback, no session          {least_ns(calls) - call:6.0f} ns")
    session = Session()
    session.attach("record")
    session.attach("camera")
    take = lambda: (session.take("record"), session.take("camera"))  # noqa: E731
    print(f"release and end, with session {least_ns(jobs, take) - empty:6.0f} ns")
    print(f"callback, with session        {least_ns(calls, take) - call:6.0f} ns")


if __name__ == "__main__":
    main()
