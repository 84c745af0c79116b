//! What somebody may have meant: the names that are nearest to one that does not exist.

/// Most characters of a name that is compared: a longer one is no slip of the keyboard.
const MAX_CHARS: usize = 64;

/// Least length of a name that counts as meant because it is a part of the other.
const MIN_PART_CHARS: usize = 3;

/// A name as it is compared: `rateHz`, `rate-hz` and `RATE_HZ` are one slip.
fn plain(name: &str) -> Option<Vec<char>> {
    let kept: Vec<char> = name
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .take(MAX_CHARS + 1)
        .collect();
    (kept.len() <= MAX_CHARS).then_some(kept)
}

/// Letters to add, drop, replace or swap until `a` is `b`.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &letter) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &other) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(letter != other);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && letter == b[j - 1] && a[i - 1] == other {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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
            let name_letters = plain(name)?;
            let part = is_part(&given, &name_letters);
            let edits = edits(&given, &name_letters);
            // One slip is more likely than a part of a name.
            let is_part = part && edits > 1;
            Some((if is_part { 1 } else { edits }, is_part, name))
        })
        .collect();
    ranked.sort_unstable();
    ranked.dedup();
    ranked.into_iter().take(most).map(|(_, _, name)| name).collect()
}

/// The one name that was most probably meant by `given`.
pub fn meant<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = plain(given)?;
    let name = closest(given, known, 1).first().copied()?;
    let (given, found) = (typed, plain(name)?);
    // A third of the letters may be wrong; a word of one or two letters means nothing.
    let slips = given.len().max(found.len()) / 3;
    (is_part(&given, &found) || edits(&given, &found) <= slips).then_some(name)
}

/// The end of a sentence about a name that does not exist: empty, or the name that was probably
/// meant.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    meant(given, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn is_part(a: &[char], b: &[char]) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short.len() >= MIN_PART_CHARS && long.windows(short.len()).any(|part| part == short)
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
