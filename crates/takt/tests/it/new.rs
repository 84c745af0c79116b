//! `takt new`: each project is made, built with its own tools, run and judged, as a user does it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::ros2;
use crate::takt::{TAKT, alone, has, json, missing, read_json, refusal, root, stderr, stdout, takt};

const LANGUAGES: [&str; 5] = ["c", "cpp", "python", "rust", "ros2"];

/// A folder in which projects are made, and what a shell of its user has.
struct Place {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl Place {
    fn new() -> Self {
        let path = std::env::var("PATH").unwrap();
        let own = Path::new(TAKT).parent().unwrap().display();
        let variables = vec![("PATH".to_owned(), format!("{own}:{path}"))];
        Self { folder: tempfile::tempdir().unwrap(), variables }
    }

    fn with(mut self, name: &str, value: String) -> Self {
        self.variables.push((name.to_owned(), value));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `takt new` in the folder.
    fn new_project(&self, language: &str, name: &str) -> Output {
        takt(["new", language, name]).current_dir(self.folder.path()).output().unwrap()
    }

    /// A line in a user's shell.
    fn shell(&self, line: &str) -> Output {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(self.folder.path()).stdin(Stdio::null());
        // Builds go where the project says, not where the tests' own build goes.
        command.env_remove("CARGO_TARGET_DIR");
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).output().unwrap()
    }

    /// As [`shell`](Self::shell), of a line that succeeds.
    #[track_caller]
    fn does(&self, line: &str) -> String {
        let output = self.shell(line);
        assert!(output.status.success(), "{line}: {}{}", stdout(&output), stderr(&output));
        stdout(&output) + &stderr(&output)
    }

    /// Makes the project `demo`, builds it with the command that was printed, runs and judges it.
    /// `None` where nothing can be followed on this machine.
    fn judged(&self, language: &str) -> Option<Value> {
        self.judged_after(language, "true")
    }

    /// As [`judged`](Self::judged), with a command between making and building.
    fn judged_after(&self, language: &str, first: &str) -> Option<Value> {
        let message = stdout(&self.new_project(language, "demo"));
        self.does(first);
        let commands: Vec<&str> = message.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        let build = commands[0].split(" #").next().unwrap();
        self.does(build);
        let run = "takt run program.toml --seconds 2 --json --view none";
        assert!(commands[1].starts_with("takt run program.toml --seconds 30"), "{message}");
        let output = self.shell(&format!("cd demo && {run}"));
        if missing(
            "the loops of a program cannot be followed here",
            !stderr(&output).contains("cannot be followed"),
        ) {
            return None;
        }
        let summary = json(&output);
        assert_eq!(summary["robot"], "program");
        let one = &summary["loops"][0];
        assert_eq!((&one["name"], &one["period_us"]), (&"control".into(), &2000.0.into()), "{one}");
        let header = read_json(&self.run_dir(&summary).join("run.json"));
        // A busy machine makes it late; that it ran at its rate shows in what was judged.
        let never = header["measures"][0]["never"].as_u64().unwrap();
        let count = summary["measures"][0]["us"]["count"].as_u64().unwrap();
        assert!((950..1050).contains(&(count + never)), "{count} cycles and {never} that never ran");
        assert!(count > 100, "{count}");
        let seen_us = one["seen_period_us"].as_f64().unwrap();
        assert!((1900.0..2100.0).contains(&seen_us), "{one}");
        let doubts = header["doubts"].to_string();
        assert!(!doubts.contains("period") && !doubts.contains("ran every"), "{doubts}");
        assert!(["PASS", "FAIL", "INCONCLUSIVE"].iter().any(|word| summary["verdict"] == *word), "{summary}");
        assert_eq!(header["program"]["exit_status"], 0, "it ends by its signal: {}", header["program"]);
        assert!(header["failures"].is_null(), "{}", header["failures"]);
        Some(summary)
    }

