//! Starting, watching and ending the components of a profile.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use takt_rt::census::Registration;
use takt_rt::policy::Policy;
use takt_rt::signal::Signal;
use takt_rt::{clock, placement};

use crate::builtin::{self, Job, Workers};
use crate::error::LoadError;
use crate::gpu::GpuLoad;
use crate::guard::Guard;
use crate::noise::NoiseThreads;
use crate::profile::{Component, Profile};
use crate::report::{ComponentReport, Death, LoadReport};
use crate::system::{self, Counters, Memory};
use crate::tool::{self, HACKBENCH_SIDE, Hackbench, StressNg, Tools};

/// How long the components of a profile may take to come to run, all together. On a small computer that a load of
/// noise occupies already, 800 processes of hackbench take seconds.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Time between looks at the health of the components: short against any run.
const WATCH_PERIOD: Duration = Duration::from_millis(100);

/// Most threads that stand in for hackbench: its 40 processes per group would be many stacks.
const STAND_IN_PAIRS_PER_GROUP: usize = 4;

const MIB: u64 = 1 << 20;

#[derive(Debug)]
enum Engine {
    StressNg(StressNg),
    Hackbench(Hackbench),
    Threads(Workers),
    Noise(NoiseThreads),
    Gpu(GpuLoad),
}

#[derive(Debug)]
struct Part {
    component: Component,
    version: Option<String>,
    stand_in: Option<String>,
    asked: String,
    processes: usize,
    engine: Engine,
    died: Option<Death>,
}

impl Part {
    fn tool(&self) -> &'static str {
        match self.engine {
            Engine::StressNg(_) => "stress-ng",
            Engine::Hackbench(_) => "hackbench",
            Engine::Threads(_) | Engine::Noise(_) => "built-in",
            Engine::Gpu(_) => "built-in, a process",
        }
    }

    fn error(&self, reason: String) -> LoadError {
        LoadError::Tool { tool: self.tool(), component: self.component.kind(), reason }
    }

    /// Waits until every process and thread runs.
    fn await_running(&mut self, until: Instant) -> Result<(), LoadError> {
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
            Engine::Hackbench(hackbench) => hackbench.await_workers(until),
            Engine::Threads(workers) => await_threads(workers, until),
            Engine::Gpu(gpu) => gpu.await_ready(until).map(|device| {
                if device.emulated {
                    self.stand_in = Some(format!("{}: its figures say nothing of a GPU", device.name));
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
                    idle => Err(format!("{idle} of {} threads never came to run", noise.len())),
                }
            }
        };
        self.processes = outcome.map_err(|reason| self.error(reason))?;
        Ok(())
    }

    /// Looks whether the component still works whole. `oom_kills`: what the kernel had killed before it began.
    fn watch(&mut self, after_s: f64, oom_kills: u64) {
        if self.died.is_some() {
            return;
        }
        let why = match &mut self.engine {
            Engine::StressNg(stress) => stress.death(),
            Engine::Hackbench(hackbench) => hackbench.death(),
            Engine::Threads(workers) => workers.death(),
            // Nothing in a noise thread can fail.
            Engine::Noise(_) => None,
            Engine::Gpu(gpu) => gpu.death(),
        };
        self.died = why.map(|mut why| {
            if system::oom_kills() > oom_kills {
                why.push_str("; meanwhile the kernel killed processes for want of memory");
            }
            Death { after_s, why }
        });
    }

    /// Ends the component before its time, with the reason as its death.
    fn give_up(&mut self, after_s: f64, why: String) {
        self.died.get_or_insert(Death { after_s, why });
        match &mut self.engine {
            Engine::StressNg(stress) => drop(stress.end()),
            Engine::Threads(workers) => workers.end(),
            Engine::Gpu(gpu) => drop(gpu.end()),
            Engine::Hackbench(_) | Engine::Noise(_) => {}
        }
    }

    /// Asks the component to end and does not wait, so that all end together.
    fn ask_to_end(&mut self) {
        match &mut self.engine {
            Engine::StressNg(stress) => stress.ask_to_end(),
            Engine::Hackbench(hackbench) => hackbench.ask_to_end(),
            Engine::Threads(workers) => workers.ask_to_end(),
            Engine::Gpu(gpu) => gpu.ask_to_end(),
            // Ends within microseconds.
            Engine::Noise(_) => {}
        }
    }

    fn finish(mut self, seconds: f64, cpus: usize) -> ComponentReport {
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
            Engine::Hackbench(hackbench) => {
                let (cpu_ns, counts) = hackbench.end();
                let names = ["runs_started", "runs_finished", "messages"];
                proof.extend(names.map(str::to_owned).into_iter().zip(counts));
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
            return Err("not every thread came to run".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Debug, Default)]
struct Shared {
    parts: Mutex<Vec<Part>>,
    /// What the kernel had killed for want of memory when the load began.
    oom_kills: u64,
    stop: Signal,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running load. Dropping it ends all of it.
#[derive(Debug)]
pub struct Load {
    profile: String,
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
    /// After the parts: what they have left behind ends with it.
    guard: Option<Guard>,
    started_ns: u64,
    before: Counters,
}

impl Load {
    /// Starts every component of `profile`, SCHED_OTHER with nice 0 whatever the caller's policy is, allowed wherever
    /// the caller is. Files go to the folder `scratch`. Returns once everything runs.
    ///
    /// # Errors
    /// [`LoadError`]; nothing is left running then.
    pub fn start(profile: &Profile, scratch: &Path) -> Result<Self, LoadError> {
        Self::start_with(profile, scratch, &Tools::default())
    }

    fn start_with(profile: &Profile, scratch: &Path, tools: &Tools) -> Result<Self, LoadError> {
        profile.validate()?;
        // Processes and threads inherit the policy of the thread that starts them, so a plain one does.
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
            let why = format!("the shell {} that ends the tools with this program has ended", guard.group());
            let (component, tool) = ("guard".into(), "sh".into());
            return Err(LoadError::Died { component, tool, after_s, why });
        }
        Ok(())
    }

    /// Ends all components and tells what they have done.
    pub fn stop(mut self) -> LoadReport {
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

/// Looks after the parts until told to stop.
fn watch(shared: &Shared, started_ns: u64) {
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
                    "ended by Takt: only {} MiB of memory were left, {} MiB have to be",
                    memory.available / MIB,
                    memory.floor() / MIB
                );
                part.give_up(after_s, why);
            }
        }
    }
}

