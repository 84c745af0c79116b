//! The segment behind a network interface: any master can be on the other end.
//!
//! [`VethPair`] makes two interfaces with a cable between them; [`serve`] puts the segment at one
//! end. A master must not open its end before the segment is bound, else its first frames meet
//! nobody.
//!
//! The segment's end lies in a network namespace that the process alone holds. However the process
//! ends, SIGKILL included, the kernel takes the namespace down, with it that end, and with one end
//! of a pair the other: nothing stays behind.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use takt_rt::clock;
use takt_rt::net::{self, Namespace};
use takt_rt::settings::ThreadSettings;
use takt_rt::thread::{self, Handle};

use super::late::LateFrames;
use super::process::{Outcome, Segment};
use super::raw::{InterfaceError, RawSocket, check_name};
use super::truth::{Pulse, Stay};

/// Time that the thread waits for a frame before it checks whether it must stop.
const PATIENCE: Duration = Duration::from_millis(50);
/// Longest frame taken: more than any master sends, so that a too long one is seen as such.
const BUFFER: usize = 2048;
/// A frame that took longer is reported with the CPU time that the thread got meanwhile: 59 devices
/// take some 10 us.
const LONG_NS: u64 = 200_000;
/// MTU of a pair. With the usual 1500 ethercrab's transport cuts frames of more than 1500 bytes,
/// Ethernet header included.
pub const MTU: u32 = 1518;

/// Reason why a segment cannot be placed at an interface, or a pair not be made.
#[derive(Debug, thiserror::Error)]
pub enum VethError {
    /// The interface, or the right to it.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// `ip` refused.
    #[error(
        "`ip {arguments}` failed: {answer}. Fix: run as root (CAP_NET_ADMIN), with iproute2 and the kernel module veth"
    )]
    Ip {
        /// The arguments.
        arguments: String,
        /// Its message.
        answer: String,
    },
    /// The network namespace of the segment's end.
    #[error("the network namespace of the segment's end: {0}")]
    Namespace(std::io::Error),
    /// The thread.
    #[error(transparent)]
    Thread(#[from] takt_rt::Error),
}

/// Two virtual interfaces with a cable between them; dropping removes both.
#[derive(Debug)]
pub struct VethPair {
    master: String,
    segment: String,
    /// Namespace of the segment's end; `None`: next to the master's, for lack of the right to make
    /// one.
    namespace: Option<Arc<Namespace>>,
}

/// Segments' ends of this process, and where they are.
static ENDS: Mutex<Vec<(String, Weak<Namespace>)>> = Mutex::new(Vec::new());

/// The network namespace in which the segment's end `name` of a pair of this process is.
pub(crate) fn namespace_of(name: &str) -> Option<Arc<Namespace>> {
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    ends.retain(|(_, namespace)| namespace.strong_count() > 0);
    ends.iter().find(|(end, _)| end == name).and_then(|(_, namespace)| namespace.upgrade())
}

impl VethPair {
    /// Makes and raises the pair `master` and `segment`. Whatever fails, nothing is left behind.
    ///
    /// # Errors
    /// [`InterfaceError::Name`]; [`VethError::Ip`] without privilege or `ip`.
    pub fn create(master: &str, segment: &str) -> Result<Self, VethError> {
        for name in [master, segment] {
            check_name(name)?;
        }
        let namespace = match Namespace::new() {
            Ok(namespace) => Some(Arc::new(namespace)),
            // CAP_NET_ADMIN alone makes a pair, and no namespace: then both ends are here, and a
            // kill leaves them to the next start.
            Err(_) => None,
        };
        let path = namespace.as_ref().map(|namespace| namespace.path().display().to_string());
        let mut add = vec!["link", "add", master, "type", "veth", "peer", "name", segment];
        add.extend(path.iter().flat_map(|path| ["netns", path]));
        // Both ends at once, the segment's in its namespace from the beginning.
        ip(&add)?;
        if let Some(namespace) = &namespace {
            let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
            ends.push((segment.to_owned(), Arc::downgrade(namespace)));
        }
        // From here on dropping cleans up.
        let pair = Self { master: master.to_owned(), segment: segment.to_owned(), namespace };
        pair.within(|| raise(segment))??;
        raise(master)?;
        Ok(pair)
    }

    /// Runs `body` where the segment's end is: sockets that it opens and programs that it starts
    /// see that end.
    ///
    /// # Errors
    /// [`VethError::Namespace`].
    pub fn within<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, VethError> {
        match &self.namespace {
            Some(namespace) => namespace.run(body).map_err(VethError::Namespace),
            None => Ok(body()),
        }
    }

    /// Whether the pair goes with the process whatever ends it.
    pub fn dies_with_the_process(&self) -> bool {
        self.namespace.is_some()
    }

    /// As [`create`](Self::create), with names of this process. Pairs that killed processes could
    /// leave, for want of a namespace, are removed first.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn unique() -> Result<Self, VethError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        remove_orphans();
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % 36;
        let letter = char::from_digit(number as u32, 36).unwrap_or('0');
        let pid = std::process::id();
        Self::create(&format!("tkm{pid}{letter}"), &format!("tks{pid}{letter}"))
    }

    /// The master's end.
    pub fn master(&self) -> &str {
        &self.master
    }

    /// The segment's end.
    pub fn segment(&self) -> &str {
        &self.segment
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        // Removing one end removes both.
        if let Err(error) = ip(&["link", "del", &self.master]) {
            // Standard error may be closed, and this may run while a panic unwinds.
            let _ = writeln!(
                std::io::stderr(),
                "the interfaces {} and {} could not be removed: {error}",
                self.master,
                self.segment
            );
        }
    }
}

