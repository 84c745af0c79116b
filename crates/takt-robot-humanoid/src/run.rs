//! The motion controller's thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use serde::Serialize;
use takt_link_ethercat::control::{Exchanged, Idle, Phase, Port};
use takt_rt::clock::monotonic_ns;
use takt_rt::memory::{self, Faults};
use takt_rt::periodic::{Periodic, SleepStrategy};
use takt_rt::ring::Producer;
use takt_rt::settings::{Granted, ThreadSettings};
use takt_rt::thread::{self, Handle};

use crate::cia402::Goal;
use crate::config::HumanoidConfig;
use crate::controller::{Controller, Mode, ProbeView};
use crate::safety::{Punctuality, StopReason};

/// Record of one cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CycleRecord {
    /// Number of the release, from 0; skipped ones count.
    pub index: u64,
    pub planned_ns: u64,
    /// When the thread was awake.
    pub wake_ns: u64,
    /// When the exchange began: a pipelined one waits from then on for the frames of the cycle
    /// before.
    pub begun_ns: u64,
    /// When the frame was about to be handed to the wire.
    pub sent_ns: u64,
    /// When it had been handed over.
    pub handed_ns: u64,
    /// When the answer fetched in this cycle had been taken; 0 when it was not there.
    pub taken_ns: u64,
    /// When the exchange was over: fetched, sent, published.
    pub exchanged_ns: u64,
    /// When the plan of the next cycle was made.
    pub end_ns: u64,
    /// Time for fetching and sending.
    pub exchange_ns: u64,
    /// Time waited for a reader of the cache.
    pub lock_wait_ns: u64,
    pub working_counter: u16,
    /// The expected value.
    pub expected_counter: u16,
    /// Whether any answer came, of this cycle or late.
    pub answered: bool,
    /// Whether an answer that came in this cycle reports a device that did not take part.
    pub counter_wrong: bool,
    /// Frames given up by now: they never came back.
    pub lost: u16,
    /// Frames that came now, cycles after they should have.
    pub late: u16,
    /// Cycles by which inputs are older than fresh ones.
    pub stale: u16,
    /// Phase of the cycle against the reference clock.
    pub phase: Option<Phase>,
    /// Releases passed over since the record before.
    pub skipped: u32,
    /// [`Mode::code`].
    pub mode: u8,
    /// Why it stops, if it does: for whoever tells it, not for files.
    #[serde(skip)]
    pub reason: Option<StopReason>,
    /// Events of the probe.
    pub events: u16,
    /// Command number that the probe applied last.
    pub applied: u16,
    /// Command number that goes out with the next exchange.
    pub command: u16,
}

/// The state of a running controller, for people and for stopping it.
#[derive(Debug, Default)]
pub struct MotionState {
    stop: AtomicBool,
    end: AtomicBool,
    mode: AtomicU8,
}

impl MotionState {
    /// Asks for a safe stop; the cycles go on, so that drives are led to standstill.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Ends the control. Devices are asked down to INIT in order, with cycles until they have left
    /// OP.
    pub fn end(&self) {
        self.end.store(true, Ordering::Release);
    }

    /// [`Mode::code`] of the last cycle.
    pub fn mode(&self) -> u8 {
        self.mode.load(Ordering::Acquire)
    }
}

/// Result of a controller.
pub struct Finished {
    /// The control interface, with its totals.
    pub port: Port,
    /// The controller: the loop frees no memory.
    pub controller: Controller,
    /// The robot's last mode.
    pub mode: Mode,
    /// Whether no drive held torque, as far as was known.
    pub safe: bool,
    /// Most drives that were in operation at once, of all.
    pub enabled: (usize, usize),
    /// Late cycles: those that ended after their period, and those that never ran.
    pub late: u64,
    /// Page faults of the thread while it cycled.
    pub faults: Faults,
    /// CPU time of the thread while it cycled.
    pub cpu_ns: u64,
    /// Records lost because nobody took them in time.
    pub records_lost: u64,
    /// Reason why devices did not go down to INIT when control ended, if so.
    pub not_down: Option<String>,
}

/// A running controller.
pub struct RunningMotion {
    /// To stop it.
    pub shared: Arc<MotionState>,
    thread: Handle<Result<Finished, takt_rt::Error>>,
}

impl RunningMotion {
    /// Settings that the kernel granted the thread.
    pub fn granted(&self) -> &Granted {
        self.thread.granted()
    }

