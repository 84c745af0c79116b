//! Errors of making an image.

use std::io;
use std::path::PathBuf;

/// Reason why bytes are not a program of the guest.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// They cannot be read as ELF.
    #[error(transparent)]
    Format(#[from] object::Error),
    /// They are for another processor.
    #[error("it is for another processor (ELF machine {received}, expected {expected})")]
    Machine {
        received: u16,
        /// x86-64.
        expected: u16,
    },
    /// A library's name starts beyond the end.
    #[error("a name extends beyond its end")]
    NameBeyondEnd,
    /// A library's name has no end.
    #[error("a name does not end")]
    NameWithoutEnd,
}

/// Error of making an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file of the host that goes into the image could not be read.
    #[error("{path}: {source}. Fix: name an existing, readable file", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The image itself could not be written.
    #[error("{path}: {source}. Fix: choose a writable folder with space for the image", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A path in the guest is not absolute, or leaves the root.
    #[error(
        "{given:?} is not a path for the guest: expected an absolute path without `..`, such as /usr/bin/takt"
    )]
    GuestPath { given: String },
    /// A file and a directory are wanted at the same place.
    #[error("{path} would be both a file and a directory. Fix: move one of them")]
    Clash {
        /// The path in the guest.
        path: String,
    },
    /// A file is too large for the format.
    #[error("{path} has {bytes} bytes; an initramfs holds files of less than 4 GiB. Fix: omit it", path = path.display())]
    TooLarge { path: PathBuf, bytes: u64 },
    /// A program is not an ELF file of this machine.
    #[error("{path} cannot be a program of the guest: {reason}. Fix: pass an x86-64 ELF program", path = path.display())]
    NotAProgram { path: PathBuf, reason: ElfError },
    /// A shared library that a program needs was not found.
    #[error(
        "{needed_by} needs {library}, which is in none of {searched}. Fix: install the package that contains it (`apt-file search \
         {library}`), or run ldconfig if it is in your own folder", needed_by = needed_by.display()
    )]
    NoLibrary {
        needed_by: PathBuf,
        library: String,
        /// Paths that were searched.
        searched: String,
    },
    /// A kernel has no such module.
    #[error("kernel {release} has no module {module}{}. Fix: {fix}", there_are(near))]
    NoModule { release: String, module: String, near: Vec<String>, fix: &'static str },
    /// A module's file or the list of modules is broken.
    #[error("{path}: {reason}. Fix: fetch the kernel again", path = path.display())]
    BrokenModule { path: PathBuf, reason: String },
}

fn there_are(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" (there are {})", names.join(", ")) }
}
