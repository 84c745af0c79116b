#!/usr/bin/env python3
"""Reference numbers for crates/takt-stats, computed with NumPy and SciPy.

Run from the root of the repository:

    python3 tools/reference/evt.py > crates/takt-stats/tests/data/scipy.json

The samples are written with the results, so that nothing has to be drawn again; the seed is fixed, so that the
same versions write the same file. Fits start from SciPy's own starting point and are polished (tighter tolerances,
restarted once), so that what is compared is the likelihood's maximum and not an optimiser's patience.
"""

import json
import sys

import numpy as np
import scipy
from scipy import optimize, stats

SEED = 20261121


def rounded(values):
    """What the file holds is what was fitted."""
    return [float(f"{v:.9g}") for v in values]


def patient(func, x0, args=(), disp=0):
    """SciPy's simplex search, twice, with tight tolerances."""
    x = x0
    for _ in range(2):
        x = optimize.fmin(func, x, args=args, xtol=1e-9, ftol=1e-9, maxiter=20000, maxfun=20000, disp=disp)
    return x


def quantiles(rng):
    out = []
    for n in (1, 2, 10, 367, 1000):
        sample = rounded(rng.lognormal(10.0, 0.5, n))
        levels = [0.0, 0.001, 0.07, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0]
        values = np.quantile(sample, levels, method="inverted_cdf")
        entry = {"sample": sample, "levels": levels, "values": [float(v) for v in values]}
        # Distribution-free interval: order statistics by the binomial distribution, from 1; 0 where there is none.
        entry["intervals"] = []
        for q in (0.5, 0.9, 0.99):
            for confidence in (0.9, 0.95, 0.99):
                tail = (1 - confidence) / 2
                low = max([l for l in range(1, n + 1) if stats.binom.cdf(l - 1, n, q) <= tail], default=0)
                high = min([u for u in range(1, n + 1) if stats.binom.sf(u - 1, n, q) <= tail], default=0)
                entry["intervals"].append({"q": q, "confidence": confidence, "low": low, "high": high})
        entry["mean"] = float(np.mean(sample))
        entry["stddev"] = float(np.std(sample, ddof=1)) if n > 1 else 0.0
        out.append(entry)
    return out


def pareto(rng):
    out = []
    for shape in (-0.4, -0.2, 0.0, 0.1, 0.3, 0.6):
        for n in (60, 250):
            sample = rounded(stats.genpareto.rvs(shape, scale=2500.0, size=n, random_state=rng))
            c, loc, scale = stats.genpareto.fit(sample, floc=0, optimizer=patient)
            at = [100.0, 2500.0, 10000.0, 40000.0, 1e6]
            sorted_sample = np.sort(sample)
            logs = stats.genpareto.logcdf(sorted_sample, c, 0, scale) + stats.genpareto.logsf(
                sorted_sample, c, 0, scale
            )[::-1]
            a2 = -n - np.sum((2 * np.arange(1, n + 1) - 1) * logs) / n
            out.append(
                {
                    "sample": sample,
                    "shape": float(c),
                    "scale": float(scale),
                    "log_likelihood": float(np.sum(stats.genpareto.logpdf(sample, c, 0, scale))),
                    "anderson_darling": float(a2),
                    "at": at,
                    "survival": [float(v) for v in stats.genpareto.sf(at, c, 0, scale)],
                    "levels": [0.1, 0.5, 0.9, 0.999, 0.999999],
                    "quantiles": [float(stats.genpareto.ppf(p, c, 0, scale)) for p in (0.1, 0.5, 0.9, 0.999, 0.999999)],
                }
            )
    return out


def extreme(rng):
    out = []
    for shape in (-0.3, 0.0, 0.2, 0.4):
        for n in (50, 200):
            sample = rounded(stats.genextreme.rvs(-shape, loc=60000.0, scale=4000.0, size=n, random_state=rng))
            c, loc, scale = stats.genextreme.fit(sample, -shape, loc=60000.0, scale=4000.0, optimizer=patient)
            at = [50000.0, 60000.0, 80000.0, 120000.0]
            out.append(
                {
                    "sample": sample,
                    "shape": float(-c),
                    "location": float(loc),
                    "scale": float(scale),
                    "log_likelihood": float(np.sum(stats.genextreme.logpdf(sample, c, loc, scale))),
                    "at": at,
                    "survival": [float(v) for v in stats.genextreme.sf(at, c, loc, scale)],
                    "levels": [0.01, 0.5, 0.99, 0.999999],
                    "quantiles": [float(stats.genextreme.ppf(p, c, loc, scale)) for p in (0.01, 0.5, 0.99, 0.999999)],
                }
            )
    return out


def main():
    rng = np.random.default_rng(SEED)
    reference = {
        "provenance": {
            "command": "python3 tools/reference/evt.py > crates/takt-stats/tests/data/scipy.json",
            "seed": SEED,
            "scipy": scipy.__version__,
            "numpy": np.__version__,
            "conventions": "genpareto: c = shape, floc = 0; genextreme: c = -shape; quantiles: inverted_cdf",
        },
        "quantiles": quantiles(rng),
        "genpareto": pareto(rng),
        "genextreme": extreme(rng),
    }
    json.dump(reference, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
