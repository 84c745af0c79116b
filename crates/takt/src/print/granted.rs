//! What was asked of the kernel and not granted, in one line: a cell without rights has some twenty
//! of them, with one way out.

use std::collections::BTreeMap;

/// Names that are written out.
const NAMED: usize = 4;

/// One line for all of `refused`; `None` without any. Each of them stands in `run.json`.
pub fn not_granted(refused: &[String]) -> Option<String> {
    let [first, others @ ..] = refused else { return None };
    if others.is_empty() {
        return Some(format!("NOT GRANTED {first}"));
    }
    let mut names: Vec<&str> = refused.iter().map(|refused| name(refused)).collect();
    names.dedup();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let fixes = fixes(refused);
    let words: Vec<String> = match &fixes[..] {
        [] => Vec::new(),
        [(fix, _)] => vec![format!(" Fix: {fix}.")],
        several => several.iter().map(|(fix, count)| format!(" Fix of {count}: {fix}.")).collect(),
    };
    Some(format!(
        "NOT GRANTED {} settings: {}{more}.{} Why, each: not_granted in run.json",
        refused.len(),
        names.join(", "),
        words.concat()
    ))
}

/// What it is about: `perception-0` of `perception-0: policy: asked …`.
fn name(refused: &str) -> &str {
    refused.split_once(": ").map_or(refused, |(name, _)| name)
}

/// The ways out, that of most settings first.
fn fixes(refused: &[String]) -> Vec<(&str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for fix in refused.iter().filter_map(|refused| refused.split_once("Fix: ")) {
        *counts.entry(fix.1.trim_end_matches('.')).or_default() += 1;
    }
    let mut fixes: Vec<_> = counts.into_iter().collect();
    fixes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    fixes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_with_one_fix_are_one_line() {
        assert_eq!(not_granted(&[]), None);
        let one = "ssm: policy: asked rr:49, has other:5: no right. Fix: run as root".to_owned();
        assert_eq!(not_granted(std::slice::from_ref(&one)), Some(format!("NOT GRANTED {one}")));
        let all: Vec<String> =
            (0..16).map(|i| format!("perception-{i}: policy: no right. Fix: run as root")).collect();
        assert_eq!(
            not_granted(&all).as_deref(),
            Some(
                "NOT GRANTED 16 settings: perception-0, perception-1, perception-2, perception-3 and 12 more. Fix: run as root. \
                 Why, each: not_granted in run.json"
            )
        );
    }

    #[test]
    fn every_fix_is_reported_and_strange_texts_are_no_trouble() {
        let all = ["a: x. Fix: f", "b: y. Fix: g", "c: z. Fix: g", "nothing that is known", ""];
        let line = not_granted(&all.map(str::to_owned)).unwrap();
        assert!(line.contains("5 settings: a, b, c, nothing that is known and 1 more."), "{line}");
        assert!(line.contains(" Fix of 2: g. Fix of 1: f. "), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
