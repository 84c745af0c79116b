//! A robot of real `rclcpp` nodes in two containers of Docker's that share the host's network, with
//! no other right than Docker gives by itself: managed and watched from the host by the lines of
//! the book, and watched from a third container that has what the first refusal asked for. The
//! daemon is one of the test's own, with its files in a temporary folder and no network.

#![allow(clippy::unwrap_used)]

use crate::ros2;
use crate::takt;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ros2::compare::measured;
use ros2::managed::{Managed, scheduling};
use ros2::{CHAINS, Truth};
use serde_json::Value;
use takt::{TAKT, alone, has, missing, refusal, root, stderr, stdout, wait_for};

/// The robot is managed for so long at least: for most of it the manager learns.
const LEARNS: Duration = Duration::from_secs(15);
/// And for so long at most: how soon chains have bounds depends on what else this machine does.
const SECONDS: &str = "60";
/// The robot's programs by container: what plans sits by itself, so that goals and commands go from
/// one to the other and back.
const CONTAINERS: [(&str, &str); 2] = [("robot", "base serve fusion mixed pipes"), ("planner", "plan")];
/// Chains with hops from one container to the other.
const ACROSS: [&str; 3] = ["manual", "command", "odometry"];
/// Chains within a container.
const WITHIN: [&str; 3] = ["battery", "stereo-left", "stereo-right"];
/// Starts them as `takt_truth_run` does. $1: where the nodes write.
const START_NODES: &str = r#"export TAKT_TRUTH_DIR=$1 ROS_LOG_DIR=$1/log TAKT_TRUTH_SCALE=0.5 TAKT_TRUTH_EXECUTOR=single_threaded
shift
nodes=$(dirname "$(command -v takt_truth_run)")/takt_truth_nodes
for program; do
  if [ $program = pipes ]; then
    for prefix in ${AMENT_PREFIX_PATH//:/ }; do
      container=$prefix/lib/rclcpp_components/component_container
      [ ! -x $container ] || TAKT_TRUTH_PROCESS=pipes $container --ros-args -r __node:=pipes &
    done
    "$nodes" load /pipes truth::Camera truth::Rectify truth::Detect
  else
    TAKT_TRUTH_PROCESS=$program "$nodes" $program &
  fi
done
echo all there
wait"#;
/// A daemon takes seconds to start.
const START: Duration = Duration::from_secs(60);

/// Runs the daemon, and ends it with all that it made when its standard input does: with the test,
/// however that ends. $1: the folder of its files, $2: the control group of its containers; the
/// rest goes to the daemon.
const KEEPER: &str = r#"
folder=$1 group=$2
shift 2
(dockerd "$@"; echo "dockerd ended with status $?") >"$folder/log" 2>&1 &
cat >/dev/null
docker ps -aq | xargs -r docker rm -f
kill "$(cat "$folder/pid")"
wait
# A daemon that was killed leaves its containers to its helpers.
pkill -KILL -f "^[^ ]*containerd.* $folder/"
for processes in $(find /sys/fs/cgroup -path "*/$group/*" -name cgroup.procs); do
  while read -r process; do kill -KILL "$process"; done <"$processes"
done
sed -n "s|^[^ ]* \($folder/[^ ]*\) .*|\1|p" /proc/mounts | xargs -r umount -l
for _ in 1 2 3 4 5; do
  find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} +
  find /sys/fs/cgroup -type d -path "*/$group*" | grep -q . || break
  sleep 0.2
done
rm -rf "$folder"
"#;

/// A Docker daemon, ended with all its containers when dropped.
struct Docker {
    keeper: Child,
    folder: PathBuf,
    group: String,
}

