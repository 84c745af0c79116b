//! One thing that happened.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What sort of thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A run, a manager or a watch has begun its work.
    Started,
    /// It has ended in order.
    Ended,
    /// The robot was brought to a stop.
    Stop,
    /// Something is wrong that is no stop by itself.
    Fault,
    /// The robot goes on after a stop.
    Recovery,
    /// The link to a robot, a bus or a camera has changed.
    Link,
    /// A chain goes on at best effort, in the declared order.
    Degraded,
    /// A chain is guaranteed no longer.
    GuaranteeLost,
    /// A chain is guaranteed.
    Guaranteed,
    /// Values came after their deadline.
    Late,
    /// A process has ended without saying so: by SIGKILL, a crash, a loss of power.
    Killed,
    /// A sort that a newer Takt has written.
    #[serde(other)]
    Other,
}

impl Kind {
    /// All that this version writes.
    pub const ALL: [Self; 11] = [
        Self::Started,
        Self::Ended,
        Self::Stop,
        Self::Fault,
        Self::Recovery,
        Self::Link,
        Self::Degraded,
        Self::GuaranteeLost,
        Self::Guaranteed,
        Self::Late,
        Self::Killed,
    ];

    /// Its name in `TAKT_EVENT` and in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Stop => "stop",
            Self::Fault => "fault",
            Self::Recovery => "recovery",
            Self::Link => "link",
            Self::Degraded => "degraded",
            Self::GuaranteeLost => "guarantee-lost",
            Self::Guaranteed => "guaranteed",
            Self::Late => "late",
            Self::Killed => "killed",
            Self::Other => "other",
        }
    }

    /// Its priority in journald, as syslog(3) has them.
    pub fn priority(self) -> u8 {
        match self {
            Self::Fault | Self::GuaranteeLost | Self::Killed => 3,
            Self::Stop | Self::Link | Self::Degraded | Self::Late => 4,
            Self::Recovery => 5,
            Self::Started | Self::Ended | Self::Guaranteed | Self::Other => 6,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Stop => "stopped",
            Self::Fault => "fault",
            Self::Recovery => "goes on",
            Self::Link => "link",
            Self::Degraded => "degraded",
            Self::GuaranteeLost => "guarantee lost",
            Self::Guaranteed => "guaranteed",
            Self::Late => "late",
            Self::Killed => "killed",
            Self::Other => "event",
        }
    }
}

/// An event, as a line of the file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, UTC, RFC 3339 with milliseconds: for people.
    pub utc: String,
    /// When, nanoseconds since 1970.
    pub wall_ns: u64,
    /// When, CLOCK_MONOTONIC nanoseconds: as the samples of the run directory have it. Comparable
    /// within one `boot`.
    pub at_ns: u64,
    /// The kernel's id of this boot.
    #[serde(default)]
    pub boot: String,
    /// What happened.
    pub event: Kind,
    /// To which robot, managed system or watched target.
    pub robot: String,
    /// Why, in words.
    #[serde(default)]
    pub cause: String,
    /// Of which measure or chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<String>,
    /// How many values, of [`Kind::Late`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The worst of them, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_ns: Option<u64>,
    /// The run directory that has the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<PathBuf>,
    /// Where in the run: seconds since its measured window began; absent before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moment_s: Option<f64>,
    /// The process.
    pub pid: u32,
    /// When that process began, in ticks since the boot: tells it from a later one with its number.
    #[serde(default)]
    pub pid_start_ticks: u64,
    /// The command: `run`, `manage`, `watch`.
    #[serde(default)]
    pub command: String,
    /// The unit of systemd that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Event {
    /// In a sentence: `cell stopped: frames are stale (camera west)`.
    pub fn message(&self) -> String {
        let Self { robot, event, cause, .. } = self;
        match (event, cause.is_empty()) {
            (Kind::Started | Kind::Ended | Kind::Stop | Kind::Recovery | Kind::Killed, true) => {
                format!("{robot} {}", event.words())
            }
            (Kind::Started | Kind::Ended | Kind::Stop | Kind::Recovery | Kind::Killed, false) => {
                format!("{robot} {}: {cause}", event.words())
            }
            (_, _) => format!("{robot}: {}: {cause}", event.words()),
        }
    }

    /// The moment of the run directory, in words; empty where there is none.
    pub fn place(&self) -> String {
        match (&self.run_dir, self.moment_s) {
            (None, _) => String::new(),
            (Some(dir), None) => format!("{}, before its window", dir.display()),
            (Some(dir), Some(moment_s)) => {
                format!("{} at {moment_s:.3} s ({} ns)", dir.display(), self.at_ns)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn event(kind: Kind, cause: &str) -> Event {
        Event {
            utc: "2026-11-29T14:03:12.500Z".to_owned(),
            wall_ns: 1_795_960_992_500_000_000,
            at_ns: 5_000_000_000,
            boot: "b".to_owned(),
            event: kind,
            robot: "cell".to_owned(),
            cause: cause.to_owned(),
            measure: None,
            count: None,
            worst_ns: None,
            run_dir: Some("/var/lib/takt/runs/a".into()),
            moment_s: Some(1.25),
            pid: 7,
            pid_start_ticks: 9,
            command: "run".to_owned(),
            unit: None,
        }
    }

    #[test]
    fn a_kind_has_one_name_everywhere() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.name()));
            assert!((3..=6).contains(&kind.priority()));
        }
        let newer: Kind = serde_json::from_str("\"something-newer\"").unwrap();
        assert_eq!(newer, Kind::Other);
    }

    #[test]
    fn an_event_is_a_sentence_with_a_place() {
        let stop = event(Kind::Stop, "frames are stale (camera west)");
        assert_eq!(stop.message(), "cell stopped: frames are stale (camera west)");
        assert_eq!(stop.place(), "/var/lib/takt/runs/a at 1.250 s (5000000000 ns)");
        assert_eq!(event(Kind::Started, "").message(), "cell started");
        assert_eq!(event(Kind::Link, "lost").message(), "cell: link: lost");
        let early = Event { moment_s: None, ..stop };
        assert_eq!(early.place(), "/var/lib/takt/runs/a, before its window");
    }
}
