//! The files of a recording that is a folder: those of rosbag2, in their order.
//!
//! rosbag2 writes `metadata.yaml` when it ends. It lists the files; a recorder that was killed
//! leaves none, and then the numbers at the end of the files' names are their order.

use std::path::{Path, PathBuf};

use super::limits::{MAX_BAG_METADATA_BYTES, MAX_FILES};
use crate::error::CameraError;

const METADATA: &str = "metadata.yaml";
const MCAP: &str = ".mcap";
/// Most names that an error lists.
const MAX_SHOWN_FILES: usize = 5;

const CONVERT: &str =
    "convert it: ros2 bag convert, or rosbags-convert --src FOLDER --dst NEW --dst-storage mcap";
const DECOMPRESS: &str = "decompress its files first: zstd -d --rm FOLDER/*.zstd";
const ONE: &str = "set `path` to one of its files";

/// The files that `path` names: itself or, of a folder, the parts of the recording in it.
///
/// # Errors
/// A folder that is no recording, or one of another storage.
pub(super) fn files_of(path: &Path) -> Result<Vec<PathBuf>, CameraError> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let metadata = path.join(METADATA);
    let listed = match metadata.exists() {
        true => Bag::of(&text_of(&metadata)?),
        false => Bag::default(),
    };
    let there = names_in(path)?;
    let names = match listed.files.is_empty() {
        true => by_number(path, &there)?,
        false => by_list(path, &listed, &there)?,
    };
    Ok(names.into_iter().map(|name| path.join(name)).collect())
}

fn text_of(metadata: &Path) -> Result<String, CameraError> {
    takt_files::read_to_string(metadata, MAX_BAG_METADATA_BYTES)
        .map_err(|source| CameraError::File { path: metadata.into(), source })
}

fn refused(path: &Path, found: String, advice: &'static str) -> CameraError {
    CameraError::Folder { path: path.into(), found, advice }
}

