//! Changing settings for a while: every value from before is in a state file before the first one
//! is written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use crate::reserve::restore::Owner;
use crate::reserve::system::{Identity, Linux};
use serde::{Deserialize, Serialize};
use takt_files::Folder;
use takt_rt::placement::CpuSet;

use crate::doctor::cache::{self, SavedCache};
use crate::doctor::error::DoctorError;
use crate::doctor::journal::{self, SavedInterface, SavedThread};
use crate::doctor::report::Report;
use crate::doctor::tree::chosen;

const FORMAT: u32 = 1;

/// Longest value of a setting: a CPU mask of thousands of CPUs is shorter.
const MAX_BYTES: usize = 4096;

/// A setting to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The file, below `/proc` or `/sys`.
    pub path: PathBuf,
    /// Value to write.
    pub value: String,
}

impl Change {
    pub(crate) fn new(path: &str, value: impl Into<String>) -> Self {
        Self { path: path.into(), value: value.into() }
    }
}

/// Result for one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The file.
    pub path: PathBuf,
    /// The value before.
    pub before: String,
    /// The value now, read back.
    pub after: String,
    /// Reason why it is not the requested value.
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) format: u32,
    pub(crate) settings: Vec<Saved>,
    /// Threads that were changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) threads: Vec<SavedThread>,
    /// Interfaces that were changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) interfaces: Vec<SavedInterface>,
    /// The last cache, where it was divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<SavedCache>,
    /// Sets of CPUs that threads were given: one that shows such a set and is not known has
    /// inherited it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given: Vec<CpuSet>,
    /// When that began, ticks since boot: who is older had its set before, and inherited nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) given_since: Option<u64>,
    /// Boot and process of this state, if threads were changed or settings are only tried.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) boot: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<Identity>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            format: FORMAT,
            settings: Vec::new(),
            threads: Vec::new(),
            interfaces: Vec::new(),
            cache: None,
            given: Vec::new(),
            given_since: None,
            boot: String::new(),
            owner: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saved {
    pub(crate) path: PathBuf,
    /// The value before the first change.
    pub(crate) before: String,
}

/// Default path of the state file: a folder that only this user can use, never a shared one,
/// because the file's content is written to the kernel.
pub fn default_state() -> PathBuf {
    takt_files::state_folder().join("doctor.json")
}

