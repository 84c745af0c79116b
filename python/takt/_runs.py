"""Run directories of Takt: facts, measures, and samples as Arrow.

Facts need nothing but Python. Samples are read by pyarrow, or by polars or pandas if that is asked for.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

_RUN = "run.json"
_SUMMARY = "summary.json"
_HASHES = "hashes.json"
_SAMPLES = "samples"
_MAX_DEPTH = 3
_FORMAT = 2

_WAYS = ("arrow", "pandas", "polars")


class Measure:
    """A measure of a run: a series of times, and the deadline that it is judged by. Nanoseconds."""

    def __init__(self, run: Run, facts: Mapping[str, Any], figures: Optional[Mapping[str, Any]]) -> None:
        self._run = run
        self.facts = dict(facts)
        """What `run.json` has of it."""
        self.figures = None if figures is None else dict(figures)
        """What `summary.json` has of it (`us` has quantiles, `misses` the count); None before the run has ended."""

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def title(self) -> str:
        return str(self.facts["title"])

    @property
    def file(self) -> str:
        """Name of its sample file, for `Run.samples`."""
        return str(self.facts["file"])

    @property
    def deadline_ns(self) -> Optional[int]:
        deadline = self.facts.get("deadline_ns")
        return None if deadline is None else int(deadline)

    @property
    def window_ns(self) -> Optional[Tuple[int, int]]:
        """Samples whose time lies in this window count; all when None."""
        window = self.facts.get("window_ns")
        return None if window is None else (int(window[0]), int(window[1]))

    @property
    def never(self) -> int:
        """Releases that never ran. They count as misses and have no sample."""
        return int(self.facts.get("never", 0))

    def samples(self, as_: str = "arrow") -> Any:
        """The samples in the window: `time_ns` (where the measure has a time), `value_ns`, and `missed`.

        A pyarrow table, or a data frame with `as_="pandas"` or `as_="polars"`.
        """
        _check(as_)
        pa, pc = _module("pyarrow"), _module("pyarrow.compute")
        facts = self.facts
        value, since, time = facts["column"], facts.get("since_column"), facts.get("time_column")
        wanted = [name for name in dict.fromkeys([value, since, time]) if name]
        table = self._run.samples(self.file, columns=wanted)
        values = table[value]
        if since:
            # A value that would be negative counts as 0. Columns may be unsigned: the smaller of both is taken away.
            values = pc.subtract(values, pc.min_element_wise(values, table[since]))
        window = self.window_ns
        keep = None
        if time and window is not None:
            inside = pc.and_(pc.greater_equal(table[time], window[0]), pc.less(table[time], window[1]))
            keep = inside if keep is None else pc.and_(keep, inside)
        columns: Dict[str, Any] = {"time_ns": table[time]} if time else {}
        columns["value_ns"] = values
        deadline = self.deadline_ns
        none = pa.nulls(len(values), pa.bool_())
        columns["missed"] = none if deadline is None else pc.greater(values, deadline)
        result = pa.table(columns)
        return _as(result if keep is None else result.filter(keep), as_)

    def __repr__(self) -> str:
        return f"<takt.Measure {self.name!r}>"


class Run:
    """A run directory. Made by `load`."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = Path(path)
        """The folder."""
        facts = _json(self.path / _RUN)
        if int(facts.get("format", 0)) > _FORMAT:
            raise ValueError(
                f"{self.path}: format {facts['format']}; accepted: up to {_FORMAT}. A newer Takt wrote it: install its module"
            )
        self.facts: Dict[str, Any] = facts
        """`run.json`: what was asked and granted, machine, kernel, measures, problems."""
        summary = self.path / _SUMMARY
        self.summary: Optional[Dict[str, Any]] = _json(summary) if summary.is_file() else None
        """`summary.json`: verdict and figures; None before the run has ended."""

    @property
    def robot(self) -> str:
        return str(self.facts["robot"])

    @property
    def label(self) -> str:
        return str(self.facts["label"])

    @property
    def factors(self) -> Dict[str, str]:
        """Factors of the campaign and their values in this run."""
        return {one["name"]: one["value"] for one in self.facts.get("experiment", {}).get("factors", [])}

    @property
    def verdict(self) -> Optional[str]:
        """PASS, FAIL or INCONCLUSIVE; None before the run has ended."""
        return None if self.summary is None else self.summary.get("verdict")

    @property
    def seal(self) -> str:
        """"whole": every file is as it was sealed. "changed": a file is not, or is gone. "missing": the run never ended.

        Reads every file of the run.
        """
        path = self.path / _HASHES
        if not path.is_file():
            return "missing"
        hashes = _json(path)
        own = hashes.pop("*", None)
        lines = "".join(f"{name}\n{value}\n" for name, value in sorted(hashes.items()))
        whole = own is None or own == hashlib.sha256(lines.encode()).hexdigest()
        return "whole" if whole and all(self._is(name, value) for name, value in hashes.items()) else "changed"

    def _is(self, name: str, expected: str) -> bool:
        parts = Path(name).parts
        if not parts or ".." in parts or Path(name).is_absolute():
            return False
        try:
            with open(self.path / name, "rb") as file:
                digest = hashlib.sha256()
                for part in iter(lambda: file.read(1 << 20), b""):
                    digest.update(part)
        except OSError:
            return False
        return digest.hexdigest() == expected

    @property
    def measures(self) -> Dict[str, Measure]:
        """The measures by name, in the run's order: the first one is its main one."""
        figures = {one.get("name"): one for one in (self.summary or {}).get("measures", [])}
        return {
            facts["name"]: Measure(self, facts, figures.get(facts["name"])) for facts in self.facts.get("measures", [])
        }

    @property
    def files(self) -> List[str]:
        """Names of the sample files, for `samples`."""
        folder = self.path / _SAMPLES
        found = folder.iterdir() if folder.is_dir() else iter(())
        return sorted({path.stem for path in found if path.suffix in (".parquet", ".csv")})

    def samples(self, file: str, as_: str = "arrow", columns: Optional[List[str]] = None) -> Any:
        """The rows of a sample file: one for each job, frame or edge. Times are CLOCK_MONOTONIC nanoseconds.

        A pyarrow table, or a data frame with `as_="pandas"` or `as_="polars"`. Runs that have not ended have CSV files,
        which are read as well, without a line that is still being written.
        """
        _check(as_)
        if not file or Path(file).name != file:
            raise ValueError(f"file: received {file!r}; accepted: one of {', '.join(self.files) or 'none'}")
        sealed, growing = (self.path / _SAMPLES / f"{file}.{suffix}" for suffix in ("parquet", "csv"))
        if sealed.is_file():
            if as_ == "polars":
                return _module("polars").read_parquet(sealed, columns=columns)
            return _as(_module("pyarrow.parquet").read_table(sealed, columns=columns), as_)
        if growing.is_file():
            return _as(_csv(growing, columns), as_)
        raise FileNotFoundError(f"{self.path}: no samples {file!r}; there are: {', '.join(self.files) or 'none'}")

    def __repr__(self) -> str:
        return f"<takt.Run {str(self.path)!r}: {self.label}, {self.verdict or 'not ended'}>"


