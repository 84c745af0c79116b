//! When the robot must stop.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_link_ethercat::control::Exchanged;
use takt_rt::config::{SettingError, within};

/// Reason of the robot's stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Asked to.
    Asked,
    /// Devices no longer take part, or left OP.
    DevicesLost,
    /// No frame came for too many cycles.
    LinkLost,
    /// Frames come, and the inputs that they bring are too old.
    InputsOld,
    /// Cycles were late too often.
    Late,
    /// Nobody controlled the robot for too long.
    Away,
    /// A reader kept the cache.
    ReaderHeld,
    /// A drive reported a fault.
    DriveFault,
    /// Drives did not come into operation in time, or left it.
    NotEnabled,
    /// A joint stands outside its range: its encoder's zero, direction or scale is not as
    /// configured, or its drive does not follow.
    OutOfRange,
    /// A drive in operation shows another mode of operation (0x6061) than the one that its targets
    /// are for.
    WrongMode,
    /// One's own motion panicked.
    MotionPanicked,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked to stop",
            Self::DevicesLost => "devices do not take part in the exchange, or left OP",
            Self::LinkLost => "no frame brought newer inputs for safety.max_missing cycles in a row",
            Self::InputsOld => {
                "inputs were more than safety.max_input_age cycles old: frames arrived, but too late"
            }
            Self::Late => "cycles were late too often",
            Self::Away => "no controller was active for longer than safety.max_away_ms",
            Self::ReaderHeld => "a reader held the cache for too long, too often",
            Self::DriveFault => "a drive reported a fault",
            Self::OutOfRange => {
                "a joint stands farther outside its range than safety.max_outside_mrad: check its zero_counts, direction, counts_per_turn and gear"
            }
            Self::NotEnabled => {
                "drives did not enter operation in time, or left it; drives that report their mode (0x6061) must report the requested one"
            }
            Self::WrongMode => {
                "a drive in operation changed its mode (0x6061) and would misinterpret its targets"
            }
            Self::MotionPanicked => "the motion panicked: its message is on standard error",
        })
    }
}

/// Limits beyond which the robot stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SafetyConfig {
    /// Cycles in a row without newer inputs that stop the robot: nothing came, neither in time nor
    /// late. 3: one lost frame is a hiccup that the drives' interpolation bridges; 3 ms without
    /// control is what walking allows. Frames that all come late by as much are not missing; while
    /// the delay grows, nobody can distinguish the two, and those cycles count.
    pub max_missing: u32,
    /// Most cycles by which the inputs in use may be older than fresh ones, where frames come. 10:
    /// the walk is planned ahead and each drive closes its own loops, so that age costs no
    /// stability, and at 1 kHz 10 ms are what a person takes for at once. A motion of one's own
    /// that closes a loop over the bus needs less: a dead time of T takes 360° × T × f off the
    /// phase at its crossover f, so that 3 cycles at 1 kHz and 20 Hz cost 22°. 0: no inputs but
    /// fresh ones.
    pub max_input_age: u32,
    /// Answers in a row that report a device that did not take part, or is not in OP. 3,
    /// likewise.
    pub max_incomplete: u32,
    /// Late cycles among the last 1000: jobs that ended after the next release, and releases that
    /// did not run at all, each of them. 20: 2 %.
    pub max_late: u32,
    /// Late cycles in a row, those included that did not run. 5.
    pub max_late_in_row: u32,
    /// Time without control, milliseconds: how long the oldest release that had not run was overdue
    /// when the next job ran. 5: as long as `max_late_in_row` at 1 kHz; until then the drives hold
    /// their last targets, a thousandth of a step of the walk away.
    pub max_away_ms: u32,
    /// Cycles in a row that a reader kept the cache. 3.
    pub max_held: u32,
    /// Time for all drives to come into operation, milliseconds. 2000; real drives take some
    /// hundred.
    pub enable_ms: u32,
    /// Largest distance of a joint outside its range, milliradians. 200: it may rest on its end
    /// stop, which lies a little beyond; farther out, the encoder is not as configured, and the
    /// robot does not move. While it moves, at least 50 apply: a joint at its limit overshoots a
    /// little.
    pub max_outside_mrad: u32,
    /// Fault resets tried while drives are enabled. 3.
    pub max_resets: u32,
    /// Time of a quick stop before torque goes off, milliseconds. 500: 6 rad/s at the drives' ramp
    /// of 60 rad/s² take 100.
    pub stop_ms: u32,
}

impl Default for SafetyConfig {
    fn default() -> Self {
        Self {
            max_missing: 3,
            max_input_age: 10,
            max_incomplete: 3,
            max_late: 20,
            max_late_in_row: 5,
            max_away_ms: 5,
            max_held: 3,
            enable_ms: 2000,
            max_outside_mrad: 200,
            max_resets: 3,
            stop_ms: 500,
        }
    }
}

