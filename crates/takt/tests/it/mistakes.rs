//! Mistakes that a new user makes, and what the program answers: what was expected, what was
//! received, and the way out, without a panic and with exit status 2. Nothing here is measured.

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use takt::{TAKT, has, missing, refusal, root, stdout, takt as run};

/// Answer to `takt ARGS` in `folder`, which must be refused.
#[track_caller]
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = run(args).current_dir(folder).output().unwrap();
    let message = refusal(&output);
    assert!(output.stdout.is_empty(), "{args:?}: {}", stdout(&output));
    for private in
        ["os error", "TOML literal", "f64", "u32", "u64", "usize", "literal string", "expected nothing"]
    {
        assert!(!message.contains(private), "{args:?}: {private}: {message}");
    }
    message
}

/// Answer of `takt check` to a file with this text.
#[track_caller]
fn checked(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("robot.toml"), text).unwrap();
    let message = refused(folder.path(), &["check", "robot.toml"]);
    assert!(message.starts_with("takt: robot.toml: "), "{message}");
    message
}

#[test]
fn values_without_quotation_marks() {
    for (text, words) in [
        (
            "robot = 'servo'\n[link]\nhost = 192.168.1.10\n",
            "received 192.168.1.10: write `host = \"192.168.1.10\"`",
        ),
        (
            "cameras = [{ name = 'west', serial = 0012345 }]\n",
            "write `serial = \"0012345\"` for a text such as a serial",
        ),
        ("[[cameras]]\nserial = 827.112.070\n", "write `serial = \"827.112.070\"`"),
        ("robot = cyclic\n", "received cyclic: write `robot = \"cyclic\"`"),
        ("robot = 'cyclic'\npolicy = fifo:80\n", "write `policy = \"fifo:80\"`"),
        ("robot = 'cyclic'\ncpus = 0-3\n", "write `cpus = \"0-3\"`"),
        ("robot = 'cyclic'\nmac = 00:11:22:33:44:55\n", "write `mac = \"00:11:22:33:44:55\"`"),
        ("robot = \u{201c}cyclic\u{201d}\n", "expected straight quotation marks"),
    ] {
        let message = checked(text);
        has(&message, &[words, "line "]);
    }
}

#[test]
fn slips_of_the_syntax() {
    for (text, words) in [
        ("robot = 'cyclic'\nstrict = True\n", "write `strict = true`"),
        ("robot = 'cyclic'\nstrict = yes\n", "write `strict = true` or `strict = \"yes\"`"),
        ("robot = 'cyclic'\nrate_hz = 0,5\n", "write `rate_hz = 0.5`"),
        ("robot = 'cyclic'\nrate_hz = 500 Hz\n", "write `rate_hz = 500`"),
        ("robot = 'cyclic'\nrate_hz = 0.5kHz\n", "write `rate_hz = 500`"),
        ("robot = 'cyclic'\nrate_hz = 500;\n", "write `rate_hz = 500`"),
        ("robot = 'cyclic'\nname = \n", "the key `name` has no value"),
        ("robot = 'cyclic'\nname: arm\n", "write `name = \"arm\"`"),
        ("robot = 'cyclic'\nrate_hz 500\n", "write `rate_hz = 500`"),
        ("robot = 'cyclic'\nrate_hz = 1\nrate_hz = 2\n", "in the file twice"),
        ("robot = 'cyclic'\nname = 'arm\n", "no quotation mark at its end"),
        ("robot = 'cell'\n[robot.rtde]\nhost = 'x'\n", "remove one of them"),
    ] {
        has(&checked(text), &[words]);
    }
}

#[test]
fn values_of_another_type() {
    for (text, words) in [
        ("robot = 'cyclic'\nrate_hz = '500'\n", "write `rate_hz = 500`"),
        ("robot = 'cyclic'\nname = 12345\n", "write `name = \"12345\"`"),
        ("robot = 'cyclic'\nstrict = 'true'\n", "write `strict = true`"),
        ("robot = 'uav'\niterations = 1.5\n", "expected a whole number, 0 or more"),
        ("robot = 'uav'\niterations = -5\n", "received the number -5"),
        ("robot = 'cyclic'\ncpus = [0, 1]\n", "received a list"),
        ("robot = 'servo'\nmotion = 'sine'\n", "expected a table"),
    ] {
        has(&checked(text), &[words]);
    }
}

