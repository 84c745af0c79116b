//! Uprobes on `libtracetools.so`: for processes that already run, and could not be started under
//! [`crate::preload`].
//!
//! The kernel puts a breakpoint at the beginning of each `ros_trace_*` function, in every process
//! that has the library mapped, now or later, and writes who called and with which arguments. This
//! needs privilege (root, or `CAP_PERFMON` with `CAP_SYS_PTRACE`), and each call costs the process
//! one to two microseconds on metal, ten and more on a virtual machine: a hundred times the preload
//! probe. Taking the probes away (when [`Probe`] is dropped) takes the kernel some 80 ms for each
//! function.
//!
//! - **CPU time** is not in a sample. It is summed from the scheduler's switches, which the same
//!   buffers record; it counts from the thread's first event, and contains the cost of the probes
//!   in between.
//! - **Names** (topics, nodes) are read from the process's memory after the call. The caller may
//!   have freed the text by then: what is no text any more becomes `?ADDRESS` and is counted; what
//!   became another text cannot be reported.
//! - **Initialisation** that was over before is found again as far as possible (see `fill`, `nodes`
//!   and `objects`): names of nodes and topics, which belongs to which, periods and phases of
//!   timers.
//! - Symbols of callbacks are not seen from Jazzy on (`rclcpp` asks first whether LTTng wants
//!   them).

mod definitions;
mod fill;
mod library;
mod memory;
mod nodes;
mod objects;
mod perf;
mod points;
mod record;
mod translate;

use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use library::LibraryError;

use self::definitions::Definitions;
use self::memory::Processes;
use self::perf::CpuBuffer;
use self::points::POINTS;
use self::record::Record;
use self::translate::Translator;
use crate::event::{Event, Source};
use crate::procfs::started;
use takt_rt::clock::monotonic_ns;

/// Records younger than this wait for the next call: another CPU's may still be on their way.
const SETTLE_NS: u64 = 2_000_000;
/// Period at which it is checked whether the processes still run.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Options of the probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UprobeOptions {
    /// Processes; none: all that have the library mapped, and those that will.
    pub pids: Vec<u32>,
    /// The library; by default every one that the processes have mapped.
    pub library: Option<PathBuf>,
    /// KiB of each CPU's buffer; 1024: some 10,000 calls and switches.
    pub buffer_kib: u32,
}

impl Default for UprobeOptions {
    fn default() -> Self {
        Self { pids: Vec::new(), library: None, buffer_kib: 1024 }
    }
}

/// Reason why there are no uprobes.
#[derive(Debug, thiserror::Error)]
pub enum UprobeError {
    /// Buffer size out of range.
    #[error("buffer_kib is {found}; 64 to 262144 are possible")]
    BufferSize { found: u32 },
    /// The kernel has none.
    #[error(
        "this kernel has no uprobes (CONFIG_UPROBE_EVENTS): start the processes under the preload probe instead"
    )]
    NoKernelSupport,
    /// Not allowed.
    #[error(
        "{what}: {source}: uprobes need root or CAP_PERFMON; run as root, or start the processes under the \
         preload probe, which needs no privilege"
    )]
    NotPermitted { what: String, source: io::Error },
    /// Refused for another reason.
    #[error("{what}: {source}")]
    Refused { what: String, source: io::Error },
    /// No process has the library.
    #[error(
        "{} has libtracetools.so mapped (or /proc does not show it): is it a running ROS 2 process?",
        if pids.is_empty() { "no process".to_owned() } else { format!("none of the processes {pids:?}") }
    )]
    NotFound { pids: Vec<u32> },
    /// The library cannot be probed.
    #[error(transparent)]
    Library(#[from] LibraryError),
}

/// Result of probing, and its shortcomings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UprobeInfo {
    /// Libraries that are probed, as the processes name them.
    pub libraries: Vec<String>,
    /// Functions that the library lacks, or shares an address with others.
    pub missing: Vec<String>,
    /// Calls seen.
    pub hits: u64,
    /// Records lost.
    pub lost: u64,
    /// Texts that were gone when they were read.
    pub lost_texts: u64,
    /// Objects that had been made before, and were found again.
    pub filled: u64,
    /// Callbacks of which only their address is known.
    pub unexplained: u64,
}

