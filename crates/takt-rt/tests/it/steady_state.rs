//! A whole loop (release, read the newest input, lock, publish, notify, record) in steady state: no
//! allocation, no page fault, no system call but the sleep.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::sync::mpsc;
use std::time::Duration;

use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer, latest};
use takt_rt::jobs::{JobCollector, JobRecord, JobRecorder, MemorySink};
use takt_rt::memory::{self, MemoryLock};
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::pi_mutex::PiMutex;
use takt_rt::policy::Policy;
use takt_rt::proof::{allocations, frees, system_calls_beyond};
use takt_rt::settings::ThreadSettings;
use takt_rt::signal::Signal;
use takt_rt::thread;

const CYCLES: u64 = 400;

struct Task {
    input_writer: Writer<[f64; 32]>,
    input: Reader<[f64; 32]>,
    output: Writer<f64>,
    mutex: PiMutex<f64>,
    signal: Signal,
    recorder: JobRecorder,
    periodic: Periodic,
}

impl Task {
    fn new(recorder: JobRecorder, sleep: SleepStrategy) -> Self {
        let (input_writer, mut inputs) = latest(1, || [0.0; 32]);
        let (output, _) = latest(1, || 0.0);
        Self {
            input_writer,
            input: inputs.pop().unwrap(),
            output,
            mutex: PiMutex::new(0.0).unwrap(),
            signal: Signal::new(),
            recorder,
            periodic: Periodic::start_now(Duration::from_micros(500), sleep).unwrap(),
        }
    }

    fn cycle(&mut self) {
        let release = self.periodic.next();
        let start_ns = monotonic_ns();
        self.input_writer.write(start_ns, |values| values.fill(release.index as f64));
        let input = self.input.read();
        let mut record = JobRecord { start_ns, ..JobRecord::of(&release) };
        record.input_sequences[0] = input.sequence;
        let mut sum = self.mutex.lock().unwrap();
        *sum += input.value.iter().sum::<f64>();
        record.output_sequence = self.output.publish(start_ns, *sum);
        drop(sum);
        self.signal.notify();
        record.end_ns = monotonic_ns();
        assert!(self.recorder.push(record));
    }
}

#[test]
fn the_loop_neither_allocates_nor_faults() {
    for sleep in [SleepStrategy::Kernel, SleepStrategy::spin()] {
        let collector = JobCollector::start(MemorySink::default(), Duration::from_millis(5)).unwrap();
        let mut task = Task::new(collector.recorder("loop", 4096), sleep);
        let settings = ThreadSettings {
            policy: Policy::Fifo { priority: 20 },
            lock_memory: MemoryLock::All,
            prefault_stack_bytes: 64 << 10,
            ..Default::default()
        };
        let (send, receive) = mpsc::channel();
        let handle = thread::spawn("steady", &settings, move || {
            for _ in 0..20 {
                task.cycle();
            }
            let before = (allocations(), frees(), memory::thread_faults());
            for _ in 0..CYCLES {
                task.cycle();
            }
            let after = (allocations(), frees(), memory::thread_faults());
            send.send((before, after)).unwrap();
        })
        .unwrap();
        for difference in &handle.granted().differences {
            takt_witness::skip!("in part: {difference}");
        }
        let (before, after) = receive.recv().unwrap();
        assert_eq!(before, after);
        assert!(before.0 > 0, "the counter counts: starting the thread allocated");
        handle.join().unwrap();
        let collected = collector.stop().unwrap();
        assert_eq!(collected.sink.tasks[0].records.len() as u64, CYCLES + 20);
        assert_eq!(collected.tasks[0].lost, 0);
        memory::unlock();
    }
}

#[test]
fn the_loop_makes_no_system_call_but_its_sleep() {
    let collector = JobCollector::start(MemorySink::default(), Duration::from_millis(5)).unwrap();
    let recorder = collector.recorder("loop", 4096);
    // A late cycle on a busy machine asks for its policy instead of sleeping, and does not yield
    // under SCHED_OTHER.
    let allowed = [libc::SYS_sched_getscheduler];
    let outcome = system_calls_beyond(&allowed, move || {
        let mut task = Task::new(recorder, SleepStrategy::Kernel);
        task.cycle();
        move || {
            for _ in 0..CYCLES {
                task.cycle();
            }
            // Its drop would free.
            std::mem::forget(task);
        }
    });
    match outcome {
        Ok(unexpected) => assert_eq!(unexpected.calls, 0, "{unexpected:?}"),
        Err(error) => takt_witness::skip!("no seccomp filter: {error}"),
    }
    assert_eq!(collector.stop().unwrap().sink.tasks[0].records.len() as u64, CYCLES + 1);
}
