//! Time left, on a progress bar.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressState, ProgressStyle};

/// `2 h 5 min`, `3 min 20 s`, `12 s`.
pub fn span(time: Duration) -> String {
    let s = time.as_secs_f64().round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

/// The time left of a bar whose length is a time in milliseconds: of a window that is as long as
/// asked, and no guess from the speed so far, in which a slow start of the robot would count.
pub fn of_window(style: ProgressStyle) -> ProgressStyle {
    style.with_key("left", |state: &ProgressState, out: &mut dyn Write| {
        // A bar that cannot be drawn is no trouble of the run.
        let _ = match state.len() {
            Some(ms) if ms > 0 => {
                write!(out, "{} left", span(Duration::from_millis(ms.saturating_sub(state.pos()))))
            }
            _ => Ok(()),
        };
    })
}

/// Time left of several runs, an estimate that goes on between two of them.
#[derive(Clone, Debug, Default)]
pub struct Countdown(Arc<Mutex<Option<Instant>>>);

impl Countdown {
    /// So much from now on.
    pub fn set(&self, left: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(left);
    }

    fn words(&self, now: Instant) -> String {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => String::new(),
            Some(end) if end > now => format!("about {} left", span(end - now)),
            Some(end) => format!("{} longer than expected", span(now - end)),
        }
    }

    /// A style that shows it as `{left}`.
    pub fn on(&self, style: ProgressStyle) -> ProgressStyle {
        let countdown = self.clone();
        style.with_key("left", move |_: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}", countdown.words(Instant::now()));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_left_falls_within_a_run() {
        let countdown = Countdown::default();
        let now = Instant::now();
        assert_eq!(countdown.words(now), "");
        countdown.set(90 * S);
        let words = |after| countdown.words(now + after);
        assert_eq!(words(Duration::ZERO), "about 1 min 30 s left");
        assert_eq!(words(30 * S), "about 1 min 0 s left");
        assert_eq!(words(100 * S), "10 s longer than expected");
        countdown.set(Duration::MAX);
    }

    #[test]
    fn spans() {
        let of = |s| span(Duration::from_secs(s));
        assert_eq!([of(0), of(12), of(200), of(7500)], ["0 s", "12 s", "3 min 20 s", "2 h 5 min"]);
    }
}
