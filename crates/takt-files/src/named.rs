//! Errors of files that a user named: what is there instead, and what was probably meant.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use crate::near::closest;
use crate::text::quoted;

/// Files that an error lists.
const MAX_LISTED: usize = 6;

/// Files of a folder that are looked at for that.
const MAX_LOOKED_AT: usize = 1000;

/// Completes the system's answer about the file or folder `path`, which a user named: where it does
/// not exist, the error lists what there is; where it is a folder or may not be read, it says so.
/// Its kind stays.
pub fn named(path: &Path) -> impl FnOnce(Error) -> Error {
    move |error| match error.kind() {
        ErrorKind::NotFound => Error::new(ErrorKind::NotFound, not_found(path)),
        ErrorKind::IsADirectory => {
            let files = files_like(path, Path::new("x.toml"));
            Error::new(ErrorKind::IsADirectory, format!("this is a folder; name a file{}", listed(&files)))
        }
        // An error that has its own words keeps them.
        ErrorKind::PermissionDenied if error.raw_os_error().is_some() => Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "user {} may not read it; run as its owner or as root",
                rustix::process::geteuid().as_raw()
            ),
        ),
        _ => error,
    }
}

/// Reads a configuration that a user named.
///
/// # Errors
/// As [`read_to_string`](crate::read_to_string), completed by [`named`].
pub fn read_configuration(path: &Path) -> Result<String, Error> {
    crate::read_to_string(path, crate::CONFIGURATION_BYTES).map_err(named(path))
}

fn not_found(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return format!("there is no folder {}", quoted(&folder.display().to_string()));
    }
    format!("there is no such file{}", listed(&files_like(folder, path)))
}

/// Names in `folder` with the extension of `path` (any where it has none), the most similar first.
fn files_like(folder: &Path, path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names: Vec<String> = entries
        .take(MAX_LOOKED_AT)
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.to_owned()))
        .filter(|name| !name.starts_with('.'))
        .filter(|name| path.extension().is_none() || Path::new(name).extension() == path.extension())
        .collect();
    let given = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let found = closest(&given, names.iter().map(String::as_str), MAX_LISTED + 1);
    found.into_iter().map(quoted).collect()
}

fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => {
            let shown = names.iter().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if names.len() > MAX_LISTED { ", …" } else { "" };
            format!("; in that folder: {shown}{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &Path) -> (ErrorKind, String) {
        let error = crate::read_to_string(path, 100).map_err(named(path)).unwrap_err();
        (error.kind(), error.to_string())
    }

    #[test]
    fn a_missing_file_lists_those_with_its_extension() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cyclic.toml", "uav.toml", ".hidden.toml", "notes.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let (kind, text) = message(&folder.path().join("cylic.toml"));
        assert_eq!(kind, ErrorKind::NotFound);
        assert_eq!(text, "there is no such file; in that folder: cyclic.toml, uav.toml");
        let (_, text) = message(&folder.path().join("notes"));
        assert!(text.starts_with("there is no such file; in that folder: notes.txt"), "{text}");
        let (_, text) = message(&folder.path().join("none/x.toml"));
        assert!(text.starts_with("there is no folder ") && text.ends_with("none"), "{text}");
    }

    #[test]
    fn a_folder_is_no_file_and_many_files_are_not_all_listed() {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..20 {
            fs::write(folder.path().join(format!("{index}.toml")), "").unwrap();
        }
        let (_, text) = message(folder.path());
        assert!(text.contains("folder"), "{text}");
        let (_, text) = message(&folder.path().join("x.toml"));
        assert_eq!(text.matches(".toml").count(), MAX_LISTED, "{text}");
        assert!(text.ends_with(", …"), "{text}");
    }

    #[test]
    fn other_answers_stay() {
        let error = named(Path::new("x"))(Error::new(ErrorKind::FileTooLarge, "100 bytes at most"));
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::FileTooLarge, "100 bytes at most")
        );
    }
}
