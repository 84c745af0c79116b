//! Rows of the cell's sample files. Column names carry the units; times are CLOCK_MONOTONIC.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use takt_link_rtde::client::SendOutcome;

use crate::records::SsmJob;
use crate::ssm::{Decision, Fault, FaultKind, Light};

/// Name of the measure of the SSM task's wake-ups.
pub const SSM_LATENESS: &str = "ssm-lateness";
/// Name of the measure of the SSM task's response times.
pub const SSM_RESPONSE: &str = "ssm-response";
/// Name of the measure of reaction times.
pub const REACTION: &str = "reaction";
/// Name of the measure of the perception tasks' response times.
pub const PERCEPTION_RESPONSE: &str = "perception-response";
/// Name of the sample file of SSM jobs.
pub const JOBS: &str = "ssm_jobs";
/// Name of the sample file of reactions: a [`super::summary::ReactionRow`] a line.
pub const REACTIONS: &str = "reactions";
/// Name of the sample file of judged frames: a [`crate::records::FrameRecord`] a line.
pub const FRAMES: &str = "frames";
/// Name of the sample file of frames that were taken up and could not be judged, with the reason:
/// they are in no measure.
pub const UNJUDGED: &str = "frames_unjudged";

/// Outcome of a command, as one word: `sent`, `partial`, `would-block`, `disconnected`, or
/// `failed-` and the error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent(pub SendOutcome);

const SENT_WORDS: [(SendOutcome, &str); 4] = [
    (SendOutcome::Sent, "sent"),
    (SendOutcome::Partial, "partial"),
    (SendOutcome::WouldBlock, "would-block"),
    (SendOutcome::Disconnected, "disconnected"),
];
const FAILED: &str = "failed-";

impl Serialize for Sent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0, SENT_WORDS.iter().find(|(outcome, _)| *outcome == self.0)) {
            (_, Some((_, word))) => serializer.serialize_str(word),
            (SendOutcome::Failed { errno }, None) => serializer.collect_str(&format_args!("{FAILED}{errno}")),
            (other, None) => Err(serde::ser::Error::custom(format_args!("no text for {other:?}"))),
        }
    }
}

impl<'de> Deserialize<'de> for Sent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known = SENT_WORDS.iter().find(|(_, known)| *known == word).map(|(outcome, _)| *outcome);
        let failed = || Some(SendOutcome::Failed { errno: word.strip_prefix(FAILED)?.parse().ok()? });
        known.or_else(failed).map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "\"{word}\": expected sent, partial, would-block, disconnected or failed-<number>"
            ))
        })
    }
}

/// One line of `ssm_jobs.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Index on the release grid.
    pub index: u64,
    /// Planned release.
    pub planned_ns: u64,
    /// Wake-up.
    pub wake_ns: u64,
    /// Inputs read.
    pub start_ns: u64,
    /// Job done.
    pub end_ns: u64,
    /// Frame consumed from camera 0 (0: none).
    pub input0: u64,
    /// Camera 1.
    pub input1: u64,
    /// Camera 2.
    pub input2: u64,
    /// Camera 3.
    pub input3: u64,
    /// Camera 4.
    pub input4: u64,
    /// Camera 5.
    pub input5: u64,
    /// Camera 6.
    pub input6: u64,
    /// Camera 7.
    pub input7: u64,
    /// Commanded speed fraction.
    pub speed_fraction: f64,
    pub light: Light,
    /// Fault, empty when there was none.
    pub fault: Option<FaultKind>,
    /// Camera of the fault, empty for the robot's.
    pub fault_camera: Option<u32>,
    /// Least separation, empty when nobody was seen.
    pub separation_m: Option<f64>,
    /// Camera that saw it.
    pub nearest_camera: Option<u32>,
    /// Separation that stops.
    pub stop_distance_m: f64,
    /// Separation below the stop distance.
    pub breach: bool,
    /// Fault over, recovery time not.
    pub recovering: bool,
    /// Number of the command.
    pub heartbeat: i32,
    /// Its outcome.
    pub sent: Sent,
    /// Newest command echoed.
    pub echo: i32,
    pub echo_received_ns: u64,
}

