//! The segment behind a network interface: any master can be on the other end.
//!
//! [`VethPair`] makes two interfaces with a cable between them; [`serve`] puts the segment at one end. A master must not
//! open its end before the segment is bound, else its first frames meet nobody.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use takt_rt::clock;
use takt_rt::settings::ThreadSettings;
use takt_rt::thread::{self, Handle};

use super::late::LateFrames;
use super::process::{Outcome, Segment};
use super::wire::ETHERTYPE;

/// How long the thread waits for a frame before it looks whether it shall stop.
const PATIENCE: Duration = Duration::from_millis(50);
/// Longest frame taken: more than any master sends, so that a too long one is seen as such.
const BUFFER: usize = 2048;
/// Longest interface name (IFNAMSIZ less the NUL).
const MAX_NAME: usize = 15;
/// MTU of a pair. With the usual 1500 ethercrab's transport cuts frames of more than 1500 bytes, Ethernet header
/// included.
pub const MTU: u32 = 1518;

/// Why a segment cannot be put at an interface.
#[derive(Debug, thiserror::Error)]
pub enum VethError {
    /// No such interface.
    #[error("there is no network interface \"{name}\"; there are: {known}. Fix: `ip link` lists them")]
    NoInterface {
        /// The name asked for.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// The interface is there, but down.
    #[error("network interface \"{name}\" is down. Fix: ip link set {name} up")]
    Down {
        /// The interface.
        name: String,
    },
    /// Not Ethernet.
    #[error(
        "network interface \"{name}\" is of link type {found}, expected 1 (Ethernet); EtherCAT needs Ethernet frames"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// ARPHRD_ type.
        found: String,
    },
    /// Raw sockets are for the privileged.
    #[error(
        "no right to open a raw socket on \"{name}\". Fix: run as root, or give the program the capability: \
         setcap cap_net_raw,cap_net_admin+ep PROGRAM"
    )]
    NoRight {
        /// The interface.
        name: String,
    },
    /// The system said something else.
    #[error("{what} on \"{name}\": {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The interface.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// `ip` refused.
    #[error(
        "`ip {arguments}` failed: {answer}. Fix: run as root (CAP_NET_ADMIN), with iproute2 and the kernel module veth"
    )]
    Ip {
        /// What was asked.
        arguments: String,
        /// What it said.
        answer: String,
    },
    /// A name that no interface can have.
    #[error("\"{name}\" cannot be an interface's name: 1 to 15 characters without blanks and slashes")]
    Name {
        /// The name given.
        name: String,
    },
    /// The thread.
    #[error(transparent)]
    Thread(#[from] takt_rt::Error),
}

/// Two virtual interfaces with a cable between them; dropping removes both.
#[derive(Debug)]
pub struct VethPair {
    master: String,
    segment: String,
}

impl VethPair {
    /// Makes and raises the pair `master` and `segment`. Whatever fails, nothing is left behind.
    ///
    /// # Errors
    /// [`VethError::Name`]; [`VethError::Ip`] without privilege or `ip`.
    pub fn create(master: &str, segment: &str) -> Result<Self, VethError> {
        for name in [master, segment] {
            check_name(name)?;
        }
        ip(&["link", "add", master, "type", "veth", "peer", "name", segment])?;
        // From here on dropping cleans up.
        let pair = Self { master: master.to_owned(), segment: segment.to_owned() };
        let mtu = MTU.to_string();
        for name in [master, segment] {
            // No IPv6 of the kernel's own on this wire.
            ip(&["link", "set", name, "addrgenmode", "none"])?;
            ip(&["link", "set", name, "mtu", &mtu, "up"])?;
        }
        Ok(pair)
    }

    /// As [`create`](Self::create), with names of this process. Pairs that killed processes have left are
    /// removed first.
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
            eprintln!("the interfaces {} and {} are left behind: {error}", self.master, self.segment);
        }
    }
}

/// Removes pairs of [`VethPair::unique`] whose process is gone.
fn remove_orphans() {
    for name in interfaces() {
        let Some(rest) = name.strip_prefix("tkm") else { continue };
        let Some(pid) = rest.get(..rest.len().saturating_sub(1)).and_then(|pid| pid.parse::<u32>().ok())
        else {
            continue;
        };
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            // Somebody else may have removed it meanwhile.
            let _ = ip(&["link", "del", &name]);
        }
    }
}

fn check_name(name: &str) -> Result<(), VethError> {
    let fits = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    if fits && name != "." && name != ".." { Ok(()) } else { Err(VethError::Name { name: name.to_owned() }) }
}

