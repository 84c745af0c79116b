//! Causes of a late release.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Priority, Softirq, Trace, Vector};

/// Name to blame if a thread slept until a timer that was set to later than the release.
pub(super) const TIMER_SLACK: &str = "timer slack";

/// Name to blame for a virtual CPU's idle exit of more than 0.5 ms, since no hardware takes so
/// long. Its counter of stolen time did not move; it advances in steps of 10 ms.
const NOT_RUN: &str = "the hypervisor did not run the halted virtual CPU";

/// The same, where the counter of stolen time agrees.
const STOLEN_IDLE: &str = "halted virtual CPU not run";

/// Thread, device or event to which time of a late release went, as the sweep finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Bucket {
    /// The thread itself ran.
    Own,
    /// The timer was programmed later than the release (timer slack).
    Slack,
    Vector(Vector),
    Irq(u32),
    /// The timer was due, this thread ran, and its interrupt did not come.
    InterruptsOff(i32),
    Softirq(Softirq),
    /// Another thread had the CPU, with this priority.
    Thread(i32, i16),
    /// A thread of lower priority kept the CPU although it should have been preempted.
    Unpreemptible(i32),
    /// Waited for a lock that this thread holds, reported by priority inheritance.
    Lock(i32),
    /// Waited until this thread (0: an interrupt) woke it.
    Waited(i32),
    /// Blocked by a page fault.
    Fault,
    Migration,
    Idle,
    /// An idle CPU did not come out of it, long after it was to.
    Halted,
    Throttled,
    /// `idle`: from a CPU that was idle, and was to come out of it.
    Steal {
        idle: bool,
    },
    /// Nobody in the kernel saw it pass.
    Gap,
    /// By this signal, which this thread sent; 0 and -1 where no event says so.
    Stopped(i32, i32),
    /// The job before was still running.
    Previous,
    Unknown,
}

/// Cause of a late release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The timer was programmed later than the release, or fired late.
    TimerLate,
    /// Another interrupt, or what the timer's interrupt did besides.
    Interrupt,
    /// The timer was due and its interrupt came late while a thread ran: interrupts off in the
    /// kernel, or, where no hypervisor shows steal, a gap that the firmware made (SMI).
    InterruptsOff,
    /// A software interrupt.
    Softirq,
    /// A thread of higher or equal priority had the CPU.
    HigherPriority,
    /// Another thread of the same process had the CPU.
    OwnThread,
    /// A thread of lower priority could not be preempted: it was in the kernel.
    Unpreemptible,
    /// A lock was held (reported by the priority-inheritance chain).
    Lock,
    /// Waited in the middle of the job, or for an event, until somebody else came.
    Waited,
    PageFault,
    /// Moved to another CPU.
    Migration,
    /// The CPU had to come out of idle; one under a hypervisor has to be run again by it.
    IdleExit,
    /// The CPU's frequency changed during the job.
    Frequency,
    /// The budget of the policy was exhausted: RT throttling, the fair server, or SCHED_DEADLINE.
    Throttled,
    /// The hypervisor ran somebody else: nobody saw the time pass, and the counter of stolen time
    /// agrees.
    Steal,
    /// Nobody in this kernel saw the time pass, and no counter of stolen time agrees: the firmware
    /// (an SMI), or a hypervisor that does not report.
    Gap,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// The job before was still running.
    PreviousJob,
    /// The job itself took longer than usual, on the CPU and undisturbed.
    Execution,
    /// The same, as far as the kernel saw: a gap by the firmware (SMI) on bare metal, or by a
    /// hypervisor that does not report its guest, is charged to the job as well, and nothing was
    /// there to distinguish them.
    ExecutionOrFirmware,
    /// Events of this window were lost: nothing is guessed.
    EventsLost,
    /// The window is not in the trace.
    NotRecorded,
    /// None of these.
    Unknown,
}

