//! Reaction time as SentryRT-1 (section V.D) defines it: from the arrival of a frame to the
//! completion of the **first** SSM job that processed it, joined from the raw records of frames and
//! jobs.

use std::collections::VecDeque;

use crate::records::{FrameRecord, SsmJob};
use crate::ssm::MAX_CAMERAS;

/// One frame's way through the cell. All times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reaction {
    pub frame: FrameRecord,
    /// Start of the first SSM job that processed it.
    pub job_start_ns: u64,
    pub job_end_ns: u64,
    /// Whether that job saw a newer frame of the same camera in its place: the frame's own result
    /// was never read, the newer one answered for it.
    pub superseded: bool,
    /// When the controller was seen to have taken in that job's command.
    pub acknowledged_ns: Option<u64>,
}

impl Reaction {
    /// Frame arrival to the end of the first SSM job on it.
    pub fn reaction_ns(&self) -> u64 {
        self.job_end_ns.saturating_sub(self.frame.arrival_ns)
    }

    /// Stages in order: acquisition, queue, inference, projection, publication and wait for SSM,
    /// SSM job, robot acknowledged. Acquisition lies before the arrival and the acknowledgement
    /// after the job, so that the five between them add up to the reaction time.
    pub(crate) fn stages_ns(&self) -> [u64; Stage::COUNT] {
        let f = &self.frame;
        let gap = |to: u64, from: u64| to.saturating_sub(from);
        [
            gap(f.arrival_ns, f.capture_ns),
            gap(f.start_ns, f.arrival_ns),
            gap(f.inferred_ns, f.start_ns),
            gap(f.projected_ns, f.inferred_ns),
            gap(self.job_start_ns, f.projected_ns),
            gap(self.job_end_ns, self.job_start_ns),
            self.acknowledged_ns.map_or(0, |a| gap(a, self.job_end_ns)),
        ]
    }
}

/// Stages of a reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Capture to arrival: exposure and transfer.
    Acquisition,
    /// Arrival to the start of perception: the driver or library thread, decoding and copying, the
    /// wake-up of the perception thread and its backlog.
    Queue,
    /// Start of perception to the end of inference.
    Inference,
    /// Masks to distances.
    Projection,
    /// Distances known to the start of the SSM job that reads them.
    WaitForSsm,
    /// The SSM job itself.
    SsmJob,
    /// End of the job to the controller's acknowledgement.
    Acknowledged,
}

impl Stage {
    pub const COUNT: usize = 7;
    /// All stages in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Acquisition,
        Self::Queue,
        Self::Inference,
        Self::Projection,
        Self::WaitForSsm,
        Self::SsmJob,
        Self::Acknowledged,
    ];

    /// A name for tables and keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acquisition => "acquisition",
            Self::Queue => "queue",
            Self::Inference => "inference",
            Self::Projection => "projection",
            Self::WaitForSsm => "wait-for-ssm",
            Self::SsmJob => "ssm-job",
            Self::Acknowledged => "robot-acknowledged",
        }
    }
}

/// The job at which a camera's consumed sequence number moved on.
#[derive(Clone, Copy, Debug)]
struct Advance {
    to: u64,
    start_ns: u64,
    end_ns: u64,
    heartbeat: i32,
}

/// Most records of a camera, or jobs, that wait for their counterpart: over two minutes at 30 FPS,
/// far beyond every deadline. Longer waiting frames (the SSM task is dead, or the controller echoes
/// nothing) are handed out as they are, so a run of any length takes constant memory.
pub const MAX_WAITING: usize = 4096;

/// Joins the two record streams. Each stream must come in its own order; how they interleave does
/// not matter.
///
/// Frames that nobody judged are answered by no job, and a job that consumed one answers nothing:
/// it stopped the robot because it was blind, and the frames before wait for the next judgement.
#[derive(Debug, Default)]
pub struct Joiner {
    seen: [u64; MAX_CAMERAS],
    frames: [VecDeque<FrameRecord>; MAX_CAMERAS],
    advances: [VecDeque<Advance>; MAX_CAMERAS],
    /// Sequence numbers of frames without a judgement that no job has consumed yet.
    unjudged: [VecDeque<u64>; MAX_CAMERAS],
    unacknowledged: VecDeque<(i32, Reaction)>,
    echo: Option<(i32, u64)>,
}

