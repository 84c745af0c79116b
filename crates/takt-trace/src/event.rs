//! The event model: what any source of kernel events (our own capture, `perf.data`, `trace.dat`) is
//! brought to, and what analyses and exports read.

use serde::{Deserialize, Serialize};

pub use self::trace::{Firmware, SmiReading, Span, StealReading, Trace, WakeStack};

mod trace;

/// One kernel event. Plain data of fixed size, so that millions are sorted and scanned fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds of the trace's clock ([`Trace::clock`]).
    pub time_ns: u64,
    /// The thread that was on the CPU (0: the idle thread); for a switch the one that leaves.
    pub tid: i32,
    /// The CPU that it happened on.
    pub cpu: u16,
    /// The event.
    pub kind: Kind,
}

/// Prefix of the names of threads that keep a CPU awake for the tracer; the CPU's number follows.
pub(crate) const KEEPER_NAME: &str = "takt-awake/";

/// Kind of an event. Priorities are the kernel's: 0 to 98 real time (99 less the user's priority),
/// 100 to 139 fair, -1 SCHED_DEADLINE; see [`Priority`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `hrtimer_start`: a timer was programmed.
    TimerStart {
        /// Address of the timer: its identity while it is armed.
        timer: u64,
        /// Address of the function that it calls.
        function: u64,
        /// Expiry on the timer's own clock, nanoseconds: the latest, with the thread's timer slack.
        expires_ns: u64,
        /// By how much earlier it may expire, which is what the program asked for: the thread's
        /// timer slack, at most 4.29 s.
        slack_ns: u32,
    },
    /// `hrtimer_cancel`: a timer was taken off the queue.
    TimerCancel {
        /// Address of the timer.
        timer: u64,
    },
    /// `hrtimer_expire_entry`: its function begins.
    TimerExpireEntry {
        /// Address of the timer.
        timer: u64,
        /// Address of the function.
        function: u64,
        /// The kernel's idea of now on the timer's clock.
        now_ns: u64,
    },
    /// `hrtimer_expire_exit`.
    TimerExpireExit {
        /// Address of the timer.
        timer: u64,
    },
    /// `irq_vectors:*_entry` (x86): an interrupt of the CPU's own.
    VectorEntry(Vector),
    /// `irq_vectors:*_exit`.
    VectorExit(Vector),
    /// `irq_handler_entry`: a device's interrupt (on Arm the timer's too). Its name is in
    /// [`Trace::irqs`].
    IrqEntry {
        /// Number of the interrupt.
        irq: u32,
    },
    /// `irq_handler_exit`.
    IrqExit {
        /// Number of the interrupt.
        irq: u32,
    },
    SoftirqRaise(Softirq),
    SoftirqEntry(Softirq),
    SoftirqExit(Softirq),
    /// `sched_waking`: a wake-up begins, on the CPU of the waker.
    Waking {
        /// Thread being woken.
        tid: i32,
        /// Its priority.
        prio: i16,
        /// The CPU that it is meant for.
        target_cpu: u16,
    },
    /// `sched_wakeup`: the thread is on a run queue.
    Wakeup {
        /// Thread woken.
        tid: i32,
        /// Its priority.
        prio: i16,
        /// The CPU of the run queue.
        target_cpu: u16,
    },
    /// `sched_wakeup_new`: the first wake-up of a new thread.
    WakeupNew {
        /// Thread woken.
        tid: i32,
        /// Its priority.
        prio: i16,
        /// The CPU of the run queue.
        target_cpu: u16,
    },
    /// `sched_switch`.
    Switch {
        /// Thread that leaves the CPU.
        prev_tid: i32,
        /// Its priority.
        prev_prio: i16,
        /// Reason why it leaves.
        prev_state: State,
        /// Thread that gets the CPU.
        next_tid: i32,
        /// Its priority.
        next_prio: i16,
    },
    /// `sched_migrate_task`: a thread is moved to another CPU's queue.
    Migrate {
        /// The thread.
        tid: i32,
        from_cpu: u16,
        to_cpu: u16,
    },
    /// `sched_pi_setprio`: priority inheritance raises or restores a thread, done by the thread
    /// that waits (raise) or by itself (restore).
    PiSetprio {
        /// The thread whose priority changes: the holder of the lock.
        tid: i32,
        /// Priority before.
        old_prio: i16,
        /// Priority after.
        new_prio: i16,
    },
    /// `sched_stat_runtime`: CPU time charged to a thread since the last such event. The clock that
    /// it is charged by stands still while a hypervisor has taken the CPU away, where the kernel is
    /// informed.
    Runtime {
        /// The thread.
        tid: i32,
        /// Nanoseconds charged.
        runtime_ns: u64,
    },
    /// `page_fault_user` or `page_fault_kernel`.
    PageFault {
        /// The address touched.
        address: u64,
        /// The instruction that touched it.
        ip: u64,
        /// In user mode.
        user: bool,
    },
    /// `cpu_idle`: the CPU goes idle or leaves idle.
    CpuIdle {
        /// The idle state; None on leaving it.
        state: Option<u32>,
    },
    CpuFrequency {
        /// The CPU whose frequency changes.
        cpu: u16,
        /// The new frequency.
        khz: u32,
    },
    /// `sched_process_fork`.
    Fork {
        /// The new thread; its name is in [`Trace::threads`].
        child_tid: i32,
    },
    /// `sched_process_exit`.
    Exit {
        /// The thread that ends.
        tid: i32,
    },
    /// `signal_generate`: a signal is sent.
    SignalGenerate {
        /// Its number.
        signal: i32,
        /// The thread it is sent to.
        tid: i32,
    },
    /// `contention_begin`: the current thread waits for a lock of the kernel.
    ContentionBegin {
        /// Address of the lock.
        lock: u64,
        /// Kind of lock (LCB_F_*).
        flags: u32,
    },
    ContentionEnd {
        /// Address of the lock.
        lock: u64,
    },
    /// `raw_syscalls:sys_enter`.
    SysEnter {
        /// Number of the call.
        number: i64,
    },
    /// `raw_syscalls:sys_exit`.
    SysExit {
        /// Number of the call.
        number: i64,
    },
    /// A packet is at a step of its way through the kernel.
    Packet {
        /// Place of the packet.
        step: PacketStep,
        /// Address of its buffer: its identity on one side of the socket.
        buffer: u64,
        /// Its length there: from the network header on when received, with the link's header when
        /// sent.
        bytes: u32,
    },
    /// Events of this CPU were lost: between the one before on this CPU and `time_ns`.
    Lost {
        /// Number of lost events; 0 if they were left out on purpose.
        count: u64,
    },
}

