//! Errors of tracing, and the way out. A run goes on untraced then.

use std::io;

/// Reason why kernel events are not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// tracefs is neither mounted nor mountable.
    #[error(
        "tracefs is not mounted at /sys/kernel/tracing or /sys/kernel/debug/tracing and cannot be opened: {source}; \
         `mount -t tracefs nodev /sys/kernel/tracing` as root (a kernel without CONFIG_TRACING has none)"
    )]
    NoTracefs { source: io::Error },
    /// The format of a tracepoint cannot be read.
    #[error("{tracepoint}: its format in tracefs is {found}, expected {expected}")]
    Format { tracepoint: String, found: String, expected: String },
    /// The kernel has not even the tracepoints without which nothing can be reported.
    #[error(
        "the kernel has no tracepoint {tracepoint}; it needs CONFIG_PERF_EVENTS and CONFIG_EVENT_TRACING"
    )]
    Missing { tracepoint: String },
    /// No right to see kernel events.
    #[error(
        "no permission to trace the kernel ({call}: {source}; kernel.perf_event_paranoid is {paranoid}): run as root, \
         or `setcap cap_perfmon,cap_dac_read_search+ep PROGRAM`, or `sysctl kernel.perf_event_paranoid=-1` and \
         make tracefs readable"
    )]
    NotPermitted {
        /// The call that was refused.
        call: &'static str,
        paranoid: String,
        source: io::Error,
    },
    /// Kernel lockdown forbids it, whatever the capabilities.
    #[error(
        "kernel lockdown is `{mode}`, which forbids tracing ({call}: {source}): boot with `lockdown=none`, or \
         without secure boot where that enforces it"
    )]
    Lockdown {
        mode: String,
        /// The call that was refused.
        call: &'static str,
        source: io::Error,
    },
    /// The ring buffers are more than may be locked.
    #[error(
        "the ring buffer of {bytes} bytes per CPU was refused: {source}; ask for a smaller one, or raise `ulimit -l` \
         or kernel.perf_event_mlock_kb"
    )]
    Buffer {
        /// Bytes asked for per CPU.
        bytes: usize,
        source: io::Error,
    },
    /// Any other refusal.
    #[error("{call}({tracepoint}) on CPU {cpu}: {source}{hint}")]
    System {
        call: &'static str,
        tracepoint: String,
        cpu: u16,
        source: io::Error,
        /// A possible remedy, with its separator; empty if none is known.
        hint: &'static str,
    },
    /// The thread that drains the buffers could not be started, or panicked.
    #[error("cannot start the thread that drains the ring buffers: {0}")]
    Reader(takt_rt::Error),
    /// The thread that drains the buffers has ended before it was instructed to.
    #[error("the thread that drains the ring buffers has ended, so nothing more is recorded; start again")]
    Ended,
    /// Options that make no sense.
    #[error("trace options: {0}")]
    Options(takt_rt::config::SettingError),
    /// Job records cannot be matched with events of another clock.
    #[error(
        "the trace counts time by the clock `{found}`, and job records by CLOCK_MONOTONIC: record with `perf record -k \
         CLOCK_MONOTONIC` or `trace-cmd record -C mono`"
    )]
    Clock { found: String },
}

impl TraceError {
    /// Explains a refusal by what the system says about tracing.
    pub(crate) fn refused(call: &'static str, tracepoint: &str, cpu: u16, source: io::Error) -> Self {
        let hint = match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                if let Some(mode) = lockdown() {
                    return Self::Lockdown { mode, call, source };
                }
                let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
                    .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
                return Self::NotPermitted { call, paranoid, source };
            }
            Some(libc::EMFILE) => "; `ulimit -n 4096` (a trace needs about 40 descriptors per CPU)",
            Some(libc::EBUSY) => "; another tracer holds it: end the other perf or ftrace session",
            Some(libc::ENODEV) => "; the CPU is offline",
            Some(libc::ENOSYS) => "; the kernel needs CONFIG_PERF_EVENTS",
            _ => "",
        };
        Self::System { call, tracepoint: tracepoint.to_owned(), cpu, source, hint }
    }
}

/// The kernel's lockdown mode, where there is one in force.
fn lockdown() -> Option<String> {
    let text = std::fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    mode_in_force(&text)
}

/// The bracketed word of `none [integrity] confidentiality`, unless it is `none`.
fn mode_in_force(text: &str) -> Option<String> {
    let mode = text.split_once('[')?.1.split_once(']')?.0;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdown_is_read() {
        assert_eq!(mode_in_force("[none] integrity confidentiality\n"), None);
        assert_eq!(mode_in_force("none integrity [confidentiality]\n").as_deref(), Some("confidentiality"));
        assert_eq!(mode_in_force(""), None);
    }

    #[test]
    fn refusals_name_the_way_out() {
        let error = |code| {
            TraceError::refused(
                "perf_event_open",
                "sched:sched_switch",
                1,
                io::Error::from_raw_os_error(code),
            )
        };
        let text = error(libc::EACCES).to_string();
        assert!(
            text.contains("perf_event_paranoid") && text.contains("setcap") || text.contains("lockdown"),
            "{text}"
        );
        assert!(error(libc::EMFILE).to_string().contains("ulimit -n"));
        assert!(error(libc::EBUSY).to_string().contains("another tracer"));
    }
}
