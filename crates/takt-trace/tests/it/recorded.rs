//! Recorded files of other machines, versions and settings, against what their own tools report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use takt_trace::analysis::{MissingStep, analyse_observed, observed_releases};
use takt_trace::offline::{OfflineError, read_bytes, read_instance};
use takt_trace::{Clock, Kind, Thresholds, Trace};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// A file of tests/data, which is packed there.
fn unpacked(name: &str) -> Vec<u8> {
    let packed = std::fs::read(data().join(format!("{name}.zst"))).unwrap();
    zstd::decode_all(packed.as_slice()).unwrap()
}

fn trace(name: &str) -> Trace {
    read_bytes(&unpacked(name)).unwrap()
}

/// `count` events of the trace were read, and all of the file.
fn whole(trace: &Trace, count: usize) {
    assert_eq!(trace.events.len(), count, "{:?}", trace.notes);
    assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
    assert!(!trace.notes.iter().any(|note| note.contains("intact only up to")), "{:?}", trace.notes);
}

/// trace-cmd before 3.0 writes the clock behind the table of CPUs. Events by `trace-cmd report`;
/// the releases of the second file are those of the same events with the clock in its option.
#[test]
fn files_of_trace_cmd_before_3_0_have_their_clock_behind_the_table() {
    for (name, events, thread, releases) in
        [("tc283.dat", 4511, 29744, None), ("v6-clock-behind-table.dat", 2626, 7287, Some(151))]
    {
        let trace = trace(name);
        whole(&trace, events);
        assert_eq!((trace.clock.clone(), trace.clock_map.is_none()), (Clock::Monotonic, true), "{name}");
        let (report, jobs) = analyse_observed(&trace, thread, &Thresholds::default());
        assert!(report.releases > 0 && !jobs.is_empty(), "{name}: {report:#?}");
        if let Some(releases) = releases {
            assert_eq!(report.releases, releases);
            let switches = (trace.events.iter())
                .filter(|event| matches!(event.kind, Kind::Switch { next_tid, .. } if next_tid == thread))
                .count();
            assert_eq!(switches, 152, "as trace-cmd report shows");
        }
    }
    // A file of trace-cmd 1.x that was cut off there, and a size that makes no sense.
    let mut file = unpacked("v6-clock-behind-table.dat");
    let at = file.windows(14).position(|window| window == b"\x06\0\0\0\0\0\0\0[mono]").unwrap();
    file[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    let trace = read_bytes(&file).unwrap();
    let from = trace.clock_map.map(|map| map.from);
    assert_eq!(from.as_deref(), Some("local"), "trace-cmd takes it for that as well");
}

#[test]
fn the_default_clock_is_brought_to_monotonic_with_its_error() {
    let trace = trace("local-clock.dat");
    whole(&trace, 16_170);
    assert_eq!(trace.clock, Clock::Monotonic);
    let map = trace.clock_map.clone().unwrap();
    assert_eq!((map.from.as_str(), map.pairs), ("local", 1376));
    let ms = map.offset_ns.unwrap().map(|ns| (ns as f64 / 100.0).round() / 1e4);
    assert_eq!(ms, [24.5693, 24.5695, 24.5794], "{map:?}");
    assert!(map.error_is_bound && (1..20_000).contains(&map.error_ns), "{map:?}");
    // Each expiry is where the kernel read its `now`, or later by the time until its event.
    for event in &trace.events {
        if let Kind::TimerExpireEntry { now_ns, .. } = event.kind {
            assert!(event.time_ns + map.error_ns >= now_ns && event.time_ns < now_ns + 20_000, "{event:?}");
        }
    }
    let note = trace.notes.iter().find(|note| note.contains("CLOCK_MONOTONIC")).unwrap();
    assert!(
        note.contains("24.5693 to 24.5794 ms, median 24.5695 ms") && note.contains("wrong by at most"),
        "{note}"
    );
    let cyclic = trace.tids("cyclictest");
    let releases = observed_releases(&trace, &cyclic);
    assert!(releases.iter().any(|&releases| releases > 100), "{cyclic:?}: {releases:?}");
}

/// trace-cmd 3.1.6 writes the main buffer's clock, `local`, for the instance, whose clock was mono.
#[test]
fn an_instance_is_read_where_the_main_buffer_is_empty_and_by_its_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), unpacked("instance-mono.dat")).unwrap();
    let alone = read_instance(file.path(), None).unwrap();
    whole(&alone, 1732);
    assert!(alone.notes.iter().any(|note| note.contains("`devlib`")), "{:?}", alone.notes);
    let named = read_instance(file.path(), Some("devlib")).unwrap();
    assert_eq!(named.events, alone.events);
    let other = read_instance(file.path(), Some("lisa")).unwrap_err();
    assert!(
        matches!(&other, OfflineError::NoInstance { received, .. } if received.contains("devlib")),
        "{other}"
    );
    // Nothing in it relates its clock to another: its releases count from their wake-ups.
    assert_eq!(alone.clock, Clock::Other("local".into()));
    let cyclic = alone.tids("cyclictest");
    let most = cyclic.iter().max_by_key(|&&tid| observed_releases(&alone, &[tid])[0]).unwrap();
    let (report, _) = analyse_observed(&alone, *most, &Thresholds::default());
    assert!(report.releases > 20 && report.matched > 0, "{report:#?}");
}

