//! The socket, its memory and rings, and the ways to have one, in order.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::SendFlags;
use takt_rt::bpf::XdpMode;
use takt_rt::clock::monotonic_ns;
use takt_rt::net;
use xdp::error::SocketError;
use xdp::nic::NicIndex;
use xdp::slab::{Slab, StackSlab};
use xdp::socket::{OptName, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, Umem, UmemCfgBuilder};
use xdp::{CompletionRing, RingConfigBuilder, RxRing, WakableFillRing, WakableTxRing};

use super::super::error::ControlError;
use super::super::wire::{MAX_FRAME_BYTES, Wire, index_of, must_be_up, wait_for_frame};
use super::program::{Loaded, MARK, STAMP_BYTES};
use super::{MAX_QUEUES, XdpAttach, XdpOptions};

/// Frames that the card may fill: more than the receive rings of usual cards (256 to 512), which a
/// zero-copy driver stocks from these.
const RECEIVED: u32 = 1024;
/// Frames on their way out: many times those of a cycle.
const SENT: u32 = 64;
/// Shortest Ethernet frame, without its checksum: a card that reads our memory itself may not pad.
const MIN_FRAME_BYTES: usize = 60;
/// Longest time without link after the driver has reconfigured. Network cards then renegotiate,
/// which takes 2 to 4 s.
const LINK_PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for which a queue may be occupied, and memory exhausted.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

/// A way to have a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BindMode {
    mode: XdpMode,
    /// The kernel copies, even where the driver could go without.
    copy: bool,
}

const BIND_MODES: [BindMode; 3] = [
    BindMode { mode: XdpMode::Driver, copy: false },
    // Some drivers promise zero copy and fail, as for want of queues.
    BindMode { mode: XdpMode::Driver, copy: true },
    BindMode { mode: XdpMode::Generic, copy: true },
];

impl BindMode {
    fn name(self) -> &'static str {
        match (self.mode, self.copy) {
            (XdpMode::Driver, false) => "native",
            (XdpMode::Driver, true) => "native with copies",
            (XdpMode::Generic, _) => "generic",
        }
    }
}

/// Reason why a way was not possible.
struct Refusal {
    what: &'static str,
    source: io::Error,
}

impl Refusal {
    /// Whether it may be about a socket that has just ended.
    fn may_pass(&self) -> bool {
        let code = self.source.raw_os_error();
        (self.what == BINDING && code == Some(libc::EBUSY))
            || (self.what == MEMORY && code == Some(libc::ENOBUFS))
    }
}

/// An interface through AF_XDP.
pub(super) struct Xdp {
    // First: frames go their usual way again before the socket goes.
    _attached: OwnedFd,
    fill: WakableFillRing,
    received: RxRing,
    completed: CompletionRing,
    sent: WakableTxRing,
    socket: XdpSocket,
    // Last: the rings are about this memory.
    memory: Umem,
    zero_copy: bool,
    arrived_ns: Option<u64>,
    how: String,
}

impl Xdp {
    pub(super) fn open(name: &str, options: &XdpOptions) -> Result<Self, ControlError> {
        let index = index_of(name)?;
        must_be_up(name)?;
        let error =
            |reason: String, fix: String| ControlError::Xdp { interface: name.to_owned(), reason, fix };
        if options.queue >= MAX_QUEUES {
            let reason = format!("queue = {}", options.queue);
            return Err(error(reason, format!("accepted are 0 to {}", MAX_QUEUES - 1)));
        }
        let ways = BIND_MODES.into_iter().filter(|way| match options.attach {
            XdpAttach::Auto => true,
            XdpAttach::Native => way.mode == XdpMode::Driver,
            XdpAttach::Generic => way.mode == XdpMode::Generic,
        });
        let (mut reasons, mut fix) = (Vec::new(), String::new());
        for way in ways {
            match Self::try_patiently(index, options.queue, way) {
                Ok(wire) => {
                    wait_for_link(name);
                    return Ok(wire);
                }
                Err(refusal) => {
                    reasons.push(format!("{}: {}: {}", way.name(), refusal.what, refusal.source));
                    fix = way_out(name, index, options.queue, &refusal);
                    if same_for_all(&refusal) {
                        break;
                    }
                }
            }
        }
        Err(error(reasons.join("; "), fix))
    }

    /// In a few words, as in "native, zero copy".
    pub(super) fn how(&self) -> &str {
        &self.how
    }

