//! Dependencies of a program: its interpreter and shared libraries, found as the dynamic linker
//! finds them.
//!
//! Libraries that are opened later with `dlopen` are not seen; who needs one names it.
//! LD_LIBRARY_PATH is not asked, so that an image does not depend on the shell that made it.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use super::ld_cache;
use crate::image_error::{ElfError, ImageError};

/// Folders that the dynamic linker searches last (glibc on Debian, then elsewhere).
const STANDARD: &[&str] =
    &["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Dependencies that an ELF file states.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub interpreter: Option<PathBuf>,
    pub libraries: Vec<String>,
    /// DT_RUNPATH, or DT_RPATH where there is no other.
    pub search: Vec<String>,
}

/// Reads what `bytes` needs.
pub(super) fn needs(bytes: &[u8]) -> Result<Needs, ElfError> {
    let header = FileHeader64::<LittleEndian>::parse(bytes)?;
    let endian = header.endian()?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        let (received, expected) = (header.e_machine(endian).0, elf::EM_X86_64.0);
        return Err(ElfError::Machine { received, expected });
    }
    let segments = header.program_headers(endian, bytes)?;
    let mut needs = Needs::default();
    let mut rpath = Vec::new();
    // Names lie at addresses: the string table's place in the file follows from the segment that
    // loads it.
    let in_file = |address: u64| {
        segments.iter().find_map(|segment| {
            let start = segment.p_vaddr(endian);
            let inside = segment.p_type(endian) == elf::PT_LOAD
                && address >= start
                && address - start < segment.p_filesz(endian);
            inside.then(|| segment.p_offset(endian).checked_add(address - start)).flatten()
        })
    };
    for segment in segments {
        if let Some(interpreter) = segment.interpreter(endian, bytes)? {
            needs.interpreter = Some(PathBuf::from(String::from_utf8_lossy(interpreter).into_owned()));
        }
        let Some(dynamic) = segment.dynamic(endian, bytes)? else { continue };
        let value =
            |tag| dynamic.iter().find(|entry| entry.d_tag(endian) == tag).map(|entry| entry.d_val(endian));
        let Some(table) = value(elf::DT_STRTAB).and_then(in_file) else { continue };
        let name = |offset: u64| -> Result<String, ElfError> {
            let start = table
                .checked_add(offset)
                .and_then(|start| usize::try_from(start).ok())
                .filter(|start| *start < bytes.len())
                .ok_or(ElfError::NameBeyondEnd)?;
            let rest = &bytes[start..bytes.len().min(start.saturating_add(4096))];
            let end = rest.iter().position(|byte| *byte == 0).ok_or(ElfError::NameWithoutEnd)?;
            Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
        };
        for entry in dynamic {
            let list = |text: String| text.split(':').map(str::to_owned).collect::<Vec<_>>();
            match entry.d_tag(endian) {
                elf::DT_NULL => break,
                elf::DT_NEEDED => needs.libraries.push(name(entry.d_val(endian))?),
                elf::DT_RUNPATH => needs.search = list(name(entry.d_val(endian))?),
                elf::DT_RPATH => rpath = list(name(entry.d_val(endian))?),
                _ => {}
            }
        }
    }
    if needs.search.is_empty() {
        needs.search = rpath;
    }
    Ok(needs)
}

/// Number of libraries that the program `bytes` names, and number of those in the linker's cache.
/// For tests and fuzzing.
///
/// # Errors
/// Reason why it is not a program.
pub fn read_program(bytes: &[u8], cache: &[u8]) -> Result<(usize, usize), ElfError> {
    let (needs, cache) = (needs(bytes)?, ld_cache::parse(cache));
    let known = needs.libraries.iter().filter(|library| cache.contains_key(*library)).count();
    Ok((needs.libraries.len(), known))
}

