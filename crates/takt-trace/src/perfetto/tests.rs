use std::process::Command;

use prost::Message;
use takt_rt::jobs::JobRecord;

use super::proto::{self, Data, Ftrace, TracePacket, TrackEvent};
use super::*;
use crate::event::{Clock, Event, Kind, Softirq, State, Thread, Trace, Vector};

#[derive(Clone, PartialEq, Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

fn decode(bytes: &[u8]) -> Vec<Data> {
    Packets::decode(bytes).unwrap().packet.into_iter().filter_map(|packet| packet.data).collect()
}

fn event(time_ns: u64, cpu: u16, kind: Kind) -> Event {
    Event { time_ns, tid: 42, cpu, kind }
}

fn switch(prev_tid: i32, next_tid: i32, prev_state: State) -> Kind {
    Kind::Switch { prev_tid, prev_prio: 19, prev_state, next_tid, next_prio: 120 }
}

/// A trace with everything that has a picture.
fn sample() -> Trace {
    let mut trace = Trace::default();
    trace.threads.insert(42, Thread { name: "attitude".into(), pid: Some(40) });
    trace.threads.insert(40, Thread { name: "takt".into(), pid: Some(40) });
    trace.threads.insert(7, Thread { name: "stray".into(), pid: None });
    trace.irqs.insert(33, "eth0".into());
    let kinds = [
        Kind::VectorExit(Vector::LocalTimer),
        Kind::VectorEntry(Vector::LocalTimer),
        Kind::TimerExpireEntry { timer: 0xff, function: 0xaa, now_ns: 1 },
        Kind::Waking { tid: 42, prio: 19, target_cpu: 1 },
        Kind::TimerExpireExit { timer: 0xff },
        Kind::VectorExit(Vector::LocalTimer),
        Kind::Wakeup { tid: 42, prio: 19, target_cpu: 1 },
        Kind::WakeupNew { tid: 42, prio: 19, target_cpu: 1 },
        switch(0, 42, State::Runnable),
        Kind::TimerStart { timer: 0xff, function: 0xaa, expires_ns: 9, slack_ns: 1 },
        Kind::TimerCancel { timer: 0xff },
        Kind::IrqEntry { irq: 33 },
        Kind::IrqExit { irq: 33 },
        Kind::SoftirqRaise(Softirq(3)),
        Kind::SoftirqEntry(Softirq(3)),
        Kind::SoftirqExit(Softirq(3)),
        Kind::Migrate { tid: 42, from_cpu: 0, to_cpu: 1 },
        Kind::PiSetprio { tid: 7, old_prio: 120, new_prio: 19 },
        Kind::Runtime { tid: 42, runtime_ns: 5 },
        Kind::PageFault { address: 1, ip: 2, user: true },
        Kind::ContentionEnd { lock: 5 },
        Kind::ContentionBegin { lock: 5, flags: 0 },
        Kind::ContentionEnd { lock: 5 },
        Kind::Lost { count: 17 },
        Kind::SysEnter { number: 230 },
        Kind::SysExit { number: 230 },
        Kind::SignalGenerate { signal: 19, tid: 7 },
        Kind::Fork { child_tid: 7 },
        Kind::CpuFrequency { cpu: 0, khz: 2_000_000 },
        switch(42, 0, State::Sleeping),
        Kind::CpuIdle { state: Some(1) },
        Kind::CpuIdle { state: None },
        Kind::Exit { tid: 7 },
    ];
    trace.events = (1..).zip(kinds).map(|(index, kind)| event(index * 1000, 0, kind)).collect();
    trace.events.push(event(50_000, 3, switch(7, 0, State::Dead)));
    trace
}

fn job(index: u64, planned_ns: u64, end_ns: u64) -> JobRecord {
    JobRecord {
        index,
        planned_ns,
        wake_ns: planned_ns + 10,
        start_ns: planned_ns + 20,
        end_ns,
        output_sequence: index + 1,
        ..JobRecord::default()
    }
}

