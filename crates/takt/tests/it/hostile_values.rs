//! Every number of every shipped robot file, replaced by what no robot can mean. What `takt check`
//! and `takt run` read (both by `Registry::parse`) must refuse it, in bounded memory and without a
//! panic, unless it stands below among the values that are harmless.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use takt_lab::RobotFile;
use toml::Value;

use crate::kinds as registry;

use registry::ROBOTS;

/// Keys whose value does no harm whatever it is: numbers that only name or seed something.
const ANY_INTEGER: [&str; 2] = ["seed", "controller_version"];

/// Keys that are positions, angles, gains or offsets, for which -1 is as good as 1.
const MAY_BE_MINUS_ONE: &[&str] = &[
    "position_m",
    "rotation_rad",
    "start_joints_rad",
    "tcp",
    "waypoints_deg",
    "joints_deg",
    "path_m",
    "room_x_m",
    "room_y_m",
    "min_m",
    "max_m",
    "from_m",
    "to_m",
    "floor_m",
    "centre_m",
    "calibration",
    // The principal point of a cropped view lies outside of it.
    "cx",
    "cy",
    "nice",
    // Simulated plants and signals.
    "plant",
    "low_v",
    "reference",
];

/// Counts and lengths by which nothing is allocated: ten million seconds, microseconds, releases or
/// edges.
const MAY_BE_TEN_MILLION: &[&str] = &[
    "cycle_ns",
    "deadline_us",
    "drop_every",
    "event_period_us",
    "input_limit",
    "iterations",
    "keep_edges",
    "lost_in_a_row",
    "seconds",
];

/// One edge in so many is shown: the largest number shows none.
const ANY_COUNT: &[&str] = &["every"];

fn robots() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../robots");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "toml"));
    files.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

/// The file with every default written out, so that keys which it leaves out are tried as well.
fn whole(file: &RobotFile) -> Value {
    toml::from_str(&file.to_toml().unwrap()).unwrap()
}

/// Calls `see` with the path of every number.
fn numbers(value: &Value, path: &mut Vec<String>, see: &mut impl FnMut(&[String])) {
    let mut each = |name: String, value: &Value| {
        path.push(name);
        numbers(value, path, see);
        path.pop();
    };
    match value {
        Value::Table(table) => table.iter().for_each(|(name, value)| each(name.clone(), value)),
        Value::Array(array) => array.iter().enumerate().for_each(|(i, value)| each(i.to_string(), value)),
        Value::Integer(_) | Value::Float(_) => see(path),
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, path: &[String]) -> &'a mut Value {
    path.iter().fold(value, |value, name| match value {
        Value::Table(table) => table.get_mut(name).unwrap(),
        Value::Array(array) => &mut array[name.parse::<usize>().unwrap()],
        _ => unreachable!("a path of this value"),
    })
}

fn is_harmless(path: &[String], hostile: &Value, robot: &str) -> bool {
    let names = |keys: &[&str]| path.iter().any(|name| keys.contains(&name.as_str()));
    let key = path.iter().rev().find(|name| name.parse::<usize>().is_err()).unwrap().as_str();
    match hostile {
        Value::Integer(0) => true,
        Value::Integer(-1) => names(MAY_BE_MINUS_ONE) || ANY_INTEGER.contains(&key),
        Value::Integer(10_000_000) if robot != "cell" && MAY_BE_TEN_MILLION.contains(&key) => true,
        Value::Integer(_) => ANY_INTEGER.contains(&key) || (robot == "daq" && ANY_COUNT.contains(&key)),
        // NaN, infinities and 1e308 mean nothing anywhere.
        _ => false,
    }
}

/// Greatest memory that this process has had, bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
#[ignore = "takes 45 s"]
fn what_no_robot_can_mean_is_refused_when_the_file_is_read() {
    let hostile = [
        Value::Float(f64::NAN),
        Value::Float(f64::INFINITY),
        Value::Float(f64::NEG_INFINITY),
        Value::Float(1e308),
        Value::Float(-1e308),
        Value::Integer(-1),
        Value::Integer(0),
        Value::Integer(i64::MAX),
        Value::Integer(10_000_000),
    ];
    let mut accepted = Vec::new();
    let mut tried = 0;
    let before = peak_bytes();
    for (name, text) in robots() {
        let folder = Path::new(&name).parent().unwrap();
        let file = ROBOTS.parse(&text, &name, folder).unwrap();
        let whole = whole(&file);
        let again = toml::to_string(&whole).unwrap();
        ROBOTS.parse(&again, &name, folder).expect("written out, it is as good as before");
        let mut paths = Vec::new();
        numbers(&whole, &mut Vec::new(), &mut |path| paths.push(path.to_vec()));
        for path in &paths {
            for value in &hostile {
                let mut changed = whole.clone();
                *at(&mut changed, path) = value.clone();
                tried += 1;
                let outcome = ROBOTS.parse(&toml::to_string(&changed).unwrap(), &name, folder);
                if outcome.is_ok() && !is_harmless(path, value, file.robot()) {
                    accepted.push(format!("{}: {} = {value}", file.robot(), path.join(".")));
                }
            }
        }
    }
    accepted.sort();
    accepted.dedup();
    assert!(tried > 3000, "only {tried} values were tried");
    assert!(accepted.is_empty(), "{} of {tried} are accepted:\n{}", accepted.len(), accepted.join("\n"));
    let grown = peak_bytes() - before;
    assert!(grown < 256 << 20, "reading them took {} MiB", grown >> 20);
}
