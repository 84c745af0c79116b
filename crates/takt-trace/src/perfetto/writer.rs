//! Packets, tracks and track events: the part that knows the format and nothing of kernels or jobs.

use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message;

use super::jobs::{Task, TaskState};
use super::kernel::CpuState;
use super::proto::{
    self, CounterDescriptor, Data, DebugAnnotation, PACKET_TAG, SEQ_INCREMENTAL_STATE_CLEARED, TracePacket,
    TrackDescriptor, TrackEvent, Value,
};
use crate::event::{Clock, Trace};

/// All packets that we write are of one sequence; any number but 0.
const SEQUENCE: u32 = 1;

/// Reason why nothing, or not everything, was written.
#[derive(Debug, thiserror::Error)]
pub enum PerfettoError {
    /// The file, or whatever is written to, failed.
    #[error(
        "cannot write the Perfetto trace: {0}. Fix: check the free space and the permissions of its folder"
    )]
    Write(#[from] io::Error),
    /// Jobs are in CLOCK_MONOTONIC, the trace is not.
    #[error(
        "the trace uses the clock {received} and jobs use CLOCK_MONOTONIC, so they cannot be shown together. Fix: record with `perf record \
         -k CLOCK_MONOTONIC` or `trace-cmd record -C mono`, or export without jobs"
    )]
    Clock { received: String },
    /// A task's input names a task that is not there.
    #[error("task {task}: input {slot} comes from task number {received}, and there are {tasks} (from 0)")]
    Producer {
        task: String,
        /// The slot of the input.
        slot: usize,
        received: usize,
        tasks: usize,
    },
    /// Jobs or a mark of a task that is not there.
    #[error("there is no task number {received}: the trace has {tasks} (from 0)")]
    NoTask { received: usize, tasks: usize },
}

/// A detail shown with a slice or an instant.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    Number(i64),
    /// Words.
    Text(String),
    /// An address, shown in hexadecimal.
    Address(u64),
}

/// Statistics of the written trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Kernel events.
    pub events: u64,
    pub jobs: u64,
    /// Jobs that missed their deadline.
    pub missed: u64,
    /// Pieces of work on devices.
    pub device_work: u64,
    /// Marks on devices' tracks.
    pub device_marks: u64,
    /// Bytes of the trace.
    pub bytes: u64,
}

/// Writes a trace piece by piece. Kernel events of one CPU must come in their order; everything
/// else may come as it comes, Perfetto sorts.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    scratch: Vec<u8>,
    next_track: u64,
    pub(super) written: Written,
    pub(super) threads: std::collections::BTreeMap<i32, crate::event::Thread>,
    pub(super) irqs: std::collections::BTreeMap<u32, String>,
    pub(super) cpus: Vec<CpuState>,
    pub(super) cpu_group: Option<u64>,
    pub(super) thread_tracks: HashMap<i32, u64>,
    pub(super) waiting: HashMap<i32, u32>,
    pub(super) tasks: Vec<TaskState>,
}

impl<W: Write> Writer<W> {
    /// Begins a trace: names of threads and interrupts come from `names`, whose events are not
    /// looked at. `out` gets many small writes: give it a `BufWriter`.
    pub fn new(out: W, names: &Trace, tasks: &[Task]) -> Result<Self, PerfettoError> {
        if let (Clock::Other(received), false) = (&names.clock, tasks.iter().all(|task| task.observed)) {
            return Err(PerfettoError::Clock { received: received.clone() });
        }
        let mut writer = Self {
            out,
            scratch: Vec::new(),
            next_track: 1,
            written: Written::default(),
            threads: names.threads.clone(),
            irqs: names.irqs.clone(),
            cpus: Vec::new(),
            cpu_group: None,
            thread_tracks: HashMap::new(),
            waiting: HashMap::new(),
            tasks: Vec::new(),
        };
        writer.packet(TracePacket {
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            ..TracePacket::default()
        })?;
        writer.process_tree()?;
        writer.declare_tasks(tasks)?;
        Ok(writer)
    }

    /// Ends the trace and hands back what it was written to.
    ///
    /// # Errors
    /// [`PerfettoError::Write`].
    pub fn finish(mut self) -> Result<(W, Written), PerfettoError> {
        self.flush_bundles()?;
        self.out.flush()?;
        Ok((self.out, self.written))
    }

