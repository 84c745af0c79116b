//! The order of package versions, as Debian's policy defines it (5.6.12).

use std::cmp::Ordering;

/// Compares two versions.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let split = |text: &str| -> (u64, String) {
        match text.split_once(':') {
            Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest.to_owned()),
            None => (0, text.to_owned()),
        }
    };
    let ((epoch_a, a), (epoch_b, b)) = (split(a), split(b));
    // Without a revision, a version is as with revision 0, which sorts as an empty one does.
    let cut = |text: &str| match text.rsplit_once('-') {
        Some((upstream, revision)) => (upstream.to_owned(), revision.to_owned()),
        None => (text.to_owned(), String::new()),
    };
    let ((upstream_a, revision_a), (upstream_b, revision_b)) = (cut(&a), cut(&b));
    let order = epoch_a.cmp(&epoch_b).then_with(|| part(&upstream_a, &upstream_b));
    order.then_with(|| part(&revision_a, &revision_b))
}

/// Text and numbers by turns: `~` before the end, the end before letters, letters before all else.
fn part(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while !a.is_empty() || !b.is_empty() {
        let (text_a, rest_a) = a.split_at(a.iter().take_while(|c| !c.is_ascii_digit()).count());
        let (text_b, rest_b) = b.split_at(b.iter().take_while(|c| !c.is_ascii_digit()).count());
        let weight = |text: &[u8], at: usize| match text.get(at) {
            None => 0,
            Some(b'~') => -1,
            Some(c) if c.is_ascii_alphabetic() => i32::from(*c),
            Some(c) => i32::from(*c) + 256,
        };
        for at in 0..text_a.len().max(text_b.len()) {
            let order = weight(text_a, at).cmp(&weight(text_b, at));
            if order.is_ne() {
                return order;
            }
        }
        let (number_a, next_a) = rest_a.split_at(rest_a.iter().take_while(|c| c.is_ascii_digit()).count());
        let (number_b, next_b) = rest_b.split_at(rest_b.iter().take_while(|c| c.is_ascii_digit()).count());
        let significant =
            |number: &[u8]| number.iter().skip_while(|c| **c == b'0').copied().collect::<Vec<u8>>();
        let (number_a, number_b) = (significant(number_a), significant(number_b));
        let order = number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(&number_b));
        if order.is_ne() {
            return order;
        }
        (a, b) = (next_a, next_b);
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_are_in_the_order_of_the_policy() {
        let rising = [
            "6.1.9-1",
            "6.1.53-1",
            "6.1.192~rc1-1",
            "6.1.192-1",
            "6.1.192-1+b1",
            "6.1.192-2",
            "6.12.117-1~deb12u1",
            "6.12.117-1",
            "1:5.0",
        ];
        for pair in rising.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare("1.0", "1.0-0"), Ordering::Equal);
        assert_eq!(compare("1.01", "1.1"), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn the_order_is_one(a in "[0-9a-c.~+-]{0,8}", b in "[0-9a-c.~+-]{0,8}", c in "[0-9a-c.~+-]{0,8}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            let mut all = [&a, &b, &c];
            all.sort_by(|a, b| compare(a, b));
            prop_assert!(compare(all[0], all[2]).is_le());
        }
    }
}
