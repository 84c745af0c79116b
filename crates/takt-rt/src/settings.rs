//! Settings requested for a thread, those that the kernel granted, and the differences.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::latency::DmaLatency;
use crate::memory::{self, MemoryLock};
use crate::placement::{self, CpuSet};
use crate::policy::Policy;
use crate::{latency, sys};

/// Requested settings of a thread. As TOML:
///
/// ```toml
/// policy = "fifo:80"
/// cpus = "1"
/// timer_slack_ns = 1
/// lock_memory = "all"
/// prefault_stack_bytes = 65536
/// strict = true
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThreadSettings {
    /// The scheduling policy.
    pub policy: Policy,
    /// CPUs to run on; `None` leaves the inherited ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// Timer slack; `None` leaves the inherited one. Meant for [`Policy::Other`]: timers of
    /// real-time policies have none, and for them recent kernels report it as 0 whatever is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_slack_ns: Option<u64>,
    /// Memory locking; concerns the whole process.
    pub lock_memory: MemoryLock,
    /// Bytes of the stack that are touched before the body runs.
    pub prefault_stack_bytes: usize,
    /// Whether a thread that does not get all of this is refused (else it runs and is labelled).
    pub strict: bool,
}

/// Requested settings of a robot's whole process, before its first thread starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessSettings {
    /// Locks all memory and keeps the heap ([`memory::keep_heap`]).
    pub lock_memory: bool,
    /// Keeps all CPUs out of idle states.
    pub hold_cpu_awake: bool,
    /// Whether a refusal is an error, else it becomes a warning.
    pub strict: bool,
}

impl ProcessSettings {
    /// Applies what is asked for and nothing else. The returned value keeps the CPUs awake for as
    /// long as it lives. Warnings name the settings as the configurations of robots do:
    /// `tasks.lock_memory`.
    ///
    /// # Errors
    /// The first refusal, where `strict` is set.
    pub fn apply(&self, warnings: &mut Vec<String>) -> Result<Option<DmaLatency>, Error> {
        let mut refuse = |what: &str, error: Error| {
            if self.strict {
                return Err(error);
            }
            warnings.push(format!("{what}: {error}"));
            Ok(())
        };
        if self.lock_memory {
            memory::keep_heap();
            if let Err(error) = MemoryLock::All.apply() {
                refuse("tasks.lock_memory", error)?;
            }
        }
        if !self.hold_cpu_awake {
            return Ok(None);
        }
        match DmaLatency::hold(0) {
            Ok(awake) => Ok(Some(awake)),
            Err(error) => refuse("tasks.hold_cpu_awake", error).map(|()| None),
        }
    }
}

impl ThreadSettings {
    /// Of the one task of a robot: sleeps end at once under a policy whose timers have slack, and
    /// 64 KiB of its stack are there before it runs.
    pub fn of_task(policy: Policy, cpus: Option<CpuSet>, lock_memory: MemoryLock, strict: bool) -> Self {
        let timer_slack_ns = (!policy.is_real_time()).then_some(1);
        Self { policy, cpus, timer_slack_ns, lock_memory, prefault_stack_bytes: 64 << 10, strict }
    }

    /// These settings with another policy.
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Applies everything to the calling thread and reads back what holds. Goes on after a refusal,
    /// so that the result names all of them; [`strict`](Self::strict) is for the caller to act on,
    /// see [`Granted::check`].
    pub fn apply(&self) -> Granted {
        let mut differences = Vec::new();
        let mut note = |setting: &'static str, requested: String, outcome: Result<(), Error>| {
            if let Err(error) = outcome {
                differences.push(Difference::refused(setting, requested, &error));
            }
        };
        if self.lock_memory != MemoryLock::Off {
            note("lock_memory", format!("{:?}", self.lock_memory), self.lock_memory.apply());
        }
        memory::prefault_stack(self.prefault_stack_bytes);
        if let Some(cpus) = self.cpus {
            note("cpus", cpus.to_string(), placement::set_affinity(0, &cpus));
        }
        if let Some(slack_ns) = self.timer_slack_ns {
            note("timer_slack_ns", slack_ns.to_string(), latency::set_timer_slack_ns(slack_ns));
        }
        // Last: the steps above should not run ahead of others at real-time priority.
        note("policy", self.policy.to_string(), self.policy.apply(0));
        let effective = Effective::read();
        self.compare(&effective, &mut differences);
        Granted { requested: self.clone(), effective, differences }
    }

    /// Adds what differs although no call failed.
    fn compare(&self, effective: &Effective, differences: &mut Vec<Difference>) {
        let mut differ = |setting: &'static str, requested: String, effective: Option<String>| {
            let known = differences.iter_mut().find(|difference| difference.setting == setting);
            let effective = effective.unwrap_or_else(|| "unreadable".into());
            match known {
                Some(known) => known.effective = effective,
                None if requested != effective => differences.push(Difference {
                    setting: setting.into(),
                    requested,
                    effective,
                    reason: "the kernel accepted the setting, but another value reads back".into(),
                    fix: "request the value that reads back".into(),
                }),
                None => {}
            }
        };
        differ("policy", self.policy.to_string(), effective.policy.map(|policy| policy.to_string()));
        if let Some(cpus) = self.cpus {
            differ("cpus", cpus.to_string(), effective.cpus.map(|cpus| cpus.to_string()));
        }
        // 0 restores the default, and the slack of real-time threads reads as 0.
        if let Some(slack_ns) = self.timer_slack_ns.filter(|&ns| ns != 0 && !self.policy.is_real_time()) {
            differ("timer_slack_ns", slack_ns.to_string(), effective.timer_slack_ns.map(|ns| ns.to_string()));
        }
        if self.lock_memory != MemoryLock::Off && effective.locked_bytes == 0 {
            differ("lock_memory", format!("{:?}", self.lock_memory), Some("nothing locked".into()));
        }
    }
}

