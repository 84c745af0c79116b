//! Reads a worker process's output: whatever it is, it fills no memory and hides no later message.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};

use crate::process::message::Message;

/// Lines of a worker's error output that are kept for the cause of its end.
const KEPT_LINES: usize = 8;
/// A census of a thousand threads is shorter.
const LONGEST_MESSAGE: usize = 1 << 20;
/// Messages that wait for the supervisor, who looks fifty times a second; a worker that says more
/// waits for it.
pub(crate) const MAX_WAITING: usize = 256;

/// Hands on the messages of the worker.
pub(crate) fn listen(out: impl Read, sender: &SyncSender<Message>) {
    let mut reader = BufReader::new(out);
    let mut line = Vec::new();
    while read_line(&mut reader, &mut line, LONGEST_MESSAGE) {
        // Libraries write to standard output as they please, in whatever encoding.
        if let Ok(message) = serde_json::from_slice(&line)
            && sender.send(message).is_err()
        {
            return;
        }
    }
}

/// The next line without its end, of a longer one the first `most` bytes: a line without end must
/// not fill the memory. False at the end.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>, most: usize) -> bool {
    line.clear();
    loop {
        let there = match reader.fill_buf() {
            Ok([]) => return !line.is_empty(),
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return false,
        };
        let end = there.iter().position(|&byte| byte == b'\n');
        let text = &there[..end.unwrap_or(there.len())];
        line.extend_from_slice(&text[..text.len().min(most - line.len())]);
        let taken = end.map_or(there.len(), |end| end + 1);
        reader.consume(taken);
        if end.is_some() {
            return true;
        }
    }
}

/// Keeps the last lines of its error output.
pub(crate) fn keep_words(err: impl Read, kept: &Mutex<VecDeque<String>>) {
    let mut reader = BufReader::new(err);
    let mut line = Vec::new();
    loop {
        line.clear();
        // Bounded: a line without end must not fill the memory.
        match reader.by_ref().take(4096).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        if text.is_empty() {
            continue;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn progress_of(out: &[u8]) -> Vec<String> {
        let (sender, receiver) = mpsc::sync_channel(MAX_WAITING);
        listen(out, &sender);
        drop(sender);
        receiver
            .iter()
            .map(|message| if let Message::Progress(text) = message { text } else { String::new() })
            .collect()
    }

    #[test]
    fn what_libraries_print_hides_nothing_that_comes_after() {
        let mut out = b"cuda: Ger\xe4t bereit\n{\"progress\":\"a\"}\n\n{\"progress\":".to_vec();
        out.resize(out.len() + 3 * LONGEST_MESSAGE, b'x');
        out.extend(b"\n{\"progress\":\"b\"}\n{\"progress\":\"c\"}");
        assert_eq!(progress_of(&out), ["a", "b", "c"]);
    }

    #[test]
    fn no_line_is_kept_beyond_its_limit() {
        let mut reader = io::repeat(b'x').take(1 << 16).chain(&b"\nab\n"[..]);
        let mut reader = BufReader::new(&mut reader);
        let mut line = Vec::new();
        assert!(read_line(&mut reader, &mut line, 100));
        assert_eq!((line.len(), line.capacity() < 1 << 12), (100, true));
        assert!(read_line(&mut reader, &mut line, 100));
        assert_eq!(line, b"ab");
        assert!(!read_line(&mut reader, &mut line, 100));
    }
}
