//! The shipped recording, carried inside the binary, so that the demonstration runs in any folder.

use std::fs;
use std::path::{Path, PathBuf};

use takt_lab::LabError;
use takt_rundir::sha256;

/// Prefix of the path of a built-in recording.
pub const PREFIX: &str = "builtin:";

struct Recording {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! pedestrians {
    ($($file:literal),*) => {
        [$(Recording {
            name: concat!("pedestrians/", $file),
            bytes: include_bytes!(concat!("../../../../recordings/pedestrians/", $file)),
        }),*]
    };
}

static RECORDINGS: [Recording; 5] =
    pedestrians!("cam0.mcap", "cam1.mcap", "cam2.mcap", "cam3.mcap", "cam4.mcap");

/// Checksums of the shipped files (`sha256sum` format), to find a damaged copy in the cache.
const SUMS: &str = include_str!("../../../../recordings/pedestrians/SHA256SUMS");

/// Names of the built-in recordings.
pub fn names() -> Vec<&'static str> {
    RECORDINGS.iter().map(|r| r.name).collect()
}

/// Path of a built-in recording as a file: among the shipped files, or unpacked into the user's
/// cache folder on first use.
///
/// # Errors
/// [`LabError::Files`] for an unknown name, [`LabError::Files`] when the cache cannot be written.
pub fn unpack(name: &str) -> Result<PathBuf, LabError> {
    let shipped = takt_files::data::file(&Path::new("recordings").join(name));
    match shipped.filter(|path| sha256(path).is_ok_and(|sum| sum == shipped_sum(name))) {
        Some(path) => Ok(path),
        None => unpack_into(&cache_folder(), name),
    }
}

fn unpack_into(cache: &Path, name: &str) -> Result<PathBuf, LabError> {
    let Some(recording) = RECORDINGS.iter().find(|r| r.name == name) else {
        return Err(LabError::Config(format!(
            "recording \"{PREFIX}{name}\" does not exist; built in: {}",
            names().iter().map(|n| format!("{PREFIX}{n}")).collect::<Vec<_>>().join(", ")
        )));
    };
    let path = cache.join("recordings").join(name);
    if sha256(&path).is_ok_and(|sum| sum == shipped_sum(name)) {
        return Ok(path);
    }
    let folder = path.parent().unwrap_or(cache);
    fs::create_dir_all(folder).map_err(LabError::io(folder))?;
    // Several processes may unpack at once: each renames a whole file of its own into place.
    let temporary = path.with_extension(format!("{}", std::process::id()));
    takt_files::write(&temporary, recording.bytes).map_err(LabError::io(&temporary))?;
    fs::rename(&temporary, &path).map_err(LabError::io(&path))?;
    Ok(path)
}

fn shipped_sum(name: &str) -> &'static str {
    let file = name.rsplit('/').next().unwrap_or(name);
    let line = SUMS.lines().find(|line| line.ends_with(file)).unwrap_or_default();
    line.split_whitespace().next().unwrap_or_default()
}

fn cache_folder() -> PathBuf {
    let set = |key: &str| takt_files::environment::var_os(key).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map_or_else(takt_files::state_folder, |cache| cache.join("takt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacks_mends_and_names_what_there_is() {
        let cache = tempfile::tempdir().unwrap();
        for name in names() {
            let path = unpack_into(cache.path(), name).unwrap();
            assert_eq!(sha256(&path).unwrap(), shipped_sum(name), "{name}");
        }
        let path = cache.path().join("recordings/pedestrians/cam0.mcap");
        fs::write(&path, "cut off").unwrap();
        unpack_into(cache.path(), "pedestrians/cam0.mcap").unwrap();
        assert_eq!(sha256(&path).unwrap(), shipped_sum("pedestrians/cam0.mcap"));
        let error = unpack_into(cache.path(), "pedestrians/cam9.mcap").unwrap_err().to_string();
        assert!(error.contains("builtin:pedestrians/cam4.mcap"), "{error}");
    }
}
