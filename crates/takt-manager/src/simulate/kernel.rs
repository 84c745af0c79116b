//! SCHED_DEADLINE as the kernel has it (`kernel/sched/deadline.c`): hard constant-bandwidth
//! servers, earliest deadline first on each core, the rule at wake-ups, and budgets that are looked
//! at exactly (`HRTICK_DL`) or at ticks and when a thread leaves the CPU. Nothing here knows of the
//! analysis.

use takt_rt::random::SplitMix64;

use super::engine::{Engine, Job};
use super::{Machine, Supply};

/// A thread and its reservation.
#[derive(Debug)]
pub(super) struct Thread {
    pub supply: Supply,
    /// Its executor; `None`: it takes what others leave.
    pub executor: Option<usize>,
    /// May be negative, where it ran on until a tick.
    left_ns: i64,
    deadline_ns: u64,
    throttled: bool,
    pub cpu_ns: u64,
    pub doing: Doing,
    /// Sleeping hogs: awake for so long, then away for so long; 0: always awake.
    sleeps_ns: u64,
}

/// State of a thread.
#[derive(Debug)]
pub(super) enum Doing {
    /// It waits for work.
    Idle,
    /// It will look for work as soon as it has the CPU.
    Fetch,
    /// It waits for the executor's lock.
    Blocked,
    /// It has the executor's lock and looks for work.
    Dispatch {
        /// So much longer.
        left_ns: u64,
    },
    /// It runs a callback.
    Work(Box<Job>),
    /// A callback that it runs waits for something.
    Suspended { until_ns: u64, job: Box<Job> },
    /// It does nothing useful.
    Hog {
        /// Until it sleeps.
        left_ns: u64,
    },
    /// It will do nothing useful again.
    HogAway {
        /// Then.
        until_ns: u64,
    },
}

impl Doing {
    fn ready(&self) -> bool {
        matches!(self, Self::Fetch | Self::Dispatch { .. } | Self::Work(_) | Self::Hog { .. })
    }
}

impl Thread {
    pub fn new(supply: Supply, executor: Option<usize>) -> Self {
        Self {
            supply,
            executor,
            left_ns: 0,
            deadline_ns: 0,
            throttled: false,
            cpu_ns: 0,
            doing: Doing::Idle,
            sleeps_ns: 0,
        }
    }
}

