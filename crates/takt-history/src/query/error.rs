//! What can be wrong with a question.

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The store, or something in it.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// A run, or what is asked of it.
    #[error(transparent)]
    Report(#[from] takt_report::Error),
    /// A column that no run of the store has.
    #[error("no column {asked}; there are {there}")]
    NoColumn {
        asked: String,
        /// What exists.
        there: String,
    },
    /// A condition that cannot be read, or that asks for more than conditions can.
    #[error("--where {text}: {why}")]
    Where {
        /// The condition.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// No run is left.
    #[error("none of {of} runs of the store fulfils --where {text}")]
    NoRuns {
        /// The condition.
        text: String,
        /// How many there are.
        of: usize,
    },
    /// More groups than anybody reads.
    #[error(
        "--by {by} makes {groups} groups, and at most {most} are compared: take columns with fewer values, or fewer runs by --where"
    )]
    Groups {
        /// The columns.
        by: String,
        /// How many groups they make.
        groups: usize,
        /// How many there may be.
        most: usize,
    },
    /// A store without runs.
    #[error("the store holds no run yet: takt store put brings them")]
    Empty,
    /// A folder for what is read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        path: std::path::PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}