/// `/proc/PID/oom_score_adj`. A process with that number may be another one by the time it is put
/// back, which then has the kernel's own score.
fn is_oom_score(path: &str) -> bool {
    let pid = path.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/oom_score_adj"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Refuses changes of the machine by somebody who may not make them. `command` is what was asked
/// for.
///
/// # Errors
/// [`DoctorError::NotRoot`] for another user than root without `CAP_DAC_OVERRIDE` (files of `/proc`
/// and `/sys` are root's).
pub fn may_change(command: &'static str) -> Result<(), DoctorError> {
    /// capability(7)
    const CAP_DAC_OVERRIDE: u32 = 1;
    // SAFETY: geteuid has no preconditions.
    let user = unsafe { libc::geteuid() };
    let overrides = takt_rt::procfs::capabilities().is_some_and(|bits| bits >> CAP_DAC_OVERRIDE & 1 == 1);
    match user == 0 || overrides {
        true => Ok(()),
        false => Err(DoctorError::NotRoot { user, command }),
    }
}

/// Makes the changes of all safe findings of `report`. The values from before go to `state_file`;
/// one that is there already keeps its values, so that [`revert`] leads back to the state before
/// the first call. Settings that are as wanted are left alone. A setting that the kernel refuses is
/// reported by [`Changed::error`]; the others are made.
///
/// # Errors
/// [`DoctorError::StateFile`] or [`DoctorError::ForeignState`] when the values from before cannot
/// be kept; nothing is changed then.
pub fn apply(report: &Report, state_file: &Path) -> Result<Vec<Changed>, DoctorError> {
    if let (true, Some(folder)) = (state_file == default_state(), state_file.parent()) {
        takt_files::private_folder(folder)
            .map_err(|source| DoctorError::StateFile { path: state_file.to_owned(), source })?;
    }
    let _owner = owner(state_file)?;
    apply_below(Path::new("/"), report, state_file)
}

/// Of all programs that change settings of the whole machine, this one goes on, until the result is
/// dropped. None for who may not change them anyway.
pub(crate) fn owner(state_file: &Path) -> Result<Option<Owner>, DoctorError> {
    Ok(Owner::take(&mut Linux::new(), state_file)?.0)
}

/// Puts back all values of `state_file` and removes it.
///
/// # Errors
/// [`DoctorError::NotReverted`] names what could not be put back; the file still holds that.
pub fn revert(state_file: &Path) -> Result<Vec<Changed>, DoctorError> {
    if load(state_file)?.is_none() {
        return Err(DoctorError::NothingApplied { path: state_file.to_owned() });
    }
    let _owner = owner(state_file)?;
    revert_as_owner(state_file)
}

pub(crate) fn revert_as_owner(state_file: &Path) -> Result<Vec<Changed>, DoctorError> {
    let _one = one_at_a_time(state_file)?;
    revert_below(Path::new("/"), state_file)
}

/// Of those that take back by the same file, or begin it, one goes on, until the result is dropped:
/// a watchdog that is late must not delete what the next search has just written down. None where
/// there is no folder, and so no file.
pub(crate) fn one_at_a_time(state_file: &Path) -> Result<Option<fs::File>, DoctorError> {
    let error = |source: io::Error| DoctorError::StateFile { path: state_file.to_owned(), source };
    let folder = state_file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match fs::File::open(folder.unwrap_or(Path::new("."))) {
        Ok(folder) => folder.lock().map(|()| Some(folder)).map_err(error),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(error(source)),
    }
}

pub(crate) fn apply_below(
    root: &Path,
    report: &Report,
    state_file: &Path,
) -> Result<Vec<Changed>, DoctorError> {
    let mut state = load(state_file)?.unwrap_or_else(State::new);
    let wanted: Vec<&Change> =
        report.checks.iter().filter(|check| check.safe).flat_map(|check| &check.changes).collect();
    let mut pending = Vec::new();
    for change in wanted {
        if let Err(reason) = permitted(&change.path, &change.value) {
            return Err(DoctorError::ForeignState { path: change.path.clone(), reason });
        }
        // Files that are missing or already have the value are left alone.
        let Ok(before) = read(root, &change.path) else { continue };
        if before == change.value {
            continue;
        }
        if !state.settings.iter().any(|saved| saved.path == change.path) {
            state.settings.push(Saved { path: change.path.clone(), before: before.clone() });
        }
        pending.push((change, before));
    }
    if pending.is_empty() {
        return Ok(Vec::new());
    }
    // Before the first write: an interruption at any point can be reverted.
    save(state_file, &state)?;
    let mut changed = Vec::new();
    for (change, before) in pending {
        changed.push(write(root, &change.path, &change.value, before));
    }
    // A setting that the kernel refused is as it was: there is nothing to put back.
    let refused = |saved: &Saved| {
        changed.iter().any(|c| c.path == saved.path && c.error.is_some() && c.after == saved.before)
    };
    let (kept, dropped): (Vec<_>, Vec<_>) =
        std::mem::take(&mut state.settings).into_iter().partition(|saved| !refused(saved));
    state.settings = kept;
    let others = state.threads.is_empty() && state.interfaces.is_empty() && state.cache.is_none();
    if state.settings.is_empty() && others {
        remove(state_file)?;
    } else if !dropped.is_empty() {
        save(state_file, &state)?;
    }
    Ok(changed)
}

pub(crate) fn revert_below(root: &Path, state_file: &Path) -> Result<Vec<Changed>, DoctorError> {
    let Some(mut state) = load(state_file)? else {
        return Err(DoctorError::NothingApplied { path: state_file.to_owned() });
    };
    // Threads first: what they were given may lean on files. There are none in a copy of another
    // machine.
    let mut changed = if root == Path::new("/") { journal::restore(&mut state) } else { Vec::new() };
    let mut failed: Vec<String> = changed.iter().filter_map(|changed| changed.error.clone()).collect();
    let mut kept = Vec::new();
    // Backwards, should one setting depend on another.
    for saved in std::mem::take(&mut state.settings).into_iter().rev() {
        let outcome = put_back(root, &saved);
        if let Some(error) = &outcome.error {
            failed.push(format!("{} to `{}`: {error}", saved.path.display(), saved.before));
            kept.push(saved);
        }
        changed.push(outcome);
    }
    if failed.is_empty() {
        remove(state_file)?;
        return Ok(changed);
    }
    kept.reverse();
    state.settings = kept;
    save(state_file, &state)?;
    Err(DoctorError::NotReverted { path: state_file.to_owned(), failed })
}

/// Writes the value from before, where it is not in force anyway.
pub(crate) fn put_back(root: &Path, saved: &Saved) -> Changed {
    match read(root, &saved.path) {
        Ok(now) if now == saved.before => {
            Changed { path: saved.path.clone(), before: now.clone(), after: now, error: None }
        }
        Ok(now) => write(root, &saved.path, &saved.before, now),
        Err(error) => Changed {
            path: saved.path.clone(),
            before: String::new(),
            after: String::new(),
            error: Some(error.to_string()),
        },
    }
}

/// The value in force.
pub(crate) fn read(root: &Path, path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(below(root, path))?;
    Ok(chosen(&text).unwrap_or_default())
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Writes and reads back.
pub(crate) fn write(root: &Path, path: &Path, value: &str, before: String) -> Changed {
    // Never created: it is a setting of the kernel, or it is nothing.
    let written = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(below(root, path))
        .and_then(|mut file| file.write_all(value.as_bytes()));
    let after = read(root, path).unwrap_or_default();
    let error = match written {
        Err(error) => Some(error.to_string()),
        Ok(()) if after != value => Some(format!("the kernel accepted `{value}` but reads back `{after}`")),
        Ok(()) => None,
    };
    Changed { path: path.to_owned(), before, after, error }
}

/// Whether a setting is one that this program writes: a state file from elsewhere must not be a way
/// to write any file.
pub(crate) fn permitted(path: &Path, value: &str) -> Result<(), String> {
    let shown = path.display();
    if path.components().any(|part| matches!(part, Component::ParentDir | Component::CurDir)) {
        return Err(format!("`{shown}` is not a plain path"));
    }
    let text = path.to_str().unwrap_or_default();
    let within = |prefix: &str, suffixes: &[&str]| {
        text.strip_prefix(prefix).is_some_and(|rest| suffixes.iter().any(|suffix| rest.ends_with(suffix)))
    };
    let known = [
        "/proc/sys/kernel/sched_rt_runtime_us",
        "/proc/sys/kernel/sched_autogroup_enabled",
        "/proc/sys/kernel/timer_migration",
        "/proc/irq/default_smp_affinity",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/debug/sched/preempt",
        // Settings that only a search tries.
        "/proc/sys/kernel/nmi_watchdog",
        "/proc/sys/kernel/numa_balancing",
        "/proc/sys/vm/swappiness",
        "/proc/sys/vm/stat_interval",
        "/proc/sys/vm/compaction_proactiveness",
        "/proc/sys/net/core/busy_poll",
        "/proc/sys/net/core/busy_read",
        "/sys/devices/virtual/workqueue/cpumask",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "/sys/kernel/mm/ksm/run",
        "/sys/kernel/rcu_expedited",
    ]
    .contains(&text)
        || takt_rt::kernel_file::NR_MIGRATE.contains(&text)
        || is_oom_score(text)
        || within("/sys/devices/system/cpu/cpu", &["/cpufreq/scaling_governor"])
        || within("/sys/devices/system/cpu/cpu", &["/power/pm_qos_resume_latency_us"])
        || (text.contains("/cpuidle/state") && within("/sys/devices/system/cpu/cpu", &["/disable"]))
        || within("/sys/kernel/debug/sched/fair_server/cpu", &["/runtime"])
        || (text.contains("/queues/rx-") && within("/sys/class/net/", &["/rps_cpus"]))
        || within("/sys/class/net/", &["/napi_defer_hard_irqs", "/gro_flush_timeout"])
        || within("/proc/irq/", &["/smp_affinity_list"]);
    if !known {
        return Err(format!("`{shown}` is not a setting that the doctor changes"));
    }
    if value.is_empty() || value.len() > MAX_BYTES || value.chars().any(char::is_control) {
        return Err(format!("the value of `{shown}` is empty, too long or not plain text"));
    }
    Ok(())
}

pub(crate) fn load(state_file: &Path) -> Result<Option<State>, DoctorError> {
    let foreign = |reason: String| DoctorError::ForeignState { path: state_file.to_owned(), reason };
    let text = match takt_files::read_own(state_file, takt_files::CONFIGURATION_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A file written by other users leads nowhere, whatever it contains.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied) =>
        {
            return Err(foreign(error.to_string()));
        }
        Err(source) => return Err(DoctorError::StateFile { path: state_file.to_owned(), source }),
    };
    let state: State = serde_json::from_str(&text).map_err(|error| foreign(error.to_string()))?;
    if state.format != FORMAT {
        return Err(foreign(format!("its format is {}, but this program knows {FORMAT}", state.format)));
    }
    for saved in &state.settings {
        permitted(&saved.path, &saved.before).map_err(foreign)?;
    }
    state.cache.as_ref().map_or(Ok(()), cache::permitted).map_err(foreign)?;
    Ok(Some(state))
}

/// Whole or not at all, and on the disk before this returns: the machine may hang on the first
/// setting.
pub(crate) fn save(state_file: &Path, state: &State) -> Result<(), DoctorError> {
    let error = |source: io::Error| DoctorError::StateFile { path: state_file.to_owned(), source };
    let text = serde_json::to_string_pretty(state).map_err(|e| error(io::Error::other(e)))?;
    let write = || {
        takt_files::check_folder(state_file.parent().unwrap_or(Path::new("")))?;
        let (folder, name) = Folder::of(state_file)?;
        let mut draft = folder.private_draft(name)?;
        draft.write_all(text.as_bytes())?;
        draft.finish_on_disk()
    };
    write().map_err(error)
}

fn remove(state_file: &Path) -> Result<(), DoctorError> {
    // Remains of a file that was being written when a kill came.
    let _ = fs::remove_file(state_file.with_added_extension("tmp"));
    fs::remove_file(state_file)
        .map_err(|source| DoctorError::StateFile { path: state_file.to_owned(), source })
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
