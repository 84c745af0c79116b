//! Reading what may be no file at all, or not ours.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Error, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading. Symbolic links are followed: who may read the target may name
/// it.
///
/// # Errors
/// The system's answer, or [`ErrorKind::InvalidInput`] that says what is there instead.
pub fn open(path: &Path) -> io::Result<File> {
    // Asked before as well: to open a device may already do something.
    regular(&fs::metadata(path)?)?;
    // O_NONBLOCK: a FIFO that took its place in between is not waited for; without effect on a
    // regular file.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `most_bytes` whole.
///
/// # Errors
/// As [`open`]; [`ErrorKind::FileTooLarge`].
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    whole(&open(path)?, most_bytes)
}

/// Reads a regular text file of at most `most_bytes` whole.
///
/// # Errors
/// As [`read`]; [`ErrorKind::InvalidData`] where it is not UTF-8.
pub fn read_to_string(path: &Path, most_bytes: u64) -> io::Result<String> {
    text(read(path, most_bytes)?)
}

/// Opens a file that this user (or root) wrote and nobody else can have: no symbolic link, no
/// second name, not writable by group or others. A file that controls actions with our rights must
/// belong to us.
///
/// # Errors
/// The system's answer, or [`ErrorKind::PermissionDenied`] that says why the file is not trusted.
pub fn open_own(path: &Path) -> io::Result<File> {
    regular(&fs::symlink_metadata(path)?)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    let own = rustix::process::geteuid().as_raw();
    let denied = |why: String| {
        Err(Error::new(
            ErrorKind::PermissionDenied,
            format!("not trusted: {why}; inspect it, and remove it or pass another path"),
        ))
    };
    if metadata.uid() != own && metadata.uid() != 0 {
        return denied(format!("it belongs to user {}, but this is user {own}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return denied(format!("group or others may write to it (mode {:04o})", metadata.mode() & 0o7777));
    }
    if metadata.nlink() != 1 {
        return denied(format!("it has {} names (hard links)", metadata.nlink()));
    }
    Ok(file)
}

/// Reads a text file that this user (or root) wrote, as [`open_own`].
///
/// # Errors
/// As [`open_own`] and [`read_to_string`].
pub fn read_own(path: &Path, most_bytes: u64) -> io::Result<String> {
    text(whole(&open_own(path)?, most_bytes)?)
}

/// Opens a regular file for appending, or makes it; a symbolic link is not followed.
///
/// # Errors
/// The system's answer ([`ErrorKind::FilesystemLoop`] for a symbolic link), or
/// [`ErrorKind::InvalidInput`].
pub fn append(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = OpenOptions::new().create(true).append(true).custom_flags(flags).open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file that is there for writing, as it is; a symbolic link is not followed.
///
/// # Errors
/// As [`append`]; [`ErrorKind::NotFound`].
pub fn open_for_change(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file for reading and writing, as it is, to share memory with whoever made it; a
/// symbolic link is not followed. It is to be mapped by [`Mapped`](crate::Mapped): its maker can
/// cut it.
///
/// # Errors
/// As [`open_for_change`].
pub fn open_shared(path: &Path) -> io::Result<File> {
    regular(&fs::symlink_metadata(path)?)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a lock file in a folder where others may have planted something, or makes it, for this
/// user alone. A symbolic link is not followed, and a FIFO is not waited for.
///
/// # Errors
/// As [`append`].
pub fn open_lock(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens an output that the user named, emptied. It may be a device or a pipe (`/dev/stdout`), and
/// a symbolic link that this user or root made; one that somebody else made is not followed. A FIFO
/// that nobody reads is not waited for.
///
/// # Errors
/// The system's answer, [`ErrorKind::PermissionDenied`], or [`ErrorKind::InvalidInput`] for a FIFO
/// without a reader.
pub fn create_output(path: &Path) -> io::Result<File> {
    let unread = |error: Error| match error.raw_os_error() {
        Some(libc::ENXIO) => Error::new(ErrorKind::InvalidInput, "a FIFO that no process reads; name a file"),
        _ => error,
    };
    let file = open_output(path).map_err(unread)?;
    // Only opening must not wait: who writes to a pipe waits for its reader, as with any pipe.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
    Ok(file)
}

fn open_output(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    match fs::symlink_metadata(path) {
        Ok(link) if link.file_type().is_symlink() => {
            let own = rustix::process::geteuid().as_raw();
            if link.uid() != own && link.uid() != 0 {
                return Err(Error::new(
                    ErrorKind::PermissionDenied,
                    format!("a symbolic link of user {}, which is not followed; name its target", link.uid()),
                ));
            }
            options.custom_flags(flags).open(path)
        }
        _ => options.custom_flags(flags | libc::O_NOFOLLOW).open(path),
    }
}

/// A longer file is held against the memory that is free before it takes any: a sparse file of
/// gigabytes costs who made it nothing.
const LARGE_BYTES: u64 = 64 << 20;

fn whole(file: &File, most_bytes: u64) -> io::Result<Vec<u8>> {
    let too_large = |text: String| Error::new(ErrorKind::FileTooLarge, text);
    let over = |bytes: &str| too_large(format!("{bytes} bytes; at most {most_bytes} are read here"));
    let length = file.metadata()?.len();
    if length > most_bytes {
        return Err(over(&length.to_string()));
    }
    if length > LARGE_BYTES
        && let Some(free_bytes) = free_memory_bytes()
        && length > free_bytes
    {
        return Err(too_large(format!(
            "{length} bytes, but only {free_bytes} bytes of memory are free; read a shorter file, or end other programs"
        )));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX))?;
    // As it is now: one that is lengthened while it is read may have no end. Files of /proc and
    // /sys have no length.
    let until = if length > 0 { length } else { most_bytes.min(LARGE_BYTES).saturating_add(1) };
    file.take(until).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        found if found > most_bytes => Err(over(&format!("more than {most_bytes}"))),
        found if length == 0 && found == until => Err(too_large(format!(
            "more than {LARGE_BYTES} bytes, but empty when it was opened: another program is writing it"
        ))),
        _ => Ok(bytes),
    }
}

fn free_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        Error::new(ErrorKind::InvalidData, format!("not a text (UTF-8): {}", error.utf8_error()))
    })
}

fn regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let found = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_symlink() => "a symbolic link",
        () => "a device",
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("{found}; copy it into a regular file")))
}
