//! However a run is ended from outside, the robot is instructed to stop first: judged at the
//! controller, by a reader that shares nothing with Takt's own.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use takt::{Beside, TAKT, alone, demo, read_json, root, rows, stderr, takt as run, wait_for};

/// Exit status of a command that could not print what it had to say.
const OUTPUT_LOST: Option<i32> = Some(3);

/// The simulated controller as a process of its own.
struct Robot {
    _process: Beside,
    port: u16,
}

impl Robot {
    fn start() -> Self {
        let mut process = Beside::start(run(["simulate", "--rtde-port", "0", "--dashboard-port", "0"]));
        let line = process.line("stdout", "RTDE: 127.0.0.1:");
        let port = line.split(',').next().unwrap().parse().unwrap();
        Self { _process: process, port }
    }

    /// A cell that commands it, with one camera that sees nobody, as a file in `folder`.
    fn cell(&self, folder: &Path) -> PathBuf {
        let text = fs::read_to_string(root().join("robots/synthetic.toml")).unwrap();
        let cut = |text: &str, from: &str, to: &str| {
            let (begin, rest) = text.split_once(from).unwrap();
            format!("{begin}{to}{}", rest.split_once(to).unwrap().1)
        };
        // Its own simulator and the mission.
        let text = cut(&text, "[robot.simulator]", "# The cameras sit");
        let camera = text.match_indices("[[cameras]]").nth(1).unwrap().0;
        let text = text[..camera]
            .lines()
            .filter(|line| !line.contains("look = "))
            .collect::<Vec<_>>()
            .join("\n")
            .replace("people = [\n]", "people = []")
            .replace("[ssm]", "[ssm]\nstale_after_ms = 1000.0\nrobot_stale_after_ms = 1000.0");
        let networks = "[perception.detector]\nenabled = false\n[perception.segmenter]\nenabled = false\n";
        let path = folder.join("cell.toml");
        let link = format!("[robot.rtde]\nhost = \"127.0.0.1\"\nport = {}\n", self.port);
        fs::write(&path, format!("{text}\n{networks}{link}")).unwrap();
        path
    }

    /// Asks for the speed that the controller follows and the outputs of the light.
    fn state(&self) -> (f64, u64) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let packet = |kind: u8, payload: &[u8]| {
            let size = (payload.len() + 3) as u16;
            [&size.to_be_bytes()[..], &[kind], payload].concat()
        };
        let mut ask = |kind: u8, payload: &[u8]| {
            stream.write_all(&packet(kind, payload)).unwrap();
            loop {
                let mut header = [0; 3];
                stream.read_exact(&mut header).unwrap();
                let size = u16::from_be_bytes([header[0], header[1]]);
                let mut body = vec![0; usize::from(size) - 3];
                stream.read_exact(&mut body).unwrap();
                // Texts may come between; the answer to `start` is awaited as the first data
                // packet.
                if header[2] == kind || kind == b'S' && header[2] == b'U' {
                    if kind == b'S' && header[2] == b'S' {
                        continue;
                    }
                    return body;
                }
            }
        };
        assert_eq!(ask(b'V', &2u16.to_be_bytes()), [1]);
        let names = b"target_speed_fraction,actual_digital_output_bits";
        let types = ask(b'O', &[&125.0f64.to_be_bytes()[..], names].concat());
        assert!(types.ends_with(b"DOUBLE,UINT64"), "{types:?}");
        let data = ask(b'S', &[]);
        let fraction = f64::from_be_bytes(data[1..9].try_into().unwrap());
        (fraction, u64::from_be_bytes(data[9..17].try_into().unwrap()) & 0b111)
    }

    fn may_move(&self) {
        wait_for("a robot that may move", || {
            let (fraction, light) = self.state();
            (fraction > 0.5 && light != 0b100).then_some(())
        });
    }

    #[track_caller]
    fn stands_with_a_red_light(&self, how: &str) {
        wait_for(&format!("a stop after {how}"), || (self.state() == (0.0, 0b100)).then_some(()));
    }
}

