//! Errors that keep the loop from running.

use takt_rt::config::SettingError;

/// Errors of the loop. Each says what was found and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaqError {
    /// A key whose value cannot work.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The far end of the link could never run beside a task that polls.
    #[error(
        "acquisition.policy = \"{policy}\" on CPU {cpus} polls and never releases the CPU, but the answering thread ({answerer}) may run \
         only there, so no edge would ever arrive. Fix: give the echo a higher priority (link.echo.policy) or another CPU \
         (link.echo.cpus), or let the link sleep (link.waiting = \"block\")"
    )]
    Starved {
        policy: String,
        cpus: String,
        /// The thread that would have to run there.
        answerer: String,
    },
    /// The controller cannot be built for this plant.
    #[error("controller \"{controller}\": {reason}")]
    Controller {
        /// Its kind.
        controller: &'static str,
        /// The reason, with the way out.
        reason: String,
    },
    /// The link could not be opened.
    #[error(transparent)]
    Link(#[from] takt_link_daq::LinkError),
    /// A thread could not be started, or the kernel refused something that the run cannot do
    /// without.
    #[error(transparent)]
    RealTime(#[from] takt_rt::Error),
}

impl DaqError {
    pub(crate) fn config(key: &str, given: impl ToString, accepted: impl Into<String>) -> Self {
        Self::Setting(SettingError::value(key, given.to_string(), accepted))
    }
}
