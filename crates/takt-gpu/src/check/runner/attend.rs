//! The process of a step: started, listened to, and killed when its time is over.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use takt_rt::child::end_with_this_process;

use super::{Outcome, RunnerError, StepReport};
use crate::check::step::StepMessage;
use crate::gpu::Info;

/// Period at which it is checked whether the check must end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time that a killed process may take to disappear: the driver ends its work first.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Most that is kept of what a step prints to standard error.
const MAX_WORDS: usize = 4000;

/// End of a process.
pub(super) struct Ended {
    /// It has said all that it had to say.
    pub(super) complete: bool,
    pub(super) report: StepReport,
    pub(super) device: Option<Info>,
    pub(super) no_device: Option<String>,
}

/// The process of a step; killed when this is dropped before its end.
struct Attended(Child);

impl Drop for Attended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let until = Instant::now() + KILL_PATIENCE;
        // One that the kernel does not let go must not hold up what follows.
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs the process of a step until it ends, its time is over, or the check shall end.
pub(super) fn attend(
    mut command: Command,
    limit_s: f64,
    progress: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> Result<Ended, RunnerError> {
    end_with_this_process(&mut command);
    // Ctrl-C is for the runner, which then ends this.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let child = command
        .spawn()
        .map_err(|source| RunnerError::Io { what: command.get_program().display().to_string(), source })?;
    let mut child = Attended(child);
    let (sender, receiver) = channel();
    if let Some(out) = child.0.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Drivers and libraries may print too.
                if let Ok(message) = serde_json::from_str::<StepMessage>(&line) {
                    let _ = sender.send(message);
                }
            }
        });
    }
    let (words_out, words) = channel();
    if let Some(err) = child.0.stderr.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                let _ = words_out.send(line);
            }
        });
    }
    let mut ended = listen(&receiver, begin, limit_s, progress, stop)?;
    let status = match ended.report.outcome {
        Outcome::TimedOut => None,
        _ => wait(&mut child.0),
    };
    if let Some(status) = status.filter(|_| !ended.complete) {
        ended.report.why = Some(format!("its process ended before it was complete: {status}"));
    }
    drop(child);
    ended.report.seconds = begin.elapsed().as_secs_f64();
    ended.report.limit_s = limit_s;
    let mut kept = String::new();
    while let Ok(line) = words.recv_timeout(LOOK_EVERY) {
        kept = format!("{kept}{line}\n");
        if kept.len() > MAX_WORDS {
            let from = kept.ceil_char_boundary(kept.len() - MAX_WORDS);
            kept.drain(..from);
        }
    }
    ended.report.words = kept;
    Ok(ended)
}

/// A process that has closed its standard output is about to end.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let until = Instant::now() + KILL_PATIENCE;
    while Instant::now() < until {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

fn listen(
    receiver: &Receiver<StepMessage>,
    begin: Instant,
    limit_s: f64,
    progress: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> Result<Ended, RunnerError> {
    let report = StepReport {
        step: String::new(),
        about: String::new(),
        outcome: Outcome::Failed,
        why: None,
        seconds: 0.0,
        work_s: 0.0,
        limit_s,
        requirements: Vec::new(),
        figures: serde_json::Map::new(),
        words: String::new(),
    };
    let mut ended = Ended { complete: false, report, device: None, no_device: None };
    let (mut until, mut at) = (begin + Duration::from_secs_f64(limit_s), "its start".to_owned());
    loop {
        if stop.load(Ordering::Acquire) {
            return Err(RunnerError::Stopped);
        }
        let now = Instant::now();
        if now >= until && ended.complete {
            // It has said all; that the driver does not let it go is for `Attended`.
            return Ok(ended);
        }
        if now >= until {
            ended.report.outcome = Outcome::TimedOut;
            ended.report.why = Some(format!("killed after {limit_s:.0} s, at: {at}"));
            return Ok(ended);
        }
        let report = &mut ended.report;
        let message = receiver.recv_timeout(LOOK_EVERY.min(until - now));
        if matches!(
            message,
            Ok(StepMessage::NoDevice(_)
                | StepMessage::NotRun(_)
                | StepMessage::Failed(_)
                | StepMessage::Done)
        ) {
            (ended.complete, until) = (true, until.min(now + KILL_PATIENCE));
        }
        match message {
            Ok(StepMessage::Progress(text)) => {
                progress(&format!("    {text}"));
                at = text;
            }
            Ok(StepMessage::Device(device)) => ended.device = Some(device),
            Ok(StepMessage::Requirement(requirement)) => report.requirements.push(requirement),
            Ok(StepMessage::Figure(name, value)) => drop(report.figures.insert(name, value)),
            Ok(StepMessage::NoDevice(why)) => ended.no_device = Some(why),
            Ok(StepMessage::NotRun(why)) => (report.outcome, report.why) = (Outcome::NotRun, Some(why)),
            Ok(StepMessage::Failed(why)) => report.why = Some(why),
            Ok(StepMessage::Done) => {
                let missed = report.requirements.iter().any(|requirement| requirement.reached == Some(false));
                report.outcome = if missed { Outcome::Failed } else { Outcome::Passed };
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(ended),
        }
    }
}
