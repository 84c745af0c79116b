//! Every open of a name that somebody else can plant goes through this crate: the source of the
//! whole workspace is looked through, and whoever opens by himself stands in `opens.txt` with the
//! reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Calls that open, read or map.
const OPENS: [&str; 13] = [
    "File::open(",
    "File::options(",
    "File::create(",
    "File::create_new(",
    "OpenOptions::new(",
    "fs::read(",
    "fs::read_to_string(",
    "libc::mmap(",
    "libc::open(",
    "libc::openat(",
    "libc::shm_open(",
    "Mmap::map(",
    "MmapOptions::new(",
];
/// On the same line: files of the kernel, where nobody else can plant anything.
const KERNEL: [&str; 3] = ["\"/proc/", "\"/sys/", "\"/dev/cpu/"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_test = name.contains("tests.rs") || name == "tests" || name == "test.rs";
        match () {
            () if is_test => {}
            () if path.is_dir() => sources(&path, found),
            () if name.ends_with(".rs") => found.push(path),
            () => {}
        }
    }
}

/// Lines of a source that open by themselves; what comes after `mod tests` is tests.
fn opens(text: &str) -> Vec<(usize, &str)> {
    let code = text.find("#[cfg(test)]\nmod tests").map_or(text, |end| &text[..end]);
    let lines = code.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.starts_with("//"))
        .filter(|(_, line)| OPENS.iter().any(|open| is_called(line, open)))
        .filter(|(_, line)| !KERNEL.iter().any(|kernel| line.contains(kernel)))
        .collect()
}

/// `takt_files::read(` is none of `fs::read(`.
fn is_called(line: &str, open: &str) -> bool {
    line.match_indices(open).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

#[test]
fn who_opens_by_himself_says_why_nobody_can_have_planted_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let listed: BTreeMap<&str, &str> = include_str!("opens.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_once(": ").expect(line))
        .collect();
    assert!(listed.values().all(|why| why.len() > 10));
    let (mut unlisted, mut seen) = (Vec::new(), BTreeSet::new());
    for folder in fs::read_dir(crates).unwrap() {
        let folder = folder.unwrap().path();
        if folder.ends_with("takt-files") || !folder.join("src").is_dir() {
            continue;
        }
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files);
        for file in files {
            let name = file.strip_prefix(crates).unwrap().to_string_lossy().into_owned();
            for (line, text) in opens(&fs::read_to_string(&file).unwrap()) {
                if !listed.contains_key(name.as_str()) {
                    unlisted.push(format!("{name}:{line}: {text}"));
                }
                seen.insert(name.clone());
            }
        }
    }
    assert!(
        unlisted.is_empty(),
        "opened without takt-files. Use takt_files::open, read, open_shared, open_lock and the like; or, where nobody else can have planted \
         it, say why in crates/takt-files/tests/it/opens.txt:\n{}",
        unlisted.join("\n")
    );
    // A line too many is no danger, and said to whoever looks.
    for name in listed.keys().filter(|name| !seen.contains(**name)) {
        println!("opens.txt: {name} opens nothing by itself any more");
    }
}

#[test]
fn what_opens_is_recognised() {
    let text = "let a = File::open(path)?;\n// File::open(path)\nlet b = takt_files::read(path, 1)?;\nlet c = std::fs::read(\"/proc/stat\");\n\
                let d = fs::read(path);\n#[cfg(test)]\nmod tests { fs::read(path) }\n";
    assert_eq!(opens(text), [(1, "let a = File::open(path)?;"), (5, "let d = fs::read(path);")]);
}
