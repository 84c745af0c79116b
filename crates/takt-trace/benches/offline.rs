//! How fast recorded files are read: the goal is three million events a second on one core. Times
//! are CPU time of the reading thread, so that other load on the machine does not count.

#![allow(clippy::unwrap_used)] // A bench may panic as tests may.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use takt_rt::clock::thread_cpu_ns;
use takt_trace::offline::read_bytes;
use takt_trace::perfetto::export;

#[path = "../src/offline/synthetic.rs"]
mod synthetic;

fn cpu_time<T>(times: u64, mut work: impl FnMut() -> T) -> Duration {
    let begin_ns = thread_cpu_ns();
    for _ in 0..times {
        black_box(work());
    }
    Duration::from_nanos(thread_cpu_ns() - begin_ns)
}

fn read(criterion: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cyclictest.perf.data");
    let recorded = std::fs::read(path).expect("the recorded file is there");
    let file = synthetic::repeated(&recorded, 2000);
    let trace = read_bytes(&file).expect("a repeated file is whole");
    let mut group = criterion.benchmark_group("offline");
    group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    group.throughput(Throughput::Elements(trace.events.len() as u64));
    group.bench_function("perf.data", |bencher| {
        bencher.iter_custom(|times| cpu_time(times, || read_bytes(black_box(&file))))
    });
    group.bench_function("perfetto", |bencher| {
        bencher.iter_custom(|times| cpu_time(times, || export(std::io::sink(), black_box(&trace), &[])))
    });
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
