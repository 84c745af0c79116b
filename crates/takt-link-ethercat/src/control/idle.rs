//! Cycles between the bring-up and the controller: devices in OP whose outputs dry up fall out of
//! it within their watchdog's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_rt::settings::ThreadSettings;
use takt_rt::thread::{self, Handle};

use super::port::Port;
use super::states::Cycling;

/// Cycles a port with the outputs set last until somebody takes it. Dropping it asks the devices
/// down first.
pub struct Idle {
    stop: Arc<AtomicBool>,
    thread: Option<Handle<Port>>,
    period: Duration,
}

impl Idle {
    /// Cycles `port` from now on in thread `ethercat-idle` with `settings`: those of the
    /// controller, whose place it holds.
    ///
    /// # Errors
    /// When the thread cannot be started, or `settings` are strict and not granted.
    pub fn start(port: Port, period: Duration, settings: &ThreadSettings) -> Result<Self, takt_rt::Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::spawn("ethercat-idle", settings, move || {
            let mut port = port;
            let mut cycling = Cycling::new(&mut port, period);
            while !stopping.load(Ordering::Acquire) {
                cycling.next();
            }
            port
        })?;
        Ok(Self { stop, thread: Some(thread), period })
    }

    /// Ends after the cycle under way and gives the port back, with what was counted so far
    /// forgotten. Cycle it on at once.
    ///
    /// # Errors
    /// [`takt_rt::Error::Panicked`].
    pub fn take(mut self) -> Result<Port, takt_rt::Error> {
        self.stop.store(true, Ordering::Release);
        match self.thread.take() {
            Some(thread) => thread.join().map(|mut port| {
                port.begin_counting();
                port
            }),
            // Taken by value: the thread is there.
            None => Err(takt_rt::Error::Panicked {
                thread: "ethercat-idle".to_owned(),
                message: "its port is already in use".to_owned(),
            }),
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(Ok(mut port)) = self.thread.take().map(Handle::join) {
            // Best effort: nobody is there to be informed.
            let _ = port.shut_down(self.period);
        }
    }
}