    fn run_dir(&self, summary: &Value) -> PathBuf {
        self.path("demo").join(summary["run_dir"].as_str().unwrap())
    }
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The library as it is installed, at a prefix below the folder of builds; `None` where it is not
/// built here.
fn prefix() -> Option<PathBuf> {
    let tool = root().join("tools/libtakt");
    if !tool.is_file() {
        return None;
    }
    let prefix = root().join("target/libtakt-installed");
    let output = Command::new(&tool).arg(&prefix).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "tools/libtakt: {}{}", stdout(&output), stderr(&output));
    Some(prefix)
}

/// The loop's rows are the program's own where it was built with the library.
#[track_caller]
fn is_declared(summary: &Value, library: bool) {
    let one = &summary["loops"][0];
    assert_eq!(one["source"], if library { "declared" } else { "seen" }, "{one}");
}

#[test]
fn a_project_is_made_whole_and_nothing_that_is_there_is_changed() {
    let place = Place::new();
    for language in LANGUAGES {
        let name = format!("demo_{language}");
        let output = place.new_project(language, &name);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let message = stdout(&output);
        let commands: Vec<&str> = message.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        assert_eq!(commands.len(), 3, "{message}");
        assert!(commands[0].starts_with(&format!("cd {name} && ")), "{message}");
        assert!(commands[1].starts_with("takt run program.toml --seconds 30"), "{message}");
        assert!(commands[2].starts_with("takt report takt-runs"), "{message}");
        let project = place.path(&name);
        for file in [
            "README.md",
            "program.toml",
            "campaign.toml",
            "ci/gate.sh",
            ".github/workflows/takt.yml",
            ".gitignore",
        ] {
            assert!(project.join(file).is_file(), "{language}: {file}");
        }
        let gate = project.join("ci/gate.sh");
        assert_eq!(fs::metadata(&gate).unwrap().permissions().mode() & 0o100, 0o100, "it can be started");
        place.does(&format!("bash -n {name}/ci/gate.sh"));
        // The files are what the readers of them take: the robot, the campaign of it, the workflow.
        let robot = fs::read_to_string(project.join("program.toml")).unwrap().parse::<toml::Table>().unwrap();
        assert_eq!(robot["name"].as_str(), Some(&name[..]));
        let shown = place.does(&format!("cd {name} && takt check campaign.toml"));
        has(&shown, &[&format!("campaign {name} of "), "12 runs"]);
        // What is there stays as it is: a second time, a file, an empty folder, a link that leads
        // nowhere.
        fs::write(project.join("program.toml"), "mine").unwrap();
        has(&refusal(&place.new_project(language, &name)), &[&name, "exists"]);
        assert_eq!(fs::read_to_string(project.join("program.toml")).unwrap(), "mine");
    }
    fs::write(place.path("file"), "mine").unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    symlink("nowhere", place.path("link")).unwrap();
    for name in ["file", "empty", "link"] {
        has(&refusal(&place.new_project("c", name)), &[name, "exists"]);
    }
    assert_eq!(fs::read_dir(place.path("empty")).unwrap().count(), 0);
    assert!(!place.path("nowhere").exists() && fs::read_to_string(place.path("file")).unwrap() == "mine");
}

#[test]
fn names_and_languages_that_are_none_are_refused_with_the_accepted_ones() {
    let place = Place::new();
    for (language, name, parts) in [
        ("ros2", "Arm-Control", vec!["Arm-Control", "ROS 2 package", "arm_control"]),
        ("c", "2nd", vec!["2nd", "a letter first"]),
        ("c", "a b", vec!["a b", "letters, digits"]),
        ("rust", "takt-sdk", vec!["takt-sdk", "package of Takt itself"]),
        ("cobol", "demo", vec!["cobol", "python", "ros2"]),
    ] {
        has(&refusal(&place.new_project(language, name)), &parts);
    }
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 0);
    // A folder that cannot be written to leaves nothing of the project.
    let message = refusal(&takt(["new", "c", "/proc/demo"]).output().unwrap());
    has(&message, &["/proc/demo"]);
    // A path with other characters is printed as a shell takes it.
    let odd = place.path("o'dd folder");
    fs::create_dir(&odd).unwrap();
    let message = stdout(&place.new_project("python", "o'dd folder/demo"));
    let build = message.lines().find_map(|line| line.strip_prefix("  ")).unwrap().split(" #").next().unwrap();
    place.does(build);
}