impl SafetyConfig {
    /// Refuses limits that would never stop, or at once.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        let keys = [
            ("max_missing", self.max_missing, 1, 16),
            ("max_input_age", self.max_input_age, 0, 256),
            ("max_incomplete", self.max_incomplete, 1, 1000),
            ("max_late", self.max_late, 1, 1000),
            ("max_late_in_row", self.max_late_in_row, 1, 1000),
            ("max_away_ms", self.max_away_ms, 1, 60_000),
            ("max_held", self.max_held, 1, 1000),
            ("enable_ms", self.enable_ms, 10, 60_000),
            ("max_outside_mrad", self.max_outside_mrad, 0, 10_000),
            ("max_resets", self.max_resets, 0, 100),
            ("stop_ms", self.stop_ms, 1, 60_000),
        ];
        for (key, value, low, high) in keys {
            within(&format!("safety.{key}"), value.into(), low.into(), high.into())?;
        }
        Ok(())
    }
}

/// Cycles of the window for late ones.
const WINDOW: usize = 1000;

/// Punctuality of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Punctuality {
    /// Whether the job before ended after its period.
    pub late: bool,
    /// Releases since the job before that did not run.
    pub skipped: u64,
    /// Time by which the oldest release that had not run was overdue when this job woke up: the
    /// time without control.
    pub away_ns: u64,
}

/// Watches exchanges and cycles; pure.
#[derive(Debug, Clone)]
pub struct Watch {
    config: SafetyConfig,
    incomplete: u32,
    missing: u32,
    age: u32,
    held: u32,
    late_in_row: u32,
    late: u32,
    window: [u64; WINDOW.div_ceil(64)],
    place: usize,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new(config: SafetyConfig) -> Self {
        Self {
            config,
            incomplete: 0,
            missing: 0,
            age: 0,
            held: 0,
            late_in_row: 0,
            late: 0,
            window: [0; WINDOW.div_ceil(64)],
            place: 0,
        }
    }

    /// Judges the exchange of this cycle, and how punctual it came.
    pub fn judge(&mut self, exchanged: &Exchanged, punctuality: Punctuality) -> Option<StopReason> {
        let config = self.config;
        // The first frame comes back with the second exchange.
        if exchanged.cycle > 1 {
            // A cycle without an answer says nothing of the devices; that is judged by how old
            // inputs are.
            if exchanged.incomplete() {
                self.incomplete += 1;
            } else if exchanged.answered && exchanged.working_counter == exchanged.expected_counter {
                // Not while an older answer that reports a device without part is still the
                // newest of its frame.
                self.incomplete = 0;
            }
            (self.missing, self.age) = (exchanged.missing, exchanged.stale);
            self.held = if exchanged.published { 0 } else { self.held + 1 };
        }
        let Punctuality { late, skipped, away_ns } = punctuality;
        self.note_late(late);
        // Each release that did not run is late for itself; more than the window holds cannot make
        // it worse.
        for _ in 0..skipped.min(WINDOW as u64) {
            self.note_late(true);
        }
        if self.missing >= config.max_missing {
            Some(StopReason::LinkLost)
        } else if self.missing == 0 && self.age > config.max_input_age {
            Some(StopReason::InputsOld)
        } else if self.incomplete >= config.max_incomplete {
            Some(StopReason::DevicesLost)
        } else if self.held >= config.max_held {
            Some(StopReason::ReaderHeld)
        } else if away_ns > u64::from(config.max_away_ms) * 1_000_000 {
            Some(StopReason::Away)
        } else if self.late_in_row >= config.max_late_in_row || self.late >= config.max_late {
            Some(StopReason::Late)
        } else {
            None
        }
    }