/// A thread's settings as read back from the kernel (`None`: could not be read).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effective {
    /// Thread id.
    pub tid: i32,
    /// `sched_getattr`.
    pub policy: Option<Policy>,
    /// `sched_getaffinity`.
    pub cpus: Option<CpuSet>,
    /// `prctl(PR_GET_TIMERSLACK)`.
    pub timer_slack_ns: Option<u64>,
    /// Locked memory of the process (`VmLck`).
    pub locked_bytes: u64,
}

impl Effective {
    /// Reads the settings of the calling thread.
    pub fn read() -> Self {
        Self {
            tid: sys::gettid(),
            policy: Policy::read(0).ok(),
            cpus: placement::affinity(0).ok(),
            timer_slack_ns: latency::timer_slack_ns().ok(),
            locked_bytes: memory::locked_bytes(),
        }
    }
}

/// One setting that is not as asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The setting's name in [`ThreadSettings`].
    pub setting: String,
    /// The requested value.
    pub requested: String,
    /// The value in effect.
    pub effective: String,
    /// The reason.
    pub reason: String,
    /// The remedy.
    pub fix: String,
}

impl Difference {
    fn refused(setting: &str, requested: String, error: &Error) -> Self {
        let (reason, fix) = match error {
            Error::Refused { cause, fix, source, .. } => (format!("{cause} ({source})"), fix.clone()),
            other => (other.to_string(), "correct the setting".to_owned()),
        };
        Self { setting: setting.into(), requested, effective: "refused".into(), reason, fix }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, requested, effective, reason, fix } = self;
        write!(f, "{setting}: requested {requested}, in effect {effective}: {reason}. Fix: {fix}")
    }
}

/// Requested settings, settings in effect, and every difference: the label of a thread in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The requested settings.
    pub requested: ThreadSettings,
    /// The settings in effect, read back.
    pub effective: Effective,
    /// Empty when the thread runs as asked.
    pub differences: Vec<Difference>,
}

impl Granted {
    /// Gives the thread `tid`, which may be of another process, a policy and CPUs, each only where
    /// it is asked for, and reads back what holds. Goes on after a refusal, as
    /// [`ThreadSettings::apply`] does. Settings without a request keep the thread's values.
    pub fn to_thread(tid: i32, policy: Option<Policy>, cpus: Option<CpuSet>, strict: bool) -> Self {
        let mut differences = Vec::new();
        if let Some(cpus) = cpus
            && let Err(error) = placement::set_affinity(tid, &cpus)
        {
            differences.push(Difference::refused("cpus", cpus.to_string(), &error));
        }
        if let Some(policy) = policy
            && let Err(error) = policy.apply(tid)
        {
            differences.push(Difference::refused("policy", policy.to_string(), &error));
        }
        let (has, may_use) = (Policy::read(tid).ok(), placement::affinity(tid).ok());
        let effective = Effective { tid, policy: has, cpus: may_use, timer_slack_ns: None, locked_bytes: 0 };
        let policy = policy.or(has).unwrap_or_default();
        let requested = ThreadSettings { policy, cpus, strict, ..ThreadSettings::default() };
        requested.compare(&effective, &mut differences);
        Self { requested, effective, differences }
    }

    /// Whether the thread runs as asked.
    pub fn is_complete(&self) -> bool {
        self.differences.is_empty()
    }

