//! Cycles of watched threads without their causes: what an experiment on them needs.

use std::time::Duration;

use takt_rt::jobs::JobRecord;
use takt_trace::{KeepAwake, TraceError, TraceOptions, Tracer};

use crate::watcher::Watcher;
use crate::windows::Followed;

/// Source of the cycles. CPUs are not kept awake for it.
#[derive(Debug)]
pub struct CycleFeed(Source);

#[derive(Debug)]
enum Source {
    /// The kernel follows the threads: nothing is read of what others do.
    Kernel(Box<Followed>),
    /// All events of the machine.
    Events(Box<Tracer>),
}

impl CycleFeed {
    /// Begins; the kernel follows where it takes programs for that, else all events are read.
    ///
    /// # Errors
    /// [`TraceError`]: neither can be had.
    pub fn start(watcher: &mut Watcher) -> Result<Self, TraceError> {
        if let Ok(followed) = Followed::start() {
            watcher.in_kernel = true;
            let mut feed = Self(Source::Kernel(Box::new(followed)));
            // The kernel learns the watched threads with the first take.
            feed.take(watcher, &mut |_, _| {})?;
            return Ok(feed);
        }
        let trace = TraceOptions {
            keep_awake: KeepAwake::Off,
            stacks: false,
            firmware: false,
            period: Duration::from_millis(50),
            ..TraceOptions::default()
        };
        Ok(Self(Source::Events(Box::new(Tracer::start(&trace)?))))
    }

    /// Reports `sink` of the cycles that have ended, by thread; returns how much was lost.
    ///
    /// # Errors
    /// [`TraceError::Ended`].
    pub fn take(
        &mut self,
        watcher: &mut Watcher,
        sink: &mut dyn FnMut(i32, &[JobRecord]),
    ) -> Result<u64, TraceError> {
        let before = watcher.lost_events;
        match &mut self.0 {
            Source::Kernel(followed) => {
                watcher.take_cycles_of(followed, false, sink);
            }
            Source::Events(tracer) => watcher.feed(tracer.take()?, false, sink),
        }
        Ok(watcher.lost_events - before)
    }
}
