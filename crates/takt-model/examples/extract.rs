//! What the extractor costs: nanoseconds per event on a stream like that of the paper's robot,
//! scaled up.
//!
//! `cargo run -p takt-model --example extract [-- CHAINS [SECONDS]]`

use takt_model::{ChainSpec, Extractor, Options, Reorder};
use takt_ros::event::{Event, Kind};

/// A driver, a callback that passes on, and one that ends it: per message seventeen events.
fn stream(chains: u64, messages: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let mut emit = |at_ns: u64, cpu_ns: u64, pid: u32, tid: u32, kind: Kind| {
        events.push(Event { at_ns, cpu_ns: Some(cpu_ns), pid, tid, kind });
    };
    for chain in 0..chains {
        let pid = 100 + chain as u32 * 3;
        let topics = [format!("/a{chain}"), format!("/b{chain}")];
        for (i, name) in ["driver", "filter", "sink"].iter().enumerate() {
            let kind =
                Kind::NodeInit { node: 1, name: format!("{name}{chain}").into(), namespace: "/".into() };
            emit(0, 0, pid + i as u32, pid + i as u32, kind);
        }
        for (i, topic) in topics.iter().enumerate() {
            let pid = pid + i as u32;
            let topic = topic.as_str().into();
            emit(
                0,
                0,
                pid,
                pid,
                Kind::PublisherInit { publisher: 2, node: 1, rmw_publisher: 3, topic, depth: 10 },
            );
        }
        for (i, topic) in topics.iter().enumerate() {
            let (pid, topic) = (pid + 1 + i as u32, topic.as_str().into());
            emit(
                0,
                0,
                pid,
                pid,
                Kind::SubscriptionInit { subscription: 4, node: 1, rmw_subscription: 5, topic, depth: 10 },
            );
            emit(0, 0, pid, pid, Kind::SubscriptionObject { subscription: 4, object: 6 });
            emit(0, 0, pid, pid, Kind::SubscriptionCallback { object: 6, callback: 7 });
        }
    }
    for message in 0..messages {
        for chain in 0..chains {
            let pid = 100 + chain as u32 * 3;
            let at = message * 10_000_000 + chain * 10_000;
            let cpu = message * 100_000;
            let stamp = |hop: u64| Some(((message * chains + chain) * 2 + hop) as i64);
            emit(at, cpu, pid, pid, Kind::RclcppPublish { message: 1 });
            emit(at, cpu, pid, pid, Kind::RclPublish { publisher: 2, message: 1 });
            emit(at, cpu, pid, pid, Kind::RmwPublish { rmw_publisher: 3, message: 1, source_ns: stamp(0) });
            for hop in 0..2u64 {
                let (pid, at) = (pid + 1 + hop as u32, at + (hop + 1) * 1_000_000);
                emit(at, cpu, pid, pid, Kind::ExecutorNextReady);
                emit(at, cpu, pid, pid, Kind::ExecutorExecute { handle: 4 });
                let source_ns = stamp(hop).unwrap_or_default();
                emit(
                    at,
                    cpu,
                    pid,
                    pid,
                    Kind::RmwTake { rmw_subscription: 5, message: 2, source_ns, taken: true },
                );
                emit(at, cpu, pid, pid, Kind::CallbackStart { callback: 7, intra_process: false });
                let (at, cpu) = (at + 50_000, cpu + 50_000 + message % 977);
                if hop == 0 {
                    emit(at, cpu, pid, pid, Kind::RclPublish { publisher: 2, message: 1 });
                    emit(
                        at,
                        cpu,
                        pid,
                        pid,
                        Kind::RmwPublish { rmw_publisher: 3, message: 1, source_ns: stamp(1) },
                    );
                }
                emit(at, cpu, pid, pid, Kind::CallbackEnd { callback: 7 });
                emit(at, cpu, pid, pid, Kind::ExecutorWait { timeout_ns: -1 });
            }
        }
    }
    events.sort_by_key(|event| event.at_ns);
    events
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let (chains, seconds) = (arguments.next().unwrap_or(50), arguments.next().unwrap_or(20));
    let events = stream(chains, seconds * 100);
    println!(
        "{} events of {chains} chains, {} events/s of simulated time",
        events.len(),
        events.len() as u64 / seconds
    );
    for (name, exceedance, watch) in
        [("curves", vec![], false), ("and watched chains", vec![], true), ("and pWCET(n)", vec![1e-3], true)]
    {
        let mut extractor = Extractor::new(Options { exceedance, ..Options::default() });
        for chain in 0..if watch { chains } else { 0 } {
            extractor.watch(ChainSpec {
                name: format!("{chain}"),
                path: vec![
                    format!("/driver{chain} source /a{chain}"),
                    format!("/filter{chain} subscription /a{chain}"),
                    format!("/sink{chain} subscription /b{chain}"),
                ],
                goal_ns: Some(2_000_000),
            });
        }
        let began = cpu_ns();
        for event in &events {
            extractor.event(event);
        }
        let per_event = (cpu_ns() - began) as f64 / events.len() as f64;
        let began = cpu_ns();
        // That clock moves with the scheduler's ticks: a single snapshot is too short for it.
        let mut model = extractor.snapshot(seconds * 1_000_000_000);
        for _ in 1..100 {
            model = std::hint::black_box(extractor.snapshot(seconds * 1_000_000_000));
        }
        let snapshot_us = (cpu_ns() - began) as f64 / 1e5;
        let completions: u64 = (0..chains as usize)
            .filter_map(|i| extractor.watched(takt_model::WatchId(i)))
            .map(|c| c.completions)
            .sum();
        println!(
            "{name}: {per_event:.0} ns per event; a snapshot of {} callbacks {snapshot_us:.0} us; {completions} completions",
            model.callbacks.len()
        );
    }
    let mut reorder = Reorder::default();
    let mut count = 0u64;
    let owned = events.clone();
    let began = cpu_ns();
    for (i, event) in owned.into_iter().enumerate() {
        let at_ns = event.at_ns;
        reorder.push(event);
        if i % 500 == 0 {
            reorder.release(at_ns, |_| count += 1);
        }
    }
    reorder.finish(|_| count += 1);
    println!("reordering: {:.0} ns per event ({count})", (cpu_ns() - began) as f64 / events.len() as f64);
}

/// CPU time of this thread: the machine may have other things to do.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
