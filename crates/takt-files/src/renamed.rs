//! Keys of configurations that had another name: they are read for one version, with a hint.
//!
//! The names of limits begin with `max_` or `min_` now. The old name is replaced in the parsed
//! document, where each key still has its place, so that errors name the line of the user's file
//! and no type has to know two names. A key counts only within the table that had it: a robot of
//! somebody else's may well have a value of that name.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

/// A key that has another name now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Renamed {
    /// The table that has it.
    table: &'static str,
    old: &'static str,
    new: &'static str,
}

const fn renamed(table: &'static str, old: &'static str, new: &'static str) -> Renamed {
    Renamed { table, old, new }
}

/// All of them are read for one version: they go with the next.
static RENAMED: [Renamed; 22] = [
    renamed("losses", "most_missing_frames", "max_missing_frames"),
    renamed("losses", "most_unsent_commands", "max_unsent_commands"),
    renamed("losses", "most_link_losses", "max_link_losses"),
    renamed("losses", "most_lost_packets", "max_lost_packets"),
    renamed("losses", "most_missed_commands", "max_missed_commands"),
    renamed("losses", "most_lost_frames", "max_lost_frames"),
    renamed("losses", "most_working_counter_errors", "max_working_counter_errors"),
    renamed("losses", "most_lost_edges", "max_lost_edges"),
    renamed("ssm", "least_speed", "min_speed"),
    renamed("safety", "most_missing", "max_missing"),
    renamed("safety", "most_input_age", "max_input_age"),
    renamed("safety", "most_incomplete", "max_incomplete"),
    renamed("safety", "most_late", "max_late"),
    renamed("safety", "most_late_in_row", "max_late_in_row"),
    renamed("safety", "most_away_ms", "max_away_ms"),
    renamed("safety", "most_held", "max_held"),
    renamed("safety", "most_outside_mrad", "max_outside_mrad"),
    renamed("safety", "most_resets", "max_resets"),
    renamed("clock", "most_shift_ns", "max_shift_ns"),
    renamed("link", "most_lock_wait_us", "max_lock_wait_us"),
    renamed("options", "most_bandwidth", "max_bandwidth"),
    renamed("options", "most_system_bandwidth", "max_system_bandwidth"),
];

fn find(table: &str, key: &str) -> Option<&'static Renamed> {
    RENAMED.iter().find(|renamed| renamed.table == table && renamed.old == key)
}

/// The present name of the key `key` in a table of that name; `None` where it never had another.
pub fn present_key(table: &str, key: &str) -> Option<&'static str> {
    find(table, key).map(|renamed| renamed.new)
}

/// A dotted path of a key, with the key's present name; says so where that is another one.
pub fn present_path(path: &str) -> Cow<'_, str> {
    let Some((above, key)) = path.rsplit_once('.') else { return Cow::Borrowed(path) };
    let table = above.rsplit('.').next().unwrap_or(above);
    match find(table, key) {
        Some(renamed) => {
            hint(renamed);
            Cow::Owned(format!("{above}.{}", renamed.new))
        }
        None => Cow::Borrowed(path),
    }
}

/// Gives the keys of a document their present names; says so where they had others.
pub fn use_present_keys(document: &mut DeTable<'_>) {
    let mut found = BTreeSet::new();
    rename("", document, &mut found);
    found.into_iter().for_each(hint);
}

/// Reads a configuration, also with keys of the version before.
///
/// # Errors
/// It is no TOML, or has keys or values that the type does not know; names the line.
pub fn parse_configuration<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let mut document = DeTable::parse(text)?;
    use_present_keys(document.get_mut());
    T::deserialize(Deserializer::from(document)).map_err(|mut error| {
        error.set_input(Some(text));
        error
    })
}

fn rename(name: &str, table: &mut DeTable<'_>, found: &mut BTreeSet<&'static Renamed>) {
    for renamed in RENAMED.iter().filter(|renamed| renamed.table == name) {
        // A table with both names keeps both: its type refuses the old one at its line.
        if table.contains_key(renamed.new) {
            continue;
        }
        if let Some((mut key, value)) = table.remove_entry(renamed.old) {
            *key.get_mut() = Cow::Borrowed(renamed.new);
            table.insert(key, value);
            found.insert(renamed);
        }
    }
    for (key, value) in table.iter_mut() {
        rename_within(key.get_ref(), value.get_mut(), found);
    }
}

