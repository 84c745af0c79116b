//! The DAQ loop's additions to reports: its paper's conditions next to ours, with the differences,
//! and the late edges, by cause.

use serde::Deserialize;

use takt_link_daq::LinkConfig;
use takt_report::table::{Cell, Table};
use takt_report::{Collection, Moment, Shapes, Supplement, clean};
use takt_rundir::RunDir;

use super::late::{LATE_EDGES_FILE, LateEdges};
use super::run::DEVIATIONS;
use crate::DaqConfig;
use crate::config::{PulseClock, Stamp, Writes};

/// In what a run of `file` differs from the paper's Algorithm 1 and its set-up, a sentence each.
pub(super) fn deviations(file: &DaqConfig) -> Vec<String> {
    let mut list = Vec::new();
    match &file.link {
        LinkConfig::Comedi(_) | LinkConfig::Iio(_) => {}
        LinkConfig::Simulated(config) => list.push(format!(
            "no board: a converter simulated from its data sheet, on {}, without a driver or a wire's noise",
            config.bus.name()
        )),
        other => list.push(format!("no board: {} through the kernel and back", other.kind())),
    }
    let pulse = &file.pulse;
    if pulse.clock == PulseClock::Monotonic {
        list.push(
            "CLOCK_MONOTONIC times the edges; the paper's CLOCK_REALTIME is pulse.clock = \"realtime\""
                .to_owned(),
        );
    }
    if pulse.write == Writes::Edge {
        list.push(
            "one write per edge; the paper writes in each iteration: pulse.write = \"turn\"".to_owned(),
        );
    }
    if pulse.stamp == Stamp::Write {
        list.push(
            "latencies count from the write; the paper's from the previous arrival: pulse.stamp = \"receive\""
                .to_owned(),
        );
    }
    let paper = crate::PulseConfig::default();
    if (pulse.high_v, pulse.low_v, pulse.threshold_v, pulse.wait)
        != (paper.high_v, paper.low_v, paper.threshold_v, paper.wait)
    {
        list.push(format!(
            "levels {} V and {} V, threshold {} V, sleep {}; the paper has 5, 0 and 1 V, and 1 us",
            pulse.high_v,
            pulse.low_v,
            pulse.threshold_v,
            takt_rt::duration::format(pulse.wait)
        ));
    }
    list.extend(file.controller.deviations());
    list
}

/// The DAQ loop's additions to reports.
#[derive(Debug)]
pub(super) struct Paper;

impl Supplement for Paper {
    fn papers(&self) -> &'static [takt_report::paper::Paper] {
        &super::paper::PAPERS
    }

    fn shapes(&self) -> Shapes {
        Shapes { conditions: true, ..Shapes::default() }
    }

    fn losses(&self, collection: &Collection) -> Vec<Table> {
        late_edges(collection).into_iter().collect()
    }

    fn moments(&self, dir: &RunDir) -> Result<Vec<Moment>, takt_report::Error> {
        let late: Option<LateEdges> = dir.find_json(LATE_EDGES_FILE)?;
        let edges = late.map(|late| late.each).unwrap_or_default();
        let moment = |edge: super::ExplainedEdge| Moment {
            at_ns: edge.stamps.since_ns,
            name: "late-edge",
            why: edge.why,
        };
        Ok(edges.into_iter().map(moment).collect())
    }
}

/// In what a run differs from the paper's, as it wrote down itself.
pub(super) fn differences(dir: &RunDir) -> Vec<String> {
    let run: serde_json::Value = dir.read_json(takt_rundir::RUN_FILE).unwrap_or_default();
    Vec::<String>::deserialize(&run[DEVIATIONS]).unwrap_or_default()
}

/// Most causes of a run that are shown.
const MOST: usize = 100;

/// A row for each run and cause; `None` where no run has late edges.
fn late_edges(collection: &Collection) -> Option<Table> {
    let heads = ["Run", "#Late edges", "Of these unexplained", "Cause, as reported for the worst"];
    let mut table = Table::new("Edges that were late", &heads);
    for run in collection.runs.iter().filter(|run| run.header.robot == "daq") {
        match run.dir.find_json::<LateEdges>(LATE_EDGES_FILE) {
            Ok(Some(late)) => {
                for cause in late.causes.iter().filter(|_| late.edges > 0).take(MOST) {
                    table.push(vec![
                        Cell::text(&run.key),
                        Cell::number(cause.edges),
                        Cell::text(format!("{} of {}", late.unexplained, late.edges)),
                        Cell::text(clean(&cause.why)),
                    ]);
                }
            }
            Ok(None) => {}
            Err(error) => table.push(vec![
                Cell::text(&run.key),
                Cell::gap("not known"),
                Cell::gap("not known"),
                Cell::text(clean(&format!("{LATE_EDGES_FILE} cannot be used: {error}"))),
            ]),
        }
    }
    if table.rows().is_empty() {
        return None;
    }
    table.note("The loop polls. A trace of the kernel (takt trace) shows what delayed it between two polls.");
    Some(table)
}

#[cfg(test)]
mod tests;
