//! Orders of the guest: a JSON file in its image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Path of the orders in the guest.
pub const ORDER_PATH: &str = "/etc/takt/order.json";

/// The list of kernel modules to load, one path a line.
pub const MODULES_PATH: &str = crate::image::MODULE_LIST;

/// Results folder: everything below it is copied to the host.
pub const RESULTS_PATH: &str = "/results";

/// Below [`RESULTS_PATH`]: what the jobs printed.
pub const JOBS_DIRECTORY: &str = "jobs";

/// A guest's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Order {
    /// The guest's name. Default `takt-guest`: a run directory names the machine it was made on.
    pub hostname: String,
    /// Guest time between start-up and the first job, milliseconds. Default 2000: the kernel
    /// refines its clock a second after start-up and stops all CPUs to change over; and idle time
    /// costs the host nothing.
    pub settle_ms: u64,
    /// Guest time between two signs of life while a job runs, seconds. Default 10: rare enough to
    /// disturb one release in thousands.
    pub heartbeat_s: u64,
    /// Files to write before the first job, mostly below `/proc/sys`, in this order. Default none.
    /// A refusal ends the guest: figures under other settings than asked would be figures of
    /// something else.
    pub settings: Vec<Setting>,
    /// Jobs to run, one after the other. Default none, which is refused.
    pub jobs: Vec<Job>,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            hostname: "takt-guest".into(),
            settle_ms: 2000,
            heartbeat_s: 10,
            settings: Vec::new(),
            jobs: Vec::new(),
        }
    }
}

/// A file that is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    pub path: PathBuf,
    pub value: String,
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Names its output in the results: `jobs/NAME.stdout` and `.stderr`.
    pub name: String,
    /// Path of the program in the guest.
    pub program: PathBuf,
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Its environment beside PATH, HOME, LANG and TMPDIR.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Working directory; created when it is missing. Default [`RESULTS_PATH`], so that what it
    /// writes is brought out.
    #[serde(default = "results")]
    pub directory: PathBuf,
    /// Guest time that it gets, seconds; then it is ended and the next one is run. Default 600.
    #[serde(default = "limit_s")]
    pub limit_s: u64,
    /// Runs beside the jobs after it and is ended when the last of them has ended. Default false.
    #[serde(default)]
    pub background: bool,
}

fn results() -> PathBuf {
    RESULTS_PATH.into()
}

fn limit_s() -> u64 {
    600
}

impl Job {
    /// A job with the defaults.
    #[must_use]
    pub fn new(name: &str, program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            program: program.into(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: BTreeMap::new(),
            directory: results(),
            limit_s: limit_s(),
            background: false,
        }
    }
}

/// Reason why an order cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Not JSON, or keys that no order has.
    #[error("the guest's order cannot be read: {0}")]
    Text(String),
    /// Nothing to do.
    #[error("the guest's order has no job to wait for")]
    NoJob,
    /// A name that cannot be part of a file's name.
    #[error(
        "job name {found:?}: expected at most 64 letters, digits, '-', '_' and '.', not beginning with '.'"
    )]
    Name { found: String },
    /// Two jobs would write the same files.
    #[error("two jobs are named {name:?}")]
    Twice { name: String },
    /// A path that is not absolute or goes up.
    #[error("job {job:?}: {what} {found:?} is not an absolute path without `..`")]
    Path { job: String, what: &'static str, found: PathBuf },
    /// A time that makes no sense.
    #[error("{what} {found}: expected 1 to {most}")]
    Time {
        what: &'static str,
        found: u64,
        /// The greatest that is accepted.
        most: u64,
    },
    /// The host's name is none.
    #[error("hostname {found:?}: expected 1 to 63 letters, digits and '-'")]
    Hostname { found: String },
    /// A text with a zero byte, which no program can be given.
    #[error("job {job:?}: a zero byte in {found:?}")]
    Zero { job: String, found: String },
}

/// Ten days.
const TIME_MOST_S: u64 = 864_000;

