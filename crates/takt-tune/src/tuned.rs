//! Result of a search: the table.

use serde::Serialize;
use takt_host::doctor::Setting;

use crate::aim::Aim;
use crate::search::Stage;
use crate::stretches::Stretches;

/// One way of one knob.
#[derive(Debug, Clone, Serialize)]
pub struct KnobRow {
    /// The knob and its way.
    pub name: String,
    /// Its gain, microseconds of the typical block's statistic (the geometric mean over blocks):
    /// positive helps. Null if it could not be set.
    pub gain_us: Option<f64>,
    /// Lower end of the gain's interval (95 %).
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Chance of such a gain without any effect; null for what fell out before ablation.
    pub p: Option<f64>,
    /// Over stretches of several blocks; null where the aim is not rarer than a block, or no time
    /// was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stretches: Option<Stretches>,
    /// Its removal hurts, and over stretches it does no harm.
    pub kept: bool,
    /// It changes nothing: whoever credits it is wrong.
    pub placebo: bool,
    /// The stage that it reached.
    pub stage: Stage,
    /// Reason why it could not be set, or another note.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Its cost elsewhere; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cost: String,
    /// Settings that it changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
}

/// One side of the last comparison.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Side {
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

/// Boot parameters that are worth a try. Nobody has measured them on this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proposed {
    /// As on the kernel's command line.
    pub parameters: String,
    /// The same for a guest of two CPUs whose loop is on the second, name and value; empty where a
    /// guest cannot show what they do.
    #[serde(skip)]
    pub for_guest: Vec<(String, String)>,
    /// Results in virtual kernels, if requested.
    pub in_guests: Option<InGuests>,
    /// Reason why nothing is shown, or another note.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A loop of the same period and policy in two virtual machines, under load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InGuests {
    pub kernel: String,
    /// Time base there: `virtual` (instructions) or `real`.
    pub time: String,
    /// Booted without the parameters.
    pub without: GuestSide,
    /// Booted with them.
    pub with: GuestSide,
}

/// Lateness in one guest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GuestSide {
    /// Cycles that were measured.
    pub releases: u64,
    /// Releases that were passed over.
    pub skipped: u64,
    /// Median, microseconds.
    pub median_us: f64,
    /// 99 % quantile, microseconds.
    pub p99_us: f64,
    /// The worst, microseconds.
    pub worst_us: f64,
}

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub struct TuneReport {
    /// The target.
    pub target: String,
    /// The aim.
    pub aim: Aim,
    /// The loop.
    #[serde(rename = "loop")]
    pub tunes: Tunes,
    /// All knobs, the kept ones first.
    pub knobs: Vec<KnobRow>,
    /// All that is kept against as found, microseconds with the interval's ends; null where nothing
    /// is kept.
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
    pub proposed: Vec<Proposed>,
    /// Blocks in all, and of what length.
    pub blocks: usize,
    /// Of these, measured again because the hypervisor had taken the time.
    pub remeasured: usize,
    /// Length of a block, seconds.
    pub block_s: f64,
    /// The time was over before the search was.
    pub over: bool,
    /// Because somebody ended it: this is what was measured by then.
    pub stopped: bool,
    /// Settings that were then still in the search, neither kept nor removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undecided: Vec<String>,
    /// Time limit of the search, seconds.
    pub budget_s: f64,
    /// Duration of the search, seconds.
    pub seconds: f64,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Files that were written.
    pub files: Vec<std::path::PathBuf>,
}

impl TuneReport {
    pub fn kept(&self) -> impl Iterator<Item = &KnobRow> {
        self.knobs.iter().filter(|knob| knob.kept)
    }
}
