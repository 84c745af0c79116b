//! A cluster for a test: munged, slurmctld and slurmds with features of their own, with ports,
//! folders and a key of its own. A node lives in a process namespace: to kill it kills all that
//! runs there. Everything ends with the test's thread, also when it is killed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::super::takt::{missing, wait_for};

/// Nodes and their features.
type Nodes = [(&'static str, &'static str)];

const NODES: [(&str, &str); 3] = [("n0", "rt,big"), ("n1", "rt"), ("n2", "generic")];

/// One that Slurm boots into the kernel that a job asks for.
const REBOOTING: [(&str, &str); 1] = [("n0", "rt,generic")];

/// Program for "booted" of a node: Slurm calls it without an argument for the present state, and
/// with one for the next boot.
const HELPER: &str = "#!/bin/sh
if [ $# -gt 0 ]; then echo \"$1\" > \"$TAKT_NODE/next\"; else cat \"$TAKT_NODE/kernel\"; fi
";

/// Program that Slurm calls on a node to reboot it: its daemon ends with everything else.
const REBOOT: &str = "#!/bin/sh
cat \"$TAKT_NODE/next\" >> \"$TAKT_NODE/boots\"
kill \"$(cat \"$TAKT_NODE/pid\")\"
";

/// A machine that boots: into what was asked for, and starts its daemon, which reports the boot
/// (`-b`).
const MACHINE: &str = "
export TAKT_NODE=\"$PWD\"
echo generic > kernel
first=
while :; do
  [ ! -e next ] || mv next kernel
  slurmd -D $first -N \"$1\"
  first=-b
  sleep 1
done
";

pub struct Cluster {
    workspace: tempfile::TempDir,
    munged: Child,
    controller: Child,
    names: Vec<&'static str>,
    nodes: Vec<Child>,
}

/// A time of day that is half a minute ahead.
const CLOCK: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, \"clock_gettime\");
  int result = real(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += 30;
  return result;
}
";

const CONF: &str = "slurm.conf";

/// Namespaces of a node.
const SPACES: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// A program that ends with this thread, its words in a file of `folder`.
fn start(folder: &Path, words: &[&str], configuration: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(folder.join("said")).unwrap();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("SLURM_CONF", configuration).current_dir(folder);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let end_with_us = || {
        // SAFETY: prctl(2) is async-signal-safe, and this option takes a signal alone.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes that one call alone.
    unsafe { command.pre_exec(end_with_us) };
    command.spawn().unwrap_or_else(|error| panic!("{}: {error}", words[0]))
}

impl Cluster {
    /// Three nodes; `None` where this machine cannot.
    pub fn start() -> Option<Self> {
        Self::of(&NODES, "", |root, name| {
            start(&root.join(name), &[&SPACES[..], &["slurmd", "-D", "-N", name]].concat(), &root.join(CONF))
        })
    }

    /// One node, which was booted into the kernel `generic` and can be into `rt`; its clock is half
    /// a minute ahead.
    pub fn start_rebooting() -> Option<Self> {
        let more = "NodeFeaturesPlugins=node_features/helpers\nResumeTimeout=120\nRebootProgram={root}/reboot\n\
                    TaskProlog={root}/prolog\n";
        Self::of(&REBOOTING, more, |root, name| {
            let clock = root.join("clock");
            fs::write(clock.with_extension("c"), CLOCK).unwrap();
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-o"]).arg(&clock).arg(clock.with_extension("c")).arg("-ldl");
            assert!(compiler.status().unwrap().success());
            let prolog = format!(
                "#!/bin/sh\ncd '{}/'$SLURMD_NODENAME || exit 1\n\
                 echo \"${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID $(cat kernel)\" >> jobs\n\
                 echo export LD_PRELOAD={}\n",
                root.display(),
                clock.display()
            );
            for (script, text) in [("helper", HELPER), ("reboot", REBOOT), ("prolog", &prolog)] {
                fs::write(root.join(script), text).unwrap();
                fs::set_permissions(root.join(script), fs::Permissions::from_mode(0o755)).unwrap();
            }
            let machine = [&SPACES[..], &["sh", "-c", MACHINE, "machine", name]].concat();
            start(&root.join(name), &machine, &root.join(CONF))
        })
    }

    fn of(nodes: &'static Nodes, more: &str, node: impl Fn(&Path, &str) -> Child) -> Option<Self> {
        let path = |name: &str| {
            let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/usr/local/sbin"];
            folders.iter().any(|folder| Path::new(folder).join(name).exists())
        };
        let programs = ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol"];
        let absent: Vec<&str> = programs.into_iter().filter(|name| !path(name)).collect();
        if missing(&format!("Slurm is not installed: no {}", absent.join(", ")), absent.is_empty()) {
            return None;
        }
        let may = Command::new(SPACES[0]).args(&SPACES[1..]).arg("true").stderr(Stdio::null()).status();
        if !may.is_ok_and(|status| status.success()) {
            takt_witness::skip!("process namespaces are not permitted here");
            return None;
        }
        let workspace = tempfile::tempdir().unwrap();
        let root = workspace.path();
        // munged wants its socket where everybody can get.
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        let names: Vec<&str> = nodes.iter().map(|(name, _)| *name).collect();
        for folder in ["munge", "controller"].iter().chain(&names) {
            fs::create_dir(root.join(folder)).unwrap();
        }
        let munge = root.join("munge");
        let key: Vec<u8> = (0..128).map(|_| rand_byte()).collect();
        fs::write(munge.join("key"), key).unwrap();
        fs::set_permissions(munge.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let configuration = root.join(CONF);
        fs::write(&configuration, configuration_text(root, nodes, more)).unwrap();
        // Read where slurm.conf lies, and only with the plugin.
        let helper = |feature: &str| format!("Feature={feature} Helper={}\n", root.join("helper").display());
        fs::write(root.join("helpers.conf"), ["rt", "generic"].map(helper).concat()).unwrap();
        let option = |name: &str, file: &str| format!("--{name}={}", munge.join(file).display());
        let [key, socket, pid, log, seed] = [
            option("key-file", "key"),
            option("socket", "socket"),
            option("pid-file", "pid"),
            option("log-file", "log"),
            option("seed-file", "seed"),
        ];
        let words = ["/usr/sbin/munged", "--foreground", "--num-threads=2", &key, &socket, &pid, &log, &seed];
        let munged = start(&munge, &words, &configuration);
        wait_for("munged", || munge.join("socket").exists().then_some(()));
        let controller = start(&root.join("controller"), &["slurmctld", "-D"], &configuration);
        let nodes = names.iter().map(|name| node(root, name)).collect();
        let cluster = Self { workspace, munged, controller, names, nodes };
        wait_for("idle nodes", || {
            let states = cluster.ask("sinfo", &["--noheader", "--Node", "--format=%T"]);
            (states.lines().filter(|state| *state == "idle").count() == cluster.names.len()).then_some(())
        });
        Some(cluster)
    }

    /// Value of SLURM_CONF.
    pub fn configuration(&self) -> PathBuf {
        self.workspace.path().join(CONF)
    }

    /// A file of a node's: kernels that it was booted into (`boots`), jobs that began there with
    /// the kernel that it had (`jobs`).
    pub fn file(&self, node: &str, name: &str) -> String {
        fs::read_to_string(self.workspace.path().join(node).join(name)).unwrap_or_default()
    }

    /// Output of a Slurm command; empty if the controller does not answer.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> String {
        let output =
            Command::new(program).args(arguments).env("SLURM_CONF", self.configuration()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Kills a node with all that runs there; an administrator sees it sooner than the controller's
    /// timeout.
    pub fn kill_node(&mut self, name: &str) {
        let index = self.names.iter().position(|node| *node == name).unwrap();
        self.nodes[index].kill().unwrap();
        self.nodes[index].wait().unwrap();
        let node = format!("NodeName={name}");
        self.ask("scontrol", &["update", &node, "State=DOWN", "Reason=killed"]);
    }

    /// Ends the controller and starts it again.
    pub fn restart_controller(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.controller);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.controller.wait().unwrap();
        let folder = self.workspace.path().join("controller");
        self.controller = start(&folder, &["slurmctld", "-D"], &self.configuration());
        wait_for("the controller", || self.ask("scontrol", &["ping"]).contains("is UP").then_some(()));
    }

    /// A job that lost its node is started again after two minutes; this one now.
    pub fn start_at_once(&self, job: &str) {
        let id = format!("JobId={job}");
        let asked = ["--noheader", "--array", "--format=%T", &format!("--jobs={job}")];
        wait_for("the job in the queue again", || {
            self.ask("squeue", &asked).contains("PENDING").then_some(())
        });
        self.ask("scontrol", &["update", &id, "StartTime=now"]);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().chain([&mut self.controller, &mut self.munged]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Not for secrets: the key of a cluster that lives for seconds, in a folder of its own.
fn rand_byte() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8) as u8
}

fn configuration_text(root: &Path, nodes: &Nodes, more: &str) -> String {
    // All at once, so that they differ; free again before the daemons take them.
    let bound = (0..=nodes.len()).map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let listeners: Vec<TcpListener> = bound.collect();
    let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    let (root, controller) = (root.display(), ports[0]);
    let more = more.replace("{root}", &root.to_string());
    let nodes = nodes.iter().zip(&ports[1..]).map(|((name, features), port)| {
        format!("NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1 Feature={features}\n")
    });
    format!(
        "ClusterName=takt\n\
         SlurmctldHost=localhost(127.0.0.1)\n\
         SlurmctldPort={controller}\n\
         SlurmUser=root\n\
         SlurmdUser=root\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={root}/munge/socket\n\
         CredType=cred/munge\n\
         MpiDefault=none\n\
         ProctrackType=proctrack/pgid\n\
         TaskPlugin=task/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\n\
         ReturnToService=2\n\
         KillWait=5\n\
         StateSaveLocation={root}/controller\n\
         SlurmctldPidFile={root}/controller/pid\n\
         SlurmdSpoolDir={root}/%n\n\
         SlurmdPidFile={root}/%n/pid\n\
         SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=100000\n\
         JobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\n\
         {more}{}\
         PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
        nodes.collect::<String>()
    )
}
