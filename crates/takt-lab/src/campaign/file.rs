//! Campaign files (TOML).
//!
//! ```toml
//! name = "mine"
//! robot = "cyclic"            # a shipped configuration; or config = "my-robot.toml"
//! repetitions = 3
//! order = "random"
//! seconds = 10
//!
//! [set]                       # the same in every run: keys of the robot's configuration
//! rate_hz = 500
//!
//! [[factor]]
//! name = "policy"
//! values = ["other:0", "fifo:80", "deadline:400us/4ms/4ms"]
//!
//! [[factor]]
//! name = "stress"
//! values = ["off", "uav"]
//!
//! [[factor]]                  # levels that change several keys at once
//! name = "tuning"
//! values = [
//!     { name = "none", set = { lock_memory = "off" } },
//!     { name = "locked", set = { lock_memory = "all" } },
//! ]
//! ```
//!
//! With a table `[virtual]` every run is made in a virtual machine of its own, which boots the
//! run's `kernel`:
//!
//! ```toml
//! [virtual]
//! cpus = 2
//!
//! [[factor]]
//! name = "kernel"             # as `takt kernels list` calls them, or paths
//! values = ["generic", "rt"]
//!
//! [[factor]]
//! name = "boot.isolcpus"      # any boot parameter; "default" leaves it out
//! values = ["default", "1"]
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::guests::Guests;

/// In which order the runs of one repetition are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Shuffled anew in every repetition (by `seed`): slow changes of the machine then fall on all
    /// configurations alike.
    #[default]
    Random,
    /// As the factors are listed, the last one changing fastest.
    Given,
    /// As they are listed, and each repetition begins one configuration later than the one before,
    /// the first with that of `seed`: none comes first each time, and over as many repetitions as
    /// there are configurations each comes first once.
    Rotated,
}

/// A value of a factor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Level {
    /// Several keys under one name.
    Named {
        /// Name in tables.
        name: String,
        /// The keys that it sets.
        set: toml::Table,
    },
    Value(toml::Value),
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = toml::Value::deserialize(deserializer)?;
        let toml::Value::Table(mut table) = value else { return Ok(Self::Value(value)) };
        let name = match table.remove("name") {
            Some(toml::Value::String(name)) => name,
            _ => {
                return Err(D::Error::custom(
                    "a level that is a table needs name = \"...\" and set = { ... }",
                ));
            }
        };
        let set = match table.remove("set") {
            Some(toml::Value::Table(set)) => set,
            _ => {
                return Err(D::Error::custom(format!("level \"{name}\" needs set = {{ key = value, ... }}")));
            }
        };
        if let Some(other) = table.keys().next() {
            return Err(D::Error::custom(format!(
                "level \"{name}\": unknown key \"{other}\": accepted are name, set"
            )));
        }
        Ok(Self::Named { name, set })
    }
}

