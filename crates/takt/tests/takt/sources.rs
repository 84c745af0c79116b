//! Rust sources of the workspace, as tests read them.

use std::path::{Path, PathBuf};

/// A source of a crate, without its comments and the tests at its end.
pub struct Source {
    /// From the folder of all crates on: `takt-rt/src/lib.rs`.
    pub name: String,
    /// Numbered lines.
    pub lines: Vec<(usize, String)>,
}

/// The sources of a crate below its `src`; those of tests alone are left out.
pub fn sources(name: &str) -> Vec<Source> {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let files = files_of(&crates.join(name).join("src"));
    assert!(!files.is_empty(), "{name}");
    let source = |path: PathBuf| Source {
        name: path.strip_prefix(crates).unwrap().display().to_string(),
        lines: code(&std::fs::read_to_string(&path).unwrap()),
    };
    files.into_iter().map(source).collect()
}

/// The files of Rust below a folder; those of tests alone are left out.
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    find(folder, &mut found);
    found
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            find(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

fn code(text: &str) -> Vec<(usize, String)> {
    // A module of tests ends a file; a declaration of one in another file does not.
    let all: Vec<&str> = text.lines().collect();
    let opens = |pair: &[&str]| {
        pair[0].trim() == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    let end = all.windows(2).position(opens).unwrap_or(all.len());
    let lines = all.into_iter().take(end).enumerate();
    let lines = lines.map(|(number, line)| {
        // An address has its slashes behind a colon.
        let comment = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
        (number + 1, comment.map_or(line, |(at, _)| &line[..at]).trim().to_owned())
    });
    lines.filter(|(_, line)| !line.is_empty()).collect()
}

/// The words of a line: names, and what stands between other signs.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}
