//! The robots that a program has, and any robot's file: the key `robot` at the top says which.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use serde::Deserialize;
use takt_rundir::check_claims;

use crate::LabError;
use crate::robot::{Kind, Robot, Scaled};

/// A robot's configuration, whichever robot it is of.
#[derive(Debug)]
pub struct RobotFile(Box<dyn Robot>);

impl RobotFile {
    /// Of a robot's own file.
    pub fn of(robot: impl Robot) -> Self {
        Self(Box::new(robot))
    }

    /// The robot's name.
    pub fn robot(&self) -> &'static str {
        self.kind().name
    }

    /// The robot's own file, of a robot of that type.
    pub fn get<R: Robot>(&self) -> Option<&R> {
        self.as_any().downcast_ref()
    }

    /// The same, to be changed.
    pub fn get_mut<R: Robot>(&mut self) -> Option<&mut R> {
        self.0.as_any_mut().downcast_mut()
    }

    /// The whole configuration as TOML, paths resolved.
    ///
    /// # Errors
    /// [`LabError::Config`] for values that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, LabError> {
        self.to_text().map_err(|error| LabError::Config(error.to_string()))
    }
}

impl Deref for RobotFile {
    type Target = dyn Robot;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for RobotFile {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl Clone for RobotFile {
    fn clone(&self) -> Self {
        Self(self.boxed())
    }
}

impl PartialEq for RobotFile {
    fn eq(&self, other: &Self) -> bool {
        self.equals(&**other)
    }
}

/// The key that says which robot it is. A table of that name is the arm of a cell.
#[derive(Deserialize)]
struct Which {
    robot: Option<toml::Value>,
}

/// The robots that a program has; the program makes one and hands it to whoever reads files of any robot.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    kinds: &'static [&'static Kind],
}

impl Registry {
    /// Of these. A file without the key `robot` is of the first.
    pub const fn new(kinds: &'static [&'static Kind]) -> Self {
        Self { kinds }
    }

    /// What there is.
    pub fn kinds(&self) -> &'static [&'static Kind] {
        self.kinds
    }

    /// The robot of that name.
    pub fn kind(&self, robot: &str) -> Option<&'static Kind> {
        self.kinds.iter().copied().find(|kind| kind.name == robot)
    }

    /// What a robot gave up because a machine cannot carry its configuration, in a sentence.
    pub fn scaled_text(&self, robot: &str, scaled: &Scaled) -> Option<String> {
        (self.kind(robot)?.scaled_text?)(scaled)
    }

    fn unknown(&self, robot: &str) -> String {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.name).collect();
        format!("robot = \"{robot}\": there are {}", names.join(", "))
    }

    /// Text of a shipped configuration.
    ///
    /// # Errors
    /// [`LabError::Config`] for a name that none has.
    pub fn shipped_text(&self, name: &str) -> Result<&'static str, LabError> {
        let mut all = self.kinds.iter().flat_map(|kind| kind.shipped);
        let found = all.find(|(known, _)| *known == name).map(|(_, text)| *text);
        found.ok_or_else(|| LabError::Config(self.unknown(name)))
    }

    /// A shipped configuration.
    ///
    /// # Errors
    /// [`LabError::Config`] for a name that none has.
    pub fn shipped(&self, name: &str) -> Result<RobotFile, LabError> {
        self.parse(self.shipped_text(name)?, &format!("{name} (built in)"), Path::new(""))
    }

    /// Reads a file. Paths within it are relative to its folder.
    ///
    /// # Errors
    /// [`LabError::Files`] or [`LabError::Config`], which names file, line and what is accepted.
    pub fn load(&self, path: &Path) -> Result<RobotFile, LabError> {
        let text =
            takt_files::read_to_string(path, takt_files::CONFIGURATION_BYTES).map_err(LabError::io(path))?;
        self.parse(&text, &path.display().to_string(), path.parent().unwrap_or(Path::new("")))
    }

    /// A file where there is one of that name, else the shipped configuration.
    ///
    /// # Errors
    /// As [`load`](Self::load) and [`shipped`](Self::shipped).
    pub fn load_or_shipped(&self, name: &str) -> Result<RobotFile, LabError> {
        let path = Path::new(name);
        if path.is_file() { self.load(path) } else { self.shipped(name) }
    }

    /// Reads a text. `name` stands for it in errors; `folder` is what its paths are relative to.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(&self, text: &str, name: &str, folder: &Path) -> Result<RobotFile, LabError> {
        let config =
            |error: String| LabError::Config(format!("{name}: {}", takt_files::shortened(error.trim_end())));
        let which: Which = toml::from_str(text).map_err(|e| config(e.to_string()))?;
        let named = which.robot.as_ref().and_then(toml::Value::as_str);
        let kind = match named {
            Some(robot) => self.kind(robot),
            None => self.kinds.first().copied(),
        };
        let kind = kind.ok_or_else(|| config(self.unknown(named.unwrap_or_default())))?;
        let file = (kind.read)(text, name, folder)?;
        let claims = file.measures().and_then(|measures| check_claims(file.verdict(), &measures));
        claims.map_err(|error| LabError::Config(format!("{name}: {error}")))?;
        Ok(file)
    }
}