/// Uprobes as a source of events.
#[derive(Debug)]
pub struct Probe {
    buffers: Vec<CpuBuffer>,
    /// After the buffers: closed before they are removed.
    definitions: Option<Definitions>,
    translator: Translator<Processes>,
    libraries: Vec<String>,
    missing: Vec<String>,
    bytes: Vec<u8>,
    records: Vec<Record>,
    events: Vec<Event>,
    looked: Instant,
    /// All records up to here were handed on.
    settled_ns: u64,
}

const YIELD: &str = "sched_yield";

impl Probe {
    /// Puts probes into the library, as a trial of whether that is allowed too.
    ///
    /// # Errors
    ///
    /// Not allowed, no library, or one without the functions: the message says which, and the way
    /// out.
    pub fn attach(options: &UprobeOptions) -> Result<Self, UprobeError> {
        if !(64..=262_144).contains(&options.buffer_kib) {
            return Err(UprobeError::BufferSize { found: options.buffer_kib });
        }
        let pmu = perf::pmu().ok_or(UprobeError::NoKernelSupport)?;
        let libraries: Vec<(String, PathBuf)> = match &options.library {
            Some(path) => vec![(path.display().to_string(), path.clone())],
            None => library::find(&options.pids, library::TRACETOOLS)
                .into_iter()
                .map(|found| (found.name, found.path))
                .collect(),
        };
        if libraries.is_empty() {
            return Err(UprobeError::NotFound { pids: options.pids.clone() });
        }
        let bytes = options.buffer_kib as usize * 1024;
        let cpus = perf::cpus();
        // One more in each for the C library.
        perf::allow_descriptors(cpus.len() * (1 + (1 + libraries.len()) * (1 + POINTS.len())));
        let buffers = cpus.into_iter().map(|cpu| {
            CpuBuffer::open(cpu, bytes).map_err(|source| refused(format!("a buffer for CPU {cpu}"), source))
        });
        let wanted = (!options.pids.is_empty()).then(|| options.pids.iter().copied().collect::<HashSet<_>>());
        let mut probe = Self {
            buffers: buffers.collect::<Result<_, _>>()?,
            definitions: Definitions::new(),
            translator: Translator::new(wanted, Processes::default()),
            libraries: Vec::new(),
            missing: Vec::new(),
            bytes: Vec::new(),
            records: Vec::new(),
            events: Vec::new(),
            looked: Instant::now(),
            settled_ns: 0,
        };
        for (name, path) in libraries {
            probe.add(pmu, &path)?;
            probe.libraries.push(name);
        }
        for found in library::find(&options.pids, library::C_LIBRARY) {
            probe.add_yields(pmu, &found.path);
        }
        if !probe.translator.sees_yields() {
            probe.missing.push(format!("{YIELD} (in the C library: it is unknown whether callbacks yield)"));
        }
        Ok(probe)
    }

    /// Calls of `sched_yield`, by which a thread with a reservation gives the rest of its budget
    /// away; the kernel's records of switches show them as preemption. If they cannot be probed, it
    /// is unknown whether there are any.
    fn add_yields(&mut self, pmu: u32, path: &Path) {
        let Ok(library::Offsets { found, .. }) = library::offsets(path, std::iter::once(YIELD)) else {
            return;
        };
        let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else { return };
        for (name, offset) in found {
            let named = self.definitions.as_mut().and_then(|all| all.add(name, path, offset).ok());
            let what = match named {
                Some(id) => perf::What::Named { id },
                None => perf::What::Nameless { pmu, path: &c_path, offset },
            };
            for buffer in &mut self.buffers {
                if let Ok(id) = buffer.add(what) {
                    self.translator.add_yields(id);
                }
            }
        }
    }