impl Joiner {
    /// An empty joiner.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one frame record. Returns the oldest frame of the camera when more wait than
    /// [`MAX_WAITING`]: no job will answer it any more.
    pub fn frame(&mut self, frame: FrameRecord, out: &mut impl FnMut(Reaction)) -> Option<FrameRecord> {
        let camera = frame.camera as usize;
        if camera >= MAX_CAMERAS {
            return None;
        }
        if !frame.is_judged() {
            // The job's record may have come first.
            self.advances[camera].retain(|advance| advance.to != frame.sequence);
            push_bounded(&mut self.unjudged[camera], frame.sequence);
            return None;
        }
        let given_up = push_bounded(&mut self.frames[camera], frame);
        self.join(camera, out);
        given_up
    }

    /// Records that wait for their counterpart.
    pub fn waiting(&self) -> usize {
        let of_cameras =
            (0..MAX_CAMERAS).map(|c| self.frames[c].len() + self.advances[c].len() + self.unjudged[c].len());
        of_cameras.sum::<usize>() + self.unacknowledged.len()
    }

    /// Takes one job record.
    pub fn job(&mut self, job: &SsmJob, out: &mut impl FnMut(Reaction)) {
        for camera in 0..MAX_CAMERAS {
            let to = job.input_sequences[camera];
            // A source that restarted counts from 1 again.
            if to != 0 && to != self.seen[camera] {
                self.seen[camera] = to;
                let unjudged = &mut self.unjudged[camera];
                // Those before it were replaced before a job read them.
                while unjudged.front().is_some_and(|&sequence| sequence < to) {
                    unjudged.pop_front();
                }
                if unjudged.front() == Some(&to) {
                    continue;
                }
                let (start_ns, end_ns, heartbeat) = (job.start_ns, job.end_ns, job.heartbeat);
                push_bounded(&mut self.advances[camera], Advance { to, start_ns, end_ns, heartbeat });
                self.join(camera, out);
            }
        }
        if self.echo.is_none_or(|(echo, _)| echo != job.echo) && job.echo_received_ns != 0 {
            self.echo = Some((job.echo, job.echo_received_ns));
        }
        self.acknowledge(out);
    }

    fn join(&mut self, camera: usize, out: &mut impl FnMut(Reaction)) {
        let (frames, advances) = (&mut self.frames[camera], &mut self.advances[camera]);
        while let (Some(frame), Some(advance)) = (frames.front(), advances.front()) {
            if frame.sequence > advance.to {
                advances.pop_front();
                continue;
            }
            let reaction = Reaction {
                frame: *frame,
                job_start_ns: advance.start_ns,
                job_end_ns: advance.end_ns,
                superseded: frame.sequence < advance.to,
                acknowledged_ns: None,
            };
            if let Some((_, oldest)) = push_bounded(&mut self.unacknowledged, (advance.heartbeat, reaction)) {
                out(oldest);
            }
            frames.pop_front();
        }
        self.acknowledge(out);
    }

    fn acknowledge(&mut self, out: &mut impl FnMut(Reaction)) {
        let Some((echo, received_ns)) = self.echo else { return };
        while let Some((heartbeat, reaction)) = self.unacknowledged.front() {
            // Heartbeats wrap after 2^31 jobs; their difference does not.
            if echo.wrapping_sub(*heartbeat) < 0 {
                break;
            }
            // An echo that was received before the job ended cannot be this command's: a record
            // joined late.
            let acknowledged_ns = (received_ns >= reaction.job_end_ns).then_some(received_ns);
            out(Reaction { acknowledged_ns, ..*reaction });
            self.unacknowledged.pop_front();
        }
    }