    /// Reads back policy and CPUs of the thread, which somebody has changed from outside since it
    /// started, and compares them with what was asked.
    pub fn reread(&mut self) {
        let tid = self.effective.tid;
        self.effective.policy = Policy::read(tid).ok();
        self.effective.cpus = placement::affinity(tid).ok();
        self.differences.retain(|difference| !matches!(difference.setting.as_str(), "policy" | "cpus"));
        let mut differences = std::mem::take(&mut self.differences);
        self.requested.compare(&self.effective, &mut differences);
        self.differences = differences;
    }

    /// Refuses strict settings that were not granted whole.
    pub fn check(&self, thread: &str) -> Result<(), Error> {
        if self.requested.strict && !self.is_complete() {
            return Err(Error::NotGranted { thread: thread.into(), differences: self.differences.clone() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_from_toml_and_refuses_unknown_keys() {
        let settings: ThreadSettings = toml::from_str(
            "policy = 'rr:10'\ncpus = '0'\nlock_memory = 'on_fault'\nprefault_stack_bytes = 65536\nstrict = true",
        )
        .unwrap();
        assert_eq!(settings.policy, Policy::RoundRobin { priority: 10 });
        assert_eq!(settings.lock_memory, MemoryLock::OnFault);
        assert!(settings.strict);
        let text = toml::to_string(&settings).unwrap();
        assert_eq!(toml::from_str::<ThreadSettings>(&text).unwrap(), settings);
        assert!(
            toml::from_str::<ThreadSettings>("polcy = 'other'").unwrap_err().to_string().contains("polcy")
        );
        assert_eq!(toml::from_str::<ThreadSettings>("").unwrap(), ThreadSettings::default());
    }

    #[test]
    fn a_thread_of_another_process_gets_what_is_asked_and_keeps_the_rest() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tid = child.id() as i32;
        let before = Policy::read(tid).unwrap();
        let first = placement::affinity(tid).unwrap().iter().next().unwrap();
        let cpus = CpuSet::single(first).unwrap();
        let granted = Granted::to_thread(tid, None, Some(cpus), false);
        assert!(granted.is_complete(), "{:?}", granted.differences);
        assert_eq!((granted.effective.cpus, granted.effective.policy), (Some(cpus), Some(before)));
        assert_eq!(placement::affinity(tid).unwrap(), cpus);
        let policy = Policy::Other { nice: 7 };
        assert!(Granted::to_thread(tid, Some(policy), None, false).is_complete());
        assert_eq!(Policy::read(tid).unwrap(), policy);
        // No thread has that priority.
        let refused = Granted::to_thread(tid, Some(Policy::Fifo { priority: 0 }), None, true);
        assert_eq!(refused.differences.len(), 1, "{:?}", refused.differences);
        assert_eq!(refused.differences[0].effective, policy.to_string());
        assert!(!refused.differences[0].fix.is_empty());
        assert!(refused.check("x").is_err());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn every_refusal_is_listed_with_its_fix() {
        std::thread::spawn(|| {
            let settings = ThreadSettings {
                cpus: Some(CpuSet::single(CpuSet::MAX_CPU).unwrap()),
                policy: Policy::Fifo { priority: 0 },
                strict: true,
                ..Default::default()
            };
            let inherited = Policy::read(0).unwrap().to_string();
            let granted = settings.apply();
            let names: Vec<_> = granted.differences.iter().map(|d| d.setting.as_str()).collect();
            assert_eq!(names, ["cpus", "policy"]);
            assert_eq!(granted.differences[1].effective, inherited);
            assert!(granted.differences.iter().all(|d| !d.fix.is_empty() && !d.reason.is_empty()));
            assert!(matches!(granted.check("x"), Err(Error::NotGranted { differences, .. }) if differences.len() == 2));
            let lenient = Granted { requested: ThreadSettings { strict: false, ..settings }, ..granted };
            lenient.check("x").unwrap();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_is_granted_reads_as_asked() {
        std::thread::spawn(|| {
            let first = placement::affinity(0).unwrap().iter().next().unwrap();
            let settings = ThreadSettings {
                cpus: Some(CpuSet::single(first).unwrap()),
                policy: Policy::Other { nice: 3 },
                timer_slack_ns: Some(7),
                prefault_stack_bytes: 100_000,
                ..Default::default()
            };
            let granted = settings.apply();
            assert!(granted.is_complete(), "{:?}", granted.differences);
            assert_eq!(granted.effective.cpus, settings.cpus);
            assert_eq!(granted.effective.policy, Some(settings.policy));
            assert_eq!(granted.effective.timer_slack_ns, Some(7));
        })
        .join()
        .unwrap();
    }
}
