//! Errors of a gate or a history.

/// Errors of gate and history.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A run directory, or what is asked of it.
    #[error(transparent)]
    Report(#[from] takt_report::Error),
    /// None of the runs of a side can be used.
    #[error("{side}: none of {found} runs can be used: {reasons}")]
    NoRuns {
        /// The side: "baseline", "candidates".
        side: &'static str,
        found: usize,
        reasons: String,
    },
    /// Nothing puts the runs in an order.
    #[error("no run states its {by}; a history goes over kernel, version, day or a factor of the campaign")]
    NoOrder { by: String },
}
