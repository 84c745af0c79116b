//! Errors of starting a load, or of its early end.

use std::io;
use std::path::PathBuf;

use crate::profile;

/// Reason why a load could not be started, or did not last.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No profile has this name.
    #[error(
        "no stress profile is named `{given}`. The profiles are: {}; several joined by `+`; or a table with `[[component]]` entries",
        profile::NAMES.join(", ")
    )]
    UnknownProfile { given: String },
    /// A value of a profile is out of its bounds.
    #[error("stress profile `{profile}`, {component}: {field} = {given} is not in {expected}")]
    Invalid { profile: String, component: &'static str, field: String, given: String, expected: String },
    /// The profile insists on a tool that is not there.
    #[error(
        "stress profile `{profile}` needs `{tool}` ({reason}), and `require_tools` forbids a stand-in. Fix: `sudo apt-get install \
         {package}`, or omit `require_tools`"
    )]
    ToolMissing {
        profile: String,
        tool: &'static str,
        reason: String,
        /// The Debian package that holds it.
        package: &'static str,
    },
    /// A tool could not be started, or ended before it ran.
    #[error("{tool} for {component}: {reason}")]
    Tool { tool: &'static str, component: &'static str, reason: String },
    /// A thread could not be started.
    #[error(
        "cannot start a thread for {component}: {reason}. Fix: use fewer workers, or raise `ulimit -u` or the cgroup's pids.max"
    )]
    Thread { component: &'static str, reason: String },
    /// A file or folder that the load needs is not usable.
    #[error("{component}: {path}: {source}. Fix: name an existing, writable scratch folder", path = path.display())]
    File { component: &'static str, path: PathBuf, source: io::Error },
    /// The machine has too little free memory or disk for the component.
    #[error(
        "{component}: {available} bytes of {what} are available, and {reserve} of them must stay free. Fix: {fix}"
    )]
    NotEnoughSpace {
        component: &'static str,
        what: &'static str,
        available: u64,
        /// Bytes that the load must leave.
        reserve: u64,
        fix: &'static str,
    },
    /// A component stopped before it was instructed to.
    #[error("the load is no longer complete: {component} ({tool}) ended after {after_s:.1} s: {why}")]
    Died {
        component: String,
        tool: String,
        /// Seconds since the load ran.
        after_s: f64,
        /// The known cause.
        why: String,
    },
}
