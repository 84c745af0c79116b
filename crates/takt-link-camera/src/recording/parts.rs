//! The files of a recording as one.
//!
//! A recorder that limits the size of its files (`ros2 bag record --max-bag-size`) begins the next
//! one between any two messages: the colour image of a frame may lie in one file and its depth
//! image in the next. So each stream goes from file to file by itself, and a file is open as long
//! as some stream stands in it.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::contents::Channel;
use super::fault::Fault;
use super::limits::MAX_DEFINITION_BYTES;
use super::log::{Log, Message};
use super::topics::Names;
use crate::error::CameraError;

/// Function that opens a file.
type Opener<R> = fn(&Path) -> io::Result<R>;

/// The messages of the topics that [`Parts::select`] chose.
pub(super) struct Parts<R> {
    files: Vec<PathBuf>,
    opener: Opener<R>,
    allow_truncated: bool,
    names: Names,
    /// Files in which some stream stands, by their number.
    open: Vec<(usize, Log<R>)>,
    topics: Vec<Vec<String>>,
    /// The file in which each stream stands.
    at: Vec<usize>,
    /// Channels of all files that were looked at, and their bytes.
    known: BTreeSet<Channel>,
    known_bytes: usize,
    /// Work done in files that were passed since the last frame, and their bytes.
    passed: (u64, u64),
}

impl<R: Read + Seek> Parts<R> {
    /// The one recording `input`, which errors call `path`.
    pub(super) fn single(
        input: R,
        path: &Path,
        allow_truncated: bool,
        names: Names,
    ) -> Result<Self, CameraError> {
        let gone: Opener<R> = |_| Err(io::ErrorKind::NotFound.into());
        let mut parts = Self::of(vec![path.to_owned()], gone, allow_truncated, names);
        let log = parts.opened(input, path)?;
        parts.open.push((0, log));
        Ok(parts)
    }

    /// The files of a recording, in their order.
    pub(super) fn of(files: Vec<PathBuf>, opener: Opener<R>, allow_truncated: bool, names: Names) -> Self {
        Self {
            files,
            opener,
            allow_truncated,
            names,
            open: Vec::new(),
            topics: Vec::new(),
            at: Vec::new(),
            known: BTreeSet::new(),
            known_bytes: 0,
            passed: (0, 0),
        }
    }

    fn opened(&self, mut input: R, path: &Path) -> Result<Log<R>, CameraError> {
        check_ends(&mut input, path, self.allow_truncated)?;
        let names = &self.names;
        Log::open(input, self.allow_truncated, &|topic| names.include(topic)).map_err(|fault| fault.of(path))
    }

    /// Index of a file in `open`; it is opened if needed.
    fn place(&mut self, part: usize) -> Result<usize, CameraError> {
        if let Some(place) = self.open.iter().position(|(number, _)| *number == part) {
            return Ok(place);
        }
        let path = &self.files[part];
        let input = (self.opener)(path).map_err(|source| CameraError::File { path: path.clone(), source })?;
        let mut log = self.opened(input, path)?;
        if !self.topics.is_empty() {
            log.select(self.topics.clone());
        }
        let (work, bytes) = self.passed;
        log.go_on_from(work, bytes);
        self.open.push((part, log));
        Ok(self.open.len() - 1)
    }

    /// Closes the files in which no stream stands. A recording of one file stays open.
    fn close(&mut self) {
        let (at, passed, single) = (&self.at, &mut self.passed, self.files.len() == 1);
        self.open.retain(|(number, log)| {
            let stays = single || at.contains(number);
            if !stays {
                let (work, bytes) = log.work();
                *passed = (passed.0.max(work), passed.1.max(bytes));
            }
            stays
        });
    }

    /// Channels that are known so far, by topic.
    pub(super) fn channels(&self) -> Vec<&Channel> {
        self.known.iter().collect()
    }

    /// The channel of a message.
    pub(super) fn channel(&self, part: usize, id: u16) -> Option<&Channel> {
        self.open.iter().find(|(number, _)| *number == part)?.1.channel(id)
    }

    /// Reads definitions until `enough` or until all are known.
    pub(super) fn define(&mut self, enough: impl Fn(&[&Channel]) -> bool) -> Result<(), CameraError> {
        for part in 0..self.files.len() {
            if part > 0 && enough(&self.channels()) {
                break;
            }
            let place = self.place(part)?;
            let (known, log) = (&self.known, &mut self.open[place].1);
            let outcome = log.define(|definitions| {
                let here = definitions.channels();
                enough(&known.iter().chain(here).collect::<Vec<_>>())
            });
            outcome.and_then(|()| self.learn(place)).map_err(|fault| fault.of(&self.files[part]))?;
            self.open.retain(|(number, _)| *number == 0);
        }
        Ok(())
    }

