//! A robot's paper: its tables and figures in their order, what was published in them, and which
//! measure of ours answers each.
//!
//! The data are the robot's ([`Supplement::papers`](crate::Supplement::papers)), one file for each
//! paper. A campaign names its paper, its runs carry the name, and a report of such runs begins
//! with `section`: the paper's tables and figures in its shape, its figures
//! beside ours, then what differs. The same data are the book's table of what is reproduced
//! ([`overview`]), and the headlines of the page of results.

mod beside;
mod overview;
pub(crate) mod section;
mod shapes;

pub use beside::{Beside, besides};
pub use overview::overview;
pub use shapes::{BarsOf, PublishedPair, boxes_of, by_phase, distributions, grouped_bars};

use crate::collect::Collection;
use crate::document::Block;
use crate::supplement::Context;

/// A published paper.
#[derive(Debug)]
pub struct Paper {
    /// As campaigns name it.
    pub key: &'static str,
    /// Short: a word or two.
    pub name: &'static str,
    pub title: &'static str,
    /// Machine of its figures, part of a sentence: "32 logical CPUs, Linux 5.15".
    pub setup: &'static str,
    /// Its tables and figures, in its order.
    pub items: &'static [Item],
    /// Differences of all our runs, one sentence each.
    pub differs: &'static [&'static str],
    /// Differences of these runs, one sentence each.
    pub differs_here: Option<fn(&Collection) -> Vec<String>>,
}

/// A table or figure of a paper.
#[derive(Debug)]
pub struct Item {
    /// As the paper numbers it: "Fig. 3", "Table II".
    pub number: &'static str,
    /// Its content, one sentence.
    pub caption: &'static str,
    /// Our measure, table or file for it.
    pub ours: &'static str,
    pub definition: Definition,
    /// Published values, one by one.
    pub headlines: &'static [Headline],
    /// The table or figure from our runs in the paper's shape; empty where these runs have nothing
    /// of it.
    pub show: Option<Show>,
}

/// Makes a table or figure in the paper's shape. The contexts are the robot's.
pub type Show = fn(&Item, &Collection, &[&Context<'_>]) -> Vec<Block>;

/// Whether ours is what the paper defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// It is.
    Same,
    /// It is not quite: how, a sentence.
    Differs(&'static str),
    /// It is not reproduced: why, a sentence.
    Absent(&'static str),
}

/// A factor that every run has: `PREEMPT_RT` or `standard`, by the kernel that ran.
pub const PREEMPTION: &str = "preemption";

/// A published value.
#[derive(Clone, Copy, Debug)]
pub struct Headline {
    /// Its name: "worst reaction time, DL+RR, 128 noise threads".
    pub what: &'static str,
    pub published: Published,
    pub unit: ValueUnit,
    /// The measure of ours, by its name in run directories.
    pub measure: &'static str,
    pub figure: Figure,
    /// The configuration of ours: factors that it must have.
    pub at: &'static [(&'static str, &'static str)],
    /// Factors that the published value had: of several configurations, the nearest is taken, and
    /// where it differs is said.
    pub prefer: &'static [(&'static str, &'static str)],
}

/// Form of a value in the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Published {
    Exactly(f64),
    About(f64),
    Between(f64, f64),
    AtMost(f64),
}

impl Published {
    /// Least and greatest value.
    pub fn range(self) -> [f64; 2] {
        match self {
            Self::Exactly(value) | Self::About(value) | Self::AtMost(value) => [value; 2],
            Self::Between(low, high) => [low, high],
        }
    }

    fn middle(self) -> f64 {
        let [low, high] = self.range();
        f64::midpoint(low, high)
    }

    fn text(self) -> String {
        let short = crate::words::short;
        match self {
            Self::Exactly(value) => short(value),
            Self::About(value) => format!("≈ {}", short(value)),
            Self::Between(low, high) => format!("{} to {}", short(low), short(high)),
            Self::AtMost(value) => format!("≤ {}", short(value)),
        }
    }
}

/// Unit of a published value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueUnit {
    Microseconds,
    Milliseconds,
    Seconds,
    Percent,
    Count,
}

impl ValueUnit {
    fn sign(self) -> &'static str {
        match self {
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Percent => "%",
            Self::Count => "",
        }
    }

    /// Nanoseconds in it; shares and counts are what they are.
    fn ns(self) -> f64 {
        match self {
            Self::Microseconds => 1e3,
            Self::Milliseconds => 1e6,
            Self::Seconds => 1e9,
            Self::Percent | Self::Count => 1.0,
        }
    }
}

/// Another configuration, as [`Headline`] names its own.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    pub at: &'static [(&'static str, &'static str)],
    pub prefer: &'static [(&'static str, &'static str)],
}

/// Figure of a measure that corresponds to a published value, for each repetition.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    Mean,
    Median,
    Worst,
    StdDev,
    P90,
    P99,
    /// Values beyond the deadline and those that never came.
    Misses,
    /// By how much the mean lies below that of another configuration, percent.
    MeanBelow(Other),
    /// The same of the worst value.
    WorstBelow(Other),
    /// The same of the mean, in the value's unit.
    MeanLess(Other),
    /// A single figure of the runs, by its name in their headers, in the value's own unit.
    Single(&'static str),
}
