//! The robot's file. Unknown keys are errors.

#![deny(missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use takt_lab::robot::RobotFile;
use takt_lab::{ConfigError, Envelope, LabError, parse};
use takt_rt::config::{SettingError, within};
use takt_rt::duration;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;

use crate::placeholder::{as_text, fill};

/// The shipped file.
pub const SHIPPED: &str = include_str!("../../../robots/program.toml");

/// Loops of one file, at most: each is a thread that is followed.
const MAX_LOOPS: usize = 32;

/// The shortest period and the longest, nanoseconds: 20 kHz to one a minute.
const PERIODS_NS: [u64; 2] = [50_000, 60_000_000_000];

/// Variables and their values.
pub type Environment = BTreeMap<String, String>;

/// A program, its loops, and how it is started and stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramFile {
    /// Name and claims.
    #[serde(flatten, skip_deserializing)]
    pub envelope: Envelope,
    /// The program and its arguments. A relative path with a slash begins at `folder`. `{name}`
    /// stands for a value of `[values]`.
    pub command: Vec<String>,
    /// Folder in which the command is started. Default: the folder of the robot's file.
    pub folder: PathBuf,
    /// Variables that are added to Takt's own environment, or replace those. `{name}` stands for a
    /// value of `[values]`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: Environment,
    /// Values of placeholders. Each is a factor of campaigns by its own name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, toml::Value>,
    /// When the program is ready.
    pub ready: ReadyConfig,
    /// Stop of the program.
    pub stop: StopConfig,
    /// Length of a run, seconds, when the command says nothing. Default 32: a PASS takes 30 s of
    /// evidence.
    pub seconds: f64,
    /// Whether to refuse to run when the kernel does not grant a policy or CPUs. Default false: the
    /// run is labelled.
    pub strict: bool,
    /// The loops: threads of the command.
    #[serde(rename = "loop")]
    pub loops: Vec<LoopConfig>,
}

impl Default for ProgramFile {
    fn default() -> Self {
        Self {
            envelope: Envelope::named("program"),
            command: Vec::new(),
            folder: PathBuf::new(),
            environment: BTreeMap::new(),
            values: BTreeMap::new(),
            ready: ReadyConfig::default(),
            stop: StopConfig::default(),
            seconds: 32.0,
            strict: false,
            loops: Vec::new(),
        }
    }
}

/// A time as people write it: `500us`, `2 ms`, `5 s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(#[serde(with = "takt_rt::duration")] pub Duration);

/// When the program is ready (`ready`): at most one of `line`, `port`, `file` and `time`. Default:
/// as soon as every loop's thread is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadyConfig {
    /// It prints a line that contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// It listens on this TCP port, or has this UDP port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// It has made or changed this file; a relative path begins at `folder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// So much time has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Time that Takt waits for that, and then for the threads, before it gives up. Default 30 s.
    pub within: Time,
}

impl Default for ReadyConfig {
    fn default() -> Self {
        let within = Time(Duration::from_secs(30));
        Self { line: None, port: None, file: None, time: None, within }
    }
}

/// Stop of the program (`stop`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopConfig {
    /// Signal to the command's process group. Default `INT`: what Ctrl-C sends.
    pub signal: StopSignal,
    /// Time that the command may take to end. Remaining processes are then killed. Default 5 s.
    pub within: Time,
}

impl Default for StopConfig {
    fn default() -> Self {
        Self { signal: StopSignal::Int, within: Time(Duration::from_secs(5)) }
    }
}

/// A signal that asks a program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StopSignal {
    /// SIGINT.
    Int,
    /// SIGTERM.
    Term,
    /// SIGHUP.
    Hup,
    /// SIGQUIT.
    Quit,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
    /// SIGKILL: the program is not asked.
    Kill,
}

impl StopSignal {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "SIGINT",
            Self::Term => "SIGTERM",
            Self::Hup => "SIGHUP",
            Self::Quit => "SIGQUIT",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Kill => "SIGKILL",
        }
    }

    /// Its number.
    pub fn number(self) -> i32 {
        match self {
            Self::Int => libc::SIGINT,
            Self::Term => libc::SIGTERM,
            Self::Hup => libc::SIGHUP,
            Self::Quit => libc::SIGQUIT,
            Self::Usr1 => libc::SIGUSR1,
            Self::Usr2 => libc::SIGUSR2,
            Self::Kill => libc::SIGKILL,
        }
    }
}

