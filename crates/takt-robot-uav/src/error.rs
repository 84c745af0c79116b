//! Errors that keep the quadrotor from flying.

use takt_rt::config::SettingError;

/// Errors of the quadrotor. Each says what was found and the way out.
#[derive(Debug, thiserror::Error)]
pub enum UavError {
    /// The configuration is impossible.
    #[error("configuration: {0}")]
    Config(#[from] SettingError),
    /// The kernel refused something that this run cannot do without.
    #[error(transparent)]
    RealTime(#[from] takt_rt::Error),
    /// An exchange was made with too few readers: a mistake in this crate.
    #[error("internal: {0} has no reader left")]
    NoReader(&'static str),
}
