//! One component of a profile, whatever does its work.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::builtin::Workers;
use crate::error::LoadError;
use crate::gpu::GpuLoad;
use crate::noise::NoiseThreads;
use crate::profile::Component;
use crate::report::{ComponentReport, Death};
use crate::system;
use crate::tool::{Repeated, StressNg};

#[derive(Debug)]
pub(super) enum Engine {
    StressNg(StressNg),
    Repeated(&'static str, Repeated),
    Threads(Workers),
    Noise(NoiseThreads),
    Gpu(GpuLoad),
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) component: Component,
    pub(super) version: Option<String>,
    pub(super) stand_in: Option<String>,
    pub(super) asked: String,
    pub(super) processes: usize,
    /// Memory that it was asked to hold; 0 of other kinds.
    pub(super) memory_bytes: u64,
    pub(super) engine: Engine,
    pub(super) died: Option<Death>,
}

impl Part {
    pub(super) fn tool(&self) -> &'static str {
        match self.engine {
            Engine::StressNg(_) => "stress-ng",
            Engine::Repeated(tool, _) => tool,
            Engine::Threads(_) | Engine::Noise(_) => "built-in",
            Engine::Gpu(_) => "built-in, a process",
        }
    }

    pub(super) fn error(&self, reason: String) -> LoadError {
        LoadError::Tool { tool: self.tool(), component: self.component.kind(), reason }
    }

    /// Waits until memory stress by one method holds what it was asked to hold, nearly, and holds
    /// it still until [`resume`](Self::resume).
    pub(super) fn await_filled(&mut self, until: Instant) -> Result<(), LoadError> {
        let Component::Memory { workers, method: Some(_), .. } = self.component else { return Ok(()) };
        let asked = self.memory_bytes;
        let Engine::StressNg(stress) = &mut self.engine else { return Ok(()) };
        let outcome = stress.await_workers(workers, until).and_then(|_| stress.await_resident(asked, until));
        if outcome.is_ok() {
            stress.pause();
        }
        outcome.map_err(|reason| self.error(reason))
    }

    /// Holds the component still where all of its work is counted, and only that of the window is
    /// asked for.
    pub(super) fn pause(&mut self) {
        if let Engine::StressNg(stress) = &mut self.engine {
            stress.pause();
        }
    }

    /// Lets it go on.
    pub(super) fn resume(&mut self) {
        if let Engine::StressNg(stress) = &mut self.engine {
            stress.resume();
        }
    }

    /// Waits until every process and thread runs.
    pub(super) fn await_running(&mut self, until: Instant) -> Result<(), LoadError> {
        let outcome = match &mut self.engine {
            Engine::StressNg(stress) => {
                let workers = match self.component {
                    Component::Matrix { workers }
                    | Component::Memory { workers, .. }
                    | Component::Switch { workers }
                    | Component::Fork { workers } => workers,
                    _ => 1,
                };
                stress.await_workers(workers, until)
            }
            Engine::Repeated(_, tool) => tool.await_workers(until),
            Engine::Threads(workers) => await_threads(workers, until),
            Engine::Gpu(gpu) => gpu.await_ready(until).map_err(|error| error.to_string()).map(|device| {
                if device.emulated {
                    self.stand_in = Some(format!("{}: its figures say nothing about a GPU", device.name));
                }
                self.version = Some(format!("{} ({})", device.name, device.uuid));
                1
            }),
            Engine::Noise(noise) => {
                while !noise.work().iter().all(|work| work.operations > 0) && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                match noise.work().iter().filter(|work| work.operations == 0).count() {
                    0 => Ok(noise.len()),
                    idle => Err(format!("{idle} of {} threads never ran", noise.len())),
                }
            }
        };
        self.processes = outcome.map_err(|reason| self.error(reason))?;
        Ok(())
    }

    /// Looks whether the component still works whole. `oom_kills`: what the kernel had killed
    /// before it began.
    pub(super) fn watch(&mut self, after_s: f64, oom_kills: u64) {
        if self.died.is_some() {
            return;
        }
        let why = match &mut self.engine {
            Engine::StressNg(stress) => stress.death(),
            Engine::Repeated(_, tool) => {
                tool.kill_where_due();
                tool.death()
            }
            Engine::Threads(workers) => workers.death(),
            // Nothing in a noise thread can fail.
            Engine::Noise(_) => None,
            Engine::Gpu(gpu) => gpu.death(),
        };
        self.died = why.map(|mut why| {
            if system::oom_kills() > oom_kills {
                why.push_str("; meanwhile the kernel killed processes because memory ran out");
            }
            Death { after_s, why }
        });
    }

    /// Ends the component before its time, with the reason as its death.
    pub(super) fn give_up(&mut self, after_s: f64, why: String) {
        self.died.get_or_insert(Death { after_s, why });
        match &mut self.engine {
            Engine::StressNg(stress) => drop(stress.end()),
            Engine::Threads(workers) => workers.end(),
            Engine::Gpu(gpu) => drop(gpu.end()),
            Engine::Repeated(..) | Engine::Noise(_) => {}
        }
    }

    /// Asks the component to end and does not wait, so that all end together.
    pub(super) fn ask_to_end(&mut self) {
        match &mut self.engine {
            Engine::StressNg(stress) => stress.ask_to_end(),
            Engine::Repeated(_, tool) => tool.ask_to_end(),
            Engine::Threads(workers) => workers.ask_to_end(),
            Engine::Gpu(gpu) => gpu.ask_to_end(),
            // Ends within microseconds.
            Engine::Noise(_) => {}
        }
    }

    pub(super) fn finish(mut self, seconds: f64, cpus: usize) -> ComponentReport {
        let (kind, tool) = (self.component.kind().to_owned(), self.tool().to_owned());
        let mut proof = BTreeMap::new();
        let cpu_ns = match &mut self.engine {
            Engine::StressNg(stress) => {
                let (cpu_ns, operations) = stress.end();
                if let Component::Memory { .. } = self.component {
                    proof.insert("resident_bytes".to_owned(), stress.resident_bytes());
                }
                proof.insert(format!("{kind}_bogo_ops"), operations);
                cpu_ns
            }
            Engine::Repeated(_, tool) => {
                let (cpu_ns, counts) = tool.end();
                proof.extend(counts.into_iter().map(|(name, count)| (name.to_owned(), count)));
                cpu_ns
            }
            Engine::Threads(workers) => {
                workers.end();
                for (unit, amount) in workers.amounts() {
                    *proof.entry(unit.to_owned()).or_insert(0) += amount;
                }
                workers.cpu_ns()
            }
            Engine::Gpu(gpu) => {
                let (cpu_ns, work) = gpu.end();
                proof.insert("launches".into(), work.launches);
                proof.insert("device_ns".into(), work.device_ns);
                if work.bytes > 0 {
                    proof.insert("bytes_moved".into(), work.bytes);
                }
                cpu_ns
            }
            Engine::Noise(noise) => {
                let work = noise.work();
                proof.insert("operations".into(), work.iter().map(|work| work.operations).sum());
                work.iter().map(|work| work.cpu_ns).sum()
            }
        };
        let cpu_s = cpu_ns as f64 / 1e9;
        // A tool's time counts from its own start, a little before the load's.
        let cpu_share = if seconds > 0.0 { (cpu_s / (seconds * cpus.max(1) as f64)).min(1.0) } else { 0.0 };
        let Self { version, stand_in, asked, processes, died, .. } = self;
        ComponentReport { kind, tool, version, stand_in, asked, processes, cpu_s, cpu_share, proof, died }
    }
}

fn await_threads(workers: &Workers, until: Instant) -> Result<usize, String> {
    loop {
        if let Some(death) = workers.death() {
            return Err(death);
        }
        if workers.all_run() {
            return Ok(workers.len());
        }
        if Instant::now() > until {
            return Err("not every thread ran".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
