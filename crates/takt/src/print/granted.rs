//! Settings that were requested from the kernel but not granted, in one line: a cell without rights
//! has some twenty of them, with one way out.

/// Names that are written out.
const NAMED: usize = 4;

/// One line for all of `refused`; `None` without any. Each of them stands in `run.json`.
pub fn not_granted(refused: &[String]) -> Option<String> {
    let [first, others @ ..] = refused else { return None };
    if others.is_empty() {
        return Some(format!("NOT GRANTED {first}"));
    }
    let names = names(refused.iter().map(String::as_str));
    let fixes = fixes(refused);
    let words: Vec<String> = match &fixes[..] {
        [] => Vec::new(),
        [(fix, _)] => vec![format!(" Fix: {fix}.")],
        several => several.iter().map(|(fix, for_names)| format!(" Fix for {for_names}: {fix}.")).collect(),
    };
    Some(format!(
        "NOT GRANTED {} settings: {names}.{} The reason for each is in run.json (not_granted)",
        refused.len(),
        words.concat()
    ))
}

/// Their subjects: `perception-0` of `perception-0: policy: requested …`.
fn names<'a>(refused: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> =
        refused.map(|refused| refused.split_once(": ").map_or(refused, |(name, _)| name)).collect();
    names.dedup();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

/// The ways out with the names of their settings, that of most settings first.
fn fixes(refused: &[String]) -> Vec<(&str, String)> {
    let mut fixes: Vec<(&str, Vec<&str>)> = Vec::new();
    for setting in refused {
        let Some((_, fix)) = setting.split_once("Fix: ") else { continue };
        let fix = fix.trim_end_matches('.');
        match fixes.iter_mut().find(|(known, _)| *known == fix) {
            Some((_, settings)) => settings.push(setting),
            None => fixes.push((fix, vec![setting])),
        }
    }
    fixes.sort_by_key(|(_, settings)| std::cmp::Reverse(settings.len()));
    fixes.into_iter().map(|(fix, settings)| (fix, names(settings.into_iter()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_with_one_fix_are_one_line() {
        assert_eq!(not_granted(&[]), None);
        let one = "ssm: policy: requested rr:49, in effect other:5: no right. Fix: run as root".to_owned();
        assert_eq!(not_granted(std::slice::from_ref(&one)), Some(format!("NOT GRANTED {one}")));
        let all: Vec<String> =
            (0..16).map(|i| format!("perception-{i}: policy: no right. Fix: run as root")).collect();
        assert_eq!(
            not_granted(&all).as_deref(),
            Some(
                "NOT GRANTED 16 settings: perception-0, perception-1, perception-2, perception-3 and 12 more. Fix: run as root. \
                 The reason for each is in run.json (not_granted)"
            )
        );
    }

    #[test]
    fn every_fix_is_reported_and_strange_texts_are_no_trouble() {
        let all = ["a: x. Fix: f", "b: y. Fix: g", "c: z. Fix: g", "nothing that is known", ""];
        let line = not_granted(&all.map(str::to_owned)).unwrap();
        assert!(line.contains("5 settings: a, b, c, nothing that is known and 1 more."), "{line}");
        assert!(line.contains(" Fix for b, c: g. Fix for a: f. "), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