#[test]
#[ignore = "takes 20 s"]
fn a_c_project_is_built_run_judged_and_gated() {
    let _machine = alone();
    if missing("there is no cmake or no C compiler", is_there("cmake") && is_there("cc")) {
        return;
    }
    // Without the library the loop is followed by the kernel's events, and CMake says what to do.
    let place = Place::new();
    let message = {
        place.new_project("c", "alone");
        place.does("cd alone && cmake -B build -DCMAKE_DISABLE_FIND_PACKAGE_takt=ON && cmake --build build")
    };
    has(&message, &["libtakt was not found", "tools/libtakt", "CMAKE_PREFIX_PATH"]);
    assert!(!message.to_lowercase().contains("warning: "), "the compiler warns: {message}");
    let output = place.shell("cd alone && takt run program.toml --seconds 1 --json --view none");
    if missing(
        "the loops of a program cannot be followed here",
        !stderr(&output).contains("cannot be followed"),
    ) {
        return;
    }
    assert_eq!(json(&output)["loops"][0]["source"], "seen");

    let library = prefix();
    let place = match &library {
        Some(prefix) => place.with("CMAKE_PREFIX_PATH", prefix.display().to_string()),
        None => place,
    };
    let Some(summary) = place.judged("c") else { return };
    is_declared(&summary, library.is_some());

    // Its gate: the same program twice, too few runs to tell anything.
    let git = "git -c user.name=x -c user.email=x@example.com";
    place.does(&format!("cd demo && git init -q && git add -A && {git} commit -qm first"));
    // A file to source first, which uses variables that are not set as those of ROS 2 do.
    fs::write(place.path("setup.sh"), "echo \"sourced${NO_SUCH_VARIABLE}\"\n").unwrap();
    let message = place.does("cd demo && SETUP=../setup.sh RUNS=1 RUN_SECONDS=0.3 ci/gate.sh HEAD");
    has(&message, &["sourced\n"]);
    has(&message, &["response-control"]);
    let junit = fs::read_to_string(place.path("demo/gate.xml")).unwrap();
    has(&junit, &["<testsuite", "response-control"]);
    assert!(!place.does("cd demo && git worktree list").contains("base"), "the base's folder is left");
    assert_eq!(place.does("cd demo && git status --porcelain"), "", "what is made is ignored");
    // A base that is none is refused, and one without the robot's file has nothing to compare.
    assert!(!place.shell("cd demo && ci/gate.sh nosuchcommit").status.success());
    place.does(&format!(
        "cd demo && git rm -q --cached program.toml && {git} commit -qm none && git add program.toml"
    ));
    has(&place.does("cd demo && ci/gate.sh HEAD"), &["no program.toml"]);
}

#[test]
#[ignore = "takes 10 s"]
fn a_cpp_project_is_built_run_and_judged() {
    let _machine = alone();
    if missing("there is no cmake or no C++ compiler", is_there("cmake") && is_there("c++")) {
        return;
    }
    let place = Place::new();
    place.new_project("cpp", "alone");
    let message =
        place.does("cd alone && cmake -B build -DCMAKE_DISABLE_FIND_PACKAGE_takt=ON && cmake --build build");
    assert!(!message.to_lowercase().contains("warning: "), "the compiler warns: {message}");
    let library = prefix();
    let place = match &library {
        Some(prefix) => place.with("CMAKE_PREFIX_PATH", prefix.display().to_string()),
        None => place,
    };
    if let Some(summary) = place.judged("cpp") {
        is_declared(&summary, library.is_some());
    }
}

#[test]
#[ignore = "takes 20 s"]
fn a_rust_project_is_built_run_and_judged() {
    let _machine = alone();
    // What it depends on comes from cargo's own store, in the versions that Takt itself was built
    // with: tests use no network.
    let place = Place::new().with("CARGO_NET_OFFLINE", "true".to_owned());
    let lock = root().join("Cargo.lock");
    let judged = place.judged_after("rust", &format!("cp {} demo/", lock.display()));
    if let Some(summary) = judged {
        is_declared(&summary, true);
    }
    let manifest = fs::read_to_string(place.path("demo/Cargo.toml")).unwrap();
    has(&manifest, &["takt-sdk = { version = ", "crates/takt-sdk"]);
}

#[test]
#[ignore = "takes 30 s"]
fn a_ros_project_is_built_run_and_judged() {
    let _machine = alone();
    let Some(variables) = ros2::environment() else { return };
    let mut place = Place::new();
    let own = place.variables[0].1.clone();
    place.variables = variables;
    let path = place.variables.iter_mut().find(|(name, _)| name == "PATH").unwrap();
    path.1 = format!("{}:{}", own.split(':').next().unwrap(), path.1);
    place.variables.push(("ROS_DOMAIN_ID".to_owned(), ros2::domain()));
    let library = prefix();
    if let Some(prefix) = &library {
        place.variables.push(("CMAKE_PREFIX_PATH".to_owned(), prefix.display().to_string()));
    }
    place.new_project("ros2", "demo");
    // What colcon does for one package, where it is not installed.
    place.does(
        "cd demo && cmake -B build -DCMAKE_INSTALL_PREFIX=$PWD/install/demo && cmake --build build --target install",
    );
    let output = place.shell("cd demo && takt run program.toml --seconds 2 --json --view none");
    if missing(
        "the loops of a program cannot be followed here",
        !stderr(&output).contains("cannot be followed"),
    ) {
        return;
    }
    let summary = json(&output);
    is_declared(&summary, library.is_some());
    assert_eq!(summary["loops"][0]["period_us"], 2000.0);
    assert!(summary["measures"][0]["us"]["count"].as_u64().unwrap() > 100, "{summary}");
    let header = read_json(&place.run_dir(&summary).join("run.json"));
    assert_eq!(header["program"]["exit_status"], 0, "{}", header["program"]);
}

