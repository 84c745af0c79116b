//! Definition of a case.

use serde::Serialize;

/// Time for which everything must be valid after a fault (`ssm.recover_after_s`). Short, so that
/// cases are short.
pub(crate) const RECOVER_AFTER_MS: u64 = 300;
/// Time without anybody near (`ssm.resume_after_s`).
pub(crate) const RESUME_AFTER_MS: u64 = 100;
use crate::proxy::Disturbance;
pub use crate::recording::Spoil;
pub use crate::witness::Urgency;

/// Groups of cases, as `by_kind` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseKind {
    /// No fault: the robot must move, else the test is blind.
    Control,
    /// Faults of the connection.
    Link,
    /// Faults in the controller's report on the robot.
    State,
    /// Robot, safety and program states.
    Mode,
    /// Faults of commands.
    Command,
    /// Faults in a camera's pictures and times.
    Camera,
    /// Faults of the cell's process.
    Process,
    /// Resources that the machine denies it.
    Resource,
    /// Faults of its output.
    Output,
}

impl CaseKind {
    /// All, in the order of a report.
    pub const ALL: [Self; 9] = [
        Self::Control,
        Self::Link,
        Self::State,
        Self::Mode,
        Self::Command,
        Self::Camera,
        Self::Process,
        Self::Resource,
        Self::Output,
    ];
}

/// Action on the cell's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Stopped (SIGSTOP) until the fault ends.
    Pause,
    /// Stopped and continued in turns, milliseconds each, until the fault ends.
    Stutter(u64, u64),
    /// A signal, once.
    Signal(i32),
    /// Killed; a person then presses play.
    KillAndPlay,
    /// Threads of a higher priority take all CPUs until the fault ends.
    Starve,
}

/// Resource that the machine denies the cell's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Files may not grow any more (RLIMIT_FSIZE).
    FileSize,
    /// No more descriptors (RLIMIT_NOFILE), and the connection is reset, so that it needs some.
    Descriptors,
    /// No more memory (RLIMIT_AS).
    Memory,
    /// The run directory's file system is full from the start.
    Disk,
    /// Others fill the run directory's file system.
    Filled,
    /// Others use up the inodes of the run directory's file system.
    Inodes,
    /// The run directory is removed.
    Removed,
    /// No more descriptors until the cell's end; it needs none for the connection.
    DescriptorsToTheEnd,
}

impl Denial {
    /// Options of the small file system that the run directory has for itself; `None` where it is
    /// on an ordinary one.
    pub(crate) fn file_system(self) -> Option<&'static str> {
        match self {
            Self::Disk => Some("size=300k"),
            Self::Filled => Some("size=24m"),
            Self::Inodes => Some("size=64m,nr_inodes=80"),
            _ => None,
        }
    }
}

/// Destination of the cell's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// To files, as in every other case.
    Kept,
    /// Both streams into `/dev/full`.
    Full,
    /// Both streams into pipes whose readers end when the fault begins.
    Broken,
    /// Both streams closed from the start.
    Closed,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Plant {
    Nothing,
    /// On the wire, once the robot moves.
    Wire(Vec<Disturbance>),
    /// On the wire, before the cell starts.
    WireFromStart(Vec<Disturbance>),
    /// On the wire, and a person presses play while the fault lasts.
    WireAndPlay(Vec<Disturbance>),
    /// In the recording that the camera replays, and on the wire once the robot moves again after
    /// the recording's own mark.
    Recording(Spoil, Vec<Disturbance>),
    /// In the recording's file, so that the cell must refuse it.
    UnreadableRecording(Spoil),
    Process(Act),
    /// To what the machine gives it.
    Machine(Denial),
    /// To its output streams; the run is then ended by SIGINT.
    Output(Words),
}

/// Requirement for the robot when the fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Commanded to stand within the documented limit of the fault, milliseconds, and the rule's
    /// own terms.
    Within(u64),
    /// Nothing: it moves on.
    Never,
    /// It may stop or not; only what holds in every case is judged.
    Free,
    /// It never moves at all.
    FromStart,
}

