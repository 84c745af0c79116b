//! Files named or planted by another user, given to the complete program: nothing blocks, nothing
//! is read without end, nothing is echoed by the megabyte, nothing is followed, and nothing of
//! theirs is believed.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use takt::{TAKT, has, refusal, root, stderr, takt as run};

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// Output of a command that must end by itself: one that waits for a FIFO, or reads without end,
/// never does.
fn ended(mut command: Command, what: &str) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("{what} does not end: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// A command for each argument that names a file or folder: what it is called, and how it is given
/// in `@`. `<` is read and `>` is written to; `?` only ends, because something else may end it
/// before; `=` is like another one and takes long. What is called with a `+` is a text for the
/// command line, and names a file all the same.
const NAMED: &str = "
run config < run @ --view none --seconds 0.2
run --runs > run c.toml --seconds 0.2 --view none --runs @
run --run-dir < run c.toml --seconds 0.2 --view none --run-dir @
run --resume < run c.toml --seconds 0.2 --view none --resume @
run --setup < run c.toml --seconds 0.2 --view none --setup @ --runs OUT
+run --store < run c.toml --seconds 0.2 --view none --store @ --runs OUT
bench cell --config < bench cell --config @ --seconds 0.2 --runs OUT
bench cell --runs < bench cell --runs @ --seconds 0.2
bench cell --resume < bench cell --resume @
+bench cell --against < bench cell --against @ --seconds 0.2 --runs OUT
bench uav --config < bench uav --config @ --runs OUT
bench uav --runs < bench uav --runs @ --iterations 10
bench daq --config < bench daq --config @ --runs OUT
bench daq --runs < bench daq --runs @ --seconds 0.2
bench humanoid --config < bench humanoid --config @ --runs OUT
bench humanoid --runs < bench humanoid --runs @ --seconds 0.2 --wire in-process --untraced
bench gpu --runs ? bench gpu --runs @ --seconds 0.2 --growth-seconds 0.2
bench faults --keep < bench faults --keep @ --case control/recording-without-fault
bench manager --resume < bench manager --resume @
bench manager --compare < bench manager --compare @ --seconds 0.2 --runs OUT
bench manager --config < bench manager --config @ --runs OUT
bench manager --runs < bench manager --runs @ --seconds 0.2
+campaign run campaign < campaign run @ --runs OUT
campaign run --runs < campaign run daq --runs @ --seconds 0.2
+campaign run --store < campaign run daq --runs OUT --store @ --dry-run
campaign resume dir < campaign resume @
campaign block dir < campaign block @ --submission x
kernels list --cache ? kernels list --cache @
kernels fetch --cache = kernels list --cache
kernels run --cache = kernels list --cache
kernels run --runs < kernels run --runs @ --iterations 10
+kernels run --robot < kernels run --robot @ --iterations 10 --runs OUT
+kernels run --kernels ? kernels run --kernels @ --iterations 10 --runs OUT
doctor --apply < doctor --seconds 0 --apply @
doctor --state < doctor --seconds 0 --revert --state @
trace --file < trace --file @ --thread x
trace --perfetto ? trace c.toml --seconds 0.2 --perfetto @ --runs OUT
trace --against < trace c.toml --seconds 0.2 --against @ --runs OUT
trace --runs ? trace c.toml --seconds 0.2 --runs @
trace --run-dir ? trace c.toml --seconds 0.2 --run-dir @
trace --setup < trace c.toml --seconds 0.2 --setup @ --runs OUT
watch --cgroup < watch --cgroup @ --seconds 0.2 --runs OUT
watch --runs ? watch --seconds 0.2 --runs @ -- sleep 0.1
watch --out ? watch --seconds 0.2 --out @ -- sleep 0.1
tune robot < tune @ --list
tune --out ? tune c.toml --seconds 1 --out @
tune --state ? tune --restore --state @
report dirs < report @ --out OUT
report --out < report a --out @
report --results < report a --results @ --page OUT
report --page > report a --results OUT --page @
compare sides < compare a @
store put runs < store put st @
+store put store < store put @ a
+store ls store < store ls @
store get --to < store get st a --to @
+store get store < store get @ a --to OUT
+store verify store < store verify @
+store prune store < store prune @
gate runs < gate @ --baseline a
gate --baseline < gate a --baseline @
gate --junit > gate a --baseline b --junit @
history dirs < history @
history --picture > history a b --picture @
export run < export @
export --out > export a --out @
demo --runs < demo --headless --seconds 0.2 --bench-seconds 0.2 --runs @
check config < check @
record config < record @ --out OUT --seconds 0.2
record --out < record cell.toml --out @ --seconds 0.2
background config < background @ --out OUT --seconds 0.2
background --out < background cell.toml --out @ --seconds 0.2
segment --config < segment --config @ --seconds 0.2
segment --capture ? segment --devices 2 --capture @ --seconds 0.2
ethercat analyse file < ethercat analyse @
ethercat analyse --run < ethercat analyse cap.pcap --clock-offset-ns 0 --run @
ethercat capture file ? ethercat capture lo @ --seconds 0.2
simulate --config < simulate --config @ --seconds 0.2
simulate --log > simulate --log @ --seconds 0.2 --rtde-port 0 --dashboard-port 0
manage goals < manage @ --observe --seconds 0.2 -- sleep 0.1
manage --model < manage goals.toml --observe --seconds 0.2 --model @ -- sleep 0.1
manage --emit < manage goals.toml --observe --seconds 0.2 --emit @ -- sleep 0.1
manage --trace < manage --learn --trace @
manage --lttng < manage goals.toml --observe --seconds 0.2 --lttng @
manage --log > manage goals.toml --observe --seconds 0.2 --log @ -- sleep 0.1
manage --dot > manage goals.toml --observe --seconds 0.2 --dot @ -- sleep 0.1
manage --page > manage goals.toml --observe --seconds 0.2 --page @ -- sleep 0.1
manage --state < manage --restore --state @
manage --watchdog < manage --watchdog @
workload system < workload @ --seconds 0.2
workload --directory < workload --node camera --directory @ --seconds 0.2
runs prune folder ? runs prune @ --keep-days 0
runs pin runs ? runs pin @
runs unpin runs ? runs unpin @
new name ? new c @
man --out ? man --out @
gpu check --out < gpu check --out @
gpu kernels folder ? gpu kernels @
";

/// Every argument of the command line that is a path, by the completions, which are made of its
/// definition: `campaign run --runs`, `check config`.
fn path_arguments() -> BTreeSet<String> {
    let output = run(["completions", "zsh"]).output().unwrap();
    let (mut found, mut current) = (BTreeSet::new(), String::new());
    // Whether the alternatives of a `case` are commands, and what stands before them.
    let mut cases: Vec<(bool, String)> = Vec::new();
    let text = takt::stdout(&output);
    for line in text.lines().map(str::trim) {
        match (line, cases.last()) {
            ("case $state in" | "case $line[1] in", _) => {
                cases.push((line.contains("line"), current.clone()))
            }
            ("esac", _) => current = cases.pop().unwrap().1,
            (_, Some((true, before))) if line.starts_with('(') && line.ends_with(')') => {
                current = format!("{before} {}", &line[1..line.len() - 1]).trim().to_owned();
            }
            _ if line.contains(":_files' ") => {
                let line = line.trim_start_matches(['\'', '*', ':']);
                let line = line.strip_prefix('(').map_or(line, |line| line.split_once(')').unwrap().1);
                let line = line.trim_start_matches(['*', ':']);
                let name = line.split(['=', ' ', '[']).next().unwrap();
                found.insert(format!("{current} {name}"));
            }
            _ => {}
        }
    }
    assert!(found.len() > 60, "the completions read otherwise: {found:?}");
    found
}

/// The workspace of [`NAMED`].
fn workspace() -> tempfile::TempDir {
    let workspace = tempfile::tempdir().unwrap();
    let path = |name: &str| workspace.path().join(name);
    let task = "robot = 'cyclic'\nrate_hz = 100\npolicy = 'other:0'\nlock_memory = 'off'\n";
    fs::write(path("c.toml"), task).unwrap();
    fs::copy(root().join("robots/synthetic.toml"), path("cell.toml")).unwrap();
    fs::copy(root().join("goals/turtlebot.toml"), path("goals.toml")).unwrap();
    // A capture without a packet: magic, version, zone, accuracy, longest packet, Ethernet.
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    fs::write(path("cap.pcap"), words.map(u32::to_le_bytes).concat()).unwrap();
    for (name, with) in [("a", vec!["run", "c.toml"]), ("b", vec!["run", "c.toml"])] {
        let mut command = run(with);
        command.args(["--seconds", "0.2", "--view", "none", "--run-dir", name]);
        assert!(command.current_dir(workspace.path()).output().unwrap().status.success());
    }
    assert!(
        run(["store", "put", "st", "a"]).current_dir(workspace.path()).output().unwrap().status.success()
    );
    workspace
}

#[test]
fn fifos_and_endless_files_are_refused_wherever_a_file_is_named() {
    let lines: Vec<Vec<&str>> = NAMED
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let kind = line.find(['<', '>', '?', '=']).unwrap();
            vec![line[..kind].trim(), &line[kind..=kind], line[kind + 1..].trim()]
        })
        .collect();
    let named: BTreeSet<String> =
        lines.iter().filter(|line| !line[0].starts_with('+')).map(|line| line[0].to_owned()).collect();
    assert_eq!(named, path_arguments(), "every path of the command line has a line above, and no other");
    let workspace = workspace();
    let left: Mutex<Vec<(usize, &Vec<&str>)>> =
        Mutex::new(lines.iter().filter(|line| line[1] != "=").enumerate().collect());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Some((number, line)) = left.lock().unwrap().pop() else { return };
                    let found = named_as(workspace.path(), number, line[1], line[2]);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A run directory whose files are FIFOs.
    let planted = workspace.path().join("planted");
    fs::create_dir(&planted).unwrap();
    assert!(Command::new("mkfifo").arg(planted.join("run.json")).status().unwrap().success());
    let planted = planted.to_str().unwrap();
    for args in [
        vec!["report", planted],
        vec!["compare", planted, planted],
        vec!["export", planted],
        vec!["gate", planted, "--baseline", planted],
        vec!["history", planted],
    ] {
        let output = ended(run(&args), &format!("{args:?}"));
        assert!(!output.status.success(), "{args:?}");
    }
}