/// A loop (`[[loop]]`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoopConfig {
    /// Name of its thread; the kernel keeps 15 characters.
    pub name: String,
    /// Name of the thread's process, where several processes have a thread of that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Its period, such as `2 ms`; or `hz`. `{name}` stands for a value of `[values]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// Cycles a second, a number or a text with a placeholder; or `period`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hz: Option<toml::Value>,
    /// Time after its release by which a cycle must end. Default: the period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Policy that Takt gives to the thread; left alone when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// CPUs that Takt gives to the thread; left alone when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
}

/// A loop with its values filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Name of its thread.
    pub name: String,
    /// Name of the thread's process, where that was given.
    pub process: Option<String>,
    /// Its period.
    pub period_ns: u64,
    /// Time after its release by which a cycle must end.
    pub deadline_ns: u64,
    /// Policy that the thread is given.
    pub policy: Option<Policy>,
    /// CPUs that the thread is given.
    pub cpus: Option<CpuSet>,
    /// Its name in files and measures.
    pub label: String,
}

impl Loop {
    /// The name of its thread as the kernel keeps it.
    pub fn thread_name(&self) -> &str {
        const KEPT: usize = 15;
        let end = (0..=KEPT.min(self.name.len())).rev().find(|&end| self.name.is_char_boundary(end));
        &self.name[..end.unwrap_or(0)]
    }

    /// Releases a second.
    pub fn rate_hz(&self) -> f64 {
        1e9 / self.period_ns as f64
    }
}

/// Reads a robot's file; paths are relative to its folder.
///
/// # Errors
/// [`LabError::File`].
pub fn read(text: &str, name: &str, folder: &Path) -> Result<RobotFile, LabError> {
    let mut file: ProgramFile = parse(text).map_err(LabError::file(name))?;
    let below = folder.join(&file.folder);
    let place = if below.as_os_str().is_empty() { Path::new(".") } else { &below };
    file.folder = std::path::absolute(place).map_err(LabError::io(place))?;
    Ok(RobotFile::of(file))
}

fn time(key: &str, text: &str) -> Result<u64, SettingError> {
    let parsed = duration::parse(text).map_err(|error| SettingError::conflict(key, error.to_string()))?;
    Ok(u64::try_from(parsed.as_nanos()).unwrap_or(u64::MAX))
}

impl LoopConfig {
    fn period_ns(&self, key: &str, values: &BTreeMap<String, toml::Value>) -> Result<u64, SettingError> {
        let period_ns = match (&self.period, &self.hz) {
            (Some(period), None) => {
                let key = format!("{key}.period");
                time(&key, &fill(&key, period, values)?)?
            }
            (None, Some(hz)) => {
                let key = format!("{key}.hz");
                let text = fill(&key, &as_text("hz", hz)?, values)?;
                let hz: f64 = text.trim().parse().map_err(|_| {
                    SettingError::value(&key, format!("\"{text}\""), "accepted: cycles per second, a number")
                })?;
                let [least, most] = PERIODS_NS.map(|ns| 1e9 / ns as f64);
                within(&key, hz, most, least)?;
                (1e9 / hz).round() as u64
            }
            (given, _) => {
                let given = if given.is_some() { "both" } else { "neither" };
                let accepted = "accepted: one of them, such as period = \"2 ms\" or hz = 500";
                return Err(SettingError::value(format!("{key}.period and {key}.hz"), given, accepted));
            }
        };
        let [least, most] = PERIODS_NS;
        if !(least..=most).contains(&period_ns) {
            let received = duration::format(Duration::from_nanos(period_ns));
            return Err(SettingError::value(format!("{key}.period"), received, "accepted: 50 us to 60 s"));
        }
        Ok(period_ns)
    }
}

