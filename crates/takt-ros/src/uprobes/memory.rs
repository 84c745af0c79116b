//! Reading the memory of the processes under observation: names, which a sample has only the
//! addresses of.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of a text that are read.
const MAX_TEXT: usize = 1016;
/// Texts do not cross into a page that may not be there.
const PAGE: u64 = 4096;

/// Bytes of address space whose pages are looked through: a tenth of a second.
const MAX_RESERVED: u64 = 256 << 30;

/// Readable memory of another process.
pub trait Memory {
    /// Reads at `address`; returns how many bytes there were.
    fn read(&mut self, pid: u32, address: u64, to: &mut [u8]) -> usize;

    /// A text that ends in zero; `None`: there is none.
    fn text(&mut self, pid: u32, address: u64) -> Option<Arc<str>> {
        let mut text = Vec::new();
        let mut at = address;
        while address != 0 && text.len() < MAX_TEXT {
            let chunk = usize::try_from(PAGE - at % PAGE).unwrap_or(0).min(256).min(MAX_TEXT - text.len());
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

    fn word(&mut self, pid: u32, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (address != 0 && self.read(pid, address, &mut bytes) == 8).then(|| u64::from_ne_bytes(bytes))
    }

    fn thread_name(&mut self, pid: u32, tid: u32) -> Option<Arc<str>>;

    /// Writable memory of its own that it has ever touched, from where to where, by rising address;
    /// and whether that is all.
    fn regions(&mut self, pid: u32) -> (Vec<(u64, u64)>, bool);

    /// The process has gone.
    fn forget(&mut self, _pid: u32) {}
}

/// Words in a row, by one read.
pub fn words<const N: usize>(memory: &mut dyn Memory, pid: u32, address: u64) -> Option<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    let whole = memory.read(pid, address, bytes.as_flattened_mut()) == N * 8;
    whole.then(|| bytes.map(u64::from_ne_bytes))
}

/// The name that an object of the middleware carries.
pub fn rmw_name(memory: &mut dyn Memory, pid: u32, object: u64) -> Option<Arc<str>> {
    let identifier = memory.word(pid, object)?;
    let name = memory.word(pid, object.checked_add(16)?)?;
    if !memory.text(pid, identifier)?.starts_with("rmw_") {
        return None;
    }
    memory.text(pid, name).filter(|name| name.starts_with('/') && name.len() > 1)
}

/// The words before an address, the last one last: `most`, or fewer where memory begins shortly
/// before.
pub fn words_before(memory: &mut dyn Memory, pid: u32, end: u64, most: u64) -> Vec<u64> {
    let read = |count: u64| {
        let start = end.checked_sub(count * 8).filter(|_| end.is_multiple_of(8))?;
        let mut bytes = vec![0; (count * 8) as usize];
        (memory.read(pid, start, &mut bytes) == bytes.len()).then_some(bytes)
    };
    let bytes = [most, most / 2, most / 4, most / 8].into_iter().find_map(read).unwrap_or_default();
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect()
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

    fn regions(&mut self, _: u32) -> (Vec<(u64, u64)>, bool) {
        (vec![(0, self.0.len() as u64)], true)
    }
}

/// An address space from 0, of which tests write some words.
#[cfg(test)]
pub struct Space(pub Vec<u8>);

#[cfg(test)]
impl Space {
    pub fn new() -> Self {
        Self(vec![0; 256 << 10])
    }

