//! A finished recording as a source of events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::reader::{Reader, traces_below};
use super::stream::Damage;
use super::trace::Trace;
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
    kernel: Vec<PathBuf>,
}

impl Recording {
    /// All traces at or below `folder`, of user space.
    ///
    /// # Errors
    ///
    /// There is none, or one that cannot be read from its beginning on.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref();
        let mut reader = Reader::new(true);
        let mut kernel = Vec::new();
        let found = traces_below(folder)?;
        if found.is_empty() {
            return Err(Error::NoTrace { path: folder.to_owned() });
        }
        for trace in found {
            // The kernel's part of a recording says nothing of callbacks.
            if Trace::open(&trace, false).is_ok_and(|trace| trace.is_kernel()) {
                kernel.push(trace);
            } else {
                reader.add(&trace)?;
            }
        }
        Ok(Self { reader, kernel })
    }

    /// What could not be read so far, the first few hundred.
    pub fn damages(&self) -> &[Damage] {
        &self.reader.damages
    }

    /// Damages beyond those in [`damages`](Self::damages).
    pub fn more_damages(&self) -> u64 {
        self.reader.more_damages
    }

    /// Traces of the kernel, which are not read.
    pub fn kernel_traces(&self) -> &[PathBuf] {
        &self.kernel
    }

    /// What to add to an event's time for nanoseconds since the Epoch, by the first trace's clock.
    pub fn epoch_ns(&self) -> Option<i128> {
        let clock = self.reader.traces.first()?.clock()?;
        let ticks = i128::from(clock.offset_ticks) * 1_000_000_000 / i128::from(clock.frequency_hz.max(1));
        Some(i128::from(clock.offset_s) * 1_000_000_000 + ticks)
    }

    /// The name of the clock of all events; CLOCK_MONOTONIC is `monotonic`.
    pub fn clock(&self) -> Option<&str> {
        self.reader.traces.first()?.clock().map(|clock| clock.name.as_str())
    }

    /// How often each event occurred so far, by name; names that never occurred are left out.
    pub fn seen(&self) -> Vec<Seen> {
        seen(&self.reader)
    }
}

/// How often each event occurred so far.
pub fn seen(reader: &Reader) -> Vec<Seen> {
    let mut all: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    for (trace, counts) in reader.traces.iter().zip(&reader.counts) {
        for ((name, used), count) in trace.names.iter().zip(counts) {
            let entry = all.entry(name).or_default();
            entry.0 += count;
            entry.1 |= used;
        }
    }
    all.into_iter()
        .filter(|(_, (count, _))| *count > 0)
        .map(|(name, (count, used))| Seen { name: name.to_owned(), count, used })
        .collect()
}

impl Source for Recording {
    type Error = Error;

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, Error> {
        Ok(self.reader.run(u64::MAX, PORTION, sink))
    }

    fn ended(&self) -> bool {
        self.reader.is_over()
    }
}