/// A run of `robot`'s cell whose robot may move, and its run directory.
fn running(robot: &Robot, folder: &Path) -> (Beside, PathBuf) {
    let mut command = run(["run"]);
    command.arg(robot.cell(folder)).args(["--view", "none", "--json", "--runs"]).arg(folder);
    let mut cell = Beside::start(command);
    let dir = PathBuf::from(cell.line("stderr", "Run directory: "));
    robot.may_move();
    wait_for("the window", || {
        assert!(cell.runs(), "{}", cell.output("stderr"));
        (read_json(&dir.join("run.json"))["facts"]["window_ns"][0] != 0 && rows(&dir, "frames.csv") > 0)
            .then_some(())
    });
    (cell, dir)
}

fn is_sealed(dir: &Path) -> bool {
    dir.join("hashes.json").is_file() && dir.join("summary.json").is_file()
}

#[test]
#[ignore = "takes 20 s"]
fn every_request_to_end_stops_the_robot_first_and_seals_the_run() {
    let _machine = alone();
    let last = libc::SIGRTMAX();
    for signal in [
        libc::SIGHUP,
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGXCPU,
        libc::SIGIO,
        libc::SIGSTKFLT,
        last,
    ] {
        ends_in_order(signal);
    }
}

fn ends_in_order(signal: i32) {
    let (robot, folder) = (Robot::start(), tempfile::tempdir().unwrap());
    let (mut cell, dir) = running(&robot, folder.path());
    send(&cell, signal);
    // A terminal and a shell both say that they hang up.
    send(&cell, signal);
    assert_eq!(cell.end().code(), Some(0), "{signal}: {}", cell.output("stderr"));
    robot.stands_with_a_red_light(&format!("signal {signal}"));
    assert!(is_sealed(&dir), "{signal}: not sealed");
    let problems = &read_json(&dir.join("run.json"))["problems"];
    assert!(!problems.to_string().contains("did not obey the last stop"), "{problems}");
}

/// Sends any signal, also those that the C library keeps for itself.
fn send(cell: &Beside, signal: i32) {
    // SAFETY: sends a signal to a process that this test has started.
    assert_eq!(unsafe { libc::syscall(libc::SYS_kill, cell.pid() as libc::pid_t, signal) }, 0, "{signal}");
}

/// The kernel's action for process `pid` and a signal, as `/proc` shows it: `SigCgt` or `SigIgn`.
fn mask(pid: u32, of: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(of)).unwrap();
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
}

/// By the kernel's own account: of every robot that commands motion, no signal has the default
/// action that ends the process, but the one that nobody can handle.
#[test]
#[ignore = "takes 25 s"]
fn no_signal_ends_a_robot_without_a_word() {
    // SIG_KERNEL_IGNORE_MASK and SIG_KERNEL_STOP_MASK of include/linux/signal.h.
    let harmless = [libc::SIGCONT, libc::SIGCHLD, libc::SIGWINCH, libc::SIGURG].into_iter().chain([
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ]);
    let harmless: Vec<i32> = harmless.collect();
    let _machine = alone();
    for file in ["synthetic.toml", "servo.toml", "humanoid.toml", "uav.toml", "daq.toml"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = run(["run"]);
        command.arg(root().join("robots").join(file)).args(["--view", "none", "--seconds", "60", "--runs"]);
        let mut robot = Beside::start({
            command.arg(folder.path());
            command
        });
        if wait_for("a run or its end", || {
            let text = robot.output("stderr");
            text.contains("Run directory: ").then_some(true).or_else(|| (!robot.runs()).then_some(false))
        }) {
            let known = mask(robot.pid(), "SigCgt") | mask(robot.pid(), "SigIgn");
            for signal in (1..=64).filter(|signal| *signal != libc::SIGKILL && !harmless.contains(signal)) {
                assert!(known & 1 << (signal - 1) != 0, "{file}: signal {signal} ends it without a word");
            }
            robot.signal(Signal::INT);
        } else {
            // Without a right, as for EtherCAT's sockets.
            takt_witness::skip!("{file}: {}", robot.output("stderr"));
        }
        robot.end();
    }
}

