//! SQL over a store, held against comparisons of it and against what it must refuse.

#![allow(clippy::unwrap_used)]
#![cfg(feature = "sql")]

use crate::made;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use made::Made;
use serde_json::Value;
use takt_query::{Options, QueryError, compare};
use takt_store::Store;

fn stored(folder: &Path, runs: impl Iterator<Item = Made>) -> Arc<Store> {
    let store = Store::open(folder.join("store").to_str().unwrap(), true, Duration::from_secs(60)).unwrap();
    for run in runs {
        store.put(&run.make(&folder.join("runs"))).unwrap();
    }
    Arc::new(store)
}

fn asked(store: &Arc<Store>, sql: &str) -> Vec<Value> {
    answer(store, sql).unwrap_or_else(|error| panic!("{error}"))
}

fn answer(store: &Arc<Store>, sql: &str) -> Result<Vec<Value>, QueryError> {
    struct All(Vec<Value>);
    impl takt_query::sql::Taker for All {
        fn heads(&mut self, _: &[takt_query::sql::Head]) -> Result<(), std::io::Error> {
            Ok(())
        }
        fn row(&mut self, row: Vec<Value>) -> Result<bool, std::io::Error> {
            self.0.push(row.into());
            Ok(true)
        }
    }
    let mut all = All(Vec::new());
    takt_query::sql::query(store, sql, &mut all)?;
    Ok(all.0)
}

#[test]
fn sql_reads_and_only_reads() {
    let root = tempfile::tempdir().unwrap();
    let store = stored(root.path(), (0..8).map(|number| Made::of_a_fleet(number, 9000)));
    let one = |sql: &str| asked(&store, sql).remove(0);
    assert_eq!(one("SELECT count(*) FROM runs"), serde_json::json!([8]));
    assert_eq!(one("SELECT count(*), count(DISTINCT run) FROM samples"), serde_json::json!([72_000, 8]));
    assert_eq!(one("SELECT count(*) FROM samples WHERE measure = 'response'"), serde_json::json!([0]));
    assert_eq!(
        one(
            "SELECT count(*) FROM samples WHERE policy = 'other:0' AND value_ns >= 0 AND measure LIKE 'late%'"
        ),
        serde_json::json!([36_000])
    );
    assert_eq!(
        one("SELECT count(*) FROM samples s JOIN runs r USING (run) WHERE r.machine = 'nuc1'"),
        serde_json::json!([18_000])
    );
    assert_eq!(asked(&store, "SELECT value_ns FROM samples LIMIT 3").len(), 3);
    // Every sample by one way, all of them by the other.
    let sum = one("SELECT sum(value_ns) / count(*) FROM samples WHERE name = '000003'");
    let mean = one("SELECT mean_ns FROM measures WHERE name = '000003'");
    assert!((sum[0].as_f64().unwrap() - mean[0].as_f64().unwrap()).abs() < 1.0, "{sum} {mean}");
    assert_eq!(one("EXPLAIN SELECT run FROM runs")[0], "logical_plan");
    assert!(asked(&store, "SHOW COLUMNS FROM samples").len() > 20);
    let file = root.path().join("out.csv");
    for (sql, words) in [
        ("SELECT stoln FROM runs", "no column stoln; there are run, name, robot, ".to_owned()),
        ("SELECT count(*) FROM jobs", "no table jobs; there are runs, measures, samples".to_owned()),
        ("DROP TABLE runs", "DROP TABLE runs is no question: takt query reads".to_owned()),
        ("DELETE FROM runs", "is no question".to_owned()),
        ("INSERT INTO runs VALUES (1)", "is no question".to_owned()),
        ("CREATE TABLE x AS SELECT * FROM runs", "is no question".to_owned()),
        ("SET datafusion.execution.batch_size = 1", "is no question".to_owned()),
        (&format!("COPY runs TO '{}'", file.display()), "is no question".to_owned()),
        ("SELECT 1; SELECT 2", "one question at a time".to_owned()),
        ("", "one question at a time".to_owned()),
        ("SELEKT", "takt query: ".to_owned()),
        (
            &format!("SELECT * FROM '{}'", root.path().join("runs/000000/run.json").display()),
            "no table".to_owned(),
        ),
        ("SELECT robot + kernel FROM runs", "takt query: ".to_owned()),
    ] {
        let error = answer(&store, sql).unwrap_err().to_string();
        assert!(error.contains(&words) && !error.contains('\n') && error.len() < 600, "{sql}: {error}");
    }
    assert!(!file.exists());
    // A run that is damaged is named.
    let run = store.list().unwrap().remove(0).run;
    let seal: Value =
        serde_json::from_slice(&std::fs::read(root.path().join(format!("store/runs/{run}.json"))).unwrap())
            .unwrap();
    let hash = seal["samples/jobs.parquet"].as_str().unwrap();
    std::fs::write(root.path().join(format!("store/objects/{}/{hash}", &hash[..2])), "torn").unwrap();
    let error = answer(&store, "SELECT sum(value_ns) FROM samples").unwrap_err().to_string();
    assert!(error.contains(hash) && error.contains("is damaged"), "{error}");
}

#[test]
fn sql_has_the_figures_of_comparisons() {
    let root = tempfile::tempdir().unwrap();
    let store = stored(root.path(), (0..48).map(|number| Made::of_a_fleet(number, 200)));
    let by = ["kernel", "policy"].map(str::to_owned).to_vec();
    let condition = Some("robot = 'uav' and stolen < 0.01".to_owned());
    let comparison = compare(&store, &Options { by, condition, ..Options::default() }).unwrap();
    let rows = asked(
        &store,
        "SELECT kernel, policy, count(*), sum(samples), sum(misses), median(p50_ns), median(p99_ns) FROM measures
         WHERE robot = 'uav' AND stolen < 0.01 AND measure = 'lateness' GROUP BY kernel, policy ORDER BY kernel, policy",
    );
    assert_eq!(rows.len(), comparison.groups.len());
    for (row, reported) in rows.iter().zip(&comparison.measures[0].rows) {
        let values = &comparison.groups[reported.group].values;
        assert_eq!((row[0].as_str(), row[1].as_str()), (values[0].1.as_deref(), values[1].1.as_deref()));
        assert_eq!(
            (&row[2], &row[3], &row[4]),
            (&reported.runs.into(), &reported.samples.into(), &reported.misses.into())
        );
        for (place, figure) in reported.figures[..2].iter().enumerate() {
            assert!((row[5 + place].as_f64().unwrap() - figure.ns.unwrap()).abs() < 0.6, "{row} {figure:?}");
        }
    }
}
