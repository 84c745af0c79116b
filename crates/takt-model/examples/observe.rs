//! A command under the preload library for some seconds: its model as text, and chains' latencies.
//! With `--record FILE` its events go there, one JSON object a line.
//!
//! `cargo run -p takt-model --example observe -- SECONDS [--record FILE] [--chain 'NAME=CALLBACK;CALLBACK…'] … -- COMMAND…`

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use takt_model::order::HOLD_NS;
use takt_model::{ChainSpec, Extractor, Options, Reorder};
use takt_ros::event::Source as _;
use takt_ros::preload::{ProbeOptions, ProbeSession};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().ok_or("how many seconds?")?.parse()?;
    let mut extractor = Extractor::new(Options::default());
    let (mut chains, mut record) = (Vec::new(), None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("an option without its value");
        match argument.as_str() {
            "--record" => record = Some(std::io::BufWriter::new(std::fs::File::create(value()?)?)),
            "--chain" => {
                let chain = value()?;
                let (name, path) = chain.split_once('=').ok_or("a chain is NAME=CALLBACK;CALLBACK…")?;
                let path = path.split(';').map(str::to_owned).collect();
                chains.push(extractor.watch(ChainSpec { name: name.to_owned(), path, goal_ns: None }));
            }
            "--" => break,
            other => return Err(format!("{other} is no option").into()),
        }
    }
    let program = arguments.next().ok_or("which command?")?;
    let session = ProbeSession::create(&ProbeOptions::default())?;
    let mut probe = session.probe()?;
    let mut child = Command::new(program)
        .args(arguments)
        .envs(session.environment(std::env::var_os("LD_PRELOAD")))
        .spawn()?;
    let (began, mut now_ns, mut reorder) = (Instant::now(), 0, Reorder::new(HOLD_NS));
    let mut kept = Vec::new();
    while began.elapsed().as_secs_f64() < seconds && child.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(10));
        probe.poll(&mut |event| {
            now_ns = now_ns.max(event.at_ns);
            reorder.push(event);
        })?;
        reorder.release(now_ns, |event| {
            extractor.event(event);
            if record.is_some() {
                kept.push(event.clone());
            }
        });
    }
    let model = extractor.snapshot(now_ns);
    print!("{}", model.to_text());
    for chain in chains {
        let Some(stats) = extractor.watched(chain) else { continue };
        let median_ns = stats.quantile_ns(0.5).unwrap_or(0);
        println!(
            "{}: {} begun, {} completed, {} repeated, {} dropped, median {:.3} ms, worst {:.3} ms",
            stats.spec().name,
            stats.began,
            stats.completions,
            stats.repeated,
            stats.dropped,
            median_ns as f64 / 1e6,
            stats.worst_ns as f64 / 1e6
        );
    }
    println!("{:?}, {} late", extractor.counters(), reorder.late());
    if let Some(record) = &mut record {
        for event in &kept {
            serde_json::to_writer(&mut *record, event)?;
            record.write_all(b"\n")?;
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}
