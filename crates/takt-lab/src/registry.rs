//! The robots that a program has, and any robot's file: the key `robot` at the top says which.

use std::io;
use std::path::Path;

use serde::Deserialize;
use takt_report::Supplements;
use takt_rt::config::SettingError;
use takt_rundir::check_claims;

use crate::LabError;
use crate::envelope::{ConfigError, ROBOT};
use crate::robot::{RobotFile, RobotKind, Scaled};
use crate::shipped::word;

/// The key that says which robot it is. A table of that name is the arm of a cell.
#[derive(Deserialize)]
struct Which {
    robot: Option<toml::Value>,
}

/// The robots that a program has; the program makes one and hands it to whoever reads files of any
/// robot.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    kinds: &'static [&'static RobotKind],
    unnamed: Option<&'static str>,
}

impl Registry {
    /// Of these.
    pub const fn new(kinds: &'static [&'static RobotKind]) -> Self {
        Self { kinds, unnamed: None }
    }

    /// The same, in which a file without the key `robot` is of this one.
    pub const fn unnamed(self, robot: &'static str) -> Self {
        Self { unnamed: Some(robot), ..self }
    }

    /// All registered kinds.
    pub fn kinds(&self) -> &'static [&'static RobotKind] {
        self.kinds
    }

    /// The robot of that name.
    pub fn kind(&self, robot: &str) -> Option<&'static RobotKind> {
        self.kinds.iter().copied().find(|kind| kind.name == robot)
    }

    /// The robots' additions to reports of their runs.
    pub fn supplements(&self) -> Supplements {
        self.kinds.iter().filter_map(|kind| Some((kind.name, kind.report?))).collect()
    }

    /// The robot's reduction because a machine cannot carry its configuration, in a sentence.
    pub fn scaled_text(&self, robot: &str, scaled: &Scaled) -> Option<String> {
        (self.kind(robot)?.scaled_text?)(scaled)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.name).collect();
        format!("there are {}", names.join(", "))
    }

    fn unknown(&self, robot: &str) -> SettingError {
        let known = self.kinds.iter().map(|kind| kind.name);
        let meant = takt_files::did_you_mean(robot, known);
        SettingError::value(ROBOT, format!("\"{robot}\""), format!("{}{meant}", self.names()))
    }

    /// Names of the shipped configurations.
    fn shipped_names(&self) -> Vec<&'static str> {
        self.kinds.iter().flat_map(|kind| kind.shipped).map(|(name, _)| *name).collect()
    }

    /// A robot's file that cannot be read; of one that does not exist, which robots there are.
    fn unreadable(&self, path: &Path, source: io::Error) -> LabError {
        match source.kind() {
            io::ErrorKind::NotFound => LabError::NoRobotFile {
                path: path.to_owned(),
                found: source.to_string(),
                shipped: self.shipped_names(),
            },
            _ => LabError::io(path)(source),
        }
    }

    /// Text of a shipped configuration.
    ///
    /// # Errors
    /// [`LabError::Setting`] for a name that none has.
    pub fn shipped_text(&self, name: &str) -> Result<&'static str, LabError> {
        let mut all = self.kinds.iter().flat_map(|kind| kind.shipped);
        let found = all.find(|(known, _)| *known == name).map(|(_, text)| *text);
        found.ok_or_else(|| self.unknown(name).into())
    }

    /// A shipped configuration.
    ///
    /// # Errors
    /// [`LabError::Setting`] for a name that none has.
    pub fn shipped(&self, name: &str) -> Result<RobotFile, LabError> {
        self.parse(self.shipped_text(name)?, &format!("{name} (built in)"), Path::new(""))
    }

    /// Reads a file. Paths within it are relative to its folder.
    ///
    /// # Errors
    /// [`LabError::Files`] or [`LabError::File`], which names file, line and what is accepted.
    pub fn load(&self, path: &Path) -> Result<RobotFile, LabError> {
        let text = takt_files::read_configuration(path).map_err(|source| self.unreadable(path, source))?;
        self.parse(&text, &path.display().to_string(), path.parent().unwrap_or(Path::new("")))
    }

    /// As [`load_or_shipped`](Self::load_or_shipped), of a path as it was typed.
    ///
    /// # Errors
    /// As there.
    pub fn find(&self, path: &Path) -> Result<RobotFile, LabError> {
        path.to_str().map_or_else(|| self.load(path), |name| self.load_or_shipped(name))
    }

    /// A file where there is one of that name, else the shipped configuration.
    ///
    /// # Errors
    /// As [`load`](Self::load) and [`shipped`](Self::shipped); [`LabError::NoRobot`] for a name
    /// that is neither.
    pub fn load_or_shipped(&self, name: &str) -> Result<RobotFile, LabError> {
        let (path, shipped) = (Path::new(name), self.shipped_names());
        if word(path, |name| shipped.contains(&name)).is_none() {
            return self.load(path);
        }
        if !shipped.contains(&name) {
            let meant = takt_files::did_you_mean(name, shipped.iter().copied());
            return Err(LabError::NoRobot { name: name.to_owned(), shipped, meant });
        }
        self.shipped(name)
    }

    /// Reads a text. `name` stands for it in errors; `folder` is what its paths are relative to.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(&self, text: &str, name: &str, folder: &Path) -> Result<RobotFile, LabError> {
        let (kind, is_named) = self.kind_of(text).map_err(LabError::file(name))?;
        let file = (kind.read)(text, name, folder).map_err(|source| match is_named {
            false if source.to_string().contains("unknown field") => LabError::Unnamed {
                source: Box::new(source),
                assumed: kind.name,
                known: self.kinds.iter().map(|kind| kind.name).collect(),
            },
            _ => source,
        })?;
        let measured = file.measures().and_then(|measures| Ok(check_claims(file.verdict(), &measures)?));
        measured.map_err(LabError::file(name))?;
        Ok(file)
    }

    /// The robot that a text is about, and whether the text names it.
    fn kind_of(&self, text: &str) -> Result<(&'static RobotKind, bool), ConfigError> {
        let which: Which = toml::from_str(text)?;
        let named = which.robot.as_ref().and_then(toml::Value::as_str);
        let robot = named
            .or(self.unnamed)
            .ok_or_else(|| SettingError::conflict("the key `robot` is missing", self.names()))?;
        let kind = self.kind(robot).ok_or_else(|| self.unknown(robot))?;
        Ok((kind, which.robot.is_some()))
    }
}
