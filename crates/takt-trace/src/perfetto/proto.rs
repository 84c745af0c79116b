//! The messages of Perfetto's trace format that we write, with their field numbers from
//! protos/perfetto/trace/ of Perfetto's sources: trace.proto, trace_packet.proto,
//! ps/process_tree.proto, ftrace/ftrace_event_bundle.proto, ftrace/ftrace_event.proto,
//! ftrace/{sched,irq,hrtimer,power,raw_syscalls,signal}.proto, track_event/{track_event,
//! track_descriptor,counter_descriptor,debug_annotation}.proto. Fields that we do not write are
//! left out.
//!
//! The crate `tracing-perfetto-sdk-schema` (0.13) has all messages: the same bytes, as fast, but a
//! packet of it takes 3512 bytes of memory (ours 192), and it needs `protoc` and 16 s of CPU to
//! build.
//!
//! The format is proto2: optional fields are written whenever they are set, zero too.

#![allow(missing_docs, reason = "names and meanings are Perfetto's own")]

use prost::{Message, Oneof};

/// `Trace.packet`, field 1, length-delimited: the byte before every packet's length.
pub const PACKET_TAG: u8 = 1 << 3 | 2;

/// `TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED`.
pub const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(oneof = "Data", tags = "1, 2, 11, 60")]
    pub data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    #[prost(message, tag = "1")]
    FtraceEvents(FtraceEventBundle),
    #[prost(message, tag = "2")]
    ProcessTree(ProcessTree),
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

#[derive(Clone, PartialEq, Message)]
pub struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Process {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, repeated, tag = "3")]
    pub cmdline: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Thread {
    #[prost(int32, optional, tag = "1")]
    pub tid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub tgid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    pub cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    pub event: Vec<FtraceEvent>,
    #[prost(bool, optional, tag = "3")]
    pub lost_events: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    pub pid: Option<u32>,
    #[prost(
        oneof = "Ftrace",
        tags = "4, 11, 13, 17, 20, 24, 25, 26, 36, 37, 114, 238, 325, 329, 330, 353, 491, 551, 552, 553, 554"
    )]
    pub event: Option<Ftrace>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Ftrace {
    #[prost(message, tag = "4")]
    SchedSwitch(SchedSwitch),
    #[prost(message, tag = "11")]
    CpuFrequency(CpuState),
    #[prost(message, tag = "13")]
    CpuIdle(CpuState),
    #[prost(message, tag = "17")]
    SchedWakeup(SchedWakeup),
    #[prost(message, tag = "20")]
    SchedWaking(SchedWakeup),
    #[prost(message, tag = "24")]
    SoftirqEntry(Softirq),
    #[prost(message, tag = "25")]
    SoftirqExit(Softirq),
    #[prost(message, tag = "26")]
    SoftirqRaise(Softirq),
    #[prost(message, tag = "36")]
    IrqHandlerEntry(IrqHandlerEntry),
    #[prost(message, tag = "37")]
    IrqHandlerExit(IrqHandlerExit),
    #[prost(message, tag = "114")]
    SchedWakeupNew(SchedWakeup),
    #[prost(message, tag = "238")]
    SchedProcessExit(SchedProcessExit),
    #[prost(message, tag = "325")]
    SignalGenerate(SignalGenerate),
    #[prost(message, tag = "329")]
    SysEnter(Sys),
    #[prost(message, tag = "330")]
    SysExit(Sys),
    #[prost(message, tag = "353")]
    SchedPiSetprio(SchedPiSetprio),
    #[prost(message, tag = "491")]
    SchedMigrateTask(SchedMigrateTask),
    #[prost(message, tag = "551")]
    HrtimerStart(HrtimerStart),
    #[prost(message, tag = "552")]
    HrtimerCancel(Hrtimer),
    #[prost(message, tag = "553")]
    HrtimerExpireEntry(HrtimerExpireEntry),
    #[prost(message, tag = "554")]
    HrtimerExpireExit(Hrtimer),
}

