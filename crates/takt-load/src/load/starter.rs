//! Starting the components of a profile: tools where they are, threads of Takt's own where not.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

use takt_rt::clock;
use takt_rt::signal::Signal;

use super::part::{Engine, Part};
use super::{Load, LoadState, MIB, watch};
use crate::builtin::{self, Job, Workers};
use crate::error::LoadError;
use crate::gpu::GpuLoad;
use crate::guard::Guard;
use crate::noise::NoiseThreads;
use crate::profile::{Component, Profile};
use crate::system::{self, Counters, Memory};
use crate::tool::{self, HACKBENCH_SIDE, Repeated, Repeats, StressNg, Tools};

/// Time in which all components of a profile together must start to run. On a small computer that
/// is already busy with noise, 800 processes of hackbench take seconds.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Most threads that stand in for hackbench: its 40 processes per group would be many stacks.
const STAND_IN_PAIRS_PER_GROUP: usize = 4;

/// Datagrams a second that stand in for a flood of pings: what one reaches on a small computer.
const FLOOD_PER_S: u64 = 50_000;

pub(super) struct Starter<'a> {
    pub(super) profile: &'a Profile,
    pub(super) scratch: &'a Path,
    pub(super) tools: &'a Tools,
    pub(super) guard: Option<Guard>,
}