#[test]
fn misspelt_keys_and_values() {
    for (text, words) in [
        ("robot = 'cyclic'\nrate_hzz = 5\n", "did you mean `rate_hz`?"),
        ("robot = 'cyclic'\nrateHz = 5\n", "did you mean `rate_hz`?"),
        ("robot = 'cyclic'\nlock_memory = 'al'\n", "did you mean `all`?"),
        ("robot = 'cyclic'\ndeadline_us = 500\n", "write `deadline_ms = 0.5`"),
        ("robot = 'servo'\n[servoj]\nlookahead_ms = 100\n", "write `lookahead_s = 0.1`"),
        ("robot = 'cyclc'\n", "did you mean `cyclic`?"),
        ("rate_hz = 500\n", "Name the robot in the first line"),
        ("name = 'x'\nrobot = 'uav'\nfactr = 3\n", "unknown field `factr`"),
    ] {
        has(&checked(text), &[words]);
    }
}

#[test]
fn values_in_another_unit() {
    let shape = |line: &str| {
        let text = takt::demo_text();
        let at = text.find("[robot.mission]").unwrap();
        format!("{}[robot.shape]\nmodel = 'ur10e'\n{line}\n\n{}", &text[..at], &text[at..])
    };
    for (text, words) in [
        ("robot = 'servo'\n[limits]\nspeed_rad_s = 60\n".to_owned(), vec!["rad/s; 60°/s are 1.0472 rad/s"]),
        ("robot = 'servo'\n[servoj]\nlookahead_s = 100\n".to_owned(), vec!["0.2 s; 100 ms are 0.1 s"]),
        (
            "robot = 'servo'\n[motion]\nkind = 'sine'\namplitude_rad = [30, 0, 0, 0, 0, 0]\nfrequency_hz = 0.5\nramp_s = 2.0\n"
                .to_owned(),
            vec!["rad; 30° are 0.5236 rad"],
        ),
        (shape("margin_m = 25"), vec!["0 to 0.1 m", "25 mm are 0.025 m"]),
        ("robot = 'cyclic'\nrate_hz = -1\n".to_owned(), vec!["rate_hz = -1", " Hz"]),
    ] {
        has(&checked(&text), &words);
    }
}

#[test]
fn files_and_robots_that_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cyclic", "uav"] {
        let file = format!("{name}.toml");
        fs::copy(root().join("robots").join(&file), folder.path().join(&file)).unwrap();
    }
    let at = folder.path();
    for (args, words) in [
        (vec!["run", "cylic.toml"], vec!["no such file", "cyclic.toml, uav.toml", "Built-in robots are"]),
        (vec!["run", "none/cyclic.toml"], vec!["there is no folder none"]),
        (vec!["run", "."], vec!["this is a folder"]),
        (vec!["check", "uva.toml"], vec!["no such file", "uav.toml"]),
        (vec!["tune", "uva.toml", "--list"], vec!["no such file", "uav.toml"]),
        (vec!["trace", "cyclc"], vec!["no file and no built-in robot", "uav", "did you mean `cyclic`?"]),
        (vec!["kernels", "run", "--robot", "cyclc"], vec!["built-in robots: ", "did you mean `cyclic`?"]),
        (
            vec!["campaign", "run", "sentry1"],
            vec!["no file and no shipped campaign", "did you mean `sentryrt1`?"],
        ),
        (vec!["campaign", "show", "uaw"], vec!["did you mean `uav`?"]),
        (vec!["record", "cel.toml", "--out", "x"], vec!["no such file"]),
        (vec!["simulate", "--config", "cel.toml"], vec!["no such file"]),
        (vec!["manage", "goal.toml"], vec!["no such file"]),
        (vec!["workload", "goal.toml"], vec!["no such file"]),
        (vec!["doctor", "--apply", "tuned.toml"], vec!["no such file", "Nothing was changed"]),
        (vec!["manage", "--trace", "ust"], vec!["expected a goals file", "takt manage --learn --trace ust"]),
        (vec!["record", "uav.toml", "--out", "x"], vec!["unknown field `attitude`"]),
    ] {
        has(&refused(at, &args), &words);
    }
    let left: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn an_unknown_kernel_is_refused_before_there_is_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    for kernel in ["nosuch", "./nosuch", "generic,nosuch"] {
        let message = refused(folder.path(), &["kernels", "run", "--kernels", kernel]);
        has(&message, &["nosuch"]);
        assert!(!message.contains("of no time"), "{message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{kernel}");
    }
}

