//! A kernel that never ends, and a context that is lost: each in a process of its own, and what a
//! fresh process finds afterwards.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::json;
use takt_load::gpu::Priority;
use takt_rt::child::end_with_this_process;
use takt_rt::clock::monotonic_ns;

use super::streams::differing;
use super::{Step, StepError, not_run, open};
use crate::check::CHECK_KERNELS;
use crate::check::step::StepMessage;
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::kernel::{Arg, Grid};
use crate::wait::{Wait, Waited};

/// Command that starts such a process, by its name.
pub type Child<'a> = &'a dyn Fn(&str) -> Command;

/// Time that the kernel that never ends is given, nanoseconds.
const BUDGET_NS: u64 = 100_000_000;

/// Latest return from waiting for it.
const ON_TIME_NS: u64 = 20_000_000;

/// Longest preparing of such a process: kernels are compiled once.
const PATIENCE: Duration = Duration::from_secs(15);

/// Longest time in which a killed process is gone and the device works again.
const MAX_RECOVERY: Duration = Duration::from_secs(5);

fn grid(gpu: &Gpu) -> Grid {
    Grid { blocks: [gpu.info().multiprocessors.max(1) * 2, 1, 1], threads: [64, 1, 1], shared_bytes: 0 }
}

/// Starts a kernel that never ends, gives it up, shows so, and waits to be killed.
///
/// # Errors
/// The error of opening or launching.
pub fn hang_child(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let stream = gpu.stream(Priority::Critical)?;
    let (flag, out, host) = (gpu.buffer::<u32>(1)?, gpu.buffer::<u32>(1)?, gpu.pinned::<u32>(1)?);
    stream.fill_words(&flag, 0)?;
    let forever = gpu.module(&CHECK_KERNELS)?.function("check_forever")?;
    // SAFETY: as declared in the source; both have an element.
    unsafe { stream.launch(&forever, grid(&gpu), &[Arg::buffer(&flag), Arg::buffer(&out)])? };
    stream.download(&out, &host)?;
    let done = stream.event(false)?;
    stream.record(&done)?;
    let deadline_ns = monotonic_ns() + BUDGET_NS;
    let waited = done.wait(deadline_ns, Wait::Block)?;
    let late_ns = monotonic_ns().saturating_sub(deadline_ns);
    let refused = matches!(host.read(), Err(GpuError::InFlight { .. }));
    let given_up = waited == Waited::Overrun;
    step.figure("hang", json!({ "given_up": given_up, "late_ns": late_ns, "result_refused": refused }));
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Runs a kernel that ends the context, and shows what is said of it.
///
/// # Errors
/// The error of opening or launching.
pub fn loss_child(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let stream = gpu.stream(Priority::Critical)?;
    let (out, done) = (gpu.buffer::<u32>(1)?, stream.event(false)?);
    let trap = gpu.module(&CHECK_KERNELS)?.function("check_trap")?;
    // SAFETY: as declared in the source; `out` has an element.
    unsafe { stream.launch(&trap, grid(&gpu), &[Arg::buffer(&out)])? };
    let until_ns = monotonic_ns() + super::HUNG_NS;
    // The loss may show at any call.
    let message = stream.record(&done).and_then(|()| {
        loop {
            match done.wait(until_ns, Wait::Block)? {
                Waited::Done if monotonic_ns() < until_ns => std::thread::sleep(Duration::from_millis(1)),
                Waited::Done | Waited::Overrun => break Ok(()),
            }
        }
    });
    let message = message.err();
    let lost = message.as_ref().is_some_and(GpuError::is_lost);
    let later = gpu.buffer::<u32>(1).err();
    let refused = later.as_ref().is_some_and(GpuError::is_lost);
    let words = message.map_or_else(|| "nothing".to_owned(), |error| error.to_string());
    step.figure("loss", json!({ "lost": lost, "said": words, "refused_later": refused }));
    Ok(())
}

/// Starts `name`, waits for its figure, and kills it where it does not end by itself: the figure,
/// and how long it took to be gone.
fn watch(
    step: &mut Step<'_>,
    child: Child<'_>,
    name: &str,
) -> Result<(serde_json::Value, Duration), StepError> {
    let failed = |why: String| StepError::Failed(format!("{name}: {why}"));
    let mut command = child(name);
    end_with_this_process(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().map_err(|error| failed(error.to_string()))?;
    let (sender, receiver) = channel();
    let (device_sender, device) = channel();
    if let Some(out) = process.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(StepMessage::Device(info)) => drop(device_sender.send(info)),
                    Ok(StepMessage::Figure(_, value)) => drop(sender.send(Ok(value))),
                    Ok(StepMessage::Failed(why) | StepMessage::NotRun(why) | StepMessage::NoDevice(why)) => {
                        drop(sender.send(Err(why)))
                    }
                    _ => {}
                }
            }
        });
    }
    let figure = match receiver.recv_timeout(PATIENCE) {
        Ok(figure) => figure.map_err(failed),
        Err(_) => Err(failed(format!("reported nothing within {} s", PATIENCE.as_secs()))),
    };
    // From now on it is known whether times count: this process opens the device later.
    if let Ok(info) = device.try_recv() {
        step.device(&info);
    }
    let begin = Instant::now();
    // It may have ended by itself.
    let _ = process.kill();
    while matches!(process.try_wait(), Ok(None)) && begin.elapsed() < 2 * MAX_RECOVERY {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok((figure?, begin.elapsed()))
}