    pub fn put(&mut self, at: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.0[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
    }

    pub fn text(&mut self, at: u64, text: &str) -> u64 {
        self.0[at as usize..at as usize + text.len()].copy_from_slice(text.as_bytes());
        at
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
        Some(takt_rt::procfs::thread_name(pid, tid)?.into())
    }

    fn regions(&mut self, pid: u32) -> (Vec<(u64, u64)>, bool) {
        let maps = PathBuf::from(format!("/proc/{pid}/maps"));
        let maps = takt_files::read_to_string(&maps, takt_files::PROCESS_BYTES).unwrap_or_default();
        let pages = File::open(format!("/proc/{pid}/pagemap")).ok();
        let (mut parts, mut left) = (Vec::new(), MAX_RESERVED);
        let mut whole = true;
        for (start, end) in maps.lines().filter_map(region) {
            // The memory reserved by sanitizers takes seconds to search.
            match left.checked_sub(end.saturating_sub(start)) {
                Some(rest) => left = rest,
                None => {
                    whole = false;
                    continue;
                }
            }
            parts.extend(touched(pages.as_ref(), (start, end)));
        }
        (parts, whole)
    }

    fn forget(&mut self, pid: u32) {
        self.open.remove(&pid);
    }
}

/// From where to where a line of `/proc/PID/maps` goes, if that is memory without a file that its
/// process alone writes: heaps, and what large allocations have; stacks, too, of all threads but
/// the first.
fn region(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (mode, _, _, inode) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let name = fields.next().unwrap_or("");
    let heap = name.is_empty() || name == "[heap]" || name.starts_with("[anon:");
    let fits = mode.starts_with("rw-p") && inode == "0" && heap;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    fits.then_some((number(start)?, number(end)?))
}

/// The parts of a region whose pages are there (`/proc/PID/pagemap`, a word a page, highest bit
/// present, next swapped). Stacks and arenas are reserved by the megabyte and hardly used: reading
/// all of a node of Fast DDS took a second, what it uses takes milliseconds.
fn touched(pages: Option<&File>, (start, end): (u64, u64)) -> Vec<(u64, u64)> {
    let Some(pages) = pages else { return vec![(start, end)] };
    // SAFETY: sysconf has no preconditions.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE).max(1);
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut bytes = vec![0; 64 << 10];
    let mut at = start;
    while at < end {
        let wanted = usize::try_from((end - at) / page * 8).map_or(bytes.len(), |rest| rest.min(bytes.len()));
        let count = pages.read_at(&mut bytes[..wanted], at / page * 8).unwrap_or(0) / 8;
        if count == 0 {
            parts.push((at, end));
            break;
        }
        for word in bytes[..count * 8].chunks_exact(8) {
            // Little-endian on all that has uprobes here.
            if word[7] & 0xc0 != 0 {
                match parts.last_mut() {
                    Some(last) if last.1 == at => last.1 = at + page,
                    _ => parts.push((at, at + page)),
                }
            }
            at += page;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_are_distinguished_from_files_and_stacks() {
        let heap = "55f0c0000000-55f0c0021000 rw-p 00000000 00:00 0                          [heap]";
        assert_eq!(region(heap), Some((0x55f0_c000_0000, 0x55f0_c002_1000)));
        assert_eq!(
            region("7f0000000000-7f0000021000 rw-p 00000000 00:00 0 "),
            Some((0x7f00_0000_0000, 0x7f00_0002_1000))
        );
        for other in [
            "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]",
            "7f0000021000-7f0004000000 ---p 00000000 00:00 0 ",
            "7f1000000000-7f1000001000 rw-p 00002000 fe:01 1234 /usr/lib/libc.so.6",
            "7f1000000000-7f1000001000 rw-s 00000000 00:05 77 /dev/zero (deleted)",
            "nonsense",
            "",
            "1-2 rw-p",
        ] {
            assert_eq!(region(other), None, "{other}");
        }
    }

    #[test]
    fn pages_that_were_never_touched_are_left_out() {
        let mut reserved = Vec::<u8>::with_capacity(64 << 20);
        reserved.push(7);
        let address = reserved.as_ptr().addr() as u64;
        let mut memory = Processes::default();
        let (parts, whole) = memory.regions(std::process::id());
        assert!(whole);
        let inside = |from: u64, to: u64| -> u64 {
            parts.iter().map(|(start, end)| (*end).min(to).saturating_sub((*start).max(from))).sum()
        };
        assert!(parts.is_sorted() && inside(address, address + 1) == 1);
        // Without the right to read the page map it is all of it.
        let whole = inside(address, address + (64 << 20));
        assert!(whole < 8 << 20 || File::open("/proc/self/pagemap").is_err(), "{whole}");
    }
}