#[test]
fn threads_of_one_name_have_releases_of_their_own() {
    let trace = trace("two-threads-of-one-name.dat");
    let releases = observed_releases(&trace, &[7286, 7287]);
    assert_eq!(releases, [33, 151]);
}

/// Largest and median distance of the times in `brought` from those in `truth`, which are the same
/// events of the same time by CLOCK_MONOTONIC: all of them, CPU by CPU in their order.
fn distances(brought: &Trace, truth: &Trace) -> (u64, u64) {
    let mut distances = Vec::new();
    let mut alone = 0;
    for cpu in 0..8 {
        let of = |trace: &Trace| -> Vec<takt_trace::Event> {
            trace.events.iter().filter(|event| event.cpu == cpu).copied().collect()
        };
        let (own, other) = (of(brought), of(truth));
        // Timers expire at different readings, so an expiry is found in both.
        let expiry = |kind: &Kind| matches!(kind, Kind::TimerExpireEntry { .. });
        let begin = own
            .iter()
            .enumerate()
            .filter(|(_, event)| expiry(&event.kind))
            .find_map(|(at, event)| Some((at, other.iter().position(|other| other.kind == event.kind)?)));
        let Some((at, there)) = begin else { continue };
        // Stamps of equal age may change places.
        let mut next = there;
        for own in &own[at..] {
            let mut near = other.get(next..).unwrap_or_default().iter().take(8);
            match near.position(|other| other.kind == own.kind) {
                Some(ahead) => {
                    distances.push(own.time_ns.abs_diff(other[next + ahead].time_ns));
                    next += ahead + 1;
                }
                None => alone += 1,
            }
        }
    }
    assert!(alone * 100 < distances.len(), "{alone} of {} have no partner", distances.len());
    distances.sort_unstable();
    assert!(distances.len() > 100, "{} events of both", distances.len());
    (distances[distances.len() / 2], distances[distances.len() - 1])
}

