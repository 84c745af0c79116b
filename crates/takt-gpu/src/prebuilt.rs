//! Kernels compiled beforehand, for machines with a driver and without NVRTC: a folder with
//! `kernels.json` and one file for each source, device and CUDA version.
//!
//! Machine code (a cubin) runs on devices of the same major compute capability and the same or a
//! newer minor one, and needs a driver of the same or a newer major CUDA version than its
//! compiler's (CUDA C++ Programming Guide, "Binary Compatibility"; CUDA Compatibility, "Minor
//! Version Compatibility"). PTX runs on the same and all newer devices, and its driver must be as
//! new as the compiler.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::GpuError;
use crate::gpu::Info;
use crate::nvrtc::{Compiled, Compiler};
use crate::source::Source;

/// Names the folder.
pub const VARIABLE: &str = "TAKT_GPU_KERNELS";

/// List of the folder's contents.
const LIST: &str = "kernels.json";

/// Longest list, bytes.
const MAX_LIST_BYTES: u64 = 1 << 20;

/// Longest image, bytes.
const MAX_IMAGE_BYTES: u64 = 64 << 20;

/// One compiled source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name of the source.
    pub source: String,
    /// Hash of its text and options: another version of this program does not take it.
    pub text_sha256: String,
    /// Compute capability that it was compiled for.
    pub capability: (u32, u32),
    /// PTX text instead of machine code.
    pub ptx: bool,
    /// The compiler's version.
    pub cuda: (i32, i32),
    /// Made by the emulated device's compiler, for it.
    pub emulated: bool,
    /// File in the folder.
    pub file: String,
    /// Hash of the file.
    pub sha256: String,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capability: (major, minor), ptx, cuda, .. } = self;
        write!(
            f,
            "{} {}{major}{minor} of CUDA {}.{}",
            self.source,
            if *ptx { "PTX compute_" } else { "cubin sm_" },
            cuda.0,
            cuda.1
        )
    }
}

/// Machine code, device, compiler.
type Fit = (bool, (u32, u32), (i32, i32));