/// Removes pairs of [`VethPair::unique`] whose process is gone.
fn remove_orphans() {
    for name in net::names() {
        let Some(rest) = name.strip_prefix("tkm") else { continue };
        let Some(pid) = rest.get(..rest.len().saturating_sub(1)).and_then(|pid| pid.parse::<u32>().ok())
        else {
            continue;
        };
        if !takt_rt::procfs::exists(pid) {
            // Somebody else may have removed it meanwhile.
            let _ = ip(&["link", "del", &name]);
        }
    }
}

/// Sets an end up.
fn raise(name: &str) -> Result<(), VethError> {
    // No IPv6 of the kernel's own on this wire.
    ip(&["link", "set", name, "addrgenmode", "none"])?;
    ip(&["link", "set", name, "mtu", &MTU.to_string(), "up"])
}

fn ip(arguments: &[&str]) -> Result<(), VethError> {
    let failed = |answer: String| VethError::Ip { arguments: arguments.join(" "), answer };
    let output = Command::new("ip").args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[derive(Debug, Default)]
struct VethState {
    stop: AtomicBool,
    send_errors: AtomicU64,
    receive_errors: AtomicU64,
}

/// A thread that serves a segment at an interface. Dropping stops it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<VethState>,
    thread: Option<Handle<Segment>>,
}

/// Puts `segment` at `interface`, in thread `name` with `settings`. On return it is bound: the
/// master may start.
///
/// # Errors
/// [`VethError`].
pub fn serve(
    interface: &str,
    segment: Segment,
    name: &str,
    settings: &ThreadSettings,
) -> Result<Server, VethError> {
    let socket = RawSocket::open(interface, PATIENCE)?;
    let shared = Arc::new(VethState::default());
    let own = Arc::clone(&shared);
    let thread = thread::spawn(name, settings, move || carry(&own, &socket, segment))?;
    Ok(Server { shared, thread: Some(thread) })
}

impl Server {
    /// Frames that could not be sent back, and receive calls that failed (interface down).
    pub fn errors(&self) -> (u64, u64) {
        (self.shared.send_errors.load(Ordering::Relaxed), self.shared.receive_errors.load(Ordering::Relaxed))
    }

    /// Id of the thread.
    pub fn tid(&self) -> Option<i32> {
        self.thread.as_ref().map(Handle::tid)
    }

    /// Settings that the thread was granted.
    pub fn granted(&self) -> Option<&takt_rt::settings::Granted> {
        self.thread.as_ref().map(Handle::granted)
    }

    /// Stops the thread and gives the segment back.
    pub fn stop(mut self) -> Option<Segment> {
        self.end()
    }

    fn end(&mut self) -> Option<Segment> {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn carry(shared: &VethState, socket: &RawSocket, mut segment: Segment) -> Segment {
    let mut buffer = [0; BUFFER];
    let mut late = LateFrames::new();
    let send = |frame: &[u8]| {
        if socket.send(frame).is_err() {
            shared.send_errors.fetch_add(1, Ordering::Relaxed);
        }
    };
    while !shared.stop.load(Ordering::Acquire) {
        if let Some(due) = late.next_ns() {
            socket.wait(Duration::from_nanos(due.saturating_sub(clock::monotonic_ns())).min(PATIENCE));
            late.release(clock::monotonic_ns(), send);
            // There may be nothing to receive: go on waiting for the rest.
            if late.next_ns().is_some() && !socket.has_frame() {
                continue;
            }
        }
        let length = match socket.receive(&mut buffer) {
            Ok(Some(length)) => length,
            Ok(None) => continue,
            Err(_) => {
                // The interface went down; it may come up again.
                shared.receive_errors.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PATIENCE);
                continue;
            }
        };
        let ran_before_ns = segment.is_asked().then(clock::thread_cpu_ns);
        let now_ns = clock::monotonic_ns();
        segment.pulse = ran_before_ns.map(|_| Pulse::begin());
        let frame = &mut buffer[..length];
        if let Outcome::Return { copies, delay_ns } = segment.process(frame, now_ns) {
            let done_ns = clock::monotonic_ns();
            let ran_before_ns = ran_before_ns.filter(|_| done_ns - now_ns >= LONG_NS);
            let still_ns = segment.pulse.take().map(Pulse::end).filter(|_| ran_before_ns.is_some());
            let stay = Stay {
                at_ns: now_ns,
                left_ns: done_ns.saturating_add(delay_ns),
                held_ns: delay_ns,
                ran_ns: ran_before_ns.map(|before_ns| clock::thread_cpu_ns().saturating_sub(before_ns)),
                still_ns,
            };
            for _ in 0..copies {
                if delay_ns > 0 {
                    late.keep(frame, now_ns.saturating_add(delay_ns));
                } else {
                    send(frame);
                }
            }
            segment.passed(frame, stay);
        }
    }
    segment
}