fn absolute(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|component| component == Component::ParentDir)
}

impl Order {
    /// From the file's bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, OrderError> {
        let order: Self =
            serde_json::from_slice(bytes).map_err(|error| OrderError::Text(error.to_string()))?;
        order.validate()?;
        Ok(order)
    }

    /// Whether it can be carried out, as far as that is known outside.
    pub fn validate(&self) -> Result<(), OrderError> {
        let host = &self.hostname;
        if host.is_empty() || host.len() > 63 || !host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            return Err(OrderError::Hostname { found: host.clone() });
        }
        let time = |what, found, most| {
            if (1..=most).contains(&found) { Ok(()) } else { Err(OrderError::Time { what, found, most }) }
        };
        time("heartbeat_s", self.heartbeat_s, TIME_MOST_S)?;
        if self.settle_ms > TIME_MOST_S * 1000 {
            time("settle_ms", self.settle_ms, TIME_MOST_S * 1000)?;
        }
        let path = |job: &str, what, path: &Path| {
            let found = path.to_path_buf();
            if absolute(path) { Ok(()) } else { Err(OrderError::Path { job: job.to_owned(), what, found }) }
        };
        for setting in &self.settings {
            path("", "setting", &setting.path)?;
        }
        if self.jobs.iter().all(|job| job.background) {
            return Err(OrderError::NoJob);
        }
        let mut names = BTreeSet::new();
        for job in &self.jobs {
            let name = &job.name;
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.bytes().all(fits) {
                return Err(OrderError::Name { found: name.clone() });
            }
            if !names.insert(name) {
                return Err(OrderError::Twice { name: name.clone() });
            }
            path(name, "program", &job.program)?;
            path(name, "directory", &job.directory)?;
            time("limit_s", job.limit_s, TIME_MOST_S)?;
            let texts = job.arguments.iter().chain(job.environment.keys()).chain(job.environment.values());
            if let Some(found) = texts.into_iter().find(|text| text.contains('\0')) {
                return Err(OrderError::Zero { job: name.clone(), found: found.clone() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order { jobs: vec![Job::new("a", "/bin/a", &["-x"])], ..Order::default() }
    }

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let mut order = order();
        order.settings.push(Setting { path: "/proc/sys/kernel/printk".into(), value: "4".into() });
        assert_eq!(Order::read(&serde_json::to_vec(&order).unwrap()).unwrap(), order);
    }

    #[test]
    fn the_least_order_takes_the_defaults() {
        let read =
            Order::read(br#"{"jobs": [{"name": "a", "program": "/bin/a", "arguments": ["-x"]}]}"#).unwrap();
        assert_eq!(read, order());
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let refused = |change: &dyn Fn(&mut Order)| {
            let mut order = order();
            change(&mut order);
            order.validate().unwrap_err()
        };
        assert_eq!(refused(&|o| o.jobs.clear()), OrderError::NoJob);
        assert_eq!(refused(&|o| o.jobs[0].background = true), OrderError::NoJob);
        assert!(matches!(refused(&|o| o.jobs[0].name = "../x".into()), OrderError::Name { .. }));
        assert!(matches!(refused(&|o| o.jobs.push(o.jobs[0].clone())), OrderError::Twice { .. }));
        assert!(matches!(refused(&|o| o.jobs[0].program = "a".into()), OrderError::Path { .. }));
        assert!(matches!(refused(&|o| o.jobs[0].directory = "/a/../b".into()), OrderError::Path { .. }));
        assert!(matches!(refused(&|o| o.jobs[0].limit_s = 0), OrderError::Time { .. }));
        assert!(matches!(refused(&|o| o.hostname.clear()), OrderError::Hostname { .. }));
        assert!(matches!(refused(&|o| o.jobs[0].arguments.push("a\0b".into())), OrderError::Zero { .. }));
        assert!(matches!(Order::read(b"{\"job\": []}"), Err(OrderError::Text(_))));
    }
}