/// Every number, sent from outside. What ends a process has stopped the robot; the others stop or
/// end nothing.
#[test]
#[ignore = "some minutes"]
fn campaign_every_signal_is_sent() {
    let _machine = alone();
    let only_stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    for signal in 1..=64 {
        let (robot, folder) = (Robot::start(), tempfile::tempdir().unwrap());
        let (mut cell, dir) = running(&robot, folder.path());
        send(&cell, signal);
        std::thread::sleep(Duration::from_millis(500));
        if only_stops.contains(&signal) {
            cell.signal(Signal::CONT);
        }
        if !cell.runs() {
            robot.stands_with_a_red_light(&format!("signal {signal}"));
            println!("{signal}: ended, sealed {}", is_sealed(&dir));
            continue;
        }
        println!("{signal}: goes on");
        cell.signal(Signal::INT);
        cell.end();
        robot.stands_with_a_red_light(&format!("the end after signal {signal}"));
    }
}

#[test]
#[ignore = "takes 10 s"]
fn signals_that_are_nobodys_end_nothing() {
    let _machine = alone();
    let (robot, folder) = (Robot::start(), tempfile::tempdir().unwrap());
    let (mut cell, dir) = running(&robot, folder.path());
    for signal in (32..libc::SIGRTMIN()).chain([libc::SIGPIPE, libc::SIGURG, libc::SIGWINCH, libc::SIGCHLD]) {
        send(&cell, signal);
        std::thread::sleep(Duration::from_millis(50));
        assert!(cell.runs(), "signal {signal} ended it: {}", cell.output("stderr"));
    }
    robot.may_move();
    cell.signal(Signal::INT);
    assert_eq!(cell.end().code(), Some(0), "{}", cell.output("stderr"));
    robot.stands_with_a_red_light("the end");
    assert!(is_sealed(&dir));
}

/// A file system of its own for the run, which only its own processes see: `mount` words, and what
/// is done while it runs.
fn run_on_a_small_disk(options: &str, inside: &str) -> Option<std::process::Output> {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        r#"mount -t tmpfs -o {options} none "$1" || exit 77
{inside}
exec "$0" run "$2" --seconds 4 --view none --json --runs "$1""#
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script, TAKT]).arg(folder.path());
    let output = command.arg(root().join("robots/uav.toml")).output().unwrap();
    if output.status.code() == Some(77) {
        takt_witness::skip!("no file system can be mounted here: {}", stderr(&output));
        return None;
    }
    Some(output)
}

#[test]
#[ignore = "takes 35 s"]
fn a_full_disk_no_inodes_and_a_folder_that_is_gone_cost_no_verdict() {
    let _machine = alone();
    let fill = r#"(sleep 2; head -c 100m /dev/zero > "$1/filler" 2>/dev/null) &"#;
    let use_up = r#"(sleep 2; i=0; while touch "$1/n$i" 2>/dev/null; do i=$((i+1)); done) &"#;
    let remove = r#"(sleep 2; rm -rf "$1"/*) &"#;
    for (options, inside, why) in [
        ("size=24m", fill, "No space left"),
        ("size=64m,nr_inodes=60", use_up, "No space left"),
        ("size=64m", remove, "No such file"),
    ] {
        let Some(output) = run_on_a_small_disk(options, inside) else { return };
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{why}: {message}");
        assert!(message.contains(why) && message.contains("not sealed"), "{why}: {message}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{why}: {error}: {}\n{message}", String::from_utf8_lossy(&output.stdout))
        });
        assert!(summary["verdict"].is_string(), "{why}: {summary:#}");
        if let Some((_, rest)) = message.split_once("it stays in memory, in ") {
            fs::remove_dir_all(rest.split(',').next().unwrap()).unwrap();
        }
    }
}

