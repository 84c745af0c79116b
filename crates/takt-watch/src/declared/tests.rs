//! Against the library itself, in this very process, and against memories that it never makes.

#![allow(clippy::unwrap_used)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use takt_sdk::Loop;

use super::memory::Region;
use super::*;

fn own() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

/// Tests that take records of this process's loops.
pub(super) static ALONE: Mutex<()> = Mutex::new(());

fn find(name: &str) -> Option<Declared> {
    let mut scanner = Scanner::default();
    scanner.scan([own()]);
    scanner.loops().into_iter().find(|one| one.name == name)
}

#[test]
fn records_of_a_loop_are_those_that_it_made() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(find("found").is_none());
    let period = Duration::from_millis(1);
    let mut one = Loop::periodic("found", period).deadline(Duration::from_micros(700)).open().unwrap();
    one.wait().unwrap();
    let declared = find("found").unwrap();
    assert_eq!((declared.period_ns, declared.deadline_ns), (Some(1_000_000), Some(700_000)));
    assert_eq!(declared.tid, Some(takt_rt::thread::own_tid()));
    assert!(!one.is_attached());
    one.end().unwrap();
    let mut follower = declared.follow().unwrap();
    assert!(one.is_attached());
    let mut truth = Vec::new();
    for number in 0..20u32 {
        let release = one.wait().unwrap();
        one.input(number.into()).unwrap();
        one.stage("sense").unwrap();
        one.stage("act").unwrap();
        one.value(f64::from(number) / 2.0).unwrap();
        let before = takt_sdk::now_ns();
        one.end().unwrap();
        truth.push((release, before, takt_sdk::now_ns()));
    }
    let mut rows = Vec::new();
    let taken = follower.take(&mut |row| rows.push(row));
    assert_eq!(taken, Taken { rows: 60, ..Taken::default() });
    assert_eq!(declared.stages(), ["sense", "act"]);
    let jobs: Vec<Job> = rows
        .iter()
        .filter_map(|row| match row {
            Row::Job(job) => Some(*job),
            Row::Stage { .. } => None,
        })
        .collect();
    for ((job, (release, before, after)), number) in jobs.iter().zip(&truth).zip(0u32..) {
        assert_eq!(
            (job.job, job.release_ns, job.begin_ns),
            (release.job, release.release_ns, release.begin_ns)
        );
        assert!((*before..=*after).contains(&job.end_ns));
        assert_eq!(
            (job.input, job.value),
            (Some(number.into()).filter(|n| *n > 0), Some(f64::from(number) / 2.0))
        );
        assert_eq!(u64::from(job.skipped), release.skipped);
    }
    let Row::Stage { stage: 1, span_ns, .. } = rows[1] else { panic!("{:?}", rows[1]) };
    assert!(span_ns[0] >= jobs[0].begin_ns && span_ns[1] == jobs[0].end_ns);
    drop(follower);
    assert!(!one.is_attached(), "a session that ends leaves");
    drop(one);
    assert!(find("found").is_none() && declared.now().is_none());
}

#[test]
fn one_session_at_a_time_and_a_full_ring_counts() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut one = Loop::driven("flood").open().unwrap();
    let declared = find("flood").unwrap();
    let mut follower = declared.follow().unwrap();
    for _ in 0..5000 {
        one.release(0).unwrap();
        one.end().unwrap();
    }
    let mut count = 0;
    let taken = follower.take(&mut |_| count += 1);
    assert_eq!((taken.rows, taken.lost, count), (4096, 5000 - 4096, 4096));
    assert_eq!(follower.take(&mut |_| panic!("nothing is new")), Taken::default());
    // A session of a process that lives: the first one, whose parent this is.
    let slot = declared.region.slot(declared.slot).unwrap();
    let parent = std::os::unix::process::parent_id();
    slot.counters.attached.store(follower::session_of_another(parent, false), Ordering::Release);
    assert!(follower.take(&mut |_| ()).is_replaced);
    let error = declared.follow().unwrap_err().to_string();
    assert!(error.contains("\"flood\"") && error.contains(&format!("process {parent}")), "{error}");
    // Of one that began at another time: dead, and its number came again.
    slot.counters.attached.store(follower::session_of_another(parent, true), Ordering::Release);
    let second = declared.follow().unwrap();
    // Two sessions of one process are two.
    assert!(follower.take(&mut |_| ()).is_replaced);
    assert!(declared.follow().is_err());
    drop(second);
    assert!(declared.follow().is_ok());
}

#[test]
fn what_was_declared_in_vain_is_said() {
    let _one = Loop::periodic("vain", Duration::from_millis(1)).open().unwrap();
    assert!(Loop::periodic("vain", Duration::from_millis(1)).open().is_err());
    assert!(Loop::periodic("still", Duration::ZERO).open().is_err());
    let mut scanner = Scanner::default();
    scanner.scan([own()]);
    let words: Vec<String> = scanner.refusals().iter().map(Refusal::to_string).collect();
    assert!(words.iter().any(|one| one.contains("\"vain\" twice")), "{words:?}");
    assert!(words.iter().any(|one| one.contains("\"still\" with a period of zero")), "{words:?}");
    assert!(scanner.problems().is_empty());
}