/// Recordings by two clocks at once, the second of them CLOCK_MONOTONIC: the truth that the file of
/// the first does not have. All files name their clock `local`, as trace-cmd 3.1.6 does for
/// instances.
#[test]
fn times_of_any_clock_are_those_of_monotonic_within_the_stated_error() {
    let all = zstd::decode_all(std::fs::read(data().join("clocks.zst")).unwrap().as_slice()).unwrap();
    let mut files = Vec::new();
    let mut rest = all.as_slice();
    while let Some((length, behind)) = rest.split_first_chunk::<8>() {
        let (file, behind) = behind.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
        files.push(read_bytes(file).unwrap());
        rest = behind;
    }
    assert_eq!(files.len(), 8);
    // The stamp is taken before a buffer is written to, and the second buffer comes after the
    // first.
    const BETWEEN_BUFFERS_NS: u64 = 500;
    for (clock, pair) in ["local", "x86-tsc", "uptime", "counter"].iter().zip(files.chunks(2)) {
        let (brought, truth) = (&pair[0], &pair[1]);
        let map = brought.clock_map.as_ref().unwrap();
        let [least, median, _] = truth.clock_map.as_ref().unwrap().offset_ns.unwrap();
        assert!((0..2000).contains(&least) && (0..2000).contains(&median), "the truth is of CLOCK_MONOTONIC");
        let (median_ns, most_ns) = distances(brought, truth);
        assert!(median_ns <= map.error_ns + BETWEEN_BUFFERS_NS, "{clock}: {median_ns} ns, {map:?}");
        let exact = matches!(*clock, "local" | "x86-tsc");
        assert_eq!(exact, map.error_ns < 10_000, "{clock}: {map:?}");
        assert!(!exact || median_ns < 500, "{clock}: {median_ns} ns");
        assert_eq!(map.offset_ns.is_some(), *clock == "local");
        // Now and then this machine stops between the two buffers.
        assert!(most_ns < map.error_ns + 50_000, "{clock}: {most_ns} ns, {map:?}");
        // The releases are the same but at the ends, where one recording goes on for longer.
        let cyclic = truth.tids("cyclictest");
        let of = |trace: &Trace| observed_releases(trace, &cyclic).into_iter().max().unwrap();
        assert!(
            of(truth) > 30 && of(brought).abs_diff(of(truth)) <= 6,
            "{clock}: {} {}",
            of(brought),
            of(truth)
        );
    }
}

/// A file or folder as `perf record` left it: all of its threads' files, the one that is named
/// `data`, the same as a stream.
#[test]
fn streams_and_folders_of_perf_are_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, unpacked(name)).unwrap();
        path
    };
    for name in ["threads/data", "threads/data.0", "threads/data.1"] {
        put(name);
    }
    // As `perf script` counts.
    let whole_folder = read_instance(&folder.path().join("threads"), None).unwrap();
    whole(&whole_folder, 300);
    assert_eq!(whole_folder.clock, Clock::Monotonic, "{:?}", whole_folder.notes);
    let one = read_instance(&folder.path().join("threads/data"), None).unwrap();
    assert_eq!(one, whole_folder);
    let stream = read_instance(&put("stream.perf.data"), None).unwrap();
    whole(&stream, 284);
    assert_eq!(stream.clock_map.unwrap().pairs, 58);

    // The file alone, and a folder that is none of perf's.
    std::fs::rename(folder.path().join("threads/data"), folder.path().join("perf.data")).unwrap();
    let alone = read_instance(&folder.path().join("perf.data"), None).unwrap_err().to_string();
    assert!(alone.contains("data.0") && alone.contains("pass the whole folder"), "{alone}");
    let other = read_instance(&folder.path().join("threads"), None).unwrap_err().to_string();
    assert!(other.contains("not a folder of `perf record --threads`"), "{other}");
    // A thread's file that was cut off costs its end, and the note names it.
    std::fs::rename(folder.path().join("perf.data"), folder.path().join("threads/data")).unwrap();
    let cut = std::fs::read(folder.path().join("threads/data.1")).unwrap();
    std::fs::write(folder.path().join("threads/data.1"), &cut[..cut.len() / 2]).unwrap();
    let cut = read_instance(&folder.path().join("threads"), None).unwrap();
    assert!(cut.events.len() < 300, "{}", cut.events.len());
    assert!(
        cut.notes.iter().any(|note| note.starts_with("data.1: the file is intact only up to")),
        "{:?}",
        cut.notes
    );
}

/// `perf record -a` of switches, wake-ups and timers, without interrupts: as many releases as
/// `perf script` shows switches to the thread, each with every step that the file can show. The
/// first release's timer was programmed before the recording began.
#[test]
fn timers_without_their_interrupts_explain_every_release() {
    let trace = trace("timers-without-interrupts.perf.data");
    let tid = *trace.threads.iter().find(|(_, thread)| thread.name == "loop").unwrap().0;
    let (report, _) = analyse_observed(&trace, tid, &Thresholds::default());
    assert_eq!((report.releases, report.matched), (398, 397));
    assert_eq!(report.missing_steps, BTreeMap::from([(MissingStep::TimerProgrammed, 1)]));
    assert!(report.notes.iter().any(|note| note.contains("irq_vectors:local_timer_*")), "{:?}", report.notes);
    assert_eq!(report.activations["timer"], 397, "{:?}", report.activations);
}
