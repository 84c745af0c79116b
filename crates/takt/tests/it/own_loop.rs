//! A program that declares its loop with `libtakt`, as a user builds it from an installed prefix,
//! and a truth that it wrote down itself.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use takt_rundir::RunDir;

use crate::takt::{alone, has, json, missing, read_json, refusal, root, stderr, takt, without_rights};

/// The prefix, and programs by their sources.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-loop");
        let output = Command::new(root().join("tools/libtakt")).arg(&prefix).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        prefix
    })
}

/// A folder with a program and a robot's file.
struct Place(tempfile::TempDir);

impl Place {
    fn new(source: &Path, file: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O2"]).arg(source).arg("-o").arg(place.path("program"));
        cc.arg("-I").arg(prefix().join("include")).arg(prefix().join("lib/libtakt.a"));
        let output = cc.args(["-lgcc_s", "-lpthread", "-ldl"]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        place.write(file);
        place
    }

    fn write(&self, file: &str) {
        fs::write(self.path("program.toml"), format!("robot = \"program\"\n{file}")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, seconds: &str) -> Output {
        let mut command = takt(["run", "--view", "none", "--json", "--seconds", seconds]);
        command.arg(self.path("program.toml")).arg("--runs").arg(self.path("runs")).output().unwrap()
    }
}

fn example() -> PathBuf {
    root().join("crates/takt-capi/examples/control.c")
}

const LOOP: &str = "[[loop]]\nname = \"control\"\nperiod = \"2 ms\"\n";

/// What the program wrote down: release, begin, end, passed over.
fn truth(place: &Place) -> Vec<[u64; 4]> {
    let text = fs::read_to_string(place.path("log.txt")).unwrap();
    let row = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        <[u64; 4]>::try_from(numbers).unwrap()
    };
    text.lines().map(row).collect()
}

/// The rows of a run are exactly the jobs of the window, as the program wrote them down.
fn assert_rows_are_the_truth(place: &Place, message: &Value) {
    let dir = PathBuf::from(message["run_dir"].as_str().unwrap());
    let header = read_json(&dir.join("run.json"));
    assert_eq!(message["loops"][0]["source"], "declared");
    assert_eq!(header["loops"][0]["source"], "declared");
    assert_eq!(header["loops"][0]["declared_period_us"], 2000.0);
    let window = header["measures"][0]["window_ns"].as_array().unwrap();
    let [from_ns, to_ns] = [&window[0], &window[1]].map(|bound| bound.as_u64().unwrap());
    let names = ["planned_ns", "wake_ns", "end_ns", "skipped", "input"];
    let columns = RunDir::open(&dir).unwrap().columns("loop-control", &names).unwrap();
    let rows = (0..columns[0].len()).map(|at| [0, 1, 2, 3, 4].map(|column: usize| columns[column][at]));
    let rows: Vec<[u64; 5]> = rows.filter(|row| (from_ns..to_ns).contains(&row[0])).collect();
    let truth = truth(place);
    let own = truth.iter().enumerate().filter(|(_, row)| (from_ns..to_ns).contains(&row[0]));
    let own: Vec<(usize, &[u64; 4])> = own.collect();
    assert!(own.len() > 200, "{}", own.len());
    assert_eq!(rows.len(), own.len(), "a job has no row, or a row no job");
    for ([planned_ns, wake_ns, end_ns, skipped, input], (at, [release_ns, begin_ns, ended_ns, passed])) in
        rows.iter().zip(&own)
    {
        assert_eq!((planned_ns, *input, skipped), (release_ns, *at as u64 + 1, passed));
        // The program reads the clock after the library has, and before.
        assert!(wake_ns <= begin_ns && end_ns >= ended_ns, "{wake_ns} {begin_ns} {ended_ns} {end_ns}");
        if let Some(next) = truth.get(at + 1) {
            assert!(*end_ns <= next[1], "{end_ns} {}", next[1]);
        }
    }
    // What never ran counts, and what was late.
    let response = &message["measures"][0];
    let skipped: u64 = own.iter().map(|(_, row)| row[3]).sum();
    let late = rows.iter().filter(|row| row[2] - row[0] > 2_000_000).count() as u64;
    let misses = response["misses"].as_u64().unwrap();
    // At the window's edges some of the passed-over releases lie outside.
    assert!(misses <= late + skipped + 3 && misses + skipped.min(3) >= late, "{misses} {late} {skipped}");
    let stages = header["loops"][0]["stages"].as_array().unwrap();
    assert_eq!(stages.iter().map(|one| &one["name"]).collect::<Vec<_>>(), ["sense", "act"]);
    assert_eq!(stages[0]["count"].as_u64().unwrap(), own.len() as u64);
    // It works until 100 us after the job's begin, and begins a little later.
    assert!(stages[0]["mean_us"].as_f64().unwrap() > 50.0, "{stages:?}");
}

#[test]
fn declared_rows_are_those_that_the_program_wrote_down_and_the_kernel_agrees() {
    let _machine = alone();
    let command = "command = [\"./program\", \"0\", \"log.txt\", \"50\"]\nready = { line = \"ready\" }\n";
    let place = Place::new(&example(), &format!("{command}{LOOP}policy = \"fifo:60\"\n"));
    let output = place.run("2");
    let message = json(&output);
    assert_rows_are_the_truth(&place, &message);
    let header = read_json(&PathBuf::from(message["run_dir"].as_str().unwrap()).join("run.json"));
    assert_eq!(header["records_lost"].as_u64().unwrap_or(0), 0);
    // 3 ms of work in 2 ms.
    assert_eq!(message["verdict"], "FAIL", "{}", message["sentence"]);
    let problems = header["problems"].to_string();
    if missing("kernel events cannot be had here", !problems.contains("compared with nothing")) {
        return;
    }
    assert_eq!(header["loops"][0]["policy"], "fifo:60");
    let compared = &header["loops"][0]["compared"];
    let count = |name: &str| compared[name].as_u64().unwrap();
    assert!(count("jobs") > 500, "{compared}");
    assert!(header["doubts"].is_null(), "{}", header["doubts"]);
    for name in ["unseen", "released_late", "began_early", "ended_late"] {
        assert!(count(name) * 100 <= count("jobs"), "{name}: {compared}");
    }
}

#[test]
fn declared_rows_need_no_rights() {
    let _machine = alone();
    let command = "command = [\"./program\", \"0\", \"log.txt\"]\nready = { line = \"ready\" }\n";
    let place = Place::new(&example(), &format!("{command}{LOOP}"));
    let program = place.path("takt");
    fs::copy(crate::takt::TAKT, &program).unwrap();
    use std::os::unix::fs::PermissionsExt;
    for entry in fs::read_dir(place.0.path()).unwrap() {
        fs::set_permissions(entry.unwrap().path(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(place.0.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = without_rights();
    command.arg(&program).args(["run", "--view", "none", "--json", "--seconds", "1", "program.toml"]);
    let output = command.args(["--runs", "runs"]).current_dir(place.0.path()).output().unwrap();
    if missing("a program without rights cannot be started here", !stderr(&output).starts_with("setpriv")) {
        return;
    }
    let mut message = json(&output);
    let dir = place.0.path().join(message["run_dir"].as_str().unwrap());
    message["run_dir"] = dir.to_str().unwrap().into();
    assert_rows_are_the_truth(&place, &message);
    has(&read_json(&dir.join("run.json"))["problems"].to_string(), &["compared with nothing"]);
}

/// A loop that does what it should not.
const BAD: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <takt.h>
static volatile sig_atomic_t running = 1;
static void stop(int number) { (void)number; running = 0; }
int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    int error = 0;
    signal(SIGINT, stop);
    uint64_t period_ns = strcmp(what, "period") == 0 ? 4000000 : strcmp(what, "zero") == 0 ? 0 : 2000000;
    takt_loop *loop = takt_loop_open("control", period_ns, 0, &error);
    if (loop == NULL) fprintf(stderr, "%s\n", takt_strerror(error));
    if (strcmp(what, "twice") == 0 && takt_loop_open("control", 1000000, 0, &error) == NULL)
        fprintf(stderr, "%s\n", takt_strerror(error));
    puts("ready");
    fflush(stdout);
    takt_loop *flood = strcmp(what, "flood") == 0 ? takt_loop_open_driven("flood", 0, &error) : NULL;
    uint64_t begin_ns = takt_now_ns();
    while (running) {
        if (loop == NULL) { usleep(2000); continue; }
        takt_loop_wait(loop);
        uint64_t now_ns = takt_now_ns();
        if (strcmp(what, "early") == 0) {
            takt_loop_end(loop);
            while (takt_now_ns() < now_ns + 1500000) {}
        }
        if (flood != NULL)
            for (int at = 0; at < 4000; at++) { takt_loop_release(flood, 0); takt_loop_end(flood); }
        if (strcmp(what, "dies") == 0 && now_ns > begin_ns + 6000000000u) abort();
    }
    return 0;
}
"#;

#[test]
#[ignore = "takes 40 s"]
fn what_a_program_does_wrong_is_a_sentence_and_what_was_measured_stays() {
    let _machine = alone();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad.c");
    fs::write(&source, BAD).unwrap();
    let place = Place::new(&source, "");
    let command =
        |what: &str| format!("command = [\"./program\", \"{what}\"]\nready = {{ line = \"ready\" }}\n");
    place.write(&format!(
        "{}ready.within = \"500 ms\"\n{LOOP}",
        command("zero").replace("ready = { line = \"ready\" }\n", "")
    ));
    has(&refusal(&place.run("1")), &["\"control\"", "a period of zero", "no such loop"]);
    let flood = "[[loop]]\nname = \"flood\"\nperiod = \"2 ms\"\n";
    for (what, more, seconds, field, parts) in [
        ("twice", "", "1", "problems", &["\\\"control\\\" twice", "refused"][..]),
        ("period", "", "1", "doubts", &["declares a period of 4ms", "the file says 2ms"]),
        ("flood", flood, "1", "doubts", &["\\\"flood\\\" declares", "where its period allows"]),
        ("dies", "", "6", "failures", &["the command ended by signal 6"]),
        ("early", "deadline = \"1 ms\"\n", "1", "doubts", &["the thread ran on beyond the deadline"]),
    ] {
        place.write(&format!("{}{LOOP}{more}", command(what)));
        let output = place.run(seconds);
        let message = json(&output);
        let dir = PathBuf::from(message["run_dir"].as_str().unwrap());
        let header = read_json(&dir.join("run.json"));
        let unseen = header["problems"].to_string().contains("compared with nothing");
        if what == "early" && missing("kernel events cannot be had here", !unseen) {
            continue;
        }
        has(&header[field].to_string(), parts);
        assert_eq!(header["loops"][0]["source"], "declared");
        let count = message["measures"][0]["us"]["count"].as_u64().unwrap();
        assert!(count > 100, "{what}: {count}");
        assert!(dir.join("hashes.json").exists(), "it is sealed");
        // A busy machine adds misses, and so a FAIL.
        let verdict = message["verdict"].as_str().unwrap();
        let fails = what == "dies" || what == "period";
        assert!(if fails { verdict == "FAIL" } else { verdict != "PASS" }, "{what}: {}", message["sentence"]);
    }
}
