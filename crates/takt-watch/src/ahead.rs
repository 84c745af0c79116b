//! Requirements of a watch, checked without starting one.

use takt_trace::calls::Calls;
use takt_trace::{TraceOptions, Tracer};

use crate::link::Link;
use crate::rights::{Facts, Missing};
use crate::target::{Target, Watched};
use crate::watcher::FollowBy;
use crate::windows::Followed;

/// Result of a check before a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// The target of the watch.
    pub target: String,
    /// Its threads and processes that run now.
    pub threads: usize,
    pub processes: usize,
    /// The follower of the threads.
    pub followed_by: FollowBy,
    /// Reason why kernel events are not available; None if they are.
    pub untraced: Option<String>,
    /// Reason why sends and writes of threads cannot be followed; None if they can.
    pub no_calls: Option<String>,
    /// Reason why no link can be followed; None if one can.
    pub no_links: Option<String>,
    /// Missing rights and features with their fix, including those that can be replaced at a price.
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
        let why = "the kernel's events use thread ids of another namespace";
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

/// Reason why events are not available.
fn tracer() -> Option<String> {
    let options = TraceOptions { keep_awake: takt_trace::KeepAwake::Off, ..TraceOptions::default() };
    match Tracer::start(&options).and_then(Tracer::stop) {
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}