    fn note_late(&mut self, late: bool) {
        self.late_in_row = if late { self.late_in_row + 1 } else { 0 };
        let (word, bit) = (self.place / 64, 1 << (self.place % 64));
        let was = self.window[word] & bit != 0;
        self.late = self.late + u32::from(late) - u32::from(was);
        self.window[word] = if late { self.window[word] | bit } else { self.window[word] & !bit };
        self.place = (self.place + 1) % WINDOW;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well(cycle: u64) -> Exchanged {
        Exchanged {
            cycle,
            fresh: true,
            answered: true,
            working_counter: 9,
            expected_counter: 9,
            all_op: true,
            published: true,
            ..Exchanged::default()
        }
    }

    fn run(cycles: impl Iterator<Item = (Exchanged, bool)>) -> Option<StopReason> {
        let mut watch = Watch::new(SafetyConfig::default());
        let mut cycles = cycles;
        cycles.find_map(|(exchanged, late)| {
            watch.judge(&exchanged, Punctuality { late, ..Punctuality::default() })
        })
    }

    /// Judges punctual cycles but for cycle 100, with that limit on late ones in a row.
    fn once(config: SafetyConfig, punctuality: Punctuality) -> Option<StopReason> {
        let mut watch = Watch::new(config);
        let of = |cycle| if cycle == 100 { punctuality } else { Punctuality::default() };
        (1..2000).find_map(|cycle| watch.judge(&well(cycle), of(cycle)))
    }

    #[test]
    fn time_without_control_stops_at_once_and_every_release_that_did_not_run_is_late() {
        let shipped = SafetyConfig::default();
        let away = |away_ns| Punctuality { away_ns, ..Punctuality::default() };
        // Nothing was skipped yet when the frozen controller wakes up: only its lateness reports.
        assert_eq!(once(shipped, away(608_000_000)), Some(StopReason::Away));
        assert_eq!(once(shipped, away(5_000_001)), Some(StopReason::Away));
        assert_eq!(once(shipped, away(5_000_000)), None);
        assert_eq!(once(SafetyConfig { max_away_ms: 1000, ..shipped }, away(608_000_000)), None);
        // One job that overran four releases is five late cycles, and not one.
        let skipped = |skipped| Punctuality { late: true, skipped, ..Punctuality::default() };
        assert_eq!(once(shipped, skipped(3)), None);
        assert_eq!(once(shipped, skipped(4)), Some(StopReason::Late));
        // In sum, too, where rows are allowed; and no count overflows.
        let rows = SafetyConfig { max_late_in_row: 1000, ..shipped };
        assert_eq!(once(rows, skipped(18)), None);
        assert_eq!(once(rows, skipped(19)), Some(StopReason::Late));
        let all = SafetyConfig { max_late_in_row: 1000, max_late: 1000, ..shipped };
        assert_eq!(once(all, skipped(u64::MAX)), Some(StopReason::Late));
    }

    #[test]
    fn hiccups_pass_and_losses_stop() {
        let every = |n: u64| (1..5000).map(move |cycle| (cycle, cycle % n == 0));
        let missing = |cycle, stale: u32| Exchanged {
            fresh: stale == 0,
            answered: stale == 0,
            working_counter: if stale == 0 { 9 } else { 0 },
            stale,
            missing: stale,
            ..well(cycle)
        };
        assert_eq!(run(every(2).map(|(cycle, bad)| (missing(cycle, bad.into()), false))), None);
        let lost = |count| (2..).take(count).map(move |cycle| (missing(cycle, cycle as u32 - 1), false));
        assert_eq!((run(lost(2)), run(lost(3))), (None, Some(StopReason::LinkLost)));
        // Late for ever: inputs are old, and come. How old they may be is a limit of its own.
        let late = |stale| {
            run((1..5000).map(|cycle| (Exchanged { fresh: false, stale, late: 1, ..well(cycle) }, false)))
        };
        for stale in [1, 3, 4, 10] {
            assert_eq!(late(stale), None, "{stale}");
        }
        assert_eq!(late(11), Some(StopReason::InputsOld));
        // One of them does not come.
        let hiccup = |cycle| Exchanged { fresh: false, stale: 4, missing: 1, ..well(cycle) };
        assert_eq!(run((2..3).map(|cycle| (hiccup(cycle), false))), None);
        let fewer = (2..)
            .take(3)
            .map(|cycle| (Exchanged { working_counter: 6, counter_wrong: true, ..well(cycle) }, false));
        assert_eq!(run(fewer), Some(StopReason::DevicesLost));
        // Reported once, it is one answer, however long it stays the newest of its frame; and the
        // frames beside it do not take it back.
        let stands = |cycle| Exchanged { working_counter: 6, fresh: false, stale: 1, ..well(cycle) };
        let once = Exchanged { counter_wrong: true, ..stands(2) };
        assert_eq!(run(std::iter::once(once).chain((3..99).map(stands)).map(|one| (one, false))), None);
        let again = |cycle| Exchanged { counter_wrong: cycle % 2 == 0, ..stands(cycle) };
        assert_eq!(run((2..99).map(|cycle| (again(cycle), false))), Some(StopReason::DevicesLost));
        let out = (2..).take(3).map(|cycle| (Exchanged { all_op: false, ..well(cycle) }, false));
        assert_eq!(run(out), Some(StopReason::DevicesLost));
        let held = (2..).take(3).map(|cycle| (Exchanged { published: false, ..well(cycle) }, false));
        assert_eq!(run(held), Some(StopReason::ReaderHeld));
    }

    #[test]
    fn late_cycles_stop_in_a_row_or_in_sum_and_are_forgotten() {
        let late = |n: u64| (1..4000).map(move |cycle| (well(cycle), cycle % n == 0));
        // 1 % goes on for ever, 4 % does not.
        assert_eq!(run(late(100)), None);
        assert_eq!(run(late(25)), Some(StopReason::Late));
        assert_eq!(run((1..).take(4).map(|cycle| (well(cycle), true))), None);
        assert_eq!(run((1..).take(5).map(|cycle| (well(cycle), true))), Some(StopReason::Late));
    }

    #[test]
    fn a_reason_says_what_was_judged() {
        let message = StopReason::LinkLost.to_string();
        assert!(message.contains("safety.max_missing") && !message.contains("late"), "{message}");
        let message = StopReason::InputsOld.to_string();
        assert!(message.contains("safety.max_input_age") && message.contains("too late"), "{message}");
        assert!(StopReason::MotionPanicked.to_string().contains("motion panicked"));
    }
}
