//! Proposals derived from the findings: priority, placement, another process. Each proposal states
//! its share of the lateness, and the one with the largest share comes first.

use std::collections::BTreeSet;

use takt_trace::Cause;

use crate::python::{PythonReport, Pythons};
use crate::report::{LoopReport, Report, Total};

/// A share of lateness, or of looks, below which nothing is proposed.
const LEAST: f64 = 0.05;
/// Proposals that are made.
const MOST: usize = 12;

/// Name for lateness that it causes.
const COLLECTOR: &str = "Python's garbage collector";
const LOCK: &str = "Python's interpreter lock (GIL)";

/// Names the collector and the interpreter's lock where late cycles are due to them, and proposes
/// what helps. `own` are this program's threads.
pub(crate) fn advise(report: &mut Report, pythons: &Pythons, own: &BTreeSet<i32>) {
    for thread in &mut report.threads {
        let Some(python) = report.python.iter_mut().find(|python| python.pid == thread.pid) else { continue };
        name_collections(thread, python, pythons);
        name_lock(thread, python);
    }
    report.proposals = proposals(&report.threads, &report.python, own);
}

/// Proposals, the one about most lateness first.
fn proposals(threads: &[LoopReport], pythons: &[PythonReport], own: &BTreeSet<i32>) -> Vec<String> {
    let mut all = Vec::new();
    // Of equal ones the more special is first.
    for python in pythons {
        for_python(python, threads, &mut all);
    }
    for thread in threads.iter().filter(|thread| thread.late > 0) {
        for_thread(thread, threads, own, &mut all);
    }
    // The cause that took most of all lateness comes first, as in the table.
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.total_cmp(&a.0)));
    all.truncate(MOST);
    all.into_iter().map(|proposal| proposal.2).collect()
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
                true => COLLECTOR.to_owned(),
                false => format!("{COLLECTOR}, run by thread {tid}"),
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
            late.who = format!("{LOCK}, held by {}", late.who);
        }
    }
}

/// Whether a name, as causes have it ("NAME (POLICY, tid N)"), is that of one of these threads.
pub(crate) fn is_of(who: &str, threads: &BTreeSet<i32>) -> bool {
    let tid = who.rsplit_once("tid ").and_then(|(_, tid)| tid.trim_end_matches(')').parse().ok());
    tid.is_some_and(|tid| threads.contains(&tid))
}

/// Something that may help; how much lateness it is about, and its cause in all threads,
/// microseconds.
type Proposal = (f64, f64, String);

/// The lateness of all threads that this cause took, microseconds.
fn of_all(threads: &[LoopReport], cause: Cause) -> f64 {
    let totals = threads.iter().flat_map(|thread| &thread.totals);
    totals.filter(|total| total.cause == cause).map(|total| total.us).sum()
}

/// Proposals against each cause that took a part of a thread's lateness, and against the largest
/// one whatever its share.
fn for_thread(
    thread: &LoopReport,
    threads: &[LoopReport],
    own: &BTreeSet<i32>,
    proposals: &mut Vec<Proposal>,
) {
    let name = format!("{} ({})", thread.name, thread.tid);
    let most = thread.totals.iter().enumerate();
    for (_, total) in most.filter(|(place, total)| *place == 0 || total.share >= LEAST) {
        let what = against(thread, total, own);
        let (percent, ms) = (100.0 * total.share, total.us / 1e3);
        let words = format!("{name}: {what}: {percent:.0} % of its lateness, {ms:.1} ms");
        proposals.push((total.us, of_all(threads, total.cause), words));
    }
}

