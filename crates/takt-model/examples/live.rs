//! The paper's robot as processes, observed for some seconds: its model as text, its chains'
//! latencies, what it cost.
//!
//! `cargo run -p takt-model --example live [-- SECONDS]`

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use takt_model::{ChainSpec, Extractor, Options, Reorder};
use takt_ros::event::Source as _;
use takt_ros::preload::{ProbeOptions, ProbeSession};
use takt_ros_workload::{Program, Running, System, serve};

/// The chains of Table I, as far as the workload has them.
const CHAINS: [(&str, &[&str], u64); 7] = [
    ("heartbeat", &["/turtlebot_driver timer 100ms"], 100),
    ("pilot", &["/controller_server timer 125ms", "/turtlebot_driver subscription /cmd_vel"], 125),
    ("odometry-nav", &["/turtlebot_driver timer 50ms", "/controller_server subscription /odom"], 75),
    ("laser-scanner", &["/laser_driver source /scan", "/amcl subscription /scan"], 150),
    ("localization", &["/amcl subscription /amcl/filtered"], 450),
    ("odometry-loc", &["/turtlebot_driver timer 50ms", "/amcl subscription /tf"], 100),
    ("tracker", &["/camera source /rgb", "/tracker subscription /rgb"], 990),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let system = System::turtlebot().fitted(std::thread::available_parallelism()?.get()).0;
    if let [flag, directory, node] = &arguments[..]
        && flag == "--node"
    {
        return Ok(serve(&system, node, Path::new(directory))?);
    }
    let seconds = arguments.first().and_then(|a| a.parse().ok()).unwrap_or(5);
    let session = ProbeSession::create(&ProbeOptions { stand_in: true, ..ProbeOptions::default() })?;
    let environment = session.environment(std::env::var_os("LD_PRELOAD"));
    let program = Program {
        path: std::env::current_exe()?,
        arguments: vec![OsString::from("--node"), session.directory().into()],
        environment: environment.into_iter().map(|(name, value)| (name.into(), value)).collect(),
    };
    let mut probe = session.probe()?;
    let mut extractor = Extractor::new(Options::default());
    let chains: Vec<_> = CHAINS
        .iter()
        .map(|(name, path, goal_ms)| {
            let path = path.iter().map(|step| (*step).to_owned()).collect();
            extractor.watch(ChainSpec { name: (*name).to_owned(), path, goal_ns: Some(goal_ms * 1_000_000) })
        })
        .collect();
    let mut reorder = Reorder::default();
    let (mut extracting_ns, mut events, mut now_ns) = (0, 0u64, 0);

    let mut running = Running::start(&system, &program)?;
    let window = running.begin(Duration::from_secs(1), Duration::from_secs(seconds), system.phases.len())?;
    let mut ended = false;
    while !ended {
        ended = running.ended();
        std::thread::sleep(Duration::from_millis(20));
        probe.poll(&mut |event| {
            now_ns = now_ns.max(event.at_ns);
            reorder.push(event);
        })?;
        let began = cpu_ns();
        reorder.release(now_ns.min(window.end_ns), |event| {
            events += 1;
            extractor.event(event);
        });
        extracting_ns += cpu_ns() - began;
    }
    // What came after the end of the window is shutting down.
    let model = extractor.snapshot(window.end_ns);
    print!("{}", model.to_text());
    for chain in chains {
        let Some(stats) = extractor.watched(chain) else { continue };
        println!(
            "{}: {} begun, {} completed, {} repeated, {} dropped, {} violations, worst {:.3} ms",
            stats.spec().name,
            stats.began,
            stats.completions,
            stats.repeated,
            stats.dropped,
            stats.violations,
            stats.worst_ns as f64 / 1e6
        );
    }
    let share = extracting_ns as f64 / 1e9 / (seconds + 1) as f64;
    println!(
        "{events} events; reordering and extracting took {:.3} ms, {:.3} % of one CPU",
        extracting_ns as f64 / 1e6,
        share * 100.0
    );
    println!("{:?}, {} late", extractor.counters(), reorder.late());
    if let Some(path) = arguments.get(1) {
        std::fs::write(path, serde_json::to_string_pretty(&model)?)?;
    }
    Ok(())
}

/// CPU time of this thread: the machine may have other things to do.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
