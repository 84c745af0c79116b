//! Activity of the safety cell's perception process for each camera, and its faults, as tracks of a
//! Perfetto file.

use std::collections::HashMap;
use std::io::Write;

use takt_lab::LabError;
use takt_lab::picture::Device;
use takt_perception::process::{PARTS, StageSpans};
use takt_rt::jobs::{JobRecord, MAX_INPUTS};
use takt_rundir::RunDir;
use takt_trace::perfetto::{Argument, DeviceMark, DeviceWork, Input, PerfettoError, Task, Writer};

use super::rows::{FRAMES, JOBS};
use super::worker_rows::{GPU_EVENTS, GPU_FRAMES};

/// A device with a track for each camera.
#[derive(Debug)]
pub(super) struct DeviceTracks {
    name: &'static str,
    /// Events of no single camera: a process that ended, a breaker that the supervisor opened.
    marks: Vec<DeviceMark>,
    cameras: Vec<CameraTrack>,
}

#[derive(Debug)]
struct CameraTrack {
    name: String,
    /// By the device's own clock.
    work: Vec<DeviceWork>,
    marks: Vec<DeviceMark>,
}

impl DeviceTracks {
    /// Reads them from a run directory; none where there was no perception process, or it has
    /// nothing to show.
    pub(super) fn read(dir: &RunDir, cameras: &[String]) -> Result<Option<Self>, LabError> {
        if !dir.has_samples(GPU_FRAMES)? {
            return Ok(None);
        }
        let camera = |name: &String| CameraTrack {
            name: format!("camera {name}"),
            work: Vec::new(),
            marks: Vec::new(),
        };
        let mut tracks =
            Self { name: "GPU", marks: Vec::new(), cameras: cameras.iter().map(camera).collect() };
        tracks.read_work(dir)?;
        tracks.read_events(dir)?;
        let any = tracks.cameras.iter().any(|camera| !(camera.work.is_empty() && camera.marks.is_empty()));
        Ok((any || !tracks.marks.is_empty()).then_some(tracks))
    }

    fn read_work(&mut self, dir: &RunDir) -> Result<(), LabError> {
        let times = part_columns();
        let mut columns = vec!["camera", "frame", "error_ns"];
        columns.extend(times.iter().map(String::as_str));
        let values = dir.columns(GPU_FRAMES, &columns)?;
        for (row, &camera) in values[0].iter().enumerate() {
            let times: Vec<u64> = values[3..].iter().map(|column| column[row]).collect();
            if let Some(camera) = self.camera(camera) {
                camera.add_work(values[1][row], &times, values[2][row]);
            }
        }
        Ok(())
    }

    /// Events, and the work of frames that were not answered in time.
    fn read_events(&mut self, dir: &RunDir) -> Result<(), LabError> {
        let times = part_columns();
        let mut columns = vec!["time_ns", "kind", "cause", "camera", "frame", "process", "error_ns"];
        columns.extend(times.iter().map(String::as_str));
        let texts = dir.texts(GPU_EVENTS, &columns)?;
        for (row, time) in texts[0].iter().enumerate() {
            let number = |column: usize| texts[column][row].parse::<u64>().ok();
            let Ok(time_ns) = time.parse::<u64>() else { continue };
            let (frame, times) =
                (number(4).unwrap_or(0), (7..columns.len()).map(|at| number(at).unwrap_or(0)));
            let mut details = vec![("cause".to_owned(), Argument::Text(texts[2][row].clone()))];
            for (name, value) in [("frame", frame), ("process", number(5).unwrap_or(0))] {
                if value > 0 {
                    let value = i64::try_from(value).unwrap_or(i64::MAX);
                    details.push((name.to_owned(), Argument::Number(value)));
                }
            }
            let mark = DeviceMark { name: texts[1][row].clone(), time_ns, details };
            match number(3).and_then(|camera| self.camera(camera)) {
                Some(camera) => {
                    camera.add_work(frame, &times.collect::<Vec<u64>>(), number(6).unwrap_or(0));
                    camera.marks.push(mark);
                }
                None => self.marks.push(mark),
            }
        }
        for camera in &mut self.cameras {
            // Those of late answers came from another file.
            camera.work.sort_by_key(|work| (work.start_ns, work.end_ns));
        }
        Ok(())
    }