    /// Hands out what was answered but not acknowledged, and returns the frames that no job has
    /// processed.
    pub fn finish(self, out: &mut impl FnMut(Reaction)) -> Vec<FrameRecord> {
        self.unacknowledged.into_iter().for_each(|(_, reaction)| out(reaction));
        self.frames.into_iter().flatten().collect()
    }
}

/// Adds to a queue; what no longer fits is its oldest entry.
fn push_bounded<T>(queue: &mut VecDeque<T>, item: T) -> Option<T> {
    let oldest = if queue.len() >= MAX_WAITING { queue.pop_front() } else { None };
    queue.push_back(item);
    oldest
}

#[cfg(test)]
mod tests {
    use takt_link_rtde::client::SendOutcome;
    use takt_perception::FrameHealth;

    use super::*;
    use crate::ssm::Decision;

    fn frame(camera: u32, sequence: u64, arrival_ns: u64) -> FrameRecord {
        FrameRecord {
            camera,
            sequence,
            capture_ns: arrival_ns - 5,
            arrival_ns,
            start_ns: arrival_ns + 1,
            inferred_ns: arrival_ns + 10,
            projected_ns: arrival_ns + 12,
            published_ns: arrival_ns + 13,
            health: FrameHealth::Ok,
            people: 0,
            unexplained: 0,
            nearest_m: f32::INFINITY,
            detected: false,
            masks: 0,
            dropped: 0,
        }
    }

    fn blind(camera: u32, sequence: u64, arrival_ns: u64) -> FrameRecord {
        FrameRecord { health: FrameHealth::NoPose, ..frame(camera, sequence, arrival_ns) }
    }

    fn job(index: u64, start_ns: u64, inputs: &[u64], echo: i32) -> SsmJob {
        let mut input_sequences = [0; MAX_CAMERAS];
        input_sequences[..inputs.len()].copy_from_slice(inputs);
        SsmJob {
            index,
            planned_ns: start_ns,
            wake_ns: start_ns,
            start_ns,
            end_ns: start_ns + 2,
            input_sequences,
            decision: Decision::STOPPED,
            heartbeat: index as i32,
            sent: SendOutcome::Sent,
            echo,
            echo_received_ns: start_ns - 1,
        }
    }

