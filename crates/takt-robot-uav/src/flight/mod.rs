//! Starts the tasks, connects them, and ends them.

mod place;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use takt_rt::clock::{self, monotonic_ns};
use takt_rt::cpus::MachineCpus;
use takt_rt::exchange;
use takt_rt::latency::DmaLatency;
use takt_rt::memory::MemoryLock;
use takt_rt::periodic::{Periodic, Release};
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::ring::{Consumer, ring};
use takt_rt::settings::{ProcessSettings, ThreadSettings};
use takt_rt::thread::{self, ThreadReport};

use crate::config::UavConfig;
use crate::control::{AttitudeLaw, ForceCommand, PositionController};
use crate::error::UavError;
use crate::plant::Plant;
use crate::records::{AttitudeRecord, PositionRecord, TelemetryRecord};
use crate::tasks::{self, Task, TaskSet};
use crate::vehicle::Vehicle;

pub use place::Placed;
pub use threads::{AttitudeTask, PositionTask, TelemetryTask};

/// Records that a starving collector may fall behind: four minutes of attitude jobs.
const RING_CAPACITY: usize = 1 << 16;

/// Between the beginning and the first release: time for all threads to see it, the least urgent
/// under stress too.
const START_DELAY_NS: u64 = 100_000_000;

/// Period at which threads check whether the flight begins.
const LOOK_NS: u64 = 2_000_000;

/// Stack that is touched before a task begins.
const PREFAULT_STACK_BYTES: usize = 128 << 10;

/// Records of the tasks.
#[derive(Debug)]
pub struct Records {
    /// Every attitude job.
    pub attitude: Consumer<AttitudeRecord>,
    /// Every position job.
    pub position: Consumer<PositionRecord>,
    pub telemetry: Consumer<TelemetryRecord>,
}

/// A running flight. Dropping it lets the threads end on their own.
#[derive(Debug)]
pub struct Flight {
    threads: Vec<thread::Handle>,
    reports: Vec<ThreadReport>,
    warnings: Vec<String>,
    stop: Arc<AtomicBool>,
    /// When the attitude loop had done all its jobs, CLOCK_MONOTONIC nanoseconds; 0 until then.
    landed_ns: Arc<AtomicU64>,
    jobs: Arc<AtomicU64>,
    /// First release, CLOCK_MONOTONIC nanoseconds; 0 before the beginning.
    epoch_ns: Arc<AtomicU64>,
    records: Option<Records>,
    machine: MachineCpus,
    placed: Option<Placed>,
    _awake: Option<DmaLatency>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl Flight {
    /// Starts the tasks and begins. The flight ends by itself after `config.iterations` attitude
    /// jobs.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn start(config: &UavConfig) -> Result<Self, UavError> {
        let mut flight = Self::prepare(config)?;
        flight.begin();
        Ok(flight)
    }

    /// The first release is a tenth of a second from now. A flight begins once.
    pub fn begin(&mut self) {
        let epoch_ns = monotonic_ns() + START_DELAY_NS;
        // A second call changes nothing.
        let _ = self.epoch_ns.compare_exchange(0, epoch_ns, Ordering::Release, Ordering::Relaxed);
    }

    /// Starts the tasks, with their policies and places, and lets them wait for
    /// [`begin`](Self::begin): what makes the machine busy can then start in between.
    ///
    /// # Errors
    /// [`UavError`]; whatever was started is ended again.
    pub fn prepare(config: &UavConfig) -> Result<Self, UavError> {
        config.validate()?;
        let tasks = &config.tasks;
        let mut warnings = Vec::new();
        let awake = prepare_machine(tasks, &mut warnings)?;
        let vehicle = Vehicle::new(&config.vehicle)?;
        let plant = Plant::new(vehicle, config.limits, config.reference);

        let first = *plant.state();
        let (state_out, states) = exchange::latest(2, || first);
        let (force_out, forces) = exchange::latest(2, || ForceCommand::hovering(&config.vehicle));
        let (mut states, mut forces) = (states.into_iter(), forces.into_iter());
        let (attitude_in, attitude) = ring(RING_CAPACITY);
        let (position_in, position) = ring(RING_CAPACITY / 4);
        let (telemetry_in, telemetry) = ring(RING_CAPACITY / 8);
        let mut attitude_task = AttitudeTask {
            plant,
            law: AttitudeLaw::new(&config.control, &config.vehicle),
            epoch_ns: 0,
            force: forces.next().ok_or(UavError::NoReader("force"))?,
            state: state_out,
            records: attitude_in,
        };
        let period_s = config.position.period().as_secs_f64();
        let mut position_task = PositionTask {
            controller: PositionController::new(&config.control, &config.vehicle, period_s),
            reference: config.reference,
            epoch_ns: 0,
            state: states.next().ok_or(UavError::NoReader("state"))?,
            force: force_out,
            records: position_in,
        };
        let mut telemetry_task = TelemetryTask {
            state: states.next().ok_or(UavError::NoReader("state"))?,
            force: forces.next().ok_or(UavError::NoReader("force"))?,
            records: telemetry_in,
        };

        let mut flight = Self {
            threads: Vec::new(),
            reports: Vec::new(),
            warnings,
            stop: Arc::default(),
            landed_ns: Arc::default(),
            jobs: Arc::default(),
            epoch_ns: Arc::default(),
            records: Some(Records { attitude, position, telemetry }),
            machine: MachineCpus::read()?,
            placed: None,
            _awake: awake,
        };
        let set = [&config.attitude, &config.position, &config.telemetry];
        let [attitude_place, position_place, telemetry_place] =
            tasks::placements(set, tasks.isolate, &flight.machine);
        // The least urgent first: each finds what it reads already prepared, and none is starved
        // while starting.
        flight.start_periodic("uav-telemetry", &config.telemetry, tasks, telemetry_place, move |_, _| {
            telemetry_task.job();
            true
        })?;
        flight.start_periodic(
            "uav-position",
            &config.position,
            tasks,
            position_place,
            move |release, epoch_ns| {
                position_task.epoch_ns = epoch_ns;
                position_task.job(release);
                true
            },
        )?;
        let (iterations, jobs) = (config.iterations, Arc::clone(&flight.jobs));
        let (landed_ns, mut left) = (Arc::clone(&flight.landed_ns), iterations);
        flight.start_periodic(
            "uav-attitude",
            &config.attitude,
            tasks,
            attitude_place,
            move |release, epoch_ns| {
                attitude_task.epoch_ns = epoch_ns;
                attitude_task.job(release);
                left -= 1;
                jobs.store(iterations - left, Ordering::Relaxed);
                if left == 0 {
                    landed_ns.store(monotonic_ns(), Ordering::Release);
                }
                left > 0
            },
        )?;
        flight.place_reservations()?;
        Ok(flight)
    }

