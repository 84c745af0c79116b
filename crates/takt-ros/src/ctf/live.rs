//! A running session that is rotated: every finished part is read as it appears.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::reader::{Reader, traces_below};
use super::recording::{Seen, seen};
use super::stream::Damage;
use crate::event::{Event, Kind, Source};

/// A session that `lttng rotate` (or `lttng enable-rotation --timer=1s`) cuts into parts while it
/// records.
///
/// LTTng moves every finished part to `archives/` below the session's folder; a part is complete as
/// soon as it is there. Streams go on from part to part. They are not cut at the very same time, so
/// the last instants of a part wait for the next one: events of a thread that moved between
/// processors stay in order.
#[derive(Debug)]
pub struct Live {
    folder: PathBuf,
    reader: Reader,
    /// The number of the last part read.
    last: Option<u64>,
    /// No further part can come.
    over: bool,
    /// Parts that could not be read.
    failed: Vec<Error>,
    /// Time of the last event handed out.
    at_ns: u64,
}

impl Live {
    /// The session that records to `folder` (`lttng create --output=`). Parts that are there
    /// already are read first.
    ///
    /// # Errors
    ///
    /// The folder is not there.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref().to_owned();
        std::fs::read_dir(&folder).map_err(|source| Error::Io { path: folder.clone(), source })?;
        Ok(Self { folder, reader: Reader::new(true), last: None, over: false, failed: Vec::new(), at_ns: 0 })
    }

    /// Parts that could not be read so far, the first few hundred.
    pub fn damages(&self) -> &[Damage] {
        &self.reader.tally.damages
    }

    /// Parts that could not be read at all; each stands as a [`Kind::Lost`] among the events.
    pub fn failed_parts(&self) -> &[Error] {
        &self.failed
    }

    /// Number of each event so far, by name.
    pub fn seen(&self) -> Vec<Seen> {
        seen(&self.reader)
    }

    /// Parts read so far are known up to this number.
    pub fn last_part(&self) -> Option<u64> {
        self.last
    }

    /// Finished parts behind the last one read, by number.
    fn parts(&self) -> Result<BTreeMap<u64, PathBuf>, Error> {
        let archives = self.folder.join("archives");
        let io = |source| Error::Io { path: archives.clone(), source };
        let entries = match std::fs::read_dir(&archives) {
            Ok(entries) => entries,
            // Not rotated yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(io(error)),
        };
        let mut parts = BTreeMap::new();
        for entry in entries {
            let entry = entry.map_err(io)?;
            if let Some(number) = entry.file_name().to_str().and_then(number)
                && self.last.is_none_or(|last| number > last)
            {
                parts.insert(number, entry.path());
            }
        }
        Ok(parts)
    }

    /// Whether the session still records, or has a part under way: its folder has something beside
    /// finished parts.
    fn records(&self) -> Result<bool, Error> {
        let io = |source| Error::Io { path: self.folder.clone(), source };
        for entry in std::fs::read_dir(&self.folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            if entry.file_name() != "archives" && entry.path().is_dir() {
                return Ok(true);
            }
        }
        Ok(!self.folder.join("archives").is_dir())
    }

    fn fail(&mut self, error: Error, sink: &mut dyn FnMut(Event)) {
        if self.failed.len() < 64 {
            self.failed.push(error);
        }
        let kind = Kind::Lost { count: 0 };
        sink(Event { at_ns: self.at_ns, cpu_ns: None, pid: 0, tid: 0, kind });
    }
}

/// The number of a part: `20261121T223455+0000-20261121T223456+0000-7` is part 7.
fn number(name: &str) -> Option<u64> {
    let (times, number) = name.rsplit_once('-')?;
    times.contains('T').then(|| number.parse().ok())?
}

impl Source for Live {
    type Error = Error;

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, Error> {
        // Asked before the parts are listed: one that is finished in between is found by the next
        // poll.
        let records = self.records()?;
        let mut made = 0;
        for (number, folder) in self.parts()? {
            // Deleted before it was read.
            let missed = self.last.is_some_and(|last| number > last + 1);
            self.last = Some(number);
            if missed {
                made += 1;
                sink(Event {
                    at_ns: self.at_ns,
                    cpu_ns: None,
                    pid: 0,
                    tid: 0,
                    kind: Kind::Lost { count: 0 },
                });
            }
            let added = traces_below(&folder)
                .and_then(|traces| traces.iter().try_for_each(|trace| self.reader.add(trace, number)));
            self.reader.find_gaps();
            if let Err(error) = added {
                made += 1;
                self.fail(error, sink);
            }
            made += self.drain(Some(number), sink);
            self.reader.forget_before(number);
        }
        if !records && !self.over {
            self.over = true;
            made += self.drain(None, sink);
        }
        Ok(made)
    }

    fn ended(&self) -> bool {
        self.over
    }
}

impl Live {
    /// All that can be handed out.
    fn drain(&mut self, part: Option<u64>, sink: &mut dyn FnMut(Event)) -> usize {
        let at_ns = &mut self.at_ns;
        self.reader.run(part, usize::MAX, &mut |event| {
            *at_ns = event.at_ns;
            sink(event);
        })
    }
}
