//! The file of events: JSON lines, of bounded size, in a folder of this user or root.
//!
//! ```text
//! events.jsonl ─(4 MiB)─► events.1.jsonl ─► … ─► events.4.jsonl ─► gone
//! ```
//!
//! Several processes write it at the same time: a line is one write to a file that is open for
//! appending, and who renames the files holds `events.lock`.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::event::Event;

/// Names the folder of events instead of the state folder's.
pub(crate) const FOLDER_VARIABLE: &str = "TAKT_EVENTS";

/// The file that is written.
const FILE: &str = "events.jsonl";
const LOCK: &str = "events.lock";

/// Older files that are kept.
const KEPT: u32 = 4;

/// Length of a file from which it is an older one.
const MAX_BYTES: u64 = 4 << 20;

/// A file is read from so far before its end: a longer one is not ours.
const MAX_READ_BYTES: u64 = 2 * MAX_BYTES;

/// Longest line that is read or written.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Folders that root's services write, which any user may be allowed to read.
const SYSTEM: &str = "/var/lib/takt/events";

/// Where this process writes: what `TAKT_EVENTS` names, else `events` in the state folder.
pub fn own_folder() -> PathBuf {
    let named = takt_files::environment::var_os(FOLDER_VARIABLE).filter(|name| !name.is_empty());
    named.map_or_else(|| takt_files::state_folder().join("events"), PathBuf::from)
}

/// Where events may be read: this user's folder, and that of root's services.
pub fn folders() -> Vec<PathBuf> {
    let own = own_folder();
    if takt_files::environment::var_os(FOLDER_VARIABLE).is_some_and(|name| !name.is_empty()) {
        return vec![own];
    }
    let mut folders = vec![PathBuf::from(SYSTEM), own];
    folders.dedup();
    folders
}

fn older(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("events.{number}.jsonl"))
}

/// Writes events.
#[derive(Debug)]
pub(crate) struct Writer {
    folder: PathBuf,
    open: Option<(u64, File)>,
}