/// A camera with three frames, and a task that takes the first and the third; its second job takes
/// nothing new.
fn tasks() -> (Task, Vec<JobRecord>, Task, Vec<JobRecord>) {
    let camera = Task { name: "camera".into(), ..Task::default() };
    let frames = vec![job(0, 1000, 1100), job(1, 2000, 2100), job(2, 3000, 3100)];
    let control = Task {
        name: "control".into(),
        tid: Some(42),
        deadline_ns: Some(500),
        inputs: vec![Input { slot: 1, from: 0 }],
        observed: false,
    };
    let mut jobs = vec![job(0, 1200, 1300), job(1, 1800, 2400), job(2, 3200, 3300)];
    for (job, sequence) in jobs.iter_mut().zip([1, 1, 3]) {
        job.input_sequences[1] = sequence;
        job.output_sequence = 0;
    }
    jobs[1].skipped = 2;
    (camera, frames, control, jobs)
}

fn written() -> (Vec<u8>, Written) {
    let (camera, frames, control, jobs) = tasks();
    let mut bytes = Vec::new();
    let written = export(&mut bytes, &sample(), &[(camera, &frames), (control, &jobs)]).unwrap();
    assert_eq!(written.bytes, bytes.len() as u64);
    (bytes, written)
}

fn track_events(data: &[Data]) -> Vec<&TrackEvent> {
    data.iter()
        .filter_map(|data| if let Data::TrackEvent(event) = data { Some(event) } else { None })
        .collect()
}

#[test]
fn kernel_events_are_ftrace_events_of_their_cpu() {
    let (bytes, written) = written();
    assert_eq!(written.events, 34);
    let data = decode(&bytes);
    let bundles: Vec<_> = data
        .iter()
        .filter_map(|data| if let Data::FtraceEvents(bundle) = data { Some(bundle) } else { None })
        .collect();
    let shape: Vec<_> =
        bundles.iter().map(|bundle| (bundle.cpu, bundle.lost_events, bundle.event.len())).collect();
    // The data after the lost events begins a bundle that says so.
    assert_eq!(shape, [(Some(0), None, 15), (Some(0), Some(true), 8), (Some(3), None, 1)]);
    let first = &bundles[0].event[4];
    assert_eq!((first.timestamp, first.pid), (Some(8000), Some(42)), "{first:?}");
    let switches: Vec<_> = bundles
        .iter()
        .flat_map(|bundle| &bundle.event)
        .filter_map(|event| match &event.event {
            Some(Ftrace::SchedSwitch(switch)) => Some((
                switch.prev_comm.as_deref().unwrap_or_default(),
                switch.prev_state,
                switch.next_comm.as_deref().unwrap_or_default(),
            )),
            _ => None,
        })
        .collect();
    assert_eq!(
        switches,
        [("swapper", Some(0), "attitude"), ("attitude", Some(1), "swapper"), ("stray", Some(16), "swapper")]
    );
}

#[test]
fn slices_begin_and_end_alike_and_ends_without_begin_are_left_out() {
    let (bytes, _) = written();
    let data = decode(&bytes);
    let mut depths = std::collections::BTreeMap::new();
    for event in track_events(&data) {
        let depth: &mut i32 = depths.entry(event.track_uuid).or_default();
        match event.r#type {
            Some(proto::BEGIN) => *depth += 1,
            Some(proto::END) => *depth -= 1,
            _ => {}
        }
        assert!(*depth >= 0, "{event:?} ends what never began");
    }
    assert!(depths.values().all(|&depth| depth == 0), "{depths:?}");
}

#[test]
fn misses_are_marked_and_arrows_lead_to_the_first_job_that_took_a_value() {
    let (bytes, written) = written();
    assert_eq!((written.jobs, written.missed), (6, 1));
    let data = decode(&bytes);
    let events = track_events(&data);
    let named = |name: &str| events.iter().filter(|event| event.name.as_deref() == Some(name)).count();
    assert_eq!(
        [
            "job",
            "job (deadline missed)",
            "work",
            "release",
            "deadline",
            "deadline missed",
            "releases skipped before"
        ]
        .map(named),
        [5, 1, 6, 6, 2, 1, 1]
    );
    let begun: Vec<u64> = events.iter().flat_map(|event| event.flow_ids.clone()).collect();
    let ended: Vec<u64> = events.iter().flat_map(|event| event.terminating_flow_ids.clone()).collect();
    assert_eq!(begun.len(), 3);
    assert_eq!(ended, [begun[0], begun[2]], "the frame that nobody took has no arrow");
    let lateness: Vec<_> = events.iter().filter_map(|event| event.counter_value).collect();
    assert_eq!(lateness, [10; 6]);
}

