//! Going on with a run that was killed, whichever robot it is of.
//!
//! Samples and everything that accumulates come back from the run's checkpoint
//! ([`takt_rundir::Checkpoint`]); the robot itself starts anew, as after every power failure, and
//! its state of the moment of the kill is gone. The time between the kill and the resumption is
//! none of the measured time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use takt_rt::thread::{self, Handle};
use takt_rundir::{Checkpoint, Claim, FactDifference, Machine, RUN_FILE, RunDir, RunHeader, utc_now};

use crate::LabError;

/// Keys of a configuration that may change: how long the run is in all.
const LENGTH_KEYS: [&str; 2] = ["seconds", "iterations"];
/// Key of `run.json` that shows when the run was taken up again.
pub(crate) const RESUMPTIONS: &str = "resumptions";

/// One resumption, in `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resumption {
    /// When.
    pub at_utc: String,
    /// Measured time before it, seconds.
    pub after_s: f64,
    /// Rows of each sample file before it.
    pub rows: std::collections::BTreeMap<String, u64>,
}

/// State left by a killed run.
#[derive(Debug)]
pub struct Resumed {
    /// Its header.
    pub header: RunHeader,
    pub checkpoint: Checkpoint,
    /// Every resumption, this one last.
    pub resumptions: Vec<Resumption>,
}

impl Resumed {
    /// Takes up the killed run at `path`, which must be one of `robot` with the configuration
    /// `asked` and under the same `label`.
    ///
    /// # Errors
    /// [`LabError::Config`] where it is another run, has come to its end or is still written;
    /// [`LabError::Files`].
    pub(crate) fn take_up(
        path: &Path,
        robot: &str,
        label: &str,
        asked: &Value,
    ) -> Result<(RunDir, Claim, Self), LabError> {
        let dir = RunDir::open(path)?;
        let refuse = |why: String| Err(LabError::Config(format!("--resume {}: {why}", path.display())));
        if dir.is_complete() {
            return refuse("this run is complete and sealed; start a new one".to_owned());
        }
        let header = dir.header()?;
        if header.robot != robot {
            return refuse(format!(
                "this is a run of {}, not of {robot}; resume it with its own configuration",
                header.robot
            ));
        }
        let run: Value = dir.read_json(RUN_FILE)?;
        let before = run.get("asked").map(|before| with_present_keys("", before));
        if let Some(key) = other_key(before.as_ref(), asked) {
            return refuse(format!(
                "it was started with another \"{key}\"; resume it with the same configuration (stored under \"asked\" in {RUN_FILE}), or \
                 start a new run"
            ));
        }
        if header.label != label {
            return refuse(format!(
                "it was measured as \"{}\" but would continue as \"{label}\"; resume it under the same interference, or start a new run",
                header.label
            ));
        }
        // Before anything is changed: the run may still be alive.
        let claim = dir.claim()?;
        let checkpoint = dir.resume()?;
        let mut resumptions: Vec<Resumption> = run
            .get(RESUMPTIONS)
            .and_then(|before| serde_json::from_value(before.clone()).ok())
            .unwrap_or_default();
        resumptions.push(Resumption {
            at_utc: utc_now(),
            after_s: checkpoint.elapsed_ns as f64 / 1e9,
            rows: checkpoint.rows.clone(),
        });
        Ok((dir, claim, Self { header, checkpoint, resumptions }))
    }

    /// Differences between the machine on which the run began and this one, one sentence each.
    pub(crate) fn machine_problems(&self) -> Vec<String> {
        let differences = self.header.machine.differences(&Machine::read());
        let sentence = |d: FactDifference| {
            format!("the run was resumed although {} was {} instead of {}", d.fact, d.after, d.before)
        };
        differences.into_iter().map(sentence).collect()
    }
}

/// A configuration that a run of the version before was asked with, by the present names of its
/// keys.
fn with_present_keys(table: &str, value: &Value) -> Value {
    match value {
        Value::Object(keys) => {
            let present =
                |key: &String| takt_files::present_key(table, key).map_or_else(|| key.clone(), str::to_owned);
            keys.iter().map(|(key, value)| (present(key), with_present_keys(key, value))).collect()
        }
        Value::Array(list) => list.iter().map(|value| with_present_keys(table, value)).collect(),
        _ => value.clone(),
    }
}

/// The first key whose value the run was not asked with. Its length may change.
fn other_key(before: Option<&Value>, now: &Value) -> Option<String> {
    let (Some(before), Some(now)) = (before.and_then(Value::as_object), now.as_object()) else {
        return Some("configuration".to_owned());
    };
    let keys = before.keys().chain(now.keys()).filter(|key| !LENGTH_KEYS.contains(&key.as_str()));
    keys.into_iter().find(|key| before.get(*key) != now.get(*key)).cloned()
}

/// Period at which the newest checkpoint is written to the disk: a power failure costs at most this
/// and the time that the disk takes. It is long, because every fsync disturbs other users of the
/// disk.
const DURABLE_EVERY: Duration = Duration::from_secs(10);

/// Puts checkpoints onto the disk while the run goes on: a thread of its own, because it waits for
/// the disk.
#[derive(Debug)]
pub(crate) struct Durable {
    stop: Arc<(Mutex<()>, Condvar, AtomicBool)>,
    thread: Option<Handle<()>>,
}

impl Durable {
    pub(crate) fn start(dir: &RunDir) -> Result<Self, LabError> {
        let stop = Arc::new((Mutex::new(()), Condvar::new(), AtomicBool::new(false)));
        let (dir, watched) = (dir.clone(), Arc::clone(&stop));
        let body = move || {
            let (lock, wake, stop) = &*watched;
            let mut held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            while !stop.load(Ordering::Acquire) {
                held = wake.wait_timeout(held, DURABLE_EVERY).unwrap_or_else(PoisonError::into_inner).0;
                if !stop.load(Ordering::Acquire) {
                    // One that fails leaves the one before; a kill is covered either way.
                    let _ = dir.make_durable();
                }
            }
        };
        let thread = thread::spawn_exempt("takt-durable", "writes checkpoints to the disk", body)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    pub(crate) fn stop(&mut self) {
        let (lock, wake, stop) = &*self.stop;
        stop.store(true, Ordering::Release);
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_of_the_version_before_goes_on_and_another_limit_is_found() {
        let now =
            json!({"seconds": 5, "motion": {"safety": {"max_late": 20}, "link": [{"max_lock_wait_us": 1}]}});
        let before = |late: u32| {
            let before = json!({"seconds": 2, "motion": {"safety": {"most_late": late}, "link": [{"most_lock_wait_us": 1}]}});
            with_present_keys("", &before)
        };
        assert_eq!(other_key(Some(&before(20)), &now), None);
        assert_eq!(other_key(Some(&before(21)), &now), Some("motion".to_owned()));
    }
}