impl From<&SsmJob> for JobRow {
    fn from(j: &SsmJob) -> Self {
        let d = &j.decision;
        let [input0, input1, input2, input3, input4, input5, input6, input7] = j.input_sequences;
        Self {
            index: j.index,
            planned_ns: j.planned_ns,
            wake_ns: j.wake_ns,
            start_ns: j.start_ns,
            end_ns: j.end_ns,
            input0,
            input1,
            input2,
            input3,
            input4,
            input5,
            input6,
            input7,
            speed_fraction: d.speed_fraction,
            light: d.light,
            fault: d.fault.map(|f| f.kind),
            fault_camera: d.fault.and_then(|f| f.camera),
            separation_m: d.separation_m.is_finite().then_some(d.separation_m),
            nearest_camera: d.nearest_camera,
            stop_distance_m: d.stop_distance_m,
            breach: d.breach,
            recovering: d.recovering,
            heartbeat: j.heartbeat,
            sent: Sent(j.sent),
            echo: j.echo,
            echo_received_ns: j.echo_received_ns,
        }
    }
}

impl From<&JobRow> for SsmJob {
    fn from(r: &JobRow) -> Self {
        Self {
            index: r.index,
            planned_ns: r.planned_ns,
            wake_ns: r.wake_ns,
            start_ns: r.start_ns,
            end_ns: r.end_ns,
            input_sequences: [r.input0, r.input1, r.input2, r.input3, r.input4, r.input5, r.input6, r.input7],
            decision: Decision {
                speed_fraction: r.speed_fraction,
                stop: r.speed_fraction <= 0.0,
                light: r.light,
                fault: r.fault.map(|kind| Fault { kind, camera: r.fault_camera }),
                separation_m: r.separation_m.unwrap_or(f64::INFINITY),
                nearest_camera: r.nearest_camera,
                stop_distance_m: r.stop_distance_m,
                breach: r.breach,
                recovering: r.recovering,
            },
            heartbeat: r.heartbeat,
            sent: r.sent.0,
            echo: r.echo,
            echo_received_ns: r.echo_received_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::FrameRecord;
    use crate::ssm::MAX_CAMERAS;
    use takt_perception::FrameHealth;

    #[test]
    fn frames_round_trip_through_csv() {
        for nearest_m in [1.25, f32::INFINITY] {
            let frame = FrameRecord {
                camera: 1,
                sequence: 2,
                capture_ns: 3,
                arrival_ns: 4,
                start_ns: 5,
                inferred_ns: 6,
                projected_ns: 7,
                published_ns: 8,
                health: FrameHealth::EmptyDepth,
                people: 9,
                unexplained: 10,
                nearest_m,
                detected: true,
                masks: 2,
                dropped: 11,
            };
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.serialize(frame).unwrap();
            let text = writer.into_inner().unwrap();
            let row: FrameRecord =
                csv::Reader::from_reader(text.as_slice()).deserialize().next().unwrap().unwrap();
            assert_eq!(row, frame);
        }
    }

    #[test]
    fn jobs_round_trip_through_csv() {
        let faulty = Decision {
            fault: Some(Fault { kind: FaultKind::StaleFrame, camera: Some(3) }),
            separation_m: f64::INFINITY,
            ..Decision::STOPPED
        };
        let clear = Decision {
            speed_fraction: 0.3,
            stop: false,
            light: Light::Orange,
            nearest_camera: Some(1),
            ..faulty
        };
        let outcomes = [SendOutcome::Sent, SendOutcome::WouldBlock, SendOutcome::Failed { errno: 32 }];
        for (index, sent) in outcomes.into_iter().enumerate() {
            let job = SsmJob {
                index: index as u64,
                planned_ns: 1,
                wake_ns: 2,
                start_ns: 3,
                end_ns: 4,
                input_sequences: std::array::from_fn::<_, MAX_CAMERAS, _>(|i| i as u64),
                decision: if index == 0 { faulty } else { Decision { fault: None, ..clear } },
                heartbeat: -5,
                sent,
                echo: 6,
                echo_received_ns: 7,
            };
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.serialize(JobRow::from(&job)).unwrap();
            let text = writer.into_inner().unwrap();
            let row: JobRow =
                csv::Reader::from_reader(text.as_slice()).deserialize().next().unwrap().unwrap();
            assert_eq!(SsmJob::from(&row), job);
        }
    }
}
