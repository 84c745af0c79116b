//! Output of a command: its beginning in the run directory, its end for messages, and the line that
//! announces readiness.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use takt_rt::thread::{self, Handle};

/// The file in the run directory.
pub(crate) const OUTPUT_FILE: &str = "output.txt";

/// So much of it is kept in the file.
const MAX_FILE: usize = 1 << 20;

/// So much of its end is kept for messages.
const MAX_TAIL: usize = 2 << 10;

/// A longer line is looked at in parts.
const MAX_LINE: usize = 64 << 10;

/// Capacity of the pipe: a command must not wait for Takt.
const PIPE_BYTES: i32 = 1 << 20;

/// Time in which the last output is read.
const LAST: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Seen {
    tail: VecDeque<u8>,
    bytes: u64,
    line: Vec<u8>,
    is_ready: bool,
}

impl Seen {
    fn take(&mut self, part: &[u8], ready: Option<&[u8]>) {
        self.bytes += part.len() as u64;
        self.tail.extend(part);
        let beyond = self.tail.len().saturating_sub(MAX_TAIL);
        self.tail.drain(..beyond);
        let Some(ready) = ready.filter(|_| !self.is_ready) else { return };
        for &byte in part {
            if byte == b'\n' || self.line.len() >= MAX_LINE {
                self.is_ready |= contains(&self.line, ready);
                self.line.clear();
            } else {
                self.line.push(byte);
            }
        }
    }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len().max(1)).any(|part| part == text)
}

/// Output of a command, read by a thread until nobody holds the other end.
#[derive(Debug)]
pub(crate) struct Output {
    seen: Arc<Mutex<Seen>>,
    thread: Handle<()>,
}

impl Output {
    /// Begins to read. `ready` is what the line contains that is waited for.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn read(
        mut from: PipeReader,
        dir: &Path,
        ready: Option<&str>,
    ) -> Result<Self, takt_rt::Error> {
        // SAFETY: changes the size of a pipe that this process holds. Refused where the user's
        // pipes are many: then it has its usual size.
        unsafe { libc::fcntl(from.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        // A disk that is full keeps nothing of it.
        let mut file = takt_files::create_output(&dir.join(OUTPUT_FILE)).ok();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let ready = ready.map(|text| text.as_bytes().to_vec());
        let shared = Arc::clone(&seen);
        let why = "reads the command's output";
        let thread = thread::spawn_exempt("takt-output", why, move || {
            let mut bytes = vec![0; 32 << 10];
            let mut left = MAX_FILE;
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let part = &bytes[..count];
                shared.lock().unwrap_or_else(PoisonError::into_inner).take(part, ready.as_deref());
                left = keep(&mut file, part, left);
            }
        })?;
        Ok(Self { seen, thread })
    }

    /// Whether the line was printed.
    pub(crate) fn is_ready(&self) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).is_ready
    }

    /// The end of what was printed, in a sentence.
    pub(crate) fn words(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let tail: Vec<u8> = seen.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&tail);
        match text.lines().map(str::trim).rfind(|line| !line.is_empty()) {
            Some(line) => format!("Its last output: \"{}\".", takt_files::quoted(line)),
            None => "It printed nothing.".to_owned(),
        }
    }

    /// Number of printed bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// Waits a moment for the rest of it, when the command has ended.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + LAST;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Writes as much as there is room for; returns how much there is then.
fn keep(file: &mut Option<File>, part: &[u8], left: usize) -> usize {
    let part = &part[..part.len().min(left)];
    if let Some(open) = file
        && open.write_all(part).is_err()
    {
        *file = None;
    }
    left - part.len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_over_parts_and_only_in_a_whole_line() {
        let mut seen = Seen::default();
        for (part, ready) in [("boot\nrea", false), ("dy", false), (" now\n", true)] {
            seen.take(part.as_bytes(), Some(b"ready"));
            assert_eq!(seen.is_ready, ready, "{part}");
        }
        assert!(!contains(b"rea", b"ready") && contains(b"x ready", b"ready"));
    }

    #[test]
    fn all_that_is_printed_is_read_and_the_file_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let output = Output::read(reader, folder.path(), None).unwrap();
        let line = [b'x'; 1023].iter().copied().chain([b'\n']).collect::<Vec<u8>>();
        for _ in 0..2048 {
            writer.write_all(&line).unwrap();
        }
        writer.write_all(b"the end\n").unwrap();
        drop(writer);
        let since = Instant::now();
        while !output.thread.is_finished() {
            assert!(since.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(output.bytes(), 2048 * 1024 + 8);
        assert!(output.words().contains("the end"), "{}", output.words());
        let kept = folder.path().join(OUTPUT_FILE).metadata().unwrap().len();
        assert_eq!(kept, MAX_FILE as u64);
    }
}
