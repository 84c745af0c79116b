"""Loops that declare themselves to Takt, callbacks, and the settings of a thread."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, List, Optional, TypeVar, Union, cast

from . import _core
from ._core import Release
from ._units import Duration, duration_ns, period_ns

Function = TypeVar("Function", bound=Callable[..., Any])
Owner = Union[int, "asyncio.Task[Any]", None]
"""What runs a call: a thread, or a task of asyncio."""


class _Alarm:
    """Wakes a task of asyncio at a time of CLOCK_MONOTONIC. The sleep of asyncio is rounded up to a millisecond."""

    def __init__(self, events: asyncio.AbstractEventLoop) -> None:
        self.events = events
        self._timer = _core.Timer()
        self._future: Optional[asyncio.Future[None]] = None
        events.add_reader(self._timer.fileno(), self._ring)

    def _ring(self) -> None:
        self._timer.clear()
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def until(self, at_ns: int) -> None:
        self._future = self.events.create_future()
        self._timer.set(at_ns)
        await self._future

    def close(self) -> None:
        if not self.events.is_closed():
            self.events.remove_reader(self._timer.fileno())
        self._timer.close()


class Loop(_core.Loop):
    """A loop that declares itself to Takt. Made by `loop` and `driven`; belongs to one thread at a time.

    `for release in loop` sleeps until each release and runs the body as its job. `async for` does the same
    without holding up the event loop. Leaving the `with` block closes the loop.
    """

    _alarm: Optional[_Alarm] = None

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends an open job and takes the declaration back."""
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
        super().close()

    def __aiter__(self) -> Loop:
        return self

    async def __anext__(self) -> Release:
        events = asyncio.get_running_loop()
        if self._alarm is None or self._alarm.events is not events:
            if self._alarm is not None:
                self._alarm.close()
            self._alarm = _Alarm(events)
        await self._alarm.until(self.next_release())
        return self.begin()

    @contextmanager
    def job(self, at_ns: Optional[int] = None, *, input: Optional[int] = None) -> Iterator[Release]:
        """A job of a driven loop, released at `at_ns` (`now_ns()`, the default, or the stamp of an input)."""
        release = self.release(at_ns)
        try:
            if input is not None:
                self.input(input)
            yield release
        finally:
            self.end()


def loop(
    name: str,
    *,
    hz: Optional[float] = None,
    period: Optional[Duration] = None,
    deadline: Optional[Duration] = None,
    spin: Optional[Duration] = None,
) -> Loop:
    """Declares a loop that is released by time: every `period`, or `hz` times a second.

    `deadline` is how long after its release a job may end; the period when absent. `spin` is how long before a
    release the loop stops sleeping and spins: less late, for a CPU that is busy meanwhile. The GIL is free then, too.
    """
    opened = Loop(name, period_ns(hz, period), 0 if deadline is None else _deadline_ns(deadline))
    if spin is not None:
        opened.spin_margin(duration_ns("spin", spin))
    return opened


def driven(name: str, *, deadline: Optional[Duration] = None) -> Loop:
    """Declares a loop that an input releases: a message, an interrupt, a call. See `Loop.job` and `callback`."""
    return Loop(name, None, 0 if deadline is None else _deadline_ns(deadline))


def _deadline_ns(deadline: Duration) -> int:
    ns = duration_ns("deadline", deadline)
    if ns == 0:
        raise ValueError(f"deadline: received {deadline!r}; accepted: above 0")
    return ns


