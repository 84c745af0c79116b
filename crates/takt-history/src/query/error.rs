//! Errors of a question.

/// Reason why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The store, or something in it.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// A run, or what is asked of it.
    #[error(transparent)]
    Report(#[from] takt_report::Error),
    /// A column that no run of the store has.
    #[error("no column {asked}; the columns are {there}")]
    NoColumn {
        asked: String,
        /// The existing ones.
        there: String,
    },
    /// A condition that cannot be read, or that asks for more than conditions can.
    #[error("--where {text}: {why}")]
    Where {
        /// The condition.
        text: String,
        /// The mistake in it.
        why: String,
    },
    /// No run is left.
    #[error("none of the {of} runs in the store matches --where {text}")]
    NoRuns {
        /// The condition.
        text: String,
        /// Number of runs.
        of: usize,
    },
    /// More groups than anybody reads.
    #[error(
        "--by {by} makes {groups} groups, but at most {most} are compared: choose columns with fewer values, or select fewer runs with \
         --where"
    )]
    Groups {
        /// The columns.
        by: String,
        /// Number of their groups.
        groups: usize,
        /// Largest number accepted.
        most: usize,
    },
    /// A store without runs.
    #[error("the store contains no runs yet: add them with takt store put")]
    Empty,
    /// A folder for what is read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        path: std::path::PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}