fn against(thread: &LoopReport, total: &Total, own: &BTreeSet<i32>) -> String {
    let is_real_time = ["fifo", "rr", "deadline"].iter().any(|policy| thread.policy.starts_with(policy));
    let (tid, cpus, who) = (thread.tid, &thread.cpus, total.who.as_str());
    let or = |unknown: &'static str| if who.is_empty() { unknown } else { who };
    match total.cause {
        // In another control group or session than takt, its lowest priority does not count.
        Cause::HigherPriority | Cause::OwnThread if is_of(who, own) => {
            format!("this watch took its CPU ({who}): use --let-idle, which leaves CPUs alone")
        }
        Cause::HigherPriority | Cause::OwnThread if is_real_time => {
            let who = or("other threads");
            format!("placement: keep {who} off CPUs {cpus} (taskset, cpusets), or lower its priority")
        }
        Cause::HigherPriority | Cause::OwnThread => {
            format!("priority: chrt -f -p 50 {tid} puts it before {}", or("other threads"))
        }
        Cause::Interrupt | Cause::Softirq => format!(
            "placement: use a CPU without {} (takt doctor shows where interrupts go)",
            or("this interrupt or softirq")
        ),
        Cause::Unpreemptible | Cause::InterruptsOff => format!(
            "kernel: {} could not be preempted: give the loop another CPU, or use a PREEMPT_RT kernel, which makes most such sections short",
            or("something in the kernel")
        ),
        Cause::Lock => format!(
            "lock: it waits for {}, which holds the lock: keep slow work out of the lock, and use a mutex with priority inheritance \
             (PTHREAD_PRIO_INHERIT)",
            or("a thread")
        ),
        Cause::Waited => format!(
            "wait: it waits for {} in the middle of its cycle: avoid the wait, or raise that work's priority",
            or("something")
        ),
        Cause::PageFault => "memory: call mlockall(MCL_CURRENT | MCL_FUTURE), and touch all memory before the loop begins".to_owned(),
        Cause::Migration => format!("placement: bind it to one CPU (taskset -pc CPU {tid}); now {cpus}"),
        Cause::IdleExit => {
            "idle states: write 0 to /dev/cpu_dma_latency and keep it open, or limit the states (takt doctor)".to_owned()
        }
        Cause::Frequency => "frequency: use the governor `performance` (takt doctor)".to_owned(),
        Cause::Throttled => {
            "budget: it used up its budget: raise the budget (kernel.sched_rt_runtime_us, or its reservation), or reduce its work".to_owned()
        }
        Cause::Steal | Cause::Gap => {
            "hypervisor: the host took the time, and no setting in this guest helps: use a dedicated host, or dedicated CPUs on it"
                .to_owned()
        }
        Cause::Stopped => format!("signals: it was stopped ({}): avoid debuggers and job control", or("by a signal")),
        Cause::Execution | Cause::ExecutionOrFirmware => {
            format!("its own code: profile it (perf record -t {tid}), or move work out of the loop")
        }
        Cause::TimerLate if !is_real_time && thread.timer_slack_us.is_some() => format!(
            "timer slack: use a real-time policy, which has none (chrt -f -p 50 {tid}), or call prctl(PR_SET_TIMERSLACK, 1)"
        ),
        Cause::TimerLate => {
            "timer: it fired late because interrupts were off or the host was late (takt doctor)".to_owned()
        }
        Cause::PreviousJob => {
            "backlog: an earlier cycle took too long, and its cause is not known: watch again with --all-events".to_owned()
        }
        Cause::EventsLost | Cause::NotRecorded | Cause::Unknown => {
            "unknown cause: watch again with --all-events, or for longer".to_owned()
        }
    }
}

/// The lateness of the worst cycles of a thread that were put down to a name, microseconds.
fn of_windows(threads: &[LoopReport], pid: i32, part: &str) -> f64 {
    let windows = threads.iter().filter(|thread| thread.pid == pid).flat_map(|thread| &thread.windows);
    windows.filter(|late| late.who.contains(part)).map(|late| late.lateness_us.max(late.response_us)).sum()
}

