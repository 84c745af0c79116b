//! Suggestions: the names closest to one that does not exist.

use strsim::osa_distance;

/// Most characters of a name that is compared: a longer one is no slip of the keyboard.
const MAX_CHARS: usize = 64;

/// Least length of a name that counts as meant because it is a part of the other.
const MIN_PART_CHARS: usize = 3;

/// A name as it is compared: `rateHz`, `rate-hz` and `RATE_HZ` are one slip.
fn plain(name: &str) -> Option<String> {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase);
    let kept: Vec<char> = letters.take(MAX_CHARS + 1).collect();
    (kept.len() <= MAX_CHARS).then(|| kept.into_iter().collect())
}

/// The names of `known` that are most like `given`, the nearest first; at most `most` of them, and
/// as many as there are where no distance is too large.
pub fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let Some(given) = plain(given) else {
        // Nothing is near to what nobody typed: some of the names.
        let mut names: Vec<&str> = known.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(most);
        return names;
    };
    let mut ranked: Vec<(usize, bool, &str)> = known
        .into_iter()
        .filter_map(|name| {
            let known = plain(name)?;
            let edits = osa_distance(&given, &known);
            // One slip is more likely than a part of a name.
            let is_part = edits > 1 && is_part(&given, &known);
            Some((if is_part { 1 } else { edits }, is_part, name))
        })
        .collect();
    ranked.sort_unstable();
    ranked.dedup();
    ranked.into_iter().take(most).map(|(_, _, name)| name).collect()
}

/// The one name that was most probably meant by `given`.
pub fn meant<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = closest(given, known, 1).first().copied()?;
    let (given, found) = (plain(given)?, plain(name)?);
    // A third of the letters may be wrong; a word of one or two letters means nothing.
    let slips = given.chars().count().max(found.chars().count()) / 3;
    (is_part(&given, &found) || osa_distance(&given, &found) <= slips).then_some(name)
}

/// The end of a sentence about a name that does not exist: empty, or the name that was probably
/// meant.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    meant(given, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn is_part(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short.chars().count() >= MIN_PART_CHARS && long.contains(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] = ["rate_hz", "seconds", "work_us", "deadline_ms", "policy", "lock_memory"];

    #[test]
    fn a_slip_finds_the_name_that_was_meant() {
        for (given, name) in [
            ("rate_hzz", "rate_hz"),
            ("rateHz", "rate_hz"),
            ("polcy", "policy"),
            ("ploicy", "policy"),
            ("lock-memory", "lock_memory"),
            ("second", "seconds"),
            ("memory", "lock_memory"),
        ] {
            assert_eq!(meant(given, KEYS), Some(name), "{given}");
        }
        assert_eq!(did_you_mean("polcy", KEYS), "; did you mean `policy`?");
    }

    #[test]
    fn nothing_is_guessed_for_a_word_of_another_kind() {
        for given in ["", "x", "camera", "controller", &"policy".repeat(100)] {
            assert_eq!(meant(given, KEYS), None, "{given}");
        }
        assert_eq!(did_you_mean("camera", KEYS), "");
        assert_eq!(meant("policy", []), None);
    }

    #[test]
    fn the_closest_come_first_and_are_few() {
        assert_eq!(closest("seconds", KEYS, 1), ["seconds"]);
        let two = closest("polixy", KEYS, 2);
        assert_eq!((two.len(), two[0]), (2, "policy"));
        assert_eq!(closest("anything", [], 5), Vec::<&str>::new());
    }
}