    /// Tries a way for a while where the queue is taken or memory is used up: the kernel gives both
    /// back some time after a socket's end, and that may have been this robot's, a moment ago.
    fn try_patiently(index: u32, queue: u32, way: BindMode) -> Result<Self, Refusal> {
        let end_ns = monotonic_ns() + QUEUE_PATIENCE.as_nanos() as u64;
        loop {
            match Self::try_mode(index, queue, way) {
                Err(refusal) if refusal.may_pass() && monotonic_ns() < end_ns => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }

    fn try_mode(index: u32, queue: u32, way: BindMode) -> Result<Self, Refusal> {
        let failed = |what| move |source: io::Error| Refusal { what, source };
        let outside = |error: xdp::error::Error| match error {
            xdp::error::Error::Socket(error) => socket_refusal(error),
            other => Refusal { what: "rings and memory", source: io::Error::other(other.to_string()) },
        };
        let config = UmemCfgBuilder {
            frame_size: FrameSize::FourK,
            // The program's stamps lie there, where `receive` reads them.
            head_room: STAMP_BYTES as u32,
            frame_count: RECEIVED + SENT,
            ..UmemCfgBuilder::default()
        };
        let mut memory =
            config.build().map_err(outside).and_then(|config| Umem::map(config).map_err(failed("memory")))?;
        let rings = RingConfigBuilder {
            rx_count: RECEIVED,
            tx_count: SENT,
            fill_count: RECEIVED,
            completion_count: SENT,
        };
        let rings = rings.build().map_err(outside)?;
        let mut socket = XdpSocketBuilder::new().map_err(socket_refusal)?;
        let (rings, mut flags) = socket.build_wakable_rings(&memory, rings).map_err(socket_refusal)?;
        let (Some(received), Some(sent)) = (rings.rx_ring, rings.tx_ring) else {
            return Err(failed("rings")(io::ErrorKind::Unsupported.into()));
        };
        let mut fill = rings.fill_ring;
        // SAFETY: the memory lives as long as the socket: both end with this value, or here on an
        // error.
        unsafe { fill.enqueue(&mut memory, RECEIVED as usize, false) }.map_err(failed("rings"))?;
        let program = Loaded::new(socket.as_raw_fd(), queue).map_err(failed(LOADING))?;
        if way.copy {
            flags.force_copy();
        }
        // Before the program, as libxdp does: attaching may take the link down, and then it does so
        // once.
        let socket = socket.bind(NicIndex(index), queue, flags).map_err(socket_refusal)?;
        let attached = program.attach(index as i32, way.mode).map_err(failed(ATTACHING))?;
        let zero_copy = is_zero_copy(&socket);
        let place = if way.mode == XdpMode::Driver { "native" } else { "generic" };
        let copies = if zero_copy { "zero copy" } else { "copied" };
        let stamps = if program.stamped { "" } else { ", without stamps" };
        Ok(Self {
            _attached: attached,
            fill,
            received,
            completed: rings.completion_ring,
            sent,
            socket,
            memory,
            zero_copy,
            arrived_ns: None,
            how: format!("{place}, {copies}{stamps}"),
        })
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket is open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

const CREATING: &str = "making a socket";
const MEMORY: &str = "sharing memory with the kernel";
const LOADING: &str = "loading the program";
const ATTACHING: &str = "attaching the program";
const BINDING: &str = "binding to the queue";

fn socket_refusal(error: SocketError) -> Refusal {
    match error {
        SocketError::SocketCreation(source) => Refusal { what: CREATING, source },
        SocketError::Bind(source) => Refusal { what: BINDING, source },
        SocketError::SetSockOpt { inner, option: OptName::UmemRegion } => {
            Refusal { what: MEMORY, source: inner }
        }
        SocketError::SetSockOpt { inner, .. }
        | SocketError::GetSockOpt { inner, .. }
        | SocketError::RingMap { inner, .. } => Refusal { what: "making the rings", source: inner },
    }
}

/// Whether other ways end here too.
fn same_for_all(refusal: &Refusal) -> bool {
    let code = refusal.source.raw_os_error();
    match refusal.what {
        ATTACHING => matches!(code, Some(libc::EPERM | libc::EBUSY | libc::EEXIST)),
        BINDING => code == Some(libc::EBUSY),
        _ => true,
    }
}

fn way_out(name: &str, index: u32, queue: u32, refusal: &Refusal) -> String {
    let code = refusal.source.raw_os_error().unwrap_or(0);
    match (refusal.what, code) {
        (_, libc::EPERM | libc::EACCES) => "setcap \
            cap_net_raw,cap_net_admin,cap_bpf,cap_sys_nice,cap_ipc_lock+ep on the program, or run it as root"
            .to_owned(),
        (CREATING, libc::EAFNOSUPPORT) => "use a kernel with CONFIG_XDP_SOCKETS, or a raw socket".to_owned(),
        (MEMORY, libc::ENOBUFS) => "grant cap_ipc_lock, or a `ulimit -l` of 8192 or more".to_owned(),
        (ATTACHING, libc::EBUSY | libc::EEXIST) => format!(
            "another XDP program is attached to {name} (`ip link show {name}`): end the program that attached it, or `ip link set {name} \
             xdp off`"
        ),
        (ATTACHING, libc::EINVAL) => format!(
            "use a kernel of 5.9 or later, an MTU that the driver accepts with XDP (`ip link set {name} mtu 1500`), attach = \"generic\", \
             or a raw socket"
        ),
        (BINDING, libc::EBUSY) => {
            format!(
                "another AF_XDP socket uses queue {queue} of {name}: end its program, or use another queue"
            )
        }
        (BINDING, libc::EINVAL) => {
            let there = NicIndex(index).queue_counts().map(|queues| queues.rx_count());
            let there = there.map_or_else(|_| String::new(), |count| format!(" ({name} has {count})"));
            format!("queue = {queue} must be one that the interface has{there}; `ethtool -l {name}` lists them")
        }
        _ => "attach = \"generic\" works with every driver; otherwise use a raw socket (wire.kind = \"interface\")"
            .to_owned(),
    }
}

/// Whether the card works on our memory itself.
fn is_zero_copy(socket: &XdpSocket) -> bool {
    /// `XDP_OPTIONS` and `XDP_OPTIONS_ZEROCOPY` of linux/if_xdp.h.
    const OPTIONS: libc::c_int = 8;
    const ZERO_COPY: u32 = 1;
    let mut options = 0_u32;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the kernel writes four bytes, as instructed.
    let answer = unsafe {
        let value = (&raw mut options).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, OPTIONS, value, &raw mut length)
    };
    answer == 0 && options & ZERO_COPY != 0
}

/// Waits until the link is up again. If it stays down, the bring-up will report that no device
/// answers.
fn wait_for_link(name: &str) {
    let end_ns = monotonic_ns() + LINK_PATIENCE.as_nanos() as u64;
    let running = libc::IFF_RUNNING as u32;
    while net::interface(name).is_ok_and(|interface| interface.flags & running == 0)
        && monotonic_ns() < end_ns
    {
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Wire for Xdp {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let full = || io::Error::from_raw_os_error(libc::ENOBUFS);
        self.completed.dequeue(&mut self.memory, SENT as usize);
        // SAFETY: the packet is handed to the ring or freed below, before the memory goes.
        let mut packet = unsafe { self.memory.alloc() }.ok_or_else(full)?;
        let pad = [0; MIN_FRAME_BYTES];
        let pad = pad.get(frame.len()..).unwrap_or_default();
        let mut batch = StackSlab::<1>::new();
        let written = packet.append(frame).and_then(|()| packet.append(pad));
        batch.push_front(packet);
        let queued = match written {
            // SAFETY: the memory lives as long as the socket.
            Ok(()) => unsafe { self.sent.send(&mut batch, false) },
            Err(error) => Err(io::Error::other(error)),
        };
        if let Some(packet) = batch.pop_back() {
            self.memory.free_packet(packet);
            queued?;
            return Err(full());
        }
        match rustix::net::send(self.descriptor(), &[], SendFlags::DONTWAIT) {
            // It is in the ring, and goes with the next call that asks for sending or waits.
            Ok(_)
            | Err(
                rustix::io::Errno::AGAIN
                | rustix::io::Errno::BUSY
                | rustix::io::Errno::NOBUFS
                | rustix::io::Errno::INTR,
            ) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut batch = StackSlab::<1>::new();
        // SAFETY: the packet is freed below, before the memory goes.
        unsafe { self.received.recv(&self.memory, &mut batch) };
        let Some(mut packet) = batch.pop_back() else { return Ok(None) };
        let length = packet.len().min(buffer.len());
        buffer[..length].copy_from_slice(&packet[..length]);
        self.arrived_ns =
            packet.adjust_head(-(STAMP_BYTES as i32)).ok().and_then(|()| take_stamp(&mut packet));
        self.memory.free_packet(packet);
        // A zero-copy driver that found nothing to fill must be reported; it costs a call, which
        // others need not make. If it fails the link is down, which sending reports; this frame has
        // come. SAFETY: the memory lives as long as the socket.
        let _ = unsafe { self.fill.enqueue(&mut self.memory, 1, self.zero_copy) };
        Ok(Some(length))
    }

    fn wait(&mut self, deadline_ns: u64) {
        wait_for_frame(self.descriptor(), deadline_ns);
    }

    fn arrived_ns(&self) -> Option<u64> {
        self.arrived_ns
    }
}

/// The stamp at the beginning of `bytes`, which no later frame shall be taken to have.
fn take_stamp(bytes: &mut [u8]) -> Option<u64> {
    let (mark, rest) = bytes.split_first_chunk_mut::<8>()?;
    let stamp_ns = u64::from_ne_bytes(*rest.first_chunk()?);
    let marked = u64::from_ne_bytes(*mark) == MARK;
    *mark = [0; 8];
    marked.then_some(stamp_ns)
}