    fn camera(&mut self, index: u64) -> Option<&mut CameraTrack> {
        usize::try_from(index).ok().and_then(|index| self.cameras.get_mut(index))
    }

    /// The part that lies, at least partly, in kept times.
    fn kept(&self, kept: &dyn Fn(u64, u64) -> bool) -> Self {
        let marks = |marks: &[DeviceMark]| {
            marks.iter().filter(|mark| kept(mark.time_ns, mark.time_ns)).cloned().collect()
        };
        let camera = |camera: &CameraTrack| CameraTrack {
            name: camera.name.clone(),
            work: camera.work.iter().filter(|work| kept(work.start_ns, work.end_ns)).cloned().collect(),
            marks: marks(&camera.marks),
        };
        Self {
            name: self.name,
            marks: marks(&self.marks),
            cameras: self.cameras.iter().map(camera).collect(),
        }
    }
}

impl Device for DeviceTracks {
    fn within(&self, meets: &dyn Fn(u64, u64) -> bool) -> Box<dyn Device> {
        Box::new(self.kept(meets))
    }

    fn write(&self, writer: &mut Writer<&mut dyn Write>) -> Result<(), PerfettoError> {
        let names: Vec<String> = self.cameras.iter().map(|camera| camera.name.clone()).collect();
        let mut device = writer.device(self.name, &names)?;
        writer.device_marks(&device.whole, &self.marks)?;
        for (stream, camera) in device.streams.iter_mut().zip(&self.cameras) {
            writer.device_work(stream, &camera.work)?;
            writer.device_marks(stream, &camera.marks)?;
        }
        Ok(())
    }
}

impl CameraTrack {
    /// Adds the parts of a frame's work that there were: `times` are begin and end of each.
    fn add_work(&mut self, index: u64, times: &[u64], error_ns: u64) {
        for (name, span) in StageSpans::NAMES.iter().zip(times.chunks_exact(2)) {
            if let &[start_ns, end_ns] = span
                && end_ns > start_ns
                && start_ns > 0
            {
                self.work.push(DeviceWork { name: (*name).to_owned(), index, start_ns, end_ns, error_ns });
            }
        }
    }
}

fn part_columns() -> Vec<String> {
    const NAMES: [&str; PARTS] = StageSpans::NAMES;
    NAMES.iter().flat_map(|part| [format!("{part}_start_ns"), format!("{part}_end_ns")]).collect()
}

