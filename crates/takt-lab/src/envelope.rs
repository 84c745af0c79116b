//! A robot's file: an envelope that all robots have, and beside it, in the same flat document, the
//! robot's own table. It is read once, and an unknown key of either is an error that names its
//! line, which `serde(flatten)` cannot do: it forgets where a value stood.

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use takt_rt::config::SettingError;
use takt_stats::{ClaimError, VerdictConfig};
use toml::Spanned;
use toml::de::DeTable;

use crate::robot::Robot;

/// The key that says which robot a file is of. It is no part of any robot's type, which says the
/// same.
pub const ROBOT: &str = "robot";

/// Keys common to the files of all robots. A robot has it as a field with
/// `#[serde(flatten, skip_deserializing)]`; [`parse`] fills it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Envelope {
    /// Name for people. Default: the robot's.
    pub name: String,
    /// Claims about the robot: the permitted miss rate, with its confidence. Nothing is claimed by
    /// default: any miss is a FAIL then, and a PASS shows less than one miss in 100.
    #[serde(skip_serializing_if = "VerdictConfig::is_default")]
    pub verdict: VerdictConfig,
}

impl Envelope {
    /// With that name, claiming nothing.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: VerdictConfig::default() }
    }
}

/// Reason why a configuration cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is no TOML, or has keys or values that nobody knows; names the line.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A setting that cannot be meant.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A claim that cannot be meant.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A claim about what the robot does not measure.
    #[error(transparent)]
    Header(#[from] takt_rundir::HeaderError),
    /// A policy or a placement that no thread can have.
    #[error(transparent)]
    Runtime(#[from] takt_rt::Error),
    /// Something of the robot's own.
    #[error(transparent)]
    Robot(Box<dyn std::error::Error + Send + Sync>),
}

impl ConfigError {
    /// A robot's own error.
    pub fn robot(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Robot(Box::new(error))
    }
}

/// Reads the file of a robot and judges it.
///
/// # Errors
/// [`ConfigError`].
pub fn parse<R: Robot + DeserializeOwned>(text: &str) -> Result<R, ConfigError> {
    let file: R = read_table(text)?;
    file.validate()?;
    Ok(file)
}

/// Reads the file of a robot, and leaves judging the robot's own table to the robot.
///
/// # Errors
/// [`ConfigError`].
pub fn read_table<R: Robot + DeserializeOwned>(text: &str) -> Result<R, ConfigError> {
    let file: R = split(text).map_err(|mut error| {
        error.set_input(Some(text));
        error
    })?;
    file.envelope().verdict.validate()?;
    Ok(file)
}

/// Two passes: the document with the places of its keys, then each part of it by its own type.
fn split<R: Robot + DeserializeOwned>(text: &str) -> Result<R, toml::de::Error> {
    let mut document = DeTable::parse(text)?;
    takt_files::use_present_keys(document.get_mut());
    let span = document.span();
    let (own_keys, envelope_keys) = (keys_of::<R>(), keys_of::<Envelope>());
    let [mut own, mut envelope, mut which, mut unknown] = [(); 4].map(|()| DeTable::new());
    for (key, value) in document.into_inner() {
        let name = key.get_ref().as_ref();
        let part = if own_keys.contains(&name) {
            &mut own
        } else if envelope_keys.contains(&name) {
            &mut envelope
        } else if name == ROBOT {
            &mut which
        } else {
            &mut unknown
        };
        part.insert(key, value);
    }
    let part = |table| toml::Deserializer::from(Spanned::new(span.clone(), table));
    if !unknown.is_empty() {
        let keys = [own_keys, envelope_keys, &[ROBOT]].concat();
        Refusal(format!("expected one of `{}`", keys.join("`, `"))).deserialize(part(unknown))?;
    }
    let mut file = R::deserialize(part(own))?;
    let kind = file.kind().name;
    if let Some(message) = which.values().next()
        && message.get_ref().as_str() != Some(kind)
    {
        Refusal(format!("this file is for \"{kind}\"")).deserialize(part(which))?;
    }
    let default = std::mem::take(&mut file.envelope_mut().name);
    *file.envelope_mut() = Envelope::deserialize(part(envelope))?;
    if file.envelope().name.is_empty() {
        file.envelope_mut().name = if default.is_empty() { kind.to_owned() } else { default };
    }
    Ok(file)
}

/// Refuses the first key of a table, at its place.
struct Refusal(String);

impl<'de> DeserializeSeed<'de> for Refusal {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Refusal {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        map.next_key_seed(RefusedKey(self.0)).map(drop)
    }
}

struct RefusedKey(String);

impl<'de> DeserializeSeed<'de> for RefusedKey {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<(), D::Error> {
        let key = String::deserialize(key)?;
        Err(D::Error::custom(format!("unknown field `{key}`, {}", self.0)))
    }
}

/// The keys that a table of type `T` may have, as its derived `Deserialize` says them.
fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // It asks for a struct with its keys, and then gets nothing.
    let _ = T::deserialize(Keys(&mut keys));
    keys
}

