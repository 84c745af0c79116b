//! The files, read by those who are to read them: systemd and tuned, where they are here.

use std::fs;
use std::process::Command;

use super::*;
use crate::search::Stage;
use crate::tuned::{KnobRow, Side, Tunes};

/// A report that keeps `settings`.
fn report(settings: Vec<Setting>) -> TuneReport {
    let row = KnobRow {
        name: "a knob".to_owned(),
        gain_us: Some(100.0),
        low: Some(50.0),
        high: Some(150.0),
        p: Some(0.001),
        stretches: None,
        kept: true,
        placebo: false,
        stage: Stage::Ablated,
        note: String::new(),
        cost: String::new(),
        settings,
    };
    TuneReport {
        target: "process 1".to_owned(),
        aim: crate::Aim::default(),
        tunes: Tunes {
            process: "control".to_owned(),
            // As hostile as a thread's name can be.
            thread: "x\nExecStop=rm".to_owned(),
            pid: 1,
            tid: 1,
            period_us: Some(1000.0),
            policy: "other:0".to_owned(),
            cpus: "0-1".to_owned(),
        },
        knobs: vec![row],
        gain_us: Some([100.0, 50.0, 150.0]),
        before: Side::default(),
        after: Side::default(),
        placebo_credited: false,
        aim_reached: None,
        proposed: Vec::new(),
        blocks: 1,
        remeasured: 0,
        block_s: 0.3,
        budget_s: 600.0,
        over: false,
        stopped: false,
        undecided: Vec::new(),
        seconds: 1.0,
        notes: Vec::new(),
        files: Vec::new(),
    }
}

fn of(process: &str) -> (String, String) {
    (process.to_owned(), process.to_owned())
}

/// One of each kind, and what a search keeps together.
fn everything() -> Vec<Setting> {
    let file = |path: &str, value: &str| Setting::File { path: path.into(), value: value.to_owned() };
    let ((process, thread), (irq, of_irq)) = (of("control"), of("irq/24-eth0"));
    vec![
        file("/proc/sys/kernel/timer_migration", "0"),
        file("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
        file("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "n/a"),
        file("/proc/irq/24/smp_affinity_list", "1"),
        Setting::Coalescing { interface: "eth0".to_owned(), rx_us: 0, tx_us: 0 },
        Setting::Policy { process: process.clone(), thread: thread.clone(), policy: "fifo:80".to_owned() },
        Setting::Policy { process: irq, thread: of_irq, policy: "fifo:90".to_owned() },
        Setting::Alone { process: process.clone(), cpus: "1".parse().unwrap() },
        Setting::TimerSlack { process, thread, slack_ns: 1 },
    ]
}

fn text<'a>(files: &'a [Left], name: &str) -> &'a str {
    &files.iter().find(|file| file.path == Path::new(name)).unwrap().text
}

fn there(program: &str, arguments: &[&str]) -> bool {
    let there = Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success());
    assert!(there || std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(), "{program} {arguments:?}");
    if !there {
        takt_witness::skip!("no {program} {arguments:?}");
    }
    there
}

#[test]
fn nothing_kept_leaves_nothing() {
    assert!(left(&report(Vec::new()), Path::new("/x"), Path::new("/takt")).unwrap().is_empty());
}

#[test]
fn every_setting_is_in_one_place_of_the_profile() {
    let files = left(&report(everything()), Path::new("/x"), Path::new("/usr/bin/takt")).unwrap();
    let rest: Tuned = toml_of(text(&files, "profile/rest.toml"));
    let kinds = |wanted: fn(&Setting) -> bool| rest.settings.iter().filter(|one| wanted(one)).count();
    assert_eq!(kinds(|one| matches!(one, Setting::Policy { .. })), 2);
    assert_eq!(kinds(|one| matches!(one, Setting::File { path, .. } if path.starts_with("/proc/irq"))), 1);
    assert_eq!(rest.settings.len(), 5);
    assert_eq!(toml_of(text(&files, "tuned.toml")).settings, everything());
    // If tuned does everything itself, there is no script.
    let own = left(&report(everything()[..3].to_vec()), Path::new("/x"), Path::new("/takt")).unwrap();
    assert!(own.iter().all(|file| !file.path.ends_with("takt.sh")));
    assert!(!text(&own, "profile/tuned.conf").contains("[script]"));
}

fn toml_of(text: &str) -> Tuned {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuned.toml");
    fs::write(&path, text).unwrap();
    Tuned::read(&path).unwrap()
}

