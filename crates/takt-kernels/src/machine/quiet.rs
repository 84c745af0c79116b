//! Time for which a guest has been silent although it could have sent something.
//!
//! On a busy host QEMU may wait for a CPU for minutes, and its guest is none the worse for it. So
//! time counts only when QEMU runs (its guest loops) or sleeps (its guest waits for what never
//! comes), and not while it is ready to run and does not.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A process as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    /// CPU time of all its threads.
    cpu: Duration,
    /// Whether a thread wants a CPU, or waits for the disk.
    wants: bool,
}

/// The time that counts since the last sign of life.
#[derive(Debug)]
pub(super) struct Quiet {
    process: PathBuf,
    last: Option<(Instant, Look)>,
    produced: u64,
    counted: Duration,
}

impl Quiet {
    /// Of the process `id`.
    pub(super) fn new(id: u32) -> Self {
        Self {
            process: PathBuf::from(format!("/proc/{id}")),
            last: None,
            produced: 0,
            counted: Duration::ZERO,
        }
    }

    /// Looks again. `produced`: bytes of all that came from the guest. The time that counts since
    /// they last grew.
    pub(super) fn look(&mut self, produced: u64) -> Duration {
        let now = Instant::now();
        let look = self.ask();
        if let (Some((before, last)), Some(look)) = (self.last, look) {
            self.counted += counted(now - before, last, look);
        } else if let Some((before, _)) = self.last {
            // Without /proc there is nothing better than the clock.
            self.counted += now - before;
        }
        if produced != self.produced {
            (self.produced, self.counted) = (produced, Duration::ZERO);
        }
        self.last = Some((now, look.unwrap_or(Look { cpu: Duration::ZERO, wants: false })));
        self.counted
    }

    fn ask(&self) -> Option<Look> {
        let (_, ticks) = stat(&fs::read_to_string(self.process.join("stat")).ok()?)?;
        let mut wants = false;
        for thread in fs::read_dir(self.process.join("task")).ok()?.flatten() {
            let state = fs::read_to_string(thread.path().join("stat")).ok();
            let state = state.as_deref().and_then(stat).map(|(state, _)| state);
            wants |= matches!(state, Some('R' | 'D'));
        }
        // The unit of /proc: a hundredth of a second on every Linux.
        Some(Look { cpu: Duration::from_millis(ticks.saturating_mul(10)), wants })
    }
}

/// Of the time between two looks, what counts.
fn counted(passed: Duration, last: Look, look: Look) -> Duration {
    let ran = look.cpu.saturating_sub(last.cpu);
    if last.wants || look.wants { ran.min(passed) } else { passed }
}

/// State and CPU time of a `stat` file. The program's name, in brackets, may hold anything.
fn stat(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((state, user.checked_add(system)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let rest = "S 1 2 3 0 -1 4194304 1 2 3 4 70 30 5 6 20 0 3 0 1 2";
        assert_eq!(stat(&format!("12 (qemu) {rest}")), Some(('S', 100)));
        assert_eq!(stat(&format!("12 (a) R 9 (b) {rest}")), Some(('S', 100)));
        assert_eq!(stat("12 (qemu) S 1 2"), None);
    }

    #[test]
    fn waiting_for_a_cpu_does_not_count() {
        let look = |ms, wants| Look { cpu: Duration::from_millis(ms), wants };
        let second = Duration::from_secs(1);
        // Starved, running, asleep.
        assert_eq!(counted(second, look(500, true), look(500, true)), Duration::ZERO);
        assert_eq!(counted(second, look(500, true), look(1400, true)), Duration::from_millis(900));
        assert_eq!(counted(second, look(500, false), look(500, false)), second);
        // The kernel counts in ticks, so that more can seem to be used than passed.
        assert_eq!(counted(second, look(0, true), look(1010, true)), second);
    }

    #[test]
    fn what_is_said_begins_anew() {
        let mut quiet = Quiet::new(std::process::id());
        quiet.look(0);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(30) {}
        // This thread has run meanwhile, so that something counts as soon as a tick is over.
        while quiet.look(0).is_zero() {}
        assert_eq!(quiet.look(5), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,80}") {
            let _ = stat(&text);
        }
    }
}
