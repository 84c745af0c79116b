//! What reading a recorded trace costs, beside `babeltrace2` counting the same trace: CPU time of
//! both, events a second.
//!
//! `cargo bench -p takt-ros --bench ctf [-- FOLDER]` reads a recording of your own instead of the
//! one that it writes.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::Command;

use takt_ros::Source;
use takt_ros::ctf::Recording;

const REPETITIONS: usize = 5;

/// CPU time of this process (`RUSAGE_SELF`) or of its children so far.
fn cpu_seconds(of: libc::c_int) -> f64 {
    // SAFETY: all-zero is a valid rusage, which the call fills in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a rusage that lives as long as the call.
    unsafe { libc::getrusage(of, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let scratch = tempfile::tempdir()?;
    let folder = match own {
        Some(folder) => PathBuf::from(folder),
        None => {
            support::busy(scratch.path(), 4, 70_000, 256 << 10);
            scratch.path().to_owned()
        }
    };
    let mut least = [f64::INFINITY; 2];
    let mut counts = [0; 2];
    for _ in 0..REPETITIONS {
        let before = cpu_seconds(libc::RUSAGE_SELF);
        let mut recording = Recording::open(&folder)?;
        let mut sum = 0_u64;
        while !recording.ended() {
            // Every event is looked at, so that none can be optimised away.
            recording.poll(&mut |event| sum = sum.wrapping_add(event.at_ns ^ u64::from(event.tid)))?;
        }
        std::hint::black_box(sum);
        counts[0] = recording.seen().iter().map(|seen| seen.count).sum();
        least[0] = least[0].min(cpu_seconds(libc::RUSAGE_SELF) - before);
        if !recording.damages().is_empty() {
            println!("damaged: {:?}", recording.damages());
        }

        let before = cpu_seconds(libc::RUSAGE_CHILDREN);
        let counted = Command::new("babeltrace2")
            .arg(&folder)
            .args(["-c", "sink.utils.counter", "-p", "step=+0"])
            .output();
        let Ok(counted) = counted else {
            println!("SKIPPED babeltrace2: not installed (tools/install-outside gets it)");
            continue;
        };
        least[1] = least[1].min(cpu_seconds(libc::RUSAGE_CHILDREN) - before);
        let text = String::from_utf8_lossy(&counted.stdout).into_owned();
        let last = text
            .lines()
            .rev()
            .find_map(|line| line.trim().strip_suffix(" Event messages")?.trim().parse().ok());
        counts[1] = last.unwrap_or(0);
    }
    for (name, (seconds, count)) in ["takt", "babeltrace2"].iter().zip(least.iter().zip(counts)) {
        println!(
            "{name:12} {count} events, {seconds:.3} s CPU, {:.0} ns an event, {:.2} million a second",
            seconds * 1e9 / count as f64,
            count as f64 / seconds / 1e6
        );
    }
    if counts[0] != counts[1] && counts[1] > 0 {
        return Err(format!("{} events here, {} there", counts[0], counts[1]).into());
    }
    println!("ratio        {:.1} (least CPU time of {REPETITIONS} each)", least[1] / least[0]);
    Ok(())
}
