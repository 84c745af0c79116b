//! Pairing of colour and depth images into frames.

use crate::unpaired::Unpaired;

use super::limits::MAX_EDGE_IMAGES;

/// Action for the oldest image of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They are a frame.
    Pair,
    /// They are one, unless the image that follows the one named is nearer to the other.
    PairUnlessNext(Kind),
    /// The one named is too old for any partner.
    Alone(Kind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Colour,
    Depth,
}

/// Pairs the two streams of a recording, and counts what is left over.
#[derive(Debug)]
pub(super) struct Pairing {
    limit_ns: u64,
    /// Stamps of the last images, colour and depth.
    last_ns: [Option<u64>; 2],
    /// Without a partner since the last pair.
    gap: Unpaired,
    /// Whether this round had a pair.
    begun: bool,
    /// The stamps went backwards since the last pair: distances in time mean nothing.
    at_a_step: bool,
    /// Without a partner until then, over all rounds.
    total: Unpaired,
    lost: u64,
}

impl Pairing {
    pub(super) fn new(limit_ns: u64) -> Self {
        let none = Unpaired::new(limit_ns);
        Self { limit_ns, last_ns: [None; 2], gap: none, begun: false, at_a_step: false, total: none, lost: 0 }
    }

    /// Judges the oldest images.
    pub(super) fn judge(&self, colour_ns: u64, depth_ns: u64) -> Verdict {
        let older = if colour_ns < depth_ns { Kind::Colour } else { Kind::Depth };
        match colour_ns.abs_diff(depth_ns) {
            0 => Verdict::Pair,
            apart_ns if apart_ns <= self.limit_ns => Verdict::PairUnlessNext(older),
            _ => Verdict::Alone(older),
        }
    }

    /// A topic's stamps go backwards, by a step of its clock of so much.
    pub(super) fn stepped_back(&mut self, step_ns: u64) {
        self.at_a_step = true;
        self.total.steps_back += 1;
        self.total.step_ns = self.total.step_ns.max(step_ns);
    }

    /// An image goes without a partner; `other_ns` is the next image of the other kind.
    pub(super) fn alone(&mut self, kind: Kind, stamp_ns: u64, other_ns: Option<u64>) {
        let [own, other] = match kind {
            Kind::Colour => [0, 1],
            Kind::Depth => [1, 0],
        };
        match kind {
            Kind::Colour => self.gap.colour += 1,
            Kind::Depth => self.gap.depth += 1,
        }
        let partners = [other_ns, self.last_ns[other]].map(|other_ns| other_ns.filter(|_| !self.at_a_step));
        let nearest_ns = partners.into_iter().flatten().map(|other_ns| stamp_ns.abs_diff(other_ns)).min();
        if let Some(nearest_ns) = nearest_ns {
            self.gap.nearest_ns = self.gap.nearest_ns.min(nearest_ns);
            self.gap.farthest_ns = self.gap.farthest_ns.max(nearest_ns);
        }
        self.last_ns[own] = Some(stamp_ns);
    }

    /// More images of a kind that has outlived the other.
    pub(super) fn left_over(&mut self, kind: Kind, images: u64) {
        match kind {
            Kind::Colour => self.gap.colour += images,
            Kind::Depth => self.gap.depth += images,
        }
    }

    /// Two images are a frame.
    pub(super) fn paired(&mut self, colour_ns: u64, depth_ns: u64) {
        self.last_ns = [Some(colour_ns), Some(depth_ns)];
        self.at_a_step = false;
        // Recorders do not begin with the same image of both topics.
        self.close(!self.begun);
        self.begun = true;
    }

    /// The recording is over.
    pub(super) fn ended(&mut self) {
        // Nor do they end with the same image.
        self.close(self.begun);
    }

    fn close(&mut self, at_an_edge: bool) {
        let gap = std::mem::replace(&mut self.gap, Unpaired::new(self.limit_ns));
        let frames = gap.colour.max(gap.depth);
        if frames == 0 || (at_an_edge && frames <= MAX_EDGE_IMAGES) {
            return;
        }
        self.lost = self.lost.saturating_add(frames);
        self.total.colour += gap.colour;
        self.total.depth += gap.depth;
        self.total.nearest_ns = self.total.nearest_ns.min(gap.nearest_ns);
        self.total.farthest_ns = self.total.farthest_ns.max(gap.farthest_ns);
    }

    /// Begins at the beginning again; what was counted stays.
    pub(super) fn rewind(&mut self) {
        (self.last_ns, self.begun, self.at_a_step) = ([None; 2], false, false);
        self.gap = Unpaired::new(self.limit_ns);
    }

    /// Images without a partner since the last frame.
    pub(super) fn waiting(&self) -> u64 {
        self.gap.images()
    }

    /// Images without a partner, over all rounds.
    pub(super) fn unpaired(&self) -> Unpaired {
        self.total
    }

    /// Frames that were none for want of a partner, over all rounds: of a colour image and a depth
    /// image between the same two frames, either may be what the other lacked.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_forgiven_and_gaps_are_counted() {
        let mut pairing = Pairing::new(5);
        (0..5).for_each(|n| pairing.alone(Kind::Colour, n, Some(100)));
        pairing.paired(100, 100);
        assert_eq!((pairing.lost(), pairing.unpaired().images()), (0, 0), "five at the beginning");
        assert_eq!(pairing.judge(200, 220), Verdict::Alone(Kind::Colour));
        pairing.alone(Kind::Colour, 200, Some(220));
        pairing.alone(Kind::Depth, 220, Some(300));
        pairing.paired(300, 303);
        let unpaired = pairing.unpaired();
        assert_eq!((pairing.lost(), unpaired.colour, unpaired.depth), (1, 1, 1));
        assert_eq!((unpaired.nearest_ns, unpaired.farthest_ns), (20, 20));
        pairing.left_over(Kind::Depth, 6);
        pairing.ended();
        assert_eq!((pairing.lost(), pairing.unpaired().depth), (7, 7), "six at the end");
    }

    #[test]
    fn a_nearer_successor_of_the_older_one_is_asked_for() {
        let pairing = Pairing::new(25);
        assert_eq!(pairing.judge(100, 87), Verdict::PairUnlessNext(Kind::Depth));
        assert_eq!(pairing.judge(100, 126), Verdict::Alone(Kind::Colour));
        assert_eq!(pairing.judge(100, 100), Verdict::Pair);
    }
}
