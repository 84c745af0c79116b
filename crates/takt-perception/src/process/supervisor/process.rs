//! One worker process and what it says.

use std::collections::VecDeque;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use takt_rt::thread;

use super::{Program, WorkerError};
use crate::process::listen::{MAX_WAITING, keep_words, listen};
use crate::process::message::Message;
use crate::process::region::Region;

/// Time after which a killed process that still exists is reported.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// One running process.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) messages: Receiver<Message>,
    last_words: Arc<Mutex<VecDeque<String>>>,
}

impl Process {
    pub(super) fn start(program: &Program, region: &Region) -> Result<Self, WorkerError> {
        let failed = |source| WorkerError::Start { what: program.path.display().to_string(), source };
        let memory = region.descriptor().map_err(failed)?;
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .envs(program.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(memory))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the cell, which then ends this in order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (sender, messages) = mpsc::sync_channel(MAX_WAITING);
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(out) = child.stdout.take() {
            spawn_listener("worker-out", move || listen(out, &sender))?;
        }
        if let Some(err) = child.stderr.take() {
            let kept = Arc::clone(&last_words);
            spawn_listener("worker-err", move || keep_words(err, &kept))?;
        }
        Ok(Self { child, messages, last_words })
    }

    /// Its end, in words; `None` while it lives.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| in_words(status) + &self.last_words())
    }

    pub(super) fn last_words(&self) -> String {
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        words.back().map(|line| format!(": {line}")).unwrap_or_default()
    }

    /// Kills it and waits until it is gone; false when the kernel still holds it after
    /// [`KILL_PATIENCE`].
    pub(super) fn kill(&mut self) -> bool {
        // It may have ended by itself.
        let _ = self.child.kill();
        let until = Instant::now() + KILL_PATIENCE;
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Reaped if it can be; a process that the kernel does not let go must not hold up the
        // cell's end for ever.
        self.kill();
    }
}

fn spawn_listener(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), WorkerError> {
    // Ends with the pipe, that is with the worker.
    drop(thread::spawn_exempt(name, "reads the perception process's messages", body)?);
    Ok(())
}

pub(super) fn in_words(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}
