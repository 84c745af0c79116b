//! Difference between the clocks of two machines: the accuracy of a latency that begins on one and
//! ends on the other.
//!
//! The release of such a chain is the source time stamp of its message, which is of the sender's
//! CLOCK_REALTIME. Nothing on one machine alone shows how wrong that is. So the error is stated by
//! whoever synchronises the clocks, or measured by round trips to the other machine
//! ([`roundtrip`]), or it cannot be known; what this machine's own synchronisation says of itself
//! ([`synchronised`]) is only half of it, and reported beside.

pub mod roundtrip;
pub mod synchronised;

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::goals::Network;

/// Port at which `takt clock` answers.
pub const PORT: u16 = 7117;
/// Time between two measurements of a peer. A second: in that time the clocks drift apart by
/// [`DRIFT_PPM`] of it.
const EVERY: Duration = Duration::from_secs(1);
/// Two clocks drift apart by no more than this: 100 ppm is more than any quartz of a computer, and
/// what chrony and ptp4l correct in steady state is less.
const DRIFT_PPM: u64 = 100;
/// An answer that is older than this says nothing any more.
const STALE: Duration = Duration::from_secs(5);

/// Known error of the clocks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClockError {
    /// The clocks of the machines are no further apart; `None`: it cannot be known.
    pub error_ns: Option<u64>,
    /// Source of this knowledge, or the reason why it is missing.
    pub by: String,
}

/// Keeps the clock error up to date in a thread of its own, where it is measured.
#[derive(Debug)]
pub struct Watch {
    known: Arc<Mutex<Known>>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Known {
    error: ClockError,
    measured: Option<Instant>,
}

impl Watch {
    /// As the goals file has it.
    #[must_use]
    pub fn start(network: &Network) -> Self {
        let stated = network
            .clock_error_ns
            .map(|ns| ClockError { error_ns: Some(ns), by: "stated in the goals file".to_owned() });
        let measured = stated.is_none() && !network.peers.is_empty();
        let error = stated.unwrap_or_else(|| match measured {
            true => ClockError { error_ns: None, by: "no peer has answered yet".to_owned() },
            false => unknown(),
        });
        let known = Arc::new(Mutex::new(Known { error, measured: None }));
        let mut watch = Self { known, stop: None, thread: None };
        if measured && let Ok((stop, stopped)) = UnixStream::pair() {
            let (known, peers) = (Arc::clone(&watch.known), network.peers.clone());
            let name = "takt-clocks".to_owned();
            let started =
                std::thread::Builder::new().name(name).spawn(move || measure(&peers, &known, &stopped));
            (watch.stop, watch.thread) = (Some(stop), started.ok());
        }
        watch
    }

    /// The present error.
    #[must_use]
    pub fn error(&self) -> ClockError {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut error = known.error.clone();
        if let Some(measured) = known.measured {
            let age = measured.elapsed();
            let drift_ns = (age.as_nanos() as u64).saturating_mul(DRIFT_PPM) / 1_000_000;
            error.error_ns = error.error_ns.filter(|_| age < STALE).map(|ns| ns.saturating_add(drift_ns));
            if age >= STALE {
                error.by = format!("the last answer of a peer is {:.0} s old", age.as_secs_f64());
            }
        }
        error
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Closing this end ends the thread.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to report.
            let _ = thread.join();
        }
    }
}

fn unknown() -> ClockError {
    let own = synchronised::own();
    let own = own.map_or_else(
        || "and neither chrony nor ptp4l was found here".to_owned(),
        |own| format!("this one is within {:.3} ms of its reference ({})", own.error_ns as f64 / 1e6, own.by),
    );
    ClockError {
        error_ns: None,
        by: format!(
            "the error of the other machine's clock is unknown, {own}. State it ([network] clock_error = \"50 us\"), or run `takt clock` \
             on the other machine and list it as a peer ([network] peers = [\"192.168.1.2\"])"
        ),
    }
}

/// The address of a peer as in the goals file: `host` or `host:port`.
fn resolve(peer: &str) -> Option<SocketAddr> {
    let whole = peer.to_socket_addrs().ok().and_then(|mut all| all.next());
    whole.or_else(|| (peer, PORT).to_socket_addrs().ok().and_then(|mut all| all.next()))
}

fn measure(peers: &[String], known: &Mutex<Known>, stopped: &UnixStream) {
    if stopped.set_read_timeout(Some(EVERY)).is_err() {
        return;
    }
    loop {
        let measured = Instant::now();
        let mut all: Vec<(u64, String)> = Vec::new();
        for peer in peers {
            let answer =
                resolve(peer).ok_or_else(|| "its name cannot be resolved".to_owned()).and_then(|address| {
                    roundtrip::ask(address, roundtrip::realtime_ns).map_err(|error| error.to_string())
                });
            match answer {
                Ok(offset) => all.push((offset.apart_ns(), offset.to_string())),
                Err(why) => {
                    let by = format!("the peer {peer} does not answer: {why}");
                    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                    // Its last answer counts until it is stale.
                    if known.measured.is_none() {
                        known.error = ClockError { error_ns: None, by };
                    }
                    all.clear();
                    break;
                }
            }
        }
        // The machine from which a message comes is not reported, so the worst of them counts.
        if let Some((error_ns, by)) = all.into_iter().max() {
            let error = ClockError { error_ns: Some(error_ns), by };
            *known.lock().unwrap_or_else(PoisonError::into_inner) = Known { error, measured: Some(measured) };
        }
        let mut byte = [0; 1];
        match std::io::Read::read(&mut &*stopped, &mut byte) {
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stated_is_known_and_what_is_not_has_a_way_out() {
        let stated = Network { clock_error_ns: Some(50_000), ..Network::default() };
        assert_eq!(Watch::start(&stated).error().error_ns, Some(50_000));
        let error = Watch::start(&Network::default()).error();
        assert!(error.error_ns.is_none() && error.by.contains("peers ="), "{error:?}");
    }

    #[test]
    fn a_peer_is_measured_and_a_silent_one_is_not_known() {
        let responder =
            roundtrip::Responder::start(([127, 0, 0, 1], 0).into(), roundtrip::realtime_ns).unwrap();
        let peers = vec![responder.address().to_string()];
        let watch = Watch::start(&Network { peers, ..Network::default() });
        let until = Instant::now() + Duration::from_secs(60);
        while watch.error().error_ns.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(watch.error().error_ns.is_some(), "{:?}", watch.error());
        let silent = Watch::start(&Network { peers: vec!["127.0.0.1:1".into()], ..Network::default() });
        while silent.error().by.contains("yet") && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let error = silent.error();
        assert!(error.error_ns.is_none() && error.by.contains("127.0.0.1:1"), "{error:?}");
    }
}