impl Cause {
    /// A few words for tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::TimerLate => "timer fired late",
            Self::Interrupt => "interrupt",
            Self::InterruptsOff => "interrupts off, or a firmware gap",
            Self::Softirq => "software interrupt",
            Self::HigherPriority => "thread of higher or equal priority",
            Self::OwnThread => "own helper thread",
            Self::Unpreemptible => "non-preemptible thread in the kernel",
            Self::Lock => "lock held",
            Self::Waited => "waited for",
            Self::PageFault => "page fault",
            Self::Migration => "migration",
            Self::IdleExit => "idle exit",
            Self::Frequency => "CPU frequency",
            Self::Throttled => "throttled: budget exhausted",
            Self::Steal => "hypervisor steal",
            Self::Gap => "gap (SMI or unreported steal)",
            Self::Stopped => "stopped by a signal",
            Self::PreviousJob => "previous job still running",
            Self::Execution => "the job itself",
            Self::ExecutionOrFirmware => {
                "the job itself, or a gap (SMI or unreported steal): cannot be distinguished here"
            }
            Self::EventsLost => "events lost",
            Self::NotRecorded => "not recorded",
            Self::Unknown => "unknown",
        }
    }
}

/// Facts about a late job besides the use of its time.
#[derive(Debug, Clone, Default)]
pub(super) struct Circumstances {
    /// Page faults of the thread in the window.
    pub(super) faults: u32,
    /// CPU time that followed them closely enough to be their handling.
    pub(super) fault_own_ns: u64,
    /// The same of a usual job.
    pub(super) usual_fault_own_ns: u64,
    /// CPU time that a job usually takes.
    pub(super) usual_own_ns: u64,
    pub(super) migrations: u32,
    pub(super) frequency_changed: bool,
    /// Firmware time in the meantime.
    pub(super) firmware: FirmwareTime,
    /// Kernel functions that the wake-up's interrupt interrupted, innermost first.
    pub(super) interrupted: Vec<String>,
}

/// Knowledge about the firmware's time in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FirmwareTime {
    /// It took none beyond what is in the account.
    #[default]
    None,
    /// So many SMIs were counted between the readings about the window, which lie so far apart.
    Counted { smis: u64, within_ns: u64 },
    /// Nobody knows.
    Unknown,
}

impl FirmwareTime {
    pub(super) fn between(trace: &Trace, from_ns: u64, to_ns: u64) -> Self {
        // A guest is not interrupted by SMIs as such: what it loses is steal, which a job is not
        // charged for. Unless its hypervisor does not report: then the counter has never moved.
        if trace.guest {
            let reported = trace.steal.is_empty() || trace.steal.iter().any(|reading| reading.stolen_ns > 0);
            return if reported { Self::None } else { Self::Unknown };
        }
        let readings = &trace.firmware.readings;
        let before = readings.partition_point(|reading| reading.time_ns <= from_ns).checked_sub(1);
        let after = readings.partition_point(|reading| reading.time_ns < to_ns);
        if let (Some(before), Some(after)) = (before.map(|before| readings[before]), readings.get(after)) {
            return match after.count.wrapping_sub(before.count) {
                0 => Self::None,
                smis => Self::Counted { smis, within_ns: after.time_ns - before.time_ns },
            };
        }
        let watched = &trace.firmware.watched;
        let begun = watched.partition_point(|span| span.from_ns <= from_ns).checked_sub(1);
        match begun.is_some_and(|begun| to_ns <= watched[begun].to_ns) {
            true => Self::None,
            false => Self::Unknown,
        }
    }
}

/// Most of a thread's own time after a page fault that is taken for its handling.
///
/// The kernel shows where a fault begins and not where it ends, so it ends with the thread's next
/// event or here. A fault of 4 KiB takes 0.25 to 1 us on a fast machine and some microseconds on a
/// small one; under a hypervisor the page may have to be mapped there as well, which is an exit and
/// another fault. A thread that computes for long between its faults is charged no more than this
/// for each, so that few of them do not hide a long computation.
pub(super) fn most_fault_ns(guest: bool) -> u64 {
    if guest { 15_000 } else { 5_000 }
}

