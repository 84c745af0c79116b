//! Communication losses: counted, named, and judged against what the configuration allows.

use serde::{Deserialize, Serialize};

/// One kind of thing that must come and may be lost: frames of process data, packets of a robot's
/// controller, edges of an analog signal, frames of a camera.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// Short name: `lost_frames`.
    pub name: String,
    /// For people, plural: "frames of process data".
    pub title: String,
    /// Number of losses over the measured window.
    pub lost: u64,
    /// Expected number, the lost ones included; 0 if unknown.
    #[serde(default)]
    pub of: u64,
    /// Number of losses that the configuration allows.
    #[serde(default)]
    pub allowed: u64,
    /// The key that allows them, for the way out: `losses.max_lost_frames`.
    #[serde(default)]
    pub key: String,
}

impl Loss {
    /// Most that a configuration may allow: a limit beyond a million is none, and a run would not
    /// say that it judges nothing.
    pub const MAX_ALLOWED: f64 = 1e6;

    /// `lost` of `of` were lost; `key` of the configuration allows `allowed`.
    pub fn new(name: &str, title: &str, [lost, of]: [u64; 2], (key, allowed): (&str, u64)) -> Self {
        Self { name: name.to_owned(), title: title.to_owned(), lost, of, allowed, key: key.to_owned() }
    }

    /// Whether more were lost than is allowed.
    pub fn is_exceeded(&self) -> bool {
        self.lost > self.allowed
    }

    /// Adds the losses of a further run to those of the runs before it.
    pub fn add_all(sum: &mut Vec<Self>, more: &[Self]) {
        for loss in more {
            match sum.iter_mut().find(|known| known.name == loss.name) {
                Some(known) => {
                    known.lost = known.lost.saturating_add(loss.lost);
                    known.of = known.of.saturating_add(loss.of);
                    known.allowed = known.allowed.saturating_add(loss.allowed);
                }
                None => sum.push(loss.clone()),
            }
        }
    }

    /// A sentence about the loss: the reason of a failed run, or a note next to a PASS. `None` if
    /// nothing was lost.
    pub fn sentence(&self) -> Option<String> {
        let Self { title, lost, of, allowed, key, .. } = self;
        if *lost == 0 {
            return None;
        }
        let of = if *of > 0 { format!(" of {of}") } else { String::new() };
        Some(format!("{lost}{of} {title} were lost; {key} allows {allowed}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_said_and_only_more_than_allowed_fails() {
        let loss = |lost, allowed| {
            Loss::new("lost_frames", "frames", [lost, 5003], ("losses.max_lost_frames", allowed))
        };
        assert_eq!((loss(0, 0).sentence(), loss(0, 0).is_exceeded()), (None, false));
        let five = loss(5, 0);
        assert!(five.is_exceeded());
        assert_eq!(five.sentence().unwrap(), "5 of 5003 frames were lost; losses.max_lost_frames allows 0");
        // Losses within the limit are still reported.
        assert!(!loss(5, 5).is_exceeded() && loss(5, 5).sentence().is_some());
        assert!(loss(6, 5).is_exceeded());
        let mut sum = Vec::new();
        Loss::add_all(&mut sum, &[loss(1, 2), Loss { name: "other".to_owned(), ..loss(3, 0) }]);
        Loss::add_all(&mut sum, &[loss(u64::MAX, 2)]);
        let sums: Vec<_> = sum.iter().map(|l| (l.name.as_str(), l.lost, l.of, l.allowed)).collect();
        assert_eq!(sums, [("lost_frames", u64::MAX, 10_006, 4), ("other", 3, 5003, 0)]);
        let unknown = Loss { of: 0, ..five };
        assert_eq!(unknown.sentence().unwrap(), "5 frames were lost; losses.max_lost_frames allows 0");
    }
}
