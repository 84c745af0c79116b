//! What systemd is told of a service of `Type=notify` (sd_notify(3)): one datagram to the socket
//! that `NOTIFY_SOCKET` names. Nothing happens where there is none.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of status. systemd keeps the last one only.
const STATUS_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Service {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How often systemd wants to hear that the loop runs; `None`: not at all.
    watchdog: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ready: bool,
    stopping: bool,
    status_at: Option<Instant>,
    alive_at: Option<Instant>,
}

static SERVICE: OnceLock<Option<Service>> = OnceLock::new();

/// Looks whether this process is a service, once. Until then nobody is told anything.
pub fn begin() {
    let _ = SERVICE.get_or_init(Service::find);
}

fn service() -> Option<&'static Service> {
    SERVICE.get()?.as_ref()
}

/// Whether somebody listens.
pub fn is_on() -> bool {
    service().is_some()
}

/// The loop runs. Said once.
pub fn ready(status: &str) {
    let Some(service) = service() else { return };
    let mut state = service.state();
    if !std::mem::replace(&mut state.ready, true) {
        service.send(&format!("READY=1\nSTATUS={}", line(status)), true);
    }
}

/// Whether [`ready`] has been said.
pub fn is_ready() -> bool {
    service().is_some_and(|service| service.state().ready)
}

/// How it is doing, in a line; as often as a person reads.
pub fn status(status: &str) {
    let Some(service) = service() else { return };
    let mut state = service.state();
    if !state.stopping && state.status_at.is_none_or(|at| at.elapsed() >= STATUS_EVERY) {
        state.status_at = Some(Instant::now());
        service.send(&format!("STATUS={}", line(status)), false);
    }
}

/// The loop still runs. To be called far more often than systemd wants to hear it.
pub fn alive() {
    let Some(service) = service() else { return };
    let Some(every) = service.watchdog else { return };
    let mut state = service.state();
    // A third of the time that systemd waits: two may be late.
    if state.alive_at.is_none_or(|at| at.elapsed() >= every / 3) {
        state.alive_at = Some(Instant::now());
        service.send("WATCHDOG=1", false);
    }
}

/// The end has begun. Said once. systemd goes on waiting for [`alive`] until the process has ended.
pub fn stopping(status: &str) {
    let Some(service) = service() else { return };
    let mut state = service.state();
    if !std::mem::replace(&mut state.stopping, true) {
        service.send(&format!("STOPPING=1\nSTATUS={}", line(status)), true);
    }
}

/// A status is one line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}

impl Service {
    fn find() -> Option<Self> {
        let name = takt_files::environment::var_os("NOTIFY_SOCKET")?;
        let text = name.to_str()?;
        let address = match text.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok()?,
            // Neither a path nor the name of an abstract socket: `vsock:` is for virtual machines.
            None if !text.starts_with('/') => return None,
            None => SocketAddr::from_pathname(text).ok()?,
        };
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Self { socket, address, watchdog: watchdog(), state: Mutex::default() })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends it; what must arrive is tried for a tenth of a second where the socket is full.
    fn send(&self, text: &str, must: bool) {
        let tries = if must { 20 } else { 1 };
        for _ in 0..tries {
            match self.socket.send_to_addr(text.as_bytes(), &self.address) {
                Err(error) if must && error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

/// How often systemd waits for a sign of life of this process (sd_watchdog_enabled(3)).
fn watchdog() -> Option<Duration> {
    let variable = |name: &str| takt_files::environment::var_os(name)?.into_string().ok();
    let of_another = |pid: String| pid.parse() != Ok(std::process::id());
    if variable("WATCHDOG_PID").is_some_and(of_another) {
        return None;
    }
    let us: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    (us > 0).then(|| Duration::from_micros(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(line("a\nREADY=1"), "a READY=1");
        assert_eq!(line(&"ä".repeat(600)).chars().count(), 500);
    }

    #[test]
    fn outside_of_a_service_nothing_happens() {
        // Before `begin`, and where nobody listens.
        assert!(!is_on() && !is_ready());
        ready("x");
        status("x");
        alive();
        stopping("x");
        assert!(!is_ready());
    }
}
