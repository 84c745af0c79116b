//! `takt query`

use super::needs;

/// `takt query`
#[derive(Debug, clap::Args)]
#[cfg_attr(not(feature = "query"), allow(dead_code))]
#[command(after_help = needs::QUERY)]
pub struct Query {
    /// The question: SELECT kernel, count(*) FROM runs GROUP BY kernel
    pub sql: String,
    /// The store
    pub store: String,
    /// Print the answer as JSON: `columns`, and `rows` as objects
    #[arg(long)]
    pub json: bool,
}