/// A memory of the name, as a program could make it.
fn memory(bytes: usize, seals: i32) -> OwnedFd {
    // SAFETY: a C string; a new descriptor that nobody else owns.
    let file = unsafe {
        OwnedFd::from_raw_fd(libc::memfd_create(
            layout::MEMFD_NAME.as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        ))
    };
    // SAFETY: of that descriptor.
    assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) }, 0);
    if seals != 0 {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    }
    file
}

fn opened(file: &OwnedFd) -> Result<memory::Opened, Option<memory::Refused>> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    memory::open(&path).map_err(|why| why.map(|(_, why)| why))
}

const ALL: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

#[test]
fn what_could_be_cut_or_is_something_else_is_refused() {
    assert!(opened(&memory(layout::TOTAL_BYTES, ALL)).is_ok());
    let refused = |file: &OwnedFd| opened(file).unwrap_err();
    // Not sealed yet: the library is about to.
    assert_eq!(refused(&memory(layout::TOTAL_BYTES, 0)), None);
    assert_eq!(
        refused(&memory(layout::TOTAL_BYTES, libc::F_SEAL_GROW | libc::F_SEAL_SEAL)),
        Some(memory::Refused::NotSealed)
    );
    assert_eq!(refused(&memory(4096, ALL)), Some(memory::Refused::Size { found: 4096 }));
    let (reader, _writer) = std::io::pipe().unwrap();
    assert_eq!(refused(&reader.into()), None);
    let file = tempfile::tempfile().unwrap();
    assert_eq!(refused(&file.into()), None);
    let device = std::fs::File::open("/dev/zero").unwrap();
    assert_eq!(refused(&device.into()), None);
}

/// A region of our own making.
fn region() -> (OwnedFd, Region) {
    let file = memory(layout::TOTAL_BYTES, ALL);
    {
        let opened = opened(&file).unwrap();
        assert_eq!(Region::map(&opened, own()).unwrap_err(), memory::Refused::NotReady);
    }
    let mut head = vec![0u8; 32];
    head[..8].copy_from_slice(&layout::MAGIC.to_ne_bytes());
    for (at, value) in
        [(8, layout::VERSION), (16, layout::MAX_LOOPS as u32), (20, layout::RING_RECORDS as u32)]
    {
        head[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    use std::os::unix::fs::FileExt;
    let writer = std::fs::File::from(file.try_clone().unwrap());
    writer.write_all_at(&head, 0).unwrap();
    let region = Region::map(&opened(&file).unwrap(), own()).unwrap();
    (file, region)
}

#[test]
fn other_versions_are_named() {
    let (file, _region) = region();
    use std::os::unix::fs::FileExt;
    std::fs::File::from(file.try_clone().unwrap()).write_all_at(&9u32.to_ne_bytes(), 8).unwrap();
    let why = Region::map(&opened(&file).unwrap(), own()).unwrap_err();
    assert_eq!(why, memory::Refused::Version { found: 9 });
    assert!(why.to_string().contains("update"), "{why}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    /// Whatever a program writes over its memory, it is read, in bounded time, and nothing breaks.
    #[test]
    fn any_memory_is_read(
        patches in proptest::collection::vec((0usize..6 * 1024, proptest::prelude::any::<u64>()), 0..60),
        slot in proptest::collection::vec((0usize..512, proptest::prelude::any::<u8>()), 0..40),
        loops in proptest::prelude::any::<u32>(),
        ring in proptest::collection::vec((0usize..layout::RING_WORDS, proptest::prelude::any::<u64>()), 0..60),
    ) {
        use std::os::unix::fs::FileExt;
        let (file, region) = region();
        let writer = std::fs::File::from(file.try_clone().unwrap());
        // Words behind what says that it is a memory; bytes of the first loop; the number of loops.
        for (at, value) in patches {
            writer.write_all_at(&value.to_ne_bytes(), (32 + 8 * at) as u64).unwrap();
        }
        let first = std::mem::offset_of!(layout::Head, slots);
        let state = first + std::mem::offset_of!(layout::Slot, state);
        writer.write_all_at(&layout::STATE_OPEN.to_ne_bytes(), state as u64).unwrap();
        writer.write_all_at(&layout::KIND_DRIVEN.to_ne_bytes(), state as u64 + 4).unwrap();
        let name = first + std::mem::offset_of!(layout::Slot, name);
        writer.write_all_at(b"control\0", name as u64).unwrap();
        for (at, value) in slot {
            writer.write_all_at(&[value], (first + at) as u64).unwrap();
        }
        let count = std::mem::offset_of!(layout::Head, loops);
        writer.write_all_at(&loops.to_ne_bytes(), count as u64).unwrap();
        for (at, value) in ring {
            writer.write_all_at(&value.to_ne_bytes(), (layout::ring_offset(0) + 8 * at) as u64).unwrap();
        }
        let region = Arc::new(region);
        assert!(region.refusals().len() <= layout::MAX_REFUSALS);
        let loops = region.loops();
        assert!(loops.len() <= layout::MAX_LOOPS);
        for one in loops {
            assert!(one.stages().len() <= layout::MAX_STAGES);
            if let Ok(mut follower) = one.follow() {
                for _ in 0..2 {
                    let mut rows = 0;
                    let taken = follower.take(&mut |row| {
                        rows += 1;
                        if let Row::Job(job) = row {
                            assert!(job.begin_ns <= job.end_ns && job.release_ns <= job.end_ns);
                        }
                    });
                    assert!(rows + taken.impossible <= layout::RING_RECORDS as u64);
                }
            }
        }
    }
}
