//! README, the documents next to it, the chapters of the book, and the decisions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Documents that stand alone.
const ALONE: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/hostile-files.md",
    "docs/run-directory.md",
];

/// Folders of documents: the chapters of the book, and the decisions.
const FOLDERS: [&str; 2] = ["docs/src", "docs/decisions"];

/// README, the documents next to it, the chapters of the book, and the decisions.
pub fn documents() -> BTreeMap<PathBuf, String> {
    let root = root();
    let alone = ALONE.iter().map(|name| root.join(name));
    let pages = FOLDERS.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let pages = pages.map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    alone.chain(pages).map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The text without its blocks of code, and the lines of its blocks marked `sh`.
pub fn split(text: &str) -> (String, Vec<String>) {
    let (mut prose, mut commands, mut block) = (String::new(), Vec::new(), None);
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language == "sh"),
            (Some(_), Some(_)) => block = None,
            (None, Some(true)) => commands.push(line.to_owned()),
            (None, Some(false)) => {}
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    assert_eq!(block, None, "a block of code has no end");
    (prose, commands)
}
