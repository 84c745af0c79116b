//! Settings of the machine and the thread that delay wake-ups: idle states and timer slack.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::error::{Cause, Error};
use crate::sys;

const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// Keeps all CPUs out of idle states that take longer to leave than asked, for as long as it lives
/// (PM QoS, `/dev/cpu_dma_latency`). Costs power.
#[derive(Debug)]
pub struct DmaLatency {
    _file: File,
}

impl DmaLatency {
    /// Asks for at most `limit_us` microseconds of exit latency; 0 keeps the CPUs from idle states
    /// wholly.
    pub fn hold(limit_us: u32) -> Result<Self, Error> {
        let error = |source: io::Error| {
            let fix = match source.kind() {
                io::ErrorKind::NotFound => {
                    "; the kernel needs CONFIG_CPU_IDLE and PM QoS, which virtual machines often lack"
                }
                _ => "; run as root, or `sudo chmod o+rw /dev/cpu_dma_latency`",
            };
            Error::File { path: PathBuf::from(DMA_LATENCY), source, fix: fix.into() }
        };
        let mut file = OpenOptions::new().write(true).open(DMA_LATENCY).map_err(error)?;
        // The file takes a native 32-bit integer, and holds the request until it is closed.
        file.write_all(&i32::try_from(limit_us).unwrap_or(i32::MAX).to_ne_bytes()).map_err(error)?;
        Ok(Self { _file: file })
    }
}

/// Sets the calling thread's timer slack: how much later than asked its timers may fire so that
/// wake-ups are grouped (50 µs by default; real-time policies have none whatever is set here). 0
/// restores the default.
pub fn set_timer_slack_ns(slack_ns: u64) -> Result<(), Error> {
    // SAFETY: PR_SET_TIMERSLACK takes one integer.
    if unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) } == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(Error::Refused {
        setting: format!("timer slack of {slack_ns} ns"),
        cause: match sys::common_cause(&source) {
            Cause::Unknown => Cause::Unsupported,
            cause => cause,
        },
        fix: "leave `timer_slack_ns` out".into(),
        source,
    })
}

/// The calling thread's timer slack in nanoseconds.
pub fn timer_slack_ns() -> Result<u64, Error> {
    // SAFETY: PR_GET_TIMERSLACK takes no argument.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    u64::try_from(slack).map_err(|_| {
        let source = io::Error::last_os_error();
        Error::Refused {
            setting: "reading the timer slack".into(),
            cause: Cause::Unsupported,
            fix: "leave `timer_slack_ns` out".into(),
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_is_read_back() {
        std::thread::spawn(|| {
            set_timer_slack_ns(1234).unwrap();
            assert_eq!(timer_slack_ns().unwrap(), 1234);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn dma_latency_is_held_or_the_error_names_the_file() {
        match DmaLatency::hold(0) {
            Ok(_) => {}
            Err(error) => {
                assert!(error.to_string().contains(DMA_LATENCY), "{error}");
                takt_witness::skip!("{error}");
            }
        }
    }
}
