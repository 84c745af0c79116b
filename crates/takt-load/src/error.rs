//! Why a load could not be started, or did not last.

use std::io;
use std::path::PathBuf;

use crate::profile;

/// Why a load could not be started, or did not last.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No profile has this name.
    #[error(
        "no stress profile is called `{given}`. There are: {}; several joined by `+`; or a table with \
         `[[component]]` entries",
        profile::NAMES.join(", ")
    )]
    UnknownProfile {
        /// The name asked for.
        given: String,
    },
    /// A value of a profile is out of its bounds.
    #[error("stress profile `{profile}`, {component}: {field} = {given} is not in {expected}")]
    Invalid {
        /// Name of the profile.
        profile: String,
        /// The component's kind.
        component: &'static str,
        /// The field.
        field: String,
        /// The value given.
        given: String,
        /// The values accepted.
        expected: String,
    },
    /// The profile insists on a tool that is not there.
    #[error(
        "stress profile `{profile}` needs `{tool}` ({reason}), and `require_tools` forbids a stand-in. Fix: `sudo \
         apt-get install {package}`, or leave `require_tools` out"
    )]
    ToolMissing {
        /// Name of the profile.
        profile: String,
        /// The program.
        tool: &'static str,
        /// What the system said.
        reason: String,
        /// The Debian package that holds it.
        package: &'static str,
    },
    /// A tool could not be started, or ended before it ran.
    #[error("{tool} for {component}: {reason}")]
    Tool {
        /// The program.
        tool: &'static str,
        /// The component's kind.
        component: &'static str,
        /// What happened.
        reason: String,
    },
    /// A thread could not be started.
    #[error(
        "cannot start a thread for {component}: {reason}. Fix: fewer workers, or raise `ulimit -u` or the cgroup's pids.max"
    )]
    Thread {
        /// The component's kind.
        component: &'static str,
        /// What happened.
        reason: String,
    },
    /// A file or folder that the load needs is not usable.
    #[error("{component}: {path}: {source}. Fix: name a scratch folder that exists and can be written", path = path.display())]
    File {
        /// The component's kind.
        component: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The machine has too little free memory or disk for the component.
    #[error(
        "{component}: {available} bytes of {what} are available, and {reserve} of them must stay free. Fix: {fix}"
    )]
    NoRoom {
        /// The component's kind.
        component: &'static str,
        /// Memory or disk.
        what: &'static str,
        /// Bytes available.
        available: u64,
        /// Bytes that the load must leave.
        reserve: u64,
        /// What to do.
        fix: &'static str,
    },
    /// A component stopped before it was told to.
    #[error("the load is not whole any more: {component} ({tool}) ended after {after_s:.1} s: {why}")]
    Died {
        /// The component's kind.
        component: String,
        /// What ran it.
        tool: String,
        /// Seconds since the load ran.
        after_s: f64,
        /// What is known of the cause.
        why: String,
    },
}