/// Whether this process, which has not used the device so far, computes rightly on it; and in what
/// time.
fn fresh(step: &mut Step<'_>, what: &str, gone: Duration) -> Result<(), StepError> {
    step.progress("a fresh process");
    let begin = Instant::now();
    let gpu = open(step)?;
    let wrong = differing(&gpu, true, 5)?;
    let took = begin.elapsed();
    step.judge(what, format!("{wrong} words differ"), wrong == 0);
    step.judge_time(
        &format!("the process is gone and the device works again within {} s", MAX_RECOVERY.as_secs()),
        format!(
            "gone after {:.0} ms, a correct frame {:.0} ms after that",
            1e3 * gone.as_secs_f64(),
            1e3 * took.as_secs_f64()
        ),
        gone + took <= MAX_RECOVERY,
    );
    step.figure("recovery_ms", json!({ "gone": gone.as_millis() as u64, "frame": took.as_millis() as u64 }));
    Ok(())
}

/// A kernel that never ends: given up at its budget, its process killed, the device used by a fresh
/// one.
///
/// # Errors
/// The error in the processes' messages.
pub fn after_hang(step: &mut Step<'_>, child: Child<'_>) -> Result<(), StepError> {
    step.progress("a kernel that never ends");
    let (figure, gone) = watch(step, child, "hang-child")?;
    let late_ns = figure["late_ns"].as_u64().unwrap_or(u64::MAX);
    let given_up = figure["given_up"] == true;
    step.judge(
        "a kernel that never ends is abandoned, and its result cannot be read",
        figure.to_string(),
        given_up && figure["result_refused"] == true,
    );
    step.judge_time(
        &format!("it is abandoned within {} ms of the budget's end", ON_TIME_NS / 1_000_000),
        format!("{:.3} ms", late_ns as f64 / 1e6),
        given_up && late_ns <= ON_TIME_NS,
    );
    fresh(step, "after a process was killed in a kernel that never ends, a new one computes correctly", gone)
}

/// A context that is lost: said so, refused from then on, the device used by a fresh process.
///
/// # Errors
/// The error in the processes' messages.
pub fn after_loss(step: &mut Step<'_>, child: Child<'_>) -> Result<(), StepError> {
    step.progress("a kernel that ends its context");
    let (figure, gone) = watch(step, child, "loss-child")?;
    if figure.is_null() {
        return Err(not_run("the process that loses its context reported nothing"));
    }
    step.judge(
        "a lost context is reported as lost, and every later call is refused",
        figure.to_string(),
        figure["lost"] == true && figure["refused_later"] == true,
    );
    fresh(step, "after a process lost its context, a new one computes correctly", gone)
}