impl Entry {
    /// Fitness for the device; `None`: it does not run there. Greater is better: machine code
    /// before PTX, then the nearest device, then the newest compiler.
    fn fit(&self, info: &Info) -> Option<Fit> {
        let driver = info.driver_version;
        let runs = if self.emulated || info.emulated {
            self.emulated == info.emulated
        } else if self.ptx {
            self.capability <= info.compute_capability && self.cuda.0 * 1000 + self.cuda.1 * 10 <= driver
        } else {
            self.capability.0 == info.compute_capability.0
                && self.capability.1 <= info.compute_capability.1
                && self.cuda.0 <= driver / 1000
        };
        runs.then_some((!self.ptx, self.capability, self.cuda))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text_hash(source: &Source) -> String {
    let mut hash = Sha256::new();
    for part in [source.name, source.text].iter().chain(source.options) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

fn io(what: &'static str, path: &Path, error: &std::io::Error) -> GpuError {
    GpuError::System { what, reason: format!("{}: {error}", path.display()) }
}

fn list_in(folder: &Path) -> Result<Vec<Entry>, String> {
    let path = folder.join(LIST);
    let text = takt_files::read_to_string(&path, MAX_LIST_BYTES)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Compiles `sources` with `compiler` for each device of `capabilities`, and to PTX for the oldest
/// of them, into `folder`. Files of other compiler versions stay there. Needs no GPU and no driver.
///
/// # Errors
/// [`GpuError::Compile`], or [`GpuError::System`] where the folder cannot be written.
pub fn build(
    compiler: &Compiler,
    sources: &[&Source],
    capabilities: &[(u32, u32)],
    folder: &Path,
) -> Result<Vec<Entry>, GpuError> {
    takt_files::make_folder(folder).map_err(|error| io("folder of kernels", folder, &error))?;
    let (cuda, emulated) = (compiler.version(), compiler.is_emulated());
    let mut list: Vec<Entry> = list_in(folder).unwrap_or_default();
    list.retain(|entry| entry.cuda != cuda || entry.emulated != emulated);
    let mut made = Vec::new();
    // The emulated device's compiler knows that device alone.
    let capabilities = if emulated { &[(0, 0)][..] } else { capabilities };
    let ptx_of = capabilities.iter().min().copied().filter(|_| !emulated);
    for source in sources {
        let exact = capabilities.iter().map(|&capability| (capability, false));
        for (capability, ptx) in exact.chain(ptx_of.map(|capability| (capability, true))) {
            let image = if ptx {
                compiler.compile_ptx(source, capability)?
            } else {
                compiler.compile(source, capability)?
            };
            let kind = if ptx { "ptx" } else { "cubin" };
            let file = format!(
                "{}-sm{}{}-cuda{}.{}.{kind}",
                source.name, capability.0, capability.1, cuda.0, cuda.1
            );
            let path = folder.join(&file);
            takt_files::write(&path, image.bytes()).map_err(|error| io("kernel", &path, &error))?;
            made.push(Entry {
                source: source.name.to_owned(),
                text_sha256: text_hash(source),
                capability,
                ptx,
                cuda,
                emulated,
                file,
                sha256: hex(&Sha256::digest(image.bytes())),
            });
        }
    }
    list.extend(made.iter().cloned());
    let text = serde_json::to_string_pretty(&list)
        .map_err(|error| GpuError::System { what: "list of kernels", reason: error.to_string() })?;
    let path = folder.join(LIST);
    takt_files::write(&path, text).map_err(|error| io("list of kernels", &path, &error))?;
    Ok(made)
}

/// The folder that the environment names.
fn folder() -> Option<PathBuf> {
    takt_files::environment::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

pub(crate) fn find(source: &Source, info: &Info) -> Result<Compiled, String> {
    find_entry(source, info).map(|(_, compiled)| compiled)
}

/// The best for this device; else why there is none.
pub(crate) fn find_entry(source: &Source, info: &Info) -> Result<(Entry, Compiled), String> {
    let folder = folder().ok_or_else(|| format!("{VARIABLE} (not set)"))?;
    find_in(&folder, source, info)
}

fn find_in(folder: &Path, source: &Source, info: &Info) -> Result<(Entry, Compiled), String> {
    let list = list_in(folder)?;
    let hash = text_hash(source);
    let same: Vec<Entry> = list.into_iter().filter(|entry| entry.source == source.name).collect();
    let current: Vec<&Entry> = same.iter().filter(|entry| entry.text_sha256 == hash).collect();
    let best =
        current.iter().filter_map(|entry| Some((entry.fit(info)?, *entry))).max_by_key(|(fit, _)| *fit);
    let Some((_, entry)) = best else {
        let (major, minor) = info.compute_capability;
        let there = same.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let old = if current.len() < same.len() { ", some of another version of takt" } else { "" };
        return Err(format!(
            "{}: no kernel of `{}` runs on sm_{major}{minor} with CUDA {} (there: {}{old})",
            folder.display(),
            source.name,
            crate::CudaVersion(info.driver_version),
            if there.is_empty() { "none" } else { &there },
        ));
    };
    let path = folder.join(&entry.file);
    let image =
        takt_files::read(&path, MAX_IMAGE_BYTES).map_err(|error| format!("{}: {error}", path.display()))?;
    if hex(&Sha256::digest(&image)) != entry.sha256 || image.is_empty() {
        return Err(format!("{}: not the file that {LIST} lists: copy it again", path.display()));
    }
    Ok((entry.clone(), Compiled::new(image)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source = Source { name: "a", text: "b", options: &[] };

    fn info(capability: (u32, u32), driver: i32) -> Info {
        Info {
            ordinal: 0,
            name: String::new(),
            uuid: String::new(),
            compute_capability: capability,
            multiprocessors: 1,
            driver_version: driver,
            total_bytes: 1,
            priorities: (0, 0),
            emulated: false,
        }
    }

    /// Device, PTX, compiler.
    type Made = ((u32, u32), bool, (i32, i32));

    fn shelf(folder: &Path, made: &[Made]) {
        let list: Vec<Entry> = made
            .iter()
            .map(|&(capability, ptx, cuda)| {
                let file = format!("{capability:?}{ptx}{cuda:?}");
                std::fs::write(folder.join(&file), &file).unwrap();
                Entry {
                    source: "a".into(),
                    text_sha256: text_hash(&SOURCE),
                    capability,
                    ptx,
                    cuda,
                    emulated: false,
                    sha256: hex(&Sha256::digest(&file)),
                    file,
                }
            })
            .collect();
        std::fs::write(folder.join(LIST), serde_json::to_string(&list).unwrap()).unwrap();
    }

    #[test]
    fn what_runs_on_the_device_is_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let all = [
            ((8, 0), false, (12, 9)),
            ((8, 0), false, (13, 0)),
            ((8, 9), false, (12, 9)),
            ((9, 0), false, (12, 9)),
            ((8, 0), true, (12, 4)),
        ];
        shelf(folder.path(), &all);
        let found = |capability, driver| {
            find_in(folder.path(), &SOURCE, &info(capability, driver)).map(|(entry, _)| entry.to_string())
        };
        assert_eq!(found((9, 0), 12000).unwrap(), "a cubin sm_90 of CUDA 12.9");
        assert_eq!(found((8, 0), 13000).unwrap(), "a cubin sm_80 of CUDA 13.0");
        assert_eq!(found((8, 0), 12000).unwrap(), "a cubin sm_80 of CUDA 12.9", "not code of CUDA 13");
        assert_eq!(found((8, 6), 12000).unwrap(), "a cubin sm_80 of CUDA 12.9", "an older minor one runs");
        assert_eq!(found((8, 9), 13000).unwrap(), "a cubin sm_89 of CUDA 12.9", "the nearest device first");
        assert_eq!(found((10, 0), 12040).unwrap(), "a PTX compute_80 of CUDA 12.4");
        let why = found((10, 0), 12030).unwrap_err();
        assert!(why.contains("sm_100") && why.contains("12.3") && why.contains("sm_90"), "{why}");
        assert!(found((7, 5), 13000).is_err());
    }

    #[test]
    fn a_torn_file_and_another_text_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        shelf(folder.path(), &[((9, 0), false, (12, 9))]);
        let other = Source { text: "c", ..SOURCE };
        let why = find_in(folder.path(), &other, &info((9, 0), 12040)).unwrap_err();
        assert!(why.contains("another version of takt"), "{why}");
        std::fs::write(folder.path().join("(9, 0)false(12, 9)"), "torn").unwrap();
        let why = find_in(folder.path(), &SOURCE, &info((9, 0), 12040)).unwrap_err();
        assert!(why.contains("copy it again"), "{why}");
        std::fs::write(folder.path().join(LIST), "{").unwrap();
        assert!(find_in(folder.path(), &SOURCE, &info((9, 0), 12040)).unwrap_err().contains(LIST));
        assert!(find_in(Path::new("/nonexistent"), &SOURCE, &info((9, 0), 12040)).is_err());
    }
}
