//! Slurm's own commands, and what they print.
//!
//! Output is asked for field by field (`--format`, `--parsable2`): these fields are the same in all
//! versions, while `--json` needs a plugin that sites may leave out and its layout changes with
//! every release.

use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::SlurmError;

/// Longest wait for a command. Slurm's own gives up on a controller that does not answer after its
/// MessageTimeout, 10 s unless the site says otherwise, and tries some times.
const PATIENCE: Duration = Duration::from_secs(100);

/// A node of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Slurm's name for it.
    pub name: String,
    /// Its state in Slurm's word: `idle`, `allocated`, `down*`.
    pub state: String,
    /// Its features, those included that it would have to be rebooted for.
    pub features: Vec<String>,
}

impl Node {
    /// Whether jobs can run there sooner or later without somebody's help.
    pub fn is_usable(&self) -> bool {
        let lost = ["down", "drain", "fail", "unknown", "maint", "power", "inval"];
        !self.state.ends_with('*') && !lost.iter().any(|word| self.state.starts_with(word))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub name: String,
    /// Whether jobs go there that name none.
    pub is_default: bool,
}

/// A task of an array job, as the queue shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Name of the job.
    pub name: String,
    /// Id of the array's job.
    pub job: String,
    pub index: usize,
    /// Its state: `PENDING`, `RUNNING`, ...
    pub state: String,
    /// The node, once it has one.
    pub node: String,
    /// Reason why it waits, or ended.
    pub reason: String,
}

impl Task {
    /// Whether it will not run any more.
    pub fn has_ended(&self) -> bool {
        let ended = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "REVOKED",
            "TIMEOUT",
        ];
        ended.contains(&self.state.as_str())
    }
}

/// Variables of `sbatch` about accounts, limits and reservations, which are the user's to set.
const OF_THE_USER: [&str; 5] =
    ["SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_TIMELIMIT", "SBATCH_WCKEY"];

/// Whether a variable is a default of the user's that would change what Takt asks for, or how the
/// answer looks: a partition that was not checked, another cluster, waiting for the end.
fn changes_what_is_asked(name: &str) -> bool {
    let of_commands = ["SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_"];
    let of_all = ["SLURM_BITSTR_LEN", "SLURM_CLUSTERS", "SLURM_EXIT_ERROR", "SLURM_TIME_FORMAT"];
    let is_of_command = of_commands.iter().any(|begin| name.starts_with(begin));
    (is_of_command && !OF_THE_USER.contains(&name)) || of_all.contains(&name)
}

/// Runs a command of Slurm's; what it says on standard output.
fn ask(program: &'static str, arguments: &[String]) -> Result<String, SlurmError> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => SlurmError::NoSlurm { program },
        _ => SlurmError::Refused { program, message: error.to_string() },
    };
    let mut command = Command::new(program);
    // Dates and messages as they are parsed here.
    command.args(arguments).env("LC_ALL", "C");
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_str().is_some_and(changes_what_is_asked)) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(refused)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (ends, ended) = mpsc::channel();
    std::thread::spawn(move || ends.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(PATIENCE) else {
        if let Some(handle) = handle {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
        return Err(SlurmError::Silent { program, seconds: PATIENCE.as_secs() });
    };
    let output = output.map_err(refused)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let words = message.lines().map(|line| line.trim_start_matches(&format!("{program}: ")));
    let words: Vec<&str> = words.map(|line| line.trim_start_matches("error: ").trim()).collect();
    let message = takt_files::shortened(&words.join(" "));
    // Output of its commands if there is no readable slurm.conf.
    if ["configuration source", "configuration file"].iter().any(|word| message.contains(word)) {
        return Err(SlurmError::NotConfigured { program, message });
    }
    if message.contains("Unable to contact") {
        return Err(SlurmError::Away { program, message });
    }
    Err(SlurmError::Refused {
        program,
        message: if message.is_empty() { output.status.to_string() } else { message },
    })
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn fields<'a, const N: usize>(
    program: &'static str,
    line: &'a str,
    expected: &'static str,
) -> Result<[&'a str; N], SlurmError> {
    let fields: Vec<&str> = line.splitn(N, '|').map(str::trim).collect();
    fields.try_into().map_err(|_| SlurmError::Answer { program, found: line.to_owned(), expected })
}

pub(crate) fn partitions() -> Result<Vec<Partition>, SlurmError> {
    let message = ask("sinfo", &words(["--noheader", "--format=%P"]))?;
    let partition = |line: &str| Partition {
        name: line.trim().trim_end_matches('*').to_owned(),
        is_default: line.trim().ends_with('*'),
    };
    Ok(message.lines().filter(|line| !line.trim().is_empty()).map(partition).collect())
}

pub(crate) fn nodes(partition: &str) -> Result<Vec<Node>, SlurmError> {
    let asked = format!("--partition={partition}");
    let message = ask("sinfo", &words(["--noheader", "--Node", &asked, "--format=%N|%T|%f"]))?;
    message.lines().filter(|line| !line.trim().is_empty()).map(node).collect()
}

fn node(line: &str) -> Result<Node, SlurmError> {
    let [name, state, features] = fields("sinfo", line, "NODE|STATE|FEATURES")?;
    let features = features.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "(null)");
    Ok(Node {
        name: name.to_owned(),
        state: state.to_owned(),
        features: features.map(str::to_owned).collect(),
    })
}

