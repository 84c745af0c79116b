//! The offset of another machine's clock by round trips, as NTP measures it (RFC 5905, section 8),
//! with the bound that holds whatever the way there and back take: half of what the round trip took
//! beyond the other side's own time.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Round trips of one measurement, of which the shortest counts.
const TRIPS: u64 = 8;
/// Time for one.
const PATIENCE: Duration = Duration::from_millis(200);
/// A question and an answer are equally long, so that nobody can be flooded through a responder.
const LENGTH: usize = 32;
const MAGIC: &[u8; 8] = b"takt-clk";

/// Nanoseconds of CLOCK_REALTIME since 1970, which middleware stamps messages with.
#[must_use]
pub fn realtime_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

/// Lead of another clock over ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// By so much, negative where it is behind,
    pub ahead_ns: i64,
    /// give or take this much.
    pub error_ns: u64,
}

impl Offset {
    /// No further than this are the clocks apart.
    #[must_use]
    pub fn apart_ns(&self) -> u64 {
        self.ahead_ns.unsigned_abs().saturating_add(self.error_ns)
    }
}

impl std::fmt::Display for Offset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = if self.ahead_ns < 0 { "behind" } else { "ahead" };
        let apart_ms = self.ahead_ns.unsigned_abs() as f64 / 1e6;
        write!(
            f,
            "measured by round trips: the other clock is {apart_ms:.3} ms {side}, +- {:.3} ms",
            self.error_ns as f64 / 1e6
        )
    }
}

/// Asks a responder, with our clock.
///
/// # Errors
///
/// Nobody answers there.
pub fn ask(address: SocketAddr, clock: impl Fn() -> i64) -> io::Result<Offset> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    let mut best: Option<Offset> = None;
    let mut last = None;
    for trip in 0..TRIPS {
        match one(&socket, trip, &clock) {
            Ok(offset) => best = Some(best.filter(|best| best.error_ns <= offset.error_ns).unwrap_or(offset)),
            Err(error) => {
                last = Some(error);
                if best.is_none() && trip >= 2 {
                    break;
                }
            }
        }
    }
    best.ok_or_else(|| last.unwrap_or_else(|| io::Error::from(io::ErrorKind::TimedOut)))
}

fn one(socket: &UdpSocket, trip: u64, clock: &impl Fn() -> i64) -> io::Result<Offset> {
    let until = Instant::now() + PATIENCE;
    let sent_ns = clock();
    // The token proves that the answering peer has seen the question.
    let token = (sent_ns as u64) ^ trip.rotate_left(56) ^ u64::from(std::process::id()).rotate_left(32);
    let mut question = [0; LENGTH];
    question[..8].copy_from_slice(MAGIC);
    question[8..16].copy_from_slice(&token.to_le_bytes());
    socket.send(&question)?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        socket.set_read_timeout(Some(left))?;
        let mut answer = [0; LENGTH + 1];
        let count = socket.recv(&mut answer)?;
        let came_ns = clock();
        if count != LENGTH || answer[..16] != question[..16] {
            continue;
        }
        let (received_ns, answered_ns) = (number(&answer, 16), number(&answer, 24));
        return offset(sent_ns, received_ns, answered_ns, came_ns).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the answer's times contradict each other")
        });
    }
}

fn number(bytes: &[u8], at: usize) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    i64::from_le_bytes(word)
}

/// From the four times of a round trip.
fn offset(sent_ns: i64, received_ns: i64, answered_ns: i64, came_ns: i64) -> Option<Offset> {
    let (sent, received) = (i128::from(sent_ns), i128::from(received_ns));
    let (answered, came) = (i128::from(answered_ns), i128::from(came_ns));
    let under_way = (came - sent) - (answered - received);
    if under_way < 0 || answered < received {
        return None;
    }
    let ahead_ns = i64::try_from(((received - sent) + (answered - came)) / 2).ok()?;
    Some(Offset { ahead_ns, error_ns: u64::try_from(under_way / 2 + 1).ok()? })
}

/// Answers to [`ask`] until it is dropped.
#[derive(Debug)]
pub struct Responder {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// With this clock: [`realtime_ns`], but for tests.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
    pub fn start(address: SocketAddr, clock: impl Fn() -> i64 + Send + 'static) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let address = socket.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("takt-clock".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let mut question = [0; LENGTH + 1];
                let Ok((count, from)) = socket.recv_from(&mut question) else { continue };
                let received_ns = clock();
                if count != LENGTH || question[..8] != MAGIC[..] {
                    continue;
                }
                let mut answer = [0; LENGTH];
                answer[..16].copy_from_slice(&question[..16]);
                answer[16..24].copy_from_slice(&received_ns.to_le_bytes());
                answer[24..].copy_from_slice(&clock().to_le_bytes());
                // A peer without an answer asks again.
                let _ = socket.send_to(&answer, from);
            }
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Whatever the two ways take: the true offset is within the error.
        #[test]
        fn the_true_offset_is_within_the_error(
            there in 0_i64..50_000_000, back in 0_i64..50_000_000, work in 0_i64..1_000_000,
            ahead in -2_000_000_000_i64..2_000_000_000, at in 0_i64..(1 << 61),
        ) {
            let received = at + there + ahead;
            let answered = received + work;
            let came = answered - ahead + back;
            let found = offset(at, received, answered, came).unwrap();
            proptest::prop_assert!(found.ahead_ns.abs_diff(ahead) <= found.error_ns);
        }
    }

    #[test]
    fn contradictions_are_no_offset() {
        assert_eq!(offset(100, 50, 40, 200), None);
        assert_eq!(offset(100, 50, 350, 200), None);
        assert_eq!(offset(i64::MIN, i64::MAX, i64::MAX, i64::MIN), None);
    }

    #[test]
    fn others_are_not_answered_and_do_not_answer() {
        let responder = Responder::start(([127, 0, 0, 1], 0).into(), realtime_ns).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        for question in [&b"takt-clk"[..], &[0; LENGTH], &[7; 400]] {
            socket.send_to(question, responder.address()).unwrap();
        }
        assert!(socket.recv(&mut [0; 100]).is_err());
        assert!(ask(socket.local_addr().unwrap(), realtime_ns).is_err());
        assert!(ask(responder.address(), realtime_ns).is_ok());
    }
}