/// A step of a packet's way through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketStep {
    /// `netif_receive_skb`: the interface's work is done, the protocols' begins.
    Received,
    /// `skb_copy_datagram_iovec`: the thread that reads the socket gets it.
    Copied,
    /// `net_dev_queue`: the protocols are done, the interface's queue gets it.
    Queued,
    /// `net_dev_xmit`: the interface's driver has taken it.
    Sent,
}

/// Interrupts of x86 that the CPU or other CPUs send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vector {
    /// The CPU's own timer.
    LocalTimer,
    /// Another CPU asks for a scheduling decision.
    Reschedule,
    /// Another CPU asks all to run a function (TLB flushes, membarrier).
    CallFunction,
    /// Another CPU asks this one to run a function.
    CallFunctionSingle,
    /// Deferred work of an NMI or of tracing.
    IrqWork,
    /// Thermal event.
    Thermal,
    Other,
}

impl Vector {
    /// The vectors that have tracepoints `NAME_entry` and `NAME_exit`, with that name.
    pub const TRACED: [(Self, &'static str); 6] = [
        (Self::LocalTimer, "local_timer"),
        (Self::Reschedule, "reschedule"),
        (Self::CallFunction, "call_function"),
        (Self::CallFunctionSingle, "call_function_single"),
        (Self::IrqWork, "irq_work"),
        (Self::Thermal, "thermal_apic"),
    ];

    /// The tracepoints' name without `_entry`.
    pub fn name(self) -> &'static str {
        Self::TRACED.iter().find(|entry| entry.0 == self).map_or("other", |entry| entry.1)
    }
}

