//! The C++ side of the workload, as far as it can be checked without ROS 2: its costs are ours, and
//! the node is C++ that fits the declarations of what it uses. That it builds against rclcpp and
//! runs is seen only where ROS 2 is installed.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use takt_ros_workload::rclcpp::Nodes;
use takt_ros_workload::system::{self, Cost};
use takt_ros_workload::{Stamped, System, Window, stamps};

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ros2/takt_bench")
}

/// A C++ compiler in that folder, or why not.
fn compiler() -> Option<Command> {
    if Command::new("c++").arg("--version").output().is_err() {
        assert!(
            std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(),
            "no c++: required by TAKT_REQUIRE_OUTSIDE"
        );
        takt_witness::skip!("no C++ compiler (c++)");
        return None;
    }
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", "include"]).current_dir(package());
    Some(command)
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_node_is_valid_against_what_it_uses() {
    let Some(mut compiler) = compiler() else { return };
    succeeds(compiler.args(["-fsyntax-only", "-I", "test/stubs", "src/node.cpp"]));
}

#[test]
#[ignore = "takes 30 s"]
fn costs_and_phases_are_the_same_on_both_sides() {
    let Some(mut compiler) = compiler() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sequence");
    succeeds(compiler.args(["-O1", "test/sequence.cpp", "-o"]).arg(&program));
    let system = System::turtlebot();
    let nodes = Nodes { path: program.clone(), distribution: "jazzy".into(), middleware: None };
    nodes.program(&system, folder.path()).unwrap();
    let window = Window { start_ns: 0, phases_ns: 100, end_ns: 400, phases: 3 };
    let phases: String =
        [0, 100, 199, 200, 300, 399, 400, 10_000].map(|at_ns| format!("{} ", window.phase(at_ns))).concat();
    let mut checked = 0;
    for node in &system.node {
        let plan = std::fs::File::open(folder.path().join(format!("{}.plan", node.name))).unwrap();
        let message = succeeds(Command::new(&program).arg(&node.name).stdin(Stdio::from(plan)));
        let label = |name: &str| format!("{}/{name}", node.name);
        let line = |kind: &str, label: &str, cost: &Cost| {
            let mut random = system::random(system.seed, label);
            let costs = (0..100_u64).map(|index| {
                let phase = usize::try_from(index % 4).unwrap();
                format!("\t{}", cost.ns(phase, index, random.unit()))
            });
            format!("{kind}\t{label}{}", costs.collect::<String>())
        };
        let expected: Vec<String> = (node.timer.iter().map(|it| line("timer", &label(&it.name), &it.cost)))
            .chain(node.subscription.iter().map(|it| line("subscription", &label(&it.name), &it.cost)))
            .chain(node.source.iter().map(|it| line("source", &it.name, &it.cost)))
            .chain([phases.clone()])
            .collect();
        assert_eq!(message.lines().collect::<Vec<_>>(), expected, "{}", node.name);
        checked += expected.len() - 1;
    }
    assert_eq!(checked, system.activities().count());
}

/// The C++ side's log is read like that of Takt's own nodes.
#[test]
fn stamps_are_the_same_on_both_sides() {
    let Some(mut compiler) = compiler() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("stamps");
    succeeds(compiler.args(["-O1", "test/stamps.cpp", "-o"]).arg(&program));
    let system = System::turtlebot();
    let nodes = Nodes { path: program.clone(), distribution: "jazzy".into(), middleware: None };
    nodes.program(&system, folder.path()).unwrap();
    let mut heads = Vec::new();
    for node in &system.node {
        let own = stamps::Stamps::create(&system, &node.name, folder.path()).unwrap();
        drop(own);
        let file = stamps::path_of(folder.path(), &node.name);
        heads.push((file.clone(), std::fs::read_to_string(&file).unwrap()));
        succeeds(Command::new(&program).arg(folder.path()).arg(&node.name));
    }
    for (file, head) in heads {
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(written.starts_with(&head), "{head}\n{written}");
    }
    // The program writes two activations of each activity of a node: without anything, and with
    // all.
    let stamped = Stamped::read(&system, folder.path()).unwrap();
    for number in 0..system.activities().count() {
        let [bare, whole] = stamped.runs(number) else { panic!("{:?}", stamped.runs(number)) };
        assert_eq!((bare.index, bare.start_ns, bare.end_ns), (0, 10, 20));
        assert_eq!((bare.release_ns, bare.input, bare.sent_ns), (None, None, None));
        let input = stamps::ActivationId { activity: 7, index: (1 << 40) + 3 };
        assert_eq!((whole.index, whole.release_ns, whole.start_ns, whole.end_ns), (1, Some(29), 30, 40));
        assert_eq!((whole.input, whole.sent_ns), (Some(input), Some(35)));
    }
}

#[test]
#[ignore = "takes 30 s"]
fn a_torn_plan_is_refused() {
    let Some(mut compiler) = compiler() else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sequence");
    succeeds(compiler.args(["test/sequence.cpp", "-o"]).arg(&program));
    for text in [
        "",
        "takt-bench\t1\n",
        "takt-bench\t2\nspeed\t1\n",
        "takt-bench\t2\ntimer\t0\tx\t1\t0.2\n",
        "takt-bench\t2\ntimer\t65535\tx\t1\t0\t0\t1\t1\t-\n",
    ] {
        let plan = folder.path().join("torn");
        std::fs::write(&plan, text).unwrap();
        let input = Stdio::from(std::fs::File::open(&plan).unwrap());
        let output = Command::new(&program).arg("x").stdin(input).output().unwrap();
        assert!(!output.status.success(), "{text:?}");
    }
}
