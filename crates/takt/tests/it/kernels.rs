//! `takt kernels`: real kernels in virtual machines, whatever becomes of one of them.

#![allow(clippy::unwrap_used)]

use crate::hold as golden;
use crate::takt;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use rustix::process::Signal;
use takt::{
    Beside, TAKT, Workspace, folders, has, json, missing, partial_json, read_json, refusal, report, root,
    stderr, stdout, takt as run, wait_for,
};
use takt_kernels::guest::Job;
use takt_kernels::machine::Settings;
use takt_kernels::packages::Store;
use takt_kernels::transport::JobEnding;
use takt_kernels::{Brought, GuestRun, TAKT_PATH, run_in_guest};
use takt_rt::placement::CpuSet;

/// Whether guests can be made here: QEMU, and two kernels from the distribution or the cache.
fn no_guests() -> bool {
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if missing("no qemu-system-x86_64", qemu.is_ok_and(|output| output.status.success())) {
        return true;
    }
    let fetched = run(["kernels", "fetch", "generic", "rt"]).output().unwrap();
    missing(&format!("no kernels: {}", stderr(&fetched)), fetched.status.success())
}

fn texts(row: &Value, key: &str) -> String {
    let words = row[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
    words.collect::<Vec<_>>().join("; ")
}

#[test]
#[ignore = "takes 30 s"]
fn a_pair_of_kernels_is_compared_and_repeats() {
    if no_guests() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let mut command =
        run(["kernels", "run", "--kernels", "generic,rt", "--robot", "uav", "--policy", "fifo:80"]);
    command.args(["--iterations", "50", "--repeat", "2", "--json", "--runs"]).arg(workspace.path());
    let all = json(&command.output().unwrap());
    golden::hold("kernels-run", &golden::shape("--json", &all));
    let rows = all["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{all:#}");
    for (row, (kernel, preemption)) in rows.iter().zip([("generic", "PREEMPT_DYNAMIC"), ("rt", "PREEMPT_RT")])
    {
        assert_eq!(row["kernel"], kernel);
        // As the kernel said itself while it ran.
        assert!(row["preemption"].as_str().unwrap().starts_with(preemption), "{row:#}");
        assert_eq!((row["time"].as_str(), row["count"].as_u64()), (Some("virtual"), Some(100)));
        assert_eq!(texts(row, "labels"), "");
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(0.0 < number("mean") && number("median") <= number("max"), "{row:#}");
        // The same inputs, the same result.
        let range = [&row["max_range"][0], &row["max_range"][1]].map(|value| value.as_f64().unwrap());
        assert!(range[1] <= 1.2 * range[0], "{row:#}");
        // Run directories like any others, with the machine that they were made on.
        let dir = Path::new(row["run_dirs"][0].as_str().unwrap());
        let machine = &read_json(&dir.join("run.json"))["machine"];
        assert_eq!(machine["virtual_machine"]["virtual_time"], true, "{machine:#}");
        assert!(dir.join("hashes.json").is_file() && dir.join("samples/attitude.parquet").is_file());
    }
    assert_ne!(rows[0]["release"], rows[1]["release"]);
    // What a report says about such runs.
    let campaign = all["campaign"].as_str().unwrap();
    let report = report(campaign);
    assert!(report.contains("What virtual time means") && report.contains("not a bound"), "{report}");
}

#[test]
#[ignore = "takes 40 s"]
fn a_kernel_that_fails_is_a_labelled_row_and_the_others_go_on() {
    if no_guests() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    fs::write(images.path().join("vmlinuz"), "no kernel").unwrap();
    let text = format!(
        "name = \"broken\"\nrobot = \"cyclic\"\nseconds = 0.2\n[virtual]\n[set]\nlock_memory = \"off\"\n[[factor]]\n\
         name = \"kernel\"\nvalues = [\"rt\", \"{}/vmlinuz\"]\n[[factor]]\nname = \"boot.mem\"\nvalues = [\"default\", \"96M\"]\n",
        images.path().display()
    );
    let workspace = Workspace::new(&text);
    let table = partial_json(&workspace.command(&["--json"]).output().unwrap());
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(
        (rows[0]["measured"].as_u64(), texts(&rows[0], "problems")),
        (Some(1), String::new()),
        "{table:#}"
    );
    // Too little memory for its image: it dies before it has a console, and is reported by its
    // early one.
    let starved = texts(&rows[1], "problems");
    assert!(rows[1]["measured"] == 0, "{starved}");
    assert!(starved.contains("ran out of memory") && starved.contains("mem=96M"), "{starved}");
    let guests = Path::new(table["dir"].as_str().unwrap()).join("guests");
    let consoles = fs::read_dir(guests).unwrap().map(|entry| entry.unwrap().path().join("console.log"));
    let (mut kept, mut written) = (0, 0);
    for facts in consoles.filter_map(|path| fs::metadata(path).ok()) {
        kept += 1;
        written += usize::from(facts.len() > 0);
    }
    assert!(kept == 2 && written >= 1, "{kept} consoles kept, {written} with words");
    for row in &rows[2..] {
        assert!(texts(row, "problems").contains("not a kernel for this machine"), "{row:#}");
    }
}

#[test]
#[ignore = "takes 20 s"]
fn boot_parameters_are_factors_and_more_cpus_are_there() {
    if no_guests() {
        return;
    }
    let text = r#"
        name = "tuned"
        robot = "cyclic"
        seconds = 0.1
        virtual = { cpus = 4, memory_mib = 512 }
        set = { kernel = "generic", "machine.rt_runtime_us" = -1, "machine.isolated_cpus" = "2-3", "machine.governor" = "performance" }
        [[factor]]
        name = "tuning"
        [[factor.values]]
        name = "none"
        set = { "boot.preempt" = "voluntary" }
        [[factor.values]]
        name = "isolated"
        [factor.values.set]
        "boot.isolcpus" = "2,3"
        "boot.nohz_full" = "2,3"
        "boot.rcu_nocbs" = "2,3"
        "boot.threadirqs" = true
        "boot.preempt" = "full"
    "#;
    let workspace = Workspace::new(text);
    let table = json(&workspace.command(&["--json"]).output().unwrap());
    let rows = table["rows"].as_array().unwrap();
    let machine = |row: &Value| {
        assert_eq!((row["measured"].as_u64(), texts(row, "problems")), (Some(1), String::new()), "{row:#}");
        read_json(&Path::new(row["run_dirs"][0].as_str().unwrap()).join("run.json"))["machine"].clone()
    };
    let [none, isolated] = [0, 1].map(|row| machine(&rows[row]));
    // As the guests themselves read it from their kernels.
    assert_eq!(none["preemption"], "PREEMPT_DYNAMIC (voluntary)");
    assert_eq!(isolated["preemption"], "PREEMPT_DYNAMIC (full)");
    assert_eq!((&none["isolated_cpus"], isolated["isolated_cpus"].as_str()), (&Value::Null, Some("2-3")));
    let words = isolated["boot_parameters"].as_str().unwrap();
    assert!(
        ["nohz_full=2,3", "rcu_nocbs=2,3", "threadirqs"].iter().all(|word| words.contains(word)),
        "{words}"
    );
    assert_eq!(isolated["virtual_machine"]["cpus"], 4);
    // What was asked of the whole machine is set, and what a guest cannot have is in the label.
    assert_eq!((&none["rt_runtime_us"], &isolated["rt_runtime_us"]), (&(-1).into(), &(-1).into()));
    let labels = [0, 1].map(|row: usize| texts(&rows[row], "not_granted"));
    assert!(
        labels
            .iter()
            .all(|label| label.contains("governor: requested performance, CPUs 0-3 have no governor")),
        "{labels:?}"
    );
    assert!(
        labels[0].contains("isolated CPUs: requested 2-3, in effect none. Fix: boot with isolcpus=2-3"),
        "{labels:?}"
    );
    assert!(!labels[1].contains("isolated") && !labels[1].contains("sched_rt_runtime_us"), "{labels:?}");
}

/// The UAV paper's layout on both kernels under its stress, whose work is counted and compared.
#[test]
#[ignore = "takes minutes"]
fn campaign_of_uav_kernels_has_equal_stress_on_both() {
    if no_guests() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let mut command = run(["campaign", "run", "uav-kernels", "--quick", "--json", "--runs"]);
    let table = json(&command.arg(workspace.path()).output().unwrap());
    assert_eq!(table["campaign"], "uav-kernels-quick");
    let compared = table["stress_work"].as_array().unwrap();
    assert_eq!(compared.len(), 2, "{compared:#?}");
    for one in compared {
        assert_eq!((&one["equal"], one["sides"].as_array().unwrap().len()), (&true.into(), 2), "{one:#}");
        for side in one["sides"].as_array().unwrap() {
            let work = side["work"].as_object().unwrap();
            assert_eq!(work.len(), 5, "{side:#}");
            assert!(work.values().all(|amount| amount.as_f64() > Some(0.0)), "{side:#}");
        }
    }
    for row in table["rows"].as_array().unwrap() {
        assert!(
            texts(row, "not_granted").starts_with("governor") && texts(row, "problems").is_empty(),
            "{row:#}"
        );
        let run = read_json(&Path::new(row["run_dirs"][0].as_str().unwrap()).join("run.json"));
        assert!(
            run["label"].as_str().unwrap().ends_with("in counted time on 4 virtual CPUs"),
            "{}",
            run["label"]
        );
        let ran_on = |name: &str| {
            let threads = run["placement"]["threads"].as_array().unwrap();
            threads.iter().find(|thread| thread["name"] == name).unwrap()["ran_on"].clone()
        };
        assert_eq!(ran_on("uav-attitude"), "2", "{row:#}");
        assert_eq!((ran_on("uav-position"), ran_on("uav-telemetry")), ("3".into(), "3".into()), "{row:#}");
        // No processor counts in an emulated one, and that is no zero.
        for counter in run["counters"].as_array().unwrap() {
            assert!(counter["count"].is_null() && counter["missing"].is_string(), "{counter:#}");
        }
    }
}

/// The seven core layouts of the DAQ paper (its Table 3), as the shipped campaign sets them, in a
/// guest with a CPU more than the greatest has.
#[test]
#[ignore = "takes 65 s"]
fn every_core_layout_of_the_daq_paper_is_granted_and_taken_back() {
    const CPUS: u32 = 5;
    if no_guests() {
        return;
    }
    let kernel = Store::open(None).and_then(|store| store.get("generic", &mut |_| {})).unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let shipped = fs::read_to_string(root().join("campaigns/daq-cores.toml")).unwrap();
    let campaign: toml::Table = shipped.parse().unwrap();
    let common = campaign["set"].as_table().unwrap();
    let layouts: Vec<&toml::Table> = campaign["factor"][0]["values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|layout| layout["set"].as_table().unwrap())
        .collect();
    assert_eq!(layouts.len(), 7);
    let (mut jobs, mut files) = (Vec::new(), Vec::new());
    for (number, layout) in layouts.iter().enumerate() {
        let line = |(key, value): (&String, &toml::Value)| match key.as_str() {
            "stop.edges" => "stop.edges = 300\n".to_owned(),
            "placement" => format!("acquisition.cpus = {value}\n"),
            key => format!("{key} = {value}\n"),
        };
        let text: String = common.iter().chain(layout.iter()).map(line).collect();
        let host = workspace.path().join(format!("{number}.toml"));
        fs::write(&host, format!("robot = \"daq\"\nseconds = 60\n{text}")).unwrap();
        let guest = format!("/etc/takt/{number}.toml");
        let dir = format!("/results/{number}");
        jobs.push(Job::new(
            &number.to_string(),
            TAKT_PATH,
            &["run", &guest, "--view", "none", "--run-dir", &dir],
        ));
        files.push(Brought { host, guest });
    }
    let outcome = run_in_guest(
        &GuestRun {
            settings: Settings { cpus: CPUS, memory_mib: 512, ..Settings::default() },
            // Brings CPUs back after a kill.
            programs: vec![Brought::same("/bin/sh")],
            files,
            ..GuestRun::new(kernel, TAKT, jobs, workspace.path())
        },
        &mut |_| true,
    )
    .unwrap();
    let all: CpuSet = format!("0-{}", CPUS - 1).parse().unwrap();
    let set = |text: &str| text.parse::<CpuSet>().unwrap();
    for (number, layout) in layouts.iter().enumerate() {
        let text = |file: &str| fs::read_to_string(outcome.results.join("jobs").join(file)).unwrap();
        let name = number.to_string();
        let ending = &outcome.job(&name).unwrap().ending;
        assert!(
            matches!(ending, JobEnding::Exited { .. }),
            "{layout}: {ending:?}: {}",
            text(&format!("{name}.stderr"))
        );
        let run = read_json(&outcome.results.join(&name).join("run.json"));
        assert_eq!(run["not_granted"], serde_json::json!([]), "{layout}");
        assert_eq!(run["figures"]["edges"], 300.0, "{layout}");
        let offline = set(layout["offline_cpus"].as_str().unwrap()).both(&all);
        let taken: Vec<usize> = serde_json::from_value(run["offline_cpus"].clone()).unwrap();
        assert_eq!(taken, offline.iter().collect::<Vec<_>>(), "{layout}");
        // Back before the run was over.
        assert_eq!(run["placement"]["machine"]["online"], all.to_string(), "{layout}");
        let threads = run["placement"]["threads"].as_array().unwrap();
        for (name, key) in [("daq-acquire", "placement"), ("daq-save", "saving.cpus")] {
            let Some(asked) = layout.get(key).map(|cpus| cpus.as_str().unwrap()) else { continue };
            let thread = threads.iter().find(|thread| thread["name"] == name).unwrap();
            assert_eq!((&thread["asked"], &thread["granted"]), (&asked.into(), &asked.into()), "{thread}");
            let ran_on = set(thread["ran_on"].as_str().unwrap());
            assert!(ran_on.without(&set(asked)).is_empty() && !ran_on.is_empty(), "{thread}");
        }
        assert_eq!(layout.get("saving.enabled").is_some(), layout.get("saving.cpus").is_none(), "{layout}");
    }
}

#[test]
#[ignore = "takes 20 s"]
fn traces_in_guests_distinguish_the_direct_way_from_the_deferred_one() {
    if no_guests() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let mut command =
        run(["kernels", "run", "--kernels", "rt", "--policy", "fifo:80,other:0", "--seconds", "0.2"]);
    command.args(["--trace", "--json", "--runs"]).arg(workspace.path());
    let all = json(&command.output().unwrap());
    golden::hold("kernels-run-traced", &golden::shape("--json", &all));
    let activations = |row: &Value| {
        assert_eq!(texts(row, "labels"), "", "{row:#}");
        row["activations"].as_object().unwrap().clone()
    };
    let rows = all["rows"].as_array().unwrap();
    let [fifo, other] = [0, 1].map(|row| activations(&rows[row]));
    // PREEMPT_RT expires the timers of tasks that are not real-time in a thread.
    assert!(fifo["timer"].as_u64() > Some(100) && !fifo.contains_key("deferred_timer"), "{fifo:?}");
    assert!(other["deferred_timer"].as_u64() > Some(100), "{other:?}");
    let events = |row: &Value| {
        let steps = row["sequence"].as_array().unwrap().iter().map(|step| step["event"].as_str().unwrap());
        steps.map(str::to_owned).collect::<Vec<_>>().join(", ")
    };
    assert!(!events(&rows[0]).contains("softirq_raise"), "{}", events(&rows[0]));
    for step in ["softirq_raise (HRTIMER)", "sched_waking (ktimers/0)", "sched_switch (to ktimers/0)"] {
        assert!(events(&rows[1]).contains(step), "{}", events(&rows[1]));
    }
}

#[test]
#[ignore = "takes 25 s"]
fn the_humanoid_has_its_wire_in_a_guest() {
    if no_guests() || missing("no ip", Path::new("/usr/sbin/ip").exists() || Path::new("/sbin/ip").exists()) {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let mut command = run(["kernels", "run", "--kernels", "rt", "--robot", "humanoid", "--seconds", "0.2"]);
    let all = json(&command.args(["--json", "--runs"]).arg(workspace.path()).output().unwrap());
    // Without the pair of interfaces it would say so.
    let row = &all["rows"][0];
    assert_eq!(texts(row, "labels"), "", "{row:#}");
    // Two hundred milliseconds at 1 kHz; where the window lies between two cycles is chance.
    assert!(row["count"].as_u64() >= Some(198), "{row:#}");
}

#[test]
fn an_interrupted_campaign_of_guests_goes_on_with_a_kernel_by_path() {
    if no_guests() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let listed = json(&run(["kernels", "list", "--json"]).output().unwrap());
    golden::hold("kernels-list", &golden::shape("--json", &listed));
    let cached = listed["kernels"].as_array().unwrap().iter();
    let is_rt = |kernel: &&Value| kernel["aliases"].as_array().unwrap().iter().any(|alias| alias == "rt");
    let vmlinuz = cached.filter(is_rt).find_map(|kernel| kernel["cached"].as_str()).unwrap();
    fs::copy(vmlinuz, images.path().join("vmlinuz")).unwrap();
    let text = format!(
        "name = \"cut\"\nrobot = \"cyclic\"\nseconds = 0.2\norder = \"given\"\n[virtual]\nat_once = 1\nmemory_mib = 512\n[set]\n\
         kernel = \"{}/vmlinuz\"\n[[factor]]\nname = \"policy\"\nvalues = [\"fifo:80\", \"rr:80\"]\n",
        images.path().display()
    );
    let workspace = Workspace::new(&text);
    let mut cut = Beside::start(workspace.command(&[]));
    let dir = wait_for("the campaign", || folders(&workspace.runs()).into_iter().next());
    let consoles = || folders(&dir.join("guests")).into_iter().map(|guest| guest.join("console.log"));
    // The second guest has begun to boot, however long the first takes on a busy computer: the
    // campaign has a limit of its own.
    while consoles().filter(|console| fs::metadata(console).is_ok_and(|facts| facts.len() > 0)).count() < 2 {
        assert!(cut.runs(), "{}", cut.output("stderr"));
        std::thread::sleep(Duration::from_millis(50));
    }
    cut.signal(Signal::INT);
    assert_eq!(cut.end().code(), Some(2), "{}", cut.output("stderr"));
    assert!(cut.output("stderr").contains("campaign resume"), "{}", cut.output("stderr"));
    let seals =
        || folders(&dir).into_iter().filter(|run| run.join("hashes.json").is_file()).collect::<Vec<_>>();
    let sealed = seals();
    assert_eq!(sealed.len(), 1);
    let first = fs::read(sealed[0].join("hashes.json")).unwrap();
    let resumed = run(["campaign", "resume", dir.to_str().unwrap(), "--json"]).output().unwrap();
    let table = json(&resumed);
    assert!(stderr(&resumed).contains("measured before"), "{}", stderr(&resumed));
    for row in table["rows"].as_array().unwrap() {
        assert_eq!((row["measured"].as_u64(), texts(row, "problems")), (Some(1), String::new()), "{row:#}");
    }
    assert_eq!(seals().len(), 2);
    assert_eq!(fs::read(sealed[0].join("hashes.json")).unwrap(), first);
}

/// Settings that a manager changes: control groups and their partitions, and the limit for
/// real-time threads.
const SETTINGS: &str = "cd /sys/fs/cgroup; for file in cgroup.subtree_control */cgroup.subtree_control */cpuset.cpus.partition; \
                        do [ ! -f $file ] || echo $file: $(cat $file); done; \
                        echo room: $(cat /proc/sys/kernel/sched_rt_runtime_us)";

/// The manager whole under a kernel with partition roots, whatever this machine's kernel has.
#[test]
#[ignore = "takes 35 s"]
fn a_manager_in_a_guest_reserves_and_restores() {
    if no_guests() {
        return;
    }
    // With `cpuset.cpus.exclusive`, which came with 6.7.
    let kernel = Store::open(None).and_then(|store| store.get("6.12", &mut |_| {}));
    if missing(&format!("no kernel 6.12: {:?}", kernel.as_ref().err()), kernel.is_ok()) {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let goals = "/etc/takt/goals.toml";
    let roots = workspace.path().join("goals.toml");
    let shipped = fs::read_to_string(root().join("goals/turtlebot.toml")).unwrap();
    fs::write(&roots, format!("{shipped}\n[options]\nways = [\"partition-roots\"]\n")).unwrap();
    let settings = |name: &str| Job::new(name, "/bin/sh", &["-c", SETTINGS]);
    // The first plan comes after six seconds, within the first load phase of the nodes: more load
    // is more for the host to emulate.
    let manage =
        ["manage", goals, "--json", "--seconds", "8", "--", TAKT_PATH, "workload", "--seconds", "30"];
    let jobs = vec![
        settings("before"),
        Job::new("manage", TAKT_PATH, &manage),
        settings("after"),
        Job::new("restore", TAKT_PATH, &["manage", "--restore"]),
    ];
    let outcome = run_in_guest(
        &GuestRun {
            // One for the system and two for reservations: of two, the manager takes both, and a
            // partition cannot take all.
            settings: Settings { cpus: 3, memory_mib: 1024, ..Settings::default() },
            programs: vec![Brought::same("/bin/sh"), Brought::same("/bin/cat")],
            files: vec![Brought { host: roots, guest: goals.to_owned() }],
            ..GuestRun::new(kernel.unwrap(), TAKT, jobs, workspace.path())
        },
        &mut |_| true,
    )
    .unwrap();
    let text = |file: &str| fs::read_to_string(outcome.results.join("jobs").join(file)).unwrap();
    for job in &outcome.jobs {
        let name = &job.name;
        assert_eq!(job.ending, JobEnding::Exited { code: 0 }, "{name}: {}", text(&format!("{name}.stderr")));
    }
    let all: Value = serde_json::from_str(&text("manage.stdout")).unwrap();
    let status = &all["status"];
    assert!(status["mode"].as_str().unwrap().contains("partition roots"), "{status:#}");
    assert!(
        !status["chains"].as_array().unwrap().iter().any(|chain| chain["state"] == "not_found"),
        "{status:#}"
    );
    let reserved = all["plan"]["reservations"].as_array().unwrap();
    assert!(!reserved.is_empty(), "{:#}\n{}", all["plan"], text("manage.stderr"));
    assert!(all["restored"].is_string(), "{:#}", all["restored"]);
    assert_eq!(text("before.stdout"), text("after.stdout"));
    assert!(text("before.stdout").contains("room: 950000"), "{}", text("before.stdout"));
    assert!(text("restore.stdout").contains("no manager has left anything"), "{}", text("restore.stdout"));
}

#[test]
fn refusals_name_the_way_out() {
    let workspace = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], words: &[&str]| {
        let output = run(["kernels"])
            .args(args)
            .env("PATH", workspace.path())
            .current_dir(&workspace)
            .output()
            .unwrap();
        has(&refusal(&output), words);
    };
    let cache = workspace.path().to_str().unwrap();
    // No apt in this PATH.
    refused(&["fetch", "rt", "--cache", cache], &["apt", "the path of a kernel"]);
    refused(&["fetch", "./nowhere", "--cache", cache], &["nowhere"]);
    refused(&["run", "--robot", "submarine"], &["submarine", "uav"]);
    refused(&["run", "--robot", "daq", "--iterations", "100"], &["--seconds"]);
    refused(&["run", "--robot", "uav", "--cpus", "99"], &["virtual.cpus", "1 to"]);
    refused(&["run", "--robot", "uav", "--policy", "fast:1"], &["fast:1"]);
    refused(&["run", "--stress", "heavy"], &["heavy"]);
    // Without apt there is still the cache.
    let output =
        run(["kernels", "list", "--json", "--cache", cache]).env("PATH", workspace.path()).output().unwrap();
    assert_eq!(json(&output)["kernels"].as_array().unwrap().len(), 0);
    assert!(stderr(&output).contains("apt"), "{}", stderr(&output));
    assert!(stdout(&run(["kernels", "--help"]).output().unwrap()).contains("fetch"));
}
