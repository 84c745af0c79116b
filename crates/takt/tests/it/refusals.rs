//! Input that cannot work is refused with one sentence and exit status 2, and never with a panic.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use takt::{alone, demo_text, has, refusal, root, takt as run};

/// A folder with configurations made from the demonstration.
struct Workspace(tempfile::TempDir);

impl Workspace {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The demonstration with `from` replaced by `to`, as a file.
    fn config(&self, from: &str, to: &str) -> PathBuf {
        let text = demo_text();
        assert!(text.contains(from), "the demonstration has no {from}");
        let path = self.path("cell.toml");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        path
    }

    /// Answer of `takt run` to a configuration that it must refuse.
    fn run(&self, config: &Path) -> String {
        self.refused(&["run", config.to_str().unwrap(), "--seconds", "1", "--view", "web"])
    }

    /// Answer of `takt` to arguments that it must refuse, in one sentence.
    fn refused(&self, args: &[&str]) -> String {
        let message = self.refused_at_length(args);
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        message
    }

    /// As [`refused`](Self::refused), where an excerpt of the file may follow.
    fn refused_at_length(&self, args: &[&str]) -> String {
        let output = run(args).args(["--runs", self.path("runs").to_str().unwrap()]).output().unwrap();
        let message = refusal(&output);
        assert!(message.starts_with("takt: "), "{args:?}: {message}");
        assert!(output.stdout.is_empty(), "{args:?}: {}", takt::stdout(&output));
        message
    }
}

#[test]
fn a_key_that_does_not_exist() {
    let workspace = Workspace::new();
    let config = workspace.config("[ssm]", "[ssm]\nstop_bellow_m = 1.0");
    let text = fs::read_to_string(&config).unwrap();
    let line = text.lines().position(|l| l.starts_with("stop_bellow_m")).unwrap() + 1;
    let message = workspace.refused_at_length(&["run", config.to_str().unwrap(), "--view", "none"]);
    has(&message, &["cell.toml", &format!("line {line}"), "stop_bellow_m", "stop_below_m", "reduce_below_m"]);
}

#[test]
fn a_policy_that_does_not_exist() {
    let workspace = Workspace::new();
    let config = workspace.config("\"DL+RR\"", "\"FIFO+FIFO\"");
    let message = workspace.refused_at_length(&["run", config.to_str().unwrap()]);
    has(&message, &["FIFO+FIFO", "CFS+CFS", "DL+CFS", "DL+RR", "RR+RR"]);
    // On the command line, too.
    let demo = root().join("robots/demo.toml");
    let output = run(["run", demo.to_str().unwrap(), "--policy", "FIFO+FIFO"]).output().unwrap();
    has(&refusal(&output), &["FIFO+FIFO", "CFS+CFS"]);
}

#[test]
fn files_that_are_not_there() {
    let workspace = Workspace::new();
    let nowhere = workspace.path("nowhere.toml");
    has(&workspace.refused(&["run", nowhere.to_str().unwrap()]), &["nowhere.toml"]);
    let config = workspace.config("builtin:pedestrians/cam3.mcap", "not-there.mcap");
    has(&workspace.run(&config), &["centre-east", "not-there.mcap"]);
    let config = workspace.config("builtin:pedestrians/cam3.mcap", "builtin:pedestrians/cam9.mcap");
    has(&workspace.run(&config), &["cam9.mcap", "builtin:pedestrians/cam0.mcap"]);
}