/// Adds to each core servers that use up all that is left of it: one that never sleeps, or two that
/// do now and then.
pub(super) fn hogs(threads: &mut Vec<Thread>, machine: Machine, random: &mut SplitMix64) {
    let cores = threads.iter().map(|s| s.supply.core + 1).max().unwrap_or(0);
    for core in 0..cores {
        let Some(period_ns) = threads.iter().find(|s| s.supply.core == core).map(|s| s.supply.period_ns)
        else {
            continue;
        };
        let used: u64 = threads.iter().filter(|s| s.supply.core == core).map(|s| s.supply.budget_ns).sum();
        let left = (period_ns * machine.capacity_percent / 100).saturating_sub(used);
        if left == 0 || random.one_in(4) {
            continue;
        }
        let several = machine.sleeping_hogs && random.one_in(2);
        for budget_ns in if several { vec![left / 2, left / 2] } else { vec![left] } {
            if budget_ns == 0 {
                continue;
            }
            let mut hog = Thread::new(Supply { budget_ns, period_ns, core }, None);
            // In the middle of a period, with the budget that is its due until then.
            hog.deadline_ns = random.within(1, period_ns);
            hog.left_ns = signed((budget_ns * hog.deadline_ns / period_ns).max(1));
            hog.sleeps_ns = if several { random.within(1, 2 * period_ns) } else { 0 };
            hog.doing = Doing::Hog { left_ns: if several { budget_ns } else { u64::MAX } };
            threads.push(hog);
        }
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

impl Engine<'_> {
    /// `update_dl_entity`: budget and deadline are kept unless they would exceed the bandwidth.
    pub fn wake(&mut self, thread: usize) {
        let now = self.now_ns;
        let thread = &mut self.threads[thread];
        if thread.throttled {
            return;
        }
        let (budget, period) = (i128::from(thread.supply.budget_ns), i128::from(thread.supply.period_ns));
        let fresh = thread.deadline_ns <= now
            || i128::from(thread.left_ns) * period > budget * i128::from(thread.deadline_ns - now);
        if fresh {
            thread.deadline_ns = now + thread.supply.period_ns;
            thread.left_ns = signed(thread.supply.budget_ns);
        } else if thread.left_ns <= 0 {
            thread.throttled = true;
        }
    }

    /// `replenish_dl_entity`: budgets and periods until the debt is paid.
    pub(crate) fn replenish(&mut self) {
        let now = self.now_ns;
        for thread in &mut self.threads {
            if !thread.throttled || thread.deadline_ns > now {
                continue;
            }
            thread.throttled = false;
            while thread.left_ns <= 0 {
                thread.deadline_ns += thread.supply.period_ns;
                thread.left_ns += signed(thread.supply.budget_ns);
            }
            if thread.deadline_ns < now {
                thread.deadline_ns = now + thread.supply.period_ns;
                thread.left_ns = signed(thread.supply.budget_ns);
            }
        }
        for number in 0..self.threads.len() {
            if let Doing::HogAway { until_ns } = self.threads[number].doing
                && until_ns <= now
            {
                let left_ns = self.threads[number].supply.budget_ns;
                self.threads[number].doing = Doing::Hog { left_ns };
                self.wake(number);
            }
        }
    }

    /// On every core the runnable thread of the earliest deadline.
    pub fn choose(&mut self) -> Vec<usize> {
        loop {
            let mut chosen: Vec<usize> = Vec::new();
            for number in 0..self.threads.len() {
                if self.threads[number].throttled || !self.threads[number].doing.ready() {
                    continue;
                }
                let core = self.threads[number].supply.core;
                match chosen.iter_mut().find(|c| self.threads[**c].supply.core == core) {
                    // Ties go to the hogs, which come last.
                    Some(best) if self.threads[number].deadline_ns <= self.threads[*best].deadline_ns => {
                        *best = number;
                    }
                    Some(_) => {}
                    None => chosen.push(number),
                }
            }
            // A thread that leaves the CPU with an empty budget is throttled immediately.
            let mut left = false;
            for number in 0..self.threads.len() {
                if self.threads[number].left_ns <= 0
                    && !self.threads[number].throttled
                    && self.threads[number].deadline_ns > 0
                    && !chosen.contains(&number)
                {
                    self.throttle(number);
                    left = true;
                }
            }
            let mut fetched = false;
            for number in &chosen {
                if matches!(self.threads[*number].doing, Doing::Fetch) {
                    self.fetch(*number);
                    fetched = true;
                }
            }
            if !fetched && !left {
                return chosen;
            }
        }
    }

    fn throttle(&mut self, thread: usize) {
        self.threads[thread].throttled = true;
        self.replenish();
        if self.threads[thread].throttled {
            self.throttled(thread);
        }
    }

    /// When something happens next, apart from releases.
    pub fn next_event(&self, chosen: &[usize]) -> u64 {
        let mut next = u64::MAX;
        for thread in &self.threads {
            if thread.throttled {
                next = next.min(thread.deadline_ns);
            }
            if let Doing::Suspended { until_ns, .. } | Doing::HogAway { until_ns } = thread.doing {
                next = next.min(until_ns);
            }
        }
        for number in chosen {
            let thread = &self.threads[*number];
            let left = match &thread.doing {
                Doing::Work(job) if !job.suspensions.is_empty() => job.segment_ns.min(job.left_ns),
                Doing::Work(job) => job.left_ns,
                Doing::Dispatch { left_ns } | Doing::Hog { left_ns } => *left_ns,
                _ => 0,
            };
            let left = if self.machine.tick_ns == 0 {
                left.min(u64::try_from(thread.left_ns).unwrap_or(0))
            } else {
                left
            };
            next = next.min(self.now_ns.saturating_add(left));
        }
        if self.machine.tick_ns > 0 && !chosen.is_empty() {
            // Each core's ticks are at another moment.
            for number in chosen {
                let phase = self.phase(self.threads[*number].supply.core);
                let since = self.now_ns.saturating_sub(phase);
                let at = phase
                    + (since / self.machine.tick_ns + u64::from(self.now_ns >= phase)) * self.machine.tick_ns;
                next = next.min(if self.now_ns < phase { phase } else { at });
            }
        }
        next
    }

    fn phase(&self, core: usize) -> u64 {
        (core as u64 * 1_234_567) % self.machine.tick_ns.max(1)
    }

    pub fn advance(&mut self, number: usize, passed_ns: u64) {
        let now = self.now_ns;
        let thread = &mut self.threads[number];
        thread.left_ns -= signed(passed_ns);
        let exact = self.machine.tick_ns == 0;
        let exhausted = exact && thread.left_ns <= 0;
        thread.cpu_ns += passed_ns;
        match &mut thread.doing {
            Doing::Work(job) => {
                job.left_ns -= passed_ns;
                if !job.suspensions.is_empty() {
                    job.segment_ns -= passed_ns;
                }
            }
            Doing::Dispatch { left_ns } => *left_ns -= passed_ns,
            Doing::Hog { left_ns } if *left_ns < u64::MAX => *left_ns -= passed_ns,
            _ => {}
        }
        if exhausted {
            self.throttle(number);
        }
        match &mut self.threads[number].doing {
            Doing::Hog { left_ns: 0 } => {
                let until_ns = now + self.threads[number].sleeps_ns;
                self.threads[number].doing = Doing::HogAway { until_ns };
            }
            Doing::Work(_) => self.worked(number),
            Doing::Dispatch { left_ns: 0 } => self.dispatch(number),
            _ => {}
        }
    }

    /// The tick of each core: whoever runs without budget is throttled.
    pub fn tick(&mut self, chosen: &[usize]) {
        let tick_ns = self.machine.tick_ns;
        if tick_ns == 0 {
            return;
        }
        for number in chosen {
            let phase = self.phase(self.threads[*number].supply.core);
            let ticks = self.now_ns >= phase && (self.now_ns - phase).is_multiple_of(tick_ns);
            if ticks && self.threads[*number].left_ns <= 0 && !self.threads[*number].throttled {
                self.throttle(*number);
            }
        }
    }
}