/// A software interrupt, by the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Softirq(pub u8);

impl Softirq {
    /// High-resolution timers that may expire late (`HRTIMER_MODE_SOFT`); all of them on PREEMPT_RT
    /// unless hard.
    pub const HRTIMER: Self = Self(8);

    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 10] =
            ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
        NAMES.get(usize::from(self.0)).copied().unwrap_or("unknown")
    }
}

/// Reason why a thread leaves the CPU (`prev_state` of a switch, as its bits are printed since
/// Linux 4.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Still runnable (`R`, `R+`): preempted, throttled, or it yielded.
    Runnable,
    /// Waits, woken by signals too (`S`).
    Sleeping,
    /// Waits in the kernel, not woken by signals (`D`).
    Blocked,
    /// Stopped by a signal (`T`).
    Stopped,
    /// Stopped by a debugger (`t`).
    Traced,
    /// Ended (`X`, `Z`).
    Dead,
    /// Idle kernel thread, parked, or unknown (`I`, `P`).
    Other,
}

impl State {
    /// From the raw field `prev_state`.
    pub fn from_raw(raw: i64) -> Self {
        // TASK_REPORT and the bit of preemption above it (include/linux/sched.h): S 1, D 2, T 4, t
        // 8, X 0x10, Z 0x20, P 0x40, I 0x80, R+ 0x100. Other bits (TASK_NEW, TASK_RTLOCK_WAIT …)
        // never come alone here.
        match raw & 0xff {
            0 => Self::Runnable,
            bits if bits & 0x30 != 0 => Self::Dead,
            bits if bits & 0x08 != 0 => Self::Traced,
            bits if bits & 0x04 != 0 => Self::Stopped,
            bits if bits & 0xc0 != 0 => Self::Other,
            bits if bits & 0x02 != 0 => Self::Blocked,
            _ => Self::Sleeping,
        }
    }

    /// The kernel's letter for it.
    pub fn letter(self) -> char {
        match self {
            Self::Runnable => 'R',
            Self::Sleeping => 'S',
            Self::Blocked => 'D',
            Self::Stopped => 'T',
            Self::Traced => 't',
            Self::Dead => 'X',
            Self::Other => 'I',
        }
    }
}

/// A priority of the kernel in the words of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority(pub i16);

impl std::fmt::Display for Priority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ..0 => f.write_str("deadline"),
            prio @ 0..=98 => write!(f, "rt {}", 99 - prio),
            99 => f.write_str("rt 0"),
            prio => write!(f, "nice {}", prio - 120),
        }
    }
}

/// A thread that occurs in the trace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Thread {
    /// The last name that it had.
    pub name: String,
    /// Its process, where known.
    pub pid: Option<i32>,
}

/// A clock that events are stamped with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// CLOCK_MONOTONIC: the clock of job records.
    Monotonic,
    /// Any other, by the name that its source gives it (`local`, `CLOCK_BOOTTIME` …). Job records
    /// cannot be matched.
    Other(String),
}

/// Conversion of a recorded file's events to CLOCK_MONOTONIC, by pairs of both clocks in the file
/// itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockMap {
    /// The clock of the file, by the name that its recorder gives it.
    pub from: String,
    /// So many pairs of that clock and CLOCK_MONOTONIC.
    pub pairs: u64,
    /// The file's clock less CLOCK_MONOTONIC in these pairs: least, median and greatest. Null for
    /// clocks that do not count nanoseconds.
    pub offset_ns: Option<[i64; 3]>,
    /// Largest error of a time.
    pub error_ns: u64,
    /// Whether that is a bound. Else it is an estimate by how much the pairs scatter.
    pub error_is_bound: bool,
}

#[cfg(test)]
mod tests;
