use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;

use proptest::prelude::*;

use super::synthetic::repeated;
use super::*;
use crate::Thresholds;
use crate::analysis::{analyse_with, observed_jobs, timeline};
use crate::event::{Clock, Kind, Vector};
use crate::perfetto::{Task, export};

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn perf() -> Vec<u8> {
    recorded("cyclictest.perf.data")
}

fn ftrace() -> Vec<u8> {
    recorded("cyclictest.trace6.dat")
}

/// The same in version 7, packed by zstd ("") or not ("plain").
fn seven(packing: &str) -> Vec<u8> {
    recorded(&format!("cyclictest.trace7{packing}.dat"))
}

fn count(trace: &Trace, matches: impl Fn(&Kind) -> bool) -> usize {
    trace.events.iter().filter(|event| matches(&event.kind)).count()
}

/// Both files are of the same program, which the recorders count by themselves
/// (tests/data/README.md).
#[test]
fn both_tools_files_are_read_whole() {
    for (file, events) in [(perf(), 597), (ftrace(), 813)] {
        let trace = read_bytes(&file).unwrap();
        assert_eq!(trace.events.len(), events);
        assert_eq!(
            (trace.clock.clone(), trace.lost_events, trace.notes.len()),
            (Clock::Monotonic, 0, 0),
            "{:?}",
            trace.notes
        );
        assert!(trace.events.is_sorted_by_key(|event| event.time_ns), "CPUs are merged in the order of time");
        assert!((0..2).all(|cpu| trace.events.iter().any(|event| event.cpu == cpu)));
        assert!(trace.events.iter().all(|event| event.cpu < 2));

        // The measuring thread of cyclictest at SCHED_FIFO 80 wakes up 12 times or more.
        let cyclic = trace.tids("cyclictest");
        let woken =
            count(&trace, |kind| matches!(kind, Kind::Waking { tid, prio: 19, .. } if cyclic.contains(tid)));
        assert!(woken >= 11, "{woken} of {cyclic:?}");
        let timers = count(&trace, |kind| matches!(kind, Kind::TimerExpireEntry { .. }));
        let ended = count(&trace, |kind| matches!(kind, Kind::TimerExpireExit { .. }));
        assert!(timers >= 11 && timers.abs_diff(ended) <= 2, "{timers} begun, {ended} ended");
        assert!(count(&trace, |kind| *kind == Kind::VectorEntry(Vector::LocalTimer)) >= 11);
        // The thread that leaves a CPU is the one that came to it before; but one thread of the
        // recording machine's host has no switches of its own.
        let own: BTreeSet<i32> = (trace.events.iter())
            .filter_map(
                |event| if let Kind::Switch { prev_tid, .. } = event.kind { Some(prev_tid) } else { None },
            )
            .collect();
        let mut checked = 0;
        for cpu in 0..2 {
            let mut on = None;
            for event in trace.events.iter().filter(|event| event.cpu == cpu) {
                if let Kind::Switch { prev_tid, next_tid, .. } = event.kind {
                    assert_eq!(event.tid, prev_tid);
                    if let Some(on) = on.replace(next_tid).filter(|on| own.contains(on)) {
                        assert_eq!(on, prev_tid, "at {}", event.time_ns);
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 50, "{checked}");
    }
}

#[test]
fn packed_sections_hold_the_same() {
    let plain = read_bytes(&ftrace()).unwrap();
    for packing in ["", "plain"] {
        assert_eq!(read_bytes(&seven(packing)).unwrap(), plain, "{packing}");
    }
}

/// Options that lead back to themselves, and sections that claim to be huge.
#[test]
fn malicious_sections_end() {
    let file = seven("");
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    // Options are plain: u16 id, u32 size, value; the last of a section, DONE, reports the place of
    // the next.
    let first = word(29);
    let (mut section, mut done, mut formats) = (first, 0, 0);
    while section != 0 {
        let mut at = section + 16;
        loop {
            let id = u16::from_le_bytes(file[at..at + 2].try_into().unwrap());
            let size = u32::from_le_bytes(file[at + 2..at + 6].try_into().unwrap()) as usize;
            match id {
                0 => done = at + 6,
                18 => formats = word(at + 6),
                _ => {}
            }
            at += 6 + size;
            if id == 0 {
                break;
            }
        }
        section = word(done);
    }
    let mut chain = file.clone();
    chain[done..done + 8].copy_from_slice(&(first as u64).to_le_bytes());
    let error = read_bytes(&chain).unwrap_err().to_string();
    assert!(error.contains("a place that has already been read"), "{error}");
    let mut huge = file.clone();
    huge[formats + 20..formats + 24].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = read_bytes(&huge).unwrap_err().to_string();
    assert!(error.contains("4294967295 bytes unpacked"), "{error}");
}

#[test]
fn perf_reports_the_processes_of_threads() {
    let trace = read_bytes(&perf()).unwrap();
    let cyclic: Vec<_> = trace
        .threads
        .iter()
        .filter(|(_, thread)| thread.name == "cyclictest" && thread.pid.is_some())
        .collect();
    assert_eq!(cyclic.len(), 2, "{cyclic:?}");
    assert_eq!(cyclic[0].1.pid, Some(*cyclic[0].0));
    assert_eq!(cyclic[1].1.pid, cyclic[0].1.pid, "both are of one process");
}

#[test]
fn what_is_no_trace_is_reported() {
    for (bytes, words) in [
        (&b""[..], "empty"),
        (b"PERFI", "PERFI"),
        (b"\x17\x08\x44tr", "cut off"),
        (b"2ELIFREP________", "other byte order"),
        (b"\x7fELF\x02\x01", "ELF"),
    ] {
        let error = read_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let error = read(Path::new("/nonexistent/perf.data")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/perf.data"), "{error}");
}

#[test]
fn files_that_cannot_be_read_say_what_to_do() {
    let change = |at: usize, bytes: &[u8]| {
        let mut file = perf();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        read_bytes(&file)
    };
    for (outcome, words) in [
        // A stream begins with a list of events.
        (change(8, &16u64.to_le_bytes()), "tracepoints"),
        (change(8, &17u64.to_le_bytes()), "104"),
        (change(48, &0u64.to_le_bytes()), "did not finish"),
        (change(72, &[0; 32]), "formats"),
        (change(16, &1u64.to_le_bytes()), "pieces of 1"),
    ] {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("Fix"), "{error}");
    }
    let mut eight = ftrace();
    eight[10] = b'8';
    let error = read_bytes(&eight).unwrap_err().to_string();
    assert!(error.contains("version 8") && error.contains("trace-cmd convert"), "{error}");
    let mut packed = seven("");
    packed[18..22].copy_from_slice(b"lzma");
    let error = read_bytes(&packed).unwrap_err().to_string();
    assert!(error.contains("lzma") && error.contains("--compression none"), "{error}");
    let mut endian = ftrace();
    endian[12] = 1;
    assert!(read_bytes(&endian).unwrap_err().to_string().contains("big-endian"));
}

/// perf_event_attr: flags at 40, clockid at 92.
#[test]
fn the_clock_is_named() {
    let file = perf();
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (size, attrs, bytes) = (word(16), word(24), word(32));
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut file = file.clone();
        (0..bytes / size).for_each(|index| change(&mut file[attrs + index * size..]));
        read_bytes(&file)
    };
    let from = |trace: &Trace| trace.clock_map.as_ref().map(|map| map.from.clone()).unwrap();
    let own = with(&|attr| attr[43] &= !2).unwrap();
    assert!(from(&own).contains("sched_clock"), "{:?}", own.clock_map);
    let raw = with(&|attr| attr[92] = 4).unwrap();
    assert_eq!(from(&raw), "CLOCK_MONOTONIC_RAW");
    let mut two = file.clone();
    two[attrs + 92] = 0;
    let error = read_bytes(&two).unwrap_err().to_string();
    assert!(error.contains("two clocks") && error.contains("CLOCK_REALTIME"), "{error}");

    let mut ftrace = ftrace();
    let at = ftrace.windows(6).position(|window| window == b"[mono]").unwrap();
    ftrace[at..at + 6].copy_from_slice(b"[perf]");
    assert_eq!(from(&read_bytes(&ftrace).unwrap()), "perf");
}

#[test]
fn lost_records_are_counted_where_they_are_missing() {
    // The first sample becomes a record of lost ones; its trailer is found from the end.
    let mut file = perf();
    let mut at = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    while file[at..at + 4] != 9u32.to_le_bytes() {
        at += usize::from(u16::from_le_bytes(file[at + 6..at + 8].try_into().unwrap()));
    }
    let length = usize::from(u16::from_le_bytes(file[at + 6..at + 8].try_into().unwrap()));
    let time = file[at + 32..at + 40].to_vec();
    file[at..at + 4].copy_from_slice(&2u32.to_le_bytes());
    file[at + 16..at + 24].copy_from_slice(&99u64.to_le_bytes());
    // TID, TIME, CPU, IDENTIFIER.
    let trailer = at + length - 32;
    file[trailer + 8..trailer + 16].copy_from_slice(&time);
    file[trailer + 16..trailer + 20].copy_from_slice(&1u32.to_le_bytes());
    let trace = read_bytes(&file).unwrap();
    assert_eq!(trace.lost_events, 99);
    let lost: Vec<_> = trace.events.iter().filter(|event| matches!(event.kind, Kind::Lost { .. })).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].kind, lost[0].cpu), (Kind::Lost { count: 99 }, 1));
    assert_eq!(lost[0].time_ns.to_le_bytes(), time[..]);

    // A page of ftrace that says that events before it are missing.
    let mut file = ftrace();
    let page = file.len() - 4096;
    file[page + 11] |= 0x80;
    let trace = read_bytes(&file).unwrap();
    assert_eq!(count(&trace, |kind| matches!(kind, Kind::Lost { .. })), 1);
    assert_eq!(trace.lost_events, 1, "how many is not stored, one at least");
}