/// Goes on below a value; the tables of a list have the list's name.
fn rename_within(name: &str, value: &mut DeValue<'_>, found: &mut BTreeSet<&'static Renamed>) {
    match value {
        DeValue::Table(table) => rename(name, table, found),
        DeValue::Array(list) => list.iter_mut().for_each(|one| rename_within(name, one.get_mut(), found)),
        _ => {}
    }
}

/// Once in the life of a program: a file is often read several times.
fn hint(renamed: &'static Renamed) {
    static HINTED: Mutex<BTreeSet<&'static Renamed>> = Mutex::new(BTreeSet::new());
    if HINTED.lock().unwrap_or_else(PoisonError::into_inner).insert(renamed) {
        // Nobody is left to read it where this fails.
        let _ = writeln!(io::stderr(), "takt: {}", words(renamed));
    }
}

fn words(renamed: &Renamed) -> String {
    let Renamed { table, old, new } = renamed;
    format!("`{table}.{old}` is called `{new}` now; the next version will refuse the old name")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        safety: Safety,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Safety {
        max_late: u32,
        max_held: u32,
    }

    impl Default for Safety {
        fn default() -> Self {
            Self { max_late: 20, max_held: 3 }
        }
    }

    fn max_late(text: &str) -> Result<u32, String> {
        parse_configuration::<File>(text).map(|file| file.safety.max_late).map_err(|error| error.to_string())
    }

    #[test]
    fn an_old_key_is_read_however_it_is_written() {
        for text in [
            "[safety]\nmost_late = 7",
            "safety.most_late = 7",
            "safety = { most_late = 7, most_held = 1 }",
            "[safety]\n\"most_late\" = 7 # most_late",
            "[safety]\nmax_late = 7",
        ] {
            assert_eq!(max_late(text), Ok(7), "{text}");
        }
    }

    #[test]
    fn errors_name_the_line_of_the_users_file() {
        for (text, line, words) in [
            ("[safety]\nmost_held = 1\nmost_late = 'x'", 3, "most_late = 'x'"),
            ("[safety]\nmost_late = 1\nmax_late = 2", 2, "unknown field `most_late`"),
            ("[safety]\nmost_lte = 1", 2, "unknown field `most_lte`"),
            // Another table's key is none of this one's.
            ("[safety]\nmost_lost_frames = 1", 2, "unknown field `most_lost_frames`"),
            ("safety = 5", 1, "struct Safety"),
        ] {
            let error = max_late(text).unwrap_err();
            assert!(error.contains(&format!("line {line}")) && error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn names_of_somebody_elses_stay() {
        let text =
            "[values]\nmost_late = 7\n[safety.values]\nmost_late = 8\n[[safety.link]]\nmost_lock_wait_us = 9";
        let mut document = DeTable::parse(text).unwrap();
        let mut found = BTreeSet::new();
        rename("", document.get_mut(), &mut found);
        let table: toml::Table = toml::Table::deserialize(Deserializer::from(document)).unwrap();
        assert_eq!(table["values"]["most_late"].as_integer(), Some(7));
        assert_eq!(table["safety"]["values"]["most_late"].as_integer(), Some(8));
        assert_eq!(table["safety"]["link"][0]["max_lock_wait_us"].as_integer(), Some(9));
        assert_eq!(found.into_iter().map(|renamed| renamed.old).collect::<Vec<_>>(), ["most_lock_wait_us"]);
    }

    #[test]
    fn paths_and_single_keys_have_their_present_names() {
        assert_eq!(present_path("motion.safety.most_late"), "motion.safety.max_late");
        assert_eq!(present_path("options.most_bandwidth"), "options.max_bandwidth");
        for path in ["most_late", "values.most_late", "safety.most_late.x", "safety.max_late", ""] {
            assert_eq!(present_path(path), path);
        }
        assert_eq!(present_key("ssm", "least_speed"), Some("min_speed"));
        assert_eq!(present_key("ssm", "min_speed"), None);
    }

    #[test]
    fn every_name_is_a_limit_and_there_once() {
        let all: BTreeSet<(&str, &str)> =
            RENAMED.iter().map(|renamed| (renamed.table, renamed.old)).collect();
        assert_eq!(all.len(), RENAMED.len());
        for renamed in &RENAMED {
            let rest = renamed.old.strip_prefix("most_").map(|rest| format!("max_{rest}"));
            let rest = rest.or_else(|| Some(format!("min_{}", renamed.old.strip_prefix("least_")?)));
            assert_eq!(rest.as_deref(), Some(renamed.new));
        }
        let words = words(&RENAMED[0]);
        assert!(
            words.starts_with("`losses.most_missing_frames` is called `max_missing_frames` now"),
            "{words}"
        );
    }
}
