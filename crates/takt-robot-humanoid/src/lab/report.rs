//! The humanoid's additions to reports and exports: its paper's figures, and frames whose answers
//! came late, by cause, from the file of such a run.

use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use takt_report::table::{Cell, Table};
use takt_report::{Collection, Moment, Shapes, Supplement, clean};
use takt_rundir::RunDir;

use super::late::LATE_CAUSES_FILE;

/// Longest file that is read: one with all the frames that it reports one by one has some 700 KiB.
const LONGEST: u64 = 8 << 20;
/// Most causes of a run that are shown.
const MOST: usize = 100;

/// The humanoid's additions to reports.
#[derive(Debug)]
pub(super) struct LateFrames;

impl Supplement for LateFrames {
    fn papers(&self) -> &'static [takt_report::paper::Paper] {
        &super::paper::PAPERS
    }

    fn shapes(&self) -> Shapes {
        Shapes { low: true, ..Shapes::default() }
    }

    fn losses(&self, collection: &Collection) -> Vec<Table> {
        late_frames(collection).into_iter().collect()
    }

    fn moments(&self, dir: &RunDir) -> Result<Vec<Moment>, takt_report::Error> {
        let late: Option<serde_json::Value> = dir.find_json(LATE_CAUSES_FILE)?;
        let frames = late.iter().filter_map(|late| late["each"].as_array()).flatten();
        let moment = |frame: &serde_json::Value| {
            let (at_ns, why) = (frame["planned_ns"].as_u64()?, frame["why"].as_str()?.to_owned());
            Some(Moment { at_ns, name: "late-frame", why })
        };
        Ok(frames.filter_map(moment).collect())
    }
}

/// The fields read from it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Late {
    frames: u64,
    unexplained: u64,
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    frames: u64,
    why: String,
}

/// A row for each run and cause; `None` where no run has late frames.
fn late_frames(collection: &Collection) -> Option<Table> {
    let heads = ["Run", "#Late frames", "Of these unexplained", "Cause, as reported for the worst"];
    let mut table = Table::new("Frames that came late", &heads);
    for run in &collection.runs {
        let path = run.dir.path().join(LATE_CAUSES_FILE);
        if std::fs::symlink_metadata(&path).is_err() {
            continue;
        }
        match read(&path) {
            Ok(late) => {
                for cause in late.causes.iter().take(MOST) {
                    table.push(vec![
                        Cell::text(&run.key),
                        Cell::number(cause.frames),
                        Cell::text(format!("{} of {}", late.unexplained, late.frames)),
                        Cell::text(clean(&cause.why)),
                    ]);
                }
            }
            Err(reason) => table.push(vec![
                Cell::text(&run.key),
                Cell::gap("not known"),
                Cell::gap("not known"),
                Cell::text(clean(&format!("{LATE_CAUSES_FILE} cannot be used: {reason}"))),
            ]),
        }
    }
    if table.rows().is_empty() {
        return None;
    }
    table.note("A late frame is not lost: its data are used when it arrives.");
    Some(table)
}

fn read(path: &Path) -> Result<Late, String> {
    let mut bytes = Vec::new();
    let file = takt_files::open(path).map_err(|error| error.to_string())?;
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("longer than {} MiB", LONGEST >> 20));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("damaged: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_file_is_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LATE_CAUSES_FILE);
        std::fs::write(&path, r#"{"frames":3,"unexplained":1,"causes":[{"frames":2,"why":"x"}],"each":[]}"#)
            .unwrap();
        let late = read(&path).unwrap();
        assert_eq!((late.frames, late.unexplained, late.causes[0].frames), (3, 1, 2));
        for bad in ["", "7", r#"{"frames":-1}"#, r#"{"causes":{}}"#] {
            std::fs::write(&path, bad).unwrap();
            assert!(read(&path).is_err(), "{bad}");
        }
    }
}
