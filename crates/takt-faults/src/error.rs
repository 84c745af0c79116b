//! Errors that keep the fault test from continuing.

/// Reason why the test itself could not continue. A fault of the cell is a
/// [`Violation`](crate::Violation) instead.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// The machine refused something.
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    /// A recording could not be written.
    #[error("writing a recording: {0}")]
    Recording(#[from] takt_link_camera::CameraError),
    /// No case has such a name.
    #[error("--case {asked}: no case has this in its name; `takt bench faults --list` lists all cases")]
    NoSuchCase { asked: String },
    /// A process of the test did not do its part.
    #[error("{0}")]
    Child(String),
}

impl FaultError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
