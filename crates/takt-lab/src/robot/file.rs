//! A robot's configuration, whichever robot it is of: what lab, registry and command line hold.

use std::any::Any;
use std::ops::{Deref, DerefMut};

use serde::Serialize;
use serde_json::Value;

use super::Robot;
use crate::LabError;
use crate::envelope::ROBOT;

/// Operations on a robot's file of any type; every type that is a file implements it automatically.
pub trait Erased: Any {
    /// Another one of the same.
    fn boxed(&self) -> Box<dyn Robot>;
    /// Whether the other is the same configuration of the same robot.
    fn equals(&self, other: &dyn Robot) -> bool;
    /// As the type that it is.
    fn as_any(&self) -> &dyn Any;
    /// As the type that it is, to be changed.
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// As `run.json` keeps it.
    ///
    /// # Errors
    /// Values that JSON cannot represent.
    fn to_json(&self) -> Result<Value, serde_json::Error>;
    /// As a file.
    ///
    /// # Errors
    /// Values that TOML cannot represent.
    fn to_text(&self) -> Result<String, toml::ser::Error>;
}

impl<R: Robot + Clone + PartialEq + Serialize> Erased for R {
    fn boxed(&self) -> Box<dyn Robot> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Robot) -> bool {
        other.as_any().downcast_ref::<R>().is_some_and(|other| other == self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn to_json(&self) -> Result<Value, serde_json::Error> {
        let mut value = serde_json::to_value(self)?;
        if let Value::Object(table) = &mut value {
            table.entry(ROBOT).or_insert_with(|| self.kind().name.into());
        }
        Ok(value)
    }

    fn to_text(&self) -> Result<String, toml::ser::Error> {
        let table = toml::Table::try_from(self)?;
        // At the top, where a reader looks for it.
        let robot = if table.contains_key(ROBOT) {
            String::new()
        } else {
            format!("{ROBOT} = \"{}\"\n", self.kind().name)
        };
        Ok(robot + &toml::to_string(&table)?)
    }
}

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
    /// [`LabError::Toml`] for values that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, LabError> {
        Ok(self.to_text()?)
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
