//! Every cause planted on purpose beside a traced real-time thread must be named in nine of ten
//! cases.
//!
//! One test, because the plants disturb each other. `TAKT_TRACE_SHOW=1` prints what was found.

// Helpers outside `#[test]` functions may fail loudly as well.
#![allow(clippy::unwrap_used, clippy::type_complexity)]

use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_rt::clock::monotonic_ns;
use takt_rt::pi_mutex::PiMutex;
use takt_rt::placement::{CpuSet, set_affinity};
use takt_trace::Cause;

use rig::{CPU, Outcome, Plant, pause, settings, spin, ten_times};

mod rig;

const OTHER_CPU: usize = 1;
const MS: u64 = 1_000_000;

fn plant<'a>(name: &'static str, expected: &'a [Cause], who: &'a str) -> Plant<'a> {
    Plant { name, policy: "fifo:50", bound: true, period_ns: 2 * MS, late_ns: MS, expected, who }
}

/// A FIFO hog in another process: this very test, started anew.
fn hog() -> Option<Outcome> {
    plant("hog", &[Cause::HigherPriority], "hog").run(
        |_| {},
        |_| {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "planted::hog_process", "--nocapture"])
                .env("TAKT_TRACE_HOG", "1")
                .output()
                .unwrap();
            let text = String::from_utf8(child.stdout).unwrap();
            let window = |line: &str| {
                let (from, to) = line.strip_prefix("HOG ")?.split_once(' ')?;
                Some((from.parse().ok()?, to.parse().ok()?))
            };
            text.lines().filter_map(window).collect()
        },
    )
}

/// Does nothing unless it is the child of [`hog`].
#[test]
fn hog_process() {
    if std::env::var_os("TAKT_TRACE_HOG").is_none() {
        return;
    }
    let hog = takt_rt::thread::spawn("hog", &settings("fifo:90", Some(CPU)), || ten_times(|| spin(4 * MS)));
    // The first line may share its line with what the test harness prints.
    println!();
    for (from_ns, to_ns) in hog.unwrap().join().unwrap() {
        println!("HOG {from_ns} {to_ns}");
    }
}

fn helper() -> Option<Outcome> {
    plant("own helper thread", &[Cause::OwnThread], "helper").run(
        |_| {},
        |_| {
            let helper = takt_rt::thread::spawn("helper", &settings("fifo:60", Some(CPU)), || {
                ten_times(|| spin(4 * MS))
            });
            helper.unwrap().join().unwrap()
        },
    )
}

fn lock() -> Option<Outcome> {
    let mutex = Arc::new(PiMutex::new(()).unwrap());
    let held = Arc::clone(&mutex);
    plant("lock holder", &[Cause::Lock], "holder").run(
        move |_| drop(mutex.lock().unwrap()),
        move |_| {
            let holder = takt_rt::thread::spawn("holder", &settings("other", Some(OTHER_CPU)), move || {
                ten_times(|| {
                    let guard = held.lock().unwrap();
                    spin(5 * MS);
                    drop(guard);
                })
            });
            holder.unwrap().join().unwrap()
        },
    )
}

/// Ten jobs, `gap` releases apart, do something; their windows are handed out when all have.
fn in_ten_jobs(
    gap: u64,
    act: impl Fn() + Send + 'static,
) -> (impl FnMut(u64) + Send + 'static, impl FnOnce(i32) -> Vec<(u64, u64)>) {
    let windows = Arc::new((AtomicU64::new(0), [const { (AtomicU64::new(0), AtomicU64::new(0)) }; 10]));
    let reported = Arc::clone(&windows);
    // The reader has found the new thread by then.
    let mut last = 3 * gap;
    let job = move |index: u64| {
        let count = windows.0.load(Ordering::Relaxed) as usize;
        if index > last + gap && count < 10 {
            last = index;
            windows.1[count].0.store(monotonic_ns(), Ordering::Relaxed);
            act();
            windows.1[count].1.store(monotonic_ns(), Ordering::Relaxed);
            windows.0.store(count as u64 + 1, Ordering::Release);
        }
    };
    let wait = move |_| {
        let give_up_ns = monotonic_ns() + 20_000 * MS;
        while reported.0.load(Ordering::Acquire) < 10 && monotonic_ns() < give_up_ns {
            pause(10 * MS);
        }
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        reported.1.iter().map(|(from, to)| (load(from), load(to))).filter(|window| window.1 > 0).collect()
    };
    (job, wait)
}

fn page_faults() -> Option<Outcome> {
    const BYTES: usize = 32 << 20;
    let (job, wait) = in_ten_jobs(20, || {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private mapping, written within its bounds a page apart, and unmapped
        // whole.
        unsafe {
            let map =
                libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            libc::madvise(map, BYTES, libc::MADV_NOHUGEPAGE);
            for offset in (0..BYTES).step_by(4096) {
                map.cast::<u8>().add(offset).write_volatile(1);
            }
            libc::munmap(map, BYTES);
        }
    });
    plant("page faults", &[Cause::PageFault], "").run(job, wait)
}

fn migration() -> Option<Outcome> {
    let (job, wait) = in_ten_jobs(20, || {
        let until_ns = monotonic_ns() + 4 * MS;
        while monotonic_ns() < until_ns {
            for cpu in [OTHER_CPU, CPU] {
                set_affinity(0, &CpuSet::single(cpu).unwrap()).unwrap();
            }
        }
    });
    plant("migration", &[Cause::Migration], "").run(job, wait)
}

