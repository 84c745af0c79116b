//! What can go wrong with files.

use std::path::PathBuf;

/// Errors of run directories. Each names the file, what was found and what belongs there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {found}; expected {expected}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
}

impl Error {
    /// An [`Error::Io`] for `path`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
