//! Load of activations on a thread: stated by the workload, summed by the analyses.

/// CPU time of looking for work once (collecting what is ready, asking the middleware, taking),
/// where it was not measured: by sources without the threads' CPU clock. Measured values replace
/// it, with a margin.
pub const DISPATCH_NS: u64 = 200_000;

/// Load of activations on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Execution.
    pub work_ns: u64,
    /// Self-suspension.
    pub suspended_ns: u64,
    /// Number of suspensions.
    pub suspensions: u64,
    /// Yields, each of which gives the rest of a budget away.
    pub yields: u64,
}

impl Load {
    /// The least there can be.
    pub(crate) const INSTANT: Self = Self { work_ns: 1, suspended_ns: 0, suspensions: 0, yields: 0 };

    /// On a processor of its own.
    #[inline]
    #[must_use]
    pub fn length(self) -> u64 {
        self.work_ns.saturating_add(self.suspended_ns)
    }

    /// The rest without a part.
    #[inline]
    #[must_use]
    pub(crate) fn without(self, part: Self) -> Self {
        Self {
            work_ns: self.work_ns.saturating_sub(part.work_ns),
            suspended_ns: self.suspended_ns.saturating_sub(part.suspended_ns),
            suspensions: self.suspensions.saturating_sub(part.suspensions),
            yields: self.yields.saturating_sub(part.yields),
        }
    }
}

impl std::ops::Add for Load {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self {
            work_ns: self.work_ns.saturating_add(other.work_ns),
            suspended_ns: self.suspended_ns.saturating_add(other.suspended_ns),
            suspensions: self.suspensions.saturating_add(other.suspensions),
            yields: self.yields.saturating_add(other.yields),
        }
    }
}

impl std::iter::Sum for Load {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::default(), |sum, load| sum + load)
    }
}
