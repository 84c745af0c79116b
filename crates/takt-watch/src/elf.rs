//! As much of an ELF file as shows whether Go made it, and where CPython keeps its lock and
//! collects its garbage (System V ABI, chapters 4 and 5; for the probes that distributors build in,
//! "UserSpaceProbeImplementation" of SystemTap).

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use takt_trace::probe::ProbePoint;

/// Tables of an interpreter with all its symbols are some megabytes.
const MAX_BYTES: u64 = 64 << 20;
const MAX_SECTIONS: u16 = 4096;

/// Facts about an interpreter's file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    /// Address (as linked) and size of `_PyRuntime`, which holds the lock.
    pub(crate) runtime: Option<(u64, u64)>,
    /// Begin and end of a collection.
    pub(crate) collection: Option<[ProbePoint; 2]>,
    /// Difference between its addresses and offsets, for the part at the file's begin.
    pub(crate) linked_at: u64,
}

struct Section {
    name: u64,
    kind: u32,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The text up to the zero at its end.
fn text_at(bytes: &[u8], at: u64) -> &str {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let text = rest.split(|&byte| byte == 0).next().unwrap_or_default();
    std::str::from_utf8(text).unwrap_or_default()
}

/// Gives a part of a file: from where, and how much.
type Part<'a> = dyn FnMut(u64, u64) -> Option<Vec<u8>> + 'a;

/// Reads a file; None where it is no ELF file of this kind of machine or is damaged.
pub(crate) fn read(path: &Path) -> Option<Facts> {
    of_file(path, |part| read_parts(part))
}

/// Whether an ELF file has a section of this name.
pub(crate) fn has_section(path: &Path, name: &str) -> bool {
    let found = |part: &mut Part<'_>| {
        let (sections, names) = sections(&part(0, 64)?, part)?;
        Some(sections.iter().any(|section| text_at(&names, section.name) == name))
    };
    of_file(path, found).unwrap_or(false)
}

