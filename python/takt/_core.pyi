from typing import Iterator, List, Optional, Tuple, final

__version__: str

class Error(Exception):
    """What the library of loops refuses, in one sentence with the way out."""

@final
class Release:
    """A release of a loop, whose job has begun. Times are those of `now_ns()`."""

    @property
    def job(self) -> int:
        """Number of the job, from 0."""

    @property
    def release_ns(self) -> int:
        """When the job was released."""

    @property
    def begin_ns(self) -> int:
        """When it began; 0 for a driven job that began without a session."""

    @property
    def skipped(self) -> int:
        """Releases that were passed over because the job before overran them."""

class Loop:
    """A loop in the library. `period_ns` of None: driven. `deadline_ns` of 0: the period, or none."""

    def __new__(cls, name: str, period_ns: Optional[int], deadline_ns: int) -> Loop: ...
    @property
    def name(self) -> str: ...
    @property
    def attached(self) -> bool:
        """Whether a session of Takt takes the loop's records."""

    @property
    def skipped(self) -> int:
        """Releases passed over since the loop was opened."""

    @property
    def closed(self) -> bool: ...
    def wait(self) -> Release:
        """Ends an open job, sleeps until the next release without the GIL, and begins its job."""

    def next_release(self) -> int:
        """For those who sleep in their own way: ends an open job and decides on the next release. Sleep until then, and
        call `begin`."""

    def begin(self) -> Release:
        """Begins the job of the release that `next_release` decided on."""

    def release(self, at_ns: Optional[int] = None) -> Release:
        """Of a driven loop: begins a job that was released at `at_ns`; now when absent."""

    def input(self, sequence: int) -> None:
        """Sequence number of the input that this job consumes."""

    def stage(self, name: str) -> None:
        """A named stage of the job begins; at most 8 names a loop."""

    def value(self, value: float) -> None:
        """A value of interest of this job, such as the control error."""

    def end(self) -> None:
        """The job is done. What follows until the next release is none of it."""

    def spin_margin(self, ns: int) -> None:
        """How long before its release the loop stops sleeping and spins."""

    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Release]: ...
    def __next__(self) -> Release: ...

@final
class Timer:
    """A timer of CLOCK_MONOTONIC whose descriptor is readable from its time on."""

    def __new__(cls) -> Timer: ...
    def fileno(self) -> int: ...
    def set(self, at_ns: int) -> None: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...

def now_ns() -> int:
    """CLOCK_MONOTONIC, nanoseconds: the clock of `time.monotonic_ns()`."""

def thread_apply(
    policy: Optional[str],
    cpus: Optional[str],
    lock_memory: bool,
    prefault_stack_bytes: int,
    prefault_heap_bytes: int,
) -> Tuple[int, Optional[str], Optional[str], int, List[str]]: ...