/// Checks the conditions under which ui.perfetto.dev draws a trace at all, without its code: tracks
/// declared before use, below tracks declared before them; slices that nest in time on every track;
/// arrows from one begin to one end; events of a CPU in order.
fn assert_sound(bytes: &[u8]) {
    let packets = Packets::decode(bytes).unwrap().packet;
    let mut tracks = std::collections::BTreeSet::new();
    let mut slices: std::collections::BTreeMap<u64, (Vec<u64>, u64)> = Default::default();
    let mut flows: [std::collections::BTreeMap<u64, u64>; 2] = Default::default();
    let mut cpus: std::collections::BTreeMap<u32, u64> = Default::default();
    for packet in packets {
        match packet.data {
            Some(Data::TrackDescriptor(track)) => {
                assert!(track.parent_uuid.is_none_or(|parent| tracks.contains(&parent)), "{track:?}");
                assert!(tracks.insert(track.uuid.unwrap()), "declared twice: {track:?}");
            }
            Some(Data::TrackEvent(event)) => {
                let (uuid, time_ns) = (event.track_uuid.unwrap(), packet.timestamp.unwrap());
                assert!(tracks.contains(&uuid), "{event:?}");
                let (open, last_ns) = slices.entry(uuid).or_default();
                if matches!(event.r#type, Some(proto::BEGIN | proto::END)) {
                    assert!(time_ns >= *last_ns, "{event:?} before what stands before it");
                    *last_ns = time_ns;
                }
                match event.r#type {
                    Some(proto::BEGIN) => open.push(time_ns),
                    Some(proto::END) => {
                        assert!(open.pop().is_some_and(|begun_ns| begun_ns <= time_ns), "{event:?}")
                    }
                    _ => {}
                }
                event.flow_ids.iter().for_each(|&id| *flows[0].entry(id).or_default() += 1);
                event.terminating_flow_ids.iter().for_each(|&id| *flows[1].entry(id).or_default() += 1);
            }
            Some(Data::FtraceEvents(bundle)) => {
                let last_ns = cpus.entry(bundle.cpu.unwrap()).or_default();
                for event in bundle.event {
                    assert!(event.timestamp.unwrap() >= *last_ns, "{event:?}");
                    *last_ns = event.timestamp.unwrap();
                }
            }
            _ => {}
        }
    }
    assert!(flows.iter().all(|ends| ends.values().all(|&times| times == 1)), "{flows:?}");
    assert!(flows[1].keys().all(|id| flows[0].contains_key(id)), "an arrow from nowhere: {flows:?}");
}

#[test]
fn recorded_traces_with_holes_are_sound() {
    let (bytes, _) = written();
    assert_sound(&bytes);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cyclictest.perf.data");
    let mut trace = crate::offline::read(std::path::Path::new(path)).unwrap();
    let tid = *trace.tids("cyclictest").last().unwrap();
    let jobs = crate::analysis::observed_jobs(&trace, tid);
    assert!(jobs.len() > 5);
    // Every seventh event is lost, in the midst of whatever is open.
    for event in trace.events.iter_mut().step_by(7) {
        event.kind = Kind::Lost { count: u64::from(event.cpu) };
    }
    let task =
        Task { name: "cyclictest".into(), tid: Some(tid), deadline_ns: Some(50_000), ..Task::default() };
    let mut bytes = Vec::new();
    let written = export(&mut bytes, &trace, &[(task, &jobs)]).unwrap();
    assert_eq!((written.events, written.jobs), (trace.events.len() as u64, jobs.len() as u64));
    assert_sound(&bytes);
}

