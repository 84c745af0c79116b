//! What a record costs: without a session, with one, and into a full ring; beside one line of
//! `fprintf`. `tools/record-costs` adds LTTng-UST.

#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the bench")]

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use takt_sdk::layout::{Counters, RECORD_WORDS, RING_WORDS};
use takt_sdk::ring::Ring;
use takt_sdk::{Loop, now_ns};

fn records(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("record");
    group.bench_function("clock", |bench| bench.iter(now_ns));
    let mut driven = Loop::driven("bench").open().unwrap();
    group.bench_function("job without a session", |bench| {
        bench.iter(|| {
            _ = driven.release(black_box(1));
            driven.end()
        });
    });
    driven.release(1).unwrap();
    group.bench_function("stage without a session", |bench| bench.iter(|| driven.stage(black_box("sense"))));

    // SAFETY: zeros are valid atomics.
    let counters: Counters = unsafe { std::mem::zeroed() };
    let words: Vec<_> = (0..RING_WORDS).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let shared = Arc::new((counters, words));
    let end = Arc::new(AtomicBool::new(false));
    let session = {
        let (shared, end) = (Arc::clone(&shared), Arc::clone(&end));
        let ring = move || {
            let ring = Ring::new(&shared.0, &shared.1).unwrap();
            ring.attach(7, 0, now_ns()).unwrap();
            while !end.load(Ordering::Acquire) {
                ring.take(now_ns(), |record| _ = black_box(record));
                std::thread::sleep(Duration::from_micros(20));
            }
        };
        std::thread::spawn(ring)
    };
    let ring = Ring::new(&shared.0, &shared.1).unwrap();
    while !ring.is_attached() {}
    group.bench_function("push, a session reads", |bench| {
        bench.iter(|| ring.push(black_box([1; RECORD_WORDS]), 1));
    });
    end.store(true, Ordering::Release);
    session.join().unwrap();
    let at = now_ns();
    group.bench_function("push, the ring is full", |bench| {
        bench.iter(|| ring.push(black_box([1; RECORD_WORDS]), at));
    });

    let mut file = std::io::BufWriter::new(std::fs::File::create("/dev/null").unwrap());
    group.bench_function("clock and a formatted line", |bench| {
        bench.iter(|| writeln!(file, "{} {} {}", black_box(7), now_ns(), black_box(0.5)));
    });
    group.finish();
}

criterion_group!(benches, records);
criterion_main!(benches);
