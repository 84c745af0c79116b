//! The latest-value register against `triple_buffer`, `arc-swap` and a mutex, for a handle-sized
//! value (16 bytes). Uncontended: one thread does both sides, as is the usual case of cores that
//! meet rarely. Contended: the other side works at full speed on another thread.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use takt_rt::exchange::latest;

/// As large as a fat pointer, or an index with a time stamp.
type Value = (u64, u64);

fn lock(shared: &Mutex<Value>) -> MutexGuard<'_, Value> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `write` with another number each time.
fn each_write<R>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, mut write: impl FnMut(u64) -> R) {
    let mut n = 0;
    group.bench_function(name, |b| {
        b.iter(|| {
            n += 1;
            write(n)
        })
    });
}

fn uncontended(c: &mut Criterion) {
    let mut group = c.benchmark_group("uncontended/write");
    {
        let (mut writer, _readers) = latest(1, Value::default);
        each_write(&mut group, "takt", |n| writer.publish(n, black_box((n, n))));
    }
    {
        let (mut writer, _reader) = triple_buffer::triple_buffer(&Value::default());
        each_write(&mut group, "triple_buffer", |n| writer.write(black_box((n, n))));
    }
    {
        let shared = ArcSwap::from_pointee(Value::default());
        each_write(&mut group, "arc_swap", |n| shared.store(Arc::new(black_box((n, n)))));
    }
    {
        let shared = Mutex::new(Value::default());
        each_write(&mut group, "mutex", |n| *lock(&shared) = black_box((n, n)));
    }
    group.finish();

    let mut group = c.benchmark_group("uncontended/read_same");
    {
        let (mut writer, mut readers) = latest(1, Value::default);
        writer.publish(1, (1, 1));
        group.bench_function("takt", |b| b.iter(|| *readers[0].read().value));
    }
    {
        let (mut writer, mut reader) = triple_buffer::triple_buffer(&Value::default());
        writer.write((1, 1));
        group.bench_function("triple_buffer", |b| b.iter(|| *reader.read()));
    }
    {
        let shared = ArcSwap::from_pointee((1, 1));
        group.bench_function("arc_swap", |b| b.iter(|| **shared.load()));
    }
    {
        let shared = Mutex::new((1u64, 1u64));
        group.bench_function("mutex", |b| b.iter(|| *lock(&shared)));
    }
    group.finish();

    // A fresh value for every read: the cost of a write is in it.
    let mut group = c.benchmark_group("uncontended/write_then_read");
    {
        let (mut writer, mut readers) = latest(1, Value::default);
        each_write(&mut group, "takt", |n| {
            writer.publish(n, black_box((n, n)));
            *readers[0].read().value
        });
    }
    {
        let (mut writer, mut reader) = triple_buffer::triple_buffer(&Value::default());
        each_write(&mut group, "triple_buffer", |n| {
            writer.write(black_box((n, n)));
            *reader.read()
        });
    }
    {
        let shared = ArcSwap::from_pointee(Value::default());
        each_write(&mut group, "arc_swap", |n| {
            shared.store(Arc::new(black_box((n, n))));
            **shared.load()
        });
    }
    {
        let shared = Mutex::new(Value::default());
        each_write(&mut group, "mutex", |n| {
            *lock(&shared) = black_box((n, n));
            *lock(&shared)
        });
    }
    group.finish();
}

/// Runs `other` over and over on another thread while `measure` runs.
fn against<R>(mut other: impl FnMut() + Send, measure: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                other();
            }
        });
        let result = measure();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn contended(c: &mut Criterion) {
    let mut group = c.benchmark_group("contended/write");
    let name = |name| BenchmarkId::new(name, "one reader at full speed");
    {
        let (mut writer, mut readers) = latest(1, Value::default);
        let mut reader = readers.swap_remove(0);
        let other = || {
            black_box(*reader.read().value);
        };
        against(other, || {
            group.bench_function(name("takt"), |b| b.iter(|| writer.publish(1, black_box((1, 1)))))
        });
    }
    {
        let (mut writer, mut reader) = triple_buffer::triple_buffer(&Value::default());
        let other = || {
            black_box(*reader.read());
        };
        against(other, || {
            group.bench_function(name("triple_buffer"), |b| b.iter(|| writer.write(black_box((1, 1)))))
        });
    }
    {
        let shared = ArcSwap::from_pointee(Value::default());
        let other = || {
            black_box(**shared.load());
        };
        against(other, || {
            group.bench_function(name("arc_swap"), |b| b.iter(|| shared.store(Arc::new(black_box((1, 1))))))
        });
    }
    {
        let shared = Mutex::new(Value::default());
        let other = || {
            black_box(*lock(&shared));
        };
        against(other, || {
            group.bench_function(name("mutex"), |b| b.iter(|| *lock(&shared) = black_box((1, 1))))
        });
    }
    group.finish();

    let mut group = c.benchmark_group("contended/read");
    let name = |name| BenchmarkId::new(name, "writer at full speed");
    {
        let (mut writer, mut readers) = latest(1, Value::default);
        let mut reader = readers.swap_remove(0);
        let other = || {
            writer.publish(1, (1, 1));
        };
        against(other, || group.bench_function(name("takt"), |b| b.iter(|| *reader.read().value)));
    }
    {
        let (mut writer, mut reader) = triple_buffer::triple_buffer(&Value::default());
        let other = || writer.write((1, 1));
        against(other, || group.bench_function(name("triple_buffer"), |b| b.iter(|| *reader.read())));
    }
    {
        let shared = ArcSwap::from_pointee(Value::default());
        let other = || shared.store(Arc::new((1, 1)));
        against(other, || group.bench_function(name("arc_swap"), |b| b.iter(|| **shared.load())));
    }
    {
        let shared = Mutex::new(Value::default());
        let other = || *lock(&shared) = (1, 1);
        against(other, || group.bench_function(name("mutex"), |b| b.iter(|| *lock(&shared))));
    }
    group.finish();
}

criterion_group!(benches, uncontended, contended);
criterion_main!(benches);