#[test]
fn damaged_jobs_do_not_tear_up_the_track() {
    let jobs = [job(0, 1000, 0), JobRecord { start_ns: 5, ..job(1, 900, 2000) }, JobRecord::default()];
    let task = Task { name: "torn".into(), ..Task::default() };
    let mut bytes = Vec::new();
    export(&mut bytes, &Trace::default(), &[(task, &jobs)]).unwrap();
    let packets = Packets::decode(&bytes[..]).unwrap().packet;
    let mut last = 0;
    for packet in packets {
        if let Some(Data::TrackEvent(TrackEvent { r#type: Some(proto::BEGIN | proto::END), .. })) =
            packet.data
        {
            assert!(packet.timestamp.unwrap() >= last);
            last = packet.timestamp.unwrap();
        }
    }
}

#[test]
fn work_on_a_device_has_a_track_for_each_stream_and_reports_its_error() {
    let mut writer = Writer::new(Vec::new(), &sample(), &[]).unwrap();
    let work = |name: &str, index, start_ns, end_ns| DeviceWork {
        name: name.into(),
        index,
        start_ns,
        end_ns,
        error_ns: 700,
    };
    let mut device = writer.device("GPU", &["camera front".into(), "camera left".into()]).unwrap();
    let streams = &mut device.streams;
    // The second begins before the first ends, by less than the error; the last is damaged.
    let front = [work("upload", 1, 100, 200), work("inference", 1, 190, 400), work("finish", 1, 500, 3)];
    writer.device_work(&mut streams[0], &front).unwrap();
    writer.device_work(&mut streams[1], &[work("upload", 1, 150, 250)]).unwrap();
    let (bytes, written) = writer.finish().unwrap();
    assert_eq!(written.device_work, 4);
    assert_sound(&bytes);
    let data = decode(&bytes);
    let tracks: Vec<_> = data
        .iter()
        .filter_map(|data| if let Data::TrackDescriptor(track) = data { track.name.as_deref() } else { None })
        .collect();
    assert!(tracks.ends_with(&["GPU", "camera front", "camera left"]), "{tracks:?}");
    let events = track_events(&data);
    let inference = events.iter().find(|event| event.name.as_deref() == Some("inference")).unwrap();
    let detail = |name: &str| {
        let found = inference.debug_annotations.iter().find(|detail| detail.name.as_deref() == Some(name));
        found.and_then(|detail| detail.value.clone()).unwrap()
    };
    assert_eq!(detail("error_ns"), proto::Value::Int(700));
    assert_eq!(detail("start_ns"), proto::Value::Int(190));
}

#[test]
fn what_went_wrong_on_a_device_is_marked_on_its_track_with_the_cause() {
    let mut writer = Writer::new(Vec::new(), &sample(), &[]).unwrap();
    let device = writer.device("GPU", &["camera front".into()]).unwrap();
    let mark = |name: &str, time_ns| DeviceMark {
        name: name.into(),
        time_ns,
        details: vec![
            ("cause".into(), Argument::Text(format!("cause of {name}"))),
            ("frame".into(), Argument::Number(7)),
        ],
    };
    writer.device_marks(&device.streams[0], &[mark("overrun", 150), mark("fallback", 160)]).unwrap();
    writer.device_marks(&device.whole, &[mark("crashed", 170)]).unwrap();
    let (bytes, written) = writer.finish().unwrap();
    assert_eq!((written.device_marks, written.device_work), (3, 0));
    assert_sound(&bytes);
    let data = decode(&bytes);
    let track = |name: &str| {
        data.iter()
            .find_map(|data| match data {
                Data::TrackDescriptor(track) if track.name.as_deref() == Some(name) => track.uuid,
                _ => None,
            })
            .unwrap()
    };
    for (name, on) in [("overrun", "camera front"), ("fallback", "camera front"), ("crashed", "GPU")] {
        let events = track_events(&data);
        let event = events.iter().find(|event| event.name.as_deref() == Some(name)).unwrap();
        assert_eq!((event.r#type, event.track_uuid), (Some(proto::INSTANT), Some(track(on))), "{name}");
        let cause = event.debug_annotations.iter().find(|d| d.name.as_deref() == Some("cause")).unwrap();
        assert_eq!(cause.value, Some(proto::Value::Text(format!("cause of {name}"))));
    }
}

#[test]
fn wrong_asks_are_reported() {
    let other = Trace { clock: Clock::Other("local".into()), ..Trace::default() };
    let task = |from| Task { name: "t".into(), inputs: vec![Input { slot: 0, from }], ..Task::default() };
    let error = Writer::new(Vec::new(), &other, &[task(0)]).unwrap_err().to_string();
    assert!(error.contains("local") && error.contains("-k CLOCK_MONOTONIC"), "{error}");
    assert!(Writer::new(Vec::new(), &other, &[]).is_ok(), "events alone may be of any clock");
    let error = Writer::new(Vec::new(), &Trace::default(), &[task(1)]).unwrap_err().to_string();
    assert!(error.contains("number 1"), "{error}");
    let mut writer = Writer::new(Vec::new(), &Trace::default(), &[task(0)]).unwrap();
    assert!(matches!(writer.jobs(1, &[]), Err(PerfettoError::NoTask { received: 1, tasks: 1 })));
    assert!(writer.mark(0, 5, "late: softirq", &[("tid", Argument::Number(3))]).is_ok());
}

#[test]
fn memory_is_bounded_by_bundles() {
    let mut writer = Writer::new(std::io::sink(), &Trace::default(), &[]).unwrap();
    let events: Vec<_> =
        (0..100_000).map(|time| event(time, (time % 2) as u16, Kind::IrqExit { irq: 1 })).collect();
    writer.events(&events).unwrap();
    let before = writer.written;
    // Nearly everything has left: at most a bundle for each CPU waits.
    let (_, after) = writer.finish().unwrap();
    assert!(after.bytes - before.bytes < 2 * 512 * 30, "{} of {}", after.bytes - before.bytes, after.bytes);
}

/// Perfetto's own descriptions of its messages, from its Python package, read what we wrote.
const INDEPENDENT: &str = r#"
import sys, collections
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as p
trace = p.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
kinds = collections.Counter()
def unknown(message, path):
    from google.protobuf import unknown_fields
    assert not list(unknown_fields.UnknownFieldSet(message)), path
    for field, value in message.ListFields():
        if field.message_type:
            for item in (value if hasattr(value, "append") or hasattr(value, "add") else [value]):
                unknown(item, path + "." + field.name)
unknown(trace, "trace")
names = {}
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    kinds[packet.WhichOneof("data")] += 1
    for event in packet.ftrace_events.event:
        kinds[event.WhichOneof("event")] += 1
    if packet.HasField("track_descriptor"):
        names[packet.track_descriptor.uuid] = packet.track_descriptor.name or packet.track_descriptor.thread.thread_name
    if packet.HasField("track_event"):
        event = packet.track_event
        assert event.track_uuid in names, "declared before use"
        kinds[p.TrackEvent.Type.Name(event.type)] += 1
        kinds["flows"] += len(event.flow_ids) + len(event.terminating_flow_ids)
for name in sorted(names.values()):
    print("track", name)
for name, count in sorted((str(k), v) for k, v in kinds.items()):
    print(name, count)
"#;

#[test]
fn perfettos_own_messages_read_it() {
    let python = "python3";
    let there = Command::new(python)
        .args(["-c", "import perfetto.protos.perfetto.trace.perfetto_trace_pb2"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !there {
        let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
        assert!(
            !required,
            "TAKT_REQUIRE_OUTSIDE=1, but Python has no module perfetto: tools/install-outside"
        );
        takt_witness::skip!("Python has no module perfetto: pip install perfetto");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.perfetto-trace");
    std::fs::write(&file, written().0).unwrap();
    let output = Command::new(python).args(["-c", INDEPENDENT]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "track CPU 0 interrupts",
        "track attitude",
        "track camera",
        "track control",
        "track deadlines",
        "sched_switch 3",
        "sched_waking 1",
        "hrtimer_start 1",
        "irq_handler_entry 1",
        "softirq_entry 1",
        "cpu_idle 2",
        "signal_generate 1",
        "TYPE_SLICE_BEGIN 15",
        "TYPE_SLICE_END 15",
        "TYPE_COUNTER 6",
        "flows 5",
        "process_tree 1",
    ] {
        assert!(text.lines().any(|other| other == line), "`{line}` is missing in\n{text}");
    }
}
