//! Reading the memory of the processes under observation: names, which a sample has only the addresses of.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of a text that are read.
const MOST_TEXT: usize = 1016;
/// Texts do not cross into a page that may not be there.
const PAGE: u64 = 4096;

/// What can be read of another process.
pub trait Memory {
    /// Reads at `address`; returns how many bytes there were.
    fn read(&mut self, pid: u32, address: u64, to: &mut [u8]) -> usize;

    /// A text that ends in zero; `None`: there is none.
    fn text(&mut self, pid: u32, address: u64) -> Option<Arc<str>> {
        let mut text = Vec::new();
        let mut at = address;
        while address != 0 && text.len() < MOST_TEXT {
            let chunk = usize::try_from(PAGE - at % PAGE).unwrap_or(0).min(256).min(MOST_TEXT - text.len());
            let mut bytes = [0; 256];
            let count = self.read(pid, at, bytes.get_mut(..chunk)?);
            let read = bytes.get(..count)?;
            if let Some(end) = read.iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&read[..end]);
                return String::from_utf8(text).ok().map(Into::into);
            }
            if count == 0 {
                return None;
            }
            text.extend_from_slice(read);
            at = at.checked_add(count as u64)?;
        }
        None
    }

    /// A word.
    fn word(&mut self, pid: u32, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (address != 0 && self.read(pid, address, &mut bytes) == 8).then(|| u64::from_ne_bytes(bytes))
    }

    /// The name of a thread.
    fn thread_name(&mut self, pid: u32, tid: u32) -> Option<Arc<str>>;

    /// The process has gone.
    fn forget(&mut self, _pid: u32) {}
}

/// The same bytes for every process, from address 0.
#[derive(Debug)]
pub struct Image<'a>(pub &'a [u8]);

impl Memory for Image<'_> {
    fn read(&mut self, _: u32, address: u64, to: &mut [u8]) -> usize {
        let rest = usize::try_from(address).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(to.len());
        to[..count].copy_from_slice(&rest[..count]);
        count
    }

    fn thread_name(&mut self, _: u32, _: u32) -> Option<Arc<str>> {
        None
    }
}

/// `/proc/PID/mem`.
#[derive(Debug, Default)]
pub struct Processes {
    open: HashMap<u32, Option<File>>,
}

impl Memory for Processes {
    fn read(&mut self, pid: u32, address: u64, to: &mut [u8]) -> usize {
        let file = self.open.entry(pid).or_insert_with(|| File::open(format!("/proc/{pid}/mem")).ok());
        file.as_ref().and_then(|file| file.read_at(to, address).ok()).unwrap_or(0)
    }

    fn thread_name(&mut self, pid: u32, tid: u32) -> Option<Arc<str>> {
        let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
        Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into())
    }

    fn forget(&mut self, pid: u32) {
        self.open.remove(&pid);
    }
}
