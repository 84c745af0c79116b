//! The SSM path in steady state, against the simulated controller over a real socket: no
//! allocation, no page fault, no system call but the sleep and the non-blocking send.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use takt_link_rtde::client::{Link, Opened, RtdeConfig};
use takt_link_rtde::sim::{SimConfig, Simulator};
use takt_perception::{Detections, FrameHealth, Object};
use takt_robot_cell::config::LightOutputs;
use takt_robot_cell::guard::Alarm;
use takt_robot_cell::records::SsmJob;
use takt_robot_cell::ssm::{Monitor, SsmConfig};
use takt_robot_cell::threads::{SsmPorts, SsmTask};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Writer, latest};
use takt_rt::memory::{self, MemoryLock};
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::policy::Policy;
use takt_rt::proof::{allocations, frees, system_calls_beyond};
use takt_rt::ring::{Consumer, ring};
use takt_rt::settings::ThreadSettings;
use takt_rt::thread;

const CAMERAS: usize = 5;
const WARM_UP: u64 = 100;
const JOBS: u64 = 1000;

/// A cell whose cameras are a thread that publishes results, one of them a person who comes and
/// goes.
struct Fixture {
    task: SsmTask,
    periodic: Periodic,
    records: Consumer<SsmJob>,
    stop: Arc<AtomicBool>,
    _link: Link,
    _simulator: Simulator,
}

fn cameras(mut writers: Vec<Writer<Detections>>, stop: Arc<AtomicBool>) {
    let mut sequence = 0;
    while !stop.load(Ordering::Acquire) {
        sequence += 1;
        for (camera, writer) in writers.iter_mut().enumerate() {
            let now_ns = monotonic_ns();
            let mut result = Detections::default();
            result.camera = camera as u32;
            result.frame_sequence = sequence;
            result.capture_ns = now_ns;
            result.health = FrameHealth::Ok;
            if sequence % 40 < 20 {
                result.insert(Object { distance_m: 1.0 + camera as f32, ..Object::default() });
            }
            writer.publish(now_ns, result);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn fixture() -> Fixture {
    let simulator = Simulator::start(SimConfig::on_free_ports()).expect("simulator");
    let rtde = RtdeConfig {
        host: simulator.rtde_address().ip().to_string(),
        port: simulator.rtde_address().port(),
        ..RtdeConfig::default()
    };
    let Opened { link, commander, mut states, .. } = Link::open(&rtde, 1, 0).expect("link");
    let robot = states.pop().expect("one reader");
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    let mut detections = Vec::new();
    for _ in 0..CAMERAS {
        let (writer, mut readers) = latest(1, Detections::default);
        writers.push(writer);
        detections.push(readers.pop().expect("one reader"));
    }
    let (records_in, records) = ring(1 << 13);
    {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || cameras(writers, stop));
    }
    let ports = SsmPorts {
        detections,
        alive: (0..CAMERAS).map(|_| Arc::new(AtomicBool::new(true))).collect(),
        robot,
        commander,
        records: records_in,
        ending: Vec::new(),
        facts: Arc::default(),
        alarm: Alarm::new().0,
        without_watchdog: Arc::default(),
    };
    let config = SsmConfig { recover_after_s: 0.05, resume_after_s: 0.01, ..SsmConfig::default() };
    let monitor = Monitor::new(config, CAMERAS).expect("valid");
    Fixture {
        task: SsmTask::new(monitor, ports, LightOutputs::default()),
        periodic: Periodic::start_now(Duration::from_millis(2), SleepStrategy::Kernel).expect("a period"),
        records,
        stop,
        _link: link,
        _simulator: simulator,
    }
}

#[test]
fn jobs_neither_allocate_nor_fault_and_the_robot_receives_them() {
    let Fixture { mut task, mut periodic, mut records, stop, _link, _simulator } = fixture();
    let settings = ThreadSettings {
        policy: Policy::Fifo { priority: 40 },
        lock_memory: MemoryLock::All,
        prefault_stack_bytes: 128 << 10,
        ..ThreadSettings::default()
    };
    let (send, receive) = mpsc::channel();
    let handle = thread::spawn("ssm-test", &settings, move || {
        let count = || (allocations(), frees(), memory::thread_faults());
        for _ in 0..WARM_UP {
            task.job(&periodic.next());
        }
        let before = count();
        for _ in 0..JOBS {
            task.job(&periodic.next());
        }
        let _ = send.send((before, count()));
    })
    .expect("a thread");
    for difference in &handle.granted().differences {
        takt_witness::skip!("in part: {difference}");
    }
    let (before, after) = receive.recv().expect("the thread reports");
    handle.join().expect("no panic");
    stop.store(true, Ordering::Release);
    assert_eq!(before, after, "allocations, frees, page faults");
    assert!(before.0 > 0, "the counter counts: starting the thread allocated");

    let mut jobs = Vec::new();
    while records.take_into(&mut jobs, 256) > 0 {}
    assert_eq!(jobs.len() as u64, WARM_UP + JOBS);
    assert!(jobs.windows(2).all(|pair| pair[1].echo >= pair[0].echo));
    // Other work on the machine may delay the simulator; it receives a command all the same.
    let last = jobs.last().expect("jobs");
    assert!(last.echo > 0, "the controller has echoed commands");
    let moved = jobs.iter().any(|j| j.decision.speed_fraction > 0.0);
    let stopped = jobs.iter().any(|j| j.decision.breach && j.decision.stop);
    eprintln!(
        "moved: {moved}, stopped for a person: {stopped}, last echo {} of {}",
        last.echo, last.heartbeat
    );
    assert!(jobs.iter().all(|j| !j.decision.breach || j.decision.stop), "every breach is a stop");
    memory::unlock();
}

#[test]
fn jobs_make_no_system_call_but_sleep_and_send() {
    // A late release on a busy machine asks for its policy instead of sleeping, and does not yield
    // under SCHED_OTHER.
    let allowed = [libc::SYS_sendto, libc::SYS_sched_getscheduler];
    let outcome = system_calls_beyond(&allowed, || {
        let Fixture { mut task, mut periodic, records, stop, _link, _simulator } = fixture();
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            task.job(&periodic.next());
        }
        move || {
            for _ in 0..JOBS {
                task.job(&periodic.next());
            }
            stop.store(true, Ordering::Release);
            // Their drops make system calls, and this thread may make no others.
            std::mem::forget((task, records, _link, _simulator));
        }
    });
    match outcome {
        Ok(unexpected) => assert_eq!(unexpected.calls, 0, "first: {:?}", unexpected.first),
        Err(error) => takt_witness::skip!("{error}"),
    }
}
