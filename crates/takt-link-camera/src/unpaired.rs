//! Images of a recording that have no partner.

use std::fmt;

use crate::recording::PAIRING_MS;

/// Images that are not replayed, because no image of the other kind was taken at about the same
/// time. Half a frame is none: they count as dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpaired {
    /// Colour images without depth.
    pub colour: u64,
    /// Depth images without colour.
    pub depth: u64,
    /// Least time between one of them and the nearest image of the other kind, nanoseconds;
    /// [`u64::MAX`] where there is none of the other kind.
    pub nearest_ns: u64,
    /// Greatest such time, nanoseconds.
    pub farthest_ns: u64,
    /// The sufficient distance (`pairing_ms`), nanoseconds.
    pub pairing_ns: u64,
    /// How often the stamps of an image topic went backwards.
    pub steps_back: u64,
    /// The greatest such step of the clock that stamps them, nanoseconds.
    pub step_ns: u64,
}

impl Unpaired {
    pub(crate) fn new(pairing_ns: u64) -> Self {
        Self {
            colour: 0,
            depth: 0,
            nearest_ns: u64::MAX,
            farthest_ns: 0,
            pairing_ns,
            steps_back: 0,
            step_ns: 0,
        }
    }

    /// Images of both kinds.
    pub fn images(&self) -> u64 {
        self.colour.saturating_add(self.depth)
    }

    /// Advice about it.
    pub(crate) fn advice(&self) -> String {
        let nearest_ms = self.nearest_ns as f64 / 1e6;
        if nearest_ms > *PAIRING_MS.end() {
            return format!(
                "that is more than the greatest pairing_ms ({} ms): the images were taken at different times, or their cameras use \
                 different clocks",
                PAIRING_MS.end()
            );
        }
        // Images that follow each other at this distance vary by some milliseconds.
        let enough_ms = (nearest_ms * 1.25).ceil().max(1.0).min(*PAIRING_MS.end());
        format!("if they belong together, set a larger pairing_ms, for example pairing_ms = {enough_ms}")
    }
}

impl fmt::Display for Unpaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { colour, depth, .. } = self;
        if self.steps_back > 0 {
            write!(
                f,
                "the image stamps of the recording go backwards {} times, by {} ms at most, as when a clock is set: an image is paired only \
                 with one from the same side of such a step, and a frame stamped before the one in front of it follows by the distance of \
                 their log times (where these stand still, such frames are due at once, and all but the last count as dropped)",
                self.steps_back,
                Milliseconds(self.step_ns)
            )?;
            if self.images() == 0 {
                return Ok(());
            }
            f.write_str("; ")?;
        }
        write!(f, "{colour} colour and {depth} depth images of the recording have no partner")?;
        if self.nearest_ns == u64::MAX {
            return f.write_str(" and count as dropped");
        }
        write!(
            f,
            " within pairing_ms = {} and count as dropped: the nearest image of the other kind is {} ms away",
            Milliseconds(self.pairing_ns),
            Milliseconds(self.nearest_ns)
        )?;
        if self.farthest_ns > self.nearest_ns {
            write!(f, " (at most {} ms)", Milliseconds(self.farthest_ns))?;
        }
        write!(f, "; {}", self.advice())
    }
}

/// Nanoseconds, written as a number of milliseconds.
pub(crate) struct Milliseconds(pub u64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // To the microsecond; whole ones without a fraction.
        write!(f, "{}", (self.0 as f64 / 1e3).round() / 1e3)
    }
}