class Callback:
    """A driven loop whose jobs are calls of the functions that it decorates.

        camera = takt.callback("camera", deadline="20 ms")

        @camera
        def on_image(image):
            camera.stage("detect")

    A call never waits for its record. Calls that overlap another one, in this thread or in another, run without a
    record; `unrecorded` counts them.
    """

    def __init__(
        self, name: str, deadline: Optional[Duration] = None, stamp: Optional[Callable[..., int]] = None
    ) -> None:
        self.name = name
        self.unrecorded = 0
        self._deadline_ns = 0 if deadline is None else _deadline_ns(deadline)
        self._stamp = stamp
        self._loop: Optional[Loop] = None
        self._busy = threading.Lock()
        self._owner: Owner = None
        _callbacks.add(self)

    def __call__(self, function: Function) -> Function:
        """Decorates a function, a method or a coroutine function."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                begun = self._begin(asyncio.current_task(), args, kwargs)
                try:
                    return await function(*args, **kwargs)
                finally:
                    if begun:
                        self._end()

            return cast(Function, call_async)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            begun = self._begin(threading.get_ident(), args, kwargs)
            try:
                return function(*args, **kwargs)
            finally:
                if begun:
                    self._end()

        return cast(Function, call)

    def _begin(self, owner: Owner, args: Any, kwargs: Any) -> bool:
        if not self._busy.acquire(blocking=False):
            self.unrecorded += 1
            return False
        try:
            if self._loop is None:
                # At the first call, so that a process that forks declares what it runs itself.
                self._loop = Loop(self.name, None, self._deadline_ns)
            self._loop.release(None if self._stamp is None else self._stamp(*args, **kwargs))
        except BaseException:
            self._busy.release()
            raise
        self._owner = owner
        return True

    def _end(self) -> None:
        self._owner = None
        try:
            if self._loop is not None:
                self._loop.end()
        finally:
            self._busy.release()

    def _current(self) -> Optional[Loop]:
        owner = self._owner
        if owner is None:
            return None
        here: Owner = threading.get_ident()
        if not isinstance(owner, int):
            try:
                here = asyncio.current_task()
            except RuntimeError:
                return None
        return self._loop if owner == here else None

    def stage(self, name: str) -> None:
        """A named stage of the call begins."""
        current = self._current()
        if current is not None:
            current.stage(name)

    def value(self, value: float) -> None:
        """A value of interest of the call."""
        current = self._current()
        if current is not None:
            current.value(value)

    def input(self, sequence: int) -> None:
        """Sequence number of the input that the call consumes."""
        current = self._current()
        if current is not None:
            current.input(sequence)

    def close(self) -> None:
        """Takes the declaration back. A later call declares it anew."""
        with self._busy:
            if self._loop is not None:
                self._loop.close()
                self._loop = None


_callbacks: weakref.WeakSet[Callback] = weakref.WeakSet()


def _after_fork() -> None:
    # A child inherits no loop, and a lock that another thread held would stay locked for ever.
    for one in _callbacks:
        one._loop, one._owner, one._busy = None, None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def callback(
    name: str, *, deadline: Optional[Duration] = None, stamp: Optional[Callable[..., int]] = None
) -> Callback:
    """A decorator for functions that something else calls: each call is a job of the driven loop `name`.

    `stamp` gets the arguments of a call and returns when its input came (CLOCK_MONOTONIC, nanoseconds): the release.
    Without it, a call is its own release.
    """
    return Callback(name, deadline, stamp)


@dataclass(frozen=True)
class Granted:
    """What the kernel granted to a thread, read back from it."""

    tid: int
    """The thread."""
    policy: Optional[str]
    """Its policy, such as "fifo:80"; None for one that has no such text (batch, idle)."""
    cpus: Optional[str]
    """Where it may run, such as "0-3"."""
    locked_bytes: int
    """Locked memory of the process."""
    not_granted: List[str] = field(default_factory=list)
    """A sentence for each setting that is not as asked, with its fix."""

    def __bool__(self) -> bool:
        """Whether everything was granted."""
        return not self.not_granted


class NotGranted(_core.Error):
    """`thread(..., strict=True)` was refused something."""


def thread(
    *,
    name: Optional[str] = None,
    policy: Optional[str] = None,
    cpus: Optional[str] = None,
    lock_memory: bool = False,
    prefault_stack: int = 0,
    prefault_heap: int = 0,
    strict: bool = False,
) -> Granted:
    """Gives the calling thread these settings, and returns what it has afterwards.

    `name` is the thread's name, by which `takt run`, `takt watch` and `ps` know it; the kernel keeps 15 bytes. `policy`
    is "fifo:80", "rr:10", "other:5" or "deadline:1ms/2ms/2ms". `lock_memory` locks all memory of the process, now and
    later. `prefault_stack` and `prefault_heap` are bytes that are touched now, so that they do not fault later.
    `strict` raises `NotGranted` where the kernel refuses something.
    """
    if name is not None:
        if not name or "\0" in name or "\n" in name:
            raise ValueError(f"name: received {name!r}; accepted: a text of up to 15 bytes")
        with open("/proc/thread-self/comm", "w", encoding="utf-8") as comm:
            comm.write(name)
    given = _core.thread_apply(policy, cpus, lock_memory, prefault_stack, prefault_heap)
    granted = Granted(*given)
    if strict and not granted:
        raise NotGranted("; ".join(granted.not_granted))
    return granted
