//! A 500 Hz loop that writes down what it did: `cargo run -p takt-sdk --example control -- 5
//! log.txt`. Run it under `takt run` with `robot = "program"` to have it judged.

use std::time::{Duration, Instant};

use takt_sdk::{Loop, now_ns};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().unwrap_or_else(|| "5".to_owned()).parse()?;
    let log = arguments.next();
    let mut control = Loop::periodic("control", Duration::from_millis(2)).open()?;
    println!("ready");
    let mut rows = Vec::with_capacity((seconds * 600.0) as usize);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        let release = control.wait()?;
        control.stage("compute")?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(200) {}
        control.value(begin.elapsed().as_secs_f64())?;
        control.end()?;
        rows.push((release.job, release.release_ns, release.begin_ns, now_ns()));
    }
    if let Some(log) = log {
        let lines: Vec<String> = rows
            .iter()
            .map(|(job, release, begin, end)| format!("{job} {release} {begin} {end}\n"))
            .collect();
        std::fs::write(log, lines.concat())?;
    }
    Ok(())
}
