//! Names in documents exist: source files, crates and their items.

use std::fs;
use std::path::{Path, PathBuf};

use super::documents::{documents, root};

/// Rust files below `folder`.
pub fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
}

/// Code spans of a document.
fn spans(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// A name in a span that does not exist: a source file, by the end of its path, or an item of a
/// crate.
fn absent(span: &str, files: &[PathBuf], crates: &[(String, String)]) -> Option<String> {
    let path = span.split_whitespace().next()?;
    if path.ends_with(".rs") && !path.contains(['*', '<']) {
        return (!files.iter().any(|file| file.ends_with(path))).then(|| format!("no file {path}"));
    }
    let mut parts = path.split("::").map(|part| part.split(|c: char| !(c.is_alphanumeric() || c == '_')));
    let krate = parts.next()?.next_back()?;
    if !krate.starts_with("takt_") || !path.contains("::") {
        return None;
    }
    let Some((_, text)) = crates.iter().find(|(name, _)| *name == krate) else {
        return Some(format!("no crate {krate}"));
    };
    let item = |name: &str| text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name);
    let mut names = parts.filter_map(|mut part| part.find(|name| !name.is_empty()));
    names.find(|name| !item(name)).map(|name| format!("no {name} in {krate} ({path})"))
}

#[test]
fn every_source_and_item_that_documents_name_is_there() {
    let root = root();
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    let crates: Vec<(String, String)> = fs::read_dir(root.join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|folder| {
            let name = folder.file_name().unwrap().to_str().unwrap().replace('-', "_");
            let own = files.iter().filter(|file| file.starts_with(&folder));
            // A module is named by its file as well.
            let text = own.map(|file| format!("{}\n{}", file.display(), fs::read_to_string(file).unwrap()));
            (name, text.collect())
        })
        .collect();
    let mut wrong = Vec::new();
    for (path, text) in documents().into_iter().filter(|(path, _)| !path.ends_with("CHANGELOG.md")) {
        let name = path.strip_prefix(&root).unwrap().display();
        let found = spans(&text).into_iter().filter_map(|span| absent(span, &files, &crates));
        wrong.extend(found.map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
