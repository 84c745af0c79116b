//! Figures, drawn as SVG. Configurations are rows, named on the left: long names stay level and
//! readable, and 32 configurations fit as well as two.

mod canvas;
mod cdf;
mod groups;
mod history;
mod lines;
mod panels;
mod plot;
mod rows;
mod scale;
mod windows;

pub use cdf::{CdfPanel, cdfs};
pub use groups::{GroupPanel, Groups, Pair, PublishedBar, groups};
pub use history::{HistoryPicture, HistoryPoint, history_picture};
pub use lines::{Curves, Line, lines};
pub(crate) use panels::COLUMNS;
pub use panels::{Layer, Panel, panels};
pub use rows::{BarRow, BoxRow, RidgeRow, Whisker, bars, boxes, ridges};
pub use windows::{Kinds, WindowPart, WindowRow, unaccounted_ns, windows};

use crate::words::{Unit, clean, shorten};

/// A run that a figure was drawn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Number of the run in the report: `R3`.
    pub key: String,
    /// Name of its directory.
    pub name: String,
    /// Hash that stands for all its files, or what is said in its place.
    pub hash: String,
}

impl Source {
    /// One line: name and hash.
    pub fn line(&self) -> String {
        format!("{} {} ({})", self.key, self.name, self.hash)
    }
}

#[derive(Clone, Debug)]
pub struct Figure {
    /// Anchor and file name, unique in its document.
    pub id: String,
    /// Its title, one sentence.
    pub title: String,
    /// An explanation for reading it.
    pub caption: String,
    /// Short names that stand in the picture for long ones.
    pub key: Vec<(String, String)>,
    /// The runs that it was drawn from.
    pub sources: Vec<Source>,
    /// The picture.
    pub svg: String,
}

/// A picture with its key: short names that stand in it, and the long ones.
pub type Picture = (String, Vec<(String, String)>);

/// Description of a picture for readers that cannot see it, and its origin.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Its content.
    pub alt: &'a str,
    /// Its origin.
    pub source: &'a str,
}

/// Common properties of all pictures of one figure.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// Name of the measured quantity: "Wake-up lateness". The unit is added.
    pub quantity: &'a str,
    pub unit: Unit,
}

impl Axis<'_> {
    /// The name of the axis, with its unit.
    fn name(&self) -> String {
        format!("{} ({})", shorten(&clean(self.quantity), 70), self.unit.sign())
    }
}

/// Names as they fit into a picture: as they are where all do; otherwise each shortened behind a
/// key, with the key. Keys begin with `letter`: C for configurations, another where a picture
/// counts something else.
pub(crate) fn fit(names: &[String], limit: usize, letter: char) -> (Vec<String>, Vec<(String, String)>) {
    let names: Vec<String> = names.iter().map(|name| clean(name)).collect();
    if names.iter().all(|name| name.chars().count() <= limit) {
        return (names, Vec::new());
    }
    let keyed = |(index, name): (usize, &String)| {
        let key = format!("{letter}{}", index + 1);
        let shown = format!("{key}  {}", shorten(name, limit.saturating_sub(key.len() + 2)));
        (shown, (key, name.clone()))
    };
    names.iter().enumerate().map(keyed).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_get_a_key() {
        let names = vec!["short".to_owned(), "x".repeat(80)];
        let (shown, key) = fit(&names, 30, 'C');
        assert!(shown.iter().all(|name| name.chars().count() <= 30), "{shown:?}");
        assert_eq!(shown[0], "C1  short");
        assert_eq!(key[1], ("C2".to_owned(), "x".repeat(80)));
        assert_eq!(fit(&names[..1], 30, 'C'), (vec!["short".to_owned()], vec![]));
    }
}
