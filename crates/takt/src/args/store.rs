//! `takt store`

use std::path::PathBuf;

use clap::Subcommand;

/// `takt store`
#[derive(Debug, Subcommand)]
pub enum Store {
    /// Runs that are there, in the order of their beginning
    Ls {
        /// The store: a folder, or s3://BUCKET/PREFIX (takt built with the feature s3)
        store: String,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Bring sealed runs into the store, which is made where there is none
    Put {
        /// The store
        store: String,
        /// Run directories, or folders of them
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
    /// Fetch a run, every file checked against its hash
    Get {
        /// The store
        store: String,
        /// The run: the beginning of its hash or of its directory's name
        run: String,
        /// Folder in which it gets a folder of its own
        #[arg(long, default_value = "takt-runs")]
        to: PathBuf,
    },
    /// Read everything and report what is not what it was; exit with 1 where there is such
    Verify {
        /// The store
        store: String,
        /// Only these runs
        runs: Vec<String>,
    },
    /// Take runs away, and what no run names and is older than a day
    Prune {
        /// The store
        store: String,
        /// Runs to take away; none: only what no run names
        runs: Vec<String>,
        /// Only report what would be taken away
        #[arg(long)]
        dry_run: bool,
    },
}