/// Names of the files in a folder that may be of a recording, sorted.
fn names_in(path: &Path) -> Result<Vec<String>, CameraError> {
    let error = |source| CameraError::File { path: path.into(), source };
    let mut names = Vec::new();
    for (number, entry) in std::fs::read_dir(path).map_err(error)?.enumerate() {
        if number >= MAX_FILES {
            let found = format!("a folder with more than {MAX_FILES} files");
            return Err(refused(path, found, ONE));
        }
        let name = entry.map_err(error)?.file_name().to_string_lossy().into_owned();
        if [MCAP, ".zstd", ".db3", ".bag"].iter().any(|end| name.ends_with(end)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Content of `metadata.yaml`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bag {
    storage: String,
    files: Vec<String>,
}

impl Bag {
    /// Reads the two keys that matter. The file is written by rosbag2 or rosbags, each key on a
    /// line of its own; a list that is written in another way is not found, and names decide.
    fn of(text: &str) -> Self {
        let mut bag = Self::default();
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let Some((key, value)) = line.split_once(':') else { continue };
            match key {
                "storage_identifier" => bag.storage = unquoted(value).to_owned(),
                "relative_file_paths" if value.trim().starts_with('[') => {
                    let items = value.trim().trim_matches(['[', ']']).split(',');
                    bag.files.extend(items.filter_map(file_name));
                }
                "relative_file_paths" => {
                    while let Some(item) = lines.next_if(|line| line.starts_with("- ")) {
                        bag.files.extend(file_name(&item[2..]));
                    }
                }
                _ => {}
            }
            if bag.files.len() > MAX_FILES {
                break;
            }
        }
        bag
    }
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    ['"', '\''].iter().find_map(|&mark| value.strip_prefix(mark)?.strip_suffix(mark)).unwrap_or(value)
}

/// The last part of a listed path: parts lie in the recording's own folder, whatever the list says.
fn file_name(value: &str) -> Option<String> {
    let name = unquoted(value).rsplit('/').next().unwrap_or_default();
    (!name.is_empty() && name != "." && name != "..").then(|| name.to_owned())
}

fn by_list(path: &Path, bag: &Bag, there: &[String]) -> Result<Vec<String>, CameraError> {
    if !matches!(bag.storage.as_str(), "" | "mcap") {
        let storage = takt_files::quoted(&bag.storage);
        return Err(refused(
            path,
            format!("a ROS 2 recording with `{storage}` storage, expected `mcap`"),
            CONVERT,
        ));
    }
    if bag.files.len() > MAX_FILES {
        return Err(refused(path, format!("{METADATA} lists more than {MAX_FILES} files"), ONE));
    }
    let is_there = |name: &str| there.binary_search_by(|other| other.as_str().cmp(name)).is_ok();
    let mut names = Vec::new();
    for name in &bag.files {
        // It may have been decompressed since.
        let plain = name.strip_suffix(".zstd").unwrap_or(name);
        if is_there(plain) {
            names.push(plain.to_owned());
        } else if is_there(name) || is_there(&format!("{plain}.zstd")) {
            return Err(compressed(path, &format!("{plain}.zstd")));
        } else {
            let found = format!("{METADATA} lists `{}`, which is missing", takt_files::quoted(name));
            return Err(refused(path, found, "copy it into the folder, or remove its line from the list"));
        }
    }
    Ok(names)
}

fn compressed(path: &Path, name: &str) -> CameraError {
    refused(path, format!("its files are compressed (`{}`)", takt_files::quoted(name)), DECOMPRESS)
}

/// A part's name without its number, and the number.
fn numbered(name: &str) -> Option<(&str, u32)> {
    let (stem, number) = name.strip_suffix(MCAP)?.rsplit_once('_')?;
    Some((stem, number.parse().ok()?))
}

/// The MCAP files of a folder without a list: one, or several that differ in their number.
fn by_number(path: &Path, there: &[String]) -> Result<Vec<String>, CameraError> {
    let files: Vec<&String> = there.iter().filter(|name| name.ends_with(MCAP)).collect();
    if let [only] = files[..] {
        return Ok(vec![only.clone()]);
    }
    let Some(first) = files.first() else {
        return Err(match there.first() {
            Some(name) if name.ends_with(".zstd") => compressed(path, name),
            Some(name) if name.ends_with(".bag") => {
                refused(path, "a folder with bags of ROS 1".into(), CONVERT)
            }
            Some(_) => refused(
                path,
                "a ROS 2 recording with SQLite storage (`.db3`), expected `.mcap`".into(),
                CONVERT,
            ),
            None => refused(path, "a folder without an MCAP file".into(), "set `path` to a recording"),
        });
    };
    let stem = numbered(first).map(|(stem, _)| stem);
    let mut parts: Vec<(u32, &String)> = files
        .iter()
        .filter_map(|name| numbered(name).filter(|part| Some(part.0) == stem).map(|part| (part.1, *name)))
        .collect();
    if parts.len() < files.len() {
        let shown: Vec<String> =
            files.iter().take(MAX_SHOWN_FILES).map(|name| takt_files::quoted(name)).collect();
        let more = if files.len() > shown.len() { ", …" } else { "" };
        let found = format!(
            "{} MCAP files that are not parts of one recording ({}{more})",
            files.len(),
            shown.join(", ")
        );
        return Err(refused(path, found, ONE));
    }
    parts.sort_unstable();
    if let Some(pair) = parts.windows(2).find(|pair| pair[1].0 != pair[0].0 + 1) {
        let (before, after) = (takt_files::quoted(pair[0].1), takt_files::quoted(pair[1].1));
        let found = format!("no part between `{before}` and `{after}`");
        return Err(refused(path, found, "copy it into the folder, or set `path` to one file"));
    }
    Ok(parts.into_iter().map(|(_, name)| name.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As rosbag2 of Jazzy writes it.
    const WRITTEN: &str = "rosbag2_bagfile_information:\n  version: 9\n  storage_identifier: mcap\n  duration:\n    \
        nanoseconds: 500000000\n  compression_format: \"\"\n  relative_file_paths:\n    - a_0.mcap\n    - \"a b_1.mcap\"\n  \
        files:\n    - path: a_0.mcap\n      message_count: 12\n";

    #[test]
    fn the_list_of_a_bag_is_read_as_its_writers_write_it() {
        let files = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let bag = Bag::of(WRITTEN);
        assert_eq!(bag, Bag { storage: "mcap".into(), files: files(&["a_0.mcap", "a b_1.mcap"]) });
        // rosbags does not indent lists; Foxy named the folder, too.
        let bag = Bag::of(
            "  storage_identifier: 'sqlite3'\n  relative_file_paths:\n  - a/a_0.db3\n  files:\n  - path: x\n",
        );
        assert_eq!(bag, Bag { storage: "sqlite3".into(), files: files(&["a_0.db3"]) });
        assert_eq!(
            Bag::of("relative_file_paths: [a_0.mcap, '../../etc/b.mcap']").files,
            files(&["a_0.mcap", "b.mcap"])
        );
        assert_eq!(Bag::of("relative_file_paths:\n  - ..\n  - /\n"), Bag::default());
        assert_eq!(Bag::of(""), Bag::default());
    }
}
