//! Comparisons over a store, held against programs from outside that read its plain
//! Parquet: DuckDB.

#![allow(clippy::unwrap_used)]

use crate::made;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use made::Made;
use serde_json::Value;
use takt_history::query::{Comparison, Options, QueryError, compare};
use takt_history::store::{Store, write_index};
use takt_rundir::sha256_of;

fn stored(folder: &Path, runs: impl Iterator<Item = Made>) -> Arc<Store> {
    let store = Store::open(folder.join("store").to_str().unwrap(), true, Duration::from_secs(60)).unwrap();
    for run in runs {
        store.put(&run.make(&folder.join("runs"))).unwrap();
    }
    Arc::new(store)
}

fn by(columns: &str) -> Options {
    Options { by: columns.split(',').map(str::to_owned).collect(), samples: true, ..Options::default() }
}

/// Figures of the groups, by an own path: DuckDB on the index, the seals and the samples' objects.
const OUTSIDE: &str = "
import sys, json, pathlib, duckdb
store = pathlib.Path(sys.argv[1])
db = duckdb.connect()
db.sql(f\"create table runs as select * from '{store}/index/*.parquet'\")
def path(hash): return store / 'objects' / hash[:2] / hash
out = []
for kernel, configuration, runs in db.sql(\"select kernel, configuration, list(distinct run order by run) from runs where robot = 'uav' and stolen < 0.01 group by all order by all\").fetchall():
    medians, tails, misses, samples = [], [], 0, 0
    for run in runs:
        seal = json.load(open(store / 'runs' / (run + '.json')))
        table = f\"'{path(seal['samples/jobs.parquet'])}'\"
        n, median, tail, late = db.sql(f'select count(*), quantile_disc(wake_ns - planned_ns, 0.5), quantile_disc(wake_ns - planned_ns, 0.99), count(*) filter (wake_ns - planned_ns > 100000) from read_parquet({table})').fetchall()[0]
        samples += n; misses += late; medians.append(median); tails.append(tail)
    middle = lambda l: (sorted(l)[(len(l) - 1) // 2] + sorted(l)[len(l) // 2]) / 2
    out.append([kernel, configuration.removeprefix('policy '), len(runs), samples, misses, middle(medians), middle(tails)])
print(json.dumps(out))
";

/// The same of a comparison.
fn reported(comparison: &Comparison) -> Vec<Value> {
    let rows = comparison.measures.iter().flat_map(|measure| &measure.rows);
    rows.map(|row| {
        let group = &comparison.groups[row.group];
        let figure = |name: &str| row.figures.iter().find(|f| f.figure == name).unwrap().ns;
        serde_json::json!([
            group.values[0].1,
            group.values[1].1,
            row.runs,
            row.samples,
            row.misses,
            figure("median"),
            figure("p99")
        ])
    })
    .collect()
}

fn same(ours: &[Value], theirs: &[Value]) {
    assert_eq!(ours.len(), theirs.len(), "{ours:?} {theirs:?}");
    for (a, b) in ours
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .zip(theirs.iter().flat_map(|row| row.as_array().unwrap()))
    {
        match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => assert!((a - b).abs() < 0.6, "{ours:?} {theirs:?}"),
            _ => assert_eq!(a, b, "{ours:?} {theirs:?}"),
        }
    }
}

#[test]
fn groups_have_the_figures_that_duckdb_computes() {
    let root = tempfile::tempdir().unwrap();
    let store = stored(root.path(), (0..48).map(|number| Made::of_a_fleet(number, 400)));
    let options =
        Options { condition: Some("robot = 'uav' and stolen < 0.01".to_owned()), ..by("kernel,policy") };
    let comparison = compare(&store, &options).unwrap();
    assert_eq!(comparison.runs, [18, 48]);
    assert!(comparison.left_out.is_empty(), "{:?}", comparison.left_out);
    let ours = reported(&comparison);
    assert_eq!(ours.len(), 6);
    // Whose time was stolen was not dealt alike.
    let reported = comparison.machine_differences.join("; ");
    assert!(
        reported.starts_with("host is not the same in all groups (4 values)") && !reported.contains(';'),
        "{reported}"
    );

    let output =
        Command::new("python3").args(["-c", OUTSIDE]).arg(root.path().join("store")).output().unwrap();
    let has =
        Command::new("python3").args(["-c", "import duckdb"]).output().is_ok_and(|o| o.status.success());
    if !has {
        let asked = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some();
        assert!(!asked, "python3 has not duckdb: tools/install-outside");
        return;
    }
    let theirs: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    same(&ours, &theirs);
}

#[test]
fn a_planted_difference_has_its_interval_and_none_has_none() {
    let root = tempfile::tempdir().unwrap();
    let run = |number: u64| Made {
        kernel: ["a", "b", "c"][(number % 3) as usize],
        host: ["nuc1", "nuc2"][usize::from(number % 3 == 2)],
        median_us: if number % 3 == 1 { 26.0 } else { 20.0 },
        robot: "uav",
        policy: "fifo:80",
        stolen: 0.0,
        samples: 300,
        number,
    };
    let store = stored(root.path(), (0..36).map(run));
    let comparison = compare(&store, &by("kernel")).unwrap();
    let rows = &comparison.measures[0].rows;
    let median = |group: usize| &rows[group].figures[0];
    assert_eq!((median(0).difference, median(0).clear), (None, None));
    let (found, none) = (median(1), median(2));
    assert!((found.difference.unwrap() - 0.3).abs() < 0.06 && found.clear == Some(true), "{found:?}");
    assert!(found.low.unwrap() < 0.3 && 0.3 < found.high.unwrap() + 0.05, "{found:?}");
    assert!(none.clear == Some(false) && none.difference.unwrap().abs() < 0.05, "{none:?}");
    // What may be its cause is said first.
    let reported = comparison.machine_differences.join("; ");
    assert!(reported.starts_with("host is not the same in all groups"), "{reported}");
    // The index alone: nothing is opened.
    std::fs::rename(root.path().join("store/objects"), root.path().join("gone")).unwrap();
    let index = compare(&store, &Options { samples: false, ..by("kernel,machine") }).unwrap();
    let of_index = &index.measures[0].rows[1].figures[1];
    assert_eq!((of_index.figure.as_str(), of_index.clear), ("p99", Some(true)), "{of_index:?}");
    assert_eq!((index.groups.len(), index.measures.len(), index.groups[0].runs), (3, 1, 12));
    assert_eq!(index.groups[2].name(), "c, nuc2");
}

#[test]
fn what_cannot_be_answered_is_a_sentence() {
    let root = tempfile::tempdir().unwrap();
    let store = stored(root.path(), (0..4).map(|number| Made::of_a_fleet(number, 50)));
    let refused = |options: &Options| compare(&store, options).unwrap_err().to_string();
    assert!(refused(&by("colour")).starts_with("no column colour; the columns are run, name, robot, "));
    let condition = |text: &str| Options { condition: Some(text.to_owned()), ..by("kernel") };
    assert!(refused(&condition("stoln < 1")).starts_with("no column stoln; the columns are "));
    assert_eq!(
        refused(&condition("stolen > 7")),
        "none of the 4 runs in the store matches --where stolen > 7"
    );
    let jitter = Options { measure: Some("jitter".to_owned()), ..by("kernel") };
    assert_eq!(refused(&jitter), "no run has the measure \"jitter\"; there are: lateness");
    // A damaged index is no truth of its own: it is made anew from the runs.
    for file in std::fs::read_dir(root.path().join("store/index")).unwrap() {
        std::fs::write(file.unwrap().path(), "PAR1 torn").unwrap();
    }
    assert_eq!(compare(&store, &Options { samples: false, ..by("kernel") }).unwrap().groups[0].runs, 4);
    // Samples that are not what was stored: that run is left out and named, the others are
    // compared.
    let hash = |run: &str| {
        let seal = std::fs::read(root.path().join(format!("store/runs/{run}.json"))).unwrap();
        let seal: Value = serde_json::from_slice(&seal).unwrap();
        seal["samples/jobs.parquet"].as_str().unwrap().to_owned()
    };
    let damaged = store.list().unwrap().remove(0);
    let hash = hash(&damaged.run);
    std::fs::write(root.path().join(format!("store/objects/{}/{hash}", &hash[..2])), "PAR1").unwrap();
    let comparison = compare(&store, &by("kernel")).unwrap();
    assert_eq!(comparison.left_out.len(), 1, "{:?}", comparison.left_out);
    let reported = &comparison.left_out[0];
    assert!(reported.contains("is damaged") && reported.starts_with(&damaged.name), "{reported}");
    assert_eq!(comparison.measures[0].rows[0].runs, 3);
    // What the index does not know and nobody can read; what a later takt has stored.
    let mut rows = store.list().unwrap();
    rows.remove(0);
    rows[0].format = 99;
    let index = root.path().join("store/index");
    std::fs::remove_dir_all(&index).unwrap();
    std::fs::create_dir(&index).unwrap();
    let bytes = write_index(&rows).unwrap();
    std::fs::write(index.join(format!("{}.parquet", sha256_of(&bytes))), bytes).unwrap();
    let comparison = compare(&store, &Options { samples: false, ..by("kernel") }).unwrap();
    assert_eq!((comparison.runs, comparison.groups[0].runs), ([2, 4], 2));
    let reported = comparison.left_out.join("\n");
    assert!(reported.contains(": has layout 99, but this takt reads layout "), "{reported}");
    assert!(reported.contains(&format!("{}: is damaged", &damaged.run[..12])), "{reported}");
    let empty = root.path().join("empty");
    let empty = Store::open(empty.to_str().unwrap(), true, Duration::from_secs(60)).unwrap();
    assert!(matches!(compare(&Arc::new(empty), &by("kernel")), Err(QueryError::Empty)));
}