/// Faults in the handling of a FIFO and an endless device by `command`.
fn named_as(workspace: &Path, number: usize, kind: &str, command: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let fifo = workspace.join(format!("fifo-{number}"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for file in [fifo.to_str().unwrap(), "/dev/zero"] {
        let out = format!("out-{number}");
        let words = command.split(' ').map(|word| match word {
            "@" => file,
            "OUT" => &out,
            word => word,
        });
        let mut command = run(words);
        command.current_dir(workspace);
        let what = format!("{command:?}");
        let output = ended(command, &what);
        let message = stderr(&output);
        let reported = message.contains(file) && message.len() < 3000;
        let refused = output.status.code() == Some(2) && reported && !message.contains("panicked");
        // A device takes whatever is written to it.
        let fine = kind == "?" || refused || (kind == ">" && file == "/dev/zero");
        if !fine {
            wrong.push(format!("{what}: {:?}: {message}", output.status));
        }
        let _ = fs::remove_dir_all(workspace.join(&out));
    }
    wrong
}

/// Files that variables of the environment name.
#[test]
#[cfg(feature = "s3")]
fn fifos_and_endless_files_are_refused_where_the_environment_names_authorities() {
    let workspace = workspace();
    let fifo = workspace.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let otlp = "run c.toml --seconds 0.2 --view none --runs OUT --otlp https://127.0.0.1:9";
    let bucket = "store ls s3://bucket";
    for (variable, command) in
        [("OTEL_EXPORTER_OTLP_CERTIFICATE", otlp), ("SSL_CERT_FILE", otlp), ("SSL_CERT_FILE", bucket)]
    {
        for file in [fifo.to_str().unwrap(), "/dev/zero"] {
            let mut command = run(command.split(' '));
            command.current_dir(workspace.path()).env_remove("OTEL_EXPORTER_OTLP_CERTIFICATE");
            command.env("AWS_ENDPOINT_URL", "https://127.0.0.1:9").env(variable, file);
            let what = format!("{command:?}");
            let output = ended(command, &what);
            has(&refusal(&output), &[&format!("{variable}={file}: "), "copy it into a regular file"]);
            assert!(!workspace.path().join("OUT").exists(), "{what}");
        }
    }
}

/// A store whose files were replaced.
#[test]
fn a_store_of_fifos_is_refused() {
    let workspace = workspace();
    let seals = workspace.path().join("st/runs");
    let seal = fs::read_dir(&seals).unwrap().next().unwrap().unwrap().path();
    let id = seal.file_stem().unwrap().to_str().unwrap().to_owned();
    fs::remove_file(&seal).unwrap();
    assert!(Command::new("mkfifo").arg(&seal).status().unwrap().success());
    for args in [vec!["ls", "st"], vec!["verify", "st"], vec!["get", "st", &id, "--to", "out"]] {
        let mut command = run(["store"]);
        command.args(&args).current_dir(workspace.path());
        let output = ended(command, &format!("{args:?}"));
        assert!(!output.status.success() || args[0] == "ls", "{args:?}: {}", takt::stdout(&output));
    }
    // A seal that nobody has the memory for.
    fs::remove_file(&seal).unwrap();
    fs::File::create(&seal).unwrap().set_len(1 << 40).unwrap();
    let mut command = run(["store", "verify", "st"]);
    command.current_dir(workspace.path());
    let output = ended(command, "verify of a seal of a terabyte");
    assert!(!output.status.success(), "{}", takt::stdout(&output));
}

/// An exported file carries no seal: what was changed is said while it is made.
#[test]
fn an_export_of_a_changed_run_says_so() {
    let workspace = workspace();
    let export = || run(["export", "a"]).current_dir(workspace.path()).output().unwrap();
    assert_eq!(stderr(&export()), "");
    let summary = workspace.path().join("a/summary.json");
    let text = fs::read_to_string(&summary).unwrap();
    fs::write(&summary, text.replace("FAIL", "PASS") + " ").unwrap();
    let changed = export();
    assert!(changed.status.success(), "{}", stderr(&changed));
    has(&stderr(&changed), &["changed after the run was sealed: summary.json", "proves nothing"]);
}

#[test]
fn a_line_of_megabytes_is_not_echoed() {
    let workspace = tempfile::tempdir().unwrap();
    let path = workspace.path().join("robot.toml");
    let file = path.to_str().unwrap();
    // Within what is read: the place is still reported.
    fs::write(&path, format!("robot = \"uav\"\nx = \"{}\" oops\n", "a".repeat(900_000))).unwrap();
    for args in
        [vec!["check", file], vec!["run", file], vec!["campaign", "run", file], vec!["workload", file]]
    {
        let message = refusal(&run(&args).output().unwrap());
        assert!(message.len() < 3000, "{args:?}: {} bytes", message.len());
        assert!(message.contains("line 2"), "{args:?}: {message}");
    }
    // A value that is echoed in an error of its own.
    fs::write(&path, format!("robot = \"{}\"\n", "a".repeat(900_000))).unwrap();
    assert!(refusal(&run(["check", file]).output().unwrap()).len() < 6000);
    // Beyond it.
    fs::write(&path, format!("x = \"{}\" oops\n", "a".repeat(10_000_000))).unwrap();
    has(&refusal(&run(["check", file]).output().unwrap()), &["at most 1048576"]);
}

#[test]
fn state_files_of_another_user_are_not_believed() {
    let workspace = tempfile::tempdir().unwrap();
    let state = workspace.path().join("state.json");
    let text = "{\"format\": 1, \"settings\": [{\"path\": \"/proc/sys/kernel/sched_rt_runtime_us\", \"before\": \"950000\"}]}";
    fs::write(&state, text).unwrap();
    if chown(&state, Some(NOBODY), Some(NOBODY)).is_err() {
        takt_witness::skip!("a second user needs root");
        return;
    }
    let state = state.to_str().unwrap();
    for args in [["doctor", "--revert", "--state", state], ["manage", "--restore", "--state", state]] {
        let message = refusal(&run(args).output().unwrap());
        has(&message, &["not trusted", "user 65534"]);
    }
}

#[test]
fn a_report_by_root_follows_no_link_of_another_user() {
    let workspace = tempfile::tempdir().unwrap();
    let runs = workspace.path().join("runs");
    let made =
        run(["run", root().join("robots/uav.toml").to_str().unwrap(), "--seconds", "0.3", "--view", "none"])
            .args(["--runs", runs.to_str().unwrap()])
            .output()
            .unwrap();
    let dir =
        fs::read_dir(&runs).unwrap().next().unwrap_or_else(|| panic!("{}", stderr(&made))).unwrap().path();
    let victim = workspace.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    for name in ["report.html", "report.md"] {
        let _ = fs::remove_file(dir.join(name));
        symlink(&victim, dir.join(name)).unwrap();
        if std::os::unix::fs::lchown(dir.join(name), Some(NOBODY), Some(NOBODY)).is_err() {
            eprintln!("a second user needs root: the link is this user's own");
        }
    }
    let output = run(["report", dir.to_str().unwrap()]).output().unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{}", stderr(&output));
    assert!(dir.join("report.html").symlink_metadata().unwrap().is_file(), "{}", stderr(&output));
}

/// A link's author could otherwise choose the place of root's runs.
#[test]
fn a_run_by_root_goes_through_no_link_of_another_user() {
    let workspace = tempfile::tempdir().unwrap();
    let (target, link) = (workspace.path().join("target"), workspace.path().join("link"));
    fs::create_dir(&target).unwrap();
    symlink(&target, &link).unwrap();
    let uav = root().join("robots/uav.toml");
    let uav = uav.to_str().unwrap();
    let to = |option: &str, path: &Path| {
        let mut command = run(["run", uav, "--seconds", "0.3", "--view", "none", option]);
        command.arg(path).output().unwrap()
    };
    let own = to("--runs", &link.join("own"));
    assert!(own.status.success() && target.join("own").is_dir(), "{}", stderr(&own));
    if std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).is_err() {
        takt_witness::skip!("a second user needs root");
        return;
    }
    let campaign = run(["campaign", "run", "sentryrt1", "--runs", link.to_str().unwrap()]).output().unwrap();
    // A link of one's own that leads to it.
    let through = workspace.path().join("through");
    symlink("link", &through).unwrap();
    let report = |out: &Path| {
        let mut command = run(["report"]);
        command.arg(target.join("own")).arg("--out").arg(out).output().unwrap()
    };
    for output in [
        to("--runs", &link),
        to("--runs", &through.join("deep")),
        report(&link.join("report")),
        report(&through),
        to("--runs", &link.join("deep/er")),
        to("--run-dir", &link.join("run")),
        campaign,
    ] {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        has(&stderr(&output), &["link of user 65534", "name its target"]);
    }
    let left: Vec<_> = fs::read_dir(&target).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["own"]);
}

