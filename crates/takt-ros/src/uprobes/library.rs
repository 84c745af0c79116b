//! Where `libtracetools.so` is: in which processes it is mapped, from which file, and where its
//! functions begin in it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSegment, ObjectSymbol};

use takt_rt::procfs::numbers;

/// The file name begins so; a version may follow.
pub const TRACETOOLS: &str = "libtracetools.so";
/// The C library, which has `sched_yield`.
pub const C_LIBRARY: &str = "libc.so";

/// Why a library cannot be probed.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is not a shared library.
    #[error("{}: {source}", path.display())]
    Elf { path: PathBuf, source: object::Error },
    /// It exports none of the functions.
    #[error("{} exports no ros_trace functions: it was built with TRACETOOLS_DISABLED", path.display())]
    Disabled { path: PathBuf },
}

/// A library and the processes that have it mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name where it was mapped, ` (deleted)` included.
    pub name: String,
    /// A path by which it can be opened from here: also when it was deleted, or lies in a
    /// container.
    pub path: PathBuf,
    /// Processes.
    pub pids: Vec<u32>,
}

/// Searches the mappings of these processes, or of all, for the library whose file name begins so.
pub fn find(pids: &[u32], name: &str) -> Vec<Found> {
    let all: Vec<u32> = match pids {
        [] => numbers("/proc").collect(),
        pids => pids.to_vec(),
    };
    let mut libraries = BTreeMap::<(String, u64), Found>::new();
    for pid in all {
        // Gone, or not ours to read.
        let Ok(maps) = fs::read(format!("/proc/{pid}/maps")) else { continue };
        let maps = String::from_utf8_lossy(&maps);
        let Some(mapped) = maps.lines().find_map(|line| mapping(line, name)) else { continue };
        let Mapping { range, device, inode, name } = mapped;
        let key = (device, inode);
        let found = libraries.entry(key).or_insert_with(|| {
            // The link of the mapping leads to the very file, whatever became of its name.
            let link = PathBuf::from(format!("/proc/{pid}/map_files/{range}"));
            let path = if fs::metadata(&link).is_ok() {
                link
            } else {
                PathBuf::from(format!("/proc/{pid}/root{name}"))
            };
            Found { name, path, pids: Vec::new() }
        });
        found.pids.push(pid);
    }
    libraries.into_values().collect()
}

struct Mapping {
    range: String,
    device: String,
    inode: u64,
    name: String,
}

/// A line of `/proc/PID/maps` if it is that of the library whose file name begins with `wanted`.
fn mapping(line: &str, wanted: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (range, _, _, device, inode) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let name = fields.next()?.trim_start();
    let file = name.strip_suffix(" (deleted)").unwrap_or(name).rsplit('/').next()?;
    let version = file.strip_prefix(wanted)?;
    (version.is_empty() || version.starts_with('.')).then(|| Mapping {
        range: range.to_owned(),
        device: device.to_owned(),
        inode: inode.parse().unwrap_or(0),
        name: name.to_owned(),
    })
}

/// Where functions begin in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Offsets<'a> {
    pub found: Vec<(&'a str, u64)>,
    /// Those that share an address (a linker that folds equal ones) cannot be distinguished.
    pub folded: Vec<&'a str>,
}

/// Offsets in the file of the functions named, of those that are there.
pub fn offsets<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Result<Offsets<'a>, LibraryError> {
    let bytes = fs::read(path).map_err(|source| LibraryError::Read { path: path.to_owned(), source })?;
    let failed = |source| LibraryError::Elf { path: path.to_owned(), source };
    let file = object::File::parse(bytes.as_slice()).map_err(failed)?;
    let addresses: BTreeMap<&str, u64> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| Some((symbol.name().ok()?, symbol.address())))
        .collect();
    let offset = |address: u64| {
        file.segments().find_map(|segment| {
            let inside = address.checked_sub(segment.address())?;
            let (start, length) = segment.file_range();
            (inside < length).then(|| start.checked_add(inside))?
        })
    };
    let found: Vec<(&str, u64)> =
        names.filter_map(|name| Some((name, offset(*addresses.get(name)?)?))).collect();
    if found.is_empty() {
        return Err(LibraryError::Disabled { path: path.to_owned() });
    }
    let shared = |offset: u64| found.iter().filter(|(_, other)| *other == offset).count() > 1;
    let (folded, single): (Vec<_>, Vec<_>) = found.iter().copied().partition(|&(_, offset)| shared(offset));
    Ok(Offsets { found: single, folded: folded.into_iter().map(|(name, _)| name).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_reported_by_their_file_names() {
        let line = |name: &str| format!("7f00-7f10 r-xp 00001000 fd:01 1234        {name}");
        let of = |name: &str| mapping(&line(name), TRACETOOLS);
        let found = of("/opt/ros/jazzy/lib/libtracetools.so").unwrap();
        assert_eq!((found.range.as_str(), found.device.as_str(), found.inode), ("7f00-7f10", "fd:01", 1234));
        assert_eq!(
            of("/tmp/my libs/libtracetools.so.8.2 (deleted)").unwrap().name,
            "/tmp/my libs/libtracetools.so.8.2 (deleted)"
        );
        assert!(of("/usr/lib/libtracetools_status.so").is_none());
        assert!(of("/usr/lib/libtracetools.sox").is_none());
        let none = |line: &str| mapping(line, TRACETOOLS).is_none();
        assert!(of("[stack]").is_none() && none("") && none("a b c"));
        let libc = |name: &str| mapping(&line(name), C_LIBRARY).is_some();
        assert!(libc("/usr/lib/x86_64-linux-gnu/libc.so.6") && !libc("/usr/lib/libcap.so.2"));
    }

    #[test]
    fn functions_are_found_in_the_stand_in_and_each_has_its_own_place() {
        let path = Path::new(concat!(env!("OUT_DIR"), "/libtracetools.so"));
        let names = [
            "ros_trace_callback_start",
            "ros_trace_callback_end",
            "ros_trace_rcl_publish",
            "ros_trace_nothing",
        ];
        let Offsets { found, folded } = offsets(path, names.into_iter()).unwrap();
        assert_eq!(found.iter().map(|(name, _)| *name).collect::<Vec<_>>(), &names[..3]);
        assert!(folded.is_empty());
    }

    #[test]
    fn what_is_no_library_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"\x7fELF but no more").unwrap();
        let error = offsets(file.path(), ["x"].into_iter()).unwrap_err();
        assert!(matches!(error, LibraryError::Elf { .. }));
        let own = std::env::current_exe().unwrap();
        assert!(matches!(offsets(&own, ["ros_trace_x"].into_iter()), Err(LibraryError::Disabled { .. })));
    }
}