/// The safety cell's cameras as tasks, whose frames flow into the SSM task's jobs.
pub(super) fn with_cameras(
    dir: &RunDir,
    mut own: Task,
    jobs: Vec<JobRecord>,
    names: &[String],
) -> Result<Vec<(Task, Vec<JobRecord>)>, LabError> {
    let names: Vec<&String> = names.iter().take(MAX_INPUTS).collect();
    let inputs: Vec<String> = (0..names.len()).map(|camera| format!("input{camera}")).collect();
    let mut columns = vec!["index"];
    columns.extend(inputs.iter().map(String::as_str));
    let consumed = dir.columns(JOBS, &columns)?;
    let row_of: HashMap<u64, usize> =
        consumed[0].iter().enumerate().map(|(row, index)| (*index, row)).collect();
    let mut jobs = jobs;
    for job in &mut jobs {
        let Some(&row) = row_of.get(&job.index) else { continue };
        for (slot, column) in job.input_sequences.iter_mut().zip(&consumed[1..]) {
            *slot = column[row];
        }
    }
    own.inputs = (0..names.len()).map(|slot| Input { slot, from: slot + 1 }).collect();
    let frames = dir.columns(FRAMES, &["camera", "sequence", "arrival_ns", "start_ns", "published_ns"])?;
    let mut tasks = vec![(own, jobs)];
    for (camera, name) in names.iter().enumerate() {
        let mine = (0..frames[0].len()).filter(|&row| frames[0][row] == camera as u64);
        let records = mine.map(|row| JobRecord {
            index: frames[1][row],
            planned_ns: frames[2][row],
            wake_ns: frames[3][row],
            start_ns: frames[3][row],
            end_ns: frames[4][row],
            output_sequence: frames[1][row],
            ..JobRecord::default()
        });
        tasks.push((Task { name: format!("camera {name}"), ..Task::default() }, records.collect()));
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::super::worker_rows::WorkerRow;
    use super::*;
    use takt_perception::process::{EventKind, Record, Text};

    /// A run whose second camera has an answer, an overrun and a late answer, and whose process
    /// ended.
    fn run(dir: &RunDir) {
        let record = |kind, time_ns, camera, frame, upload: [u64; 2]| {
            let mut record = Record { camera, frame, ..Record::of(kind, time_ns, 1, Text::new("why, so")) };
            record.stages.spans[0] = upload;
            record.stages.error_ns = 5;
            WorkerRow::from(&record)
        };
        let mut answers = dir.samples(GPU_FRAMES).unwrap();
        answers.push(&record(EventKind::Answered, 300, Some(1), 8, [210, 220])).unwrap();
        // Of a camera that there is not: left out, and no panic.
        answers.push(&record(EventKind::Answered, 300, Some(9), 8, [210, 220])).unwrap();
        answers.flush().unwrap();
        let mut events = dir.samples(GPU_EVENTS).unwrap();
        events.push(&record(EventKind::Overrun, 150, Some(1), 7, [0, 0])).unwrap();
        events.push(&record(EventKind::Late, 190, Some(1), 7, [110, 180])).unwrap();
        events.push(&record(EventKind::Crashed, 400, None, 0, [0, 0])).unwrap();
        events.flush().unwrap();
    }

    fn times(marks: &[DeviceMark]) -> Vec<(&str, u64)> {
        marks.iter().map(|mark| (mark.name.as_str(), mark.time_ns)).collect()
    }

    #[test]
    fn events_are_marks_of_their_camera_or_of_the_whole_device() {
        let root = tempfile::tempdir().unwrap();
        let names = ["front".to_owned(), "left".to_owned()];
        for sealed in [false, true] {
            let dir = RunDir::create(root.path(), "test").unwrap();
            run(&dir);
            if sealed {
                dir.seal().unwrap();
            }
            let tracks = DeviceTracks::read(&dir, &names).unwrap().unwrap();
            assert_eq!((tracks.name, times(&tracks.marks)), ("GPU", vec![("crashed", 400)]));
            let [front, left] = &tracks.cameras[..] else { panic!("two cameras") };
            assert!(front.work.is_empty() && front.marks.is_empty());
            assert_eq!(left.name, "camera left");
            assert_eq!(times(&left.marks), [("overrun", 150), ("late", 190)]);
            assert_eq!(left.marks[0].details[0], ("cause".to_owned(), Argument::Text("why, so".to_owned())));
            assert!(left.marks[0].details.contains(&("frame".to_owned(), Argument::Number(7))));
            // Late work counts, too, and stands at its place in time.
            let work: Vec<_> =
                left.work.iter().map(|work| (work.name.as_str(), work.index, work.start_ns)).collect();
            assert_eq!(work, [("upload", 7, 110), ("upload", 8, 210)]);

            let kept = tracks.kept(&|from_ns, to_ns| from_ns <= 200 && to_ns >= 185);
            assert_eq!(times(&kept.cameras[1].marks), [("late", 190)]);
            assert!(kept.marks.is_empty() && kept.cameras[1].work.is_empty());
        }
    }

    #[test]
    fn a_run_without_anything_to_show_has_no_device() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        assert!(DeviceTracks::read(&dir, &["front".to_owned()]).unwrap().is_none());
        // There was a process, and it neither answered nor failed.
        dir.samples(GPU_FRAMES).unwrap();
        dir.samples(GPU_EVENTS).unwrap();
        dir.seal().unwrap();
        assert!(DeviceTracks::read(&dir, &["front".to_owned()]).unwrap().is_none());
    }
}