/// A copy of the program with CAP_SYS_NICE from its file, started by another user who names a
/// library.
#[test]
fn a_binary_with_capabilities_does_not_believe_its_users_environment() {
    let workspace = tempfile::tempdir().unwrap();
    fs::set_permissions(workspace.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = workspace.path().join("takt");
    fs::copy(TAKT, &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    // VFS_CAP_REVISION_2 with the effective bit (include/uapi/linux/capability.h), CAP_SYS_NICE
    // (23) permitted.
    let mut capability = [0u8; 20];
    capability[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    capability[4..8].copy_from_slice(&(1_u32 << 23).to_le_bytes());
    if let Err(error) = set_attribute(&copy, &capability) {
        takt_witness::skip!("no capabilities on files here: {error}");
        return;
    }
    let output = Command::new(&copy)
        .args(["doctor", "--seconds", "0"])
        .env("ORT_DYLIB_PATH", "/tmp/planted.so")
        .env("VIRTUAL_ENV", "/tmp/planted")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output();
    match output {
        Ok(output) if output.status.success() => {
            has(&stderr(&output), &["file capabilities", "ORT_DYLIB_PATH", "ignores"]);
        }
        other => takt_witness::skip!("the copy cannot be started by another user: {other:?}"),
    }
}

fn set_attribute(path: &Path, value: &[u8]) -> std::io::Result<()> {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let name = c"security.capability";
    // SAFETY: both texts end in NUL, and the value is alive and as long as is said.
    match unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