impl Writer {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), open: None }
    }

    /// Appends an event as one line.
    ///
    /// # Errors
    /// The system's answer; also where the folder or the file may have been planted.
    pub(crate) fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        if line.len() >= MAX_LINE_BYTES {
            // A cause of many pages: the front of it says what happened.
            let cause: String = event.cause.chars().take(1000).collect();
            line = serde_json::to_vec(&Event { cause: format!("{cause} …"), ..event.clone() })?;
        }
        line.push(b'\n');
        let file = self.file()?;
        let outcome = file.write_all(&line);
        if outcome.is_err() {
            self.open = None;
        }
        outcome
    }

    /// The file, which is opened anew when another process has renamed it, and renamed where it is
    /// long.
    fn file(&mut self) -> io::Result<&mut File> {
        let path = self.folder.join(FILE);
        let here = fs::symlink_metadata(&path).ok();
        let same = |open: &(u64, File)| here.as_ref().is_some_and(|here| here.ino() == open.0);
        let long = here.as_ref().is_some_and(|here| here.is_file() && here.len() >= MAX_BYTES);
        if long {
            self.open = None;
            self.rotate(&path)?;
        }
        if self.open.as_ref().is_none_or(|open| !same(open)) {
            takt_files::private_folder(&self.folder)?;
            let mut file = takt_files::append(&path)?;
            // A kill, or a full disk, may have cut the last line.
            let length = file.seek(SeekFrom::End(0))?;
            if length > 0 && !ends_a_line(&path)? {
                file.write_all(b"\n")?;
            }
            self.open = Some((file.metadata()?.ino(), file));
        }
        match &mut self.open {
            Some((_, file)) => Ok(file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Makes a long file an older one, unless another process does.
    fn rotate(&self, path: &Path) -> io::Result<()> {
        let lock = takt_files::open_lock(&self.folder.join(LOCK))?;
        match lock.try_lock() {
            // It does, or nobody can be told apart: lines are still appended.
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return Ok(()),
            Ok(()) => {}
        }
        // It may have been renamed since it was looked at.
        if !fs::symlink_metadata(path).is_ok_and(|here| here.is_file() && here.len() >= MAX_BYTES) {
            return Ok(());
        }
        for number in (1..KEPT).rev() {
            let from = older(&self.folder, number);
            if fs::symlink_metadata(&from).is_ok() {
                fs::rename(&from, older(&self.folder, number + 1))?;
            }
        }
        fs::rename(path, older(&self.folder, 1))
    }
}

fn ends_a_line(path: &Path) -> io::Result<bool> {
    let mut file = takt_files::open_own(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// What was read of a folder.
#[derive(Debug, Default)]
pub struct Read {
    /// The events, the oldest first.
    pub events: Vec<Event>,
    /// What could not be read, a sentence each.
    pub problems: Vec<String>,
}

/// Reads the events of a folder. One that is not there has none.
pub fn read(folder: &Path) -> Read {
    let mut read = Read::default();
    let files = (1..=KEPT).rev().map(|number| older(folder, number)).chain([folder.join(FILE)]);
    for path in files {
        match last_part(&path) {
            Ok(text) => lines(&path, &text, &mut read),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => read.problems.push(format!("{}: {error}", path.display())),
        }
    }
    read.events.sort_by_key(|event| event.wall_ns);
    read
}

/// The end of a file, as far as one of ours reaches.
fn last_part(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = takt_files::open_own(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_READ_BYTES)))?;
    file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lines(path: &Path, bytes: &[u8], read: &mut Read) {
    let mut broken = 0u64;
    for line in bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        match parsed(line) {
            Some(event) => read.events.push(event),
            None => broken += 1,
        }
    }
    if broken > 0 {
        read.problems.push(format!("{}: {broken} lines are no events of Takt", path.display()));
    }
}

fn parsed(line: &[u8]) -> Option<Event> {
    if line.len() > MAX_LINE_BYTES { None } else { serde_json::from_slice(line).ok() }
}

/// Follows the file of a folder from its end on.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    open: Option<(u64, File, u64)>,
    rest: Vec<u8>,
}

impl Follower {
    /// Events that come from now on.
    pub fn new(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let open = takt_files::open_own(&path).ok().and_then(|file| {
            let metadata = file.metadata().ok()?;
            Some((metadata.ino(), file, metadata.len()))
        });
        Self { path, open, rest: Vec::new() }
    }

    /// Those that have come since the last time.
    pub fn come(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.take(&mut events);
        let here = fs::symlink_metadata(&self.path).map(|here| here.ino()).ok();
        let same = self.open.as_ref().map(|open| open.0) == here;
        if !same && let Ok(file) = takt_files::open_own(&self.path) {
            // The old one was read to its end above.
            self.rest.clear();
            self.open = here.map(|inode| (inode, file, 0));
            self.take(&mut events);
        }
        events
    }

    fn take(&mut self, events: &mut Vec<Event>) {
        let Some((_, file, read_bytes)) = &mut self.open else { return };
        let mut bytes = std::mem::take(&mut self.rest);
        let known = bytes.len();
        if file.seek(SeekFrom::Start(*read_bytes)).is_err()
            || (&mut *file).take(MAX_READ_BYTES).read_to_end(&mut bytes).is_err()
        {
            return;
        }
        *read_bytes += (bytes.len() - known) as u64;
        let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        events.extend(bytes[..end].split(|&byte| byte == b'\n').filter_map(parsed));
        self.rest = bytes.split_off(end);
        if self.rest.len() > MAX_LINE_BYTES {
            self.rest.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::event::{Kind, tests::event};

    fn causes(read: &Read) -> Vec<&str> {
        read.events.iter().map(|event| event.cause.as_str()).collect()
    }

    fn numbered(number: u64) -> Event {
        Event { wall_ns: number, ..event(Kind::Stop, &number.to_string()) }
    }

    #[test]
    fn events_are_kept_bounded_and_in_order() {
        let workspace = tempfile::tempdir().unwrap();
        let folder = workspace.path().join("events");
        let mut writer = Writer::new(&folder);
        let long = "x".repeat(12 << 10);
        let count = (KEPT as u64 + 3) * MAX_BYTES / (12 << 10);
        for number in 0..count {
            writer.append(&Event { measure: Some(long.clone()), ..numbered(number) }).unwrap();
        }
        let sizes: Vec<u64> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.len() as u32, KEPT + 2, "files and lock");
        assert!(sizes.iter().all(|&bytes| bytes < MAX_BYTES + (16 << 10)), "{sizes:?}");
        let read = read(&folder);
        assert_eq!(read.problems, [""; 0]);
        assert_eq!(read.events.last().unwrap().wall_ns, count - 1);
        assert!(read.events.windows(2).all(|pair| pair[0].wall_ns + 1 == pair[1].wall_ns), "one is missing");
        assert!(read.events.len() as u64 > KEPT as u64 * MAX_BYTES / (13 << 10));
    }

    #[test]
    fn two_writers_lose_no_line() {
        let workspace = tempfile::tempdir().unwrap();
        let folder = workspace.path().join("events");
        let writers = [0, 1].map(|part| {
            let folder = folder.clone();
            std::thread::spawn(move || {
                let mut writer = Writer::new(&folder);
                let long = "x".repeat(8 << 10);
                for number in 0..700 {
                    let event = Event { measure: Some(long.clone()), ..numbered(2 * number + part) };
                    writer.append(&event).unwrap();
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        // 11 MiB: two files are older ones.
        let read = read(&folder);
        assert_eq!(read.problems, [""; 0]);
        let mut numbers: Vec<u64> = read.events.iter().map(|event| event.wall_ns).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..1400).collect::<Vec<u64>>());
    }

    #[test]
    fn a_cut_line_takes_no_other_with_it() {
        let folder = tempfile::tempdir().unwrap();
        Writer::new(folder.path()).append(&numbered(1)).unwrap();
        let mut file = takt_files::append(&folder.path().join(FILE)).unwrap();
        file.write_all(b"{\"utc\":\"2026").unwrap();
        Writer::new(folder.path()).append(&numbered(2)).unwrap();
        let read = read(folder.path());
        assert_eq!(causes(&read), ["1", "2"]);
        assert!(read.problems[0].contains("1 lines"), "{:?}", read.problems);
    }

    #[test]
    fn what_somebody_planted_is_neither_read_nor_written() {
        let workspace = tempfile::tempdir().unwrap();
        type Plant = (&'static str, fn(&Path));
        let plants: [Plant; 4] = [
            ("fifo", |path| {
                let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
                // SAFETY: a path that ends in a zero.
                assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
            }),
            ("link", |path| symlink("/etc/hostname", path).unwrap()),
            ("folder", |path| fs::create_dir(path).unwrap()),
            ("socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
        ];
        for (name, plant) in plants {
            let folder = workspace.path().join(name);
            fs::create_dir(&folder).unwrap();
            plant(&folder.join(FILE));
            let begun = std::time::Instant::now();
            assert!(Writer::new(&folder).append(&numbered(1)).is_err(), "{name}");
            let read = read(&folder);
            assert!(read.events.is_empty() && read.problems.len() == 1, "{name}: {read:?}");
            assert!(Follower::new(&folder).come().is_empty());
            assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{name}: it waited");
        }
        // A file of holes is renamed at the first line, and its end is read.
        let folder = workspace.path().join("sparse");
        fs::create_dir(&folder).unwrap();
        File::create(folder.join(FILE)).unwrap().set_len(1 << 40).unwrap();
        Writer::new(&folder).append(&numbered(1)).unwrap();
        let read = read(&folder);
        assert_eq!(causes(&read), ["1"]);
        assert!(fs::metadata(folder.join(FILE)).unwrap().len() < 4096);
        // A folder that is everybody's.
        let open = workspace.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let error = Writer::new(&open).append(&numbered(1)).unwrap_err();
        assert!(error.to_string().contains("not trusted"), "{error}");
    }

    #[test]
    fn a_follower_sees_each_event_once_and_follows_a_rename() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(folder.path());
        writer.append(&numbered(1)).unwrap();
        let mut follower = Follower::new(folder.path());
        assert_eq!(follower.come(), []);
        writer.append(&numbered(2)).unwrap();
        assert_eq!(follower.come(), [numbered(2)]);
        writer.append(&numbered(3)).unwrap();
        fs::rename(folder.path().join(FILE), older(folder.path(), 1)).unwrap();
        writer.append(&numbered(4)).unwrap();
        assert_eq!(follower.come(), [numbered(3), numbered(4)]);
        assert_eq!(follower.come(), []);
        // Half a line is no event yet.
        let line = serde_json::to_vec(&numbered(5)).unwrap();
        let mut file = takt_files::append(&folder.path().join(FILE)).unwrap();
        file.write_all(&line[..20]).unwrap();
        assert_eq!(follower.come(), []);
        file.write_all(&[&line[20..], b"\n"].concat()).unwrap();
        assert_eq!(follower.come(), [numbered(5)]);
        // One that is not there yet.
        let later = folder.path().join("later");
        let mut follower = Follower::new(&later);
        assert_eq!(follower.come(), []);
        Writer::new(&later).append(&numbered(6)).unwrap();
        assert_eq!(follower.come(), [numbered(6)]);
    }
}
