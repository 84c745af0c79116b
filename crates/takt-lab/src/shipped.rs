//! The files that a program carries, so that an installed one needs no other: configurations of
//! robots and goals of the latency manager. Campaigns have a place of their own
//! ([`crate::campaign::all`]).

#![deny(missing_docs)]

use std::path::Path;

use serde::Serialize;

use crate::LabError;
use crate::registry::Registry;

/// A shipped file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shipped {
    /// Its name, without a folder and `.toml`.
    pub name: &'static str,
    /// Other names that mean it.
    pub also: Vec<&'static str>,
    /// The robot that it is about.
    pub robot: &'static str,
    /// The first sentence of the comment at its head.
    pub about: String,
    /// What it says.
    #[serde(skip)]
    pub text: &'static str,
}

impl Shipped {
    /// Whether it has this name.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.also.contains(&name)
    }
}

/// Configurations of robots.
pub fn robots(registry: &Registry) -> Vec<Shipped> {
    let kinds = registry.kinds().iter();
    kinds.flat_map(|kind| files(kind.name, kind.shipped)).collect()
}

/// Goals of the latency manager.
pub fn goals(registry: &Registry) -> Vec<Shipped> {
    let kinds = registry.kinds().iter();
    kinds.flat_map(|kind| files(kind.name, kind.goals)).collect()
}

/// The word `path`, where it means a shipped file: it is no path, and no file here has that name. A
/// folder of runs that happens to be called like a robot hides none.
pub fn word(path: &Path, known: impl Fn(&str) -> bool) -> Option<&str> {
    let name = path.to_str()?;
    let is_path = name.contains('/') || path.extension().is_some() || path.is_file();
    (!is_path && (known(name) || !path.exists())).then_some(name)
}

/// The one of `files` that has this name. `what` is what they are, for the error.
///
/// # Errors
/// [`LabError::Config`] for a name that none has.
pub fn named(files: Vec<Shipped>, what: &str, name: &str) -> Result<Shipped, LabError> {
    let names: Vec<&str> =
        files.iter().flat_map(|file| file.also.iter().copied().chain([file.name])).collect();
    let meant = takt_files::did_you_mean(name, names.iter().copied());
    let unknown = format!(
        "\"{name}\": there is no shipped {what} of that name; shipped are {}{meant}",
        names.join(", ")
    );
    files.into_iter().find(|file| file.is(name)).ok_or(LabError::Config(unknown))
}

/// A file for each text: of several names of one text the last is the file's own.
fn files(robot: &'static str, texts: &[(&'static str, &'static str)]) -> Vec<Shipped> {
    let mut found: Vec<Shipped> = Vec::new();
    for &(name, text) in texts {
        match found.iter_mut().find(|file| file.text == text) {
            Some(file) => file.also.push(std::mem::replace(&mut file.name, name)),
            None => found.push(Shipped { name, also: Vec::new(), robot, about: about(text), text }),
        }
    }
    found
}

/// The first sentence of the comment that a file begins with.
fn about(text: &str) -> String {
    let comment = text.lines().map_while(|line| line.strip_prefix('#'));
    let words = comment.flat_map(str::split_whitespace);
    let mut sentence = String::new();
    for word in words {
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        if word.ends_with('.') {
            break;
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_may_have_several_lines_and_names_of_files() {
        let text = "# A stream of takt.script at\n# 500 Hz.  More\n\n# Not this.\nrobot = 'x'\n";
        assert_eq!(about(text), "A stream of takt.script at 500 Hz.");
        assert_eq!(about("# no end\nrobot = 'x'\n"), "no end");
        assert_eq!(about("robot = 'x'\n"), "");
    }

    #[test]
    fn names_of_one_text_are_one_file() {
        let found = files("cell", &[("cell", "# One."), ("demo", "# One."), ("paper", "# Two.")]);
        let names: Vec<_> = found.iter().map(|file| (file.name, file.also.clone())).collect();
        assert_eq!(names, [("demo", vec!["cell"]), ("paper", vec![])]);
        assert_eq!(named(found.clone(), "robot", "cell").unwrap().about, "One.");
        let error = named(found, "robot", "papre").unwrap_err().to_string();
        assert!(
            error.contains("shipped are cell, demo, paper") && error.contains("did you mean `paper`?"),
            "{error}"
        );
    }
}
