#!/usr/bin/env python3
"""Response-time bounds of the PyPI package `response-time-analysis` (an implementation of its own, verified with PROSA), where its scope
meets that of crates/takt-manager: a thread alone on a periodic resource (its FIFO analysis), and a callback that all others of its
executor may precede on a whole core (its analysis of non-preemptive fixed priorities, the callback being the lowest).

Run from the root of the repository:

    python3 tools/reference/rta.py > crates/takt-manager/tests/data/rta.json
"""

import json
import random

from response_time_analysis import fifo, fp
from response_time_analysis.model import (
    WCET,
    FullyNonPreemptive,
    FullyPreemptive,
    PeriodicWithJitter,
    Task,
    taskset,
    IdealProcessor,
)

SEED = 20211207
HORIZON = 10_000_000


class PeriodicResource:
    """Supply-bound function of the periodic resource model (Shin and Lee, RTSS 2003)."""

    def __init__(self, budget, period):
        self.budget, self.period = budget, period

    def __call__(self, delta):
        slack = self.period - self.budget
        if delta < slack:
            return 0
        full = (delta - slack) // self.period
        return self.budget * full + max(0, delta - 2 * slack - self.period * full)


def tasks(rng, number, load):
    """Periods, jitters and costs of a given joint load."""
    out = []
    for _ in range(number):
        period = rng.randint(500, 5000)
        jitter = rng.choice([0, 0, rng.randint(1, 2 * period)])
        cost = max(1, int(period * load / number * rng.uniform(0.5, 1.0)))
        out.append({"period": period, "jitter": jitter, "cost": cost})
    return out


def task(spec, preemptive, priority):
    model = FullyPreemptive if preemptive else FullyNonPreemptive
    return Task(
        PeriodicWithJitter(spec["period"], spec["jitter"]),
        model(WCET(spec["cost"])),
        priority=priority,
    )


def main():
    rng = random.Random(SEED)
    alone, shared = [], []
    for _ in range(60):
        period = rng.choice([100, 250, 1000])
        budget = rng.randint(period // 5, period)
        [spec] = tasks(rng, 1, 0.9 * budget / period)
        found = fifo.rta(taskset(task(spec, True, 0)), PeriodicResource(budget, period), HORIZON)
        alone.append({"period": period, "budget": budget, "task": spec, "bound": found.response_time_bound})
    for _ in range(60):
        specs = tasks(rng, rng.randint(2, 5), 0.8)
        bounds = []
        for own in range(len(specs)):
            all_tasks = [task(s, False, 0 if i == own else 1) for i, s in enumerate(specs)]
            found = fp.rta(taskset(all_tasks), all_tasks[own], IdealProcessor(), HORIZON)
            bounds.append(found.response_time_bound)
        shared.append({"tasks": specs, "bounds": bounds})
    print(json.dumps({"package": "response-time-analysis 0.1.1", "alone": alone, "shared": shared}, indent=1))


main()
