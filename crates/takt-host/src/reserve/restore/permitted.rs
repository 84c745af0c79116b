//! Files that undoing may touch: a state file from elsewhere must not be a way to write any file.

use std::path::{Component, Path};

use super::Change;
use crate::reserve::system::{GroupVersion, Kernel};
use crate::reserve::{ADMISSION_FILE, WORKERS_FILE};

/// Files of the scheduler's switches, on newer and older kernels.
pub const FEATURE_FILES: [&str; 2] = ["/sys/kernel/debug/sched/features", "/sys/kernel/debug/sched_features"];
/// The switch that makes the kernel enforce budgets exactly, on newer and older kernels.
pub(crate) const FEATURES: [&str; 2] = ["HRTICK_DL", "HRTICK"];

/// Longest value that is written back: masks of CPUs are the longest that are read.
const MAX_BYTES: usize = 4096;

/// A path without a way up.
pub(super) fn is_plain(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| matches!(part, Component::ParentDir))
}

/// Whether the manager makes such changes; if not, why, as the end of a sentence.
pub(super) fn permitted(kernel: &dyn Kernel, change: &Change) -> Result<(), &'static str> {
    match change {
        Change::File { path, undo } => {
            if undo.len() > MAX_BYTES || undo.chars().any(char::is_control) {
                return Err("the value is too long or not plain text");
            }
            let below =
                |version, name| kernel.group_mount(version).is_some_and(|mount| *path == mount.join(name));
            let known = *path == Path::new(ADMISSION_FILE)
                || *path == Path::new(WORKERS_FILE)
                || is_feature(path, undo)
                || below(GroupVersion::V1, "cpuset.sched_load_balance")
                || below(GroupVersion::V2, "cgroup.subtree_control");
            if known { Ok(()) } else { Err("not a file that the manager changes") }
        }
        Change::Group { path, version, heir } => {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let mount = kernel.group_mount(*version);
            let known = mount.is_some_and(|mount| {
                (*heir == mount && name.starts_with("takt-"))
                    || (*heir == mount.join("takt-managed") && name.starts_with("core-"))
            });
            let inside = is_plain(path) && path.parent() == Some(heir);
            if known && inside { Ok(()) } else { Err("not a control group that the manager makes") }
        }
    }
}

/// Whether undoing may write this to a feature file.
fn is_feature(path: &Path, undo: &str) -> bool {
    FEATURE_FILES.iter().any(|file| path == Path::new(file))
        && FEATURES.iter().any(|feature| undo.strip_prefix("NO_") == Some(*feature))
}
