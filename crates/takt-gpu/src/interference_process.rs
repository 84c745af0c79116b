//! Interference as a process of its own, as another program's work on the GPU would be. What it says stands on lines of their own on
//! its standard output, one JSON value each.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gpu::Info;
use crate::interference::{Interference, InterferenceWork};

/// The hidden subcommand of `takt` that runs [`run`] with its argument.
pub const SUBCOMMAND: &str = "gpu-load";

/// Time between looks at the signal, and at the work.
const LOOK: Duration = Duration::from_millis(20);

/// Looks between two lines of work: a second, so that hours leave little behind.
const LOOKS_PER_LINE: u32 = 50;

/// What the process says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first piece of work has run on this device.
    Ready(Info),
    /// What it has done so far.
    Work(InterferenceWork),
    /// It ends for this reason.
    Failed(String),
}

/// The lines in `printed`; everything else in it is passed over.
pub fn lines(printed: &str) -> impl DoubleEndedIterator<Item = Line> {
    printed.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn say(line: &Line) {
    use std::io::Write;
    if let Ok(text) = serde_json::to_string(line) {
        // In one piece, and on a line of its own whatever stands before it. That nobody reads it is no reason to stop.
        let _ = std::io::stdout().lock().write_all(format!("\n{text}\n").as_bytes());
    }
}

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Runs the interference that `config` (JSON of [`Interference`]) describes until SIGTERM or SIGINT.
pub fn run(config: &str) -> ExitCode {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler stores a flag and does nothing else.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
    let started = serde_json::from_str::<Interference>(config)
        .map_err(|error| format!("interference `{config}`: {error}"))
        .and_then(|config| config.start().map_err(|error| error.to_string()));
    let interfering = match started {
        Ok(interfering) => interfering,
        Err(why) => {
            say(&Line::Failed(why));
            return ExitCode::from(2);
        }
    };
    say(&Line::Ready(interfering.device().clone()));
    for look in 1u32.. {
        std::thread::sleep(LOOK);
        if let Some(why) = interfering.death() {
            say(&Line::Work(interfering.work()));
            say(&Line::Failed(why.to_string()));
            return ExitCode::from(2);
        }
        if STOP.load(Ordering::Relaxed) {
            break;
        }
        if look % LOOKS_PER_LINE == 0 {
            say(&Line::Work(interfering.work()));
        }
    }
    say(&Line::Work(interfering.stop()));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_among_others() {
        let work = InterferenceWork { launches: 3, bytes: 4, device_ns: 5, cpu_ns: 6 };
        let text = serde_json::to_string(&Line::Work(work)).unwrap();
        let printed = format!("running 1 test\n{text}\nwarning: x\n{{\"failed\":\"why\"}}\n{{\"work\"");
        assert_eq!(lines(&printed).collect::<Vec<_>>(), [Line::Work(work), Line::Failed("why".into())]);
    }
}
