"""Run directories, written here byte by byte, and one that Takt wrote (TAKT_TEST_RUN), against what other readers find in it."""

import csv
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import takt

ROWS = "index,planned_ns,wake_ns,end_ns,skipped\n0,1000,1100,1900,0\n1,2000,1990,4500,0\n2,3000,3200,3300,1\n3,4000,4100,9"

HEADER = {
    "format": 2,
    "robot": "program",
    "label": "fifo:80",
    "experiment": {"campaign": "c", "factors": [{"name": "policy", "value": "fifo:80"}], "repetition": 1},
    "measures": [
        {
            "name": "response-control",
            "title": "Release to sleep of control",
            "file": "loop-control",
            "column": "end_ns",
            "since_column": "planned_ns",
            "time_column": "planned_ns",
            "window_ns": [1000, 3000],
            "deadline_ns": 1000,
            "never": 2,
        },
        {
            "name": "lateness-control",
            "title": "Wake-up lateness of control",
            "file": "loop-control",
            "column": "wake_ns",
            "since_column": "planned_ns",
            "time_column": "planned_ns",
            "window_ns": None,
            "deadline_ns": None,
        },
    ],
}


def has(module):
    return importlib.util.find_spec(module) is not None


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "runs" / "one"
        (self.path / "samples").mkdir(parents=True)
        (self.path / "run.json").write_text(json.dumps(HEADER))
        (self.path / "samples" / "loop-control.csv").write_text(ROWS)

    def end(self):
        summary = {"verdict": "FAIL", "measures": [{"name": "response-control", "misses": 1, "us": {"worst": 2.5}}]}
        (self.path / "summary.json").write_text(json.dumps(summary))

    def seal(self):
        self.end()
        names = ["run.json", "samples/loop-control.csv", "summary.json"]
        hashes = {name: hashlib.sha256((self.path / name).read_bytes()).hexdigest() for name in names}
        lines = "".join(f"{name}\n{value}\n" for name, value in sorted(hashes.items()))
        hashes["*"] = hashlib.sha256(lines.encode()).hexdigest()
        (self.path / "hashes.json").write_text(json.dumps(hashes))

    def test_facts_need_no_other_package(self):
        run = takt.load(self.path)
        self.assertEqual((run.robot, run.label, run.factors, run.verdict), ("program", "fifo:80", {"policy": "fifo:80"}, None))
        self.assertEqual(run.files, ["loop-control"])
        self.end()
        run = takt.load(str(self.path))
        self.assertEqual(run.verdict, "FAIL")
        measure = run.measures["response-control"]
        self.assertEqual((measure.deadline_ns, measure.never, measure.window_ns), (1000, 2, (1000, 3000)))
        self.assertEqual(measure.figures["misses"], 1)
        self.assertEqual(list(run.measures), ["response-control", "lateness-control"])

    def test_the_seal_is_that_of_the_files(self):
        self.assertEqual(takt.load(self.path).seal, "missing")
        self.seal()
        self.assertEqual(takt.load(self.path).seal, "whole")
        sealed = (self.path / "hashes.json").read_text()
        for name in ("samples/loop-control.csv", "summary.json"):
            good = (self.path / name).read_bytes()
            (self.path / name).write_bytes(good + b" ")
            self.assertEqual(takt.load(self.path).seal, "changed", name)
            (self.path / name).write_bytes(good)
        # An entry that is taken away, and one that leads out of the run, where a file has that hash.
        (self.path.parent / "x").write_bytes(b"x")
        outside = {"../x": hashlib.sha256(b"x").hexdigest()}
        for change in (lambda hashes: hashes.pop("summary.json"), lambda hashes: hashes.update(outside)):
            hashes = json.loads(sealed)
            change(hashes)
            del hashes["*"]
            lines = "".join(f"{name}\n{value}\n" for name, value in sorted(hashes.items()))
            listed = hashlib.sha256(lines.encode()).hexdigest() if "../x" in hashes else "0"
            (self.path / "hashes.json").write_text(json.dumps({**hashes, "*": listed}))
            self.assertEqual(takt.load(self.path).seal, "changed")

    def test_what_is_no_run_is_named(self):
        above = self.path.parent
        for path, kind, words in [
            (above / "none", FileNotFoundError, "no such folder"),
            (above, ValueError, "a folder of 1 runs"),
            (self.path / "samples", ValueError, "no run directory"),
            (self.path / "run.json", ValueError, "no run directory"),
        ]:
            with self.assertRaisesRegex(kind, words):
                takt.load(path)
        self.assertEqual([run.path for run in takt.runs(above)], [self.path])
        with self.assertRaises(FileNotFoundError):
            takt.runs(self.path / "samples")
        (self.path / "run.json").write_text(json.dumps({**HEADER, "format": 99}))
        with self.assertRaisesRegex(ValueError, "format 99"):
            takt.load(self.path)
        (self.path / "run.json").write_text("[]")
        with self.assertRaisesRegex(ValueError, "accepted: an object"):
            takt.load(self.path)

    def test_names_of_files_stay_within_the_run(self):
        run = takt.load(self.path)
        for name in ("../run", "a/b", "", "..", "/etc/passwd"):
            with self.assertRaises((ValueError, FileNotFoundError)):
                run.samples(name)
        with self.assertRaisesRegex(ValueError, "arrow, pandas, polars"):
            run.samples("loop-control", as_="numpy")

    def test_without_pyarrow_a_sentence_says_what_to_install(self):
        code = (
            "import sys\nsys.modules['pyarrow'] = None\nsys.modules['pyarrow.csv'] = None\nimport takt\n"
            "run = takt.load(sys.argv[1])\nprint(run.label)\n"
            "try:\n    run.samples('loop-control')\nexcept ImportError as error:\n    print(error)\n"
        )
        output = subprocess.run([sys.executable, "-c", code, str(self.path)], capture_output=True, text=True, check=True)
        self.assertIn("fifo:80", output.stdout)
        self.assertIn("pip install pyarrow", output.stdout)

    @unittest.skipUnless(has("pyarrow"), "pyarrow is not installed")
    def test_samples_of_a_run_that_goes_on_have_no_half_line(self):
        table = takt.load(self.path).samples("loop-control")
        self.assertEqual(table.column("end_ns").to_pylist(), [1900, 4500, 3300])

    @unittest.skipUnless(has("pyarrow"), "pyarrow is not installed")
    def test_a_measure_is_its_values_in_the_window(self):
        measures = takt.load(self.path).measures
        response = measures["response-control"].samples().to_pydict()
        self.assertEqual(response, {"time_ns": [1000, 2000], "value_ns": [900, 2500], "missed": [False, True]})
        # Earlier than planned is 0, and without a deadline nothing is missed or kept.
        lateness = measures["lateness-control"].samples().to_pydict()
        self.assertEqual(lateness, {"time_ns": [1000, 2000, 3000], "value_ns": [100, 0, 200], "missed": [None] * 3})

    @unittest.skipUnless(has("pyarrow") and has("pandas"), "pandas is not installed")
    def test_as_pandas(self):
        frame = takt.load(self.path).measures["response-control"].samples(as_="pandas")
        self.assertEqual(frame["value_ns"].tolist(), [900, 2500])

    @unittest.skipUnless(has("pyarrow") and has("polars"), "polars is not installed")
    def test_as_polars(self):
        run = takt.load(self.path)
        self.assertEqual(run.measures["response-control"].samples(as_="polars")["value_ns"].to_list(), [900, 2500])
        self.assertEqual(run.samples("loop-control", as_="polars")["end_ns"].to_list(), [1900, 4500, 3300])


