//! Errors of obtaining a kernel.

use std::io;
use std::path::PathBuf;

use super::deb::DebError;
use crate::image_error::ImageError;

/// Error of obtaining a kernel.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The machine has no apt.
    #[error(
        "this machine has no {program}, so it offers no kernel packages ({source}). Fix: pass the path of a kernel, /path/to/vmlinuz, with \
         its modules folder next to it"
    )]
    NoApt {
        /// The program that was wanted.
        program: &'static str,
        source: io::Error,
    },
    /// No package of that name is offered, nor in the cache.
    #[error("kernel {name} is neither offered nor in the cache{}. Fix: {fix}", there_are(near))]
    NotOffered { name: String, near: Vec<String>, fix: &'static str },
    /// There is no image of a kernel at a path.
    #[error("{path}: expected a kernel image (vmlinuz), found no file. Fix: `ls /boot/vmlinuz*` lists those of this machine", path = path.display())]
    NoImage { path: PathBuf },
    /// The package manager failed.
    #[error("{command} failed: {message}. Fix: {fix}")]
    Apt {
        command: String,
        /// The end of what it said.
        message: String,
        fix: &'static str,
    },
    /// The download differs from the distribution's signed lists.
    #[error(
        "{package}: {what} is {received}, expected {expected}. Nothing was kept. Fix: `apt-get update`, then fetch again; if it fails \
         again, the mirror is broken"
    )]
    Mismatch {
        package: String,
        /// Size or SHA-256.
        what: &'static str,
        expected: String,
        received: String,
    },
    /// A package's file is broken.
    #[error("{path}: {reason}. Nothing was kept. Fix: fetch it again", path = path.display())]
    BrokenPackage { path: PathBuf, reason: Box<PackageDefect> },
    #[error("{package} does not contain {wanted}. Fix: name a package that `takt kernels list` shows")]
    NoKernelInside { package: String, wanted: &'static str },
    /// A file given as a kernel is none.
    #[error("{path} is not a kernel for this machine: {reason}. Fix: pass an x86 bzImage, such as /boot/vmlinuz-...", path = path.display())]
    NotAKernel { path: PathBuf, reason: String },
    /// A kernel cannot be used in a virtual machine without disks.
    #[error("kernel {release} lacks {}: it cannot run here. Fix: build it with these options, or use another kernel", lacks.join(", "))]
    Unfit {
        release: String,
        /// The options that are missing.
        lacks: Vec<String>,
    },
    /// There is no place for the cache.
    #[error(
        "no folder for the cache: neither XDG_CACHE_HOME nor HOME is set. Fix: set one, or name a folder with --cache"
    )]
    NoCache,
    /// A file or folder could not be read or written.
    #[error("{path}: {source}. Fix: name an existing, writable folder, with 100 MiB free for each kernel", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Fault of a package, or of its stored copy.
#[derive(Debug, thiserror::Error)]
pub enum PackageDefect {
    /// The package's file.
    #[error(transparent)]
    Archive(#[from] DebError),
    /// The kernel's modules.
    #[error(transparent)]
    Modules(#[from] ImageError),
    /// The stored facts about a kept kernel.
    #[error(transparent)]
    Facts(#[from] serde_json::Error),
    /// The kept kernel is another one.
    #[error("vmlinuz has SHA-256 {received}, expected {expected}")]
    OtherKernel {
        received: String,
        /// The facts stored when it was kept.
        expected: String,
    },
}

fn there_are(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}
