//! `takt store`

use std::path::PathBuf;

use clap::Subcommand;

/// `takt store`
#[derive(Debug, Subcommand)]
pub enum Store {
    /// List the runs of a store by their start
    Ls {
        /// The store: a folder, or s3://BUCKET/PREFIX (takt built with the feature s3)
        store: String,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Put sealed runs into a store, which is created if necessary
    Put {
        /// The store
        store: String,
        /// Run directories, or folders of them
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
    /// Fetch a run, and check every file against its hash
    Get {
        /// The store
        store: String,
        /// Run: the beginning of its hash or of its folder's name
        run: String,
        /// Folder in which to create the run's folder
        #[arg(long, default_value = "takt-runs")]
        to: PathBuf,
    },
    /// Check every file against its hash; exit with 1 if one differs
    Verify {
        /// The store
        store: String,
        /// Only these runs
        runs: Vec<String>,
    },
    /// Delete runs, and files older than a day that belong to no run
    Prune {
        /// The store
        store: String,
        /// Runs to delete [default: none, only files without a run]
        runs: Vec<String>,
        /// List what would be deleted, and exit
        #[arg(long)]
        dry_run: bool,
    },
}
