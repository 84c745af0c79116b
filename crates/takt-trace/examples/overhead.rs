//! What tracing costs here: latency and CPU with tracing off, on, and with full rings, in turns.
//!
//! ```text
//! cargo run -p takt-trace --example overhead -- 5
//! ```

fn main() -> Result<(), takt_trace::TraceError> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let overhead = takt_trace::overhead::measure(rounds, 0)?;
    println!(
        "| tracing | lateness median (us) | p99 | worst | loop CPU per release (us) | reader CPU (%) | events/s | lost | matched |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for cost in &overhead.costs {
        let lateness = &cost.lateness_us;
        println!(
            "| {:?} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} | {:.0} | {} | {} |",
            cost.mode,
            lateness.median,
            lateness.p99,
            lateness.worst,
            cost.loop_cpu_us,
            cost.reader_cpu_percent,
            cost.events_per_s,
            cost.lost_events,
            cost.matched_share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        );
    }
    println!(
        "{:.0} ns per event; {:.2} % of the machine for all events that there were, {:.2} % for those of the loop",
        overhead.ns_per_event, overhead.cpu_percent, overhead.loop_cpu_percent
    );
    Ok(())
}
