//! Interference as a process of its own, as another program's work on the GPU would be. It answers
//! in [`takt_load::gpu::Line`]s.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_load::gpu::{DeviceInfo, Interference, Line};

use crate::gpu::Info;
use crate::interference::Interfering;

/// Time between looks at the signal, and at the work.
const LOOK: Duration = Duration::from_millis(20);

/// Looks between two lines of work: a second, so that hours leave little behind.
const LOOKS_PER_LINE: u32 = 50;

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Runs the interference that `config` (JSON of [`Interference`]) describes until SIGTERM or
/// SIGINT.
pub fn run(config: &str) -> ExitCode {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler stores a flag and does nothing else.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
    let started = serde_json::from_str::<Interference>(config)
        .map_err(|error| format!("interference `{config}`: {error}"))
        .and_then(|config| Interfering::start(&config).map_err(|error| error.to_string()));
    let interfering = match started {
        Ok(interfering) => interfering,
        Err(why) => {
            Line::Failed(why).print();
            return ExitCode::from(2);
        }
    };
    let Info { name, uuid, emulated, .. } = interfering.device().clone();
    Line::Ready(DeviceInfo { name, uuid, emulated }).print();
    for look in 1u32.. {
        std::thread::sleep(LOOK);
        if let Some(why) = interfering.death() {
            Line::Work(interfering.work()).print();
            Line::Failed(why.to_string()).print();
            return ExitCode::from(2);
        }
        if STOP.load(Ordering::Relaxed) {
            break;
        }
        if look % LOOKS_PER_LINE == 0 {
            Line::Work(interfering.work()).print();
        }
    }
    Line::Work(interfering.stop()).print();
    ExitCode::SUCCESS
}
