//! Activity of a thread of a running program, seen from outside: its system calls (perf), its
//! allocations (a preloaded malloc that counts by thread), its faults and its switches (/proc).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::takt::{root, wait_for};

/// Whether perf may count system calls.
pub fn can_count(folder: &Path) -> bool {
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "-e", "raw_syscalls:sys_enter", "-o"]).arg(folder.join("probe"));
    let status = perf.args(["--", "true"]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Counts, in a folder that holds the counter and its file.
pub struct Counted(PathBuf);

impl Counted {
    /// Builds the counter.
    pub fn new(folder: &Path) -> Self {
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(folder.join("allocations.so"));
        let built = compiler.arg(root().join("crates/takt/tests/otlp/allocations.c")).status().unwrap();
        assert!(built.success());
        Self(folder.to_owned())
    }

    /// Lets a program count.
    pub fn count(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.0.join("allocations.so"));
        command.env("COUNT_ALLOCATIONS", self.0.join("counts"));
    }

    fn allocations(&self, tid: u64) -> u64 {
        let mut bytes = [0; 8];
        File::open(self.0.join("counts")).unwrap().read_exact_at(&mut bytes, 8 * tid).unwrap();
        u64::from_ne_bytes(bytes)
    }

    fn now(&self, pid: u32, tid: u64) -> [u64; 4] {
        let task = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
        let stat = fs::read_to_string(task.join("stat")).unwrap();
        // Behind the name, which may hold anything: proc_pid_stat(5), fields 10 and 12.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let field = |number: usize| fields[number - 3].parse::<u64>().unwrap();
        let status = fs::read_to_string(task.join("status")).unwrap();
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        [self.allocations(tid), field(10), field(12), switches.trim().parse().unwrap()]
    }

    /// Watches a thread for a second.
    pub fn watch(&self, pid: u32, thread: &str) -> Seen {
        let tid = thread_named(pid, thread);
        // Begun within the loop: the start is over.
        wait_for("its loop", || (self.now(pid, tid)[3] >= 10).then_some(()));
        let data = self.0.join(format!("{tid}.data"));
        let (before, began) = (self.now(pid, tid), Instant::now());
        let mut perf = Command::new("perf");
        perf.args(["record", "--quiet", "-e", "raw_syscalls:sys_enter", "-t", &tid.to_string(), "-o"]);
        let status = perf.arg(&data).args(["--", "sleep", "1"]).stdin(Stdio::null()).status().unwrap();
        let (after, elapsed) = (self.now(pid, tid), began.elapsed());
        assert!(status.success(), "perf cannot count the system calls of {thread}");
        let mut script = Command::new("perf");
        script.args(["script", "-F", "trace", "-i"]).arg(&data).stdin(Stdio::null());
        let text = String::from_utf8(script.output().unwrap().stdout).unwrap();
        let mut calls = BTreeMap::new();
        for line in text.lines() {
            let number =
                line.trim().strip_prefix("NR ").and_then(|rest| rest.split(' ').next()?.parse().ok());
            *calls.entry(number.unwrap_or_else(|| panic!("{line}"))).or_default() += 1;
        }
        let [allocations, minor_faults, major_faults, switches] =
            std::array::from_fn(|index| after[index] - before[index]);
        Seen { calls, allocations, faults: minor_faults + major_faults, switches, elapsed }
    }
}

fn thread_named(pid: u32, name: &str) -> u64 {
    wait_for(name, || {
        let all = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let mut named = all.filter(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
        });
        named.next()?.file_name().to_str()?.parse().ok()
    })
}

/// Activity of a thread.
#[derive(Debug)]
pub struct Seen {
    /// Number of calls by system call number.
    pub calls: BTreeMap<i64, u64>,
    pub allocations: u64,
    pub faults: u64,
    /// Times that it left the CPU by itself.
    pub switches: u64,
    /// Time for which allocations, faults and switches were counted: longer than the calls.
    pub elapsed: Duration,
}