#[test]
fn a_torn_end_leaves_what_was_whole() {
    let file = ftrace();
    let whole = read_bytes(&file).unwrap();
    let torn = read_bytes(&file[..file.len() - 5000]).unwrap();
    assert!(torn.events.len() < whole.events.len() && !torn.events.is_empty());
    assert!(torn.notes.iter().any(|note| note.contains("intact only up to byte")), "{:?}", torn.notes);

    // perf's formats stand behind its data: a copy that was cut off there cannot be read, a record
    // that is damaged costs what is behind it.
    let file = perf();
    let error = read_bytes(&file[..file.len() / 2]).unwrap_err().to_string();
    assert!(error.contains("did not finish"), "{error}");
    let mut damaged = repeated(&file, 3);
    let data = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    let size = u64::from_le_bytes(file[48..56].try_into().unwrap()) as usize;
    damaged[data + 2 * size + 6..data + 2 * size + 8].copy_from_slice(&3u16.to_le_bytes());
    let trace = read_bytes(&damaged).unwrap();
    assert_eq!(trace.events.len(), 2 * 597);
    let place = format!("byte {}", data + 2 * size);
    assert!(
        trace.notes.iter().any(|note| note.contains(&place) && note.contains("1194 events")),
        "{:?}",
        trace.notes
    );
}