/// Most of a job's excess that each counted SMI is believed to have taken. SMIs take some 10 to 300
/// us; the kernel's and the vendors' own tests call 150 us too long. The count is read every 20 ms
/// or so: one that passed at any time between two readings must not excuse a job that overran for
/// milliseconds. Longer times are reported as unknown.
const LONGEST_SMI_NS: u64 = 1_000_000;

/// Most that the cold caches of another CPU can cost, for each migration: a few thousand lines from
/// memory.
const COLD_NS: u64 = 500_000;

/// A part of a late release's delay: of the time beyond what it usually takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Cause of the lost time.
    pub cause: Cause,
    /// Thread, interrupt or lock holder, where there is one.
    pub who: String,
    /// Its length.
    pub ns: u64,
    /// Its share of the delay, 0 to 1.
    pub share: f64,
}

/// Signals that stop a process (signal(7)), by number: the same on every architecture that Rust's
/// Linux runs on, but for MIPS.
pub(super) fn is_stop(signal: i32) -> bool {
    [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal)
}

fn stop_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSTOP => "SIGSTOP",
        libc::SIGTSTP => "SIGTSTP",
        libc::SIGTTIN => "SIGTTIN",
        _ => "SIGTTOU",
    }
}

/// Whether a thread is one of the kernel's that carry threads to other CPUs.
pub(super) fn is_stopper(trace: &Trace, tid: i32) -> bool {
    trace.threads.get(&tid).is_some_and(|thread| thread.name.starts_with("migration/"))
}

