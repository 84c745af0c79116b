//! A finished recording as a source of events.

use std::path::{Path, PathBuf};

use super::error::Error;
use super::reader::Reader;
use super::stream::Damage;
use crate::event::{Event, Source};

/// Events handed out by one poll: enough to make its cost vanish, few enough to act in between.
const PORTION: usize = 1 << 16;

/// How often events of a name occurred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Provider and event.
    pub name: String,
    /// How many were read so far.
    pub count: u64,
    /// Whether they are brought to an event of ours; the others are read over.
    pub used: bool,
}

/// A recording on disk.
#[derive(Debug)]
pub struct Recording {
    reader: Reader,
}

impl Recording {
    /// All traces at or below `folder`; the parts of a rotated session are read as one. Of the
    /// kernel's, only switches of threads are read.
    ///
    /// # Errors
    ///
    /// There is none, or one that cannot be read from its beginning on.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self { reader: Reader::below(folder.as_ref(), true)? })
    }

    /// What could not be read so far, the first few hundred.
    pub fn damages(&self) -> &[Damage] {
        &self.reader.tally.damages
    }

    /// Damages beyond those in [`damages`](Self::damages).
    pub fn more_damages(&self) -> u64 {
        self.reader.tally.more_damages
    }

    /// Traces of the kernel that are not read, because they hold no switches of threads.
    pub fn kernel_traces(&self) -> &[PathBuf] {
        &self.reader.kernel
    }

    /// What to add to an event's time for nanoseconds since the Epoch, by the first trace's clock.
    pub fn epoch_ns(&self) -> Option<i128> {
        let clock = self.reader.clock()?;
        let ticks = i128::from(clock.offset_ticks) * 1_000_000_000 / i128::from(clock.frequency_hz.max(1));
        Some(i128::from(clock.offset_s) * 1_000_000_000 + ticks)
    }

    /// The name of the clock of all events; CLOCK_MONOTONIC is `monotonic`.
    pub fn clock(&self) -> Option<&str> {
        self.reader.clock().map(|clock| clock.name.as_str())
    }

    /// How often each event occurred so far, by name; names that never occurred are left out.
    pub fn seen(&self) -> Vec<Seen> {
        seen(&self.reader)
    }
}

/// How often each event occurred so far.
pub fn seen(reader: &Reader) -> Vec<Seen> {
    let all = reader.tally.names.all.iter().filter(|name| name.count > 0);
    let mut all: Vec<_> =
        all.map(|name| Seen { name: name.name.clone(), count: name.count, used: name.used }).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

impl Source for Recording {
    type Error = Error;

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, Error> {
        Ok(self.reader.run(None, PORTION, sink))
    }

    fn ended(&self) -> bool {
        self.reader.is_over()
    }
}