def load(path: Union[str, "os.PathLike[str]"]) -> Run:
    """Opens one run directory, such as `takt-runs/20260101T120000Z-program`."""
    path = Path(path)
    if not (path / _RUN).is_file():
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such folder; `takt run` prints its run directory in the last line")
        inside = list(_search(path, _MAX_DEPTH)) if path.is_dir() else []
        if inside:
            raise ValueError(f"{path}: a folder of {len(inside)} runs, the first is {inside[0]}; takt.runs opens all of them")
        raise ValueError(f"{path}: no run directory ({_RUN} is missing)")
    return Run(path)


def runs(path: Union[str, "os.PathLike[str]"]) -> List[Run]:
    """Opens all run directories below a folder, such as those of a campaign, in the order of their names."""
    found = list(_search(Path(path), _MAX_DEPTH))
    if not found:
        raise FileNotFoundError(f"{path}: no run directories")
    return [Run(one) for one in found]


def _search(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / _RUN).is_file():
        yield folder
    elif depth > 0 and folder.is_dir():
        for below in sorted(folder.iterdir()):
            if below.is_dir() and not below.is_symlink():
                yield from _search(below, depth - 1)


def _json(path: Path) -> Dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    with open(path, encoding="utf-8") as file:
        value = json.load(file)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: received a {type(value).__name__}; accepted: an object")
    return value


def _check(as_: str) -> None:
    if as_ not in _WAYS:
        raise ValueError(f"as_: received {as_!r}; accepted: {', '.join(_WAYS)}")


def _module(name: str) -> Any:
    """A package that only reading samples needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        other = ', or ask for as_="polars"' if package == "pyarrow" else ""
        message = f"samples are read with {package}, which is not installed: pip install {package}{other}"
        raise ImportError(message) from error


def _csv(path: Path, columns: Optional[List[str]]) -> Any:
    csv = _module("pyarrow.csv")
    with open(path, "rb") as file:
        text = file.read()
    # The last line may be half written.
    whole = text[: text.rfind(b"\n") + 1]
    if not whole:
        return _module("pyarrow").table({})
    options = csv.ConvertOptions(include_columns=columns) if columns else None
    return csv.read_csv(_module("pyarrow").BufferReader(whole), convert_options=options)


def _as(table: Any, as_: str) -> Any:
    if as_ == "pandas":
        _module("pandas")
        return table.to_pandas()
    if as_ == "polars":
        return _module("polars").from_arrow(table)
    return table
