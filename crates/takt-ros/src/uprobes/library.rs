//! Finds `libtracetools.so`: the processes that map it, its file, and the begins of its functions.

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

/// Reason why a library cannot be probed.
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
        let maps = PathBuf::from(format!("/proc/{pid}/maps"));
        let Ok(maps) = takt_files::read(&maps, takt_files::PROCESS_BYTES) else { continue };
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

/// Begins of functions in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Offsets<'a> {
    pub found: Vec<(&'a str, u64)>,
    /// Those that share an address (a linker that folds equal ones) cannot be distinguished.
    pub folded: Vec<&'a str>,
}

/// A file of which no more than so many bytes are read.
struct Bounded {
    file: std::fs::File,
    left: u64,
}

impl io::Read for Bounded {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let wanted = to.len() as u64;
        if wanted > self.left {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.file.read(to)?;
        self.left -= read as u64;
        Ok(read)
    }
}

impl io::Seek for Bounded {
    /// Its end is where no more is read: what is asked for beyond that is refused before there is
    /// memory for it.
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let at = self.file.seek(to)?;
        Ok(match to {
            io::SeekFrom::End(_) => at.min(takt_files::LIBRARY_BYTES),
            _ => at,
        })
    }
}

/// Offsets in the file of the functions named, of those that are there.
pub fn offsets<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Result<Offsets<'a>, LibraryError> {
    let unread = |source| LibraryError::Read { path: path.to_owned(), source };
    let failed = |source| LibraryError::Elf { path: path.to_owned(), source };
    let library = takt_files::open(path).map_err(unread)?;
    // Parts alone: anybody may call a file so, of any size.
    let parts = object::ReadCache::new(Bounded { file: library, left: takt_files::LIBRARY_BYTES });
    let file = object::File::parse(&parts).map_err(failed)?;
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

    /// Anybody may map a file of this name, and any may be planted where one was mapped.
    #[test]
    fn what_others_call_a_library_takes_no_memory_and_no_time() {
        use std::os::unix::fs::FileExt;

        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| offsets(path, ["ros_trace_x"].into_iter()).unwrap_err();
        let sparse = folder.path().join("libtracetools.so");
        let file = std::fs::File::create(&sparse).unwrap();
        file.set_len(6 << 30).unwrap();
        assert!(matches!(refused(&sparse), LibraryError::Elf { .. }));
        // A library whose table of sections begins, and whose symbols would be, beyond all bounds.
        let own = std::fs::read(concat!(env!("OUT_DIR"), "/libtracetools.so")).unwrap();
        let at = u64::from_le_bytes(own[40..48].try_into().unwrap()) as usize;
        let count = usize::from(u16::from_le_bytes(own[60..62].try_into().unwrap()));
        let mut huge = own.clone();
        for section in 0..count {
            // All sections are 5 GiB long.
            let size = at + section * 64 + 32;
            huge[size..size + 8].copy_from_slice(&(5_u64 << 30).to_le_bytes());
        }
        file.write_all_at(&huge, 0).unwrap();
        let before_kib = resident_kib();
        assert!(matches!(refused(&sparse), LibraryError::Elf { .. } | LibraryError::Disabled { .. }));
        assert!(resident_kib() < before_kib + (256 << 10), "{} KiB", resident_kib() - before_kib);
        // The same file in its own size is read.
        file.set_len(0).unwrap();
        file.write_all_at(&own, 0).unwrap();
        let names = ["ros_trace_callback_start"];
        assert_eq!(offsets(&sparse, names.into_iter()).unwrap().found.len(), 1);

        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for planted in [fifo.as_path(), folder.path(), Path::new("/dev/zero"), &link] {
            assert!(matches!(refused(planted), LibraryError::Read { .. }), "{}", planted.display());
        }
    }

    /// The most memory that this process had so far.
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
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
