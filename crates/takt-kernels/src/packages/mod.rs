//! Kernels: from the distribution's packages or by path.
//!
//! ```no_run
//! use takt_kernels::packages::Store;
//!
//! let store = Store::open(None)?;
//! let kernel = store.get("rt", &mut |line| eprintln!("{line}"))?;
//! println!("{}: {}", kernel.release, kernel.preemption.map(|p| p.to_string()).unwrap_or_default());
//! # Ok::<(), takt_kernels::packages::PackageError>(())
//! ```
//!
//! Nothing is installed, and no boot setting changes: a package is downloaded into a cache folder,
//! checked against the distribution's lists, and the kernel with the modules of virtual devices is
//! taken out of it.

mod apt;
mod bzimage;
mod config;
mod deb;
mod error;
pub mod modules;
mod names;
mod store;
mod version;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use config::{Model, Preemption, value as config_value};
pub use deb::{DebError, Limits, Unpacked, unpack};
pub use error::{PackageDefect, PackageError};
pub use names::Listed;
pub use store::Store;

/// A kernel that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Requested name: `rt`, `6.12`, a package, or a path.
    pub name: String,
    /// Its release, as `uname -r` says it.
    pub release: String,
    /// The kernel's file.
    pub vmlinuz: PathBuf,
    /// Its `lib/modules/RELEASE`; nothing where all it needs is built in.
    pub modules: Option<PathBuf>,
    /// Its configuration, where there is one.
    pub config: Option<PathBuf>,
    /// Its own version string: release, builder and date, PREEMPT_...
    pub version: String,
    /// Its preemption as configured, where a configuration or its version says so.
    pub preemption: Option<Preemption>,
    /// SHA-256 of the kernel's file.
    pub sha256: String,
    /// The package it comes from; nothing for a kernel by path.
    pub package: Option<Package>,
}

/// The package of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// SHA-256 of the package, as the distribution's lists have it and as it was.
    pub sha256: String,
}

impl Kernel {
    /// A kernel given as a file. Modules and configuration are taken from where distributions put
    /// them beside it, or from `modules`, a `lib/modules/RELEASE`.
    pub fn from_path(vmlinuz: &Path, modules: Option<&Path>) -> Result<Self, PackageError> {
        let io = |source| PackageError::Io { path: vmlinuz.to_path_buf(), source };
        let vmlinuz = &vmlinuz.canonicalize().map_err(io)?;
        let version = bzimage::describe(vmlinuz)
            .map_err(io)?
            .map_err(|reason| PackageError::NotAKernel { path: vmlinuz.clone(), reason })?;
        let release = version.split_whitespace().next().unwrap_or_default().to_owned();
        let folder = vmlinuz.parent().unwrap_or(Path::new("/"));
        let modules = match modules {
            Some(given) if !given.is_dir() => {
                let source =
                    fs::read_dir(given).err().unwrap_or_else(|| std::io::ErrorKind::NotADirectory.into());
                return Err(PackageError::Io { path: given.to_path_buf(), source });
            }
            Some(given) => Some(given.to_path_buf()),
            None => {
                let beside = [
                    folder.join("lib/modules"),
                    folder.join("../lib/modules"),
                    PathBuf::from("/lib/modules"),
                ];
                beside.into_iter().map(|parent| parent.join(&release)).find(|folder| folder.is_dir())
            }
        };
        let beside = [folder.join("config"), folder.join(format!("config-{release}"))];
        let of_modules = modules.iter().map(|modules| modules.join("config"));
        let config = beside.into_iter().chain(of_modules).find(|path| path.is_file());
        let text = config.as_deref().map(fs::read_to_string).transpose().map_err(io)?;
        let preemption = text.as_deref().and_then(Preemption::of_config).or_else(|| of_version(&version));
        if let Some(lacks) = text.as_deref().map(config::lacks).filter(|lacks| !lacks.is_empty()) {
            return Err(PackageError::Unfit { release, lacks });
        }
        Ok(Self {
            name: vmlinuz.display().to_string(),
            sha256: store::sha256(vmlinuz).map_err(io)?,
            vmlinuz: vmlinuz.clone(),
            release,
            modules,
            config,
            version,
            preemption,
            package: None,
        })
    }
}

/// The preemption of a kernel without a configuration, from "#1 SMP PREEMPT_RT ...". A dynamic one
/// does not say its default there.
fn of_version(version: &str) -> Option<Preemption> {
    let words: Vec<&str> = version.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    let model = match () {
        () if has("PREEMPT_RT") => Model::Rt,
        () if has("PREEMPT_LAZY") => Model::Lazy,
        () if has("PREEMPT") => Model::Full,
        () => return None,
    };
    Some(Preemption { model, dynamic: false })
}

/// Up to six of `names` that resemble `wanted`: those that contain it or differ in few letters.
pub(crate) fn near_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut near: Vec<(usize, &str)> = names
        .map(|name| (if name.contains(wanted) { 0 } else { distance(wanted, name) }, name))
        .filter(|(distance, _)| *distance <= 3.max(wanted.len() / 3))
        .collect();
    near.sort();
    near.into_iter().take(6).map(|(_, name)| name.to_owned()).collect()
}

/// Number of letters that must change (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_by_path_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinuz-6.1.0-9-rt");
        fs::write(&path, bzimage::sample("6.1.0-9-rt (x@y) #1 SMP PREEMPT_RT Debian")).unwrap();
        fs::create_dir_all(folder.path().join("lib/modules/6.1.0-9-rt")).unwrap();
        let kernel = Kernel::from_path(&path, None).unwrap();
        assert_eq!(kernel.release, "6.1.0-9-rt");
        assert_eq!(kernel.preemption.unwrap().to_string(), "PREEMPT_RT");
        assert!(kernel.modules.unwrap().ends_with("lib/modules/6.1.0-9-rt"));
        assert_eq!(kernel.sha256.len(), 64);
    }

    #[test]
    fn what_cannot_start_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinuz");
        fs::write(&path, "MZ").unwrap();
        let error = Kernel::from_path(&path, None).unwrap_err();
        assert!(matches!(error, PackageError::NotAKernel { .. }), "{error}");
        fs::write(&path, bzimage::sample("6.1.0 (x@y) #1")).unwrap();
        fs::write(folder.path().join("config"), "CONFIG_SMP=y\n").unwrap();
        let error = Kernel::from_path(&path, None).unwrap_err().to_string();
        assert!(
            error.contains("CONFIG_SERIAL_8250_CONSOLE") && error.contains("CONFIG_BLK_DEV_INITRD"),
            "{error}"
        );
    }

    #[test]
    fn names_that_look_alike_are_found() {
        let names = ["generic", "rt", "cloud", "6.12", "6.12-rt"];
        assert_eq!(near_names("genric", names.into_iter()), ["generic"]);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
