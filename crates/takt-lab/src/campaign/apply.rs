//! Putting the value of a factor into a run: into the robot's configuration, or into what goes on
//! around it.

use std::collections::BTreeMap;

use takt_load::Profile;
use toml::{Table, Value};

use super::plan::RunSetup;
use crate::robot::RobotKind;

/// The kernel: booted where the campaign is virtual, a label that says which one runs elsewhere.
pub const KERNEL: &str = "kernel";
/// Prefix of boot parameters' names.
pub const BOOT: &str = "boot.";
/// Prefix of the names of settings for the whole machine.
const MACHINE: &str = "machine.";
/// Prefix of all other labels' names.
const LABEL: &str = "label.";

/// Sets `name` to `value` for one run. In a `guest`, kernel and boot parameters are what it is
/// booted with; elsewhere they are labels, since only a reboot can change them.
///
/// # Errors
/// A sentence with the factor, its value and what is accepted.
pub(super) fn apply(
    kind: &RobotKind,
    config: &mut Table,
    setup: &mut RunSetup,
    guest: bool,
    name: &str,
    value: &Value,
) -> Result<(), String> {
    let wrong = |accepted: &str| Err(format!("{name} = {value}: accepted are {accepted}"));
    match name {
        "stress" => {
            let profile = value.clone().try_into::<Profile>();
            setup.stress = profile.map_err(|error| format!("{name}: {}", error.to_string().trim_end()))?;
        }
        "noise" => match value.as_integer().and_then(|n| u32::try_from(n).ok()).filter(|&n| n <= 4096) {
            Some(threads) => setup.noise = threads,
            None => return wrong("0 to 4096 threads"),
        },
        "load_cpus" => match value.as_str() {
            Some("all") => setup.cpus = None,
            Some(text) => match text.parse() {
                Ok(cpus) => setup.cpus = Some(cpus),
                Err(error) => return Err(format!("{name} = {value}: {error}")),
            },
            None => return wrong("\"all\" and CPU lists such as \"0,2-3\""),
        },
        "seconds" => match value.as_float().or_else(|| value.as_integer().map(|n| n as f64)) {
            Some(seconds) if (0.01..=40.0 * 86_400.0).contains(&seconds) => setup.seconds = Some(seconds),
            _ => return wrong("0.01 to 3456000 s (40 days)"),
        },
        asked if asked.starts_with(MACHINE) => {
            setup.machine.ask(asked.strip_prefix(MACHINE).unwrap_or(asked), value)?;
        }
        KERNEL if guest => match value.as_str() {
            Some(kernel) if !kernel.is_empty() => setup.kernel = Some(kernel.to_owned()),
            _ => return wrong("names of kernels, and paths"),
        },
        parameter if guest && parameter.starts_with(BOOT) => {
            let parameter = parameter.strip_prefix(BOOT).unwrap_or(parameter);
            set_boot(&mut setup.boot, parameter, value)?;
        }
        label if label == KERNEL || label.starts_with(LABEL) || label.starts_with(BOOT) => {
            match value.as_str() {
                Some(value) if !value.is_empty() => {
                    let label = label.strip_prefix(LABEL).unwrap_or(label);
                    setup.labels.insert(label.to_owned(), value.to_owned());
                }
                _ => return wrong("names"),
            }
        }
        factor => {
            let key = kind.key_of(factor, config);
            set(config, &takt_files::present_path(&key), value)?;
        }
    }
    Ok(())
}

/// Sets a boot parameter: `true` gives it alone (`threadirqs`), a text or number as its value;
/// `false` and "default" leave the kernel to its default ("off" is a value of many parameters).
fn set_boot(boot: &mut BTreeMap<String, String>, parameter: &str, value: &Value) -> Result<(), String> {
    let name_fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let value_fits = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'');
    let text = match value {
        Value::Boolean(false) => None,
        Value::Boolean(true) => Some(String::new()),
        Value::Integer(number) => Some(number.to_string()),
        Value::String(text) if text == "default" => None,
        Value::String(text) if !text.is_empty() && text.chars().all(value_fits) => Some(text.clone()),
        _ => {
            return Err(format!(
                "{BOOT}{parameter} = {value}: accepted are true, false, numbers and words without spaces"
            ));
        }
    };
    if parameter.is_empty() || !parameter.chars().all(name_fits) {
        return Err(format!(
            "{BOOT}{parameter}: accepted are names of boot parameters, such as boot.isolcpus"
        ));
    }
    match text {
        Some(text) => boot.insert(parameter.to_owned(), text),
        None => boot.remove(parameter),
    };
    Ok(())
}

/// Sets the value at a dotted path; tables on the way are made where they are missing. Whether the
/// robot knows the key is for its own parser to say.
fn set(config: &mut Table, path: &str, value: &Value) -> Result<(), String> {
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(format!("\"{path}\" is not a key"));
    }
    set_below(config, (path, path), value)
}

