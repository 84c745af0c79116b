//! The view for a machine without a browser: the same state in a terminal.

use std::time::Duration;

use ratatui::Frame;
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::Reader;

use super::screen::{Shown, draw};
use super::status::CellStatus;

/// Draws the newest state whenever it is called. `names` are the cameras in the order of the
/// configuration.
pub fn drawing(
    mut status: Reader<CellStatus>,
    title: &str,
    names: &[String],
) -> impl FnMut(&mut Frame<'_>) + Send + 'static {
    let (title, names) = (title.to_owned(), names.to_owned());
    move |frame| {
        let snapshot = status.read();
        let shown = Shown {
            title: &title,
            names: &names,
            status: snapshot.value,
            sequence: snapshot.sequence,
            age: Duration::from_nanos(monotonic_ns().saturating_sub(snapshot.stamp_ns)),
        };
        draw(frame, &shown);
    }
}
