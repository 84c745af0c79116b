//! Additions of a robot's own crate to reports of its runs: the tables of its paper, sections about
//! its own figures, moments for viewers. The reports themselves know only measures.

use std::fmt::Debug;

use takt_rundir::RunDir;

use crate::Error;
use crate::collect::{Collection, Group};
use crate::digest::Digest;
use crate::document::Section;
use crate::paper::Paper;
use crate::table::{Cell, Table};
use crate::words::{Unit, clean};

/// Input of every table of a measure.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The runs.
    pub collection: &'a Collection,
    /// The measure.
    pub group: &'a Group,
    /// Its configurations.
    pub digests: &'a [Digest],
    pub unit: Unit,
    /// The robot's additions.
    pub supplement: Option<&'static dyn Supplement>,
}

impl<'a> Context<'a> {
    /// Name of a configuration.
    pub fn name(&self, digest: &Digest) -> &'a str {
        &self.collection.configurations[digest.configuration].name
    }

    /// Value of a factor in a configuration.
    pub fn factor(&self, digest: &Digest, name: &str) -> Option<&'a str> {
        let factors = &self.collection.configurations[digest.configuration].factors;
        factors.iter().find(|f| f.name == name).map(|f| f.value.as_str())
    }

    /// A column for each factor that varies where they alone name
    /// the configurations; otherwise one with their names.
    pub(crate) fn heads(&self) -> Vec<String> {
        let named = |d: &Digest| self.factors(d).is_some_and(|words| words.join(" · ") == self.name(d));
        if self.collection.varying.is_empty() || !self.digests.iter().all(named) {
            return vec!["Configuration".to_owned()];
        }
        self.collection.varying.clone()
    }

    fn factors(&self, digest: &Digest) -> Option<Vec<String>> {
        let factors = &self.collection.configurations[digest.configuration].factors;
        let words = self.collection.varying.iter().map(|name| {
            factors.iter().find(|f| f.name == *name).map(|f| clean(&format!("{name} {}", f.value)))
        });
        words.collect()
    }

    /// The cells below [`heads`](Self::heads).
    pub(crate) fn cells(&self, digest: &Digest, heads: &[String]) -> Vec<Cell> {
        let factors = &self.collection.configurations[digest.configuration].factors;
        let value = |name: &String| factors.iter().find(|f| f.name == *name).map(|f| Cell::text(&f.value));
        let cells: Option<Vec<Cell>> = heads.iter().map(value).collect();
        cells.unwrap_or_else(|| vec![Cell::text(self.name(digest))])
    }

    /// A head with the unit: `#Max (µs)`.
    pub fn head(&self, name: &str) -> String {
        format!("#{name} ({})", self.unit.sign())
    }
}

/// Tables in the shape of a paper for a robot's measures: its own paper's, and no other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    /// Figures of the lowest 99 %, 99.9 %, … of the values ([`low`](crate::shapes::low)).
    pub low: bool,
    /// Conditions with Td_max, Td_mean and duration ([`conditions`](crate::shapes::conditions)).
    pub conditions: bool,
    /// Effects of factors with two values ([`effects`](crate::shapes::effects)).
    pub effects: bool,
}

/// Additions of a robot; each part may be left out.
pub trait Supplement: Debug + Sync {
    /// The papers whose experiments it reproduces.
    fn papers(&self) -> &'static [Paper] {
        &[]
    }

    /// Tables in the shape of its paper, in reports of runs that are no campaign of that paper.
    fn shapes(&self) -> Shapes {
        Shapes::default()
    }

    /// Tables of the robot's main measure, before those that every main measure has.
    fn tables(&self, _context: &Context<'_>) -> Vec<Table> {
        Vec::new()
    }

    /// Published rows for the table of jitter as a share of the period.
    fn jitter(&self) -> Option<&'static PublishedJitter> {
        None
    }

    /// A sentence below a figure of a measure: which published figure it compares with.
    fn remark(&self, _group: &Group, _figure: Drawn) -> Option<&'static str> {
        None
    }

    /// Tables of what was lost on the way, or came late.
    fn losses(&self, _collection: &Collection) -> Vec<Table> {
        Vec::new()
    }

    /// Sections after the measures, of which `contexts` are the robot's own.
    fn sections(&self, _collection: &Collection, _contexts: &[&Context<'_>]) -> Vec<Section> {
        Vec::new()
    }

    /// Moments of a run that viewers show with their causes.
    ///
    /// # Errors
    /// [`Error::RunDir`] for files that cannot be read.
    fn moments(&self, _dir: &RunDir) -> Result<Vec<Moment>, Error> {
        Ok(Vec::new())
    }
}

/// Figures below which a robot may have a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// Mean and worst, a bar each.
    Bars,
    /// Distributions, one above the other.
    Distribution,
}

/// Systems of a paper in the table of jitter as a share of the period.
#[derive(Debug)]
pub struct PublishedJitter {
    /// End of the table's title.
    pub title: &'static str,
    /// System, processor, worst-case jitter (µs), period (µs), jitter (% of the period), processor
    /// time left.
    pub rows: &'static [[&'static str; 6]],
}

/// Something that happened at a time within a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Kind of moment: `late-frame`.
    pub name: &'static str,
    /// The cause, a sentence.
    pub why: String,
}

/// The supplements of the robots that a program has, by the names that run directories have.
#[derive(Clone, Debug, Default)]
pub struct Supplements(Vec<(&'static str, &'static dyn Supplement)>);

impl Supplements {
    pub(crate) fn of(&self, robot: &str) -> Option<&'static dyn Supplement> {
        self.0.iter().find(|(name, _)| *name == robot).map(|(_, supplement)| *supplement)
    }

    /// All papers of all robots.
    pub fn papers(&self) -> impl Iterator<Item = &'static Paper> {
        self.0.iter().flat_map(|(_, supplement)| supplement.papers())
    }

    /// Those whose robots have runs in the collection.
    pub(crate) fn within<'a>(
        &'a self,
        collection: &'a Collection,
    ) -> impl Iterator<Item = (&'static str, &'static dyn Supplement)> + 'a {
        let ran = |name: &str| collection.runs.iter().any(|run| run.header.robot == name);
        self.0.iter().copied().filter(move |(name, _)| ran(name))
    }
}

impl FromIterator<(&'static str, &'static dyn Supplement)> for Supplements {
    fn from_iter<I: IntoIterator<Item = (&'static str, &'static dyn Supplement)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}
