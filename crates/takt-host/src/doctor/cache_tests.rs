//! resctrl on kernels of our own: trees as real machines show them, and what such a kernel does
//! with them.

use std::collections::BTreeMap;

use super::*;

/// A kernel with resctrl: files in memory, groups that begin with the whole cache.
#[derive(Debug, Clone, PartialEq)]
struct Fake {
    offered: bool,
    mounted: bool,
    files: BTreeMap<String, String>,
    /// Calls that are refused, by their number.
    refuse: Option<usize>,
    calls: usize,
}

/// The L3 of a Xeon with 11 ways and two sockets, of which devices fill the two highest.
fn xeon() -> Fake {
    machine(&[
        ("info/L3/cbm_mask", "7ff\n"),
        ("info/L3/min_cbm_bits", "1\n"),
        ("info/L3/num_closids", "16\n"),
        ("info/L3/shareable_bits", "600\n"),
        ("info/last_cmd_status", "ok\n"),
        ("schemata", "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"),
        ("tasks", "1\n77\n"),
    ])
}

/// An EPYC: 16 ways, a core complex has a cache of its own.
fn epyc() -> Fake {
    machine(&[
        ("info/L3/cbm_mask", "ffff\n"),
        ("info/L3/min_cbm_bits", "1\n"),
        ("info/L3/num_closids", "16\n"),
        ("info/L3/shareable_bits", "0\n"),
        ("schemata", "L3:0=ffff;1=ffff;8=ffff\n"),
        ("tasks", "1\n77\n"),
    ])
}

fn machine(files: &[(&str, &str)]) -> Fake {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    Fake { offered: true, mounted: false, files, refuse: None, calls: 0 }
}

impl Fake {
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        match self.refuse {
            Some(number) if number == self.calls => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(()),
        }
    }

    /// State that must be as before: everything but the number of calls.
    fn state(&self) -> (bool, &BTreeMap<String, String>) {
        (self.mounted, &self.files)
    }
}