/// Requirement for it when the fault has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It moves again, and not before the recovery time has passed.
    Moves,
    Stands,
    /// Either.
    Free,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name, unique: `kind/what`.
    pub name: String,
    /// Its group.
    pub kind: CaseKind,
    pub plant: Plant,
    /// Duration of the fault, milliseconds.
    pub hold_ms: u64,
    /// Requirement for the robot.
    pub stop: Stop,
    /// And afterwards.
    pub after: After,
    /// Least time from the end of the fault until the robot may move, milliseconds.
    pub recovery_ms: u64,
    /// Threads of the cell that have to act: their waiting excuses a late stop.
    pub urgency: Urgency,
    /// One of these must be among the words of the verdict; none: nothing is asked.
    pub words: &'static [&'static str],
    /// Whether the verdict may not be PASS.
    pub fails: bool,
    /// Whether the watchdog's pause needs a person to press play.
    pub person_plays: bool,
    /// Whether nothing else may run beside it.
    pub alone: bool,
    /// Whether the cell must print its verdict and its figures at the end, whatever was denied.
    pub reports: bool,
    /// More keys for the cell's configuration: table, key, value.
    pub keys: Vec<(&'static str, &'static str, String)>,
}

impl Case {
    /// A case of a fault that stops the robot within a limit and lets it move on afterwards.
    pub fn new(kind: CaseKind, name: impl AsRef<str>, plant: Plant) -> Self {
        let group = serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned));
        Self {
            name: format!("{}/{}", group.unwrap_or_default(), name.as_ref()),
            kind,
            plant,
            hold_ms: 700,
            stop: Stop::Within(0),
            after: After::Moves,
            recovery_ms: RECOVER_AFTER_MS,
            urgency: Urgency::RealTime,
            words: &[],
            fails: false,
            person_plays: false,
            alone: false,
            reports: false,
            keys: Vec::new(),
        }
    }

    /// The documented limit of the fault.
    #[must_use]
    pub fn within_ms(mut self, limit_ms: u64) -> Self {
        self.stop = Stop::Within(limit_ms);
        self
    }

    /// Sets the requirements for the robot, during the fault and afterwards.
    #[must_use]
    pub fn expect(mut self, stop: Stop, after: After) -> Self {
        (self.stop, self.after) = (stop, after);
        self
    }

    /// Sets the duration of the fault.
    #[must_use]
    pub fn hold_ms(mut self, hold_ms: u64) -> Self {
        self.hold_ms = hold_ms;
        self
    }

    /// The fault is no fault of an input but something near the robot: it moves again when that is
    /// gone for `ssm.resume_after_s`.
    #[must_use]
    pub fn is_near(mut self) -> Self {
        self.recovery_ms = RESUME_AFTER_MS;
        self
    }

    /// Ordinary threads of the cell have to act.
    #[must_use]
    pub(crate) fn by_ordinary_threads(mut self) -> Self {
        self.urgency = Urgency::Ordinary;
        self
    }

    /// Sets the words that the verdict must contain.
    #[must_use]
    pub fn named(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// The run may not pass.
    #[must_use]
    pub fn fails(mut self) -> Self {
        self.fails = true;
        self
    }

    /// The watchdog's pause needs a person.
    #[must_use]
    pub(crate) fn person_plays(mut self) -> Self {
        self.person_plays = true;
        self
    }

    /// The verdict and the figures must be printed at the end.
    #[must_use]
    pub(crate) fn reports(mut self) -> Self {
        self.reports = true;
        self
    }

    /// Nothing else may run beside it.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// One more key for the cell's configuration.
    #[must_use]
    pub fn key(mut self, table: &'static str, key: &'static str, value: impl ToString) -> Self {
        self.keys.push((table, key, value.to_string()));
        self
    }
}
