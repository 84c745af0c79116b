"""Times and rates as people write them: "2 ms", 500 Hz."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Optional, Union

Duration = Union[str, timedelta]
"""A time: a text with a unit ("500 us", "2 ms", "1.5 s"), or a timedelta."""

_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(\S*)\s*", re.ASCII)


def duration_ns(what: str, value: Duration) -> int:
    """Nanoseconds of a time; `what` is its name in an error."""
    if isinstance(value, timedelta):
        ns = (value.days * 86_400 + value.seconds) * 1_000_000_000 + value.microseconds * 1_000
        if ns < 0:
            raise ValueError(f"{what}: received {value}; accepted: 0 or more")
        return ns
    if not isinstance(value, str):
        raise TypeError(f'{what}: received {value!r}; accepted: a text with a unit, such as "2 ms", or a timedelta')
    match = _TIME.fullmatch(value)
    unit_ns = match and _UNITS_NS.get(match[2])
    if not match or not unit_ns:
        raise ValueError(f'{what}: received {value!r}; accepted: a number with ns, us, ms, s or min, such as "2 ms"')
    exact = Decimal(match[1]) * unit_ns
    if exact != int(exact):
        raise ValueError(f"{what}: received {value!r}, which is finer than a nanosecond")
    return int(exact)


def period_ns(hz: Optional[float], period: Optional[Duration]) -> int:
    """The time between two releases."""
    if (hz is None) == (period is None):
        given = "neither" if hz is None else "both"
        raise TypeError(f'hz and period: received {given}; accepted: one of them, such as hz=500 or period="2 ms"')
    if period is not None:
        return duration_ns("period", period)
    assert hz is not None
    rate = float(hz)
    if not 0.0 < rate <= 1e9:
        raise ValueError(f"hz: received {hz!r}; accepted: releases a second, above 0")
    return round(1e9 / rate)
