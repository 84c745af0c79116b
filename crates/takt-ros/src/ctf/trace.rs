//! A trace: one folder with metadata and stream files, its types compiled.

use std::collections::HashMap;
use std::path::Path;

use super::error::{Error, Unusable};
use super::header::{HeaderPlan, has_clock};
use super::mapping::{self, Mapping};
use super::plan::{Builder, Plan};
use super::tsdl::Metadata;
use super::tsdl::types::{Clock, StreamClass, Type};

/// Slots that every plan has, before those that references mean.
pub mod slot {
    /// Process, thread, name of the thread (a place), CPU time of the thread.
    pub const PID: u32 = 0;
    pub const TID: u32 = 1;
    /// Offset of the thread's name.
    pub const NAME: u32 = 2;
    /// CPU time of the thread.
    pub const CPU_TIME: u32 = 3;
    /// The first argument of an event.
    pub const ARGUMENTS: u32 = 4;
    /// The first value that a reference means.
    pub const SAVED: u32 = 16;

    /// Of a packet: its magic number.
    pub const MAGIC: u32 = 0;
    /// Of a packet: where its trace's identity stands.
    pub const UUID: u32 = 1;
    /// Of a packet: its stream class.
    pub const STREAM: u32 = 2;
    /// Of a packet: its stream.
    pub const INSTANCE: u32 = 3;
    /// Of a packet: bits of content.
    pub const CONTENT: u32 = 4;
    /// Of a packet: bits in all.
    pub const PACKET: u32 = 5;
    /// Of a packet: the clock at its beginning.
    pub const BEGIN: u32 = 6;
    /// Of a packet: the clock at its end.
    pub const END: u32 = 7;
    /// Of a packet: events lost so far.
    pub const DISCARDED: u32 = 8;
    /// Of a packet: its number in its stream.
    pub const SEQUENCE: u32 = 9;
    /// Of a packet: the processor.
    pub const CPU: u32 = 10;
    pub const PACKET_FIELDS: std::ops::Range<u32> = MAGIC..CPU + 1;
}

/// A field of a packet, by name.
fn packet_slot(name: &str) -> Option<u32> {
    Some(match name {
        "magic" => slot::MAGIC,
        "uuid" => slot::UUID,
        "stream_id" => slot::STREAM,
        "stream_instance_id" => slot::INSTANCE,
        "content_size" => slot::CONTENT,
        "packet_size" => slot::PACKET,
        "timestamp_begin" => slot::BEGIN,
        "timestamp_end" => slot::END,
        "events_discarded" => slot::DISCARDED,
        "packet_seq_num" => slot::SEQUENCE,
        "cpu_id" => slot::CPU,
        _ => return None,
    })
}

/// Names of the context that says which thread an event is of, and more.
fn context_slot(name: &str) -> Option<u32> {
    Some(match name {
        "vpid" => slot::PID,
        "vtid" => slot::TID,
        "procname" => slot::NAME,
        "perf_thread_task_clock" | "perf_thread_cpu_clock" => slot::CPU_TIME,
        _ => return None,
    })
}

/// Those of these fields that a root type has at its first level.
fn present(of: Option<&Type>, number: fn(&str) -> Option<u32>) -> u32 {
    let Some(Type::Struct(body)) = of else { return 0 };
    let numbers = body.fields.iter().filter_map(|(name, _)| number(super::tsdl::types::shown(name)));
    numbers.fold(0, |all, number| all | 1 << number)
}

/// A class of events, compiled.
#[derive(Debug)]
pub struct EventPlan {
    /// Contexts and payload.
    pub body: Plan,
    /// Its conversion; `None`: skipped.
    pub mapping: Option<Mapping>,
    /// The number of its name, by which it is counted.
    pub number: u32,
}

/// A class of streams, compiled.
#[derive(Debug)]
pub struct StreamPlan {
    /// Content after the packet header.
    pub context: Plan,
    /// Fields of header and context that there are, a bit for each slot.
    pub packet_fields: u32,
    /// Fields of the event context that there are.
    pub context_fields: u32,
    /// Headers of events.
    pub header: HeaderPlan,
    /// Small event numbers.
    dense: Vec<Option<u32>>,
    /// Others.
    sparse: HashMap<u64, u32>,
    /// The classes.
    pub events: Vec<EventPlan>,
}

impl StreamPlan {
    /// Index in [`events`](Self::events) of the class with number `id`.
    #[inline]
    pub fn event(&self, id: u64) -> Option<u32> {
        match self.dense.get(usize::try_from(id).ok()?) {
            Some(found) => *found,
            None => self.sparse.get(&id).copied(),
        }
    }
}

/// Numbers below this are looked up in a table.
const MAX_DENSE: u64 = 4096;

/// Names of events, over all traces of a recording.
#[derive(Debug, Default)]
pub struct Names {
    numbers: HashMap<String, u32>,
    /// The names by number.
    pub all: Vec<Name>,
}

/// A name of events.
#[derive(Debug)]
pub struct Name {
    /// Provider and event.
    pub name: String,
    /// Whether they are brought to an event of ours.
    pub used: bool,
    /// Number of events read.
    pub count: u64,
}

impl Names {
    fn number(&mut self, name: &str, used: bool) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            if let Some(known) = self.all.get_mut(*number as usize) {
                known.used |= used;
            }
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.to_owned(), number);
        self.all.push(Name { name: name.to_owned(), used, count: 0 });
        number
    }

    /// One more event of this number.
    #[inline]
    pub fn count(&mut self, number: u32) {
        if let Some(name) = self.all.get_mut(number as usize) {
            name.count += 1;
        }
    }
}

