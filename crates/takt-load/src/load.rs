//! Starting, watching and ending the components of a profile.

mod part;
mod starter;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use takt_rt::census::Registration;
use takt_rt::policy::Policy;
use takt_rt::signal::Signal;
use takt_rt::{clock, placement};

use crate::error::LoadError;
use crate::guard::Guard;
use crate::profile::{Component, Profile};
use crate::report::{Death, LoadReport};
use crate::system::{Counters, Memory};
use crate::tool::Tools;
use part::Part;
use starter::Starter;

/// Time between looks at the health of the components: short against any run.
const WATCH_PERIOD: Duration = Duration::from_millis(100);

const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
struct LoadState {
    parts: Mutex<Vec<Part>>,
    /// Number of processes that the kernel had killed because memory ran out when the load began.
    oom_kills: u64,
    stop: Signal,
}

impl LoadState {
    fn lock(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running load. Dropping it ends all of it.
#[derive(Debug)]
pub struct Load {
    profile: String,
    shared: Arc<LoadState>,
    watch: Option<JoinHandle<()>>,
    /// After the parts: what they have left behind ends with it.
    guard: Option<Guard>,
    started_ns: u64,
    before: Counters,
}

impl Load {
    /// Starts every component of `profile`, SCHED_OTHER with nice 0 whatever the caller's policy
    /// is, allowed wherever the caller is. Files go to the folder `scratch`. Returns once
    /// everything runs.
    ///
    /// # Errors
    /// [`LoadError`]; nothing is left running then.
    pub fn start(profile: &Profile, scratch: &Path) -> Result<Self, LoadError> {
        Self::start_with(profile, scratch, &Tools::default())
    }

    fn start_with(profile: &Profile, scratch: &Path, tools: &Tools) -> Result<Self, LoadError> {
        profile.validate()?;
        // Processes and threads inherit the policy of the thread that starts them, so a plain one
        // does.
        std::thread::scope(|scope| {
            let body = || {
                let _registration = Registration::exempt_self("load");
                Policy::Other { nice: 0 }
                    .apply(0)
                    .map_err(|error| LoadError::Thread { component: "load", reason: error.to_string() })?;
                Starter { profile, scratch, tools, guard: None }.start()
            };
            let error = |reason: String| LoadError::Thread { component: "load", reason };
            let thread = Builder::new()
                .name("load-start".into())
                .spawn_scoped(scope, body)
                .map_err(|e| error(e.to_string()))?;
            thread.join().unwrap_or_else(|_| Err(error("it panicked".into())))
        })
    }

    /// Whether every component still works.
    ///
    /// # Errors
    /// [`LoadError::Died`] names the first that does not.
    pub fn check(&self) -> Result<(), LoadError> {
        let after_s = self.seconds();
        let mut parts = self.shared.lock();
        for part in parts.iter_mut() {
            part.watch(after_s, self.shared.oom_kills);
            if let Some(Death { after_s, why }) = part.died.clone() {
                let (component, tool) = (part.component.kind().to_owned(), part.tool().to_owned());
                return Err(LoadError::Died { component, tool, after_s, why });
            }
        }
        if let Some(guard) = self.guard.as_ref().filter(|guard| !guard.is_alive()) {
            let why = format!(
                "the shell {}, which stops the tools when this program ends, has ended",
                guard.group()
            );
            let (component, tool) = ("guard".into(), "sh".into());
            return Err(LoadError::Died { component, tool, after_s, why });
        }
        Ok(())
    }

    /// Ends all components and shows what they have done.
    pub fn stop(mut self) -> LoadReport {
        self.shared.lock().iter_mut().for_each(Part::pause);
        let seconds = self.seconds();
        let system = Counters::read().since(&self.before);
        let cpus = placement::online().map_or(1, |online| online.len());
        let mut parts = self.end_watch();
        for part in &mut parts {
            part.watch(seconds, self.shared.oom_kills);
        }
        for part in &mut parts {
            part.ask_to_end();
        }
        let components = parts.into_iter().map(|part| part.finish(seconds, cpus)).collect();
        LoadReport { profile: self.profile.clone(), seconds, components, system }
    }

    fn seconds(&self) -> f64 {
        clock::monotonic_ns().saturating_sub(self.started_ns) as f64 / 1e9
    }

    fn end_watch(&mut self) -> Vec<Part> {
        self.shared.stop.notify();
        if let Some(watch) = self.watch.take() {
            let _ = watch.join();
        }
        std::mem::take(&mut *self.shared.lock())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.end_watch());
        drop(self.guard.take());
    }
}

/// Looks after the parts until instructed to stop.
fn watch(shared: &LoadState, started_ns: u64) {
    let _registration = Registration::exempt_self("load");
    // A census may have come before the exemption. A refusal costs nothing that counts.
    let _ = Policy::Other { nice: 0 }.apply(0);
    while shared.stop.wait(0, WATCH_PERIOD) == 0 {
        let after_s = clock::monotonic_ns().saturating_sub(started_ns) as f64 / 1e9;
        let memory = Memory::read(Path::new("/"));
        for part in shared.lock().iter_mut() {
            part.watch(after_s, shared.oom_kills);
            if let (Component::Memory { .. }, Some(memory)) = (&part.component, memory)
                && memory.available < memory.floor()
            {
                let why = format!(
                    "stopped by Takt: only {} MiB of memory were left, but {} MiB are required",
                    memory.available / MIB,
                    memory.floor() / MIB
                );
                part.give_up(after_s, why);
            }
        }
    }
}

#[cfg(test)]
mod tests;