    /// Starts a task. Its job gets the release and the first one's time, and says whether there is
    /// another.
    fn start_periodic(
        &mut self,
        name: &str,
        task: &Task,
        set: &TaskSet,
        cpus: Option<CpuSet>,
        mut job: impl FnMut(&Release, u64) -> bool + Send + 'static,
    ) -> Result<(), UavError> {
        let asked = ThreadSettings {
            policy: task.policy,
            cpus,
            timer_slack_ns: set.timer_slack_ns.filter(|_| !task.policy.is_real_time()),
            // Locked once, before any thread starts.
            lock_memory: MemoryLock::Off,
            prefault_stack_bytes: PREFAULT_STACK_BYTES,
            strict: set.strict,
        };
        // A reservation on some of the CPUs is given from outside, once the thread is there.
        let later = tasks::needs_a_way(&task.policy, cpus, &self.machine);
        let settings = match later {
            true => ThreadSettings { policy: Policy::default(), cpus: None, strict: false, ..asked.clone() },
            false => asked.clone(),
        };
        let (period, sleep) = (task.period(), task.sleep);
        // Refused here, not in the thread: a period that the loop cannot have.
        Periodic::new(0, period, sleep)?;
        let (stop, landed_ns) = (Arc::clone(&self.stop), Arc::clone(&self.landed_ns));
        let epoch = Arc::clone(&self.epoch_ns);
        let handle = thread::spawn(name, &settings, move || {
            let over = || stop.load(Ordering::Acquire) || landed_ns.load(Ordering::Acquire) > 0;
            let epoch_ns = loop {
                match epoch.load(Ordering::Acquire) {
                    0 if over() => return,
                    0 => clock::sleep_until(monotonic_ns() + LOOK_NS),
                    begun_ns => break begun_ns,
                }
            };
            let Ok(mut periodic) = Periodic::new(epoch_ns, period, sleep) else { return };
            while !over() && job(&periodic.next(), epoch_ns) {}
        })?;
        let mut report = handle.report();
        report.granted.requested = asked;
        self.reports.insert(0, report);
        self.threads.push(handle);
        Ok(())
    }

    /// The record rings; `None` when they were taken already.
    pub fn take_records(&mut self) -> Option<Records> {
        self.records.take()
    }

    /// The threads, attitude loop first, and what the kernel granted them.
    pub fn threads(&self) -> &[ThreadReport] {
        &self.reports
    }

    /// Everything that was asked and not granted, a sentence each; empty for a run whose figures
    /// stand for what was asked.
    pub fn not_granted(&self) -> Vec<String> {
        let refused = self.reports.iter().flat_map(|report| {
            report.granted.differences.iter().map(move |difference| format!("{}: {difference}", report.name))
        });
        self.warnings.iter().cloned().chain(refused).collect()
    }

    /// Method that combined reservations with their CPUs; `None` if no task requested both.
    pub fn placed(&self) -> Option<&Placed> {
        self.placed.as_ref()
    }

    /// First release, CLOCK_MONOTONIC nanoseconds: time 0 of the flight; `None` before its
    /// beginning.
    pub fn epoch_ns(&self) -> Option<u64> {
        Some(self.epoch_ns.load(Ordering::Acquire)).filter(|&ns| ns > 0)
    }

    /// When the attitude loop had done all its jobs, CLOCK_MONOTONIC nanoseconds; `None` before.
    pub(crate) fn landed_ns(&self) -> Option<u64> {
        Some(self.landed_ns.load(Ordering::Acquire)).filter(|&ns| ns > 0)
    }

    /// Attitude jobs so far.
    pub fn jobs(&self) -> u64 {
        self.jobs.load(Ordering::Relaxed)
    }

    /// Whether the attitude loop has ended.
    pub fn is_finished(&self) -> bool {
        self.threads.last().is_none_or(thread::Handle::is_finished)
    }

    /// Ends the flight, waits for its threads, and returns what went wrong in them, a sentence
    /// each. Records may be taken from their rings afterwards.
    pub fn stop(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Release);
        let mut problems = Vec::new();
        for handle in self.threads.drain(..) {
            let name = handle.name().to_owned();
            if let Err(error) = handle.join() {
                problems.push(format!("{name}: {error}"));
            }
        }
        problems
    }
}

/// Memory and idle states, for the whole process.
fn prepare_machine(tasks: &TaskSet, warnings: &mut Vec<String>) -> Result<Option<DmaLatency>, UavError> {
    let TaskSet { lock_memory, hold_cpu_awake, strict, .. } = *tasks;
    Ok(ProcessSettings { lock_memory, hold_cpu_awake, strict }.apply(warnings)?)
}
