//! Policy and CPUs of a thread of another process: given where they are asked for, and read back.

use takt_rt::Error;
use takt_rt::placement::{CpuSet, affinity, set_affinity};
use takt_rt::policy::Policy;
use takt_rt::settings::{Difference, Effective, Granted, ThreadSettings};

/// Gives the thread `tid` a policy and CPUs, each only where it is asked for. What nobody asks for
/// is what the thread has.
pub(crate) fn give(tid: i32, policy: Option<Policy>, cpus: Option<CpuSet>) -> Granted {
    let mut differences = Vec::new();
    let mut note = |setting: &str, requested: String, outcome: Result<(), Error>| {
        if let Err(error) = outcome {
            differences.push(refused(setting, requested, &error));
        }
    };
    if let Some(cpus) = cpus {
        note("cpus", cpus.to_string(), set_affinity(tid, &cpus));
    }
    if let Some(policy) = policy {
        note("policy", policy.to_string(), policy.apply(tid));
    }
    let (has, may_use) = (Policy::read(tid).ok(), affinity(tid).ok());
    for difference in &mut differences {
        let effective = if difference.setting == "policy" {
            has.map(|policy| policy.to_string())
        } else {
            may_use.map(|cpus| cpus.to_string())
        };
        difference.effective = effective.unwrap_or_else(|| "unreadable".to_owned());
    }
    let requested =
        ThreadSettings { policy: policy.or(has).unwrap_or_default(), cpus, ..ThreadSettings::default() };
    let effective = Effective { tid, policy: has, cpus: may_use, timer_slack_ns: None, locked_bytes: 0 };
    let mut granted = Granted { requested, effective, differences: Vec::new() };
    // What no call refused and reads back otherwise.
    granted.reread();
    let named =
        |differences: &[Difference], setting: &str| differences.iter().any(|one| one.setting == setting);
    granted.differences.retain(|one| !named(&differences, &one.setting));
    granted.differences.extend(differences);
    granted
}

fn refused(setting: &str, requested: String, error: &Error) -> Difference {
    let (reason, fix) = match error {
        Error::Refused { cause, fix, source, .. } => (format!("{cause} ({source})"), fix.clone()),
        other => (other.to_string(), "correct the setting".to_owned()),
    };
    Difference { setting: setting.to_owned(), requested, effective: String::new(), reason, fix }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_another_process_gets_what_is_asked_and_keeps_the_rest() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tid = child.id() as i32;
        let before = Policy::read(tid).unwrap();
        let first = affinity(tid).unwrap().iter().next().unwrap();
        let cpus = CpuSet::single(first).unwrap();
        let granted = give(tid, None, Some(cpus));
        assert!(granted.is_complete(), "{:?}", granted.differences);
        assert_eq!((granted.effective.cpus, granted.effective.policy), (Some(cpus), Some(before)));
        assert_eq!(affinity(tid).unwrap(), cpus);
        let policy = Policy::Other { nice: 7 };
        assert!(give(tid, Some(policy), None).is_complete());
        assert_eq!(Policy::read(tid).unwrap(), policy);
        // No thread has that priority.
        let refused = give(tid, Some(Policy::Fifo { priority: 0 }), None);
        assert_eq!(refused.differences.len(), 1, "{:?}", refused.differences);
        assert_eq!(refused.differences[0].effective, policy.to_string());
        assert!(!refused.differences[0].fix.is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