fn for_python(python: &PythonReport, threads: &[LoopReport], proposals: &mut Vec<Proposal>) {
    for wait in python.lock.iter().flatten().filter(|wait| wait.share >= LEAST) {
        let holder = wait.holders.first().map_or("another thread", |holder| holder.who.as_str());
        let thread = threads.iter().find(|thread| thread.tid == wait.tid);
        let waited = thread.and_then(|thread| {
            let named = thread.windows.iter().any(|late| late.who.contains(LOCK));
            thread.totals.iter().find(|total| named && total.cause == Cause::Waited)
        });
        proposals.push((
            waited.map_or(0.0, |total| total.us),
            waited.map_or(0.0, |total| of_all(threads, total.cause)),
            format!(
                "{} ({}): process split: it waited for Python's interpreter lock (GIL) in {:.0} % of {} samples, mostly held by {holder}: \
                 move that thread's work to another process (multiprocessing), or to an interpreter with its own lock",
                wait.thread,
                wait.tid,
                100.0 * wait.share,
                python.looks
            ),
        ));
    }
    if let Some(collector) = python.collector.filter(|collector| collector.late_cycles > 0) {
        let us = of_windows(threads, python.pid, COLLECTOR);
        proposals.push((
            us,
            us,
            format!(
                "process {}: the garbage collector took most of the time of {} of the worst late cycles ({} collections, {:.1} ms, the \
                 longest {:.1} ms): call gc.freeze() after start-up and gc.disable(), and gc.collect() when the loop has time",
                python.pid,
                collector.late_cycles,
                collector.collections,
                collector.us / 1e3,
                collector.worst_us / 1e3
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: i32, totals: &[(Cause, &str, f64)]) -> LoopReport {
        let all_us: f64 = totals.iter().map(|total| total.2).sum();
        let total = |&(cause, who, us): &(Cause, &str, f64)| Total {
            cause,
            who: who.to_owned(),
            us,
            share: us / all_us,
            cycles: 1,
        };
        let mut thread = crate::report::tests::thread();
        (thread.tid, thread.late) = (tid, 5);
        thread.totals = totals.iter().map(total).collect();
        thread
    }

    #[test]
    fn proposals_begin_with_what_took_most_of_all() {
        let threads = [
            thread(
                1,
                &[(Cause::HigherPriority, "hog (tid 9)", 6000.0), (Cause::Lock, "camera (tid 8)", 5000.0)],
            ),
            thread(2, &[(Cause::Lock, "camera (tid 8)", 4000.0), (Cause::Migration, "", 3000.0)]),
        ];
        let found = proposals(&threads, &[], &BTreeSet::new());
        // Of the lock there are 9 ms in both, of the hog 6 in one.
        for (place, part) in ["(1): lock: ", "(2): lock: ", "hog (tid 9)", "taskset"].into_iter().enumerate()
        {
            assert!(found[place].contains(part), "{part} is not at {place} of {found:#?}");
        }
        assert!(found[0].contains("45 % of its lateness, 5.0 ms"), "{}", found[0]);
    }

    #[test]
    fn there_is_a_proposal_for_every_cause() {
        let own = BTreeSet::from([812]);
        for cause in [
            Cause::TimerLate,
            Cause::Interrupt,
            Cause::InterruptsOff,
            Cause::Softirq,
            Cause::HigherPriority,
            Cause::OwnThread,
            Cause::Unpreemptible,
            Cause::Lock,
            Cause::Waited,
            Cause::PageFault,
            Cause::Migration,
            Cause::IdleExit,
            Cause::Frequency,
            Cause::Throttled,
            Cause::Steal,
            Cause::Gap,
            Cause::Stopped,
            Cause::PreviousJob,
            Cause::Execution,
            Cause::ExecutionOrFirmware,
            Cause::EventsLost,
            Cause::NotRecorded,
            Cause::Unknown,
        ] {
            let found = proposals(&[thread(1, &[(cause, "", 10.0)])], &[], &own);
            assert_eq!(found.len(), 1, "{cause:?}");
        }
        let by_own = thread(1, &[(Cause::HigherPriority, "takt (nice -10, tid 812)", 10.0)]);
        assert!(proposals(&[by_own], &[], &own)[0].contains("this watch took its CPU"));
    }

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
