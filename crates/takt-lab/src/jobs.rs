//! Jobs of the robots for the latency manager: reported while they run to the manager that started
//! the run, and read from run directories afterwards (`run_jobs`).
//!
//! A real-time thread knows nothing of this. It pushes its records to its wait-free ring as always;
//! the collector's best-effort thread, which takes them from there, passes them on. Tasks have the
//! same names both ways, so that a goals file that names them (`start = "attitude"`,
//! `end = "attitude"`) serves a run and its run directory.

#[cfg(feature = "jobs")]
pub use reporter::JobReporter;

#[cfg(feature = "jobs")]
mod reporter;

/// A task of a robot: what it is called, which thread does its jobs, and where its times stand in a
/// sample file.
#[derive(Debug)]
pub struct Task {
    /// Its name for goals files.
    pub name: &'static str,
    pub thread: &'static str,
    /// Sample file.
    pub file: &'static str,
    /// Columns: released, started, ended.
    pub columns: [&'static str; 3],
    /// Column that distinguishes tasks of one file; the number ends their and their threads' names.
    pub number: Option<&'static str>,
}

/// Nobody who could be reported: what writes jobs for a manager was left out when this program was
/// built.
#[cfg(not(feature = "jobs"))]
#[derive(Debug, Default)]
pub struct JobReporter;

#[cfg(not(feature = "jobs"))]
impl JobReporter {
    /// For the session that the environment names, if it names one.
    ///
    /// # Errors
    /// It names one.
    pub(crate) fn from_environment() -> Result<Self, &'static str> {
        match takt_files::environment::var_os(SESSION) {
            None => Ok(Self),
            Some(_) => Err("this program was built without the latency manager"),
        }
    }

    /// A job has ended.
    pub fn job(&mut self, _task: &'static Task, _number: u32, _times_ns: [u64; 3]) {}

    /// Records were lost.
    pub fn lost(&mut self, _task: &'static Task, _count: u64) {}
}

/// Environment variable that names a manager's session.
#[cfg(not(feature = "jobs"))]
const SESSION: &str = "TAKT_PROBE_DIR";
