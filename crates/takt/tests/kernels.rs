//! `takt kernels`: real kernels in virtual machines, whatever becomes of one of them.

#![allow(clippy::unwrap_used)]

mod takt;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use takt::{json, missing, read_json, stderr, stdout, takt as run};

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
fn a_pair_of_kernels_is_compared_and_repeats() {
    if no_guests() {
        return;
    }
    let desk = tempfile::tempdir().unwrap();
    let mut command =
        run(["kernels", "run", "--kernels", "generic,rt", "--robot", "uav", "--policy", "fifo:80"]);
    command.args(["--iterations", "50", "--repeat", "2", "--json", "--runs"]).arg(desk.path());
    let all = json(&command.output().unwrap());
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
    let output = run(["report", campaign]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = fs::read_to_string(Path::new(campaign).join("report.md")).unwrap();
    assert!(report.contains("What virtual time means") && report.contains("no bound"), "{report}");
}

#[test]
fn a_kernel_that_fails_is_a_labelled_row_and_the_others_go_on() {
    if no_guests() {
        return;
    }
    let desk = tempfile::tempdir().unwrap();
    let file = desk.path().join("campaign.toml");
    fs::write(desk.path().join("vmlinuz"), "no kernel").unwrap();
    let text = format!(
        "name = \"broken\"\nrobot = \"cyclic\"\nseconds = 0.2\n[virtual]\nlimit_s = 300\n[set]\nlock_memory = \"off\"\n[[factor]]\n\
         name = \"kernel\"\nvalues = [\"rt\", \"{}/vmlinuz\"]\n[[factor]]\nname = \"boot.mem\"\nvalues = [\"default\", \"96M\"]\n",
        desk.path().display()
    );
    fs::write(&file, text).unwrap();
    let mut command = run(["campaign", "run"]);
    command.arg(&file).arg("--json").arg("--runs").arg(desk.path().join("runs"));
    let table = json(&command.output().unwrap());
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(
        (rows[0]["measured"].as_u64(), texts(&rows[0], "problems")),
        (Some(1), String::new()),
        "{table:#}"
    );
    // Too little memory for its image: it dies before it has a console, and is told by its early one.
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
        assert!(texts(row, "problems").contains("no kernel for this machine"), "{row:#}");
    }
}

#[test]
fn refusals_name_the_way_out() {
    let desk = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], words: &[&str]| {
        let output =
            run(["kernels"]).args(args).env("PATH", desk.path()).current_dir(&desk).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(words.iter().all(|word| said.contains(word)) && !said.contains("panicked"), "{said}");
    };
    let cache = desk.path().to_str().unwrap();
    // No apt in this PATH.
    refused(&["fetch", "rt", "--cache", cache], &["apt", "by path"]);
    refused(&["fetch", "./nowhere", "--cache", cache], &["nowhere"]);
    refused(&["run", "--robot", "submarine"], &["submarine", "uav"]);
    refused(&["run", "--robot", "daq", "--iterations", "100"], &["--seconds"]);
    refused(&["run", "--robot", "uav", "--cpus", "99"], &["virtual.cpus", "1 to"]);
    refused(&["run", "--robot", "uav", "--policy", "fast:1"], &["fast:1"]);
    refused(&["run", "--stress", "heavy"], &["heavy"]);
    // Without apt there is still the cache.
    let output =
        run(["kernels", "list", "--json", "--cache", cache]).env("PATH", desk.path()).output().unwrap();
    assert_eq!(json(&output)["kernels"].as_array().unwrap().len(), 0);
    assert!(stderr(&output).contains("apt"), "{}", stderr(&output));
    assert!(stdout(&run(["kernels", "--help"]).output().unwrap()).contains("fetch"));
}
