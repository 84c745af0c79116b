//! Words of ours that had a meaning here and nowhere else. The field's terms took their place; this
//! holds that they do not come back.

use std::fs;

use super::documents::root;
use super::named::sources;

/// In names of types, functions and variables: the word and what is written instead. Prose may have
/// any word that an engineer writes.
const NO_NAME: [(&str, &str); 14] = [
    ("said", "message, output, reported"),
    ("say", "send, log, record"),
    ("says", "message"),
    ("tell", "report, notify"),
    ("told", "reported, informed of"),
    ("hear", "receive"),
    ("heard", "received"),
    ("room", "buffer, capacity, slack"),
    ("teller", "reporter"),
    ("twin", "counterpart, duplicate"),
    ("twins", "counterparts, duplicates"),
    ("graves", "reaper"),
    ("desk", "workspace"),
    ("homeless", "without an owner"),
];

/// Files with a word of these in its ordinary meaning, or that test the words themselves.
const ALLOWED: [(&str, &str); 5] = [
    ("crates/takt/tests/takt/words.rs", ""),
    // The room that the synthetic cameras stand in.
    ("crates/takt-link-camera/src/synthetic/", "room"),
    ("crates/takt-robot-cell/tests/", "room"),
    ("crates/takt/tests/takt/mod.rs", "said"),
    ("crates/takt/tests/takt/mod.rs", "desk"),
];

/// Keywords before a name where it is declared.
const DECLARES: [&str; 10] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "let", "mut"];

/// Longest name, in words, that is a name and no sentence: tests are called by sentences.
const LONGEST_NAME: usize = 3;

/// The words of a name: `FlightPlan` and `flight_plan` are two.
fn words(name: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() && small {
            all.push(String::new());
        }
        small = c.is_lowercase();
        if c.is_alphanumeric() {
            all.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    all.retain(|word| !word.is_empty());
    all
}

/// The names that a line of code declares; none of a comment.
fn declared(line: &str) -> Vec<&str> {
    let line = line.trim_start();
    if line.starts_with("//") {
        return Vec::new();
    }
    let names: Vec<&str> =
        line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect();
    names.windows(2).filter(|pair| DECLARES.contains(&pair[0])).map(|pair| pair[1]).collect()
}

#[test]
fn private_words_do_not_come_back() {
    let root = root();
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    sources(&root.join("fuzz"), &mut files);
    let mut wrong = Vec::new();
    for path in files {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let allowed = |word: &str| {
            ALLOWED.iter().any(|(place, its)| name.starts_with(place) && (its.is_empty() || *its == word))
        };
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            // Keys of files and of `--json` are public, and stay.
            if line.contains("rename = \"") {
                continue;
            }
            let mut found: Vec<(&str, &str)> = Vec::new();
            let names = declared(line).into_iter().filter(|_| name.ends_with(".rs")).map(words);
            for word in names.filter(|all| all.len() <= LONGEST_NAME).flatten() {
                found.extend(NO_NAME.iter().filter(|(bad, _)| word == *bad));
            }
            found.retain(|(word, _)| !allowed(word));
            wrong.extend(found.iter().map(|(bad, good)| format!("{name}:{}: \"{bad}\": {good}", number + 1)));
        }
    }
    assert!(wrong.is_empty(), "{} places:\n{}", wrong.len(), wrong.join("\n"));
}