#[derive(Debug)]
pub struct Trace {
    /// Its metadata.
    pub metadata: Metadata,
    pub packet_header: Plan,
    pub header_fields: u32,
    /// The classes of streams, in the order of the metadata.
    pub streams: Vec<StreamPlan>,
    /// The slots that its plans need.
    pub slots: usize,
    /// The process, where all of the trace is of one (LTTng's buffers by process).
    pub pid: Option<u32>,
    ticks_hz: u64,
    /// Addend that turns its times into those of the recording's first clock, nanoseconds.
    pub shift_ns: i64,
    /// The host among those of a recording that was made on several.
    pub host: u32,
}

impl Trace {
    /// Compiles the metadata of the trace in `folder`. With `mapped`, events must be of threads, to
    /// be brought to ours.
    pub fn new(folder: &Path, metadata: Metadata, mapped: bool, names: &mut Names) -> Result<Self, Error> {
        let unusable = |problem| Error::Unusable { path: folder.join("metadata"), problem };
        let mut packet_header = Builder::new(slot::SAVED);
        if let Some(of) = &metadata.packet_header {
            packet_header.root(of, &packet_slot);
        }
        let header_fields = present(metadata.packet_header.as_ref(), packet_slot);
        let pid = metadata.env_number("vpid").and_then(|pid| u32::try_from(pid).ok());
        let mut streams = Vec::new();
        let is_kernel = metadata.env_text("domain") == Some("kernel");
        for class in &metadata.streams {
            let of = Of { header_fields, pid, is_kernel, mapped };
            streams.push(stream(class, &of, names).map_err(unusable)?);
        }
        Ok(Self {
            packet_header: packet_header.finish(),
            header_fields,
            streams,
            slots: slot::SAVED as usize + metadata.saved as usize,
            pid,
            ticks_hz: metadata.clocks.first().map_or(1_000_000_000, |clock| clock.frequency_hz),
            metadata,
            shift_ns: 0,
            host: 0,
        })
    }

    /// Nanoseconds of so many ticks of the trace's clock.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        if self.ticks_hz == 1_000_000_000 {
            return ticks.saturating_add_signed(self.shift_ns);
        }
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_hz.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX).saturating_add_signed(self.shift_ns)
    }

    /// Ticks of a second.
    pub fn second_ticks(&self) -> u64 {
        self.ticks_hz
    }

    /// Recorded in the kernel.
    pub fn is_kernel(&self) -> bool {
        self.metadata.env_text("domain") == Some("kernel")
    }

    /// Whether any of its events is brought to one of ours.
    pub(crate) fn is_of_use(&self) -> bool {
        self.streams.iter().any(|stream| stream.events.iter().any(|event| event.mapping.is_some()))
    }

    /// Whether callbacks can be among its events: metadata names what is recorded, and not what
    /// could be. A trace without any event of ROS 2's executors says nothing about them.
    pub(crate) fn records_callbacks(&self) -> bool {
        self.metadata
            .streams
            .iter()
            .any(|stream| stream.events.iter().any(|event| event.name == "ros2:callback_start"))
    }

    /// The clock of its events.
    pub fn clock(&self) -> Option<&Clock> {
        self.metadata.clocks.first()
    }
}

/// The trace that a stream class is of.
struct Of {
    header_fields: u32,
    pid: Option<u32>,
    is_kernel: bool,
    mapped: bool,
}

fn stream(class: &StreamClass, trace: &Of, names: &mut Names) -> Result<StreamPlan, Unusable> {
    let stream_id = class.id;
    let header =
        class.event_header.as_ref().filter(|of| has_clock(of)).ok_or(Unusable::NoTime { stream_id })?;
    let context_fields = present(class.event_context.as_ref(), context_slot);
    let has = |slot: u32| context_fields & 1 << slot != 0;
    let mut context = Builder::new(slot::SAVED);
    if let Some(of) = &class.packet_context {
        context.root(of, &packet_slot);
    }
    let mut dense = Vec::new();
    let mut sparse = HashMap::new();
    let mut events = Vec::new();
    let mut ours = false;
    for (at, event) in class.events.iter().enumerate() {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        if event.id < MAX_DENSE {
            dense.resize(dense.len().max(event.id as usize + 1), None);
            dense[event.id as usize] = Some(at);
        } else {
            sparse.insert(event.id, at);
        }
        let mapping =
            mapping::of(&event.name, event.fields.as_ref(), trace.is_kernel).filter(|_| trace.mapped);
        ours |= mapping.is_some() && !trace.is_kernel;
        let mut body = Builder::new(slot::SAVED);
        if let Some(of) = &class.event_context {
            body.root(of, &context_slot);
        }
        if let Some(of) = &event.context {
            body.root(of, &|_| None);
        }
        if let Some(of) = &event.fields {
            body.root(of, &|name| mapping.as_ref().and_then(|mapping| mapping.argument(name)));
        }
        let number = names.number(&event.name, mapping.is_some());
        events.push(EventPlan { body: body.finish(), mapping, number });
    }
    if ours && !has(slot::TID) {
        return Err(Unusable::NoContext { stream_id, missing: "thread", context: "vtid" });
    }
    if ours && !has(slot::PID) && trace.pid.is_none() {
        return Err(Unusable::NoContext { stream_id, missing: "process", context: "vpid" });
    }
    Ok(StreamPlan {
        context: context.finish(),
        packet_fields: trace.header_fields | present(class.packet_context.as_ref(), packet_slot),
        context_fields,
        header: HeaderPlan::new(header),
        dense,
        sparse,
        events,
    })
}