#[test]
fn recordings_that_are_foreign_or_cut_off() {
    let workspace = Workspace::new();
    let config = workspace.config("builtin:pedestrians/cam0.mcap", "broken.mcap");
    let whole = fs::read(root().join("recordings/pedestrians/cam0.mcap")).unwrap();
    let noise: Vec<u8> = (0..40_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let half = &whole[..whole.len() / 2];
    for bytes in
        [&b""[..], b"name = \"not a recording\"\n", &noise, half, &whole[..8], &whole[..whole.len() - 5]]
    {
        fs::write(workspace.path("broken.mcap"), bytes).unwrap();
        has(&workspace.run(&config), &["west", "broken.mcap"]);
    }
    // Magic at both ends and rubbish between.
    let mut stuffed = whole[..8].to_vec();
    stuffed.extend_from_slice(&noise);
    stuffed.extend_from_slice(&whole[whole.len() - 8..]);
    fs::write(workspace.path("broken.mcap"), stuffed).unwrap();
    has(&workspace.run(&config), &["west", "broken.mcap"]);
}

#[test]
#[ignore = "takes 10 s"]
fn a_network_with_other_inputs() {
    let _machine = alone();
    let workspace = Workspace::new();
    let model = root().join("models/nanodet_g_416.onnx");
    let segmenter = format!("[perception.segmenter]\nmodel = {model:?}\n\n[perception.health]");
    let message = workspace.run(&workspace.config("[perception.health]", &segmenter));
    has(&message, &["nanodet_g_416.onnx"]);
    fs::write(workspace.path("foreign.onnx"), "not a network").unwrap();
    let segmenter = "[perception.segmenter]\nmodel = \"FOREIGN\"\n\n[perception.health]"
        .replace("FOREIGN", workspace.path("foreign.onnx").to_str().unwrap());
    let message = workspace.run(&workspace.config("[perception.health]", &segmenter));
    has(&message, &["foreign.onnx"]);
}

#[test]
fn a_view_that_the_network_could_reach() {
    let workspace = Workspace::new();
    let config = workspace.config("[ssm]", "[view]\nbind = \"0.0.0.0:0\"\n\n[ssm]");
    has(&workspace.run(&config), &["view", "0.0.0.0", "127.0.0.1"]);
}

#[test]
fn a_robot_that_does_not_answer() {
    let _machine = alone();
    let workspace = Workspace::new();
    let text = demo_text();
    let simulator = text.find("[robot.simulator]").unwrap();
    let mission = text.find("[robot.mission]").unwrap();
    let robot = "[robot.rtde]\nhost = \"127.0.0.1\"\nport = 1\n\n";
    let config = workspace.path("cell.toml");
    fs::write(&config, format!("{}{robot}{}", &text[..simulator], &text[mission..])).unwrap();
    has(&workspace.run(&config), &["127.0.0.1:1"]);
}

#[test]
fn a_port_that_another_program_has() {
    let _machine = alone();
    let workspace = Workspace::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = workspace.config("rtde_port = 0", &format!("rtde_port = {port}"));
    has(&workspace.run(&config), &[&port.to_string()]);
    let output =
        run(["simulate", "--dashboard-port", "0", "--rtde-port", &port.to_string()]).output().unwrap();
    has(&refusal(&output), &["takt: ", &port.to_string()]);
}

#[test]
fn folders_that_are_none_or_taken() {
    let _machine = alone();
    let workspace = Workspace::new();
    has(
        &workspace.refused(&["bench", "cell", "--resume", workspace.0.path().to_str().unwrap()]),
        &["no campaign.json", "the folder of a campaign"],
    );
    fs::write(workspace.path("campaign.json"), "{").unwrap();
    has(
        &workspace.refused(&["bench", "cell", "--resume", workspace.0.path().to_str().unwrap()]),
        &["campaign.json"],
    );
    let taken = workspace.path("taken");
    fs::create_dir(&taken).unwrap();
    let config = workspace.config("name = \"pedestrians\"", "name = \"taken\"");
    let output = run(["run", config.to_str().unwrap(), "--seconds", "1", "--view", "none", "--run-dir"])
        .arg(&taken)
        .output()
        .unwrap();
    let message = refusal(&output);
    assert!(message.starts_with("takt: ") && message.trim_end().lines().count() == 1, "{message}");
    has(&message, &["taken", "never overwritten"]);
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 0);
}

#[test]
fn completions_and_manual_pages_are_what_their_readers_take() {
    let workspace = Workspace::new();
    let script = workspace.path("takt.bash");
    let bash = run(["completions", "bash"]).output().unwrap();
    assert!(bash.status.success());
    fs::write(&script, &bash.stdout).unwrap();
    // The shell itself completes: what starts with "ben" is "bench".
    let asked = format!(
        "source {} && COMP_WORDS=(takt ben) COMP_CWORD=1 && _takt takt ben takt && echo \"${{COMPREPLY[*]}}\"",
        script.display()
    );
    let answer = std::process::Command::new("bash").args(["-c", &asked]).output().unwrap();
    assert_eq!(takt::stdout(&answer).trim(), "bench", "{}", takt::stderr(&answer));

    let page = takt::stdout(&run(["man", "manage"]).output().unwrap());
    assert!(page.contains(".SH SYNOPSIS") && page.contains("reservations"), "{page}");
    assert!(takt::stdout(&run(["man"]).output().unwrap()).contains("takt"));
    let none = run(["man", "submarine"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(takt::stderr(&none).contains("bench-cell"), "{}", takt::stderr(&none));
}