@unittest.skipUnless(os.environ.get("TAKT_TEST_RUN"), "no run of Takt was given (TAKT_TEST_RUN)")
class Real(unittest.TestCase):
    """A sealed run, and its main measure as `takt export --format csv` wrote it (TAKT_TEST_EXPORT)."""

    @unittest.skipUnless(has("pyarrow"), "pyarrow is not installed")
    def test_samples_and_misses_are_those_of_the_summary_and_of_the_export(self):
        run = takt.load(os.environ["TAKT_TEST_RUN"])
        self.assertEqual(run.seal, "whole")
        for measure in run.measures.values():
            samples = measure.samples()
            self.assertEqual(samples.num_rows, measure.figures["us"]["count"], measure.name)
            self.assertAlmostEqual(max(samples["value_ns"].to_pylist()) / 1000, measure.figures["us"]["worst"], places=3)
            if measure.deadline_ns is not None:
                misses = sum(samples["missed"].to_pylist()) + measure.never
                self.assertEqual(misses, measure.figures["misses"], measure.name)
        with open(os.environ["TAKT_TEST_EXPORT"], newline="") as file:
            rows = list(csv.DictReader(file))
        main = next(iter(run.measures.values()))
        column = f"{main.name}_ns"
        exported = [(int(row["time_ns"]), int(row[column])) for row in rows]
        samples = main.samples()
        self.assertGreater(len(exported), 0)
        self.assertEqual(list(zip(samples["time_ns"].to_pylist(), samples["value_ns"].to_pylist())), exported)


if __name__ == "__main__":
    unittest.main()
