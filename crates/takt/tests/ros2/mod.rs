//! The test system `ros2/takt_truth`: where it is built, and what its nodes wrote down. Nothing of
//! Takt's is used to read it.

// Every test file uses a part; helpers of tests may panic as tests may.
#![allow(dead_code, clippy::unwrap_used)]

pub mod compare;
pub mod managed;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::takt::{missing, root};

/// The environment in which real ROS 2 and our nodes on it are found; `None`: there is none, and
/// that was said.
pub fn environment() -> Option<Vec<(String, String)>> {
    let print = Command::new(root().join("tools/install-ros2")).arg("--print").output().unwrap();
    let message = String::from_utf8_lossy(&print.stderr).trim().to_owned();
    if print.status.code() == Some(3) {
        // Nothing to build it from: not required either.
        takt_witness::skip!("{message}");
        return None;
    }
    if missing(&message, print.status.success()) {
        return None;
    }
    let setup = String::from_utf8(print.stdout).unwrap();
    let shell = Command::new("bash")
        .args(["-c", "set -e; . \"$1\" >&2; env -0", "_", setup.trim()])
        .output()
        .unwrap();
    assert!(shell.status.success(), "{}: {}", setup.trim(), String::from_utf8_lossy(&shell.stderr));
    let text = String::from_utf8_lossy(&shell.stdout).into_owned();
    Some(text.split('\0').filter_map(|one| one.split_once('=')).map(|(a, b)| (a.into(), b.into())).collect())
}

/// A ROS domain that other tests on this machine do not use at this time.
pub fn domain() -> String {
    (1 + std::process::id() % 100).to_string()
}

/// One activation of a callback, as its node wrote it down.
#[derive(Debug, Clone)]
pub struct Run {
    pub callback: String,
    pub executor: String,
    pub pid: u32,
    pub tid: u32,
    /// When it was due: a timer's expiry; otherwise its start.
    pub release_ns: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    /// When the line about it had been written: its callback ended right after that.
    pub left_ns: u64,
    pub cpu_ns: u64,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
}

/// One completion of a chain.
#[derive(Debug, Clone, Copy)]
pub struct Completion {
    pub began_ns: u64,
    pub ended_ns: u64,
    /// No later than this had the last callback returned, unless it was kept from running.
    pub left_ns: u64,
}

impl Completion {
    pub fn latency_ms(&self) -> f64 {
        self.ended_ns.saturating_sub(self.began_ns) as f64 / 1e6
    }
    pub fn most_ms(&self) -> f64 {
        self.left_ns.saturating_sub(self.began_ns) as f64 / 1e6
    }
}

/// The log of all nodes of a run.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    pub runs: Vec<Run>,
    /// Runs that took the message of that identifier.
    takers: HashMap<String, Vec<usize>>,
}

impl Truth {
    /// The processes that have begun to write.
    pub fn pids(folder: &Path) -> Vec<u32> {
        let files = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|it| it == "truth"));
        files.filter_map(|path| path.file_stem()?.to_str()?.parse().ok()).collect()
    }

    pub fn read(folder: &Path) -> Self {
        let mut runs = Vec::new();
        for pid in Self::pids(folder) {
            let path = folder.join(format!("{pid}.truth"));
            file(&fs::read_to_string(path).unwrap(), pid, &mut runs);
        }
        Self::new(runs)
    }

    pub fn new(runs: Vec<Run>) -> Self {
        let mut takers: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, run) in runs.iter().enumerate() {
            for input in &run.inputs {
                takers.entry(input.clone()).or_default().push(index);
            }
        }
        Self { runs, takers }
    }

    /// The runs of a callback.
    pub fn of<'a>(&'a self, callback: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.callback == callback)
    }

    pub fn callbacks(&self) -> BTreeMap<&str, &Run> {
        self.runs.iter().map(|run| (run.callback.as_str(), run)).collect()
    }

    /// Messages sent to the topic of a subscription.
    pub fn sent_to(&self, callback: &str) -> usize {
        let Some((_, topic)) = callback.split_once(" subscription ") else { return 0 };
        let ids: BTreeSet<&String> = self.runs.iter().flat_map(|run| &run.outputs).collect();
        let of_topic =
            |id: &&&String| id.rsplit_once('#').is_some_and(|(from, _)| from.ends_with(&format!(">{topic}")));
        ids.iter().filter(of_topic).count()
    }

    /// Pairs of callbacks of which the one sent messages that the other took.
    pub fn edges(&self) -> BTreeSet<(&str, &str)> {
        let sent = self.runs.iter().flat_map(|run| run.outputs.iter().map(move |id| (run, id)));
        sent.flat_map(|(from, id)| {
            let to = self.takers.get(id).into_iter().flatten();
            to.map(|&index| (from.callback.as_str(), self.runs[index].callback.as_str()))
        })
        .collect()
    }

    /// Completions of a chain along these callbacks: for each activation of the first, its first
    /// end at the last.
    pub fn completions(&self, path: &[&str]) -> Vec<Completion> {
        let mut found = Vec::new();
        for first in self.of(path[0]) {
            let mut reached = vec![first];
            for step in &path[1..] {
                let ids = reached.iter().flat_map(|run| &run.outputs);
                let taken =
                    ids.filter_map(|id| self.takers.get(id)).flatten().map(|&index| &self.runs[index]);
                reached = taken.filter(|run| run.callback == *step).collect();
            }
            found.extend(reached.iter().map(|last| Completion {
                began_ns: first.release_ns,
                ended_ns: last.end_ns,
                left_ns: last.left_ns,
            }));
        }
        found.sort_by_key(|one| one.ended_ns);
        found
    }
}

