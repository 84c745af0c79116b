//! Why a kernel is not to be had.

use std::io;
use std::path::PathBuf;

use super::deb::DebError;
use crate::image_error::ImageError;

/// Why a kernel is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The machine has no apt.
    #[error(
        "this machine has no {program}, so it offers no kernel packages ({source}). Fix: give a kernel by path, \
         /path/to/vmlinuz, with its modules folder beside it"
    )]
    NoApt {
        /// The program that was wanted.
        program: &'static str,
        source: io::Error,
    },
    /// No package of that name is offered, nor in the cache.
    #[error("no kernel {name} is offered or in the cache{}. Fix: {fix}", there_are(near))]
    NotOffered { name: String, near: Vec<String>, fix: &'static str },
    /// There is no image of a kernel at a path.
    #[error("{path}: expected the image of a kernel (vmlinuz), found no file. Fix: `ls /boot/vmlinuz*` lists those of this machine", path = path.display())]
    NoImage { path: PathBuf },
    /// The package manager failed.
    #[error("{command} failed: {message}. Fix: {fix}")]
    Apt {
        command: String,
        /// The end of what it said.
        message: String,
        fix: &'static str,
    },
    /// What came is not what the distribution's signed lists promise.
    #[error(
        "{package}: {what} is {received}, expected {expected}. Nothing was kept. Fix: `apt-get update`, then fetch again; \
         if it stays, the mirror is broken"
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
    #[error("{package} has no {wanted} in it. Fix: name a package that `takt kernels list` shows")]
    NoKernelInside { package: String, wanted: &'static str },
    /// A file given as a kernel is none.
    #[error("{path} is no kernel for this machine: {reason}. Fix: give an x86 bzImage, such as /boot/vmlinuz-...", path = path.display())]
    NotAKernel { path: PathBuf, reason: String },
    /// A kernel cannot be used in a virtual machine without disks.
    #[error("kernel {release} lacks {}: it cannot run here. Fix: build it with these options, or take another", lacks.join(", "))]
    Unfit {
        release: String,
        /// The options that are missing.
        lacks: Vec<String>,
    },
    /// There is no place for the cache.
    #[error(
        "no place for the cache: neither XDG_CACHE_HOME nor HOME is set. Fix: set one, or name a folder with --cache"
    )]
    NoCache,
    /// A file or folder could not be read or written.
    #[error("{path}: {source}. Fix: name a place that exists and can be used, with 100 MiB free for each kernel", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// What is wrong with a package, or with what was kept of one.
#[derive(Debug, thiserror::Error)]
pub enum PackageDefect {
    /// The package's file.
    #[error(transparent)]
    Archive(#[from] DebError),
    /// The kernel's modules.
    #[error(transparent)]
    Modules(#[from] ImageError),
    /// What is written down of a kept kernel.
    #[error(transparent)]
    Facts(#[from] serde_json::Error),
    /// The kept kernel is another one.
    #[error("vmlinuz has SHA-256 {received}, expected {expected}")]
    OtherKernel {
        received: String,
        /// What was written down when it was kept.
        expected: String,
    },
}

fn there_are(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}
