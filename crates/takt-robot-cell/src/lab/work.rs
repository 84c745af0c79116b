//! Amount of work of a cell's run, and the reason why no comparison calls a side better that did
//! less.
//!
//! A policy under which few frames are judged, or judged without networks, answers those few soon.
//! Its figures are of less work, so that they say nothing about the work that was left undone.

use serde::{Deserialize, Serialize};
use takt_rundir::Work as HeaderWork;

use super::tally::Tally;

/// Share by which the numbers of frames and jobs may be smaller and still count as the same work. 2
/// %: the edges of a window of a few seconds and one lost frame per camera.
pub const COUNT_TOLERANCE: f64 = 0.02;

/// The same share for counts that depend on the picture (people, masks, the detector's turns). 10
/// %: the shared detector's schedule decides in which frame a person first appears, and a window
/// may end while somebody is walking.
pub const CONTENT_TOLERANCE: f64 = 0.10;

/// Work of one run, within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// Length of the window, seconds.
    pub seconds: f64,
    /// Frames that the cameras delivered.
    pub frames_delivered: u64,
    pub frames_judged: u64,
    /// Judged frames on which a network ran before their result was published.
    pub frames_with_networks: u64,
    /// People found, summed over the judged frames.
    pub people_found: u64,
    /// Frames that the shared detector looked at; 0 where detection is part of judging.
    pub detector_runs: u64,
    /// SSM jobs run.
    pub ssm_jobs: u64,
}

/// One kind of work: key, words, tolerance.
type Item = (&'static str, &'static str, f64, fn(&Work) -> u64);

const ITEMS: [Item; 6] = [
    ("frames_delivered", "frames delivered", COUNT_TOLERANCE, |w| w.frames_delivered),
    ("frames_judged", "frames judged", COUNT_TOLERANCE, |w| w.frames_judged),
    ("frames_with_networks", "frames judged with networks", CONTENT_TOLERANCE, |w| w.frames_with_networks),
    ("people_found", "people found", CONTENT_TOLERANCE, |w| w.people_found),
    ("detector_runs", "frames examined by the shared detector", CONTENT_TOLERANCE, |w| w.detector_runs),
    ("ssm_jobs", "SSM jobs run", COUNT_TOLERANCE, |w| w.ssm_jobs),
];

impl Work {
    pub fn of(tally: &Tally, detector_runs: u64, seconds: f64) -> Self {
        let sum = |of: fn(&super::tally::CameraTally) -> u64| tally.cameras.iter().map(of).sum();
        Self {
            seconds,
            frames_delivered: sum(|c| c.delivered()),
            frames_judged: sum(|c| c.judged),
            frames_with_networks: sum(|c| c.with_networks),
            people_found: sum(|c| c.people),
            detector_runs,
            ssm_jobs: tally.ssm.jobs,
        }
    }

    /// Of several runs together.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, one| Self {
            seconds: sum.seconds + one.seconds,
            frames_delivered: sum.frames_delivered + one.frames_delivered,
            frames_judged: sum.frames_judged + one.frames_judged,
            frames_with_networks: sum.frames_with_networks + one.frames_with_networks,
            people_found: sum.people_found + one.people_found,
            detector_runs: sum.detector_runs + one.detector_runs,
            ssm_jobs: sum.ssm_jobs + one.ssm_jobs,
        })
    }

    /// For the header of the run, which comparisons read.
    pub fn header(&self) -> Vec<HeaderWork> {
        let item = |(name, title, tolerance, count): &Item| HeaderWork {
            name: (*name).to_owned(),
            title: (*title).to_owned(),
            count: count(self),
            tolerance: *tolerance,
        };
        ITEMS.iter().map(item).collect()
    }

    /// Work of which less was done than on the other side, beyond the tolerance, one sentence each.
    pub(crate) fn less_than(&self, other: &Self) -> Vec<String> {
        let [mine, theirs] = [self, other].map(|work| work.seconds.max(f64::MIN_POSITIVE));
        ITEMS
            .iter()
            .filter_map(|(_, title, tolerance, count)| {
                let (mine, theirs) = (count(self) as f64 / mine, count(other) as f64 / theirs);
                (mine < theirs * (1.0 - tolerance)).then(|| {
                    format!(
                        "{title}: {mine:.1} a second against {theirs:.1} ({:.0} % less, {:.0} % allowed)",
                        100.0 * (1.0 - mine / theirs),
                        100.0 * tolerance
                    )
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_work_is_less_by_rate_and_beyond_the_tolerance() {
        let whole = Work {
            seconds: 10.0,
            frames_delivered: 1500,
            frames_judged: 1500,
            frames_with_networks: 900,
            people_found: 2330,
            detector_runs: 100,
            ssm_jobs: 5000,
        };
        assert_eq!(whole.less_than(&whole), Vec::<String>::new());
        let shorter = Work { seconds: 1.0, frames_judged: 148, ..Work::default() };
        let shorter = Work { frames_delivered: 150, frames_with_networks: 88, people_found: 220, ..shorter };
        let shorter = Work { detector_runs: 10, ssm_jobs: 495, ..shorter };
        assert_eq!(shorter.less_than(&whole), Vec::<String>::new(), "a shorter run is not less work");
        let blind = Work { frames_judged: 424, people_found: 0, ..whole };
        let why = blind.less_than(&whole);
        assert_eq!(why.len(), 2, "{why:?}");
        assert_eq!(why[0], "frames judged: 42.4 a second against 150.0 (72 % less, 2 % allowed)");
        assert!(whole.less_than(&blind).is_empty());
        assert!(Work::default().less_than(&Work::default()).is_empty());
    }
}