    pub(super) fn packet(&mut self, mut packet: TracePacket) -> Result<(), PerfettoError> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        self.scratch.clear();
        self.scratch.push(PACKET_TAG);
        // Encoding into a Vec cannot fail: it grows.
        let _ = packet.encode_length_delimited(&mut self.scratch);
        self.out.write_all(&self.scratch)?;
        self.written.bytes += self.scratch.len() as u64;
        Ok(())
    }

    fn process_tree(&mut self) -> Result<(), PerfettoError> {
        let mut tree = proto::ProcessTree::default();
        let mut last = None;
        let mut pids: Vec<i32> = self.threads.values().filter_map(|thread| thread.pid).collect();
        pids.sort_unstable();
        for pid in pids {
            if last.replace(pid) == Some(pid) {
                continue;
            }
            let name = self.threads.get(&pid).map(|leader| leader.name.clone()).unwrap_or_default();
            tree.processes.push(proto::Process { pid: Some(pid), cmdline: vec![name] });
        }
        for (&tid, thread) in &self.threads {
            tree.threads.push(proto::Thread {
                tid: Some(tid),
                name: Some(thread.name.clone()),
                tgid: thread.pid,
            });
        }
        self.packet(TracePacket { data: Some(Data::ProcessTree(tree)), ..TracePacket::default() })
    }

    /// Declares a track, and returns its number.
    pub(super) fn track(&mut self, mut descriptor: TrackDescriptor) -> Result<u64, PerfettoError> {
        let uuid = self.next_track;
        self.next_track += 1;
        descriptor.uuid = Some(uuid);
        self.packet(TracePacket { data: Some(Data::TrackDescriptor(descriptor)), ..TracePacket::default() })?;
        Ok(uuid)
    }

    /// A track of slices and instants below another.
    pub(super) fn child(&mut self, parent: u64, name: &str, rank: i32) -> Result<u64, PerfettoError> {
        self.track(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            sibling_order_rank: Some(rank),
            ..TrackDescriptor::default()
        })
    }

    /// A track of nanoseconds below another.
    pub(super) fn counter_track(&mut self, parent: u64, name: &str, rank: i32) -> Result<u64, PerfettoError> {
        self.track(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            sibling_order_rank: Some(rank),
            counter: Some(CounterDescriptor { unit: Some(1) }),
            ..TrackDescriptor::default()
        })
    }

    pub(super) fn event(&mut self, time_ns: u64, event: TrackEvent) -> Result<(), PerfettoError> {
        self.packet(TracePacket {
            timestamp: Some(time_ns),
            data: Some(Data::TrackEvent(event)),
            ..TracePacket::default()
        })
    }

    pub(super) fn begin(
        &mut self,
        track: u64,
        time_ns: u64,
        name: &str,
        arguments: Vec<DebugAnnotation>,
    ) -> Result<(), PerfettoError> {
        self.event(time_ns, named(track, proto::BEGIN, name, arguments))
    }

    pub(super) fn end(&mut self, track: u64, time_ns: u64) -> Result<(), PerfettoError> {
        self.event(
            time_ns,
            TrackEvent { track_uuid: Some(track), r#type: Some(proto::END), ..TrackEvent::default() },
        )
    }

    pub(super) fn instant(
        &mut self,
        track: u64,
        time_ns: u64,
        name: &str,
        arguments: Vec<DebugAnnotation>,
    ) -> Result<(), PerfettoError> {
        self.event(time_ns, named(track, proto::INSTANT, name, arguments))
    }

    pub(super) fn counter(&mut self, track: u64, time_ns: u64, value: i64) -> Result<(), PerfettoError> {
        self.event(
            time_ns,
            TrackEvent {
                track_uuid: Some(track),
                r#type: Some(proto::COUNTER),
                counter_value: Some(value),
                ..TrackEvent::default()
            },
        )
    }
}

pub(super) fn named(track: u64, kind: i32, name: &str, arguments: Vec<DebugAnnotation>) -> TrackEvent {
    TrackEvent {
        track_uuid: Some(track),
        r#type: Some(kind),
        name: Some(name.to_owned()),
        debug_annotations: arguments,
        ..TrackEvent::default()
    }
}

pub(super) fn argument(name: &str, value: Argument) -> DebugAnnotation {
    let value = match value {
        Argument::Number(number) => Value::Int(number),
        Argument::Text(text) => Value::Text(text),
        Argument::Address(address) => Value::Pointer(address),
    };
    DebugAnnotation { name: Some(name.to_owned()), value: Some(value) }
}

/// Counts and times as Perfetto's signed numbers.
pub(super) fn number(name: &str, value: u64) -> DebugAnnotation {
    argument(name, Argument::Number(i64::try_from(value).unwrap_or(i64::MAX)))
}
