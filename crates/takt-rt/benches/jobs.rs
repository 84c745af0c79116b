//! What a job record costs the real-time thread (goal: at most 100 ns), what a full ring costs, and
//! what the wake-up signal and the inheriting mutex cost when nobody waits.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use takt_rt::clock::monotonic_ns;
use takt_rt::jobs::{JobCollector, JobRecord, MemorySink};
use takt_rt::pi_mutex::PiMutex;
use takt_rt::ring::ring;
use takt_rt::signal::Signal;

fn records(c: &mut Criterion) {
    let mut group = c.benchmark_group("record");
    {
        // Emptied between batches, as the collector does between cycles; the emptying is not timed.
        let (mut producer, mut consumer) = ring(1 << 16);
        let mut batch = vec![JobRecord::default(); 1 << 16];
        group.bench_function("push", |b| {
            b.iter_custom(|iterations| {
                let mut elapsed = Duration::ZERO;
                let mut left = iterations;
                while left > 0 {
                    let count = left.min(1 << 15);
                    let start = std::time::Instant::now();
                    for index in 0..count {
                        producer.push(black_box(JobRecord { index, ..JobRecord::default() }));
                    }
                    elapsed += start.elapsed();
                    while consumer.take(&mut batch) > 0 {}
                    left -= count;
                }
                assert_eq!(producer.lost(), 0);
                elapsed
            })
        });
    }
    {
        let (mut producer, _consumer) = ring(16);
        group.bench_function("push_full", |b| b.iter(|| producer.push(black_box(JobRecord::default()))));
    }
    if let Ok(collector) = JobCollector::start(MemorySink::default(), Duration::from_millis(10)) {
        let mut recorder = collector.recorder("bench", 1 << 12);
        let mut index = 0;
        // With the clock readings of a real job, and the collector at work (what does not fit is
        // lost).
        group.bench_function("push_with_clock_and_collector", |b| {
            b.iter(|| {
                index += 1;
                recorder.push(JobRecord { index, end_ns: monotonic_ns(), ..JobRecord::default() })
            })
        });
    }
    group.finish();

    let signal = Signal::new();
    c.bench_function("signal/notify_nobody", |b| b.iter(|| signal.notify()));
    if let Ok(mutex) = PiMutex::new(0u64) {
        c.bench_function("pi_mutex/lock_unlock", |b| {
            b.iter(|| mutex.lock().map(|mut value| *value = value.wrapping_add(1)).is_ok())
        });
    }
    c.bench_function("clock/monotonic_ns", |b| b.iter(monotonic_ns));
}

criterion_group!(benches, records);
criterion_main!(benches);