/// Output of `systemd-analyze verify` for a service with the drop-in.
fn verified(drop_in: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("robot.service");
    fs::write(&unit, "[Service]\nExecStart=/bin/sleep 1\n").unwrap();
    let place = folder.path().join("robot.service.d");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("takt.conf"), drop_in).unwrap();
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
    // It names units of the system that it does not like, too.
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours: Vec<&str> =
        message.lines().filter(|line| line.contains("robot.service") || line.contains("takt.conf")).collect();
    (output.status.success() && ours.is_empty(), message)
}

#[test]
fn systemd_takes_the_drop_in() {
    if !there("systemd-analyze", &["--version"]) {
        return;
    }
    let program = std::env::current_exe().unwrap();
    for folder in ["/etc/takt", "/home/a b/100% $HOME \"x\"\\"] {
        let files = left(&report(everything()), Path::new(folder), &program).unwrap();
        let drop_in = text(&files, "takt.conf");
        let (taken, message) = verified(drop_in);
        assert!(taken, "{message}\n{drop_in}");
        // The name of the thread is in a comment, and stays there.
        assert!(drop_in.lines().all(|line| !line.starts_with("ExecStop=")), "{drop_in}");
        // The check sees what it is to see.
        let broken = [
            drop_in.replace("TimerSlackNSec=1", "TimerSlackNSec=soon"),
            drop_in.replace("ExecStartPost=+\"/", "ExecStartPost=+\""),
            drop_in.replace("ExecStopPost=", "ExecStopAfter="),
        ];
        for text in broken {
            assert_ne!(text, drop_in);
            assert!(!verified(&text).0, "{text}");
        }
    }
}

/// As tuned reads a profile (`tuned.profiles.loader`), with tuned's own reader where it is
/// installed; prints what it found.
const READ: &str = r#"
import collections, json, sys
try:
    from tuned.profiles.loader import Loader
    class Real(Loader):
        def __init__(self): pass
    config, by = Real()._load_config_data(sys.argv[1]), "tuned"
except ImportError:
    import configparser
    parser = configparser.ConfigParser(delimiters=('='), inline_comment_prefixes=('#'), strict=False)
    parser.optionxform = str
    parser.read_file(open(sys.argv[1]))
    config, by = {s: {o: parser.get(s, o, raw=True) for o in parser.options(s)} for s in parser.sections()}, "configparser"
print(json.dumps({"by": by, "config": config}))
"#;

#[test]
fn tuned_reads_the_profile() {
    if !there("python3", &["--version"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let files = left(&report(everything()), folder.path(), Path::new("/usr/bin/takt")).unwrap();
    let path = folder.path().join("tuned.conf");
    fs::write(&path, text(&files, "profile/tuned.conf")).unwrap();
    let output = Command::new("python3").args(["-c", READ]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("read by {}", read["by"]);
    let config = &read["config"];
    assert_eq!(config["sysctl"], serde_json::json!({ "kernel.timer_migration": "0" }));
    assert_eq!(config["sysfs"]["/sys/kernel/mm/transparent_hugepage/enabled"], "never");
    assert_eq!(config["sysfs"]["/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us"], "n/a");
    assert_eq!(config["net_eth0"]["type"], "net");
    assert_eq!(config["net_eth0"]["devices_udev_regex"], "INTERFACE=eth0");
    assert_eq!(config["net_eth0"]["coalesce"], "rx-usecs 0 tx-usecs 0");
    // tuned's own reader puts the folder in.
    let script =
        if read["by"] == "tuned" { &config["script"]["script"][0] } else { &config["script"]["script"] };
    assert!(script.as_str().unwrap().ends_with("/takt.sh"), "{script}");
    assert_eq!(config["main"]["summary"], "Found by takt tune");
    assert_eq!(config.as_object().unwrap().len(), 5, "{config:#}");
}

#[test]
fn the_script_does_what_tuned_asks() {
    let folder = tempfile::tempdir().unwrap();
    // A program that says how it was called, at a place that a shell would read as more than one
    // word.
    let takt = folder.path().join("it's takt");
    fs::write(&takt, "#!/bin/sh\nprintf '%s|' \"$@\"\n").unwrap();
    let script = folder.path().join("takt.sh");
    fs::write(&script, super::script(&takt)).unwrap();
    fs::set_permissions(&takt, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let message = |argument: &str| {
        let output = Command::new("sh").arg(&script).arg(argument).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let rest = folder.path().join("rest.toml");
    assert_eq!(message("start"), format!("doctor|--state|/run/takt-tuned.json|--apply|{}|", rest.display()));
    assert!(["", "doctor|--state|/run/takt-tuned.json|--revert|"].contains(&message("stop").as_str()));
    assert_eq!(message("verify"), "");
}