    fn learn(&mut self, place: usize) -> Result<(), Fault> {
        for channel in self.open[place].1.definitions().channels() {
            if !self.known.contains(channel) {
                self.known_bytes += channel.topic.len() + channel.encoding.len() + channel.schema.len();
                self.known.insert(channel.clone());
            }
        }
        if self.known_bytes > MAX_DEFINITION_BYTES {
            return Err(Fault::too_many_definitions(self.known_bytes));
        }
        Ok(())
    }

    /// Chooses topics, each list of names a stream, and begins at the beginning.
    pub(super) fn select(&mut self, topics: Vec<Vec<String>>) {
        self.at = vec![0; topics.len()];
        self.topics = topics;
        self.open.retain(|(number, _)| *number == 0);
        for (_, log) in &mut self.open {
            log.select(self.topics.clone());
        }
    }

    /// Begins at the beginning again.
    pub(super) fn rewind(&mut self) {
        self.at.fill(0);
        self.open.retain(|(number, _)| *number == 0);
        for (_, log) in &mut self.open {
            log.rewind();
        }
    }

    /// Work counts from now on: a frame was found.
    pub(super) fn begin_work(&mut self) {
        self.passed = (0, 0);
        for (_, log) in &mut self.open {
            log.begin_work();
        }
    }

    /// Takes a buffer back that a message was read into.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if let Some((_, log)) = self.open.first_mut() {
            log.recycle(buffer);
        }
    }

    /// The next message of a stream, and the file that it is in; `None` at the end of the last one.
    pub(super) fn next(&mut self, stream: usize) -> Result<Option<(usize, Message)>, CameraError> {
        while self.at[stream] < self.files.len() {
            let part = self.at[stream];
            let place = self.place(part)?;
            let found = self.open[place].1.next(stream).map_err(|fault| fault.of(&self.files[part]))?;
            if let Some(message) = found {
                return Ok(Some((part, message)));
            }
            self.at[stream] += 1;
            self.close();
        }
        Ok(None)
    }

    /// The next message of a stream that was logged until then, as far as the first stream has
    /// come; `None`: there is none yet.
    pub(super) fn next_until(
        &mut self,
        stream: usize,
        until_ns: u64,
    ) -> Result<Option<(usize, Message)>, CameraError> {
        while self.at[stream] < self.files.len() {
            let part = self.at[stream];
            let place = self.place(part)?;
            let is_passed = self.at.first().is_some_and(|first| *first > part);
            let until_ns = Some(until_ns).filter(|_| !is_passed);
            let found = self.open[place].1.next_until(stream, until_ns);
            if let Some(message) = found.map_err(|fault| fault.of(&self.files[part]))? {
                return Ok(Some((part, message)));
            }
            if !is_passed {
                break;
            }
            self.at[stream] += 1;
            self.close();
        }
        Ok(None)
    }

    /// Number of messages left in a stream. Ends the reading of all streams until
    /// [`rewind`](Self::rewind).
    pub(super) fn count_left(&mut self, stream: usize) -> Result<u64, CameraError> {
        let mut left = 0u64;
        let from = self.at[stream];
        for part in from..self.files.len() {
            self.at.fill(part);
            self.close();
            let place = self.place(part)?;
            let outcome = self.open[place].1.count_left(stream);
            left = left.saturating_add(outcome.map_err(|fault| fault.of(&self.files[part]))?);
        }
        self.at.fill(self.files.len());
        self.close();
        Ok(left)
    }
}

/// Checks the magic bytes at both ends.
fn check_ends<R: Read + Seek>(input: &mut R, path: &Path, allow_truncated: bool) -> Result<(), CameraError> {
    let file = |source| CameraError::File { path: path.into(), source };
    let mut start = Vec::with_capacity(8);
    input.seek(SeekFrom::Start(0)).map_err(file)?;
    input.by_ref().take(8).read_to_end(&mut start).map_err(file)?;
    if start != ::mcap::MAGIC {
        return Err(CameraError::NotMcap { path: path.into(), found: start });
    }
    let bytes = input.seek(SeekFrom::End(0)).map_err(file)?;
    let mut end = Vec::with_capacity(8);
    // At least as long as the two magics, or the end would be the start.
    if bytes >= 16 {
        input.seek(SeekFrom::End(-8)).map_err(file)?;
        input.by_ref().take(8).read_to_end(&mut end).map_err(file)?;
    }
    if end != ::mcap::MAGIC && !allow_truncated {
        return Err(CameraError::Truncated { path: path.into(), bytes });
    }
    Ok(())
}