/// Slurm's own default for MaxArraySize.
const USUAL_ARRAY_SIZE: usize = 1001;

/// Tasks that an array of this cluster may have: their numbers are below MaxArraySize.
pub(crate) fn most_tasks() -> Result<usize, SlurmError> {
    // If there is no answer here, the submission asks.
    let message = ask("scontrol", &words(["show", "config"])).unwrap_or_default();
    match array_size(&message).unwrap_or(USUAL_ARRAY_SIZE) {
        0 => Err(SlurmError::NoArrays),
        size => Ok(size),
    }
}

fn array_size(message: &str) -> Option<usize> {
    let values = message.lines().filter_map(|line| line.split_once('='));
    let mut sizes = values.filter(|(name, _)| name.trim() == "MaxArraySize");
    sizes.next()?.1.trim().parse().ok()
}

/// Submits a job; its id.
pub(crate) fn submit(arguments: &[String]) -> Result<String, SlurmError> {
    let message = ask("sbatch", arguments)?;
    // `JOB`, or `JOB;CLUSTER`; a site's submit plugin may print lines before it.
    let id = message.lines().last().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match !id.is_empty() && id.chars().all(|c| c.is_ascii_digit()) {
        true => Ok(id.to_owned()),
        false => Err(SlurmError::Answer { program: "sbatch", found: message, expected: "the id of a job" }),
    }
}

/// Whether a job could ever run; sbatch says why not.
pub(crate) fn try_submit(arguments: &[String]) -> Result<(), SlurmError> {
    let mut all = words(["--test-only"]);
    all.extend_from_slice(arguments);
    ask("sbatch", &all).map(drop)
}

/// The tasks of the jobs of these names that Slurm still knows.
pub(crate) fn queue(names: &[&str]) -> Result<Vec<Task>, SlurmError> {
    let names = format!("--name={}", names.join(","));
    let format = "--format=%j|%F|%K|%T|%N|%r";
    let message = ask("squeue", &words(["--noheader", "--array", "--states=all", &names, format]))?;
    message.lines().filter(|line| !line.trim().is_empty()).map(task).collect()
}

fn task(line: &str) -> Result<Task, SlurmError> {
    let expected = "NAME|JOB|TASK|STATE|NODE|REASON";
    let [name, job, index, state, node, reason] = fields("squeue", line, expected)?;
    let wrong = || SlurmError::Answer { program: "squeue", found: line.to_owned(), expected };
    Ok(Task {
        name: name.to_owned(),
        job: job.to_owned(),
        index: index.parse().map_err(|_| wrong())?,
        state: state.to_owned(),
        node: node.to_owned(),
        reason: reason.to_owned(),
    })
}

/// End of a task, if the site keeps accounts: `TIMEOUT (exit 0:0, node n1)`.
pub(crate) fn account(job: &str) -> Option<String> {
    let of = format!("--jobs={job}");
    let asked = ["--noheader", "--allocations", "--parsable2", "--format=State,ExitCode,NodeList", &of];
    let message = ask("sacct", &words(asked)).ok()?;
    let [state, exit, node] = fields("sacct", message.lines().last()?, "STATE|EXIT|NODES").ok()?;
    Some(format!("{state} (exit {exit}, node {node})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_user_change_no_question() {
        for name in [
            "SBATCH_WAIT",
            "SBATCH_PARTITION",
            "SBATCH_CLUSTERS",
            "SLURM_CLUSTERS",
            "SQUEUE_SORT",
            "SINFO_ALL",
        ] {
            assert!(changes_what_is_asked(name), "{name}");
        }
        for name in ["SBATCH_ACCOUNT", "SLURM_CONF", "SLURM_JOB_ID", "PATH", "MY_SBATCH_WAIT"] {
            assert!(!changes_what_is_asked(name), "{name}");
        }
    }

    #[test]
    fn nodes_and_tasks_are_read_as_slurm_prints_them() {
        let read = node("n1|down*|rt,kernel=rt6.1,isolcpus=2-3").unwrap();
        assert_eq!((read.name.as_str(), read.features.len(), read.is_usable()), ("n1", 3, false));
        let read = node("n2|idle|(null)").unwrap();
        assert!(read.features.is_empty() && read.is_usable());
        let waits = task("takt-x-1|12|3|PENDING||ReqNodeNotAvail, UnavailableNodes:n1|n2").unwrap();
        assert_eq!((waits.job.as_str(), waits.index, waits.has_ended()), ("12", 3, false));
        assert_eq!(waits.reason, "ReqNodeNotAvail, UnavailableNodes:n1|n2");
        assert!(task("takt-x-1|12|3|NODE_FAIL|n1|None").unwrap().has_ended());
        let config =
            "MailProg                = /bin/mail\nMaxArraySize            = 42\nMaxJobCount = 10000\n";
        assert_eq!((array_size(config), array_size("MaxArraySizes = 3\n")), (Some(42), None));
        for line in ["", "a|b", "takt|12|N/A|PENDING||None"] {
            assert!(task(line).unwrap_err().to_string().contains("NAME|JOB"), "{line}");
        }
    }
}