/// A file as `perf record -z` makes it: the records in a zstd stream, cut into pieces anywhere.
fn packed_perf(piece: usize) -> Vec<u8> {
    let file = perf();
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (data, size) = (word(40), word(48));
    let mut out = file[..data].to_vec();
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    for part in file[data..data + size].chunks(piece) {
        encoder.write_all(part).unwrap();
        encoder.flush().unwrap();
        let packed = std::mem::take(encoder.get_mut());
        out.extend(81u32.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        out.extend(u16::try_from(packed.len() + 8).unwrap().to_le_bytes());
        out.extend(packed);
    }
    let moved = out.len() as i64 - (data + size) as i64;
    out.extend(&file[data + size..]);
    out[48..56].copy_from_slice(&(size as i64 + moved).to_le_bytes());
    // Sections of features move too.
    let features: u32 = file[72..104].iter().map(|byte| byte.count_ones()).sum();
    for row in 0..features as usize {
        let place = word(data + size + row * 16) as i64 + moved;
        let at = (data + size + row * 16) as i64 + moved;
        out[at as usize..at as usize + 8].copy_from_slice(&place.to_le_bytes());
    }
    out
}

#[test]
fn packed_records_are_the_same() {
    for piece in [1000, 4096, 50_000] {
        assert_eq!(read_bytes(&packed_perf(piece)).unwrap(), read_bytes(&perf()).unwrap());
    }
    // A piece that is no zstd costs what is behind it.
    let mut file = packed_perf(30_000);
    let data = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    let second = data + usize::from(u16::from_le_bytes(file[data + 6..data + 8].try_into().unwrap()));
    file[second + 8..second + 40].fill(0xff);
    let trace = read_bytes(&file).unwrap();
    assert!(
        trace.events.len() < 597 && trace.notes.iter().any(|note| note.contains("compressed record")),
        "{:?}",
        trace.notes
    );
}

/// A few kilobytes that unpack to records without end.
#[test]
fn a_packed_bomb_is_refused_with_its_limit() {
    let file = perf();
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let data = word(40);
    let mut out = file[..data].to_vec();
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    // A record of a kind that means nothing, eight bytes long.
    let records = [99, 0, 0, 0, 0, 0, 8, 0].repeat(4 << 20);
    for _ in 0..3 {
        encoder.write_all(&records).unwrap();
        encoder.flush().unwrap();
        let packed = std::mem::take(encoder.get_mut());
        out.extend(81u32.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        out.extend(u16::try_from(packed.len() + 8).unwrap().to_le_bytes());
        out.extend(packed);
    }
    assert!(out.len() < 200_000);
    let grown = out.len() as i64 - (data + word(48)) as i64;
    let size = out.len() - data;
    out[48..56].copy_from_slice(&(size as u64).to_le_bytes());
    let table = out.len();
    out.extend(&file[data + word(48)..]);
    let features: u32 = file[72..104].iter().map(|byte| byte.count_ones()).sum();
    for row in (0..features as usize).map(|row| table + row * 16) {
        let place = i64::from_le_bytes(out[row..row + 8].try_into().unwrap()) + grown;
        out[row..row + 8].copy_from_slice(&place.to_le_bytes());
    }
    let error = read_bytes(&out).unwrap_err();
    assert!(matches!(error, OfflineError::Limit { most: 67_108_864, .. }), "{error}");
    assert!(error.to_string().contains("without `-z`"), "{error}");
}

#[test]
fn counts_beyond_their_limit_are_refused() {
    use super::limits::{MAX_EVENTS, MAX_INSTANCES, events, unpacked};
    assert!(events(MAX_EVENTS).is_ok() && events(MAX_EVENTS + 1).is_err());
    assert!(unpacked(64 << 20, 10).is_ok() && unpacked((64 << 20) + 1, 10).is_err());
    assert!(unpacked(200 << 30, 1 << 30).is_ok() && unpacked((200 << 30) + 1, 1 << 30).is_err());
    let several = trace_dat::within_instances(MAX_INSTANCES + 1).unwrap_err().to_string();
    assert!(several.contains("1025 trace instances; at most 1024"), "{several}");
}

#[test]
fn copies_in_the_order_of_time_stay_so() {
    let trace = read_bytes(&repeated(&perf(), 5)).unwrap();
    assert_eq!(trace.events.len(), 5 * 597);
    assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
}

/// All that is done with a trace, for every thread that looks like one: whatever stands in it.
fn everything(trace: &Trace) -> Result<(), TestCaseError> {
    // Damage may name another clock, and then analyses refuse; here they shall not get off so
    // lightly.
    let trace = Trace { clock: Clock::Monotonic, ..trace.clone() };
    for tid in trace.tids("cyclictest").into_iter().take(2) {
        let jobs = observed_jobs(&trace, tid);
        let thresholds = Thresholds { lateness_ns: 0, response_ns: Some(0), windows: 3 };
        let report = analyse_with(&trace, tid, &jobs, &thresholds).unwrap();
        prop_assert!(report.matched + report.unmatched.values().sum::<u64>() == report.releases);
        for late in &report.windows {
            timeline(&trace, late.planned_ns, late.end_ns);
        }
        let task = Task { name: "cyclictest".into(), tid: Some(tid), ..Task::default() };
        export(std::io::sink(), &trace, &[(task, &jobs)]).unwrap();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever happens to a file: a trace or an error, no panic, no endless loop, no memory beyond
    /// its size.
    #[test]
    fn no_damage_panics(
        kind in 0..5,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..20),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = match kind {
            0 => perf(),
            1 => ftrace(),
            2 => seven(""),
            3 => packed_perf(4096),
            _ => seven("plain"),
        };
        let heads = file.len().min(4096);
        for (place, byte, head) in changes {
            // Half of them in the head, which everything depends on.
            let place = if head { place.index(heads) } else { place.index(file.len()) };
            file[place] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(trace) = read_bytes(&file) {
            // Packed pages hold more events than they have bytes, but not without bounds.
            prop_assert!(trace.events.len() <= file.len() * 100);
            prop_assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
            everything(&trace)?;
        }
    }

    #[test]
    fn no_bytes_panic(perf in any::<bool>(), bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut file = if perf { perf_data::MAGIC.to_vec() } else { tracing_data::MAGIC.to_vec() };
        file.extend(bytes);
        let _ = read_bytes(&file);
    }
}

fn skipped(reason: &str) {
    let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
    assert!(!required, "TAKT_REQUIRE_OUTSIDE=1, but {reason}");
    takt_witness::skip!("{reason}");
}

/// A shell script in a mount namespace of its own, where tracefs is mounted whether it is outside
/// or not.
fn with_tracefs(tool: &str, script: &str, folder: &Path) -> Option<String> {
    if Command::new(tool).arg("--version").output().is_err() {
        skipped(&format!("{tool} is not installed"));
        return None;
    }
    let whole = format!(
        "set -e; mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing; cd {}; {script}",
        folder.display()
    );
    match Command::new("unshare").args(["-m", "sh", "-c", &whole]).output() {
        Ok(output) if output.status.success() => {
            return Some(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(output) => {
            takt_witness::skip!(
                "{tool} may not record here: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Err(error) => takt_witness::skip!("unshare: {error}"),
    }
    None
}

/// Our counts equal those of the file's own tool.
#[test]
fn a_fresh_recording_of_perf_has_what_perf_reports() {
    let folder = tempfile::tempdir().unwrap();
    // Alone, with call chains, beside an event whose samples are laid out differently, packed, by
    // several threads, as a stream, from the newest event back, and with records of other kinds.
    for (file, extra) in [
        ("plain", "-o plain"),
        ("chains", "-g -o chains"),
        ("mixed", "-e cpu-clock -o mixed"),
        ("packed", "-z -o packed"),
        ("threads", "--threads -o threads"),
        ("packed-threads", "-z --threads -o packed-threads"),
        ("stream", "-o - >stream"),
        ("packed-stream", "-z -o - >packed-stream"),
        ("backward", "--overwrite -o backward"),
        ("others", "--switch-events --tail-synthesize -o others"),
    ] {
        // A stream goes to its file, and anything else that perf shows is no result.
        let (options, shown) = extra.split_once('>').unwrap_or((extra, "&2"));
        let script = format!(
            "perf record -q -a -k CLOCK_MONOTONIC -e sched:sched_switch,sched:sched_waking {options} sleep 0.05 >{shown}; \
             perf script -F event,time -i {file}"
        );
        let Some(reported) = with_tracefs("perf", &script, folder.path()) else { return };
        let trace = read(&folder.path().join(file)).unwrap();
        let reported = reported.lines().filter(|line| line.contains("sched:sched_")).count();
        let lost = count(&trace, |kind| matches!(kind, Kind::Lost { .. }));
        assert!(reported > 0, "{file}");
        assert_eq!(trace.events.len() - lost, reported, "{file}: {:?}", trace.notes);
        assert_eq!(trace.clock, Clock::Monotonic);
    }
}

/// The first command that a message names.
fn command(message: &str) -> String {
    let fix = message.split_once("Fix: ").unwrap().1;
    fix.split('`').nth(1).unwrap().to_owned()
}

/// The remedy in a refusal is tried, and its result is read.
#[test]
fn the_way_out_of_a_refusal_leads_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);

    // Files that the newest trace-cmd converts.
    let mut future = ftrace();
    future[10] = b'8';
    let mut packed = seven("");
    packed[18..22].copy_from_slice(b"lzma");
    for (refused, good, made) in [(future, ftrace(), "trace7.dat"), (packed, seven(""), "plain.dat")] {
        let message = read_bytes(&refused).unwrap_err().to_string();
        std::fs::write(at("trace.dat"), &good).unwrap();
        let command = command(&message);
        assert!(command.starts_with("trace-cmd convert "), "{message}");
        let done = Command::new("sh").args(["-c", &command]).current_dir(folder.path()).output();
        let Ok(done) = done.map(|done| done.status) else { return skipped("no shell") };
        if done.code() == Some(127) {
            return skipped("trace-cmd is not installed");
        }
        assert_eq!(read(&at(made)).unwrap().events, read_bytes(&good).unwrap().events, "{command}");
    }

    // Recordings that lack something, made again as the message says.
    for (file, wrong) in [("counts", "-e cpu-clock"), ("bare", "-e sched:sched_switch --no-timestamp")] {
        let script = format!("perf record -q -a {wrong} -o {file} sleep 0.05 >&2");
        if with_tracefs("perf", &script, folder.path()).is_none() {
            return;
        }
        let Err(error) = read(&at(file)) else { continue };
        let command = command(&error.to_string());
        assert!(command.starts_with("perf record "), "{error}");
        let events = if command.contains(" -e ") { "" } else { "-e sched:sched_switch" };
        // A kernel need not have all the tracepoints of another architecture.
        let script = format!("{command} {events} -o again sleep 0.05 >&2");
        if with_tracefs("perf", &script, folder.path()).is_some() {
            assert!(!read(&at("again")).unwrap().events.is_empty(), "{command}");
        }
    }
}

#[test]
fn a_fresh_recording_of_trace_cmd_has_what_trace_cmd_reports() {
    let folder = tempfile::tempdir().unwrap();
    // By hand and `extract`, since kernels without function filters refuse `record`. What was set
    // is restored.
    let script = r#"
        T=/sys/kernel/tracing
        E="sched/sched_switch sched/sched_waking"
        [ "$(cat $T/current_tracer)$(cat $T/events/enable)" = nop0 ] || { echo "another tracer is at work" >&2; exit 1; }
        ON=$(cat $T/tracing_on); CLOCK=$(sed 's/.*\[\(.*\)\].*/\1/' $T/trace_clock)
        restore() {
            for e in $E; do echo 0 >$T/events/$e/enable; done
            echo $CLOCK >$T/trace_clock; echo >$T/trace; echo $ON >$T/tracing_on
        }
        trap restore EXIT INT TERM
        echo mono >$T/trace_clock; echo >$T/trace
        for e in $E; do echo 1 >$T/events/$e/enable; done
        echo 1 >$T/tracing_on; sleep 0.1; echo 0 >$T/tracing_on
        trace-cmd extract -o new7.dat >&2
        trace-cmd convert --file-version 6 -i new7.dat -o new6.dat >&2
        trace-cmd report new6.dat | grep -v ^cpus="#;
    let Some(reported) = with_tracefs("trace-cmd", script, folder.path()) else { return };
    let trace = read(&folder.path().join("new6.dat")).unwrap();
    assert_eq!(read(&folder.path().join("new7.dat")).unwrap().events, trace.events);
    let lost = count(&trace, |kind| matches!(kind, Kind::Lost { .. }));
    let reported = reported.lines().filter(|line| line.contains("sched_")).count();
    assert!(reported > 0);
    assert_eq!(trace.events.len() - lost, reported);
    assert_eq!(trace.clock, Clock::Monotonic);
}