fn of_file<T>(path: &Path, read: impl FnOnce(&mut Part<'_>) -> Option<T>) -> Option<T> {
    // A process maps what it likes, and calls it what it likes.
    let file = takt_files::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    read(&mut |offset, size| {
        if size > MAX_BYTES || offset.checked_add(size)? > length {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        let read: io::Result<()> = file.read_exact_at(&mut bytes, offset);
        read.ok().map(|()| bytes)
    })
}

/// The sections of a file by its header, and their names.
fn sections(header: &[u8], part: &mut Part<'_>) -> Option<(Vec<Section>, Vec<u8>)> {
    // 64 bits, least byte first.
    if header.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let at = u64_at(header, 40)?;
    let (count, names) = (u16_at(header, 60)?, u16_at(header, 62)?);
    if count > MAX_SECTIONS {
        return None;
    }
    let table = part(at, u64::from(count) * 64)?;
    let sections: Vec<Section> = table
        .chunks_exact(64)
        .filter_map(|one| {
            Some(Section {
                name: u32_at(one, 0)?.into(),
                kind: u32_at(one, 4)?,
                address: u64_at(one, 16)?,
                offset: u64_at(one, 24)?,
                size: u64_at(one, 32)?,
                link: u32_at(one, 40)?,
            })
        })
        .collect();
    let named = sections.get(usize::from(names))?;
    let names = part(named.offset, named.size)?;
    Some((sections, names))
}

fn read_parts(part: &mut Part<'_>) -> Option<Facts> {
    let header = part(0, 64)?;
    let (sections, names) = sections(&header, part)?;
    let programs = part(u64_at(&header, 32)?, u64::from(u16_at(&header, 56)?) * 56)?;
    // Address and offset of what is loaded (PT_LOAD).
    let loads: Vec<(u64, u64, u64)> = programs
        .chunks_exact(56)
        .filter(|one| u32_at(one, 0) == Some(1))
        .filter_map(|one| Some((u64_at(one, 16)?, u64_at(one, 8)?, u64_at(one, 32)?)))
        .collect();
    let offset_of = |address: u64| {
        let load = loads.iter().find(|load| address >= load.0 && address - load.0 < load.2)?;
        Some(address - load.0 + load.1)
    };
    let mut facts = Facts {
        linked_at: loads.iter().find(|load| load.1 == 0).map_or(0, |load| load.0),
        ..Facts::default()
    };
    // SHT_SYMTAB, SHT_DYNSYM.
    for section in sections.iter().filter(|section| [2, 11].contains(&section.kind)) {
        let Some(strings) = usize::try_from(section.link).ok().and_then(|at| sections.get(at)) else {
            continue;
        };
        let (Some(symbols), Some(strings)) =
            (part(section.offset, section.size), part(strings.offset, strings.size))
        else {
            continue;
        };
        for symbol in symbols.chunks_exact(24) {
            let (Some(name), Some(address), Some(size)) =
                (u32_at(symbol, 0), u64_at(symbol, 8), u64_at(symbol, 16))
            else {
                continue;
            };
            let name = text_at(&strings, name.into());
            if name == "_PyRuntime" && size > 0 {
                facts.runtime = Some((address, size));
            }
            // Compilers make copies of it, with a mark behind a dot.
            let function = name.split('.').next().unwrap_or_default();
            if function == "gc_collect_main" && address > 0 {
                facts.collection = offset_of(address).map(|offset| {
                    [false, true].map(|at_return| ProbePoint { offset, semaphore: 0, at_return })
                });
            }
        }
    }
    if facts.collection.is_none() {
        let by_name = |wanted: &str| sections.iter().find(|one| text_at(&names, one.name) == wanted);
        let base = by_name(".stapsdt.base").map_or(0, |section| section.address);
        let notes = by_name(".note.stapsdt").and_then(|section| part(section.offset, section.size));
        facts.collection = notes.and_then(|notes| {
            let find = |name| probe(&notes, name, base, &offset_of);
            Some([find("gc__start")?, find("gc__done")?])
        });
    }
    Some(facts)
}

/// A probe that the distributor built in, by its name.
fn probe(
    notes: &[u8],
    wanted: &str,
    base: u64,
    offset_of: &dyn Fn(u64) -> Option<u64>,
) -> Option<ProbePoint> {
    let mut rest = notes;
    loop {
        let (owner, size) = (u32_at(rest, 0)? as usize, u32_at(rest, 4)? as usize);
        let begin = 12 + owner.next_multiple_of(4);
        let what = rest.get(begin..begin.checked_add(size)?)?;
        rest = rest.get(begin.checked_add(size)?.next_multiple_of(4)..).unwrap_or_default();
        let (at, linked, semaphore) = (u64_at(what, 0)?, u64_at(what, 8)?, u64_at(what, 16)?);
        let provider = text_at(what, 24);
        let name = text_at(what, 24 + provider.len() as u64 + 1);
        if (provider, name) == ("python", wanted) {
            // The base moves with the segments that moved since linking.
            let moved = base.wrapping_sub(linked);
            let semaphore = match semaphore {
                0 => 0,
                address => offset_of(address.wrapping_add(moved))?,
            };
            return Some(ProbePoint {
                offset: offset_of(at.wrapping_add(moved))?,
                semaphore,
                at_return: false,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interpreters that lie here: whatever is found in them is within their files.
    #[test]
    fn real_interpreters_are_read() {
        let places = ["/usr/bin/python3", "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0"];
        for path in places.iter().map(Path::new).filter(|path| path.exists()) {
            let length = std::fs::metadata(path).unwrap().len();
            let Some(facts) = read(path) else { panic!("{}", path.display()) };
            for place in facts.collection.into_iter().flatten() {
                assert!(place.offset > 0 && place.offset < length && place.semaphore < length, "{facts:?}");
            }
            assert!(facts.runtime.is_none_or(|(_, size)| size > 1000), "{facts:?}");
        }
    }

    #[test]
    fn whatever_is_damaged_is_refused_or_read() {
        let mut whole = std::fs::read("/proc/self/exe").unwrap();
        whole.truncate(1 << 16);
        let facts = |bytes: &[u8]| {
            read_parts(&mut |offset, size| {
                let from = usize::try_from(offset).ok()?;
                bytes.get(from..from.checked_add(usize::try_from(size).ok()?)?).map(<[u8]>::to_vec)
            })
        };
        for length in (0..4096).step_by(7) {
            facts(&whole[..length]);
        }
        for at in 0..64 {
            let mut broken = whole.clone();
            broken[at] ^= 0xff;
            facts(&broken);
        }
        assert_eq!(facts(b"#!/bin/sh"), None);
        for length in 0..64 {
            probe(&vec![0xff; length], "gc__start", 0, &|_| None);
            probe(&vec![4; length], "gc__start", 0, &|_| None);
        }
    }
}
