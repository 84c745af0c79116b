//! Reports the jobs of a run to the manager that started it.

use takt_ros::jobs::{Job, JobFile, JobFileError, JobWriter};
use takt_rt::procfs;

use super::Task;

/// Names in the kernel end here.
const LONGEST_COMM: usize = 15;

/// Reports the jobs of a run to the manager that started it; without one it does nothing.
#[derive(Debug, Default)]
pub struct JobReporter {
    file: Option<JobFile>,
    reported: Vec<Reported>,
}

#[derive(Debug)]
struct Reported {
    task: &'static str,
    number: u32,
    /// None: the file takes no more tasks.
    writer: Option<JobWriter>,
}

impl JobReporter {
    /// For the session that the environment names, if it names one.
    ///
    /// # Errors
    /// The session's directory cannot be written to.
    pub fn from_environment() -> Result<Self, JobFileError> {
        Ok(Self { file: JobFile::from_environment()?, reported: Vec::new() })
    }

    /// A job of task `number` of its kind has ended. CPU time is not in the records: the time from
    /// start to end stands for it.
    pub fn job(&mut self, task: &'static Task, number: u32, [released_ns, started_ns, ended_ns]: [u64; 3]) {
        let Some(file) = &mut self.file else { return };
        let known = self.reported.iter().position(|known| (known.task, known.number) == (task.name, number));
        let at = known.unwrap_or_else(|| {
            let (name, thread) = match task.number {
                Some(_) => (format!("{}{number}", task.name), format!("{}{number}", task.thread)),
                None => (task.name.to_owned(), task.thread.to_owned()),
            };
            // The thread has a job behind it, so that it is there, unless it has just ended.
            let tid = thread_called(&thread).unwrap_or_else(std::process::id);
            self.reported.push(Reported { task: task.name, number, writer: file.task(&name, tid).ok() });
            self.reported.len() - 1
        });
        if let Some(writer) = &mut self.reported[at].writer {
            let used_ns = ended_ns.saturating_sub(started_ns);
            writer.job(&Job { released_ns, started_ns, ended_ns, used_ns });
        }
    }

    /// Records of all tasks of a kind were lost on their way here.
    pub fn lost(&mut self, task: &'static Task, count: u64) {
        let reported = self.reported.iter_mut().filter(|known| known.task == task.name);
        reported.filter_map(|known| known.writer.as_mut()).for_each(|writer| writer.lost(count));
    }
}

/// A thread of this process by its name.
fn thread_called(name: &str) -> Option<u32> {
    let wanted = &name[..name.floor_char_boundary(LONGEST_COMM)];
    procfs::threads("self")
        .find(|tid: &u32| procfs::thread_name("self", tid).is_some_and(|name| name == wanted))
}

#[cfg(test)]
mod tests {
    use takt_ros::{Kind, Source};

    use super::*;

    const SSM: Task = Task {
        name: "ssm",
        thread: "ssm",
        file: "jobs",
        columns: ["planned_ns", "wake_ns", "end_ns"],
        number: None,
    };
    const PERCEPTION: Task = Task {
        name: "perception-",
        thread: "perception-",
        file: "frames",
        columns: ["arrival_ns", "start_ns", "published_ns"],
        number: Some("camera"),
    };

    #[test]
    fn without_a_manager_nothing_is_reported_and_with_one_every_job_is() {
        let mut silent = JobReporter::default();
        silent.job(&SSM, 0, [1, 2, 3]);
        assert!(silent.reported.is_empty());

        let session = takt_ros::preload::ProbeSession::create(&Default::default()).unwrap();
        let mut probe = session.probe().unwrap();
        let mut reporter =
            JobReporter { file: Some(JobFile::create(session.directory()).unwrap()), reported: Vec::new() };
        for index in 1..=100u64 {
            reporter.job(&SSM, 0, [index * 100, index * 100 + 5, index * 100 + 25]);
            reporter.job(&PERCEPTION, 2, [index * 100, index * 100 + 5, index * 100 + 50]);
        }
        let mut received_jobs = Vec::new();
        // Reported jobs wait in the probe until nothing earlier can come.
        for _ in 0..1000 {
            probe
                .poll(&mut |event| {
                    if let Kind::Job { task, used_ns, .. } = event.kind {
                        received_jobs.push((task.to_string(), used_ns));
                    }
                })
                .unwrap();
            if received_jobs.len() >= 200 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(received_jobs.iter().filter(|job| *job == &("ssm".to_owned(), 20)).count(), 100);
        assert_eq!(received_jobs.iter().filter(|job| *job == &("perception-2".to_owned(), 45)).count(), 100);
    }

    #[test]
    fn threads_are_found_by_their_names() {
        let name = "a-thread-of-the-test";
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || wait.recv()).unwrap();
        while thread_called(name).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(thread_called("no-such-thread"), None);
        drop(send);
        let _ = thread.join().unwrap();
    }
}
