//! What a search leaves: the table, and files that apply exactly what was found.

use std::fmt::Write as _;

use serde::Serialize;
use takt_doctor::{Setting, Tuned};

use crate::aim::Aim;
use crate::search::Stage;

/// One way of one knob.
#[derive(Debug, Clone, Serialize)]
pub struct KnobRow {
    /// The knob and its way.
    pub name: String,
    /// What it gains, microseconds of the typical block's statistic (the geometric mean over blocks): positive helps. Null where it could
    /// not be set.
    pub gain_us: Option<f64>,
    /// Lower end of the gain's interval (95 %).
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Chance of such a gain without any effect; null for what fell out before ablation.
    pub p: Option<f64>,
    /// Its removal hurts.
    pub kept: bool,
    /// It changes nothing: whoever credits it is wrong.
    pub placebo: bool,
    /// How far it came.
    pub stage: Stage,
    /// Why it could not be set, or what else is to be said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What it costs elsewhere; empty where nothing is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cost: String,
    /// What it sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
}

/// One side of the last comparison.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Side {
    /// Blocks.
    pub blocks: usize,
    /// Cycles in them.
    pub releases: u64,
    /// The typical block's statistic, microseconds: the geometric mean over blocks.
    pub typical_us: f64,
    /// The worst value of all blocks, microseconds.
    pub worst_us: f64,
    /// Share of the CPUs' time that the hypervisor took.
    pub stolen: f64,
    /// Share of the CPUs' time that other programs used.
    pub load: f64,
    /// Blocks that keep the aim's limit; null without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_limit: Option<usize>,
}

/// The loop that was tuned.
#[derive(Debug, Clone, Serialize)]
pub struct Tunes {
    /// Name of its process.
    pub process: String,
    /// Its name.
    pub thread: String,
    /// Its process.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
    /// Its period; null where it has none.
    pub period_us: Option<f64>,
    /// Its policy as found.
    pub policy: String,
    /// Its CPUs as found.
    pub cpus: String,
}

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub struct TuneReport {
    /// What was watched.
    pub target: String,
    /// What was to become better.
    pub aim: Aim,
    /// The loop.
    #[serde(rename = "loop")]
    pub tunes: Tunes,
    /// All knobs, the kept ones first.
    pub knobs: Vec<KnobRow>,
    /// All that is kept against as found, microseconds with the interval's ends; null where nothing is kept.
    pub gain_us: Option<[f64; 3]>,
    /// As found, in the last round.
    pub before: Side,
    /// With what is kept, in the same round.
    pub after: Side,
    /// A placebo was credited to the last: the gains are not to be believed.
    pub placebo_credited: bool,
    /// Whether the aim's limit was kept in every block of the last round; null without a limit.
    pub aim_reached: Option<bool>,
    /// Boot parameters that nobody has measured here.
    pub proposed: Vec<String>,
    /// Blocks in all, and of what length.
    pub blocks: usize,
    /// Of these, measured again because the hypervisor had taken the time.
    pub remeasured: usize,
    /// Length of a block, seconds.
    pub block_s: f64,
    /// Duration of the search, seconds.
    pub seconds: f64,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Files that were written.
    pub files: Vec<std::path::PathBuf>,
}

impl TuneReport {
    /// What is kept.
    pub fn kept(&self) -> impl Iterator<Item = &KnobRow> {
        self.knobs.iter().filter(|knob| knob.kept)
    }

    fn settings(&self) -> Vec<Setting> {
        self.kept().flat_map(|knob| knob.settings.iter().cloned()).collect()
    }

    fn about(&self) -> String {
        let names: Vec<&str> = self.kept().map(|knob| knob.name.as_str()).collect();
        format!("{} of {} / {}: {}", self.aim, self.tunes.process, self.tunes.thread, names.join(", "))
    }

    /// The file for `takt doctor --apply`.
    pub fn tuned(&self) -> Tuned {
        Tuned::new(self.about(), self.settings())
    }

    /// A drop-in for the unit that starts the program: what systemd sets itself, and the rest by `apply`.
    pub fn systemd(&self, file: &str) -> String {
        let mut text = format!(
            "# {}\n# /etc/systemd/system/NAME.service.d/takt.conf, then: systemctl daemon-reload\n# Applied when the service has started; \
             threads are named, so that only the loop gets what it is to have.\n[Service]\n",
            self.about()
        );
        for setting in self.settings() {
            if let Setting::TimerSlack { slack_ns, .. } = setting {
                let _ = writeln!(
                    text,
                    "# All threads of the unit, as systemd sets it before the start.\nTimerSlackNSec={slack_ns}"
                );
            }
        }
        let _ = writeln!(text, "ExecStartPost=+/usr/bin/env takt doctor --apply {file}");
        let _ = writeln!(text, "ExecStopPost=+/usr/bin/env takt doctor --revert");
        text
    }

    /// A profile for `tuned`: what its plugins set.
    pub fn profile(&self) -> String {
        let mut sections: Vec<(&str, Vec<String>)> = Vec::new();
        let mut add = |section: &'static str, line: String| match sections
            .iter_mut()
            .find(|(name, _)| *name == section)
        {
            Some((_, lines)) => lines.push(line),
            None => sections.push((section, vec![line])),
        };
        let (mut policy, mut cpus) = (None, None);
        for setting in self.settings() {
            match setting {
                Setting::File { path, value } => {
                    let shown = path.to_string_lossy().into_owned();
                    match shown.strip_prefix("/proc/sys/") {
                        Some(key) => add("sysctl", format!("{}={value}", key.replace('/', "."))),
                        None => add("sysfs", format!("{shown}={value}")),
                    }
                }
                Setting::Policy { policy: told, .. } => policy = Some(told),
                Setting::Cpus { cpus: told, .. } => cpus = Some(told),
                Setting::TimerSlack { slack_ns, .. } => {
                    add(
                        "main",
                        format!("# not in tuned: timer slack of {slack_ns} ns (takt doctor --apply)"),
                    );
                }
                Setting::Alone { cpus, .. } => add("scheduler", format!("isolated_cores={cpus}")),
                Setting::Coalescing { interface, rx_us, tx_us } => add(
                    "net",
                    format!(
                        "devices_udev_regex=INTERFACE={interface}\ncoalesce=rx-usecs {rx_us} tx-usecs {tx_us}"
                    ),
                ),
            }
        }
        // group.NAME = rule priority : policy : priority : CPUs : pattern of the thread's name.
        if policy.is_some() || cpus.is_some() {
            let (class, priority) = match policy.as_deref().and_then(|policy| policy.split_once(':')) {
                Some(("fifo", priority)) => ("f", priority.to_owned()),
                Some(("rr", priority)) => ("r", priority.to_owned()),
                _ => ("*", "*".to_owned()),
            };
            let cpus = cpus.map_or("*".to_owned(), |cpus| cpus.to_string());
            add("scheduler", format!("group.takt=0:{class}:{priority}:{cpus}:^{}$", self.tunes.thread));
        }
        let mut text = format!("# {}\n[main]\nsummary=Found by takt tune\n", self.about());
        // Its lines follow the head.
        sections.sort_by_key(|(section, _)| *section != "main");
        for (section, lines) in sections {
            if section != "main" {
                let _ = write!(text, "\n[{section}]\n");
            }
            for line in lines {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }
}