struct Starter<'a> {
    profile: &'a Profile,
    scratch: &'a Path,
    tools: &'a Tools,
    guard: Option<Guard>,
}

impl Starter<'_> {
    fn start(mut self) -> Result<Load, LoadError> {
        let until = Instant::now() + START_LIMIT;
        let oom_kills = system::oom_kills();
        let mut parts = Vec::new();
        for component in &self.profile.components {
            parts.push(self.part(component)?);
        }
        for part in &mut parts {
            part.await_running(until)?;
        }
        let started_ns = clock::monotonic_ns();
        let shared = Arc::new(Shared { parts: Mutex::new(parts), oom_kills, stop: Signal::new() });
        let mut load = Load {
            profile: self.profile.name.clone(),
            shared: Arc::clone(&shared),
            watch: None,
            guard: self.guard,
            started_ns,
            before: Counters::read(),
        };
        if !self.profile.is_off() {
            let thread = Builder::new().name("load-watch".into()).spawn(move || watch(&shared, started_ns));
            let error = |e: io::Error| LoadError::Thread { component: "load", reason: e.to_string() };
            load.watch = Some(thread.map_err(error)?);
        }
        Ok(load)
    }

    /// The process group for tools.
    fn group(&mut self) -> Result<i32, String> {
        if self.guard.is_none() {
            self.guard = Some(Guard::start().map_err(|error| format!("/bin/sh, which guards it: {error}"))?);
        }
        self.guard.as_ref().map(Guard::group).ok_or_else(|| "no guard".into())
    }

    fn part(&mut self, component: &Component) -> Result<Part, LoadError> {
        let kind = component.kind();
        let make = |engine, asked, version, stand_in| Part {
            component: component.clone(),
            version,
            stand_in,
            asked,
            processes: 0,
            engine,
            died: None,
        };
        let threads = |jobs: io::Result<Vec<Job>>| {
            jobs.and_then(|jobs| Workers::start(kind, jobs))
                .map_err(|error| LoadError::Thread { component: kind, reason: error.to_string() })
        };
        match component {
            Component::Noise { threads } => {
                let noise = NoiseThreads::start(*threads)
                    .map_err(|error| LoadError::Thread { component: kind, reason: error.to_string() })?;
                Ok(make(Engine::Noise(noise), format!("{threads} noise threads"), None, None))
            }
            Component::Gpu(work) => {
                let config = work.interference();
                let (program, arguments) = &self.tools.gpu;
                let refused = |reason| LoadError::Tool { tool: "the GPU's load", component: kind, reason };
                let group = self.group().map_err(refused)?;
                let (engine, asked) = GpuLoad::start(program, arguments, &config, group).map_err(refused)?;
                Ok(make(Engine::Gpu(engine), asked, None, None))
            }
            Component::Disk { file_mib, mib_per_s } => {
                let (bytes, asked) = self.disk_room(*file_mib, *mib_per_s)?;
                let job = builtin::disk(self.scratch, bytes, mib_per_s * MIB).map_err(|source| {
                    LoadError::File { component: kind, path: self.scratch.to_owned(), source }
                })?;
                Ok(make(Engine::Threads(threads(Ok(vec![job]))?), asked, None, None))
            }
            Component::Walk { folder } => {
                let job = builtin::walk(folder.clone()).map_err(|source| LoadError::File {
                    component: kind,
                    path: folder.clone(),
                    source,
                })?;
                let asked = format!("every file below {}, on its file system", folder.display());
                Ok(make(Engine::Threads(threads(Ok(vec![job]))?), asked, None, None))
            }
            Component::Network { datagrams_per_s, payload_bytes } => {
                let jobs = builtin::network(*datagrams_per_s, *payload_bytes).map(Vec::from);
                let asked =
                    format!("{datagrams_per_s} datagrams/s of {payload_bytes} bytes to an echo on 127.0.0.1");
                Ok(make(Engine::Threads(threads(jobs)?), asked, None, None))
            }
            Component::Hackbench { groups, loops } => match self.look_for("hackbench")? {
                Ok((version, group)) => {
                    let engine = Hackbench::start(&self.tools.hackbench, *groups, *loops, group)
                        .map_err(|error| LoadError::Thread { component: kind, reason: error.to_string() })?;
                    let asked = format!("hackbench -g {groups} -l {loops}, over and over");
                    Ok(make(Engine::Hackbench(engine), asked, Some(version), None))
                }
                Err(reason) => {
                    let pairs = groups * STAND_IN_PAIRS_PER_GROUP;
                    let jobs: io::Result<Vec<_>> = (0..pairs).map(|_| builtin::ping_pong(100)).collect();
                    let jobs = jobs.map(|pairs| pairs.into_iter().flatten().collect());
                    let asked = format!(
                        "{pairs} pairs of threads with messages of 100 bytes, for hackbench's {} processes",
                        groups * 2 * HACKBENCH_SIDE
                    );
                    Ok(make(Engine::Threads(threads(jobs)?), asked, None, Some(reason)))
                }
            },
            Component::Matrix { workers }
            | Component::Memory { workers, .. }
            | Component::Switch { workers }
            | Component::Fork { workers } => {
                let memory = match component {
                    Component::Memory { share, cap_mib, .. } => self.memory_room(*share, *cap_mib)?,
                    _ => 0,
                };
                match self.look_for("stress-ng")? {
                    Ok((version, group)) => {
                        let (stressor, extra) = match component {
                            Component::Memory { .. } => {
                                // All workers together. A worker that the OOM killer takes stays dead, and is
                                // reported.
                                let bytes =
                                    ["--vm-bytes".into(), format!("{}m", memory / MIB), "--oomable".into()];
                                ("vm", bytes.to_vec())
                            }
                            other => (other.kind(), Vec::new()),
                        };
                        let mut arguments = vec![format!("--{stressor}"), workers.to_string()];
                        arguments.extend(extra);
                        // 0: until told to end.
                        arguments.extend(["--timeout", "0", "--metrics-brief"].map(str::to_owned));
                        arguments.extend(["--temp-path".to_owned(), self.scratch.display().to_string()]);
                        let asked = format!("stress-ng {}", arguments.join(" "));
                        let engine = StressNg::start(&self.tools.stress_ng, stressor, &arguments, group)
                            .map_err(|error| LoadError::Tool {
                                tool: "stress-ng",
                                component: kind,
                                reason: error.to_string(),
                            })?;
                        Ok(make(Engine::StressNg(engine), asked, Some(version), None))
                    }
                    Err(reason) => {
                        let count = *workers;
                        let (jobs, what): (io::Result<Vec<Job>>, String) = match component {
                            Component::Matrix { .. } => (
                                Ok((0..count).map(|_| builtin::matrix()).collect()),
                                "matrix products".into(),
                            ),
                            Component::Memory { .. } => {
                                let each = memory / count as u64;
                                let jobs = (0..count).map(|_| builtin::memory(each)).collect();
                                (Ok(jobs), format!("writing {} MiB each", each / MIB))
                            }
                            Component::Fork { .. } => {
                                (Ok((0..count).map(|_| builtin::fork()).collect()), "starting `true`".into())
                            }
                            _ => {
                                let pairs: io::Result<Vec<_>> =
                                    (0..count).map(|_| builtin::ping_pong(1)).collect();
                                (
                                    pairs.map(|pairs| pairs.into_iter().flatten().collect()),
                                    "waking a partner".into(),
                                )
                            }
                        };
                        let asked = format!("{count} threads (or pairs): {what}");
                        Ok(make(Engine::Threads(threads(jobs)?), asked, None, Some(reason)))
                    }
                }
            }
        }
    }

    /// The tool's version and the process group for it; the reason for a stand-in when it is not there; an error when
    /// the profile insists on it.
    #[allow(clippy::type_complexity)]
    fn look_for(&mut self, tool: &'static str) -> Result<Result<(String, i32), String>, LoadError> {
        let (program, argument, package) = match tool {
            "hackbench" => (&self.tools.hackbench, "--help", "rt-tests"),
            _ => (&self.tools.stress_ng, "--version", "stress-ng"),
        };
        let found = tool::version(program, argument).and_then(|version| Ok((version, self.group()?)));
        match found {
            Err(reason) if self.profile.require_tools => {
                Err(LoadError::ToolMissing { profile: self.profile.name.clone(), tool, reason, package })
            }
            found => Ok(found),
        }
    }

    fn memory_room(&self, share: f64, cap_mib: Option<u64>) -> Result<u64, LoadError> {
        let source = || io::Error::new(io::ErrorKind::InvalidData, "no MemTotal and MemAvailable in it");
        let memory = Memory::read(Path::new("/")).ok_or_else(|| LoadError::File {
            component: "memory",
            path: "/proc/meminfo".into(),
            source: source(),
        })?;
        // A MiB is the least that is worth a worker.
        memory.budget(share, cap_mib.map(|mib| mib * MIB)).filter(|&bytes| bytes >= MIB).ok_or({
            LoadError::NoRoom {
                component: "memory",
                what: "memory",
                available: memory.available,
                reserve: memory.reserve(),
                fix: "end other programs, or leave the memory component out",
            }
        })
    }

    /// Size of the file, and what was asked in words.
    fn disk_room(&self, file_mib: u64, mib_per_s: u64) -> Result<(u64, String), LoadError> {
        let error =
            |source: io::Error| LoadError::File { component: "disk", path: self.scratch.to_owned(), source };
        let system = rustix::fs::statfs(self.scratch).map_err(|errno| error(errno.into()))?;
        let free = (system.f_bavail as u64).saturating_mul(system.f_bsize as u64);
        let bytes = (file_mib * MIB).min(free / 4);
        if bytes < MIB {
            return Err(LoadError::NoRoom {
                component: "disk",
                what: "disk space",
                available: free,
                reserve: free.saturating_sub(free / 4),
                fix: "name a scratch folder on a disk with room",
            });
        }
        // In such a file system the file would lie in memory, which only the memory component may fill.
        if matches!(system.f_type as u64, TMPFS | RAMFS) {
            let source = io::Error::other("is kept in memory (tmpfs or ramfs), so no disk would be written");
            return Err(error(source));
        }
        let file = fs::canonicalize(self.scratch).unwrap_or_else(|_| self.scratch.to_owned());
        let asked = format!(
            "a nameless file of {} MiB in {}, at most {mib_per_s} MiB/s",
            bytes / MIB,
            file.display()
        );
        Ok((bytes, asked))
    }
}

/// `f_type` of file systems in memory (statfs(2)).
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