/// Names the parts of an account, greatest first.
pub(super) fn parts(
    account: &BTreeMap<Bucket, u64>,
    known: &Circumstances,
    process: &dyn Fn(i32) -> bool,
    trace: &Trace,
) -> Vec<Part> {
    let thread = |tid: i32, prio: i16| match tid {
        ..0 => trace.name(tid),
        _ => format!("{} ({}, tid {tid})", trace.name(tid), Priority(prio)),
    };
    let place = match known.interrupted.as_slice() {
        [] => String::new(),
        functions => format!(" in {}", functions.join(" < ")),
    };
    let named = |tid: i32| if tid == 0 { "interrupt".to_owned() } else { trace.name_and_id(tid) };
    let mut parts: Vec<Part> = Vec::new();
    for (&bucket, &ns) in account {
        let (cause, who) = match bucket {
            Bucket::Own => {
                let excess_ns = ns.saturating_sub(known.usual_own_ns);
                let faults_ns = known.fault_own_ns.saturating_sub(known.usual_fault_own_ns).min(excess_ns);
                let who = format!("{} page faults", known.faults);
                parts.push(Part { cause: Cause::PageFault, who, ns: faults_ns, share: 0.0 });
                let excess_ns = excess_ns - faults_ns;
                let cause = if known.frequency_changed {
                    Cause::Frequency
                } else if known.migrations > 0 && excess_ns <= COLD_NS * u64::from(known.migrations) {
                    Cause::Migration
                } else {
                    Cause::Execution
                };
                let (cause, smi_ns) = match (cause, known.firmware) {
                    (Cause::Execution, FirmwareTime::Counted { smis, within_ns }) => {
                        let ns = excess_ns.min(smis.saturating_mul(LONGEST_SMI_NS));
                        let ms = within_ns as f64 / 1e6;
                        let who = format!("SMI: {smis} counted within {ms:.0} ms around it");
                        parts.push(Part { cause: Cause::Gap, who, ns, share: 0.0 });
                        (Cause::ExecutionOrFirmware, ns)
                    }
                    (Cause::Execution, FirmwareTime::Unknown) => (Cause::ExecutionOrFirmware, 0),
                    (cause, _) => (cause, 0),
                };
                parts.push(Part { cause, who: String::new(), ns: excess_ns - smi_ns, share: 0.0 });
                continue;
            }
            Bucket::Slack => (Cause::TimerLate, TIMER_SLACK.to_owned()),
            Bucket::Vector(vector) => (Cause::Interrupt, vector.name().to_owned()),
            Bucket::Irq(irq) => {
                (Cause::Interrupt, trace.irqs.get(&irq).cloned().unwrap_or_else(|| format!("irq {irq}")))
            }
            // It stays in user mode, where no interrupt can be off and no switch has to wait. But a
            // hypervisor may deliver a timer late without a gap.
            Bucket::InterruptsOff(tid) if trace.keeps_awake(tid) && trace.guest => {
                (Cause::TimerLate, "no thread had interrupts off".to_owned())
            }
            Bucket::InterruptsOff(tid) | Bucket::Unpreemptible(tid) if trace.keeps_awake(tid) => {
                (Cause::Gap, String::new())
            }
            // A hypervisor's timer is as likely as a section with interrupts off, and nobody can
            // distinguish them.
            Bucket::InterruptsOff(tid) if trace.guest => {
                (Cause::TimerLate, format!("while {} ran{place}", trace.name(tid)))
            }
            Bucket::InterruptsOff(tid) => (Cause::InterruptsOff, named(tid) + &place),
            Bucket::Softirq(softirq) => (Cause::Softirq, softirq.name().to_owned()),
            Bucket::Thread(tid, prio) if process(tid) => (Cause::OwnThread, thread(tid, prio)),
            Bucket::Thread(tid, prio) => (Cause::HigherPriority, thread(tid, prio)),
            Bucket::Unpreemptible(tid) => (Cause::Unpreemptible, named(tid) + &place),
            Bucket::Lock(tid) => (Cause::Lock, named(tid)),
            Bucket::Waited(-1) => (Cause::Unknown, "asleep, no wake-up seen".to_owned()),
            Bucket::Waited(tid) if is_stopper(trace, tid) => (Cause::Migration, String::new()),
            Bucket::Waited(tid) => (Cause::Waited, named(tid)),
            Bucket::Fault => (Cause::PageFault, "waited for a page".to_owned()),
            Bucket::Migration => (Cause::Migration, String::new()),
            Bucket::Halted if trace.guest => (Cause::IdleExit, NOT_RUN.to_owned()),
            Bucket::Idle | Bucket::Halted => (Cause::IdleExit, String::new()),
            Bucket::Throttled => (Cause::Throttled, String::new()),
            Bucket::Steal { idle: false } => (Cause::Steal, String::new()),
            Bucket::Steal { idle: true } => (Cause::Steal, STOLEN_IDLE.to_owned()),
            Bucket::Gap => (Cause::Gap, String::new()),
            Bucket::Stopped(0, _) => (Cause::Stopped, String::new()),
            Bucket::Stopped(signal, by) => {
                (Cause::Stopped, format!("{} of {}", stop_name(signal), trace.name_and_id(by)))
            }
            Bucket::Previous => (Cause::PreviousJob, String::new()),
            Bucket::Unknown => (Cause::Unknown, String::new()),
        };
        parts.push(Part { cause, who, ns, share: 0.0 });
    }
    parts.retain(|part| part.ns > 0);
    parts.sort_by(|a, b| (a.cause, &a.who).cmp(&(b.cause, &b.who)));
    parts.dedup_by(|next, kept| {
        let same = next.cause == kept.cause && next.who == kept.who;
        kept.ns += if same { next.ns } else { 0 };
        same
    });
    let total_ns: u64 = parts.iter().map(|part| part.ns).sum();
    for part in &mut parts {
        part.share = part.ns as f64 / total_ns.max(1) as f64;
    }
    parts.sort_by_key(|part| (std::cmp::Reverse(part.ns), part.cause));
    parts
}

/// The cause that took most in all its parts, who took most of that, and its share.
pub(super) fn main_cause(parts: &[Part]) -> Option<(Cause, &str, f64)> {
    let mut totals: BTreeMap<Cause, u64> = BTreeMap::new();
    for part in parts {
        *totals.entry(part.cause).or_default() += part.ns;
    }
    let total_ns: u64 = totals.values().sum();
    let (&cause, &ns) = totals.iter().max_by_key(|entry| (entry.1, std::cmp::Reverse(entry.0)))?;
    // Greatest first.
    let who = parts.iter().find(|part| part.cause == cause).map_or("", |part| &part.who);
    Some((cause, who, ns as f64 / total_ns.max(1) as f64))
}