fn ip(arguments: &[&str]) -> Result<(), VethError> {
    let failed = |answer: String| VethError::Ip { arguments: arguments.join(" "), answer };
    let output = Command::new("ip").args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn interfaces() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Checks that `name` is an Ethernet interface that is up.
///
/// # Errors
/// [`VethError::Name`], [`VethError::NoInterface`], [`VethError::NotEthernet`], [`VethError::Down`].
pub fn check_interface(name: &str) -> Result<(), VethError> {
    check_name(name)?;
    let own = || name.to_owned();
    let read = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/{file}"));
    let Ok(flags) = read("flags") else {
        return Err(VethError::NoInterface { name: own(), known: interfaces().join(", ") });
    };
    let kind = read("type").unwrap_or_default();
    if kind.trim() != "1" {
        return Err(VethError::NotEthernet { name: own(), found: kind.trim().to_owned() });
    }
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    if flags & libc::IFF_UP as u32 == 0 {
        return Err(VethError::Down { name: own() });
    }
    Ok(())
}

/// A raw socket that gets the EtherCAT frames of one interface.
#[derive(Debug)]
struct RawSocket(OwnedFd);

/// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h.
const IGNORE_OUTGOING: libc::c_int = 23;

impl RawSocket {
    fn open(name: &str) -> Result<Self, VethError> {
        check_interface(name)?;
        let own = || name.to_owned();
        let system =
            |what| VethError::System { what, name: name.to_owned(), source: io::Error::last_os_error() };
        let protocol = ETHERTYPE.to_be();
        // SAFETY: no memory is handed over.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::c_int::from(protocol))
        };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => VethError::NoRight { name: own() },
                _ => VethError::System { what: "opening a raw socket", name: own(), source: error },
            });
        }
        // SAFETY: the descriptor is new and nobody else has it.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // Our own answers must not come back as requests.
        socket
            .option(libc::SOL_PACKET, IGNORE_OUTGOING, &1_i32)
            .map_err(|_| system("ignoring outgoing frames"))?;
        let patience = libc::timeval { tv_sec: 0, tv_usec: PATIENCE.as_micros() as libc::suseconds_t };
        socket
            .option(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience)
            .map_err(|_| system("setting the time-out"))?;
        let c_name = std::ffi::CString::new(name).map_err(|_| VethError::Name { name: own() })?;
        // SAFETY: the name ends with NUL.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        // SAFETY: all bytes zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        // SAFETY: the address is as long as told.
        let bound = unsafe {
            libc::bind(
                socket.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound < 0 { Err(system("binding the raw socket")) } else { Ok(socket) }
    }

    fn option<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        let (fd, length) = (self.0.as_raw_fd(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the value is as long as told.
        let outcome = unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), length) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// One frame; `Ok(None)` when none came in time.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the buffer is as long as told.
        let length = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if length >= 0 {
            return Ok(Some(length as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        }
    }

    fn has_frame(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for a frame, at most so long; whether one is there.
    fn wait(&self, most: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: most.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(most.subsec_nanos() as i32),
        };
        // SAFETY: one descriptor, as told; no signal mask.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) > 0 }
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame is as long as told.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    send_errors: AtomicU64,
    receive_errors: AtomicU64,
}

/// A thread that serves a segment at an interface. Dropping stops it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<Handle<Segment>>,
}

/// Puts `segment` at `interface`, in thread `name` with `settings`. On return it is bound: the master may start.
///
/// # Errors
/// [`VethError`].
pub fn serve(
    interface: &str,
    segment: Segment,
    name: &str,
    settings: &ThreadSettings,
) -> Result<Server, VethError> {
    let socket = RawSocket::open(interface)?;
    let shared = Arc::new(Shared::default());
    let own = Arc::clone(&shared);
    let thread = thread::spawn(name, settings, move || carry(&own, &socket, segment))?;
    Ok(Server { shared, thread: Some(thread) })
}

impl Server {
    /// Frames that could not be sent back, and receive calls that failed (interface down).
    pub fn errors(&self) -> (u64, u64) {
        (self.shared.send_errors.load(Ordering::Relaxed), self.shared.receive_errors.load(Ordering::Relaxed))
    }

    /// What the thread was granted.
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

fn carry(shared: &Shared, socket: &RawSocket, mut segment: Segment) -> Segment {
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
        let now_ns = clock::monotonic_ns();
        let frame = &mut buffer[..length];
        if let Outcome::Return { copies, delay_ns } = segment.process(frame, now_ns) {
            for _ in 0..copies {
                if delay_ns > 0 {
                    late.keep(frame, now_ns.saturating_add(delay_ns));
                } else {
                    send(frame);
                }
            }
        }
    }
    segment
}
