//! The one check that a number of a configuration lies in its range. NaN lies in none.

/// Refuses a number outside `low..=high`, and what is no number, in a sentence that names the key, the value and what is
/// accepted.
///
/// ```
/// use takt_rt::range::within;
///
/// assert!(within("rate_hz", 500.0, 1.0, 1000.0).is_ok());
/// assert_eq!(within("rate_hz", f64::NAN, 1.0, 1000.0).unwrap_err(), "rate_hz = NaN: accepted are 1 to 1000");
/// ```
///
/// # Errors
/// That sentence.
pub fn within(key: &str, value: f64, low: f64, high: f64) -> Result<(), String> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("{key} = {value}: accepted are {low} to {high}"))
}

/// As [`within`], for several keys of one section: `ssm.` before the name of each.
///
/// # Errors
/// The first that is outside.
pub fn all_within(section: &str, keys: &[(&str, f64, f64, f64)]) -> Result<(), String> {
    keys.iter().try_for_each(|&(key, value, low, high)| within(&format!("{section}{key}"), value, low, high))
}
