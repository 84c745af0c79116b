//! The file that a search leaves: settings that were found to help, to be applied exactly and taken
//! back.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::doctor::change::{self, Changed};
use crate::doctor::error::DoctorError;
use crate::doctor::journal::Journal;
use crate::doctor::setting::{Action, Setting};

const FORMAT: u32 = 1;

/// Settings that were found to help, as TOML.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    /// Format of the file: 1.
    pub format: u32,
    /// Their purpose, for people.
    #[serde(default)]
    pub about: String,
    /// In the order in which they are made.
    #[serde(default, rename = "setting")]
    pub settings: Vec<Setting>,
}

impl Tuned {
    /// Settings for what `about` says.
    pub fn new(about: String, settings: Vec<Setting>) -> Self {
        Self { format: FORMAT, about, settings }
    }

    /// As the file holds it.
    ///
    /// # Errors
    /// [`DoctorError::Unwritable`].
    pub fn to_toml(&self) -> Result<String, DoctorError> {
        Ok(toml::to_string(self)?)
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`DoctorError::Tuned`].
    pub fn read(path: &Path) -> Result<Self, DoctorError> {
        let refused = |reason: String| DoctorError::Tuned { path: path.to_owned(), reason };
        let text = takt_files::read_configuration(path).map_err(|error| refused(error.to_string()))?;
        let tuned: Self = toml::from_str(&text).map_err(|error| {
            refused(format!("it was not written by `takt tune`: {}", error.to_string().trim()))
        })?;
        if tuned.format != FORMAT {
            return Err(refused(format!("its format is {}, but this program knows {FORMAT}", tuned.format)));
        }
        Ok(tuned)
    }
}

/// Applies exactly what `tuned` says; how everything was before goes to `state_file`, from which
/// [`revert`](crate::doctor::revert) puts it back. A setting that the kernel refuses is reported,
/// and the others are made.
///
/// # Errors
/// [`DoctorError`]; nothing has been changed then.
pub fn apply_tuned(tuned: &Tuned, path: &Path, state_file: &Path) -> Result<Vec<Changed>, DoctorError> {
    let refused = |reason: String| DoctorError::Tuned { path: path.to_owned(), reason };
    let mut actions: Vec<Action> = Vec::new();
    for setting in &tuned.settings {
        actions.extend(setting.resolve(None).map_err(|error| refused(error.to_string()))?);
    }
    if let (true, Some(folder)) = (state_file == change::default_state(), state_file.parent()) {
        takt_files::private_folder(folder)
            .map_err(|source| DoctorError::StateFile { path: state_file.to_owned(), source })?;
    }
    let _owner = change::owner(state_file)?;
    let mut journal = Journal::resume(state_file)?;
    journal.note(&actions)?;
    Ok(actions.iter().map(|action| journal.change(action)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuned.toml");
        let settings = vec![
            Setting::Policy {
                process: "control".into(),
                thread: "loop \"x\"".into(),
                policy: "fifo:80".into(),
            },
            Setting::File { path: "/proc/sys/kernel/timer_migration".into(), value: "0".into() },
        ];
        let tuned = Tuned::new("worst lateness".to_owned(), settings);
        std::fs::write(&path, tuned.to_toml().unwrap()).unwrap();
        assert_eq!(Tuned::read(&path).unwrap(), tuned);
        for (text, reason) in [
            ("format = 2\n", "format is 2"),
            ("about = 1\n", "not written by `takt tune`"),
            ("format = 1\nfoo = 2\n", "foo"),
            ("format = 1\n[[setting]]\nkind = \"file\"\npath = \"/x\"\nvalue = \"1\"\nmore = 1\n", "more"),
            ("format = 1\n[[setting]]\nkind = \"reboot\"\n", "reboot"),
            ("\u{0}", "not written by `takt tune`"),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = Tuned::read(&path).unwrap_err().to_string();
            assert!(message.contains(reason) && message.contains("tuned.toml"), "{text}: {message}");
        }
    }

    #[test]
    fn what_cannot_all_be_done_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state.json");
        let migration = "/proc/sys/kernel/timer_migration";
        let before = std::fs::read_to_string(migration);
        let switch = |value: &str| Setting::File { path: migration.into(), value: value.to_owned() };
        let missing = Setting::Policy {
            process: "no such process".into(),
            thread: "x".into(),
            policy: "fifo:80".into(),
        };
        let foreign = Setting::File { path: "/etc/passwd".into(), value: "x".into() };
        for second in [missing, foreign] {
            let tuned = Tuned::new(String::new(), vec![switch("0"), second]);
            assert!(apply_tuned(&tuned, Path::new("tuned.toml"), &state).is_err());
            assert!(!state.exists());
        }
        assert_eq!(std::fs::read_to_string(migration).ok(), before.ok());
    }
}
