//! A limit on events of one kind. A robot that flaps for weeks must neither fill the disk nor have
//! journald drop what other services say.

use std::time::{Duration, Instant};

use crate::event::Kind;

/// Time over which events are counted.
const SLOT: Duration = Duration::from_secs(10);

/// Events of a kind within a slot that are told one by one. A cell that stops and goes on as often
/// as it can makes 40 in ten seconds.
pub(crate) const MOST: u32 = 100;

/// Counts one kind.
#[derive(Clone, Copy, Debug)]
struct Slot {
    kind: Kind,
    began: Instant,
    reported: u32,
    held_back: u64,
}

/// Counts every kind.
#[derive(Debug, Default)]
pub(crate) struct Flood(Vec<Slot>);

impl Flood {
    /// Whether an event of `kind` is told now. One that is not is counted.
    pub(crate) fn admits(&mut self, kind: Kind, now: Instant) -> bool {
        let slot = match self.0.iter_mut().position(|slot| slot.kind == kind) {
            Some(index) => &mut self.0[index],
            None => {
                self.0.push(Slot { kind, began: now, reported: 0, held_back: 0 });
                let last = self.0.len() - 1;
                &mut self.0[last]
            }
        };
        // The sums of a slot with events held back are told by `over`, which ends it.
        if slot.held_back == 0 && now.duration_since(slot.began) >= SLOT {
            (slot.began, slot.reported) = (now, 0);
        }
        if slot.reported < MOST {
            slot.reported += 1;
            return true;
        }
        slot.held_back += 1;
        false
    }

    /// Kinds of which events were held back in a slot that is over (all, at the end), with how
    /// many.
    pub(crate) fn over(&mut self, now: Instant, at_end: bool) -> Vec<(Kind, u64)> {
        let over =
            |slot: &&mut Slot| slot.held_back > 0 && (at_end || now.duration_since(slot.began) >= SLOT);
        self.0
            .iter_mut()
            .filter(over)
            .map(|slot| {
                let held_back = std::mem::take(&mut slot.held_back);
                (slot.began, slot.reported) = (now, 0);
                (slot.kind, held_back)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_counted_and_told() {
        let (mut flood, begun) = (Flood::default(), Instant::now());
        let reported = (0..250).filter(|_| flood.admits(Kind::Late, begun)).count();
        assert_eq!(reported, MOST as usize);
        assert!(flood.admits(Kind::Stop, begun), "another kind has its own count");
        assert_eq!(flood.over(begun, false), []);
        let later = begun + SLOT;
        assert!(!flood.admits(Kind::Late, later), "its sum has not been reported yet");
        assert_eq!(flood.over(later, false), [(Kind::Late, 151)]);
        assert!(flood.admits(Kind::Late, later));
        assert_eq!(flood.over(later + SLOT, true), []);
        // A quiet kind begins anew by itself.
        assert!((0..MOST).all(|_| flood.admits(Kind::Stop, later + SLOT)));
        assert!(!flood.admits(Kind::Stop, later + SLOT));
        assert_eq!(flood.over(later + SLOT, true), [(Kind::Stop, 1)]);
    }
}