/// Everything beside `program` itself that it needs: path in the guest, and the file of the host.
pub(super) fn closure(program: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, ImageError> {
    let cache = fs::read("/etc/ld.so.cache").map(|bytes| ld_cache::parse(&bytes)).unwrap_or_default();
    let mut found = BTreeMap::new();
    let mut by_name: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut queue = VecDeque::from([program.to_path_buf()]);
    let mut cache_used = false;
    while let Some(file) = queue.pop_front() {
        let bytes = fs::read(&file).map_err(|source| ImageError::Read { path: file.clone(), source })?;
        let needs = needs(&bytes).map_err(|reason| ImageError::NotAProgram { path: file.clone(), reason })?;
        if let Some(interpreter) = needs.interpreter {
            // The interpreter is also a library that others name: it must not be taken a second
            // time from elsewhere.
            if let Some(name) = interpreter.file_name() {
                by_name.entry(name.to_string_lossy().into_owned()).or_insert_with(|| interpreter.clone());
            }
            found.entry(interpreter.clone()).or_insert(interpreter);
        }
        let origin = file.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf));
        for library in needs.libraries {
            if by_name.contains_key(&library) {
                continue;
            }
            let own = needs.search.iter().map(|folder| expand(folder, origin.as_deref()));
            let mut places: Vec<PathBuf> = own.map(|folder| folder.join(&library)).collect();
            let own_places = places.len();
            places.extend(cache.get(&library).cloned());
            let cached_place = places.len();
            places.extend(STANDARD.iter().map(|folder| Path::new(folder).join(&library)));
            if library.contains('/') {
                places = vec![PathBuf::from(&library)];
            }
            let Some(place) = places.iter().position(|path| path.is_absolute() && path.is_file()) else {
                let searched =
                    places.iter().filter_map(|path| path.parent()).map(|path| path.display().to_string());
                return Err(ImageError::NoLibrary {
                    needed_by: file,
                    library,
                    searched: searched.collect::<Vec<_>>().join(", "),
                });
            };
            cache_used |= (own_places..cached_place).contains(&place);
            let path = plain(&places[place]);
            found.insert(path.clone(), path.clone());
            by_name.insert(library, path.clone());
            queue.push_back(path);
        }
    }
    if cache_used {
        // A library outside the standard folders is found in the guest as on the host.
        let cache = PathBuf::from("/etc/ld.so.cache");
        found.insert(cache.clone(), cache);
    }
    Ok(found)
}

/// `$ORIGIN` is the folder of the file that says so.
fn expand(folder: &str, origin: Option<&Path>) -> PathBuf {
    let origin = origin.map(|path| path.display().to_string()).unwrap_or_default();
    PathBuf::from(folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
}

/// The path without `.` and `..`, as the guest has no host's links to follow.
fn plain(path: &Path) -> PathBuf {
    if path.components().any(|part| part == std::path::Component::ParentDir) {
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        if let (Some(folder), Some(name)) = (folder, path.file_name()) {
            return folder.join(name);
        }
    }
    path.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_program_of_this_machine_needs_an_interpreter_and_the_c_library() {
        let program = std::env::current_exe().unwrap();
        let own = needs(&fs::read(&program).unwrap()).unwrap();
        assert!(
            own.interpreter.is_some() && own.libraries.iter().any(|name| name.starts_with("libc.so")),
            "{own:?}"
        );
        let all = closure(&program).unwrap();
        assert!(all.contains_key(&own.interpreter.unwrap()));
        for library in &own.libraries {
            let count = all
                .keys()
                .filter(|path| path.file_name().is_some_and(|name| name == library.as_str()))
                .count();
            assert_eq!(count, 1, "{library} in {all:?}");
        }
    }

    #[test]
    fn what_is_no_program_is_said_to_be_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let error = closure(file.path()).unwrap_err();
        assert!(matches!(error, ImageError::NotAProgram { .. }), "{error}");
    }

    #[test]
    fn the_origin_is_the_folder_of_the_file() {
        assert_eq!(expand("$ORIGIN/../lib", Some(Path::new("/opt/a/bin"))), Path::new("/opt/a/bin/../lib"));
        assert_eq!(expand("${ORIGIN}", Some(Path::new("/opt"))), Path::new("/opt"));
    }

    proptest! {
        #[test]
        fn a_damaged_file_never_panics(at in 0usize..8192, value: u8, cut in 0usize..20_000) {
            let mut bytes = fs::read("/proc/self/exe").unwrap();
            bytes.truncate(20_000);
            bytes[at] = value;
            bytes.truncate(cut);
            let _ = needs(&bytes);
        }
    }
}