/// CPython 3.9 and 3.13, and the one that is `python3`: those of them that are there, also below
/// the folder of pyenv.
fn pythons() -> Vec<PathBuf> {
    let runs = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import venv, ensurepip"]).stdin(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions: Vec<PathBuf> = fs::read_dir(home.join(".pyenv/versions"))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect();
    let mut found = Vec::new();
    for name in ["python3", "python3.9", "python3.13"] {
        let below = versions.iter().map(|version| version.join("bin").join(name));
        match std::iter::once(PathBuf::from(name)).chain(below).find(runs) {
            Some(python) => found.push(python),
            None => takt_witness::skip!("the wheel is not tried with {name}, which is not here"),
        }
    }
    found
}

#[test]
#[ignore = "takes 60 s"]
fn the_wheel_is_built_installed_and_tested_and_a_python_project_is_run_and_judged() {
    let _machine = alone();
    let pythons = pythons();
    if missing("there is no python3 with venv", pythons.contains(&PathBuf::from("python3"))) {
        return;
    }
    let path = format!("{}/bin:{}", root().join(".venv").display(), std::env::var("PATH").unwrap());
    let maturin = Command::new("maturin").arg("--version").env("PATH", path).stdout(Stdio::null()).status();
    if missing("there is no maturin", maturin.is_ok_and(|status| status.success())) {
        return;
    }
    let wheels = root().join("target/wheels");
    let output = Command::new(root().join("tools/wheel")).arg(&wheels).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "tools/wheel: {}{}", stdout(&output), stderr(&output));
    let wheel = PathBuf::from(stdout(&output).trim());
    let name = wheel.file_name().unwrap().to_str().unwrap().to_owned();
    // One for CPython 3.9 and all later ones.
    has(&name, &["takt_sdk-", "-cp39-abi3-", "linux"]);
    let mut run: Option<(PathBuf, PathBuf)> = None;
    for python in &pythons {
        let mut place = Place::new();
        place.does(&format!(
            "{} -m venv venv && venv/bin/pip install -q --no-index {}",
            python.display(),
            wheel.display()
        ));
        let bin = place.path("venv/bin");
        place.variables[0].1 = format!("{}:{}", bin.display(), place.variables[0].1);
        let stubs = "import takt, pathlib; here = pathlib.Path(takt.__file__).parent; \
                     print((here / 'py.typed').is_file(), (here / '_core.pyi').is_file(), takt.__version__)";
        has(&place.does(&format!("python3 -c \"{stubs}\"")), &["True True 0."]);
        let tests = root().join("python/tests");
        let message =
            place.does(&format!("cd {} && python3 -B -m unittest test_loops test_runs", tests.display()));
        has(&message, &["OK"]);
        if run.is_none() {
            let Some(summary) = place.judged("python") else { continue };
            is_declared(&summary, true);
            let dir = place.run_dir(&summary);
            let export = place.path("export.csv");
            place.does(&format!("takt export {} --format csv --out {}", dir.display(), export.display()));
            reads_the_run(&place, &dir, &export);
            run = Some((dir, export));
        }
    }
}

/// What `takt.load` makes of a run of Takt, with the packages of notebooks; from the tree, for the
/// wheel is in another environment than they are.
fn reads_the_run(place: &Place, dir: &Path, export: &Path) {
    let venv = root().join(".venv");
    if missing("there is no .venv with pyarrow", venv.join("bin/python3").is_file()) {
        return;
    }
    let site =
        place.does("python3 -c 'import takt, pathlib; print(pathlib.Path(takt.__file__).parent.parent)'");
    let tests = root().join("python/tests");
    // The wheel's own folder and nothing else of its environment.
    let message = place.does(&format!(
        "cd {} && PYTHONPATH={} TAKT_TEST_RUN={} TAKT_TEST_EXPORT={} {}/bin/python3 -B -m unittest -v test_runs",
        tests.display(),
        site.trim(),
        dir.display(),
        export.display(),
        venv.display()
    ));
    has(&message, &["test_samples_and_misses_are_those_of_the_summary_and_of_the_export"]);
    assert!(!message.contains("skipped"), "{message}");
}