impl Tree for Fake {
    fn is_mounted(&self) -> bool {
        self.mounted
    }
    fn mount(&mut self) -> io::Result<()> {
        self.call()?;
        if !self.offered {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        self.mounted = true;
        Ok(())
    }
    fn unmount(&mut self) -> io::Result<()> {
        self.call()?;
        self.mounted = false;
        Ok(())
    }
    fn read(&self, path: &str) -> io::Result<String> {
        self.files.get(path).filter(|_| self.mounted).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn write(&mut self, path: &str, text: &str) -> io::Result<()> {
        self.call()?;
        let Some(old) = self.files.get(path).cloned().filter(|_| self.mounted) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if path.ends_with("tasks") {
            // A thread is in one group.
            for (_, tasks) in self.files.iter_mut().filter(|(path, _)| path.ends_with("tasks")) {
                *tasks =
                    tasks.lines().filter(|l| l.trim() != text.trim()).map(|l| format!("{l}\n")).collect();
            }
            let tasks = self.files.entry(path.to_owned()).or_default();
            *tasks = format!("{tasks}{}\n", text.trim());
            return Ok(());
        }
        let name = text.split(':').next().unwrap();
        let line = |old: &str| {
            let same = old.trim().split(':').next() == Some(name);
            format!("{}\n", if same { text.trim() } else { old })
        };
        let new: String = old.lines().map(line).collect();
        self.files.insert(path.to_owned(), new);
        Ok(())
    }
    fn has(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.mounted && self.files.keys().any(|file| file == path || file.starts_with(&below))
    }
    fn make_group(&mut self, name: &str) -> io::Result<()> {
        self.call()?;
        let whole: String = self.files["schemata"]
            .lines()
            .map(|line| {
                let full = self.files.get("info/L3/cbm_mask").map_or("", |mask| mask.trim());
                let domains: Vec<String> = line
                    .trim()
                    .split_once(':')
                    .unwrap()
                    .1
                    .split(';')
                    .map(|domain| format!("{}={full}", domain.split('=').next().unwrap()))
                    .collect();
                format!("{}:{}\n", line.trim().split(':').next().unwrap(), domains.join(";"))
            })
            .collect();
        self.files.insert(format!("{name}/schemata"), whole);
        self.files.insert(format!("{name}/tasks"), String::new());
        Ok(())
    }
    fn remove_group(&mut self, name: &str) -> io::Result<()> {
        self.call()?;
        let back = self.files.remove(&format!("{name}/tasks")).unwrap_or_default();
        self.files.remove(&format!("{name}/schemata"));
        let mut all: Vec<String> =
            self.files["tasks"].lines().chain(back.lines()).map(str::to_owned).collect();
        all.sort_by_key(|tid| tid.parse::<u32>().unwrap());
        let all: String = all.into_iter().map(|tid| format!("{tid}\n")).collect();
        self.files.insert("tasks".to_owned(), all);
        Ok(())
    }
}

/// A schemata file as the kernel pads it and as we write it mean the same.
fn normal(state: (bool, &BTreeMap<String, String>)) -> (bool, BTreeMap<String, String>) {
    let plain = |text: &String| text.lines().map(|line| format!("{}\n", line.trim())).collect::<String>();
    (state.0, state.1.iter().map(|(path, text)| (path.clone(), plain(text))).collect())
}

#[test]
fn the_loop_gets_ways_that_nobody_else_fills_and_gives_them_back() {
    for (mut tree, own, rest) in
        [(xeon(), "L3:0=3;1=3", "L3:0=7fc;1=7fc"), (epyc(), "L3:0=f;1=f;8=f", "L3:0=fff0;1=fff0;8=fff0")]
    {
        let before = normal(tree.state());
        let saved = probe(&mut tree).unwrap();
        assert_eq!(normal(tree.state()), before, "a look leaves nothing");
        assert!(!saved.mounted);
        permitted(&saved).unwrap();
        give(&mut tree, 77).unwrap();
        assert!(tree.files["takt/schemata"].lines().any(|line| line == own), "{tree:#?}");
        assert!(tree.files["schemata"].lines().any(|line| line.trim() == rest), "{tree:#?}");
        assert!(is_given(&tree, 77) && !is_given(&tree, 1));
        assert!(!tree.files["tasks"].contains("77"));
        // Twice is once.
        give(&mut tree, 77).unwrap();
        give_back(&mut tree, &saved).unwrap();
        assert_eq!(normal(tree.state()), before);
        give_back(&mut tree, &saved).unwrap();
        assert_eq!(normal(tree.state()), before, "taking back twice changes nothing");
    }
}

#[test]
fn whatever_is_refused_on_the_way_everything_comes_back() {
    for mounted in [false, true] {
        // Every call of the way there fails once, as if the process had been killed there.
        for number in 1..=6 {
            let mut tree = Fake { mounted, ..xeon() };
            let before = normal(tree.state());
            let saved = probe(&mut tree).unwrap();
            tree.calls = 0;
            tree.refuse = Some(number);
            let given = give(&mut tree, 77);
            tree.refuse = None;
            assert!(given.is_err() || number > tree.calls, "call {number}: {tree:#?}");
            give_back(&mut tree, &saved).unwrap();
            assert_eq!(normal(tree.state()), before, "call {number}");
        }
    }
}

#[test]
fn a_mount_of_others_stays() {
    let mut tree = Fake { mounted: true, ..epyc() };
    let saved = probe(&mut tree).unwrap();
    give(&mut tree, 77).unwrap();
    give_back(&mut tree, &saved).unwrap();
    assert!(tree.mounted);
}

#[test]
fn what_cannot_be_divided_says_why() {
    let why = |tree: Fake| {
        let mut tree = tree;
        let before = normal(tree.state());
        let why = probe(&mut tree).unwrap_err();
        assert_eq!(normal(tree.state()), before, "{why}");
        why
    };
    assert!(why(Fake { offered: false, ..xeon() }).contains("CONFIG_X86_CPU_RESCTRL"));
    let with = |path: &str, text: &str| {
        let mut tree = xeon();
        tree.files.insert(path.to_owned(), text.to_owned());
        why(tree)
    };
    // Somebody else's division is not touched.
    assert!(with("schemata", "L3:0=7ff;1=0ff\n").contains("another program"));
    assert!(with("takt/tasks", "5\n").contains("rmdir"));
    assert!(with("info/L3/num_closids", "1\n").contains("no group can be added"));
    assert!(
        with("info/L3/cbm_mask", "7\n").contains("another program")
            || with("info/L3/cbm_mask", "7\n").contains("too few")
    );
    assert!(with("info/L3/shareable_bits", "003\n").contains("devices"));
    assert!(with("info/L3/cbm_mask", "what\n").contains("not a number"));
    let mut bare = xeon();
    bare.files.retain(|path, _| !path.starts_with("info/L3"));
    assert!(why(bare).contains("cannot be partitioned"));
}

#[test]
fn lines_of_a_state_file_are_no_way_to_write_something_else() {
    let saved = |line: &str| SavedCache { mounted: true, schemata: vec![line.to_owned()] };
    assert!(permitted(&saved("L3:0=ff;1=ff")).is_ok());
    assert!(permitted(&saved("L2CODE:0=ff")).is_ok());
    for line in ["", "MB:0=10", "L3:0=zz", "L3:0=f\nMB:0=1", "../../etc", "L3"] {
        assert!(permitted(&saved(line)).is_err(), "{line:?}");
    }
}

/// The real kernel: whatever this machine has, a look leaves it as it was.
#[test]
fn a_look_at_this_machine_leaves_no_mount() {
    let mounted = Resctrl.is_mounted();
    match probe(&mut Resctrl) {
        Ok(saved) => assert_eq!(saved.mounted, mounted),
        Err(why) => takt_witness::skip!("the cache cannot be partitioned here: {why}"),
    }
    assert_eq!(Resctrl.is_mounted(), mounted);
}