/// The kernel enforces the budget at its tick, so the period is some ticks long.
fn deadline_budget() -> Option<Outcome> {
    let (job, wait) = in_ten_jobs(2, || spin(9 * MS));
    let plant = Plant {
        policy: "deadline:1ms/30ms/30ms",
        bound: false,
        period_ns: 30 * MS,
        late_ns: 20 * MS,
        ..plant("deadline budget", &[Cause::Throttled], "")
    };
    plant.run(job, wait)
}

/// A hog below the traced thread uses up the budget that all real-time threads of a CPU have in
/// common.
fn real_time_budget() -> Option<Outcome> {
    // Somebody must starve on that CPU for the kernel to step in.
    let stop = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&stop);
    let starving = std::thread::spawn(move || {
        set_affinity(0, &CpuSet::single(CPU).unwrap()).unwrap();
        while seen.load(Ordering::Relaxed) == 0 {
            std::hint::spin_loop();
        }
    });
    let outcome = plant("real-time budget", &[Cause::Throttled], "").run(
        |_| {},
        |_| {
            let hog = takt_rt::thread::spawn("greedy", &settings("fifo:40", Some(CPU)), || {
                let mut windows = Vec::new();
                // Split, so that each second's throttling is a case of its own.
                for _ in 0..3 {
                    let from_ns = monotonic_ns();
                    spin(1000 * MS);
                    windows.push((from_ns, monotonic_ns()));
                }
                windows
            });
            hog.unwrap().join().unwrap()
        },
    );
    stop.store(1, Ordering::Relaxed);
    starving.join().unwrap();
    outcome
}

fn stop_signal() -> Option<Outcome> {
    plant("SIGSTOP", &[Cause::Stopped], "").run(
        |_| {},
        |_| {
            let script = format!("kill -STOP {0}; sleep 0.006; kill -CONT {0}", std::process::id());
            ten_times(|| {
                assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
            })
        },
    )
}

/// A multicast packet on the loopback device, delivered within the software interrupt to hundreds
/// of sockets, each with a long filter program.
fn softirq_storm() -> Option<Outcome> {
    let sockets = match listeners(600) {
        Ok(sockets) => sockets,
        Err(error) => {
            takt_witness::skip!("in part: softirq storm: {error}");
            return None;
        }
    };
    let to = (GROUP, sockets[0].local_addr().unwrap().port());
    let plant = Plant { late_ns: MS, ..plant("softirq storm", &[Cause::Softirq], "NET_RX") };
    plant.run(
        |_| {},
        move |_| {
            let sender = takt_rt::thread::spawn("sender", &settings("other:-20", Some(CPU)), move || {
                let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_multicast_loop_v4(true).unwrap();
                let windows = ten_times(|| {
                    for _ in 0..3 {
                        socket.send_to(&[0; 64], to).unwrap();
                    }
                });
                drop(sockets);
                windows
            });
            sender.unwrap().join().unwrap()
        },
    )
}

const GROUP: std::net::Ipv4Addr = std::net::Ipv4Addr::new(239, 255, 77, 1);

fn listeners(count: usize) -> std::io::Result<Vec<std::net::UdpSocket>> {
    // Multiplies (BPF_ALU | BPF_MUL | BPF_X), and at the end refuses the packet: the time is in the
    // filter, nothing is queued.
    let multiply = libc::sock_filter { code: 0x2c, jt: 0, jf: 0, k: 0 };
    let mut program = vec![multiply; 4000];
    program.push(libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 });
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let mut sockets: Vec<std::net::UdpSocket> = Vec::new();
    for _ in 0..count {
        let port =
            sockets.first().map_or(0, |socket| socket.local_addr().map_or(0, |address| address.port()));
        let socket = bind(port)?;
        let set = |option: libc::c_int, value: *const libc::c_void, bytes: usize| {
            // SAFETY: the value is alive and has the size that the option expects.
            match unsafe {
                libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, bytes as u32)
            } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        set(libc::SO_ATTACH_FILTER, (&raw const filter).cast(), size_of_val(&filter))?;
        socket.join_multicast_v4(&GROUP, &std::net::Ipv4Addr::LOCALHOST)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// A UDP socket that shares its port.
fn bind(port: u16) -> std::io::Result<std::net::UdpSocket> {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: plain system calls; the descriptor is fresh and owned at once, the structures have
    // their sizes.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let one: libc::c_int = 1;
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const one).cast(), 4);
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        address.sin_port = port.to_be();
        let size = size_of::<libc::sockaddr_in>() as u32;
        if libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(fd.into())
    }
}

#[test]
#[ignore = "takes 20 s"]
fn planted_causes_are_named() {
    match takt_trace::Tracer::start(&takt_trace::TraceOptions::default()) {
        Ok(tracer) => drop(tracer),
        Err(error) => {
            assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{error}");
            takt_witness::skip!("{error}");
            return;
        }
    }
    let only = std::env::var("TAKT_TRACE_ONLY").unwrap_or_default();
    let plants: [(&str, fn() -> Option<Outcome>); 9] = [
        ("hog", hog),
        ("helper", helper),
        ("lock", lock),
        ("fault", page_faults),
        ("migration", migration),
        ("deadline", deadline_budget),
        ("stop", stop_signal),
        ("softirq", softirq_storm),
        ("budget", real_time_budget),
    ];
    let mut failures = Vec::new();
    for (_, plant) in plants.into_iter().filter(|plant| plant.0.contains(&only)) {
        let Some(outcome) = plant() else { continue };
        println!(
            "{}: {} of {} right, {:.1} % of the releases matched, {} events lost",
            outcome.name,
            outcome.right,
            outcome.cases,
            outcome.matched * 100.0,
            outcome.lost
        );
        let least_cases = if outcome.name == "real-time budget" { 1 } else { 8 };
        if outcome.cases < least_cases || outcome.right * 10 < outcome.cases * 9 {
            failures.push(outcome);
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