/// The same, of the rest of a whole path. Of several tables of one name the path goes on in the one
/// whose key `name` it has next, or else in all of them.
fn set_below(table: &mut Table, (rest, path): (&str, &str), value: &Value) -> Result<(), String> {
    let Some((head, tail)) = rest.split_once('.') else {
        table.insert(rest.to_owned(), value.clone());
        return Ok(());
    };
    match table.entry(head).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(next) => set_below(next, (tail, path), value),
        Value::Array(all) if !all.is_empty() && all.iter().all(Value::is_table) => {
            let is_named = |one: &Value, name: &str| one.get("name").and_then(Value::as_str) == Some(name);
            let (name, below) = tail.split_once('.').unwrap_or((tail, ""));
            let named = !below.is_empty() && all.iter().any(|one| is_named(one, name));
            for one in all.iter_mut().filter(|one| !named || is_named(one, name)) {
                if let Value::Table(next) = one {
                    set_below(next, (if named { below } else { tail }, path), value)?;
                }
            }
            Ok(())
        }
        _ => Err(format!("{path}: \"{head}\" is a value, not a table")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cyclic::KIND;

    fn applied(name: &str, value: impl Into<Value>) -> Result<(Table, RunSetup), String> {
        let mut config: Table = toml::from_str("rate_hz = 5\n[a]\nb = 1").unwrap();
        let mut setup = RunSetup::default();
        apply(&KIND, &mut config, &mut setup, false, name, &value.into())?;
        Ok((config, setup))
    }

    #[test]
    fn names_of_the_run_and_of_the_robot() {
        assert_eq!(applied("noise", 7).unwrap().1.noise, 7);
        assert_eq!(applied("stress", "uav").unwrap().1.stress.name, "uav");
        assert_eq!(applied("load_cpus", "0").unwrap().1.cpus.unwrap().to_string(), "0");
        assert_eq!(applied("kernel", "rt").unwrap().1.labels["kernel"], "rt");
        assert_eq!(applied("label.desktop", "off").unwrap().1.labels["desktop"], "off");
        assert_eq!(applied("machine.rt_runtime_us", -1).unwrap().1.machine.rt_runtime_us, Some(-1));
        assert_eq!(applied("rate", 9).unwrap().0["rate_hz"].as_integer(), Some(9));
        assert_eq!(applied("a.b", 2).unwrap().0["a"]["b"].as_integer(), Some(2));
        assert_eq!(applied("c.d.e", 2).unwrap().0["c"]["d"]["e"].as_integer(), Some(2));
        // By the name that it had in the version before.
        let config = applied("motion.safety.most_late", 2).unwrap().0;
        assert_eq!(config["motion"]["safety"]["max_late"].as_integer(), Some(2));
    }

    #[test]
    fn of_several_tables_the_named_one_is_set_or_all() {
        let text = "[[part]]\nname = 'a'\ncpus = '0'\n[[part]]\nname = 'b'\n";
        let set_in = |path: &str| {
            let mut config: Table = toml::from_str(text).unwrap();
            set(&mut config, path, &Value::from("1")).map(|()| config)
        };
        let cpus = |config: &Table| -> Vec<Option<String>> {
            let parts = config["part"].as_array().unwrap().iter();
            parts.map(|part| part.get("cpus").and_then(Value::as_str).map(str::to_owned)).collect()
        };
        let one = Some("1".to_owned());
        assert_eq!(cpus(&set_in("part.cpus").unwrap()), [one.clone(), one.clone()]);
        assert_eq!(cpus(&set_in("part.b.cpus").unwrap()), [Some("0".to_owned()), one]);
        assert_eq!(set_in("part.a.sub.cpus").unwrap()["part"][0]["sub"]["cpus"].as_str(), Some("1"));
        assert!(set(&mut toml::from_str("part = [1, 2]").unwrap(), "part.cpus", &Value::from(1)).is_err());
    }

    #[test]
    fn values_of_a_table_are_factors_by_their_own_names() {
        static KIND_WITH_VALUES: RobotKind = RobotKind {
            values: Some("values"),
            factors: KIND.factors,
            ..RobotKind::new("x", &[], KIND.read)
        };
        let mut config: Table = toml::from_str("[values]\nrate = 5").unwrap();
        for name in ["rate", "placement"] {
            let (setup, value) = (&mut RunSetup::default(), Value::from(9));
            apply(&KIND_WITH_VALUES, &mut config, setup, false, name, &value).unwrap();
        }
        assert_eq!(config["values"]["rate"].as_integer(), Some(9));
        // A missing key of the table is a factor as for any robot.
        assert_eq!(config["cpus"].as_integer(), Some(9));
    }

    #[test]
    fn a_guest_boots_what_elsewhere_is_a_label() {
        let mut setup = RunSetup::default();
        for (name, value) in [
            ("kernel", Value::from("rt")),
            ("boot.isolcpus", Value::from("1")),
            ("boot.threadirqs", Value::from(true)),
            ("boot.nohz_full", Value::from("default")),
        ] {
            apply(&KIND, &mut Table::new(), &mut setup, true, name, &value).unwrap();
        }
        assert_eq!(setup.kernel.as_deref(), Some("rt"));
        assert_eq!(setup.boot_parameters(), ["isolcpus=1", "threadirqs"]);
        assert!(setup.labels.is_empty());
        for (name, value) in [("boot.a b", "1"), ("boot.", "1"), ("boot.init", "a b"), ("kernel", "")] {
            assert!(
                apply(&KIND, &mut Table::new(), &mut setup, true, name, &value.into()).is_err(),
                "{name}"
            );
        }
        assert_eq!(applied("boot.isolcpus", "1").unwrap().1.labels["boot.isolcpus"], "1");
    }

    #[test]
    fn refusals_name_the_factor_and_what_is_accepted() {
        for (name, value, word) in [
            ("noise", Value::from(-1), "0 to 4096"),
            ("noise", Value::from("many"), "0 to 4096"),
            ("stress", Value::from("heavy"), "humanoid"),
            ("load_cpus", Value::from("x"), "load_cpus"),
            ("load_cpus", Value::from(0), "all"),
            ("seconds", Value::from(0), "0.01"),
            ("machine.rt_runtime_us", Value::from("off"), "-1"),
            ("machine.speed", Value::from(1), "governor"),
            ("kernel", Value::from(""), "names"),
            ("rate_hz.b", Value::from(1), "not a table"),
            ("a..b", Value::from(1), "not a key"),
        ] {
            let error = applied(name, value).unwrap_err();
            assert!(error.contains(word), "{name}: {error}");
        }
    }
}
