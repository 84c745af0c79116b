//! A camera beside another program, for each way in which the driver shares the device between
//! programs. A program's sharing is fixed when it starts, so each way is measured in a separate
//! process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use takt_gpu::check::step::{Step, StepError, StepMessage};
use takt_gpu::mps;
use takt_gpu::sharing::{Sharing, SharingError, SharingMode, Slice};
use takt_load::gpu::{GpuLoadKind, Variables};
use takt_rt::child::end_with_this_process;

use super::beside::{Camera, Control, NONE, PRIORITIES, Place, line};
use super::open;

/// Stands before the names of variables that are the other program's.
const OTHERS: &str = "TAKT_OTHERS_";

/// Longest time for opening the device and ending, beside measuring.
const PATIENCE: Duration = Duration::from_secs(12);

/// Command that starts the process of a way, from its name and its measuring time.
pub type Child<'a> = &'a dyn Fn(&str, f64) -> Command;

/// The compared ways. Shares of the multiprocessors are as large as one would give a guest.
fn ways() -> [(&'static str, Sharing); 5] {
    let mps = Sharing { way: SharingMode::Mps, ..Sharing::default() };
    [
        ("taking turns", Sharing { way: SharingMode::Turns, ..Sharing::default() }),
        (
            "taking turns in short time slices",
            Sharing { way: SharingMode::TimeSlices, slice: Slice::Short, ..Sharing::default() },
        ),
        ("MPS", mps),
        ("MPS, the other program limited to 30 per cent", Sharing { others_percent: Some(30), ..mps }),
        ("MPS, 70 and 30 per cent, 4 and 2 GiB", limits()),
    ]
}

/// MPS with limits. The other program's four streams take 512 MiB beside what the driver needs for
/// it.
pub(super) fn limits() -> Sharing {
    Sharing {
        way: SharingMode::Mps,
        share_percent: Some(70),
        others_percent: Some(30),
        memory_mib: Some(4096),
        others_memory_mib: Some(2048),
        ..Sharing::default()
    }
}

/// Measures each way that there is here, and reports in a sentence why the others are not.
/// `leave_settings` leaves out what changes a setting of the machine's.
///
/// # Errors
/// The error of opening the device.
pub fn sharing(step: &mut Step<'_>, child: Child<'_>, leave_settings: bool) -> Result<(), StepError> {
    drop(open(step)?);
    let ways = ways();
    let seconds = step.work_s / ways.len() as f64;
    let mut figures = Vec::new();
    for (name, sharing) in ways {
        step.progress(name);
        let what = format!("a camera next to another program: {name}");
        if leave_settings && sharing.way == SharingMode::TimeSlices {
            step.not_run(
                &what,
                "skipped because of --leave-settings: time slices are a setting of the whole machine",
            );
            continue;
        }
        let limit = PATIENCE + Duration::from_secs_f64(seconds);
        match measure_in(&sharing, step.ordinal, child("sharing-child", seconds), limit) {
            Err(error) => step.not_run(&what, error.to_string()),
            Ok((reported, Ok(rows))) => {
                let lines = rows["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
                step.judge(&what, format!("{reported}: {}", lines.collect::<Vec<_>>().join("; ")), true);
                figures.push(json!({ "way": name, "told": reported, "rows": rows["rows"] }));
            }
            Ok((reported, Err(why))) => step.judge(&what, format!("{reported}: {why}"), false),
        }
    }
    step.figure("sharing", figures);
    Ok(())
}

/// Runs the process of one way while the device is shared so: how it is, in words, and the figure
/// of the process or why there is none.
pub(super) fn measure_in(
    sharing: &Sharing,
    ordinal: u32,
    mut command: Command,
    limit: Duration,
) -> Result<(String, Result<Value, String>), SharingError> {
    let shared = sharing.begin(ordinal)?;
    let reported = shared.in_words().to_owned();
    command.envs(shared.own().iter().map(|(name, value)| (name, value)));
    for (name, value) in shared.others() {
        command.env(format!("{OTHERS}{}", name.display()), value);
    }
    let measured = measure(&mut command, limit);
    let measured = match (measured, shared.end()) {
        (measured, Ok(())) => measured,
        (Ok(_), Err(left)) => Err(left.to_string()),
        (Err(why), Err(left)) => Err(format!("{why}; {left}")),
    };
    Ok((reported, measured))
}

/// Runs the process of one way: its figure.
fn measure(command: &mut Command, limit: Duration) -> Result<Value, String> {
    end_with_this_process(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().map_err(|error| error.to_string())?;
    let (sender, receiver) = channel();
    let out = process.stdout.take();
    std::thread::spawn(move || {
        for line in out.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok)) {
            if let Ok(message) = serde_json::from_str::<StepMessage>(&line) {
                let _ = sender.send(message);
            }
        }
    });
    let until = Instant::now() + limit;
    let mut at = "its start".to_owned();
    let outcome = loop {
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(StepMessage::Figure(_, value)) => break Ok(value),
            Ok(StepMessage::Failed(why) | StepMessage::NotRun(why) | StepMessage::NoDevice(why)) => {
                break Err(why);
            }
            Ok(StepMessage::Progress(text)) => at = text,
            Ok(_) => {}
            Err(_) if Instant::now() >= until => {
                break Err(format!("killed after {:.0} s, at: {at}", limit.as_secs_f64()));
            }
            Err(_) => break Err(format!("its process ended, at: {at}")),
        }
    };
    // The other program, which it started, ends with it.
    let _ = process.kill();
    let _ = process.wait();
    outcome
}

/// Measures in this process, which shares the device as its environment says.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn sharing_child(step: &mut Step<'_>) -> Result<(), StepError> {
    beside_child(step, &[GpuLoadKind::Compute, GpuLoadKind::Memory], &[NONE, PRIORITIES])
}

/// The same for these kinds of the other program's work and these controls.
pub(super) fn beside_child(
    step: &mut Step<'_>,
    kinds: &[GpuLoadKind],
    controls: &[Control],
) -> Result<(), StepError> {
    let others: Variables = mps::VARIABLES
        .into_iter()
        .filter_map(|name| Some((name.into(), std::env::var_os(format!("{OTHERS}{name}"))?)))
        .collect();
    let with_budget = controls.iter().any(|control| control.budget);
    let seconds = step.work_s / (kinds.len() * controls.len() + usize::from(with_budget)) as f64;
    let mut camera = Camera::first(step)?;
    let idle = if with_budget { Some(camera.idle(step, seconds)?) } else { None };
    let rows = camera.beside(step, (kinds, Place::Outside, controls), &others, seconds)?;
    step.figure(
        "rows",
        json!({ "idle": idle, "lines": rows.iter().map(line).collect::<Vec<_>>(), "rows": rows }),
    );
    Ok(())
}
