//! What the findings suggest: priority, placement, another process. Each proposal says how much of
//! the lateness it is about.

use std::collections::BTreeSet;

use takt_trace::Cause;

use super::{PythonReport, Pythons};
use crate::report::{LoopReport, Report};

/// A share of lateness, or of looks, below which nothing is proposed.
const LEAST: f64 = 0.05;

/// Names the collector and the interpreter's lock where late cycles are due to them, and proposes
/// what helps. `own` are this program's threads.
pub(crate) fn advise(report: &mut Report, pythons: &Pythons, own: &BTreeSet<i32>) {
    for thread in &mut report.threads {
        let Some(python) = report.python.iter_mut().find(|python| python.pid == thread.pid) else { continue };
        name_collections(thread, python, pythons);
        name_lock(thread, python);
    }
    let mut proposals = Vec::new();
    for thread in report.threads.iter().filter(|thread| thread.late > 0) {
        for_scheduling(thread, own, &mut proposals);
    }
    for python in &report.python {
        for_python(python, &mut proposals);
    }
    report.proposals = proposals;
}

/// Whether a cause is the program's own time, or that of a thread of it.
fn may_be_collection(cause: Cause) -> bool {
    matches!(cause, Cause::Execution | Cause::ExecutionOrFirmware | Cause::Waited | Cause::PreviousJob)
}

fn name_collections(thread: &mut LoopReport, python: &mut PythonReport, pythons: &Pythons) {
    let Some(collector) = &mut python.collector else { return };
    for late in thread.windows.iter_mut().filter(|late| may_be_collection(late.cause)) {
        let Some((ns, tid)) = pythons.collected_ns(thread.pid, late.planned_ns, late.end_ns) else {
            continue;
        };
        if ns * 2 > late.end_ns.saturating_sub(late.planned_ns) {
            late.who = match tid == thread.tid {
                true => "Python's garbage collector".to_owned(),
                false => format!("Python's garbage collector, run by thread {tid}"),
            };
            collector.late_cycles += 1;
        }
    }
}

/// A wait in the middle of a cycle for a thread of the same program is one for the lock, where all
/// long waits of this thread are.
fn name_lock(thread: &mut LoopReport, python: &PythonReport) {
    let waits = python.lock.iter().flatten().find(|wait| wait.tid == thread.tid && wait.share >= LEAST);
    let Some(wait) = waits else { return };
    for late in thread.windows.iter_mut().filter(|late| late.cause == Cause::Waited) {
        let holds = wait.holders.iter().any(|holder| holder.who == late.who);
        if holds {
            late.who = format!("Python's interpreter lock (GIL), held by {}", late.who);
        }
    }
}

fn share_of(thread: &LoopReport, causes: &[Cause]) -> (f64, f64) {
    let rows = thread.totals.iter().filter(|total| causes.contains(&total.cause));
    rows.fold((0.0, 0.0), |sum, total| (sum.0 + total.share, sum.1 + total.us))
}

/// Whether a name, as causes have it ("NAME (POLICY, tid N)"), is that of one of these threads.
fn is_of(who: &str, threads: &BTreeSet<i32>) -> bool {
    let tid = who.rsplit_once("tid ").and_then(|(_, tid)| tid.trim_end_matches(')').parse().ok());
    tid.is_some_and(|tid| threads.contains(&tid))
}

fn for_scheduling(thread: &LoopReport, own: &BTreeSet<i32>, proposals: &mut Vec<String>) {
    let name = format!("{} ({})", thread.name, thread.tid);
    let real_time = ["fifo", "rr", "deadline"].iter().any(|policy| thread.policy.starts_with(policy));
    let others = [Cause::HigherPriority, Cause::OwnThread];
    let (share, us) = share_of(thread, &others);
    if share >= LEAST {
        let rows = thread.totals.iter().filter(|total| others.contains(&total.cause));
        let who = rows.map(|total| total.who.as_str()).find(|who| !who.is_empty()).unwrap_or("other threads");
        let what = if is_of(who, own) {
            // In another control group or session than takt, its lowest priority does not count.
            format!("this watch itself took its CPU ({who}): --let-idle leaves CPUs alone")
        } else if real_time {
            format!(
                "placement: keep {who} off CPUs {} (taskset, cpusets), or give it less priority",
                thread.cpus
            )
        } else {
            format!("priority: chrt -f -p 50 {} puts it before {who}", thread.tid)
        };
        proposals.push(format!("{name}: {what}: {:.0} % of its lateness, {:.1} ms", 100.0 * share, us / 1e3));
    }
    let kernel = [Cause::Interrupt, Cause::Softirq, Cause::Unpreemptible];
    let (share, us) = share_of(thread, &kernel);
    if share >= LEAST {
        proposals.push(format!(
            "{name}: placement: a CPU without this interrupt or softirq (takt doctor shows where they go): {:.0} % of its lateness, {:.1} ms",
            100.0 * share,
            us / 1e3
        ));
    }
}

fn for_python(python: &PythonReport, proposals: &mut Vec<String>) {
    for wait in python.lock.iter().flatten().filter(|wait| wait.share >= LEAST) {
        let holder = wait.holders.first().map_or("another thread", |holder| holder.who.as_str());
        proposals.push(format!(
            "{} ({}): process split: it waited for Python's interpreter lock (GIL) at {:.0} % of {} looks, mostly held by {holder}: give that \
             thread's work a process of its own (multiprocessing), or an interpreter with a lock of its own",
            wait.thread,
            wait.tid,
            100.0 * wait.share,
            python.looks
        ));
    }
    if let Some(collector) = python.collector.filter(|collector| collector.late_cycles > 0) {
        proposals.push(format!(
            "process {}: the garbage collector took most of {} of the worst late cycles ({} collections, {:.1} ms, the longest {:.1} ms): \
             gc.freeze() behind the start, gc.disable(), and gc.collect() where the loop has time",
            python.pid,
            collector.late_cycles,
            collector.collections,
            collector.us / 1e3,
            collector.worst_us / 1e3
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_of_this_program_is_this_watch() {
        let own = BTreeSet::from([812, 813]);
        assert!(is_of("takt-awake/0 (nice 0, tid 812)", &own) && is_of("takt (tid 813)", &own));
        // A robot's thread, or another takt's.
        for other in ["takt-servo (rt 90, tid 97)", "takt-awake/0 (nice 0, tid 9812)", "takt-awake/0", ""] {
            assert!(!is_of(other, &own), "{other}");
        }
    }
}