struct Keys<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Keys<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("only a struct has keys"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = keys;
        Err(Self::Error::custom("the keys are known"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cyclic::CyclicFile;

    fn refused(text: &str) -> String {
        parse::<CyclicFile>(text).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_of_either_part_is_reported_with_its_line() {
        for (text, line, key) in [
            ("robot = 'cyclic'\nname = 'x'\nrate_hzz = 5\n", 3, "rate_hzz"),
            ("robot = 'cyclic'\n\n[verdict]\nconfidnce = 0.9\n", 4, "confidnce"),
            ("rate_hz = 5\n[verdct]\nconfidence = 0.9\n", 2, "verdct"),
            ("naem = 'x'\n", 1, "naem"),
            ("rate_hz = 5\n[verdict.measures.lateness]\nbursts = 5\n", 3, "bursts"),
        ] {
            let error = refused(text);
            assert!(error.contains(&format!("line {line}")) && error.contains(key), "{text}: {error}");
        }
        // A mistyped top-level key leads to a list of all of them.
        let error = refused("naem = 'x'");
        assert!(
            ["`rate_hz`", "`name`", "`verdict`", "`robot`"].iter().all(|key| error.contains(key)),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_value_of_either_part_is_reported_with_its_line() {
        for (text, line, word) in [
            ("seconds = 1\nname = 5\n", 2, "string"),
            ("seconds = 1\nrate_hz = 'fast'\n", 2, "f64"),
            ("seconds = 1\nrobot = 'uav'\n", 2, "this file is for \"cyclic\""),
            ("seconds = 1\nrobot = 7\n", 2, "this file is for \"cyclic\""),
            ("seconds = 1\nseconds = 2\n", 2, "duplicate key"),
            ("seconds = 1\n[verdict]\nmisses_per_hour = 'none'\n", 3, "f64"),
        ] {
            let error = refused(text);
            assert!(error.contains(&format!("line {line}")) && error.contains(word), "{text}: {error}");
        }
        assert!(matches!(parse::<CyclicFile>("seconds = -1"), Err(ConfigError::Setting(_))));
        assert!(matches!(parse::<CyclicFile>("verdict.confidence = 7"), Err(ConfigError::Claim(_))));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text =
            "robot = 'cyclic'\nname = 'bare'\nwork_us = 5\n[verdict]\nmisses_per_hour = 2\nconfidence = 0.9";
        let file: CyclicFile = parse(text).unwrap();
        assert_eq!((file.envelope.name.as_str(), file.work_us), ("bare", 5.0));
        let written = crate::RobotFile::of(file.clone()).to_toml().unwrap();
        assert!(written.starts_with("robot = \"cyclic\"\n"), "{written}");
        assert_eq!(parse::<CyclicFile>(&written).unwrap(), file);
        assert_eq!(parse::<CyclicFile>("").unwrap().envelope.name, "cyclic");
    }
}