#[test]
#[ignore = "takes 20 s"]
fn a_program_that_crashes_stops_the_robot() {
    let _machine = alone();
    for signal in [Signal::ABORT, Signal::SEGV, Signal::BUS] {
        let (robot, folder) = (Robot::start(), tempfile::tempdir().unwrap());
        let (mut cell, dir) = running(&robot, folder.path());
        cell.signal(signal);
        let ended = cell.end();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(signal.as_raw()), "{ended:?}");
        robot.stands_with_a_red_light(&format!("{signal:?}"));
        assert!(!is_sealed(&dir), "{signal:?}: sealed though it did not come to its end");
    }
}

#[test]
fn a_run_whose_bench_is_killed_stops_the_robot() {
    let _machine = alone();
    let (robot, folder) = (Robot::start(), tempfile::tempdir().unwrap());
    let config = robot.cell(folder.path());
    // The shell stands for the bench: it starts the run and is killed.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", r#""$0" run "$1" --parent $$ --view none --json --runs "$2"; true"#, TAKT]);
    let mut bench = Beside::start({
        command.arg(&config).arg(folder.path());
        command
    });
    let dir = PathBuf::from(bench.line("stderr", "Run directory: "));
    robot.may_move();
    bench.signal(Signal::KILL);
    bench.end();
    robot.stands_with_a_red_light("the end of the bench");
    assert!(!is_sealed(&dir), "a run of a killed bench counts as a whole one");
}

#[test]
#[ignore = "takes 15 s"]
fn output_that_is_lost_ends_no_run_and_shows_in_the_exit_status() {
    let _machine = alone();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for (to_stdout, to_stderr) in [(true, false), (false, true), (true, true)] {
        let (robot, folder) = (Robot::start(), tempfile::tempdir().unwrap());
        let mut command = run(["run"]);
        command.arg(robot.cell(folder.path())).args(["--seconds", "1", "--view", "none", "--run-dir"]);
        let dir = folder.path().join("the-run");
        command.arg(&dir);
        command.stdout(if to_stdout { full().into() } else { Stdio::piped() });
        command.stderr(if to_stderr { full().into() } else { Stdio::piped() });
        let output = command.output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), OUTPUT_LOST, "{message}");
        assert!(!message.contains("panicked"), "{message}");
        if to_stdout && !to_stderr {
            assert!(
                message.contains("the output could not be printed and is lost: No space left on device"),
                "{message}"
            );
        }
        assert!(is_sealed(&dir), "not sealed");
        robot.stands_with_a_red_light("the end of the run");
    }
}

#[test]
#[ignore = "takes 10 s"]
fn a_reader_that_dies_ends_no_run() {
    let _machine = alone();
    let (robot, folder) = (Robot::start(), tempfile::tempdir().unwrap());
    let mut command = run(["run"]);
    command.arg(robot.cell(folder.path())).args(["--seconds", "3", "--view", "none", "--runs"]);
    // As in `takt run ... 2>&1 | tee`, with a tee that dies.
    let mut child = command.arg(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut message = BufReader::new(child.stderr.take().unwrap());
    let mut dir = String::new();
    while !dir.starts_with("Run directory: ") {
        dir.clear();
        assert!(message.read_line(&mut dir).unwrap() > 0, "it never said where the run is");
    }
    drop(message);
    let status = wait_for("the end", || child.try_wait().unwrap());
    assert_eq!(status.code(), OUTPUT_LOST);
    assert!(is_sealed(Path::new(dir.trim_start_matches("Run directory: ").trim())), "not sealed");
    robot.stands_with_a_red_light("the end of the run");
}

#[test]
fn no_command_panics_over_a_stream_that_is_full() {
    for args in [&["check", demo().to_str().unwrap()][..], &["campaign", "show", "uav"], &["kernels", "list"]]
    {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = run(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), OUTPUT_LOST, "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{args:?}: {}", stderr(&output));
    }
}