    pub fn tid(&self) -> i32 {
        self.thread.tid()
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end; ask for that by [`MotionState::end`].
    ///
    /// # Errors
    /// [`takt_rt::Error::Panicked`].
    pub fn join(self) -> Result<Finished, takt_rt::Error> {
        self.thread.join()?
    }
}

/// Starts the controller in a thread of its own, with `settings`.
///
/// # Errors
/// As [`start_from`].
pub fn start(
    config: &HumanoidConfig,
    port: Port,
    settings: &ThreadSettings,
    sleep: SleepStrategy,
    records: Producer<CycleRecord>,
) -> Result<RunningMotion, takt_rt::Error> {
    let lenient = ThreadSettings { strict: false, ..settings.clone() };
    let idle = Idle::start(port, config.period(), &lenient)?;
    start_from(config, idle, settings, sleep, records)
}

/// As [`start_with`], with the built-in walk.
///
/// # Errors
/// As [`start_with`].
pub fn start_from(
    config: &HumanoidConfig,
    idle: Idle,
    settings: &ThreadSettings,
    sleep: SleepStrategy,
    records: Producer<CycleRecord>,
) -> Result<RunningMotion, takt_rt::Error> {
    start_with(Controller::new(config), config, idle, settings, sleep, records)
}

/// Starts `controller` in a thread of its own, with `settings`. Cycles go on in `idle` until that
/// thread is ready; it asks the devices down when it ends.
///
/// # Errors
/// When the thread cannot be started, or `settings` are strict and not granted.
pub fn start_with(
    controller: Controller,
    config: &HumanoidConfig,
    idle: Idle,
    settings: &ThreadSettings,
    sleep: SleepStrategy,
    records: Producer<CycleRecord>,
) -> Result<RunningMotion, takt_rt::Error> {
    let shared = Arc::new(MotionState::default());
    let seen = Arc::clone(&shared);
    let period = config.period();
    // An impossible period is reported here, and not by a thread that ends at once.
    Periodic::new(0, period, sleep)?;
    let thread = thread::spawn("humanoid", settings, move || {
        let mut port = idle.take()?;
        // Release 0 is now or has been: the cycle goes on in its phase.
        let period_ns = period.as_nanos() as u64;
        let first_ns = port.align(monotonic_ns()).saturating_sub(period_ns);
        match Periodic::new(first_ns, period, sleep) {
            Ok(periodic) => Ok(guarded(Loop { controller, port, periodic, records }, &seen, period)),
            Err(error) => {
                // Best effort: the error to report is the first one.
                let _ = port.shut_down(period);
                Err(error)
            }
        }
    })?;
    Ok(RunningMotion { shared, thread })
}

/// Cycles of "disable voltage" after the quick stop of a control that failed: one is applied after
/// 1.5 cycles, and frames may be lost.
const OFF_CYCLES: u64 = 4;

/// [`cycles`], and then all devices asked down; after a panic as well, which goes on from there.
fn guarded(mut parts: Loop, shared: &MotionState, period: Duration) -> Finished {
    match catch_unwind(AssertUnwindSafe(|| turn(&mut parts, shared))) {
        Ok(turned) => {
            let mut finished = turned.finish(parts);
            finished.not_down = finished.port.shut_down(period).err().map(|error| error.to_string());
            finished
        }
        Err(payload) => {
            // Drives leave OP by their own fault reaction should this fail, too.
            let _ = catch_unwind(AssertUnwindSafe(|| rest(&mut parts)));
            let _ = parts.port.shut_down(period);
            resume_unwind(payload)
        }
    }
}

/// Leads all drives to standstill without the controller's step, which failed.
fn rest(parts: &mut Loop) {
    let Loop { controller, port, periodic, .. } = parts;
    let stop_cycles = controller.stop_cycles();
    for cycle in 0..stop_cycles.saturating_add(OFF_CYCLES) {
        controller.halt(if cycle < stop_cycles { Goal::QuickStop } else { Goal::Off }, port);
        let release = periodic.next();
        let exchanged = port.exchange(release.planned_ns.saturating_add(periodic.period_ns()));
        periodic.shift(exchanged.shift_ns);
    }
}

/// State of the loop.
pub struct Loop {
    /// Plans.
    pub controller: Controller,
    /// Exchanges.
    pub port: Port,
    /// Wakes.
    pub periodic: Periodic,
    /// Reports.
    pub records: Producer<CycleRecord>,
}

/// The loop. It allocates nothing (`tests/it/quiet.rs` counts); its system calls are its sleep,
/// those of the wire, and a futex call where a reader is in the cache.
pub fn cycles(parts: Loop, shared: &MotionState) -> Finished {
    let mut parts = parts;
    let turned = turn(&mut parts, shared);
    turned.finish(parts)
}

/// Counts of the loop.
struct Turned {
    most_enabled: usize,
    late: u64,
    faults: Faults,
    cpu_ns: u64,
}

impl Turned {
    fn finish(self, parts: Loop) -> Finished {
        let Loop { controller, port, records, .. } = parts;
        Finished {
            mode: controller.mode(),
            safe: controller.is_safe(),
            enabled: (self.most_enabled, controller.enabled().1),
            late: self.late,
            faults: self.faults,
            cpu_ns: self.cpu_ns,
            records_lost: records.lost(),
            not_down: None,
            port,
            controller,
        }
    }
}

fn turn(parts: &mut Loop, shared: &MotionState) -> Turned {
    let Loop { controller, port, periodic, records } = parts;
    let faults = memory::thread_faults();
    let cpu_ns = takt_rt::clock::thread_cpu_ns();
    let period_ns = periodic.period_ns();
    let (mut late_cycles, mut late, mut most_enabled) = (0, false, 0);
    // Release 0 is now: its lateness is that of starting, not of waking.
    periodic.next();
    while !shared.end.load(Ordering::Acquire) {
        let release = periodic.next();
        let exchanged = port.exchange(release.planned_ns.saturating_add(period_ns));
        // Followed for as long as the reference clock answers.
        periodic.shift(exchanged.shift_ns);
        let exchanged_ns = monotonic_ns();
        let asked = shared.stop.load(Ordering::Acquire);
        let away_ns = release.lateness_ns().saturating_add(release.skipped.saturating_mul(period_ns));
        let punctuality = Punctuality { late, skipped: release.skipped, away_ns };
        let mode = controller.step(&exchanged, punctuality, asked, port);
        shared.mode.store(mode.code(), Ordering::Release);
        most_enabled = most_enabled.max(controller.enabled().0);
        let end_ns = monotonic_ns();
        late = end_ns > release.planned_ns.saturating_add(period_ns);
        late_cycles += u64::from(late).saturating_add(release.skipped);
        let probe = controller.probe().unwrap_or_default();
        records.push(record(&release, exchanged_ns, end_ns, &exchanged, mode, probe));
    }
    let before = faults;
    let faults = memory::thread_faults();
    Turned {
        most_enabled,
        late: late_cycles,
        faults: Faults { minor: faults.minor - before.minor, major: faults.major - before.major },
        cpu_ns: takt_rt::clock::thread_cpu_ns() - cpu_ns,
    }
}

fn record(
    release: &takt_rt::periodic::Release,
    exchanged_ns: u64,
    end_ns: u64,
    exchanged: &Exchanged,
    mode: Mode,
    probe: ProbeView,
) -> CycleRecord {
    CycleRecord {
        index: release.index,
        planned_ns: release.planned_ns,
        wake_ns: release.wake_ns,
        begun_ns: exchanged.begun_at_ns,
        sent_ns: exchanged.sent_at_ns,
        handed_ns: exchanged.handed_at_ns,
        taken_ns: exchanged.taken_at_ns,
        exchanged_ns,
        end_ns,
        exchange_ns: exchanged.fetch_ns + exchanged.send_ns,
        lock_wait_ns: exchanged.lock_wait_ns,
        working_counter: exchanged.working_counter,
        expected_counter: exchanged.expected_counter,
        answered: exchanged.answered,
        counter_wrong: exchanged.counter_wrong,
        lost: exchanged.lost.min(u32::from(u16::MAX)) as u16,
        late: exchanged.late.min(u32::from(u16::MAX)) as u16,
        stale: exchanged.stale.min(u32::from(u16::MAX)) as u16,
        phase: exchanged.phase,
        skipped: release.skipped.min(u64::from(u32::MAX)) as u32,
        mode: mode.code(),
        reason: mode.reason(),
        events: probe.events,
        applied: probe.applied,
        command: probe.command,
    }
}

/// Reason of a controller's stop, as a sentence; `None` while it runs.
pub fn why(mode: Mode) -> Option<String> {
    mode.reason().filter(|&reason| reason != StopReason::Asked).map(|reason| reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_link_ethercat::control::{Link, bring_up, in_process};
    use takt_link_ethercat::segment::{AlState, DriveState, Segment, SegmentConfig};
    use takt_rt::ring::ring;

    #[test]
    fn a_control_that_panics_leads_the_drives_to_rest_and_the_devices_down() {
        let mut config = HumanoidConfig { devices: 12, ramp_s: 0.2, ..HumanoidConfig::default() };
        (config.safety.max_late, config.safety.max_late_in_row) = (1000, 1000);
        (config.safety.max_away_ms, config.safety.enable_ms) = (60_000, 20_000);
        (config.link.bring_up_ms, config.link.silence_ms) = (20_000, 2000);
        let segment =
            Segment::new(&SegmentConfig { watchdog_ms: 6000, ..SegmentConfig::humanoid(12) }).unwrap();
        let control = segment.control();
        let Link { port, .. } = bring_up(in_process(segment), &config.control(), &mut |_| {}).unwrap();
        let (records, _taken) = ring(1 << 16);
        let periodic = Periodic::start_now(config.period(), SleepStrategy::Kernel).unwrap();
        let mut parts = Loop { controller: Controller::new(&config), port, periodic, records };
        let shared = Arc::new(MotionState::default());
        let seen = Arc::clone(&shared);
        let conductor = std::thread::spawn(move || {
            let begun = std::time::Instant::now();
            while seen.mode() != 1 && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(Duration::from_millis(100));
            seen.end();
        });
        turn(&mut parts, &shared);
        conductor.join().unwrap();
        assert_eq!(parts.controller.mode(), Mode::Walking);
        parts.controller.break_down();
        let guarded = AssertUnwindSafe(|| guarded(parts, &MotionState::default(), config.period()));
        assert!(catch_unwind(guarded).is_err(), "the panic goes on");
        for view in control.devices() {
            // As of the last frame with process data.
            assert!(view.state < AlState::SafeOp);
            // Not the fault by which a drive stops itself when its outputs end.
            if let Some(drive) = view.drive {
                assert_eq!((drive.state, drive.velocity_rad_s), (DriveState::SwitchOnDisabled, 0.0));
            }
        }
    }
}
