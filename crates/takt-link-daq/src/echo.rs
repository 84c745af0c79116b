//! The echo thread at the far end of a loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_rt::settings::Granted;
use takt_rt::thread::{Handle, spawn};

use crate::config::EchoConfig;
use crate::error::LinkError;

/// How long an echo thread sleeps at most before it looks whether it should end, milliseconds.
pub const STOP_LATENCY_MS: u64 = 100;

/// A running echo thread. It must be stopped before what it reads is closed.
pub struct Echo {
    stop: Arc<AtomicBool>,
    handle: Option<Handle<std::io::Result<()>>>,
    name: String,
    granted: Granted,
}

impl Echo {
    /// Starts `body` under the settings of `config`; it must look at the flag at least every [`STOP_LATENCY_MS`].
    pub fn start<F>(config: &EchoConfig, body: F) -> Result<Self, LinkError>
    where
        F: FnOnce(&AtomicBool) -> std::io::Result<()> + Send + 'static,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let name = "daq-echo";
        let handle = spawn(name, &config.settings(), move || body(&flag))?;
        let granted = handle.granted().clone();
        Ok(Self { stop, handle: Some(handle), name: name.to_owned(), granted })
    }

    pub fn facts(&self) -> (String, Granted) {
        (self.name.clone(), self.granted.clone())
    }

    /// Why the thread has ended although nobody asked it to; None while it runs.
    pub fn ended(&mut self) -> Option<String> {
        let ended = self.handle.take_if(|handle| handle.is_finished())?;
        Some(match ended.join() {
            Ok(Ok(())) => "it has ended".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        })
    }

    /// Asks the thread to end; `wake` gets it out of the kernel where it would not come out by itself.
    pub fn stop(&mut self, wake: impl FnOnce()) {
        self.stop.store(true, Ordering::Release);
        wake();
        if let Some(handle) = self.handle.take() {
            // What it had to say no longer matters.
            let _ = handle.join();
        }
    }
}
