//! The same system on real `rclcpp` nodes: the ROS 2 package `ros2/takt_bench`, where it is built
//! and its environment is sourced.
//!
//! Its program speaks the protocol of [`crate::launch`]: [`Nodes::program`] writes what each node
//! does to a folder and gives the [`Program`] with which [`crate::Running::start`] starts them.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::launch::Program;
use crate::system::{Cost, NodeSpec, System, period_ns};

/// Path of a package's programs below its prefix.
const PROGRAM: &str = "lib/takt_bench/takt_bench_node";

/// Real nodes that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    pub path: PathBuf,
    /// The distribution of ROS 2, as `ROS_DISTRO` names it.
    pub distribution: String,
    /// The middleware, as `RMW_IMPLEMENTATION` names it; `None`: the distribution's own.
    pub middleware: Option<String>,
}

/// Reason why there are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error(
        "no ROS 2 environment: `source /opt/ros/jazzy/setup.bash` (or a later one) if ROS 2 is installed"
    )]
    NoEnvironment,
    /// Before Jazzy.
    #[error(
        "ROS 2 {distribution} is too old: Jazzy or later is needed, because Takt was measured with its executor and tracepoints"
    )]
    TooOld { distribution: String },
    /// The package is not there.
    #[error(
        "ROS 2 {distribution} is installed, but the package takt_bench is not: `colcon build --packages-select takt_bench` in the folder \
         ros2 of Takt, then `source install/setup.bash`"
    )]
    NotBuilt { distribution: String },
}

/// Looks for the package in the sourced environment.
///
/// # Errors
///
/// [`Missing`]: what to do.
pub fn find() -> Result<Nodes, Missing> {
    find_in(|name| env::var_os(name))
}

fn find_in(variable: impl Fn(&str) -> Option<OsString>) -> Result<Nodes, Missing> {
    let text = |name: &str| {
        variable(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
    };
    let distribution = text("ROS_DISTRO").ok_or(Missing::NoEnvironment)?;
    // Distributions are named along the alphabet; rolling is the newest ever.
    if distribution.to_ascii_lowercase().as_str() < "jazzy" {
        return Err(Missing::TooOld { distribution });
    }
    let prefixes = variable("AMENT_PREFIX_PATH").unwrap_or_default();
    let path = env::split_paths(&prefixes).map(|prefix| prefix.join(PROGRAM)).find(|path| path.is_file());
    let Some(path) = path else { return Err(Missing::NotBuilt { distribution }) };
    Ok(Nodes { path, distribution, middleware: text("RMW_IMPLEMENTATION") })
}

impl Nodes {
    /// Command that starts the nodes of a system; their plan is written to `directory`, which must
    /// stay as long as they start.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn program(&self, system: &System, directory: &Path) -> io::Result<Program> {
        for node in &system.node {
            fs::write(directory.join(format!("{}.plan", node.name)), plan(system, node))?;
        }
        let arguments = vec![directory.as_os_str().to_owned()];
        Ok(Program { path: self.path.clone(), arguments, environment: Vec::new() })
    }
}

/// Plan of a node, in the form that `takt_bench/plan.hpp` describes.
fn plan(system: &System, node: &NodeSpec) -> String {
    let mut text = format!("takt-bench\t2\nseed\t{}\n", system.seed);
    let mut number = system.first_activity(&node.name)..;
    let mut number = || number.next().unwrap_or(u16::MAX);
    let targets = |topics: &[String]| match topics {
        [] => "-".to_owned(),
        topics => {
            let target = |topic: &String| format!("{topic}:{}", subscriptions(system, topic));
            topics.iter().map(target).collect::<Vec<_>>().join(",")
        }
    };
    for timer in &node.timer {
        let (name, period, targets) =
            (field(&timer.name), period_ns(timer.period_ms), targets(&timer.publishes));
        let (number, cost) = (number(), cost(&timer.cost));
        let _ = writeln!(text, "timer\t{number}\t{name}\t{period}\t{cost}\t{targets}");
    }
    for it in &node.subscription {
        let (name, needs) = (field(&it.name), it.needs.as_deref().unwrap_or("-"));
        let (number, cost, targets) = (number(), cost(&it.cost), targets(&it.publishes));
        let (topic, depth) = (&it.topic, it.depth);
        let _ =
            writeln!(text, "subscription\t{number}\t{name}\t{topic}\t{depth}\t{needs}\t{cost}\t{targets}");
    }
    for source in &node.source {
        let (name, period, targets) =
            (field(&source.name), period_ns(source.period_ms), targets(&source.publishes));
        let (number, cost, incomplete) = (number(), cost(&source.cost), source.incomplete_every);
        let _ = writeln!(text, "source\t{number}\t{name}\t{period}\t{cost}\t{targets}\t{incomplete}");
    }
    text
}

