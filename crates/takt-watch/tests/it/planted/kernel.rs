//! Time that the kernel takes without asking any scheduler: software interrupts and interrupts that
//! last for milliseconds, as a driver or a firewall makes them, here by means that any program has.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use takt_rt::clock::monotonic_ns;

use crate::planted::rig::{MS, pause};
use crate::planted::{CPU, answer, settings, steered};

/// Priority for measurements of slow filters: other work of the machine must not interfere, and the
/// watched thread must.
const BEFORE_OTHERS: &str = "fifo:10";

/// Bytes 2 and 3 of the data of a packet that slow filters of a mark look at for long.
pub const MARK: u16 = 0x5502;

fn done(rc: libc::c_int, what: &str) {
    assert!(rc >= 0, "{what}: {}", io::Error::last_os_error());
}

/// Packets to itself in a network of its own, in which each passes many slow filters: the network's
/// software interrupt on the CPU of whoever sends.
pub fn softirqs(long_ns: u64) {
    let thread = takt_rt::thread::spawn("sender", &settings(BEFORE_OTHERS, Some(CPU)), move || {
        // SAFETY: takes flags alone, and concerns this thread and what it opens.
        done(unsafe { libc::unshare(libc::CLONE_NEWNET) }, "unshare");
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.is_ok_and(|status| status.success()), "ip link set lo up");
        // ETH_P_IP: not seen by whoever sends, as ETH_P_ALL would be.
        let (_slow, send) = slow(0x0800, long_ns);
        answer(|| {
            send();
        });
    });
    steered(thread);
}

/// Makes the kernel's protocols take `long_ns` for each packet with the mark that comes in or goes
/// out, before any of them has it.
pub fn protocols(long_ns: u64) {
    let thread = takt_rt::thread::spawn("filters", &settings(BEFORE_OTHERS, None), move || {
        // ETH_P_ALL: on the loopback each passes twice.
        let (_slow, _) = slow(0x0003, 2 * long_ns);
        answer(|| {});
    });
    steered(thread);
}

/// So many slow filters that a packet to itself takes `long_ns`, and what sends one.
fn slow(protocol: u16, long_ns: u64) -> (Vec<OwnedFd>, impl Fn() -> u64) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = UdpSocket::bind("127.0.0.1:0").unwrap();
    let [high, low] = MARK.to_be_bytes();
    let send = move || {
        let from_ns = monotonic_ns();
        socket.send_to(&[0, 0, high, low], target.local_addr().unwrap()).unwrap();
        monotonic_ns() - from_ns
    };
    let mut slow = Vec::new();
    // The least of three: whoever else has the CPU makes one longer.
    while slow.len() < 500 && (0..3).map(|_| send()).min() < Some(long_ns) {
        slow.push(slow_filter(protocol));
    }
    (slow, send)
}

/// A socket that sees all packets of a protocol, and takes its time to refuse those with the mark.
fn slow_filter(protocol: u16) -> OwnedFd {
    // Each becomes four of the kernel's own, and all must fit into a socket's share of memory
    // (net.core.optmem_max), which is 128 KiB.
    const INSTRUCTIONS: usize = 3000;
    /// From the network's header on: IPv4 without options, UDP, two bytes.
    const MARK_AT: u32 = 30;
    /// SKF_AD_OFF + SKF_AD_PAY_OFFSET: the kernel takes the whole packet apart for it.
    const PAYLOAD_OFFSET: u32 = (-0x1000_i32 + 52) as u32;
    let one = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let marked = libc::sock_filter { jt: 1, ..one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, MARK.into()) };
    let mut code = vec![
        one(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, MARK_AT),
        marked,
        one(libc::BPF_RET | libc::BPF_K, 0),
    ];
    code.resize(INSTRUCTIONS - 1, one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, PAYLOAD_OFFSET));
    code.push(one(libc::BPF_RET | libc::BPF_K, 0));
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: takes integers alone; the descriptor is ours.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0);
        done(fd, "socket");
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the program is whole, its size is given, and the kernel copies it.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::from_ref(&program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    done(rc, "SO_ATTACH_FILTER");
    // SAFETY: a structure of integers, bound with its size.
    let rc = unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    done(rc, "bind");
    socket
}

/// Many timers that are due at once: the CPU's timer interrupt goes on until all are done.
pub fn timers() {
    const TIMERS: usize = 4000;
    let thread = takt_rt::thread::spawn("timers", &settings("other", Some(CPU)), || {
        let mut timers: Vec<libc::timer_t> = Vec::new();
        // SAFETY: structures of integers and pointers, filled before use; the timers are of this
        // process and end with it.
        unsafe {
            // Their signals wait for ever.
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGRTMIN());
            done(libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()), "pthread_sigmask");
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGRTMIN();
            event.sigev_notify_thread_id = libc::gettid();
            for _ in 0..TIMERS {
                let mut timer: libc::timer_t = std::mem::zeroed();
                done(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), "timer_create");
                timers.push(timer);
            }
        }
        answer(move || {
            let due_ns = monotonic_ns() + 15 * MS;
            let time = |ns: u64| libc::timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            };
            let due = libc::itimerspec { it_interval: time(0), it_value: time(due_ns) };
            for &timer in &timers {
                // SAFETY: a timer of this process, and a whole structure.
                let rc =
                    unsafe { libc::timer_settime(timer, libc::TIMER_ABSTIME, &due, std::ptr::null_mut()) };
                done(rc, "timer_settime");
            }
            pause(due_ns.saturating_sub(monotonic_ns()) + MS);
        });
    });
    steered(thread);
}