impl Level {
    /// As tables show it.
    pub fn text(&self) -> String {
        match self {
            Self::Named { name, .. } => name.clone(),
            Self::Value(toml::Value::String(text)) => text.clone(),
            Self::Value(other) => other.to_string(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FactorSpec {
    /// `policy`, `rate`, `placement`: by these names for every robot. `stress`, `noise`,
    /// `load_cpus`, `seconds`: of the run. `kernel`, `boot.PARAMETER` and `label.NAME`: conditions
    /// that only a person or a reboot can change; runs for another condition than the present one
    /// wait for it. In a virtual campaign, kernel and boot parameters are what each run boots.
    /// Anything else: a key of the robot's configuration, dots between the levels.
    pub name: String,
    pub values: Vec<Level>,
    /// The values that run unless others are asked for (`--only`), as tables show them; all when
    /// absent. Factors that a paper does not vary are listed here with their one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// Of the factor `kernel`: its values are the kernels of [`present`](super::present), so that
    /// the program knows which one runs. Unless others are asked for, runs are made on that one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detected: bool,
}

/// `5`, `true` and `[1, 2]` as what they are, anything else as text.
fn toml_value(text: &str) -> toml::Value {
    let parsed: Result<toml::Table, _> = toml::from_str(&format!("value = {text}"));
    parsed
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignFile {
    /// Name, also of its folder.
    pub name: String,
    /// Purpose of the campaign, a sentence for reports.
    #[serde(default)]
    pub about: String,
    /// The paper whose experiment it is, by the robot's name for it: reports begin with the paper's
    /// tables and figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// Robot whose shipped configuration is varied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub robot: Option<String>,
    /// Configuration file that is varied, instead of a shipped one; relative to the campaign file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// Runs of every configuration. 1: enough to see; comparisons want 3 or more.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// Order of the runs.
    #[serde(default)]
    pub order: Order,
    /// Seed of the random order, or the first of the rotated one: the same seed gives the same
    /// order.
    #[serde(default)]
    pub seed: u64,
    /// Length of a run, seconds; as the robot's configuration says when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Makes every run in a virtual machine of its own; on this machine when absent.
    #[serde(default, rename = "virtual", skip_serializing_if = "Option::is_none")]
    pub guests: Option<Guests>,
    /// Changes that `--quick` makes; without this table there is no quick form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<Quick>,
    /// Keys that all runs share, beside the robot's configuration.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub set: toml::Table,
    #[serde(default, rename = "factor")]
    pub factors: Vec<FactorSpec>,
}

/// A form of a campaign that takes minutes, to see what it measures: `[quick]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quick {
    /// Keys that all runs share, instead of what `[set]` and the factors' levels say of them.
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    pub set: toml::Table,
    /// Values that are kept, by factor; all of the factors that are not named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, Vec<String>>,
}

fn one() -> u32 {
    1
}

impl CampaignFile {
    /// Reads a file. A relative `config` becomes relative to the file.
    ///
    /// # Errors
    /// [`LabError::Files`] or [`LabError::Config`] with line and accepted keys.
    pub fn load(path: &Path) -> Result<Self, LabError> {
        let text =
            takt_files::read_to_string(path, takt_files::CONFIGURATION_BYTES).map_err(LabError::io(path))?;
        let mut file = Self::parse(&text, &path.display().to_string())?;
        if let Some(config) = &mut file.config {
            *config = path.parent().unwrap_or(Path::new("")).join(&*config);
        }
        Ok(file)
    }

    /// Reads a text; `name` stands for it in errors.
    ///
    /// # Errors
    /// [`LabError::Config`].
    pub fn parse(text: &str, name: &str) -> Result<Self, LabError> {
        let file: Self = toml::from_str(text).map_err(|e| {
            LabError::Config(takt_files::shortened(&format!("{name}: {}", e.to_string().trim_end())))
        })?;
        file.validate().map_err(|e| LabError::Config(format!("{name}: {e}")))?;
        Ok(file)
    }

    fn change(&self, what: &str, error: impl std::fmt::Display) -> LabError {
        LabError::Config(format!("campaign {}: {what}: {error}", self.name))
    }

    /// Sets a key in all runs, from `key=value`; the value is read as TOML, or as text where it is
    /// none.
    ///
    /// # Errors
    /// [`LabError::Config`].
    pub fn set_text(&mut self, setting: &str) -> Result<(), LabError> {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(self.change(setting, "accepted is KEY=VALUE"));
        };
        if self.factors.iter().any(|factor| factor.name == key) {
            return Err(self.change(setting, "that key is a factor; --only limits its values"));
        }
        self.set.insert(key.trim().to_owned(), toml_value(value.trim()));
        Ok(())
    }

    /// Varies `config`, where one is named, instead of the shipped configuration.
    pub fn use_config(&mut self, config: Option<&Path>) {
        if let Some(config) = config {
            self.config = Some(config.to_owned());
            self.robot = None;
        }
    }

    /// Keeps only some values of a factor, from `factor=value,value`.
    ///
    /// # Errors
    /// [`LabError::Config`] for a factor or value that the campaign has not.
    pub fn keep_only(&mut self, only: &str) -> Result<(), LabError> {
        let Some((name, values)) = only.split_once('=') else {
            return Err(self.change(only, "accepted is FACTOR=VALUE,VALUE"));
        };
        let names: Vec<&str> = self.factors.iter().map(|f| f.name.as_str()).collect();
        let Some(index) = names.iter().position(|n| *n == name) else {
            return Err(self.change(only, format!("the factors are {}", names.join(", "))));
        };
        let texts: Vec<String> = self.factors[index].values.iter().map(Level::text).collect();
        let wanted = values_of(values, &texts)
            .map_err(|unknown| self.change(only, format!("\"{unknown}\" is none of {}", texts.join(", "))))?;
        let factor = &mut self.factors[index];
        factor.values.retain(|level| wanted.contains(&level.text().as_str()));
        factor.run = Some(factor.values.iter().map(Level::text).collect());
        Ok(())
    }

    /// The kernel that runs is the one of this name: where the file leaves the choice of the
    /// kernel's value to the machine, it is this one.
    pub fn choose_kernel(&mut self, kernel: &str) {
        let detected = self.factors.iter_mut().filter(|factor| factor.detected && factor.run.is_none());
        for factor in detected {
            if factor.values.iter().any(|level| level.text() == kernel) {
                factor.run = Some(vec![kernel.to_owned()]);
            }
        }
    }

    /// Runs are made for every kernel, whichever runs here: other machines make them.
    pub fn every_kernel(&mut self) {
        let detected = self.factors.iter_mut().filter(|factor| factor.detected && factor.run.is_none());
        detected.for_each(|factor| factor.run = Some(factor.values.iter().map(Level::text).collect()));
    }

    /// The same with the values alone that are run.
    pub(super) fn chosen(&self) -> Self {
        let mut chosen = self.clone();
        // A guest boots each of them.
        if self.guests.is_none()
            && chosen.factors.iter().any(|factor| factor.detected && factor.run.is_none())
        {
            chosen.choose_kernel(super::present::kernel().name);
        }
        for factor in &mut chosen.factors {
            if let Some(run) = factor.run.take() {
                factor.values.retain(|level| run.contains(&level.text()));
            }
        }
        chosen
    }

    /// Becomes its quick form, under a name of its own: its figures are none of the whole
    /// campaign's.
    ///
    /// # Errors
    /// [`LabError::Config`] for a campaign that has none.
    pub fn make_quick(&mut self) -> Result<(), LabError> {
        let Some(quick) = self.quick.take() else {
            return Err(
                self.change("--quick", "it has no table [quick]; use --only and --set to make it shorter")
            );
        };
        for (factor, values) in &quick.only {
            self.keep_only(&format!("{factor}={}", values.join(",")))?;
        }
        let levels = self.factors.iter_mut().flat_map(|factor| &mut factor.values);
        for level in levels {
            if let Level::Named { set, .. } = level {
                set.iter_mut().for_each(|(key, value)| {
                    if let Some(instead) = quick.set.get(key) {
                        value.clone_from(instead);
                    }
                });
            }
        }
        self.set.extend(quick.set);
        self.name.push_str("-quick");
        Ok(())
    }

    /// Gives a factor other values.
    ///
    /// # Errors
    /// [`LabError::Config`] for a factor that the campaign has not, or values that are there twice.
    pub fn replace_values(&mut self, factor: &str, values: &[String]) -> Result<(), LabError> {
        let levels = values.iter().map(|value| Level::Value(toml_value(value))).collect();
        match self.factors.iter_mut().find(|f| f.name == factor) {
            Some(found) => (found.values, found.run) = (levels, None),
            None => return Err(self.change(factor, "no such factor")),
        }
        self.validate().map_err(|error| self.change(factor, error))
    }

    fn validate(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("name = \"\": a campaign needs a name".to_owned());
        }
        if self.robot.is_some() == self.config.is_some() {
            return Err(
                "exactly one of robot = \"...\" (shipped) and config = \"file.toml\" is needed".to_owned()
            );
        }
        if !(1..=1000).contains(&self.repetitions) {
            return Err(format!("repetitions = {}: accepted are 1 to 1000", self.repetitions));
        }
        if let Some(seconds) = self.seconds
            && !(0.01..=40.0 * 86_400.0).contains(&seconds)
        {
            return Err(format!("seconds = {seconds}: accepted are 0.01 to 3456000 (40 days)"));
        }
        if let Some(guests) = &self.guests {
            guests.validate().map_err(|error| error.to_string())?;
        }
        for (index, factor) in self.factors.iter().enumerate() {
            if self.factors[..index].iter().any(|f| f.name == factor.name) {
                return Err(format!("factor \"{}\" is declared twice", factor.name));
            }
            if factor.values.is_empty() {
                return Err(format!("factor \"{}\" has no values", factor.name));
            }
            let texts: Vec<String> = factor.values.iter().map(Level::text).collect();
            if let Some((index, text)) =
                texts.iter().enumerate().find(|(index, text)| texts[..*index].contains(text))
            {
                return Err(format!("factor \"{}\": value {} repeats \"{text}\"", factor.name, index + 1));
            }
            let unknown = factor.run.iter().flatten().find(|run| !texts.contains(run));
            if let Some(unknown) = unknown {
                let all = texts.join(", ");
                return Err(format!("factor \"{}\": run = \"{unknown}\" is none of {all}", factor.name));
            }
            if factor.run.as_ref().is_some_and(Vec::is_empty) {
                return Err(format!("factor \"{}\": run = [] leaves no value", factor.name));
            }
            if factor.detected && factor.name != super::apply::KERNEL {
                return Err(format!(
                    "factor \"{}\": only the factor \"{}\" can have detected = true",
                    factor.name,
                    super::apply::KERNEL
                ));
            }
        }
        let runs = self.factors.iter().try_fold(self.repetitions as usize, |all, factor| {
            let values = factor.run.as_ref().map_or(factor.values.len(), Vec::len);
            all.checked_mul(values).filter(|&all| all <= 100_000)
        });
        match runs {
            Some(_) => Ok(()),
            None => Err("more than 100000 runs".to_owned()),
        }
    }
}

/// The values in a list with commas, which stand in names of values, too: the longest name that
/// fits counts. The error is the first that is no name.
fn values_of<'a>(list: &'a str, names: &[String]) -> Result<Vec<&'a str>, &'a str> {
    let (mut rest, mut found) = (list, Vec::new());
    loop {
        rest = rest.trim_start();
        let fits = |name: &&String| {
            let after = rest.strip_prefix(name.as_str()).map(str::trim_start);
            after.is_some_and(|after| after.is_empty() || after.starts_with(','))
        };
        let Some(name) = names.iter().filter(fits).max_by_key(|name| name.len()) else {
            return Err(rest.split(',').next().unwrap_or(rest).trim());
        };
        let (value, after) = rest.split_at(name.len());
        found.push(value);
        match after.trim_start().strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
name = "a"
robot = "cyclic"
[set]
seconds = 9
[quick]
set = { seconds = 1 }
only = { policy = ["other:0"] }
[[factor]]
name = "policy"
values = [{ name = "other:0", set = { policy = "other:0", seconds = 30 } }, "fifo:1"]
"#;

    #[test]
    fn a_quick_form_wins_over_set_and_levels() {
        let mut file = CampaignFile::parse(TEXT, "a").unwrap();
        file.make_quick().unwrap();
        assert_eq!((file.name.as_str(), file.set["seconds"].as_integer()), ("a-quick", Some(1)));
        let [Level::Named { set, .. }] = &file.factors[0].values[..] else { panic!("{file:?}") };
        assert_eq!((set["seconds"].as_integer(), set["policy"].as_str()), (Some(1), Some("other:0")));
        // The text in the campaign's folder can be read again.
        let text = toml::to_string(&file).unwrap();
        assert_eq!(CampaignFile::parse(&text, "a").unwrap(), file);
    }

    #[test]
    fn values_with_commas_in_their_names_can_be_chosen() {
        let text = "name = 'a'\nrobot = 'cyclic'\n[[factor]]\nname = 'layout'\nvalues = [\n\
                    { name = '1: four cores, 1 acquires, 0 saves', set = { seconds = 1 } }, { name = '6: one core', set = { seconds = 1 } }, \
                    { name = '6: one core, off', set = { seconds = 1 } }]";
        let chosen = |only: &str| {
            let mut file = CampaignFile::parse(text, "a").unwrap();
            file.keep_only(only).map(|()| file.factors[0].values.iter().map(Level::text).collect::<Vec<_>>())
        };
        let four = "1: four cores, 1 acquires, 0 saves";
        assert_eq!(chosen(&format!("layout={four}")).unwrap(), [four]);
        assert_eq!(chosen(&format!("layout=6: one core, {four}")).unwrap(), [four, "6: one core"]);
        // The longer name counts, also where a shorter one fits.
        assert_eq!(chosen("layout=6: one core, off").unwrap(), ["6: one core, off"]);
        for (wrong, named) in [("6: one core, of", "\"of\""), ("6: one", "\"6: one\""), ("", "\"\"")] {
            let error = chosen(&format!("layout={wrong}")).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("6: one core, off"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_campaign_without_a_quick_form_says_what_else_makes_it_short() {
        let mut file = CampaignFile::parse("name = 'a'\nrobot = 'cyclic'", "a").unwrap();
        assert!(file.make_quick().unwrap_err().to_string().contains("--only"));
        let wrong = TEXT.replace("[\"other:0\"]", "[\"rr:1\"]");
        let error = CampaignFile::parse(&wrong, "a").unwrap().make_quick().unwrap_err().to_string();
        assert!(error.contains("rr:1") && error.contains("fifo:1"), "{error}");
        assert!(CampaignFile::parse(&TEXT.replace("only =", "olny ="), "a").is_err());
    }
}
