//! Starts all nodes of a system as processes, lets them begin together, and ends with them.
//!
//! A node's process says `ready` on its output when its objects are announced and its socket is
//! there; it is reported on its input when to begin and end, and says at the end what got lost. It
//! dies with its parent.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use takt_ros::standin::STAND_IN;
use takt_rt::child::end_with_this_process;
use takt_rt::clock::monotonic_ns;

use crate::node::{Failure, Losses, Window};
use crate::system::System;

/// Command that starts one node: a program, its arguments, to which the node's name is appended,
/// and its environment.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// Arguments in front of the node's name.
    pub arguments: Vec<OsString>,
    /// Variables set for it.
    pub environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// Gives the nodes the stand-in for `libtracetools.so`, written to `directory`, behind whatever
    /// is preloaded already: so that a probe sees them, and uprobes find what they sit on.
    ///
    /// # Errors
    ///
    /// The library cannot be written.
    pub fn preload_stand_in(&mut self, directory: &Path) -> io::Result<()> {
        let path = directory.join("libtracetools.so");
        std::fs::write(&path, STAND_IN)?;
        let known = self.environment.iter().position(|(name, _)| name == "LD_PRELOAD");
        let before = match known {
            Some(place) => Some(self.environment.remove(place).1),
            None => std::env::var_os("LD_PRELOAD"),
        };
        let mut all = before.filter(|before| !before.is_empty()).unwrap_or_default();
        if !all.is_empty() {
            all.push(":");
        }
        all.push(&path);
        self.environment.push(("LD_PRELOAD".into(), all));
        Ok(())
    }
}

/// Reason why a system did not start or end as it should.
#[derive(Debug, thiserror::Error)]
pub enum LaunchFailure {
    /// A node's process could not be started.
    #[error("node {node} cannot be started ({program}): {source}")]
    Start { node: String, program: String, source: io::Error },
    /// A node ended before it was ready, or said something else.
    #[error("node {node} did not become ready: it printed {message:?}; its output above shows the reason")]
    NotReady {
        node: String,
        /// Message that came instead of `ready`.
        message: String,
    },
    /// A node could not be reported when to begin.
    #[error("node {node} ended before the start: {source}")]
    Gone { node: String, source: io::Error },
}

/// Nodes that are ready, or run.
#[derive(Debug)]
pub struct Running {
    nodes: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// End of a node's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub node: String,
    /// Its losses; `None` if it did not end on its own.
    pub losses: Option<Losses>,
}

impl Running {
    /// Starts every node and waits until all are ready.
    ///
    /// # Errors
    ///
    /// [`LaunchFailure`]; those already started are ended.
    pub fn start(system: &System, program: &Program) -> Result<Self, LaunchFailure> {
        let mut nodes = Vec::new();
        for node in &system.node {
            let mut command = Command::new(&program.path);
            command.args(&program.arguments).arg(&node.name).envs(program.environment.iter().cloned());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            end_with_this_process(&mut command);
            let start = |source| LaunchFailure::Start {
                node: node.name.clone(),
                program: program.path.display().to_string(),
                source,
            };
            let mut child = command.spawn().map_err(start)?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(start(io::Error::other("no pipes")));
            };
            nodes.push(Process {
                name: node.name.clone(),
                child,
                input: Some(input),
                output: BufReader::new(output),
            });
        }
        for node in &mut nodes {
            let mut message = String::new();
            let read = node.output.read_line(&mut message);
            if read.is_err() || message.trim_end() != "ready" {
                return Err(LaunchFailure::NotReady { node: node.name.clone(), message });
            }
        }
        Ok(Self { nodes })
    }

    /// Names and process numbers.
    pub fn processes(&self) -> impl Iterator<Item = (&str, u32)> {
        self.nodes.iter().map(|node| (node.name.as_str(), node.child.id()))
    }

    /// Lets all begin together, a moment from now: first for `lead` with the first phase's costs,
    /// then for `length`, which the phases divide.
    ///
    /// # Errors
    ///
    /// A node has ended already.
    pub fn begin(
        &mut self,
        lead: Duration,
        length: Duration,
        phases: usize,
    ) -> Result<Window, LaunchFailure> {
        // Long enough for every process to be informed and to sleep at its first release.
        let start_ns = monotonic_ns() + 200_000_000;
        let later = |from_ns: u64, by: Duration| {
            from_ns.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX))
        };
        let phases_ns = later(start_ns, lead);
        let end_ns = later(phases_ns, length);
        let window = Window { start_ns, phases_ns, end_ns, phases };
        for node in &mut self.nodes {
            if let Some(mut input) = node.input.take() {
                writeln!(input, "{start_ns} {phases_ns} {end_ns} {phases}")
                    .map_err(|source| LaunchFailure::Gone { node: node.name.clone(), source })?;
            }
        }
        Ok(window)
    }

    /// Whether every process has ended.
    pub fn ended(&mut self) -> bool {
        self.nodes.iter_mut().all(|node| !matches!(node.child.try_wait(), Ok(None)))
    }

    pub fn wait(self) -> Vec<Ended> {
        let end = |mut node: Process| {
            let mut message = String::new();
            let losses =
                node.output.read_line(&mut message).ok().and_then(|_| Losses::parse(message.trim_end()));
            // It has closed its output, so it is about to end.
            let ended = node.child.wait().is_ok_and(|status| status.success());
            Ended { node: node.name.clone(), losses: losses.filter(|_| ended) }
        };
        self.nodes.into_iter().map(end).collect()
    }
}

/// A node's side: announces itself, says so, waits for its window, serves, says what it lost.
pub fn serve(system: &System, node: &str, directory: &Path) -> Result<(), Failure> {
    let losses = crate::node::run(system, node, directory, || {
        // A parent that is gone is no reason to panic: then the window does not come either.
        writeln!(io::stdout(), "ready").ok()?;
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).ok()?;
        parse_window(&line)
    })?;
    let _ = writeln!(io::stdout(), "{losses}");
    Ok(())
}

fn parse_window(line: &str) -> Option<Window> {
    let mut words = line.split_ascii_whitespace();
    let window = Window {
        start_ns: words.next()?.parse().ok()?,
        phases_ns: words.next()?.parse().ok()?,
        end_ns: words.next()?.parse().ok()?,
        phases: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_four_numbers() {
        let window = Window { start_ns: 1, phases_ns: 2, end_ns: 3, phases: 4 };
        assert_eq!(parse_window("1 2 3 4\n"), Some(window));
        for torn in ["", "1 2 3", "1 2 3 4 5", "1 2 3 x"] {
            assert_eq!(parse_window(torn), None, "{torn}");
        }
    }

    #[test]
    fn a_program_that_is_no_node_is_said_to_be_none() {
        let system = System::turtlebot();
        let program =
            |path: &str| Program { path: path.into(), arguments: Vec::new(), environment: Vec::new() };
        let error = Running::start(&system, &program("/bin/echo")).unwrap_err().to_string();
        assert!(error.contains("did not become ready") && error.contains("turtlebot_driver"), "{error}");
        let error = Running::start(&system, &program("/no/such/program")).unwrap_err().to_string();
        assert!(error.contains("cannot be started"), "{error}");
    }
}