    fn add(&mut self, pmu: u32, path: &Path) -> Result<(), UprobeError> {
        let library::Offsets { found, folded } =
            library::offsets(path, POINTS.iter().map(|(name, _)| *name))?;
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| refused(path.display().to_string(), io::ErrorKind::InvalidInput.into()))?;
        for point in POINTS {
            let Some(&(name, offset)) = found.iter().find(|(name, _)| *name == point.0) else {
                let why = if folded.contains(&point.0) { " (not distinguishable)" } else { "" };
                self.missing.push(format!("{}{why}", point.0));
                continue;
            };
            // Without tracefs, or where it refuses, each CPU gets its own.
            let named = self.definitions.as_mut().and_then(|all| all.add(name, path, offset).ok());
            let what = match named {
                Some(id) => perf::What::Named { id },
                None => perf::What::Nameless { pmu, path: &c_path, offset },
            };
            for buffer in &mut self.buffers {
                let id = buffer
                    .add(what)
                    .map_err(|source| refused(format!("uprobe on {name} of {}", path.display()), source))?;
                self.translator.add(id, *point);
            }
        }
        Ok(())
    }

    /// Result of probing, and its shortcomings.
    pub fn info(&self) -> UprobeInfo {
        let (filled, unexplained) = self.translator.filled();
        UprobeInfo {
            libraries: self.libraries.clone(),
            missing: self.missing.clone(),
            hits: self.translator.hits,
            lost: self.translator.lost,
            lost_texts: self.translator.lost_texts,
            filled,
            unexplained,
        }
    }
}

fn refused(what: String, source: io::Error) -> UprobeError {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => UprobeError::NotPermitted { what, source },
        _ => UprobeError::Refused { what, source },
    }
}

/// Events from records of the kernel's ring buffer, where the functions are numbered as in the list
/// and all processes have the memory `memory`, from address 0. For tests and fuzzing.
#[must_use]
pub fn read_image(records: &[u8], memory: &[u8]) -> Vec<Event> {
    let mut translator = Translator::new(None, memory::Image(memory));
    for (id, point) in (0..).zip(POINTS) {
        translator.add(id, *point);
    }
    let mut events = Vec::new();
    record::parse(records, |record| translator.record(record, &mut events));
    events
}

impl Source for Probe {
    type Error = UprobeError;

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, UprobeError> {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            let wanted = self.translator.wanted().into_iter().flatten().copied();
            let gone: Vec<u32> = wanted.filter(|&pid| started(pid).is_none()).collect();
            let now_ns = monotonic_ns();
            gone.into_iter().for_each(|pid| self.translator.set_gone(pid, now_ns));
        }
        let settled_ns = monotonic_ns().saturating_sub(SETTLE_NS);
        for buffer in &mut self.buffers {
            self.bytes.clear();
            buffer.drain(&mut self.bytes);
            record::parse(&self.bytes, |record| self.records.push(record));
        }
        self.records.sort_by_key(|record| record.at_ns);
        let ready = self.records.partition_point(|record| record.at_ns <= settled_ns);
        for record in self.records.drain(..ready) {
            self.translator.record(record, &mut self.events);
        }
        self.settled_ns = settled_ns;
        let count = self.events.len();
        self.events.drain(..).for_each(sink);
        Ok(count)
    }

    fn ended(&self) -> bool {
        self.translator.all_gone(self.settled_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event_open_sys::bindings as b;

    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let mut bytes = [kind.to_ne_bytes().as_slice(), &misc.to_ne_bytes()].concat();
        bytes.extend((8 + words.len() as u16 * 8).to_ne_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    /// Found by fuzzing: CPU time that adds up to more than a number holds.
    #[test]
    fn times_beyond_all_sense_end_nothing() {
        let thread = 2 | 3 << 32;
        let hit = |at_ns| record(b::PERF_RECORD_SAMPLE, 0, &[0, thread, at_ns, 2, 0, 0, 0, 0, 0]);
        let switch = |misc, at_ns| record(b::PERF_RECORD_SWITCH, misc, &[thread, at_ns, 0]);
        let out = b::PERF_RECORD_MISC_SWITCH_OUT as u16;
        let lost = record(b::PERF_RECORD_LOST, 0, &[0, u64::MAX, thread, 9, 0]);
        let records = [
            hit(1),
            switch(out, u64::MAX),
            switch(0, 1),
            switch(out, u64::MAX),
            hit(u64::MAX),
            lost.clone(),
            lost,
        ];
        let used: Vec<_> =
            read_image(&records.concat(), &[]).iter().filter_map(|event| event.cpu_ns).collect();
        assert_eq!(used, [0, u64::MAX]);
    }
}