fn cost(cost: &Cost) -> String {
    // Rust prints the shortest decimals that read back as the same number.
    let ms: Vec<String> = cost.ms.iter().map(f64::to_string).collect();
    format!("{}\t{}\t{}\t{}", cost.jitter, cost.peak_every, cost.peak_factor, ms.join(","))
}

fn subscriptions(system: &System, topic: &str) -> usize {
    system.node.iter().flat_map(|node| &node.subscription).filter(|it| it.topic == topic).count()
}

/// A name that TOML let pass, without what separates fields and lines.
fn field(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)]) -> Result<Nodes, Missing> {
        find_in(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn what_is_missing_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(PROGRAM);
        let prefixes = format!("/opt/ros/jazzy:{}", folder.path().display());
        assert_eq!(look(&[]), Err(Missing::NoEnvironment));
        assert_eq!(look(&[("ROS_DISTRO", "")]), Err(Missing::NoEnvironment));
        let humble = look(&[("ROS_DISTRO", "humble"), ("AMENT_PREFIX_PATH", &prefixes)]);
        assert_eq!(humble, Err(Missing::TooOld { distribution: "humble".into() }));
        for distribution in ["jazzy", "kilted", "rolling"] {
            let sourced = [("ROS_DISTRO", distribution), ("AMENT_PREFIX_PATH", &*prefixes)];
            if !place.exists() {
                assert_eq!(
                    look(&sourced),
                    Err(Missing::NotBuilt { distribution: distribution.into() }),
                    "not built yet"
                );
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                fs::write(&place, "").unwrap();
            }
            let found = look(&sourced).unwrap();
            assert_eq!((&found.path, &*found.distribution, &found.middleware), (&place, distribution, &None));
        }
    }

    #[test]
    fn every_node_has_a_plan() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::turtlebot();
        let nodes = Nodes { path: "/no/program".into(), distribution: "jazzy".into(), middleware: None };
        let program = nodes.program(&system, folder.path()).unwrap();
        assert_eq!(program.arguments, [folder.path().as_os_str()]);
        for node in &system.node {
            let text = fs::read_to_string(folder.path().join(format!("{}.plan", node.name))).unwrap();
            let records = node.timer.len() + node.subscription.len() + node.source.len();
            assert_eq!(text.lines().count(), 2 + records, "{text}");
        }
        let amcl = fs::read_to_string(folder.path().join("amcl.plan")).unwrap();
        assert!(
            amcl.contains("subscription\t7\ton_scan\t/scan\t10\t/tf\t0.2\t0\t1\t4\t/amcl/filtered:1\n"),
            "{amcl}"
        );
        let base = fs::read_to_string(folder.path().join("turtlebot_driver.plan")).unwrap();
        assert!(base.contains("timer\t1\todometry\t50000000\t0.2\t0\t1\t3\t/odom:1,/tf:1\n"), "{base}");
        let laser = fs::read_to_string(folder.path().join("laser_driver.plan")).unwrap();
        assert!(laser.contains("source\t3\tlaser-reader\t") && laser.ends_with("\t140\n"), "{laser}");
    }
}