impl ProgramFile {
    /// The loops, with their values filled in.
    ///
    /// # Errors
    /// [`SettingError`] names the key.
    pub fn filled_loops(&self) -> Result<Vec<Loop>, SettingError> {
        let mut loops: Vec<Loop> = Vec::new();
        for (at, config) in self.loops.iter().enumerate() {
            let key = match config.name.as_str() {
                "" => format!("loop {}", at + 1),
                name => format!("loop \"{name}\""),
            };
            if config.name.is_empty() {
                let accepted = "accepted: the name of a thread of the command";
                return Err(SettingError::value(format!("{key}.name"), "\"\"", accepted));
            }
            let period_ns = config.period_ns(&key, &self.values)?;
            let deadline_ns = match &config.deadline {
                Some(text) => {
                    let key = format!("{key}.deadline");
                    time(&key, &fill(&key, text, &self.values)?)?
                }
                None => period_ns,
            };
            if deadline_ns == 0 {
                return Err(SettingError::value(format!("{key}.deadline"), "0", "accepted: above 0"));
            }
            if let Some(policy) = &config.policy {
                let valid = policy.validate();
                valid.map_err(|error| SettingError::conflict(format!("{key}.policy"), error.to_string()))?;
            }
            let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
            let one = Loop {
                name: config.name.clone(),
                process: config.process.clone(),
                period_ns,
                deadline_ns,
                policy: config.policy,
                cpus: config.cpus,
                label: config.name.chars().map(plain).collect(),
            };
            let same = |other: &Loop| other.label == one.label || other.thread_name() == one.thread_name();
            if loops.iter().any(same) {
                let accepted = "accepted: each loop once; the kernel keeps 15 characters of a thread's name";
                return Err(SettingError::value("loop.name", format!("\"{}\" twice", one.name), accepted));
            }
            loops.push(one);
        }
        Ok(loops)
    }

    /// The command with its values filled in.
    ///
    /// # Errors
    /// [`SettingError`] names the key.
    pub fn filled_command(&self) -> Result<Vec<String>, SettingError> {
        self.command.iter().map(|word| fill("command", word, &self.values)).collect()
    }

