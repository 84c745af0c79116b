//! A finished recording as a source of events.

use std::path::{Path, PathBuf};

use super::entry::PID_BITS;
use super::error::Error;
use super::metadata;
use super::reader::{Reader, identity, traces_below};
use super::stream::Damage;
use crate::event::{Event, Source};

/// Events handed out by one poll: enough to make its cost vanish, few enough to act in between.
const PORTION: usize = 1 << 16;

/// Number of events of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Provider and event.
    pub name: String,
    /// Number of events read so far.
    pub count: u64,
    /// Whether they are brought to an event of ours; the others are read over.
    pub used: bool,
}

/// The traces that were recorded by one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// Its clock in words: name, boot and host.
    pub clock: String,
    pub traces: Vec<PathBuf>,
}

impl Host {
    /// The number of the host that a process number of several hosts' recording is of.
    #[must_use]
    pub fn of_process(pid: u32) -> u32 {
        pid >> PID_BITS
    }
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

    /// These traces alone, which may be of several hosts: times are the first one's, and the others
    /// are brought to it by the time of day that each trace has of its own. Their accuracy depends
    /// on how well the hosts' clocks agree. Process numbers of the second host on have its number
    /// above their lowest 22 bits.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); a trace without a time of day.
    pub fn together(traces: &[PathBuf]) -> Result<Self, Error> {
        Ok(Self { reader: Reader::of(traces, true)? })
    }

    /// These traces alone, of one host.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn of(traces: &[PathBuf]) -> Result<Self, Error> {
        Ok(Self { reader: Reader::of(traces, false)? })
    }

    /// The traces at or below `folder` by the clock that they were recorded by, which is one for
    /// each host and boot.
    ///
    /// # Errors
    ///
    /// There is none, or one whose metadata cannot be read.
    pub fn by_host(folder: impl AsRef<Path>) -> Result<Vec<Host>, Error> {
        let folder = folder.as_ref();
        let mut hosts: Vec<Host> = Vec::new();
        for trace in traces_below(folder)? {
            let metadata = metadata::parse(&trace, &metadata::load(&trace)?)?;
            let clock = identity(&metadata);
            match hosts.iter_mut().find(|host| host.clock == clock) {
                Some(host) => host.traces.push(trace),
                None => {
                    let name = metadata.env_text("hostname").unwrap_or("an unnamed host").to_owned();
                    hosts.push(Host { name, clock, traces: vec![trace] });
                }
            }
        }
        match hosts.is_empty() {
            true => Err(Error::NoTrace { path: folder.to_owned() }),
            false => Ok(hosts),
        }
    }

    /// Parts that could not be read so far, the first few hundred.
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

    /// Addend that turns an event's time into nanoseconds since the Epoch, by the first trace's
    /// clock.
    pub fn epoch_ns(&self) -> Option<i128> {
        Some(self.reader.clock()?.zero_ns())
    }

    /// The name of the clock of all events; CLOCK_MONOTONIC is `monotonic`.
    pub fn clock(&self) -> Option<&str> {
        self.reader.clock().map(|clock| clock.name.as_str())
    }

    /// Number of each event so far, by name; names that never occurred are left out.
    pub fn seen(&self) -> Vec<Seen> {
        seen(&self.reader)
    }
}

/// Number of each event so far.
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
