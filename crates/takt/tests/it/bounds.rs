//! Little memory, deep files and long values: an answer, and no abort.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::takt;

use takt::{TAKT, refusal, root, stderr, takt as run};

/// A Parquet file of a schema with `depth` groups within each other, around one column.
fn deep_parquet(depth: u32) -> Vec<u8> {
    // Thrift's compact protocol: version 1; a list of structs; in each its repetition, name,
    // children.
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
    let mut count = depth + 1;
    while count >= 0x80 {
        footer.push(count as u8 | 0x80);
        count >>= 7;
    }
    footer.push(count as u8);
    for _ in 0..depth {
        footer.extend([0x35, 0x00, 0x18, 0x01, b'g', 0x15, 0x02, 0x00]);
    }
    footer.extend([0x15, 0x04, 0x25, 0x00, 0x18, 0x01, b'x', 0x00, 0x16, 0x00, 0x19, 0x0c, 0x00]);
    let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [b"PAR1".as_slice(), &footer, &length, b"PAR1"].concat()
}

/// A run of the bare cyclic task.
fn cyclic(folder: &Path) -> std::path::PathBuf {
    let dir = folder.join("run");
    let mut command = run(["run", "--seconds", "0.3", "--json", "--run-dir"]);
    let output = command.arg(&dir).arg(root().join("robots/cyclic.toml")).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 2), "{}", stderr(&output));
    dir
}

/// It came to an end by itself, and not by a panic.
fn ended(output: &Output, what: &str) {
    let code = output.status.code();
    assert!(code.is_some_and(|code| code <= 3), "{what}: {:?}, {}", output.status, stderr(output));
}

#[test]
fn a_deep_schema_overflows_no_stack() {
    let folder = tempfile::tempdir().unwrap();
    let dir = cyclic(folder.path());
    let samples = fs::read_dir(dir.join("samples")).unwrap().map(|entry| entry.unwrap().path());
    let samples: Vec<_> =
        samples.filter(|path| path.extension().is_some_and(|end| end == "parquet")).collect();
    assert!(!samples.is_empty());
    for path in &samples {
        fs::write(path, deep_parquet(100_000)).unwrap();
    }
    let out = folder.path().join("out");
    for command in [
        Vec::from(["report", "--out", out.to_str().unwrap()]),
        Vec::from(["export", "--format", "csv", "--out", out.to_str().unwrap()]),
        Vec::from(["compare", dir.to_str().unwrap()]),
    ] {
        let output = run(&command).arg(&dir).output().unwrap();
        ended(&output, command[0]);
        assert!(!stderr(&output).contains("overflow"), "{}", stderr(&output));
    }
}

#[test]
fn a_small_stack_or_address_space_aborts_nothing_that_reads() {
    let folder = tempfile::tempdir().unwrap();
    let dir = cyclic(folder.path());
    for limit in ["-s 64", "-s 256", "-v 100000", "-v 200000", "-v 400000"] {
        for command in ["report", "check", "compare"] {
            let what = match command {
                "check" => "check robots/cyclic.toml".to_owned(),
                "compare" => format!("compare {0} {0}", dir.display()),
                _ => format!("report {} --out {}", dir.display(), folder.path().join("page").display()),
            };
            let script = format!("ulimit {limit}; exec {TAKT} {what}");
            let output = Command::new("sh").args(["-c", &script]).current_dir(root()).output().unwrap();
            // The dynamic linker's own refusal is 127.
            if output.status.code() != Some(127) {
                ended(&output, &script);
            }
        }
    }
}

#[test]
fn a_long_value_is_quoted_in_short() {
    let long = "A".repeat(5000);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    for text in [
        format!("robot = \"{long}\"\n"),
        format!("robot = \"cyclic\"\n\"{long}\" = 1\n"),
        format!("robot = \"cyclic\"\nperiod_us = \"{long}\"\n"),
        long.clone(),
    ] {
        fs::write(&file, &text).unwrap();
        let message = refusal(&run(["check"]).arg(&file).output().unwrap());
        let run_of = message.split(|c| c != 'A').map(str::len).max().unwrap();
        assert!(run_of <= 100 && message.len() < 1500, "{run_of}: {message}");
    }
    for args in [
        vec!["run", "cyclic", "--seconds", &long],
        vec!["trace", "cyclic", "--stress", &long],
        vec!["run", &long],
        vec![&long],
        vec!["compare", &long, &long],
        vec!["export", "--format", &long, "x"],
    ] {
        let output = run(&args).output().unwrap();
        let message = stderr(&output);
        let run_of = message.split(|c| c != 'A').map(str::len).max().unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(run_of <= 100 && message.contains("5000"), "{run_of}: {message}");
    }
}

#[test]
fn deep_configuration_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    for text in [
        format!("robot = {}", "[".repeat(100_000)),
        format!("robot = {}", "{a=".repeat(100_000)),
        format!("{}a = 1", "a.".repeat(100_000)),
        format!("[{}a]\nb = 1", "a.".repeat(100_000)),
    ] {
        fs::write(&file, &text).unwrap();
        let message = refusal(&run(["check"]).arg(&file).output().unwrap());
        assert!(message.len() < 1500, "{message}");
        assert!(message.contains("more than 80") && message.contains("write fewer"), "{message}");
    }
}