    #[test]
    fn first_job_counts_whatever_order_records_arrive_in() {
        let frames = [frame(0, 1, 100), frame(0, 2, 200), frame(1, 1, 150)];
        let jobs = [
            job(1, 120, &[1, 0], 0),
            job(2, 170, &[1, 1], 1),
            job(3, 220, &[2, 1], 2),
            job(4, 270, &[2, 1], 3),
        ];
        let mut expected: Vec<_> = vec![(0, 1, 22, Some(169)), (1, 1, 22, Some(219)), (0, 2, 22, Some(269))];
        expected.sort_unstable();
        for frames_first in [true, false] {
            let mut got = Vec::new();
            let mut out = |r: Reaction| {
                got.push((r.frame.camera, r.frame.sequence, r.reaction_ns(), r.acknowledged_ns));
            };
            let mut joiner = Joiner::new();
            if frames_first {
                for frame in &frames {
                    joiner.frame(*frame, &mut out);
                }
                jobs.iter().for_each(|j| joiner.job(j, &mut out));
            } else {
                // Acknowledgements are exact only while frames are not later than the job records
                // by more than one echo; interleave as a collector does.
                for (j, job) in jobs.iter().enumerate() {
                    joiner.job(job, &mut out);
                    let due = [vec![frames[0]], vec![frames[2]], vec![frames[1]], vec![]];
                    for frame in &due[j] {
                        joiner.frame(*frame, &mut out);
                    }
                }
            }
            assert!(joiner.finish(&mut out).is_empty());
            got.sort_unstable();
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn stages_add_up_to_the_reaction() {
        let mut all = Vec::new();
        let mut joiner = Joiner::new();
        joiner.frame(frame(0, 1, 100), &mut |r| all.push(r));
        joiner.job(&job(1, 120, &[1], 0), &mut |r| all.push(r));
        joiner.finish(&mut |r| all.push(r));
        let stages = all[0].stages_ns();
        assert_eq!(stages[1..6].iter().sum::<u64>(), all[0].reaction_ns());
        assert_eq!(stages, [5, 1, 9, 2, 8, 2, 0]);
    }

    #[test]
    fn superseded_and_unanswered_frames_are_not_hidden() {
        let mut all = Vec::new();
        let mut joiner = Joiner::new();
        for sequence in 1..=4 {
            joiner.frame(frame(2, sequence, 100 * sequence), &mut |r| all.push(r));
        }
        joiner.job(&job(1, 350, &[0, 0, 3], 0), &mut |r| all.push(r));
        let open = joiner.finish(&mut |r| all.push(r));
        assert_eq!(open.iter().map(|f| f.sequence).collect::<Vec<_>>(), [4]);
        let superseded: Vec<_> =
            all.iter().map(|r| (r.frame.sequence, r.superseded, r.reaction_ns())).collect();
        assert_eq!(superseded, [(1, true, 252), (2, true, 152), (3, false, 52)]);
    }

    /// The job that consumed a frame without a judgement stopped the robot because it was blind. It
    /// is no reaction, neither to that frame nor to the one before, which the next judgement
    /// answers.
    #[test]
    fn a_frame_without_a_judgement_is_no_reaction_and_answers_none() {
        for blind_first in [true, false] {
            let mut all = Vec::new();
            let mut joiner = Joiner::new();
            joiner.frame(frame(0, 1, 100), &mut |r| all.push(r));
            let second = blind(0, 2, 150);
            if blind_first {
                joiner.frame(second, &mut |r| all.push(r));
                joiner.job(&job(1, 160, &[2], 0), &mut |r| all.push(r));
                joiner.frame(frame(0, 3, 200), &mut |r| all.push(r));
                joiner.job(&job(2, 220, &[3], 0), &mut |r| all.push(r));
            } else {
                let mut other = Joiner::new();
                other.job(&job(1, 160, &[2], 0), &mut |r| all.push(r));
                other.frame(second, &mut |r| all.push(r));
                other.job(&job(2, 220, &[3], 0), &mut |r| all.push(r));
                other.frame(frame(0, 1, 100), &mut |r| all.push(r));
                other.frame(frame(0, 3, 200), &mut |r| all.push(r));
                joiner = other;
            }
            assert!(joiner.finish(&mut |r| all.push(r)).is_empty());
            let found: Vec<_> =
                all.iter().map(|r| (r.frame.sequence, r.superseded, r.reaction_ns())).collect();
            assert_eq!(found, [(1, true, 122), (3, false, 22)], "blind first: {blind_first}");
        }
    }

    #[test]
    fn what_waits_for_a_dead_task_is_bounded_and_counted() {
        let (mut answered, mut given_up) = (0u64, 0u64);
        let mut joiner = Joiner::new();
        // No job ever comes, then a controller that echoes nothing, then jobs whose frames' records
        // were lost.
        for sequence in 1..=10_000u64 {
            given_up +=
                u64::from(joiner.frame(frame(0, sequence, 100 * sequence), &mut |_| answered += 1).is_some());
            joiner.frame(blind(1, sequence, 100 * sequence), &mut |_| answered += 1);
        }
        assert_eq!((answered, given_up), (0, 10_000 - MAX_WAITING as u64));
        let silent =
            |index, inputs: &[u64]| SsmJob { echo_received_ns: 0, ..job(index, 100 * index + 20, inputs, 0) };
        for sequence in 10_001..=20_000u64 {
            given_up +=
                u64::from(joiner.frame(frame(0, sequence, 100 * sequence), &mut |_| answered += 1).is_some());
            joiner.job(&silent(sequence, &[sequence, 0, sequence]), &mut |_| answered += 1);
        }
        assert!(joiner.waiting() <= 4 * MAX_WAITING, "{}", joiner.waiting());
        let mut last = 0u64;
        assert!(joiner.finish(&mut |_| last += 1).is_empty());
        assert_eq!(answered + last + given_up, 20_000, "every frame is reported once");
    }
}
