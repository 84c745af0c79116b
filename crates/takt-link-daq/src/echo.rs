//! Far end of a loopback: an echo thread, or a plant's process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::BorrowedFd;
use takt_rt::settings::Granted;
use takt_rt::thread::{Handle, spawn};

use crate::config::EchoConfig;
use crate::error::LinkError;
use crate::far_end::{FarEndSetup, FarProcess, Wire};

/// The far end. A thread must be stopped before its descriptors are closed.
pub struct Echo {
    stop: Arc<AtomicBool>,
    handle: Option<Handle<std::io::Result<()>>>,
    process: Option<FarProcess>,
    name: String,
    granted: Option<Granted>,
}

impl Echo {
    /// Starts `body` under the settings of `config`; it must look at the flag at least every
    /// [`STOP_LATENCY_MS`](crate::far_end::STOP_LATENCY_MS).
    pub fn start<F>(config: &EchoConfig, body: F) -> Result<Self, LinkError>
    where
        F: FnOnce(&AtomicBool) -> std::io::Result<()> + Send + 'static,
    {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let name = "daq-echo";
        let handle = spawn(name, &config.settings(), move || body(&flag))?;
        let granted = Some(handle.granted().clone());
        Ok(Self { stop, handle: Some(handle), process: None, name: name.to_owned(), granted })
    }

    /// Starts the process of a plant under the settings of `config`, with its end of the wire.
    pub fn process(
        setup: &FarEndSetup,
        config: &EchoConfig,
        wire: Wire,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Self, LinkError> {
        let process = FarProcess::start(setup, config, wire, fds)?;
        Ok(Self {
            stop: Arc::new(AtomicBool::new(false)),
            handle: None,
            granted: process.granted().cloned(),
            name: format!("daq-far-end (process {})", process.id()),
            process: Some(process),
        })
    }

    pub fn facts(&self) -> Option<(String, Granted)> {
        Some((self.name.clone(), self.granted.clone()?))
    }

    /// Whether a plant answers.
    pub(crate) fn has_plant(&self) -> bool {
        self.process.is_some()
    }

    /// Ends a plant and returns its report; None without one.
    pub fn report(&mut self) -> Option<serde_json::Value> {
        self.process.take()?.finish()
    }

    /// Reason of the unrequested end of the thread or process; None while it runs.
    pub fn ended(&mut self) -> Option<String> {
        if let Some(process) = &mut self.process {
            return process.ended();
        }
        let ended = self.handle.take_if(|handle| handle.is_finished())?;
        Some(match ended.join() {
            Ok(Ok(())) => "it has ended".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        })
    }

    /// As [`ended`](Self::ended), where the wire is broken: a process may need a moment to have
    /// ended. The loop is at its end then.
    pub fn gone(&mut self) -> Option<String> {
        match &mut self.process {
            Some(process) => process.gone(),
            None => self.ended(),
        }
    }

    /// Asks the thread to end; `wake` gets it out of the kernel where it would not come out by
    /// itself.
    pub fn stop(&mut self, wake: impl FnOnce()) {
        self.process = None;
        if self.handle.is_none() {
            return;
        }
        self.stop.store(true, Ordering::Release);
        wake();
        if let Some(handle) = self.handle.take() {
            // Its result no longer matters.
            let _ = handle.join();
        }
    }
}
