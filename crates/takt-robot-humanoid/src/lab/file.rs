//! Configuration of the humanoid.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_lab::Envelope;
use takt_link_ethercat::control::{MAX_QUEUES, XdpAttach};
use takt_rt::config::{SettingError, within};
use takt_rt::memory::MemoryLock;
use takt_rt::periodic::SleepStrategy;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;
use takt_rundir::Loss;

use super::collector::Collected;
use crate::HumanoidConfig;

/// The shipped configuration.
pub const SHIPPED: &str = include_str!("../../../../robots/humanoid.toml");

/// Connection to the devices.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum WireKind {
    /// A simulated segment at the far end of a veth pair, made for the run; in process, and
    /// labelled, where that is not permitted.
    #[default]
    Veth,
    /// A simulated segment in the controller's own thread: no kernel between the two.
    InProcess,
    /// Devices, or `takt segment`, on a network interface.
    Interface {
        /// Its name.
        name: String,
    },
    /// The same past the kernel's network stack, for real network cards: AF_XDP. Needs the feature
    /// `takt/xdp`, CAP_NET_ADMIN and CAP_BPF beside CAP_NET_RAW.
    Xdp {
        /// The interface's name.
        name: String,
        /// Queue of the interface, from 0. 0: frames that are not IP come there, unless the card
        /// was instructed otherwise.
        #[serde(default)]
        queue: u32,
        /// Attachment of the program: `auto` (in the driver if possible), `native` (there or not at
        /// all), `generic` (every driver can). `auto` uses the card's best mode, which the run
        /// records.
        #[serde(default)]
        attach: XdpAttach,
    },
}

/// The simulated segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SegmentOptions {
    /// Policy of its thread. FIFO 98: it stands for hardware and must not be what is measured;
    /// below 99, the paper's P.
    pub policy: Policy,
    /// Its CPUs; all but the controller's when absent.
    pub cpus: Option<CpuSet>,
    /// Process-data watchdog of the devices, milliseconds. 1000: without tuning and under load the
    /// paper's loop stood still for 346 ms, and the run is to go on then.
    pub watchdog_ms: u32,
    /// Time from a frame to the devices' new data, microseconds. 500: half a cycle, as the paper's
    /// microcontrollers.
    pub update_us: u32,
    /// Time between physical events at the probe, microseconds. 7300: falls on all phases of a
    /// cycle.
    pub event_period_us: u32,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            policy: Policy::Fifo { priority: 98 },
            cpus: None,
            watchdog_ms: 1000,
            update_us: 500,
            event_period_us: 7300,
        }
    }
}

/// Limits of losses on the wire within the measured window; more losses fail the run, and permitted
/// ones are listed nevertheless.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Losses {
    /// Frames of process data that never came back. 0: a wire that loses frames is broken or
    /// overloaded, and each is a cycle in which the controller knew nothing new. A frame that comes
    /// late is not lost.
    pub max_lost_frames: u64,
    /// Cycles whose working counter was wrong: a device did not take part. 0, likewise.
    pub max_working_counter_errors: u64,
}

impl Losses {
    /// Losses next to the limits.
    pub(super) fn judge(&self, collected: &Collected, frames_per_cycle: u64) -> Vec<Loss> {
        let frames = collected.cycles.saturating_mul(frames_per_cycle);
        vec![
            Loss::new(
                "lost_frames",
                "frames of process data",
                [collected.lost_frames, frames],
                ("losses.max_lost_frames", self.max_lost_frames),
            ),
            Loss::new(
                "working_counter_errors",
                "exchanges with all devices",
                [collected.counter_errors, collected.cycles],
                ("losses.max_working_counter_errors", self.max_working_counter_errors),
            ),
        ]
    }
}

/// Process that the kernel kills when memory runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OomVictim {
    /// The one that the kernel chooses.
    #[default]
    Kernel,
    /// Never the robot's: `oom_score_adj` is -1000 for this process, and 1000 for the tools of the
    /// interference.
    Others,
}

/// The humanoid's file. P, M, C and S of the paper are `policy`, `lock_memory`, `cpus` with
/// `shield`, and `sleep`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HumanoidFile {
    /// Name and claims.
    #[serde(flatten, skip_deserializing)]
    pub envelope: Envelope,
    /// Length of a run, seconds, when the command says nothing. 32: a
    /// PASS takes 30 s of evidence.
    pub seconds: f64,
    /// Scheduling policy of the motion controller (P). FIFO 99, the paper's highest priority.
    pub policy: Policy,
    /// Memory locking (M). All: no page fault later on.
    pub lock_memory: MemoryLock,
    /// CPUs of the motion controller (C); the inherited ones when absent.
    pub cpus: Option<CpuSet>,
    /// Whether all other tasks and interrupts are moved off those CPUs (C). Off: it concerns the
    /// whole machine.
    pub shield: bool,
    /// Waiting method of the loop (S). Kernel; `{ kind = "spin" }` spins the last 50 µs, as the
    /// paper.
    pub sleep: SleepStrategy,
    /// Most tasks that the scheduler moves to another CPU at once, with interrupts off
    /// (`sched_nr_migrate`, the paper's section 4); put back after the run, also after a kill.
    /// Absent: as it is, which is 32, or 8 with PREEMPT_RT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nr_migrate: Option<u32>,
    /// Process that the kernel kills when memory runs out (section 4). `kernel`.
    pub oom_victim: OomVictim,
    /// Holds the CPUs out of deep sleep. True: exit latencies of idle states are power saving and
    /// not scheduling.
    pub no_deep_idle: bool,
    /// Refuse to run when the kernel grants less than asked.
    pub strict: bool,
    /// Connection to the devices. A veth pair: frames go through the kernel's network stack, as on
    /// hardware.
    pub wire: WireKind,
    /// The simulated segment.
    pub segment: SegmentOptions,
    /// Readers of the cache beside the controller, each reading without pause but for 1 ms. 1:
    /// telemetry.
    pub readers: u32,
    /// Limits of losses on the wire.
    pub losses: Losses,
    /// The motion controller.
    pub motion: HumanoidConfig,
}

