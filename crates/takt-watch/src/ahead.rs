//! What a watch would need, without one.

use takt_trace::calls::Calls;
use takt_trace::{TraceOptions, Tracer};

use crate::link::Link;
use crate::rights::{Facts, Missing};
use crate::target::{Target, Watched};
use crate::watcher::FollowBy;
use crate::windows::Followed;

/// What a look ahead found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// What would be watched.
    pub target: String,
    /// Its threads and processes that run now.
    pub threads: usize,
    pub processes: usize,
    /// Who would follow the threads.
    pub followed_by: FollowBy,
    /// Why kernel events cannot be had; None where they can.
    pub untraced: Option<String>,
    /// Why sends and writes of threads cannot be followed; None where they can.
    pub no_calls: Option<String>,
    /// Why no link can be followed; None where one can.
    pub no_links: Option<String>,
    /// What is missing, with its fix; what it can do without at a price, too.
    pub missing: Vec<Missing>,
}

impl Ahead {
    /// Whether loops can be found and causes named.
    pub fn is_possible(&self) -> bool {
        self.untraced.is_none() && self.threads > 0
    }
}

/// Looks whether `target` is there and can be watched: everything that a watch begins with is begun
/// and given back at once.
pub fn look_ahead(target: &Target) -> Ahead {
    let mut watched = Watched::new(target.clone());
    watched.refresh();
    let facts = Facts::read();
    let (followed_by, untraced) = if facts.own_pids {
        let why = "the kernel's events name threads by other numbers than this program knows";
        (FollowBy::Events, Some(why.to_owned()))
    } else if Followed::start().is_ok() {
        (FollowBy::Kernel, tracer())
    } else {
        (FollowBy::Events, tracer())
    };
    // Any thread is as good as another.
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    Ahead {
        target: target.to_string(),
        threads: watched.threads_now().len(),
        processes: watched.processes.len(),
        followed_by,
        untraced,
        no_calls: Calls::open(own).err().map(|error| error.to_string()),
        no_links: Link::refused(),
        missing: facts.missing(),
    }
}

/// Why no events can be had.
fn tracer() -> Option<String> {
    let options = TraceOptions { keep_awake: takt_trace::KeepAwake::Off, ..TraceOptions::default() };
    match Tracer::start(&options).and_then(Tracer::stop) {
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}