#[test]
fn what_is_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir_all(at.join("empty")).unwrap();
    fs::create_dir_all(at.join("other/things")).unwrap();
    for run in ["campaign/001-a", "campaign/002-b"] {
        fs::create_dir_all(at.join(run)).unwrap();
        fs::write(at.join(run).join("run.json"), "{}").unwrap();
    }
    fs::write(at.join("file"), "").unwrap();
    for (args, words) in [
        (
            vec!["export", "campaign"],
            vec!["a folder with 2 runs", "Name one of them, such as campaign/001-a"],
        ),
        (vec!["export", "nothing"], vec!["it does not exist", "takt-runs"]),
        (vec!["export", "empty"], vec!["this folder is empty"]),
        (vec!["export", "file"], vec!["this is a file"]),
        (vec!["report", "other"], vec!["neither this folder"]),
        (vec!["compare", "empty", "other"], vec!["this folder is empty"]),
        (vec!["compare", "empty"], vec!["received only one side"]),
        (vec!["gate", "nothing", "--baseline", "empty"], vec!["this folder is empty"]),
        (vec!["history", "nothing"], vec!["it does not exist"]),
        (vec!["campaign", "resume", "empty"], vec!["campaign.json"]),
    ] {
        has(&refused(at, &args), &words);
    }
}

#[test]
fn numbers_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    for (args, words) in [
        (vec!["run", "x.toml", "--seconds", "-1"], vec!["'-1' for '--seconds", "seconds above 0"]),
        (vec!["run", "x.toml", "--seconds=-1"], vec!["seconds above 0"]),
        (vec!["run", "x.toml", "--seconds", "1h"], vec!["write 3600, without a unit"]),
        (vec!["demo", "--seconds", "500ms"], vec!["write 0.5, without a unit"]),
        (vec!["doctor", "--seconds", "-1"], vec!["seconds above 0"]),
        (vec!["bench", "cell", "--noise", "-1"], vec!["0 to 4096"]),
        (vec!["watch", "--late-us", "-5"], vec!["0 to 1000000000"]),
        (vec!["watch", "--pid", "abc"], vec!["expected a whole number"]),
        (vec!["watch", "--period", "2"], vec!["no unit", "500us"]),
        (vec!["manage", "--metrics", "9464"], vec!["an address with a port, such as 127.0.0.1:9464"]),
        (vec!["clock", "--listen", "7117"], vec!["an address with a port"]),
        (vec!["simulate", "--address", "localhost"], vec!["an IP address, such as 127.0.0.1"]),
        (vec!["gate", "x", "--baseline", "y", "--quantile", "99"], vec!["write 0.99 for P99"]),
        (vec!["campaign", "run", "uav", "--repetitions", "0", "--dry-run"], vec!["--repetitions"]),
        (vec!["kernels", "run", "--repeat", "0"], vec!["--repeat"]),
    ] {
        has(&refused(folder.path(), &args), &words);
    }
}

#[test]
fn misspelt_options_and_commands() {
    let folder = tempfile::tempdir().unwrap();
    for (args, words, never) in [
        (vec!["run", "x.toml", "--secs", "1"], vec!["'--seconds'"], "--stress"),
        (vec!["run", "x.toml", "--duration", "1"], vec!["'--seconds'"], "--stress"),
        (vec!["run", "x.toml", "--sekonds", "1"], vec!["'--seconds'"], "--stress"),
        (vec!["export", "x", "--output", "y"], vec!["'--out'"], "--measure"),
        (vec!["check", "x", "--colour"], vec!["unexpected argument '--colour'"], "--config"),
        (vec!["watch", "sleep", "1"], vec!["after `--`", "-- sleep"], "--seconds"),
        (vec!["bench", "nosuch"], vec!["there are", "uav"], "panicked"),
        (vec!["cyclic.toml"], vec!["takt run cyclic.toml"], "panicked"),
        (vec!["bnch"], vec!["'bench'"], "panicked"),
        (vec!["run"], vec!["<CONFIG> is: File of the robot"], "panicked"),
        (vec!["trace"], vec!["<ROBOT> is: File of a robot (TOML), or the name of a shipped"], "panicked"),
        (vec!["man", "wach"], vec!["did you mean `watch`?"], "panicked"),
        (vec!["export", "x", "--format", "histo"], vec!["histogram"], "panicked"),
    ] {
        let message = refused(folder.path(), &args);
        has(&message, &words);
        assert!(!message.contains(never), "{args:?}: {message}");
    }
}

