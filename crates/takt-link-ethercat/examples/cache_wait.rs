//! What the controller waits for readers, by kind of cache: a controller of FIFO 80 publishes at 1
//! kHz, a SCHED_OTHER reader copies the cache without pause, and a thread of FIFO 50 keeps their
//! CPU busy for 3 ms of every 10: the case in which a mutex without priority inheritance inverts
//! priorities.
//!
//! `cargo run --example cache_wait [SECONDS]`; needs the right to use real-time policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_link_ethercat::control::{CacheKind, ControlConfig, Snapshot, cache};
use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::placement::{CpuSet, online};
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;
use takt_rt::thread::{spawn, spawn_exempt};

const IMAGE: usize = 644;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?;
    let cpu = online()?.iter().last().ok_or("no CPU")?;
    println!(
        "{:<28} {:>8} {:>10} {:>10} {:>10} {:>10}",
        "cache", "cycles", "contended", "mean µs", "max µs", "reads"
    );
    let kinds = [
        ("plain mutex", CacheKind::PlainMutex, None),
        ("PI mutex", CacheKind::PiMutex, None),
        ("PI mutex, delayed locking", CacheKind::PiMutex, Some(100)),
        ("exchange", CacheKind::Exchange, None),
    ];
    for (name, kind, delayed) in kinds {
        let config = ControlConfig {
            cache: kind,
            delayed_locking_us: delayed,
            max_lock_wait_us: 1_000_000,
            readers: 1,
            ..ControlConfig::default()
        };
        let (mut publisher, mut readers) = cache(&config, IMAGE)?;
        let mut reader = readers.pop().ok_or("no reader")?;
        let stop = Arc::new(AtomicBool::new(false));
        let on = |policy| ThreadSettings {
            policy,
            cpus: CpuSet::single(cpu).ok(),
            strict: true,
            ..Default::default()
        };
        let (reading, hogging) = (Arc::clone(&stop), Arc::clone(&stop));
        let place = on(Policy::Other { nice: 0 });
        let reader = spawn_exempt("reader", "the load of this example", move || {
            place.apply();
            let mut reads = 0_u64;
            let mut copy = vec![0_u8; IMAGE];
            while !reading.load(Ordering::Relaxed) {
                // Copies for about 30 µs, as a reader that evaluates what it sees.
                let seen = reader.read(|snapshot| {
                    let until = monotonic_ns() + 30_000;
                    while monotonic_ns() < until {
                        copy.copy_from_slice(std::hint::black_box(&snapshot.image));
                    }
                });
                reads += u64::from(seen.is_ok());
            }
            reads
        })?;
        let hog = spawn("hog", &on(Policy::Fifo { priority: 50 }), move || {
            while !hogging.load(Ordering::Relaxed) {
                let begun = monotonic_ns();
                while monotonic_ns() < begun + 3_000_000 {
                    std::hint::spin_loop();
                }
                sleep_until(begun + 10_000_000);
            }
        })?;
        let controller = spawn("controller", &on(Policy::Fifo { priority: 80 }), move || {
            let mut periodic = Periodic::start_now(Duration::from_millis(1), SleepStrategy::Kernel)?;
            let snapshot = Snapshot {
                cycle: 1,
                at_ns: 1,
                working_counter: 1,
                expected_counter: 1,
                all_op: true,
                image: vec![1; IMAGE],
            };
            let (mut count, mut contended, mut sum, mut max) = (0_u64, 0_u64, 0_u64, 0_u64);
            let end_ns = monotonic_ns() + (seconds * 1e9) as u64;
            while monotonic_ns() < end_ns {
                let release = periodic.next();
                let begun = monotonic_ns();
                let published = publisher.publish(&snapshot);
                let took = monotonic_ns() - begun;
                publisher.announce(release.planned_ns + 1_000_000);
                count += 1;
                contended += u64::from(published.contended);
                sum += took;
                max = max.max(took);
            }
            Ok::<_, takt_rt::Error>((count, contended, sum, max))
        })?;
        let (count, contended, sum, max) = controller.join()??;
        stop.store(true, Ordering::Relaxed);
        hog.join()?;
        let reads = reader.join()?;
        let mean = sum as f64 / count.max(1) as f64 / 1e3;
        println!("{name:<28} {count:>8} {contended:>10} {mean:>10.2} {:>10.1} {reads:>10}", max as f64 / 1e3);
    }
    Ok(())
}
