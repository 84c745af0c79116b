//! The reaction-time histogram that the views draw: fixed bins on a logarithmic time axis.

/// Counts of reaction times in bins whose edges grow by a constant factor.
///
/// Bin `i` holds `[edge(i), edge(i + 1))`; the first bin also holds everything below it and the
/// last everything above, so no sample is lost. Twenty-four bins an octave (3 % each) resolve a 37
/// ms deadline to about 1 ms, and ten octaves reach from 2 ms to 2 s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReactionHistogram {
    counts: [u32; ReactionHistogram::BINS],
}

impl Default for ReactionHistogram {
    fn default() -> Self {
        Self { counts: [0; Self::BINS] }
    }
}

impl ReactionHistogram {
    pub const BINS: usize = 240;
    /// Lower edge of the first bin, milliseconds.
    pub const FIRST_MS: f32 = 2.0;
    /// Bins for each doubling of the time.
    pub const BINS_PER_OCTAVE: f32 = 24.0;

    /// Lower edge of bin `bin`, milliseconds.
    pub(crate) fn edge_ms(bin: usize) -> f32 {
        Self::FIRST_MS * (bin as f32 / Self::BINS_PER_OCTAVE).exp2()
    }

    /// The bin of a reaction time. NaN counts as late: it goes into the last bin.
    pub fn bin(reaction_ms: f32) -> usize {
        if reaction_ms.is_nan() {
            return Self::BINS - 1;
        }
        let bin = (reaction_ms.max(Self::FIRST_MS) / Self::FIRST_MS).log2() * Self::BINS_PER_OCTAVE;
        (bin as usize).min(Self::BINS - 1)
    }

    /// Counts one reaction time, milliseconds.
    pub fn record(&mut self, reaction_ms: f32) {
        let count = &mut self.counts[Self::bin(reaction_ms)];
        *count = count.saturating_add(1);
    }

    pub fn counts(&self) -> &[u32; Self::BINS] {
        &self.counts
    }

    /// The bins worth drawing: all that hold something, and from half the deadline to five quarters
    /// of it.
    pub fn shown(&self, deadline_ms: f32) -> std::ops::Range<usize> {
        let (below, above) = (Self::bin(deadline_ms * 0.5), Self::bin(deadline_ms * 1.25));
        let first = self.counts.iter().position(|&count| count > 0).unwrap_or(below);
        let last = self.counts.iter().rposition(|&count| count > 0).unwrap_or(above);
        first.saturating_sub(1).min(below)..(last + 2).max(above + 1).min(Self::BINS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lands_between_its_edges() {
        for ms in [2.0_f32, 2.1, 9.99, 37.3, 100.0, 1999.0] {
            let bin = ReactionHistogram::bin(ms);
            assert!(ReactionHistogram::edge_ms(bin) <= ms * 1.0001, "{ms} in bin {bin}");
            assert!(ms < ReactionHistogram::edge_ms(bin + 1) * 1.0001, "{ms} in bin {bin}");
        }
    }

    #[test]
    fn nothing_is_lost_outside_the_range() {
        assert_eq!(ReactionHistogram::bin(0.0), 0);
        assert_eq!(ReactionHistogram::bin(-1.0), 0);
        for late in [1e9, f32::INFINITY, f32::NAN] {
            assert_eq!(ReactionHistogram::bin(late), ReactionHistogram::BINS - 1);
        }
    }

    #[test]
    fn the_deadline_is_always_shown() {
        let mut histogram = ReactionHistogram::default();
        assert!(histogram.shown(37.3).contains(&ReactionHistogram::bin(37.3)));
        histogram.record(300.0);
        let shown = histogram.shown(37.3);
        assert!(shown.contains(&ReactionHistogram::bin(37.3)));
        assert!(shown.contains(&ReactionHistogram::bin(300.0)));
    }
}