impl Starter<'_> {
    pub(super) fn start(mut self) -> Result<Load, LoadError> {
        let until = Instant::now() + START_LIMIT;
        let oom_kills = system::oom_kills();
        // Memory that is filled comes first, before the others compete for the CPUs: else an
        // emulated machine would have its memory for the end of a run alone, and the others would
        // have worked meanwhile, for as long as it takes on this kernel.
        let is_filled =
            |component: &Component| matches!(component, Component::Memory { method: Some(_), .. });
        let mut order: Vec<usize> = (0..self.profile.components.len()).collect();
        order.sort_by_key(|&index| !is_filled(&self.profile.components[index]));
        let mut parts = Vec::new();
        for index in order {
            let mut part = self.part(&self.profile.components[index])?;
            part.await_filled(until)?;
            parts.push((index, part));
        }
        // Reported in the order of the profile.
        parts.sort_by_key(|(index, _)| *index);
        let mut parts: Vec<Part> = parts.into_iter().map(|(_, part)| part).collect();
        for part in &mut parts {
            part.await_running(until)?;
        }
        parts.iter_mut().for_each(Part::resume);
        let started_ns = clock::monotonic_ns();
        let shared = Arc::new(LoadState { parts: Mutex::new(parts), oom_kills, stop: Signal::new() });
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
            memory_bytes: 0,
            engine,
            died: None,
        };
        let threads = |jobs: io::Result<Vec<Job>>| {
            jobs.and_then(|jobs| Workers::start(kind, jobs))
                .map_err(|error| LoadError::Thread { component: kind, reason: error.to_string() })
        };
        let repeated = |tool, repeats, group| {
            Repeated::start(repeats, group)
                .map(|engine| Engine::Repeated(tool, engine))
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
                let (engine, asked) = GpuLoad::in_group(program, arguments, &config, group)
                    .map_err(|error| refused(error.to_string()))?;
                Ok(make(Engine::Gpu(engine), asked, None, None))
            }
            Component::Disk { file_mib, mib_per_s } => {
                let (bytes, file) = self.disk_space(kind, file_mib * MIB)?;
                let asked = format!("{file}, at most {mib_per_s} MiB/s");
                let job = builtin::disk(self.scratch, bytes, mib_per_s * MIB).map_err(|source| {
                    LoadError::File { component: kind, path: self.scratch.to_owned(), source }
                })?;
                Ok(make(Engine::Threads(threads(Ok(vec![job]))?), asked, None, None))
            }
            Component::Dd { blocks } => {
                let (bytes, file) = self.disk_space(kind, blocks * builtin::DISK_BLOCK as u64)?;
                let scratch = self.scratch;
                let failed = |source| LoadError::File { component: kind, path: scratch.to_owned(), source };
                match self.look_for("dd")? {
                    Ok((version, group)) => {
                        let nameless = builtin::nameless(scratch).map_err(failed)?;
                        let blocks = bytes / builtin::DISK_BLOCK as u64;
                        // `dd` cuts the file off at each start, as it would one with a name.
                        let output = format!("of=/proc/{}/fd/{}", std::process::id(), nameless.as_raw_fd());
                        let arguments = ["if=/dev/zero", &output, "bs=1024000", &format!("count={blocks}")];
                        let repeats = Repeats {
                            work_per_run: blocks * builtin::DISK_BLOCK as u64,
                            unit: "bytes_written",
                            file: Some(nameless),
                            ..Repeats::of(&self.tools.dd, arguments.map(str::to_owned).into())
                        };
                        let asked =
                            format!("dd if=/dev/zero bs=1024000 count={blocks}, over and over, to {file}");
                        repeated("dd", repeats, group).map(|engine| make(engine, asked, Some(version), None))
                    }
                    Err(reason) => {
                        let job = builtin::disk(scratch, bytes, u64::MAX).map_err(failed)?;
                        let asked = format!("{file}, as fast as possible, by a thread");
                        Ok(make(Engine::Threads(threads(Ok(vec![job]))?), asked, None, Some(reason)))
                    }
                }
            }
            Component::Du { folder } => match self.look_for("du")? {
                Ok((version, group)) => {
                    let arguments = vec!["-s".to_owned(), folder.display().to_string()];
                    let asked = format!("du {}, over and over", arguments.join(" "));
                    let repeats = Repeats { may_fail: true, ..Repeats::of(&self.tools.du, arguments) };
                    repeated("du", repeats, group).map(|engine| make(engine, asked, Some(version), None))
                }
                Err(reason) => {
                    let job = builtin::walk(folder.clone()).map_err(|source| LoadError::File {
                        component: kind,
                        path: folder.clone(),
                        source,
                    })?;
                    let asked = format!("every file below {}, on its file system", folder.display());
                    Ok(make(Engine::Threads(threads(Ok(vec![job]))?), asked, None, Some(reason)))
                }
            },
            Component::Ping { preload, payload_bytes } => match self.look_for("ping")? {
                Ok((version, group)) => {
                    // Without -q it prints a letter for each request.
                    let arguments = format!("-q -f -l {preload} -s {payload_bytes} localhost");
                    let asked = format!("ping {arguments}");
                    let arguments = arguments.split(' ').map(str::to_owned).collect();
                    // Of all signals, it sums up at this one.
                    let repeats =
                        Repeats { signal: libc::SIGINT, ..Repeats::of(&self.tools.ping, arguments) };
                    repeated("ping", repeats, group).map(|engine| make(engine, asked, Some(version), None))
                }
                Err(reason) => {
                    let jobs = builtin::network(FLOOD_PER_S, *payload_bytes).map(Vec::from);
                    let asked = format!(
                        "{FLOOD_PER_S} datagrams/s of {payload_bytes} bytes to an echo on 127.0.0.1, for a flood of pings"
                    );
                    Ok(make(Engine::Threads(threads(jobs)?), asked, None, Some(reason)))
                }
            },
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
            Component::Hackbench { groups, loops, kill_every_s } => match self.look_for("hackbench")? {
                Ok((version, group)) => {
                    let repeats = Repeats::hackbench(&self.tools.hackbench, *groups, *loops, *kill_every_s);
                    let killed = kill_every_s.map_or_else(String::new, |s| format!(", killed every {s} s"));
                    let asked = format!("hackbench -g {groups} -l {loops}, over and over{killed}");
                    repeated("hackbench", repeats, group)
                        .map(|engine| make(engine, asked, Some(version), None))
                }
                Err(reason) => {
                    let pairs = groups * STAND_IN_PAIRS_PER_GROUP;
                    let jobs: io::Result<Vec<_>> = (0..pairs).map(|_| builtin::ping_pong(100)).collect();
                    let jobs = jobs.map(|pairs| pairs.into_iter().flatten().collect());
                    let asked = format!(
                        "{pairs} pairs of threads with messages of 100 bytes, instead of hackbench's {} processes",
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
                    Component::Memory { share, cap_mib, .. } => self.memory_available(*share, *cap_mib)?,
                    _ => 0,
                };
                match self.look_for("stress-ng")? {
                    Ok((version, group)) => {
                        let (stressor, extra) = match component {
                            Component::Memory { method, .. } => {
                                // All workers together. A worker that the OOM killer takes stays
                                // dead, and is reported.
                                let bytes =
                                    ["--vm-bytes".into(), format!("{}m", memory / MIB), "--oomable".into()];
                                // Pages of one size on all kernels, and no advice drawn by lot.
                                let method = method.iter().flat_map(|method| {
                                    let advice = ["--vm-madvise", "nohugepage", "--vm-keep", "--vm-populate"];
                                    ["--vm-method", method.as_str()]
                                        .into_iter()
                                        .chain(advice)
                                        .map(str::to_owned)
                                });
                                ("vm", bytes.into_iter().chain(method).collect())
                            }
                            other => (other.kind(), Vec::new()),
                        };
                        let mut arguments = vec![format!("--{stressor}"), workers.to_string()];
                        arguments.extend(extra);
                        // 0: until instructed to end.
                        arguments.extend(["--timeout", "0", "--metrics-brief"].map(str::to_owned));
                        arguments.extend(["--temp-path".to_owned(), self.scratch.display().to_string()]);
                        let asked = format!("stress-ng {}", arguments.join(" "));
                        // Only then does a worker look at the signal within its walk.
                        let looks = matches!(component, Component::Memory { method: Some(_), .. });
                        let engine = StressNg::start(&self.tools.stress_ng, stressor, &arguments, group)
                            .map(|stress| stress.counting_to_the_end(looks))
                            .map_err(|error| LoadError::Tool {
                                tool: "stress-ng",
                                component: kind,
                                reason: error.to_string(),
                            })?;
                        let part = make(Engine::StressNg(engine), asked, Some(version), None);
                        Ok(Part { memory_bytes: memory, ..part })
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

    /// The tool's version and the process group for it; the reason for a stand-in when it is not
    /// there; an error when the profile insists on it.
    #[allow(clippy::type_complexity)]
    fn look_for(&mut self, tool: &'static str) -> Result<Result<(String, i32), String>, LoadError> {
        let (program, argument, package) = match tool {
            "hackbench" => (&self.tools.hackbench, "--help", "rt-tests"),
            "dd" => (&self.tools.dd, "--version", "coreutils"),
            "du" => (&self.tools.du, "--version", "coreutils"),
            "ping" => (&self.tools.ping, "-V", "iputils-ping"),
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

    fn memory_available(&self, share: f64, cap_mib: Option<u64>) -> Result<u64, LoadError> {
        let source = || io::Error::new(io::ErrorKind::InvalidData, "no MemTotal and MemAvailable in it");
        let memory = Memory::read(Path::new("/")).ok_or_else(|| LoadError::File {
            component: "memory",
            path: "/proc/meminfo".into(),
            source: source(),
        })?;
        // A MiB is the least that is worth a worker.
        memory.budget(share, cap_mib.map(|mib| mib * MIB)).filter(|&bytes| bytes >= MIB).ok_or({
            LoadError::NotEnoughSpace {
                component: "memory",
                what: "memory",
                available: memory.available,
                reserve: memory.reserve(),
                fix: "end other programs, or omit the memory component",
            }
        })
    }

    /// Size of the file, and the file in words.
    fn disk_space(&self, kind: &'static str, wanted: u64) -> Result<(u64, String), LoadError> {
        let error =
            |source: io::Error| LoadError::File { component: kind, path: self.scratch.to_owned(), source };
        let system = rustix::fs::statfs(self.scratch).map_err(|errno| error(errno.into()))?;
        let free = (system.f_bavail as u64).saturating_mul(system.f_bsize as u64);
        let bytes = wanted.min(free / 4);
        if bytes < MIB {
            return Err(LoadError::NotEnoughSpace {
                component: kind,
                what: "disk space",
                available: free,
                reserve: free.saturating_sub(free / 4),
                fix: "name a scratch folder on a disk with free space",
            });
        }
        // In such a file system the file would lie in memory, which only the memory component may
        // fill.
        if matches!(system.f_type as u64, TMPFS | RAMFS) {
            let source = io::Error::other("is in memory (tmpfs or ramfs), so no disk would be written");
            return Err(error(source));
        }
        let file = fs::canonicalize(self.scratch).unwrap_or_else(|_| self.scratch.to_owned());
        Ok((bytes, format!("an unnamed file of {} MiB in {}", bytes / MIB, file.display())))
    }
}

/// `f_type` of file systems in memory (statfs(2)).
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