impl Docker {
    /// `None`: it is not installed, or may not run here; that was said.
    fn start() -> Option<Self> {
        let there = |program: &str| {
            let version = Command::new(program).arg("--version").output();
            version.is_ok_and(|output| output.status.success())
        };
        if missing("there is no dockerd (Debian: docker.io)", there("dockerd") && there("docker")) {
            return None;
        }
        // The keeper removes it.
        let folder = tempfile::tempdir().unwrap().keep();
        let group = format!("takt-test-{}", std::process::id());
        let path = |name: &str| folder.join(name);
        // Neither the daemon's configuration of this machine, nor the user's of the client.
        fs::write(path("daemon.json"), "{}").unwrap();
        let mut command = Self::client(&folder, "sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&folder).arg(&group);
        command.arg("--config-file").arg(path("daemon.json"));
        command.arg(format!("--host=unix://{}", path("socket").display()));
        command.arg("--data-root").arg(path("data")).arg("--exec-root").arg(path("exec"));
        command.arg("--pidfile").arg(path("pid")).args(["--storage-driver=vfs", "--bridge=none"]);
        // No rule of the firewall and no setting of this machine's network changes.
        command.args(["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]);
        // Nothing that another daemon here could take for its own.
        command.args(["--exec-opt=native.cgroupdriver=cgroupfs", &format!("--cgroup-parent=/{group}")]);
        command.arg(format!("--containerd-namespace={group}"));
        command.arg(format!("--containerd-plugins-namespace={group}-plugins"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C ends the test, and with it this.
        let keeper = command.process_group(0).spawn().unwrap();
        let docker = Self { keeper, folder, group };
        let since = Instant::now();
        loop {
            if docker.command(&["version"]).output().is_ok_and(|output| output.status.success()) {
                return Some(docker);
            }
            let log = fs::read_to_string(docker.folder.join("log")).unwrap_or_default();
            if log.contains("dockerd ended") || since.elapsed() > START {
                let last: Vec<&str> = log.lines().rev().take(2).collect();
                missing(&format!("dockerd does not run here: {}", last.join("; ")), false);
                return None;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A program to which `docker` is this daemon's.
    fn client(folder: &Path, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("DOCKER_HOST", format!("unix://{}", folder.join("socket").display()));
        command.env("DOCKER_CONFIG", folder.join("client"));
        for key in ["DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"] {
            command.env_remove(key);
        }
        command
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Self::client(&self.folder, "docker");
        command.args(args).stdin(Stdio::null());
        command
    }

    /// A line of a shell, in which `takt` is the one under test; the tests are root already.
    fn shell(&self, line: &str) -> Command {
        let mut command = Self::client(&self.folder, "bash");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", Path::new(TAKT).parent().unwrap().display()));
        command.args(["-c", &format!("sudo() {{ \"$@\"; }}\n{line}")]).stdin(Stdio::null());
        command
    }

    /// Output of a command that must succeed.
    fn output_of(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "docker {args:?}: {}", stderr(&output));
        stdout(&output).trim().to_owned()
    }

    /// Remains of it on this machine: mounts and control groups.
    fn leftovers(&self) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let folder = self.folder.to_str().unwrap();
        let mut left: Vec<String> =
            mounts.lines().filter(|line| line.contains(folder)).map(str::to_owned).collect();
        let find = Command::new("find").args(["/sys/fs/cgroup", "-name", &self.group]).output().unwrap();
        left.extend(stdout(&find).lines().map(str::to_owned));
        left.extend(self.folder.exists().then(|| folder.to_owned()));
        left
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        if !std::thread::panicking() {
            assert_eq!(self.leftovers(), [] as [String; 0], "Docker leaves something behind");
        }
    }
}

/// An image with nothing in it but links to `/usr`, which a container gets from this machine.
fn image(docker: &Docker) -> String {
    let files = docker.folder.join("image");
    for folder in ["usr", "proc", "sys", "dev", "tmp", "etc"] {
        fs::create_dir_all(files.join(folder)).unwrap();
    }
    // For any user of the container.
    fs::set_permissions(files.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    for link in ["bin", "lib", "lib64", "sbin"] {
        if let Ok(to) = fs::read_link(Path::new("/").join(link)) {
            std::os::unix::fs::symlink(to, files.join(link)).unwrap();
        }
    }
    for file in ["passwd", "group", "ld.so.cache"] {
        let _ = fs::copy(Path::new("/etc").join(file), files.join("etc").join(file));
    }
    let mut tar =
        Command::new("tar").arg("-C").arg(&files).args(["-c", "."]).stdout(Stdio::piped()).spawn().unwrap();
    let mut import = docker.command(&["import", "-"]);
    let output = import.stdin(tar.stdout.take().unwrap()).output().unwrap();
    tar.wait().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).trim().to_owned()
}

/// The folders outside of `/usr` in which ROS 2 and the nodes lie.
fn prefixes(environment: &[(String, String)]) -> BTreeSet<PathBuf> {
    let lists = ["AMENT_PREFIX_PATH", "LD_LIBRARY_PATH"];
    let values = environment.iter().filter(|(key, _)| lists.contains(&key.as_str())).map(|(_, value)| value);
    let folders = values.flat_map(|value| value.split(':')).map(Path::new);
    folders.filter(|path| path.is_dir() && !path.starts_with("/usr")).map(Path::to_owned).collect()
}

/// The lines of the book that contain these words: what users are shown is what is run here.
fn book_line(page: &str, words: &str) -> String {
    let text = fs::read_to_string(root().join("docs/src").join(page)).unwrap();
    let mut lines = text
        .lines()
        .filter(|line| line.starts_with("sudo ") || line.starts_with("docker ") || line.starts_with("takt "));
    let line =
        lines.find(|line| line.contains(words)).unwrap_or_else(|| panic!("{page} has no line with {words}"));
    line.split("  #").next().unwrap().trim().to_owned()
}

fn threads_of(pids: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    pids.iter().flat_map(|&pid| takt_rt::procfs::threads(pid).map(move |tid| (pid, tid)))
}

/// Threads of these processes with a reservation, by the numbers that this machine has for them.
fn reserved(pids: &[u32]) -> BTreeSet<u32> {
    let is_reserved = |&(pid, tid): &(u32, u32)| scheduling(pid, tid).is_some_and(|it| it[0] == "6");
    threads_of(pids).filter(is_reserved).map(|(_, tid)| tid).collect()
}

/// Everything that the manager could leave changed: of each thread its policy, priority, nice value
/// and CPUs, and the kernel's own settings of scheduling.
fn settings(pids: &[u32]) -> BTreeMap<String, String> {
    let of_thread = |(pid, tid): (u32, u32)| {
        let cpus = status_of(&format!("{pid}/task/{tid}"), "Cpus_allowed");
        Some((format!("thread {tid}"), format!("{:?} on {cpus}", scheduling(pid, tid)?)))
    };
    let kernel = fs::read_dir("/proc/sys/kernel").unwrap().flatten().map(|entry| entry.path());
    let kernel = kernel.filter(|path| path.to_str().is_some_and(|it| it.contains("/sched_")));
    let of_kernel = |path: PathBuf| Some((path.display().to_string(), fs::read_to_string(&path).ok()?));
    threads_of(pids).filter_map(of_thread).chain(kernel.filter_map(of_kernel)).collect()
}

fn status_of(process: &str, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.trim_start_matches(':').trim().to_owned()
}

/// A container that runs.
struct Running {
    /// Its processes, by the numbers that this machine has for them.
    pids: Vec<u32>,
    /// Its control groups.
    group: String,
    truth: PathBuf,
}

impl Running {
    /// As a person would start it, by the book's line: no privilege, no capability, no process
    /// numbers of the host's. `options`: what the line leaves open.
    fn start(docker: &Docker, name: &str, options: &str, truth: &Path, programs: &str) -> Self {
        let start = book_line("manager.md", &format!("docker run -d --name {name} --network host"));
        let environment = ros2::environment().unwrap();
        let mut robot =
            format!("-v /usr:/usr:ro -v {0}:{0} --env ROS_DOMAIN_ID={1}", truth.display(), ros2::domain());
        for folder in prefixes(&environment) {
            robot += &format!(" -v {0}:{0}:ro", folder.display());
        }
        // The shell that starts it has them, but for the path by which it finds Docker.
        for (key, value) in &environment {
            let is_path = key == "PATH";
            robot += &if is_path { format!(" --env 'PATH={value}'") } else { format!(" --env {key}") };
        }
        robot += &format!(" {options} bash -c '{START_NODES}' nodes {} {programs}", truth.display());
        let line = start.replacen("...", &robot, 1);
        let mut start = docker.shell(&line);
        start.envs(environment.iter().filter(|(key, _)| key != "PATH").map(|(key, value)| (key, value)));
        let output = start.output().unwrap();
        assert!(output.status.success(), "{line}\n{}", stderr(&output));
        // Each node names its file when it has begun to work; they lie there by the numbers of the
        // container's own.
        wait_for("the nodes", || {
            let logs = || docker.output_of(&["logs", name]);
            let running = docker.output_of(&["ps", "-q", "--filter", &format!("name={name}")]);
            assert!(!running.is_empty(), "the container ended: {}", logs());
            (logs().contains("all there") && Truth::read(truth).runs.len() > 100).then_some(())
        });
        let reported = docker.output_of(&["top", name, "-eo", "pid"]);
        let pids: Vec<u32> = reported.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let node = *pids.last().unwrap();
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
        assert_ne!(namespace(&node.to_string()), namespace("self"));
        // It could not even reserve for itself: CAP_SYS_NICE is bit 23.
        let capabilities = u64::from_str_radix(&status_of(&node.to_string(), "CapEff"), 16).unwrap();
        assert_eq!(capabilities >> 23 & 1, 0, "{capabilities:x}");
        let group = fs::read_to_string(format!("/proc/{node}/cgroup")).unwrap();
        assert!(group.contains(&docker.group), "{group}");
        let running = Self { pids, group, truth: truth.to_owned() };
        assert_eq!(running.strayed(), [] as [String; 0]);
        running
    }

    /// The control groups of each of its threads that are not its own.
    fn strayed(&self) -> Vec<String> {
        let group = |(pid, tid)| fs::read_to_string(format!("/proc/{pid}/task/{tid}/cgroup")).ok();
        threads_of(&self.pids).filter_map(group).filter(|groups| *groups != self.group).collect()
    }
}

/// The report of a watch, and why it saw no events of the kernel.
fn report(output: &Output) -> (Value, Option<String>) {
    assert!(matches!(output.status.code(), Some(0 | 2)), "{:?}: {}", output.status, stderr(output));
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", stdout(output), stderr(output)));
    let why = report["untraced"].as_str().map(str::to_owned);
    assert_eq!(why.is_some(), output.status.code() == Some(2), "{report:#}");
    (report, why)
}

/// The processes whose threads a watch reports.
fn watched(report: &Value) -> BTreeSet<u32> {
    let threads = report["threads"].as_array().unwrap();
    threads.iter().map(|thread| u32::try_from(thread["pid"].as_u64().unwrap()).unwrap()).collect()
}

/// Watches the robot in a container from the host, by the lines of the book.
fn watch_from_the_host(docker: &Docker, pids: &[u32], folder: &Path) {
    let watch = |line: &str| {
        let line = format!("{line} --seconds 1.5 --json --runs {}", folder.display());
        docker.shell(&line).output().unwrap()
    };
    let all: BTreeSet<u32> = pids.iter().copied().collect();
    let (seen, why) = report(&watch(&book_line("late.md", "--cgroup $(docker")));
    assert_eq!(why, None);
    let processes = watched(&seen);
    assert!(processes.len() > 3 && processes.is_subset(&all), "{all:?}: {seen:#}");
    // A process of the container by the number that this machine has for it.
    let node = *processes.last().unwrap();
    let (seen, why) = report(&watch(&format!("takt watch --pid {node}")));
    assert_eq!((why, watched(&seen)), (None, BTreeSet::from([node])), "{seen:#}");
    // Neither the container's name nor the id of none is a control group.
    for wrong in ["robot", "0123456789ab"] {
        has(
            &refusal(&watch(&format!("takt watch --cgroup {wrong}"))),
            &[wrong, "no such control group", "docker ps"],
        );
    }
}

/// A watch in a container of its own.
fn watch_inside(docker: &Docker, image: &str, options: &str, what: &str) -> Output {
    let files = format!("--rm --network=none -v /usr:/usr:ro -v {TAKT}:/takt:ro");
    let watch = "/takt watch --runs /tmp --json --seconds 1";
    docker.shell(&format!("docker run {options} {files} {image} {watch} {what}")).output().unwrap()
}

/// Watches in a container as it comes: what `docker run` is to be given, by what it refuses with.
fn what_is_asked_for(docker: &Docker, image: &str) -> [String; 2] {
    let program = "-- sh -c 'while :; do sleep 0.01; done'";
    let (seen, why) = report(&watch_inside(docker, image, "--user=1000", program));
    let why = why.unwrap_or_else(|| panic!("traced without a right: {seen:#}"));
    has(
        &why,
        &["CAP_PERFMON", "run it as root", "tracefs is not mounted", "the host's process ids", "CAP_BPF"],
    );
    let rates = seen["threads"].as_array().unwrap().iter().filter(|one| one["rate_hz"].as_f64() > Some(0.0));
    assert!(rates.count() > 0, "{seen:#}");

    let lines = why.split("docker run ").skip(1).filter_map(|rest| Some(rest.split_once(" IMAGE")?.0));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert!(lines.iter().all(|line| line.contains("--user=0")), "{why}");
    lines.try_into().unwrap_or_else(|_| panic!("{why}"))
}

/// Watches the robot from a container that has what was asked for, and no more but files.
fn watch_from_a_container(docker: &Docker, image: &str, lines: &[String; 2], pids: &[u32]) {
    let is_node =
        |pid: &&u32| takt_rt::procfs::thread_name(pid, pid).is_some_and(|it| it == "takt_truth_node");
    let node = *pids.iter().find(is_node).unwrap();
    let ask = |options: &str| watch_inside(docker, image, options, &format!("--pid {node}"));
    let mut worked = None;
    for line in lines {
        let output = ask(line);
        // 125: of the engine itself, which the text says.
        if output.status.code() == Some(125) && worked.is_none() {
            has(&stderr(&output), &["unknown capability"]);
            continue;
        }
        let (seen, why) = report(&output);
        assert_eq!(why, None);
        assert_eq!(watched(&seen), BTreeSet::from([node]), "{seen:#}");
        let notes = seen["notes"].as_array().unwrap();
        assert_eq!(seen["followed_by"], "kernel", "{notes:#?}");
        assert!(notes.iter().all(|note| !note.as_str().unwrap().starts_with("missing: ")), "{notes:#?}");
        worked.get_or_insert(line);
    }
    let worked = worked.unwrap();
    // An engine's filter may refuse what the capabilities grant.
    let filter = docker.folder.join("filter.json");
    let names = r#"[{"names": ["perf_event_open"], "action": "SCMP_ACT_ERRNO"}]"#;
    fs::write(&filter, format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": {names}}}"#)).unwrap();
    let (_, why) = report(&ask(&format!("--security-opt seccomp={} {worked}", filter.display())));
    let why = why.unwrap();
    has(&why, &["perf_event_open, which a seccomp filter refuses", "--security-opt seccomp=unconfined"]);
    assert_eq!(why.matches("missing: ").count(), 1, "{why}");
}

/// Whether the last status in the manager's log has measured and planned all chains.
fn is_planned(log: &Path) -> bool {
    let text = fs::read_to_string(log).unwrap_or_default();
    let records = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let Some(status) = records.into_iter().find(|record| record["kind"] == "status") else { return false };
    let chains = status["status"]["chains"].as_array().cloned().unwrap_or_default();
    let is_planned = |name: &str| {
        chains.iter().any(|chain| {
            chain["name"] == name && chain["completions"].as_u64() > Some(20) && chain["bound_ns"].is_u64()
        })
    };
    ACROSS.into_iter().chain(WITHIN).all(is_planned)
}

/// Runs a shell with the manager, which is interrupted once its plan has all chains.
fn managed_until_planned(mut manage: Command, log: &Path) -> Output {
    // Nobody reads a pipe meanwhile.
    let errors = log.with_extension("stderr");
    manage.process_group(0).stdout(Stdio::null()).stderr(fs::File::create(&errors).unwrap());
    let (began, mut child) = (Instant::now(), manage.spawn().unwrap());
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(200));
        if began.elapsed() > LEARNS && is_planned(log) {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::INT);
            break;
        }
    }
    let status = child.wait().unwrap();
    Output { status, stdout: Vec::new(), stderr: fs::read(errors).unwrap() }
}

#[test]
#[ignore = "takes 25 s"]
fn a_robot_in_containers_is_managed_and_watched() {
    if ros2::environment().is_none() {
        return;
    }
    let _machine = alone();
    let Some(docker) = Docker::start() else { return };
    let workspace = tempfile::tempdir().unwrap();
    let image = image(&docker);
    let containers = CONTAINERS.map(|(name, programs)| {
        let truth = workspace.path().join(name);
        fs::create_dir(&truth).unwrap();
        Running::start(&docker, name, &image, &truth, programs)
    });
    let robot = &containers[0];
    let pids: Vec<u32> = containers.iter().flat_map(|one| one.pids.iter().copied()).collect();
    let lines = what_is_asked_for(&docker, &image);
    let settings_before = settings(&pids);

    fs::copy(root().join("ros2/takt_truth/goals.toml"), workspace.path().join("goals.toml")).unwrap();
    let manage = book_line("manager.md", "docker top $name");
    let line = format!("{manage} --fresh --json --log log.json --seconds {SECONDS} >manage.json");
    let mut manage = docker.shell(&line);
    manage.current_dir(workspace.path());
    let ended = std::sync::atomic::AtomicBool::new(false);
    let (output, (seen, stray)) = std::thread::scope(|scope| {
        let witness = scope.spawn(|| {
            let (mut seen, mut stray) = (BTreeSet::new(), BTreeSet::new());
            while !ended.load(std::sync::atomic::Ordering::Acquire) {
                seen.extend(reserved(&pids));
                stray.extend(containers.iter().flat_map(Running::strayed));
                std::thread::sleep(Duration::from_millis(250));
            }
            (seen, stray)
        });
        let managed = scope.spawn(|| {
            let output = managed_until_planned(manage, &workspace.path().join("log.json"));
            ended.store(true, std::sync::atomic::Ordering::Release);
            output
        });
        // The manager first gets to know the robot undisturbed.
        while reserved(&pids).is_empty() && !ended.load(std::sync::atomic::Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(100));
        }
        watch_from_the_host(&docker, &robot.pids, workspace.path());
        watch_from_a_container(&docker, &image, &lines, &robot.pids);
        (managed.join().unwrap(), witness.join().unwrap())
    });
    let message = stderr(&output);
    let mut managed = Managed::read(workspace.path());
    let may = !(managed.all.is_null() && (message.contains("CAP_SYS_NICE") || message.contains("uprobe")));
    if missing(&format!("nothing can be reserved here: {message}"), may) {
        return;
    }
    // 1: what is late on a busy machine is for other tests.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{message}");
    // The robot goes on after the manager has ended.
    let end_ns = managed.log.iter().filter_map(|record| record["at_ns"].as_u64()).max().unwrap_or(0);
    let runs = containers.iter().flat_map(|one| Truth::read(&one.truth).runs);
    managed.truth = Truth::new(runs.filter(|run| run.end_ns <= end_ns).collect());
    let all = &managed.all;
    assert!(
        matches!(all["verdict"].as_str(), Some("PASS" | "FAIL" | "INCONCLUSIVE")),
        "{:#}",
        all["verdict"]
    );
    let lost = all["status"]["lost"].as_u64().unwrap();
    for name in ACROSS.into_iter().chain(WITHIN) {
        let chain = managed.chain(name);
        let is_measured = chain["completions"].as_u64() > Some(20) && chain["bound_ms"].is_number();
        assert!(is_measured || lost > 0, "{chain:#}\n{message}");
        if !is_measured {
            println!("NOT JUDGED: {name}: {lost} events were lost: {}", chain["why"]);
        }
    }
    // What was there before it came is found in the processes' memory: their own names for it.
    let is_reported = |name: &&str| {
        let callback = [" timer ", " subscription ", " service "].iter().any(|kind| name.contains(kind));
        !callback || managed.callback(name).is_some()
    };
    let unnamed: Vec<&str> =
        managed.truth.callbacks().into_keys().filter(|name| !is_reported(name)).collect();
    assert!(unnamed.is_empty() || lost > 0, "{unnamed:?}\n{:#}", all["model"]["callbacks"]);
    println!("{} callbacks not named, {lost} events lost", unnamed.len());
    // What the manager measured is what the nodes of both containers wrote down.
    let mut differences = Vec::new();
    for chain in CHAINS.iter().filter(|chain| ACROSS.contains(&chain.name)) {
        measured(&managed, chain, &mut differences);
    }
    assert!(differences.is_empty() || lost > 0, "{differences:#?}");
    let threads = all["model"]["threads"].as_array().unwrap();
    let known = |tid: &u32| threads.iter().any(|thread| thread["tid"] == *tid);
    assert!(seen.iter().all(known) && (!seen.is_empty() || lost > 0), "{seen:?}\n{message}");
    for one in &containers {
        let of_it: BTreeSet<u32> = threads_of(&one.pids).map(|(_, tid)| tid).collect();
        assert!(!seen.is_disjoint(&of_it) || lost > 0, "{seen:?} of {of_it:?}");
    }
    // Every thread stayed in its container's control groups all the time, and is as it was.
    assert_eq!(stray, BTreeSet::new());
    assert!(all["restored"].is_string() && reserved(&pids).is_empty(), "{:#}", all["restored"]);
    let after = settings(&pids);
    let changed =
        settings_before.iter().filter(|(name, value)| after.get(*name).is_some_and(|it| it != *value));
    let changed: Vec<String> =
        changed.map(|(name, value)| format!("{name}: {value}, now {}", after[name])).collect();
    assert!(changed.is_empty() && after.len() > 50, "{changed:#?}");
    let left = docker.output_of(&["ps", "-q"]);
    assert_eq!(left.lines().count(), CONTAINERS.len(), "{}", docker.output_of(&["logs", "robot"]));
}