#[test]
fn an_unknown_thread_lists_few_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = run(["trace", "--thread", "nosuchthread", "--seconds", "0.1"]);
    let message = takt::stderr(&command.current_dir(folder.path()).output().unwrap());
    if missing("the kernel cannot be traced here", message.contains("nosuchthread")) {
        return;
    }
    has(&message, &["no thread has the name or id \"nosuchthread\"", "names seen: "]);
    let listed = message.split("names seen: ").nth(1).unwrap().split(". A name").next().unwrap();
    assert!(listed.split(", ").count() <= 5, "{message}");
}

#[test]
fn changes_of_the_machine_by_a_user() {
    let folder = tempfile::tempdir().unwrap();
    // A copy: where the program was built, nobody may read.
    let program = folder.path().join("takt");
    fs::copy(TAKT, &program).unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    for args in [&["doctor", "--apply"][..], &["doctor", "--revert"], &["tune", "--restore"]] {
        let mut command = takt::without_rights();
        let output = command.arg(&program).args(args).current_dir(folder.path()).output();
        let started = output.as_ref().is_ok_and(|output| !takt::stderr(output).starts_with("setpriv: "));
        if missing("a program without rights cannot be started here", started) {
            return;
        }
        let message = refusal(&output.unwrap());
        has(&message, &["run as root, `sudo takt ", &args.join(" "), "Nothing was changed"]);
    }
}

#[test]
fn the_help_has_groups_and_all_exit_codes() {
    let help = stdout(&run(["--help"]).output().unwrap());
    has(&help, &["Run a robot:", "Measure:", "Find out why:", "Keep it on time:", "Data:", "Devices:"]);
    has(&help, &["  0  done", "  1  ", "  2  not done", "  3  ", "  4  `gate`"]);
    for command in ["run", "watch", "gate", "store", "segment", "completions"] {
        let lines = help.lines().filter(|line| line.starts_with(&format!("  {command} "))).count();
        assert_eq!(lines, 1, "{command}: {help}");
    }
}

/// Limits had other names in the version before; files and campaigns that have them go on working.
#[test]
fn former_names_of_limits_are_read_with_one_hint() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "robot.toml",
        "robot = 'humanoid'\n[losses]\nmost_lost_frames = 3\n[motion.safety]\nmost_late = 7\n",
    );
    let campaign = "name = 'late'\nconfig = 'robot.toml'\n[set]\n'motion.safety.most_late_in_row' = 6\n[[factor]]\n\
                    name = 'motion.safety.most_late'\nvalues = [7, 8]\n";
    write("campaign.toml", campaign);
    for (file, keys) in [
        ("robot.toml", &["losses.most_lost_frames", "safety.most_late"][..]),
        ("campaign.toml", &["losses.most_lost_frames", "safety.most_late", "safety.most_late_in_row"][..]),
    ] {
        let output = run(["check", file]).current_dir(folder.path()).output().unwrap();
        let hints = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{hints}");
        for key in keys {
            let new = key.split_once('.').unwrap().1.replacen("most_", "max_", 1);
            assert_eq!(hints.matches(&format!("`{key}` is called `{new}` now")).count(), 1, "{hints}");
        }
        assert_eq!(hints.lines().count(), keys.len(), "{hints}");
    }
    write("robot.toml", "robot = 'humanoid'\n[motion.safety]\nmost_late = 0\n");
    has(&refused(folder.path(), &["check", "robot.toml"]), &["safety.max_late", "accepted"]);
    write("robot.toml", "robot = 'cyclic'\n[safety]\nmost_late = 5\n");
    has(&refused(folder.path(), &["check", "robot.toml"]), &["unknown field `safety`"]);
}
