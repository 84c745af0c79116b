//! The jobs of a run directory, for the manager to examine: the tasks of the robot's
//! [`RobotKind`](crate::RobotKind), with the settings that they had while it ran.

use std::path::Path;
use std::sync::Arc;

use takt_ros::jobs::{JobRow, Rows, from_tasks};
use takt_rundir::{RUN_FILE, RunDir};

use crate::LabError;
use crate::jobs::Task;
use crate::registry::Registry;

/// Whether there is a run directory at `path`.
#[must_use]
pub fn is_run(path: &Path) -> bool {
    path.join(RUN_FILE).is_file()
}

#[derive(Debug)]
pub struct RunJobs(Vec<Vec<JobRow>>);

impl RunJobs {
    /// As events, from the beginning.
    #[must_use]
    pub fn events(&self) -> Rows<std::vec::IntoIter<JobRow>> {
        from_tasks(self.0.iter().map(|jobs| jobs.clone().into_iter()).collect())
    }
}

/// The jobs of a run, for the manager to examine.
///
/// # Errors
/// [`LabError::Files`] for a damaged run directory; [`LabError::Config`] for a robot whose samples
/// are no jobs.
pub fn recorded(registry: &Registry, path: &Path) -> Result<RunJobs, LabError> {
    let dir = RunDir::open(path)?;
    let robot = dir.header()?.robot;
    let mut rows: Vec<Vec<JobRow>> = Vec::new();
    for task in registry.kind(&robot).map_or(&[][..], |kind| kind.tasks) {
        if dir.has_samples(task.file)? {
            read(&dir, task, &mut rows)?;
        }
    }
    if rows.iter().all(Vec::is_empty) {
        let known = registry.kinds().iter().filter(|kind| !kind.tasks.is_empty());
        let known: Vec<&str> = known.map(|kind| kind.name).collect();
        return Err(LabError::Config(format!(
            "{}: runs of `{robot}` have no job records; robots that have them: {}",
            path.display(),
            known.join(", ")
        )));
    }
    Ok(RunJobs(rows))
}

fn read(dir: &RunDir, task: &Task, rows: &mut Vec<Vec<JobRow>>) -> Result<(), LabError> {
    let mut names = task.columns.to_vec();
    names.extend(task.number);
    let columns = dir.columns(task.file, &names)?;
    let mut of: Vec<(u64, Vec<JobRow>)> = Vec::new();
    for row in 0..columns.first().map_or(0, Vec::len) {
        let [released_ns, started_ns, ended_ns] = [columns[0][row], columns[1][row], columns[2][row]];
        let number = columns.get(3).map_or(0, |numbers| numbers[row]);
        let at = of.iter().position(|(known, _)| *known == number).unwrap_or_else(|| {
            of.push((number, Vec::new()));
            of.len() - 1
        });
        let jobs = &mut of[at].1;
        let name: Arc<str> = match (jobs.first(), task.number) {
            (Some(first), _) => Arc::clone(&first.task),
            (None, Some(_)) => format!("{}{number}", task.name).into(),
            (None, None) => task.name.into(),
        };
        // Numbers of releases have gaps where releases were skipped, which not every file reports
        // from losses.
        let index = jobs.len() as u64;
        let (pid, tid, skipped, used_ns) = (0, None, 0, None);
        jobs.push(JobRow {
            task: name,
            pid,
            tid,
            index,
            skipped,
            released_ns,
            started_ns,
            ended_ns,
            used_ns,
        });
    }
    of.sort_by_key(|(number, _)| *number);
    rows.extend(of.into_iter().map(|(_, jobs)| jobs));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use takt_ros::{Kind, Source};

    use super::*;

    const PERCEPTION: Task = Task {
        name: "perception-",
        thread: "perception-",
        file: "frames",
        columns: ["arrival_ns", "start_ns", "published_ns"],
        number: Some("camera"),
    };

    #[derive(Serialize)]
    struct Frame {
        camera: u32,
        arrival_ns: u64,
        start_ns: u64,
        published_ns: u64,
    }

    #[test]
    fn frames_of_several_cameras_are_several_tasks() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        let mut file = dir.samples(PERCEPTION.file).unwrap();
        for index in 0..10u64 {
            let arrival_ns = index * 1000;
            let (start_ns, published_ns) = (arrival_ns + 10, arrival_ns + 600);
            file.push(&Frame { camera: (index % 2) as u32, arrival_ns, start_ns, published_ns }).unwrap();
        }
        file.flush().unwrap();
        let mut rows = Vec::new();
        read(&dir, &PERCEPTION, &mut rows).unwrap();
        let names: Vec<(&str, usize)> = rows.iter().map(|jobs| (&*jobs[0].task, jobs.len())).collect();
        assert_eq!(names, [("perception-0", 5), ("perception-1", 5)]);
        let run = RunJobs(rows);
        let mut events = run.events();
        let mut jobs = 0;
        while !events.ended() {
            events.poll(&mut |event| jobs += u64::from(matches!(event.kind, Kind::Job { .. }))).unwrap();
        }
        assert_eq!((jobs, events.impossible()), (10, 0));
    }
}
