//! Files that apply exactly what was found: for the doctor, for systemd and for tuned.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use takt_host::doctor::{Setting, Tuned};

use crate::error::TuneError;
use crate::tuned::TuneReport;

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

/// A file that is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Its place below the folder.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
    /// Whether it is run.
    pub script: bool,
}

/// For how long the drop-in waits for the service's threads: they are made, and get their names,
/// after systemd calls it started.
const WAIT_S: u32 = 30;

/// All files for what is kept, none where nothing is. `folder` is where they will lie, `takt` the
/// program that they call.
///
/// # Errors
/// [`TuneError::Journal`] with what TOML cannot hold.
pub fn left(report: &TuneReport, folder: &Path, takt: &Path) -> Result<Vec<Left>, TuneError> {
    let settings: Vec<Setting> = report.kept().flat_map(|knob| knob.settings.iter().cloned()).collect();
    if settings.is_empty() {
        return Ok(Vec::new());
    }
    let about = about(report);
    let mut files = Vec::new();
    let mut add = |path: &str, text: String, script: bool| {
        files.push(Left { path: path.into(), text, script });
    };
    add("tuned.toml", Tuned::new(about.clone(), settings.clone()).to_toml()?, false);
    add("takt.conf", drop_in(&about, &settings, &folder.join("tuned.toml"), takt), false);
    let (profile, rest) = profile(&about, &settings);
    add("profile/tuned.conf", profile, false);
    if !rest.is_empty() {
        add("profile/rest.toml", Tuned::new(about, rest).to_toml()?, false);
        add("profile/takt.sh", script(takt), true);
    }
    Ok(files)
}

/// Its purpose in one line: names of threads may contain anything, and a line break in a comment
/// would begin a directive.
fn about(report: &TuneReport) -> String {
    let names: Vec<&str> = report.kept().map(|knob| knob.name.as_str()).collect();
    let text =
        format!("{} of {} / {}: {}", report.aim, report.tunes.process, report.tunes.thread, names.join(", "));
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// One word of a command line of systemd (systemd.service(5), "Command lines").
fn word(text: &str) -> String {
    let mut word = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => word.extend(['\\', letter]),
            // Specifiers and variables.
            '%' | '$' => word.extend([letter, letter]),
            letter if letter.is_control() => {
                let _ = write!(word, "\\x{:02x}", u32::from(letter));
            }
            letter => word.push(letter),
        }
    }
    word.push('"');
    word
}

/// A drop-in for the unit that starts the program.
fn drop_in(about: &str, settings: &[Setting], file: &Path, takt: &Path) -> String {
    let mut text = format!(
        "# {about}\n# /etc/systemd/system/NAME.service.d/takt.conf, then: systemctl daemon-reload\n# Settings apply to threads by name, so \
         only the loop gets them; the service waits until the loop runs.\n[Service]\n"
    );
    for setting in settings {
        if let Setting::TimerSlack { slack_ns, .. } = setting {
            let _ = writeln!(
                text,
                "# For all threads of the unit; systemd sets it before the start.\nTimerSlackNSec={slack_ns}"
            );
        }
    }
    // A state file of its own: what else the doctor changed on this machine stays.
    let (takt, file) = (word(&takt.to_string_lossy()), word(&file.to_string_lossy()));
    let doctor = format!("{takt} doctor --state %t/takt-%N.json");
    let _ = writeln!(text, "ExecStartPost=+{doctor} --apply {file} --wait {WAIT_S}");
    let _ = writeln!(text, "ExecStopPost=-+{doctor} --revert");
    text
}

/// A profile for tuned with what its plugins set, and what none of them does: tuned matches threads
/// by the command line of their process, so that it cannot name one of several, and its scheduler
/// plugin would keep interrupts off isolated CPUs as well.
fn profile(about: &str, settings: &[Setting]) -> (String, Vec<Setting>) {
    let (mut sysctl, mut sysfs, mut net, mut rest) =
        (String::new(), String::new(), String::new(), Vec::new());
    for setting in settings {
        match setting {
            Setting::File { path, value } => {
                let path = path.to_string_lossy();
                if let Some(key) = path.strip_prefix("/proc/sys/") {
                    let _ = writeln!(sysctl, "{}={value}", key.replace('/', "."));
                } else if path.starts_with("/sys/") {
                    let _ = writeln!(sysfs, "{path}={value}");
                } else {
                    rest.push(setting.clone());
                }
            }
            Setting::Coalescing { interface, rx_us, tx_us } => {
                let _ = write!(
                    net,
                    "\n[net_{interface}]\ntype=net\ndevices_udev_regex=INTERFACE={interface}\ncoalesce=rx-usecs {rx_us} tx-usecs {tx_us}\n"
                );
            }
            other => rest.push(other.clone()),
        }
    }
    let mut text = format!(
        "# {about}\n# This folder as /etc/tuned/takt (tuned 2.23 and newer: /etc/tuned/profiles/takt), then: tuned-adm profile takt\n\
         [main]\nsummary=Found by takt tune\n"
    );
    for (section, lines) in [("sysctl", sysctl), ("sysfs", sysfs)] {
        if !lines.is_empty() {
            let _ = write!(text, "\n[{section}]\n{lines}");
        }
    }
    text += &net;
    if !rest.is_empty() {
        text += "\n[script]\nscript=${i:PROFILE_DIR}/takt.sh\n";
    }
    (text, rest)
}

/// Script that tuned calls for the remaining settings.
fn script(takt: &Path) -> String {
    let takt = takt.to_string_lossy().replace('\'', "'\\''");
    format!(
        "#!/bin/sh\n# Settings for which tuned has no plugin: threads, their CPUs and timer slack, interrupts. tuned calls it with start \
         and stop.\nstate=/run/takt-tuned.json\ncase \"$1\" in\nstart) exec '{takt}' doctor --state \"$state\" --apply \"$(dirname \
         \"$0\")/rest.toml\" ;;\nstop) [ ! -e \"$state\" ] || exec '{takt}' doctor --state \"$state\" --revert ;;\nesac\n"
    )
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
