//! A bound that many settings share.

use takt_rt::config::SettingError;

/// Refuses what is no number above 0.
pub(crate) fn positive(key: &str, value: f64) -> Result<(), SettingError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(SettingError::value(key, value, "accepted are numbers above 0"))
}