#[derive(Clone, PartialEq, Message)]
pub struct SchedSwitch {
    #[prost(string, optional, tag = "1")]
    pub prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    pub prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    pub next_prio: Option<i32>,
}

/// `SchedWakeupFtraceEvent`, `SchedWakingFtraceEvent` and `SchedWakeupNewFtraceEvent` are alike.
#[derive(Clone, PartialEq, Message)]
pub struct SchedWakeup {
    #[prost(string, optional, tag = "1")]
    pub comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub prio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub success: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub target_cpu: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SchedProcessExit {
    #[prost(string, optional, tag = "1")]
    pub comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub tgid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SchedMigrateTask {
    #[prost(string, optional, tag = "1")]
    pub comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub orig_cpu: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub dest_cpu: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SchedPiSetprio {
    #[prost(string, optional, tag = "1")]
    pub comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub newprio: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub oldprio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub pid: Option<i32>,
}

/// `CpuIdleFtraceEvent` and `CpuFrequencyFtraceEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct CpuState {
    #[prost(uint32, optional, tag = "1")]
    pub state: Option<u32>,
    #[prost(uint32, optional, tag = "2")]
    pub cpu_id: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Softirq {
    #[prost(uint32, optional, tag = "1")]
    pub vec: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IrqHandlerEntry {
    #[prost(int32, optional, tag = "1")]
    pub irq: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IrqHandlerExit {
    #[prost(int32, optional, tag = "1")]
    pub irq: Option<i32>,
    /// IRQ_HANDLED; our model does not keep it.
    #[prost(int32, optional, tag = "2")]
    pub ret: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HrtimerStart {
    #[prost(uint64, optional, tag = "1")]
    pub hrtimer: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub function: Option<u64>,
    #[prost(int64, optional, tag = "3")]
    pub expires: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub softexpires: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Hrtimer {
    #[prost(uint64, optional, tag = "1")]
    pub hrtimer: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HrtimerExpireEntry {
    #[prost(uint64, optional, tag = "1")]
    pub hrtimer: Option<u64>,
    #[prost(int64, optional, tag = "2")]
    pub now: Option<i64>,
    #[prost(uint64, optional, tag = "3")]
    pub function: Option<u64>,
}

/// `SysEnterFtraceEvent` and `SysExitFtraceEvent`, without arguments and result.
#[derive(Clone, PartialEq, Message)]
pub struct Sys {
    #[prost(int64, optional, tag = "1")]
    pub id: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SignalGenerate {
    #[prost(string, optional, tag = "2")]
    pub comm: Option<String>,
    #[prost(int32, optional, tag = "4")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "6")]
    pub sig: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    /// `ChildTracksOrdering`: 3 is EXPLICIT, by `sibling_order_rank`.
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    pub sibling_order_rank: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// `Unit`: 1 is UNIT_TIME_NS.
    #[prost(int32, optional, tag = "3")]
    pub unit: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// [`BEGIN`], [`END`], [`INSTANT`], [`COUNTER`].
    #[prost(int32, optional, tag = "9")]
    pub r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
}

/// `TrackEvent.Type.TYPE_SLICE_BEGIN`.
pub const BEGIN: i32 = 1;
/// `TYPE_SLICE_END`.
pub const END: i32 = 2;
/// `TYPE_INSTANT`.
pub const INSTANT: i32 = 3;
/// `TYPE_COUNTER`.
pub const COUNTER: i32 = 4;

#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
    #[prost(oneof = "Value", tags = "3, 4, 6, 7")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    #[prost(uint64, tag = "3")]
    Uint(u64),
    #[prost(int64, tag = "4")]
    Int(i64),
    #[prost(string, tag = "6")]
    Text(String),
    #[prost(uint64, tag = "7")]
    Pointer(u64),
}