fn file(text: &str, pid: u32, runs: &mut Vec<Run>) {
    let mut last: HashMap<u32, usize> = HashMap::new();
    // A killed node's last line may be cut.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines().filter(|line| line.starts_with("run\t")) {
        let fields: Vec<&str> = line.split('\t').collect();
        assert_eq!(fields.len(), 11, "{line}");
        let number = |i: usize| fields[i].parse::<u64>().unwrap_or_else(|e| panic!("{e}: {line}"));
        let ids = |i: usize| {
            let each = fields[i].split(',').filter(|it| !it.is_empty());
            each.map(|it| it.rsplit_once('@').unwrap().0.to_owned()).collect::<Vec<String>>()
        };
        let tid = u32::try_from(number(3)).unwrap();
        if let Some(&before) = last.get(&tid) {
            let before: &mut Run = &mut runs[before];
            before.left_ns = before.left_ns.max(number(10));
        }
        last.insert(tid, runs.len());
        runs.push(Run {
            callback: fields[1].to_owned(),
            executor: fields[2].to_owned(),
            pid,
            tid,
            release_ns: if number(4) == 0 { number(5) } else { number(4) },
            start_ns: number(5),
            end_ns: number(6),
            left_ns: number(6),
            cpu_ns: number(7),
            inputs: ids(8),
            outputs: ids(9),
        });
    }
}

/// A chain of `ros2/takt_truth/goals.toml`, as the nodes were written.
pub struct Chain {
    pub name: &'static str,
    /// Its callbacks.
    pub path: &'static [&'static str],
    pub expected: Expected,
}

/// Expected answer of the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Measured, with a bound.
    Bounded,
    /// Measured; a bound may be impossible.
    Measured,
    /// Never analysable; the reason is reported.
    Reason(&'static str),
}

use Expected::{Bounded, Measured, Reason};

pub const CHAINS: &[Chain] = &[
    Chain {
        name: "odometry",
        path: &["/wheels timer 20ms", "/odometry subscription /wheel_ticks", "/follower subscription /odom"],
        expected: Bounded,
    },
    Chain {
        name: "command",
        path: &["/planner timer 50ms", "/follower subscription /plan", "/motors subscription /cmd"],
        expected: Bounded,
    },
    Chain {
        name: "manual",
        path: &["/joystick timer 100ms", "/motors subscription /cmd"],
        expected: Bounded,
    },
    Chain {
        name: "vision",
        path: &[
            "/camera timer 40ms",
            "/rectify subscription /image",
            "/detect subscription /rect",
            "/tracker subscription /objects",
        ],
        expected: Measured,
    },
    Chain {
        name: "ground",
        path: &["/lidar timer 50ms", "/ground subscription /points"],
        expected: Measured,
    },
    Chain {
        name: "clusters",
        path: &["/lidar timer 50ms", "/clusters subscription /points", "/tracker subscription /clusters"],
        expected: Measured,
    },
    Chain {
        name: "events",
        path: &["/encoder timer 30ms", "/filter subscription /ticks"],
        expected: Bounded,
    },
    Chain {
        name: "static",
        path: &["/encoder timer 30ms", "/relay subscription /ticks", "/consumer subscription /relayed"],
        expected: Bounded,
    },
    Chain {
        name: "battery",
        path: &["/battery timer 100ms", "/gauge subscription /charge"],
        expected: Bounded,
    },
    Chain {
        name: "beside",
        path: &["/planner timer 50ms", "/beside subscription /plan"],
        expected: Measured,
    },
    Chain { name: "burst", path: &["/scanner timer 50ms", "/filter subscription /scans"], expected: Bounded },
    Chain {
        name: "locate",
        path: &[
            "/asker timer 100ms",
            "/locator service /locate",
            "/asker client /locate",
            "/place_sink subscription /place",
        ],
        expected: Measured,
    },
    // The join runs within the subscription of the message that came last.
    Chain {
        name: "stereo-left",
        path: &["/stereo_camera timer 50ms", "/stereo subscription /left"],
        expected: Measured,
    },
    Chain {
        name: "stereo-right",
        path: &["/stereo_camera timer 50ms", "/stereo subscription /right"],
        expected: Measured,
    },
    Chain {
        name: "fusion",
        path: &["/sonar timer 60ms", "/fuser join", "/map subscription /fused"],
        expected: Measured,
    },
    Chain {
        name: "arm",
        path: &[
            "/arm_client timer 500ms",
            "/arm_server action /reach",
            "/arm_client action /reach",
            "/place_sink subscription /arm_done",
        ],
        expected: Measured,
    },
    Chain {
        name: "arm-progress",
        path: &[
            "/arm_client timer 500ms",
            "/arm_server action /reach",
            "/arm_client feedback /reach",
            "/place_sink subscription /arm_progress",
        ],
        expected: Measured,
    },
    Chain {
        name: "dig",
        path: &[
            "/dig_client timer 400ms",
            "/dig_server work /dig",
            "/dig_client action /dig",
            "/place_sink subscription /dug",
        ],
        expected: Reason("is answered later"),
    },
    Chain { name: "python", path: &["/talker timer 100ms"], expected: Reason("ends in Python") },
];
