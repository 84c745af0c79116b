//! `takt manage` on the host, with a robot of real `rclcpp` nodes in a container of Docker's:
//! nothing is given to the container that Docker does not give by itself. The daemon is one of the
//! test's own, with its files in a temporary folder and no network.

#![allow(clippy::unwrap_used)]

mod ros2;
mod takt;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ros2::Truth;
use rustix::process::{Pid, Signal, kill_process};
use takt::{alone, root, stderr, stdout, takt as run, wait_for};

/// A daemon takes seconds to start.
const START: Duration = Duration::from_secs(60);

/// A Docker daemon, ended with all its containers when dropped.
struct Docker {
    daemon: Child,
    folder: tempfile::TempDir,
}

impl Docker {
    /// `None`: it is not installed, or may not run here; that was said.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut command = Command::new("dockerd");
        command.arg(format!("--host=unix://{}", path("socket").display()));
        command.arg("--data-root").arg(path("data")).arg("--exec-root").arg(path("exec"));
        command.arg("--pidfile").arg(path("pid")).args(["--storage-driver=vfs", "--bridge=none"]);
        // No rule of the firewall and no setting of this machine's network changes.
        command.args(["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(path("said")).unwrap());
        // It and its containers end with this test, however that ends.
        // SAFETY: prctl is async-signal-safe and has no memory effects.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut daemon = match command.spawn() {
            Ok(daemon) => daemon,
            Err(error) => {
                println!("SKIPPED: no dockerd (Debian: docker.io): {error}");
                return None;
            }
        };
        let since = Instant::now();
        loop {
            let ended = daemon.try_wait().unwrap().is_some();
            let mut ask = Command::new("docker");
            ask.env("DOCKER_HOST", format!("unix://{}", path("socket").display())).arg("info");
            let answers = ask
                .output()
                .is_ok_and(|output| output.status.success() && !stdout(&output).contains("Cannot connect"));
            if answers && !ended {
                return Some(Self { daemon, folder });
            }
            if ended || since.elapsed() > START {
                let message = fs::read_to_string(path("said")).unwrap();
                println!("SKIPPED: dockerd does not run here: {}", message.lines().last().unwrap_or(""));
                let _ = daemon.kill();
                let _ = daemon.wait();
                return None;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        let socket = self.folder.path().join("socket");
        command.env("DOCKER_HOST", format!("unix://{}", socket.display())).args(args);
        command
    }

    /// What a command says that must succeed.
    fn output_of(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "docker {args:?}: {}", stderr(&output));
        stdout(&output).trim().to_owned()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let all = self.command(&["ps", "-aq"]).output().map(|output| stdout(&output)).unwrap_or_default();
        for container in all.split_whitespace() {
            let _ = self.command(&["rm", "-f", container]).output();
        }
        let _ = kill_process(Pid::from_child(&self.daemon), Signal::TERM);
        let _ = self.daemon.wait();
    }
}

/// An image with nothing in it but links to `/usr`, which a container gets from this machine.
fn image(docker: &Docker) -> String {
    let files = docker.folder.path().join("image");
    for folder in ["usr", "proc", "sys", "dev", "tmp", "etc"] {
        fs::create_dir_all(files.join(folder)).unwrap();
    }
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

/// Threads of these processes with a reservation, by the numbers that this machine has for them.
fn reserved(pids: &[u32]) -> BTreeSet<u32> {
    let threads = pids.iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten());
    let is_reserved = |path: &PathBuf| {
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(38) == Some("6")
    };
    let paths = threads.flatten().map(|entry| entry.path()).filter(is_reserved);
    paths.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

fn status_of(pid: u32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.trim_start_matches(':').trim().to_owned()
}

fn groups(pids: &[u32]) -> Vec<String> {
    pids.iter().map(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()).collect()
}

#[test]
fn nodes_in_a_container_of_docker_are_managed_from_the_host() {
    let Some(environment) = ros2::environment() else { return };
    let _machine = alone();
    let Some(docker) = Docker::start() else { return };
    let workspace = tempfile::tempdir().unwrap();
    let truth = workspace.path().join("truth");
    fs::create_dir(&truth).unwrap();
    let image = image(&docker);

    // As a person would start it: no privilege, no capability, no namespace of the host's.
    let mut start = docker.command(&["run", "--detach", "--network=none", "--volume=/usr:/usr:ro"]);
    start.arg(format!("--volume={0}:{0}", truth.display()));
    for folder in prefixes(&environment) {
        start.arg(format!("--volume={0}:{0}:ro", folder.display()));
    }
    for (key, value) in &environment {
        start.arg(format!("--env={key}={value}"));
    }
    start.args([
        image.as_str(),
        "bash",
        "-c",
        "exec takt_truth_run --without-python --scale 0.5 --domain 1 \"$0\"",
    ]);
    let output = start.arg(&truth).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let container = stdout(&output).trim().to_owned();
    // Each node names its file when it has begun to work; they lie there by the numbers of the
    // container's own.
    wait_for("the nodes", || {
        let runs = Truth::read(&truth).runs;
        let logs = || docker.output_of(&["logs", &container]);
        assert!(!docker.output_of(&["ps", "-q"]).is_empty(), "the container ended: {}", logs());
        (runs.len() > 500 && logs().contains("all there")).then_some(())
    });
    let reported = docker.output_of(&["top", &container, "-eo", "pid"]);
    let pids: Vec<u32> = reported.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert!(pids.len() > 7, "{reported}");
    let node = *pids.last().unwrap();
    assert_ne!(
        fs::read_link(format!("/proc/{node}/ns/pid")).unwrap(),
        fs::read_link("/proc/self/ns/pid").unwrap()
    );
    // It could not even reserve for itself: CAP_SYS_NICE is bit 23.
    let capabilities = u64::from_str_radix(&status_of(node, "CapEff"), 16).unwrap();
    assert_eq!(capabilities >> 23 & 1, 0, "{capabilities:x}");
    let groups_before = groups(&pids);

    let mut command = run(["manage", "--fresh", "--json", "--seconds", "20"]);
    command.arg(root().join("ros2/takt_truth/goals.toml"));
    for pid in &pids {
        command.args(["--pid", &pid.to_string()]);
    }
    let ended = std::sync::atomic::AtomicBool::new(false);
    let (output, (seen, stayed)) = std::thread::scope(|scope| {
        let witness = scope.spawn(|| {
            let (mut seen, mut stayed) = (BTreeSet::new(), true);
            while !ended.load(std::sync::atomic::Ordering::Acquire) {
                seen.extend(reserved(&pids));
                stayed &= groups(&pids) == groups_before;
                std::thread::sleep(Duration::from_millis(250));
            }
            (seen, stayed)
        });
        let output = command.output();
        ended.store(true, std::sync::atomic::Ordering::Release);
        (output.unwrap(), witness.join().unwrap())
    });
    let message = stderr(&output);
    if output.stdout.is_empty() && (message.contains("CAP_SYS_NICE") || message.contains("uprobe")) {
        println!("SKIPPED: {message}");
        return;
    }
    // 1: what is late on a busy machine is for other tests.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{message}");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let chains = all["status"]["chains"].as_array().unwrap();
    for name in ["manual", "battery", "stereo-left", "stereo-right"] {
        let chain = chains.iter().find(|chain| chain["name"] == name).unwrap();
        assert!(chain["completions"].as_u64().unwrap() > 50, "{chain:#}\n{message}");
        assert!(chain["bound_ms"].is_number(), "{chain:#}\n{message}");
    }
    let threads = all["model"]["threads"].as_array().unwrap();
    let known = |tid: &u32| threads.iter().any(|thread| thread["tid"] == *tid);
    assert!(!seen.is_empty() && seen.iter().all(known), "{seen:?}\n{message}");
    // The container kept its groups all the time, and has its threads back as they were.
    assert!(stayed && groups(&pids) == groups_before);
    assert!(all["restored"].is_string() && reserved(&pids).is_empty(), "{:#}", all["restored"]);
    assert!(!docker.output_of(&["ps", "-q"]).is_empty(), "{}", docker.output_of(&["logs", &container]));
}