impl Default for HumanoidFile {
    fn default() -> Self {
        Self {
            envelope: Envelope::named("humanoid"),
            seconds: 32.0,
            policy: Policy::Fifo { priority: 99 },
            lock_memory: MemoryLock::All,
            cpus: None,
            shield: false,
            sleep: SleepStrategy::Kernel,
            nr_migrate: None,
            oom_victim: OomVictim::Kernel,
            no_deep_idle: true,
            strict: false,
            wire: WireKind::Veth,
            segment: SegmentOptions::default(),
            readers: 1,
            losses: Losses::default(),
            motion: HumanoidConfig::default(),
        }
    }
}

impl HumanoidFile {
    /// Settings of the motion controller's thread.
    pub fn settings(&self) -> ThreadSettings {
        ThreadSettings {
            policy: self.policy,
            cpus: self.cpus,
            timer_slack_ns: Some(1),
            lock_memory: self.lock_memory,
            prefault_stack_bytes: 256 << 10,
            strict: self.strict,
        }
    }

    /// The tuning as the paper writes it: P, M, C, S, or `none`.
    pub fn tuning(&self) -> String {
        let letters = [
            ("P", self.policy.is_real_time()),
            ("M", self.lock_memory != MemoryLock::Off),
            ("C", self.cpus.is_some()),
            ("S", self.sleep != SleepStrategy::Kernel),
        ];
        let text: String = letters.iter().filter(|(_, on)| *on).map(|(letter, _)| *letter).collect();
        if text.is_empty() { "none".to_owned() } else { text }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        within("seconds", self.seconds, 0.01, 40.0 * 86_400.0)?;
        for (key, allowed) in [
            ("losses.max_lost_frames", self.losses.max_lost_frames),
            ("losses.max_working_counter_errors", self.losses.max_working_counter_errors),
        ] {
            within(key, allowed as f64, 0.0, Loss::MAX_ALLOWED)?;
        }
        within("nr_migrate", self.nr_migrate.unwrap_or(1).into(), 1.0, 1e6)?;
        within("segment.watchdog_ms", self.segment.watchdog_ms.into(), 0.0, 6553.0)?;
        within("segment.update_us", self.segment.update_us.into(), 1.0, 1e6)?;
        within("segment.event_period_us", self.segment.event_period_us.into(), 0.0, 1e9)?;
        let most = self.motion.link.readers.saturating_sub(1);
        within("readers", self.readers.into(), 0.0, most as f64)?;
        if self.shield && self.cpus.is_none() {
            let accepted = "cpus must name the controller's CPUs";
            return Err(SettingError::value("shield", true, accepted));
        }
        if let WireKind::Interface { name } | WireKind::Xdp { name, .. } = &self.wire
            && name.is_empty()
        {
            let accepted = "expected the name of a network interface";
            return Err(SettingError::value("wire.name", "\"\"", accepted));
        }
        if let WireKind::Xdp { queue, .. } = self.wire {
            within("wire.queue", queue.into(), 0.0, (MAX_QUEUES - 1).into())?;
        }
        for (key, policy) in [("policy", &self.policy), ("segment.policy", &self.segment.policy)] {
            policy.validate().map_err(|error| SettingError::conflict(key, error.to_string()))?;
        }
        self.motion.validate().map_err(|error| error.within_section("motion."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_the_papers_robot() {
        let file: HumanoidFile = takt_lab::parse(SHIPPED).unwrap();
        assert_eq!(file, HumanoidFile::default(), "what the shipped file spells out are the defaults");
        file.validate().unwrap();
        assert_eq!((file.motion.devices().len(), file.tuning().as_str()), (59, "PM"));
        let written = takt_lab::RobotFile::of(file.clone()).to_toml().unwrap();
        assert_eq!(takt_lab::parse::<HumanoidFile>(&written).unwrap(), file);
    }

    #[test]
    fn refusals_name_the_key() {
        let refused = |text: &str| takt_lab::parse::<HumanoidFile>(text).unwrap_err().to_string();
        assert!(refused("[motion]\nrate_hz = 0").contains("motion.rate_hz"));
        assert!(refused("[motion.safety]\nmax_late = 0").contains("safety.max_late"));
        assert!(refused("shield = true").contains("cpus"));
        assert!(refused("[wire]\nkind = 'interface'\nname = ''").contains("wire.name"));
        assert!(refused("[wire]\nkind = 'xdp'\nname = ''").contains("wire.name"));
        assert!(refused("[wire]\nkind = 'xdp'\nname = 'eth1'\nqueue = 4096").contains("wire.queue"));
        assert!(refused("[wire]\nkind = 'xdp'\nname = 'eth1'\nattach = 'hw'").contains("native"));
        let file: HumanoidFile = toml::from_str("[wire]\nkind = 'xdp'\nname = 'eth1'").unwrap();
        file.validate().unwrap();
        let wire = WireKind::Xdp { name: "eth1".to_owned(), queue: 0, attach: XdpAttach::Auto };
        assert_eq!(file.wire, wire);
        assert!(refused("nr_migrate = 0").contains("nr_migrate"));
        assert!(refused("oom_victim = 'me'").contains("others"));
        assert!(refused("readers = 99").contains("readers"));
        assert!(refused("sheild = true").contains("shield"));
    }
}
