//! What the statistics cost: `cargo bench -p takt-stats`. Single runs of large jobs, timed by the
//! wall clock; the goal is a report on 10^7 values in under 5 s.

use std::hint::black_box;
use std::time::Instant;

use takt_stats::{MaxTrend, MeanTrend, Misses, Recorder, Statistic, Summary, bootstrap, evt, low, quantile};

const VALUES: usize = 10_000_000;

/// Latencies about 52 us with an exponential tail of 2 us, autocorrelated over a few values.
fn latencies(count: usize, mut x: u64) -> Vec<u64> {
    let mut previous = 0.0;
    (0..count)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let uniform = ((x >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            previous = 0.5 * previous - uniform.ln();
            52_000 + (2000.0 * previous) as u64
        })
        .collect()
}

fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = black_box(work());
    println!("{name:<60} {:>10.3} ms", start.elapsed().as_secs_f64() * 1e3);
    result
}

fn main() {
    let series = latencies(VALUES, 0x9E37_79B9_7F4A_7C15);
    let other = latencies(VALUES, 0xD1B5_4A32_D192_ED03);
    let values: Vec<f64> = series.iter().map(|&v| v as f64).collect();
    let others: Vec<f64> = other.iter().map(|&v| v as f64).collect();

    let start = Instant::now();
    let mut sorted = values.clone();
    timed("Summary::of, 10^7 values (sort and moments)", || Summary::of(&mut sorted));
    timed("low::table", || low::table(&sorted));
    timed("five quantiles with intervals", || {
        [0.5, 0.9, 0.99, 0.999, 0.9999].map(|q| quantile::estimate(&sorted, q, 0.95))
    });
    timed("Misses::of", || Misses::of(&series, 70_000));
    timed("evt::analyse, 10^7 values", || evt::analyse(&series, 1000.0, 100_000).map(|t| t.per_hour)).ok();
    for statistic in [Statistic::Mean, Statistic::Median, Statistic::Quantile(0.999)] {
        timed(&format!("bootstrap::difference, {statistic:?}, 10^7 values a side"), || {
            bootstrap::difference(&[&values], &[&others], statistic, 1).map(|d| d.difference)
        })
        .ok();
    }
    println!("{:<60} {:>10.3} ms", "together", start.elapsed().as_secs_f64() * 1e3);

    timed("bootstrap::difference, P99, 10^4 values a side", || {
        bootstrap::difference(&[&values[..10_000]], &[&others[..10_000]], Statistic::Quantile(0.99), 1)
            .map(|d| d.low)
    })
    .ok();
    timed("evt::analyse, 10^4 values", || {
        evt::analyse(&series[..10_000], 1000.0, 100_000).map(|t| t.per_hour)
    })
    .ok();

    let mut recorder = match Recorder::new(Some(60_000)) {
        Ok(recorder) => recorder,
        Err(error) => return eprintln!("{error}"),
    };
    let per_value = |start: Instant| start.elapsed().as_nanos() as f64 / VALUES as f64;
    let start = Instant::now();
    series.iter().for_each(|&v| recorder.record(v));
    println!("{:<60} {:>10.2} ns", "Recorder::record", per_value(start));
    let (mut max, mut mean) = (MaxTrend::default(), MeanTrend::default());
    let start = Instant::now();
    for (i, &v) in (0u64..).zip(&series) {
        max.push(i * 1_000_000, v);
        mean.push(i * 1_000_000, v);
    }
    println!("{:<60} {:>10.2} ns", "MaxTrend::push and MeanTrend::push", per_value(start));
    black_box((max.points().len(), mean.points().len()));
    let text = timed("Recorder: checkpoint", || serde_json::to_string(&recorder)).unwrap_or_default();
    println!("{:<60} {:>10} bytes", "  its size", text.len());
    timed("Recorder: read back", || serde_json::from_str::<Recorder>(&text)).ok();
    timed("Recorder::summary", || recorder.summary());
    timed("Recorder::low_table", || recorder.low_table());
    println!("{:<60} {:>10} bytes", "Recorder: memory", recorder.memory_bytes());
}
