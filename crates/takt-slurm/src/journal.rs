//! Journal of a node, line by line: written by only one attempt, read by the waiting process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use takt_rundir::Error;

/// Largest journal that is read.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The attempt has its node.
    Start {
        submission: String,
        block: String,
        node: String,
        job: String,
        takt: String,
        /// Lead of the storage's clock over the node's, seconds.
        storage_ahead_s: f64,
    },
    Begin {
        run: String,
    },
    /// A run is in the campaign.
    End {
        run: String,
        took_s: f64,
    },
    Failed {
        run: String,
        cause: String,
    },
    /// A run that another node had made was set aside.
    Again {
        run: String,
    },
    /// The attempt ended by itself.
    Stop {
        why: String,
    },
}

/// An event and its time on the node's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub at_ns: u64,
    #[serde(flatten)]
    pub event: Event,
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// A new one.
    pub fn create(path: &Path) -> Result<Self, Error> {
        Ok(Self { file: takt_files::append(path).map_err(Error::io(path))?, path: path.to_owned() })
    }

    /// Writes a line, onto the storage.
    pub fn record(&mut self, event: Event) -> Result<(), Error> {
        let line = Line { at_ns: now_ns(), event };
        let text = serde_json::to_string(&line).map_err(|error| Error::io(&self.path)(error.into()))? + "\n";
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(Error::io(&self.path))
    }
}

/// Lead of the clock of the storage that holds `path` over this machine's, seconds: a file's time
/// of change is the server's. File systems that take it from the writer (Lustre) show no
/// difference.
pub(crate) fn storage_ahead_s(path: &Path) -> Result<f64, Error> {
    let before = SystemTime::now();
    fs::write(path, b"clock\n").map_err(Error::io(path))?;
    let changed = fs::metadata(path).and_then(|data| data.modified()).map_err(Error::io(path))?;
    let after = SystemTime::now();
    fs::remove_file(path).map_err(Error::io(path))?;
    Ok(ahead_s(before, after, changed))
}

/// Distance of `changed` from the range that `before` and `after` allow.
fn ahead_s(before: SystemTime, after: SystemTime, changed: SystemTime) -> f64 {
    if let Ok(ahead) = changed.duration_since(after) {
        return ahead.as_secs_f64();
    }
    before.duration_since(changed).map_or(0.0, |behind| -behind.as_secs_f64())
}

/// The reading side: all journals of a campaign.
#[derive(Debug)]
pub(crate) struct Journals {
    folder: PathBuf,
    /// Bytes read of each.
    read: BTreeMap<PathBuf, usize>,
}

impl Journals {
    pub fn of(folder: PathBuf) -> Self {
        Self { folder, read: BTreeMap::new() }
    }

    /// Lines since the last call, with the names of their attempts, in the order of their times. A
    /// last line without its end is not read yet; one that means nothing is passed over, for its
    /// writer died.
    pub(crate) fn new_lines(&mut self) -> Result<Vec<(String, Line)>, Error> {
        let mut lines = Vec::new();
        let entries = fs::read_dir(&self.folder).map_err(Error::io(&self.folder))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Some(attempt) = path.file_name().and_then(|n| n.to_str()?.strip_suffix(".jsonl")) else {
                continue;
            };
            let read = self.read.entry(path.clone()).or_default();
            if fs::metadata(&path).is_ok_and(|data| data.len() as usize <= *read) {
                continue;
            }
            let text = match takt_files::read(&path, MAX_BYTES) {
                Ok(text) => text,
                Err(error) if lines.is_empty() => return Err(Error::io(&path)(error)),
                // Reports read from the other nodes count as read: the next call tries this one
                // again.
                Err(_) => continue,
            };
            let new = text.get(*read..).unwrap_or_default();
            let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            *read += whole;
            let new = new[..whole].split(|byte| *byte == b'\n');
            let parsed = new.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
            lines.extend(parsed.map(|line| (attempt.to_owned(), line)));
        }
        // Stable: lines of one attempt stay in their order.
        lines.sort_by_key(|(_, line)| line.at_ns);
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn begin(run: &str) -> Event {
        Event::Begin { run: run.to_owned() }
    }

    #[test]
    fn lines_are_read_once_whole_and_in_the_order_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut journals = Journals::of(folder.path().to_owned());
        let path = |name: &str| folder.path().join(format!("{name}.jsonl"));
        let (mut one, mut two) = (Journal::create(&path("1")).unwrap(), Journal::create(&path("2")).unwrap());
        two.record(begin("a")).unwrap();
        one.record(begin("b")).unwrap();
        let read = |journals: &mut Journals| {
            let lines = journals.new_lines().unwrap();
            lines.into_iter().map(|(attempt, line)| (attempt, line.event)).collect::<Vec<_>>()
        };
        assert_eq!(read(&mut journals), [("2".to_owned(), begin("a")), ("1".to_owned(), begin("b"))]);
        // A writer that was cut in the middle of a line, and what another program left.
        fs::write(path("3"), "{\"at_ns\":1,\"what\":\"begin\",\"run\":\"c\"}\nnonsense\n{\"at_ns\":2,\"wh")
            .unwrap();
        fs::write(folder.path().join("other"), "x").unwrap();
        assert_eq!(read(&mut journals), [("3".to_owned(), begin("c"))]);
        assert_eq!(read(&mut journals), []);
        one.record(begin("d")).unwrap();
        assert_eq!(read(&mut journals), [("1".to_owned(), begin("d"))]);
    }

    #[test]
    fn the_storages_clock_is_compared_with_what_the_writing_took() {
        let at = |s: f64| UNIX_EPOCH + Duration::from_secs_f64(s);
        for (changed, ahead) in [(10.5, 0.0), (14.0, 3.0), (7.0, -3.0)] {
            let found = ahead_s(at(10.0), at(11.0), at(changed));
            assert!((found - ahead).abs() < 1e-6, "{changed}: {found}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(storage_ahead_s(&folder.path().join("clock")).unwrap().abs() < 1.0);
    }
}
