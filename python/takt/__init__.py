"""Your own loop, measured and judged by Takt.

    import takt

    takt.thread(name="control", policy="fifo:80", lock_memory=True)
    with takt.loop("control", hz=500) as loop:
        for release in loop:
            control()

`takt run program.toml` starts such a program, judges its deadline and finds the causes of late cycles; `load` opens
the folder that such a run leaves. The chapter "Your own loop" of Takt's book has the rest, also what the GIL costs.
"""

from ._core import Error, Release, __version__, now_ns
from ._loops import Callback, Granted, Loop, NotGranted, callback, driven, loop, thread
from ._runs import Measure, Run, load, runs

__all__ = [
    "Callback",
    "Error",
    "Granted",
    "Loop",
    "Measure",
    "NotGranted",
    "Release",
    "Run",
    "__version__",
    "callback",
    "driven",
    "load",
    "loop",
    "now_ns",
    "runs",
    "thread",
]