    /// The environment with its values filled in.
    ///
    /// # Errors
    /// [`SettingError`] names the key.
    pub fn filled_environment(&self) -> Result<Environment, SettingError> {
        let filled = |(name, text): (&String, &String)| {
            let key = format!("environment.{name}");
            if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
                let accepted = "accepted: names without = and texts without a zero byte";
                return Err(SettingError::value(key, takt_files::quoted(text), accepted));
            }
            Ok((name.clone(), fill(&key, text, &self.values)?))
        };
        self.environment.iter().map(filled).collect()
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("seconds", self.seconds, 0.01, 40.0 * 86_400.0)?;
        for (name, value) in &self.values {
            as_text(name, value)?;
        }
        let command = self.filled_command()?;
        if command.first().is_none_or(String::is_empty) || command.iter().any(|word| word.contains('\0')) {
            let accepted =
                "accepted: a program and its arguments, such as [\"./controller\", \"--rate\", \"500\"]";
            return Err(SettingError::value("command", format!("{:?}", self.command), accepted).into());
        }
        self.filled_environment()?;
        let ReadyConfig { line, port, file, time, within: patience } = &self.ready;
        let ways = [line.is_some(), port.is_some(), file.is_some(), time.is_some()];
        let count = ways.iter().filter(|&&given| given).count();
        if count > 1 {
            let accepted = "accepted: at most one of line, port, file and time";
            return Err(SettingError::value("ready", format!("{count} of them"), accepted).into());
        }
        if line.as_ref().is_some_and(String::is_empty) || *port == Some(0) {
            let accepted = "accepted: a text that is not empty, a port from 1";
            return Err(SettingError::value("ready", "an empty line, or port 0", accepted).into());
        }
        let patience_s = patience.0.as_secs_f64();
        within("ready.within, seconds", patience_s, 0.01, 86_400.0)?;
        if let Some(time) = time {
            within("ready.time, seconds", time.0.as_secs_f64(), 0.0, 86_400.0)?;
        }
        within("stop.within, seconds", self.stop.within.0.as_secs_f64(), 0.0, 3600.0)?;
        let loops = self.filled_loops()?;
        within("[[loop]], number of them", loops.len() as f64, 1.0, MAX_LOOPS as f64)?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match read(text, "x.toml", Path::new("")) {
            Ok(file) => panic!("{text} is taken: {file:?}"),
            Err(error) => error.to_string(),
        }
    }

    const LOOP: &str = "[[loop]]\nname = 'control'\nperiod = '2 ms'\n";

    #[test]
    fn the_file_of_the_documentation_is_read_and_written() {
        let text = format!(
            "robot = 'program'\ncommand = ['./controller', '--rate', '{{rate}}']\nready = {{ line = 'ready' }}\n\
             stop = {{ signal = 'INT', within = '5 s' }}\n[values]\nrate = 500\n[environment]\nMODE = 'r{{rate}}'\n{LOOP}\
             deadline = '1.5 ms'\npolicy = 'fifo:80'\ncpus = '1'\n"
        );
        let file = read(&text, "x.toml", Path::new("/somewhere")).unwrap();
        let program = file.get::<ProgramFile>().unwrap();
        assert_eq!(program.filled_command().unwrap(), ["./controller", "--rate", "500"]);
        assert_eq!(program.filled_environment().unwrap()["MODE"], "r500");
        assert_eq!(program.folder, Path::new("/somewhere"));
        let one = &program.filled_loops().unwrap()[0];
        assert_eq!((one.period_ns, one.deadline_ns), (2_000_000, 1_500_000));
        assert_eq!(one.policy, Some(Policy::Fifo { priority: 80 }));
        let again = read(&file.to_toml().unwrap(), "again", Path::new("/elsewhere")).unwrap();
        assert_eq!(again, file);
    }

    #[test]
    fn a_rate_that_is_a_factor_changes_the_period() {
        let text = "command = ['x']\n[values]\nrate = 250\n[[loop]]\nname = 'control'\nhz = '{rate}'\n";
        let file = read(text, "x", Path::new("")).unwrap();
        let one = &file.get::<ProgramFile>().unwrap().filled_loops().unwrap()[0];
        assert_eq!((one.period_ns, one.deadline_ns), (4_000_000, 4_000_000));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_key() {
        for (text, parts) in [
            (LOOP.to_owned(), vec!["command"]),
            ("command = ['x']".to_owned(), vec!["[[loop]]"]),
            (format!("command = ['x', '{{rate}}']\n{LOOP}"), vec!["command", "{rate}", "[values]"]),
            (
                format!("command = ['x']\nready = {{ line = 'a', port = 5 }}\n{LOOP}"),
                vec!["ready", "at most one"],
            ),
            (format!("command = ['x']\nready = {{ lines = 'a' }}\n{LOOP}"), vec!["lines", "line 2"]),
            (format!("command = ['x']\nstop = {{ signal = 'STOP' }}\n{LOOP}"), vec!["STOP", "INT"]),
            (format!("command = ['x']\n{LOOP}{LOOP}"), vec!["control", "twice"]),
            (
                "command = ['x']\n[[loop]]\nname = 'a'\nperiod = '0 ms'\n".to_owned(),
                vec!["loop \"a\".period", "50 us"],
            ),
            ("command = ['x']\n[[loop]]\nname = 'a'\nhz = 0\n".to_owned(), vec!["loop \"a\".hz"]),
            (
                "command = ['x']\n[[loop]]\nname = 'a'\nhz = 'fast'\n".to_owned(),
                vec!["loop \"a\".hz", "fast"],
            ),
            (
                "command = ['x']\n[[loop]]\nname = 'a'\nperiod = '2'\n".to_owned(),
                vec!["loop \"a\".period", "unit"],
            ),
            ("command = ['x']\n[[loop]]\nname = 'a'\n".to_owned(), vec!["neither", "hz = 500"]),
            ("command = ['x']\n[[loop]]\nname = 'a'\nhz = 5\nperiod = '1 s'\n".to_owned(), vec!["both"]),
            (format!("command = ['x']\n{LOOP}deadline = '0 ms'\n"), vec!["loop \"control\".deadline"]),
            (format!("command = ['x']\n{LOOP}policy = 'fifo:0'\n"), vec!["policy"]),
            (format!("command = ['x']\n[environment]\n'A=B' = 'x'\n{LOOP}"), vec!["environment.A=B"]),
            (format!("command = ['x']\n[values]\nrate = [1]\n{LOOP}"), vec!["values.rate"]),
        ] {
            let error = refused(&text);
            for part in parts {
                assert!(error.contains(part), "{text}\n{part} is not in: {error}");
            }
        }
    }

    #[test]
    fn names_are_compared_as_the_kernel_keeps_them() {
        let text = "command = ['x']\n[[loop]]\nname = 'left_controller_1'\nhz = 5\n[[loop]]\nname = 'left_controller_2'\nhz = 5\n";
        let error = refused(text);
        assert!(error.contains("twice"), "{error}");
        let one = Loop {
            name: "a\u{e4}".repeat(10),
            process: None,
            period_ns: 1,
            deadline_ns: 1,
            policy: None,
            cpus: None,
            label: String::new(),
        };
        assert_eq!(one.thread_name().len(), 15);
    }
}
