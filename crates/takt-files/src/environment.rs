//! Environment variables that decide what is loaded or run.
//!
//! A program that got rights from its file (set-user-ID, or capabilities by `setcap`) is started by
//! somebody who lacks them. The kernel says so in the auxiliary vector (AT_SECURE, getauxval(3)),
//! and then nothing that the starter names may be loaded into it: the dynamic linker drops
//! LD_PRELOAD and LD_LIBRARY_PATH, and [`var_os`] does the same for ours, as secure_getenv(3).

use std::ffi::OsString;
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Search path for programs when PATH is not trusted.
pub const SAFE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables kept in a process that has more rights than its starter: those about printing, and
/// none that names a file.
const HARMLESS: [&str; 9] =
    ["TERM", "LANG", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES", "NO_COLOR", "COLORTERM", "RUST_BACKTRACE"];

/// Whether this process has rights that who started it may not have.
pub fn is_secure() -> bool {
    // SAFETY: getauxval has no preconditions.
    let was = unsafe { libc::getauxval(libc::AT_SECURE) != 0 };
    was && !crate::rights::given_up()
}

/// The variable, where it may be believed: `None` in a process with rights from its file.
pub fn var_os(name: &str) -> Option<OsString> {
    if is_secure() { None } else { std::env::var_os(name) }
}

/// Refuses the file that the variable `name` names for a library which opens whatever is there: it
/// would wait for a FIFO, and read a device without end. The library itself reports other faults of
/// the file.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] or [`ErrorKind::FileTooLarge`], with the variable in the text.
pub fn check_file(name: &str, file: &Path, most_bytes: u64) -> io::Result<()> {
    let refused = |kind, why: String| Err(Error::new(kind, format!("{name}={}: {why}", file.display())));
    match crate::open(file).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.len() > most_bytes => refused(
            ErrorKind::FileTooLarge,
            format!("{} bytes; at most {most_bytes} are read here", metadata.len()),
        ),
        Err(error) if error.kind() == ErrorKind::InvalidInput => refused(error.kind(), error.to_string()),
        _ => Ok(()),
    }
}

/// In a process with rights from its file: drops all variables but those that only say how to
/// print, and sets PATH to [`SAFE_PATH`], for this process, the libraries in it and the processes
/// that it starts. The names of what was dropped.
///
/// # Safety
/// No other thread may run: to be called first in `main`.
pub unsafe fn drop_untrusted() -> Vec<OsString> {
    if !is_secure() {
        return Vec::new();
    }
    let untrusted = |name: &OsString| !HARMLESS.iter().any(|kept| name == kept);
    let dropped: Vec<OsString> = std::env::vars_os().map(|(name, _)| name).filter(untrusted).collect();
    for name in &dropped {
        // SAFETY: the caller's: no other thread reads the environment.
        unsafe { std::env::remove_var(name) };
    }
    // SAFETY: as above.
    unsafe { std::env::set_var("PATH", SAFE_PATH) };
    dropped
}

/// Whether `library` may be loaded into this process, and the path to open it by. With rights from
/// its file, only what root alone can have put there may; the path is then the one that was looked
/// at, without links, since a link of the starter's could lead elsewhere by the time that it is
/// opened.
///
/// # Errors
/// The system's answer, or [`ErrorKind::PermissionDenied`] that names the part of the path that
/// others can change.
pub fn check_library(library: &Path) -> io::Result<PathBuf> {
    if is_secure() { only_root_writes(library) } else { Ok(library.to_path_buf()) }
}

/// The path of the file, links resolved, where it and all folders above it belong to root and
/// nobody else may write to them.
fn only_root_writes(file: &Path) -> io::Result<PathBuf> {
    let file = file.canonicalize()?;
    for part in file.ancestors() {
        let metadata = part.symlink_metadata()?;
        if metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
            let text = format!(
                "{} can be changed by others than root (user {}, mode {:04o}), and this program has capabilities from its \
                 file: install the library as root, or run as root",
                part.display(),
                metadata.uid(),
                metadata.mode() & 0o7777
            );
            return Err(Error::new(ErrorKind::PermissionDenied, text));
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_can_change_is_no_library_of_a_privileged_program() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("lib.so");
        fs::write(&library, "").unwrap();
        // A folder of everybody's, sticky or not, lets anybody put a file there.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(only_root_writes(&library).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(only_root_writes(Path::new("/nowhere/lib.so")).is_err());
        assert_eq!(
            check_library(&library).ok(),
            Some(library),
            "an ordinary program loads what its user says"
        );
        if let Ok(usual) = only_root_writes(Path::new("/usr/lib")) {
            // Opening the given path opens the link's current target.
            let link = folder.path().join("link");
            std::os::unix::fs::symlink("/usr/lib", &link).unwrap();
            assert_eq!(only_root_writes(&link).unwrap(), usual, "links are resolved");
        }
    }

    #[test]
    fn a_link_that_is_swapped_meanwhile_leads_to_nothing_of_others() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let planted = folder.path().join("planted");
        fs::create_dir(&planted).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o777)).unwrap();
        let Ok(usual) = only_root_writes(Path::new("/usr/lib")) else { return };
        let link = folder.path().join("link");
        let lead = |to: &Path| {
            // A reader always sees one of the two.
            let draft = folder.path().join("draft");
            std::os::unix::fs::symlink(to, &draft).unwrap();
            fs::rename(&draft, &link).unwrap();
        };
        lead(&usual);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    lead(&planted);
                    lead(&usual);
                }
            });
            let seen = (0..5000).filter_map(|_| only_root_writes(&link).ok()).inspect(|path| {
                // The examined file, not the link, which now belongs to another user.
                assert_eq!(path, &usual);
            });
            let allowed = seen.count();
            done.store(true, Ordering::Relaxed);
            println!("{allowed} of 5000 looks found the library of root");
        });
    }
}
