//! τ_p_i: waits for a frame of one camera, or takes it in itself, judges it, publishes what it
//! says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_link_camera::{Acquisition, Frame};
use takt_link_rtde::client::{STATE_HISTORY, StateHistory};
use takt_perception::process::{Judged, Remote};
use takt_perception::{
    Detections, FrameHealth, FramePose, FrameWatch, Mount, MountFrame, ObjectKind, Overlay, Perception,
    PoseHistory,
};
use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{Reader, Writer};
use takt_rt::ring::Producer;
use takt_rt::signal::Signal;

use crate::arm::{ArmShape, Viewpoint, joints_at};
use crate::poses::tool_poses;
use crate::records::FrameRecord;

/// Connections of the task.
pub struct PerceptionPorts {
    /// The camera, where this task acquires its frames itself; they come back through `frames`, as
    /// the view's do.
    pub acquisition: Option<Acquisition>,
    /// Frames of the camera.
    pub frames: Reader<Frame>,
    /// Notified with every frame.
    pub signal: Signal,
    /// Recent states of the robot, from the receiver of its packets.
    pub robot: Reader<StateHistory>,
    /// Results.
    pub detections: Writer<Detections>,
    /// Masks for the view; absent where nobody looks.
    pub overlays: Option<Writer<Overlay>>,
    /// All records, for the collector.
    pub records: Producer<FrameRecord>,
    /// Cleared when the thread ends, however it ends.
    pub alive: Arc<AtomicBool>,
    /// Asks the thread to end after the newest frame.
    pub stop: Arc<AtomicBool>,
}

#[derive(Debug)]
pub enum Judging {
    /// This very thread.
    Here(Box<Perception>),
    /// A worker process, under a time budget.
    There(Box<Remote>),
}

impl Judging {
    fn camera(&self) -> u32 {
        match self {
            Self::Here(perception) => perception.camera(),
            Self::There(remote) => remote.camera(),
        }
    }

    /// Judges a frame; false when it has no result and nothing must be published.
    fn process(
        &mut self,
        frame: &Frame,
        pose: Option<&FramePose>,
        start_ns: u64,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) -> bool {
        match self {
            Self::Here(perception) => {
                perception.process(frame, pose, start_ns, out, overlay);
                true
            }
            Self::There(remote) => remote.process(frame, pose, start_ns, out, overlay) != Judged::Dropped,
        }
    }
}

pub struct PerceptionTask {
    judging: Judging,
    mount: Mount,
    arm: Option<Arc<ArmShape>>,
    history: PoseHistory,
    ports: PerceptionPorts,
    watch: FrameWatch,
    /// The camera's last processed frame, by the exchange's own count: a frame's number is the
    /// camera's, and may repeat.
    last_write: u64,
    last_sequence: u64,
    /// Frames taken up since the last record that nobody judged.
    unjudged: u64,
}

/// Period at which a thread without frames checks whether it must end.
const WAIT: Duration = Duration::from_millis(50);

/// Poses up to this much older than a capture are held, as long as the link may be silent before
/// SSM stops the robot: at 1 m/s the pose is then wrong by 4 cm at most. A capture is normally
/// older than the newest pose, because the frame had to be transferred first.
const POSE_HOLD_NS: u64 = 40_000_000;

/// Poses further apart than this are not interpolated between: the link was down.
const POSE_GAP_NS: u64 = 50_000_000;

/// Clears the flag when the thread unwinds, too.
struct AliveGuard(Arc<AtomicBool>);

impl Drop for AliveGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl PerceptionTask {
    /// A task that has judged no frame yet.
    ///
    /// With an `arm`, what the robot occupied is left out of every frame; a frame without its
    /// joints has no pose.
    pub fn new(
        judging: Judging,
        mount: Mount,
        arm: Option<Arc<ArmShape>>,
        watch: FrameWatch,
        ports: PerceptionPorts,
    ) -> Self {
        let history = PoseHistory::new(2 * STATE_HISTORY, POSE_HOLD_NS, POSE_GAP_NS);
        Self { judging, mount, arm, history, ports, watch, last_write: 0, last_sequence: 0, unjudged: 0 }
    }

    /// Judges frames until asked to stop, and the newest one after that.
    pub fn run(mut self) {
        let _alive = AliveGuard(Arc::clone(&self.ports.alive));
        loop {
            let seen = self.ports.signal.value();
            // Before looking for a frame: a frame that came before the wish to stop is still
            // judged.
            let stop = self.ports.stop.load(Ordering::Acquire);
            if !self.judge_newest() {
                if stop {
                    return;
                }
                self.await_frame(seen);
            }
        }
    }

    /// Takes a frame in, or waits until somebody else has, or a time that bounds the stop has
    /// passed.
    fn await_frame(&mut self, seen: u32) {
        let Some(acquisition) = &mut self.ports.acquisition else {
            self.ports.signal.wait(seen, WAIT);
            return;
        };
        if !acquisition.acquire() {
            // The camera is over: what remains is to wait for the end.
            self.ports.acquisition = None;
        }
    }

    /// Judges the newest frame if it is new; false when it is not.
    pub fn judge_newest(&mut self) -> bool {
        let ports = &mut self.ports;
        let newest_ns = self.history.newest_ns();
        let states = ports.robot.read().value;
        // A pose of the future would keep out all that follow until then.
        let now_ns = monotonic_ns();
        let known = |(t_ns, _): &(u64, _)| newest_ns.is_some_and(|n| *t_ns <= n);
        for (t_ns, pose) in tool_poses(states).skip_while(known).filter(|(t_ns, _)| *t_ns <= now_ns) {
            self.history.push(t_ns, &pose);
        }
        let snapshot = ports.frames.read();
        if snapshot.sequence == self.last_write {
            return false;
        }
        self.last_write = snapshot.sequence;
        let frame = snapshot.value;
        let start_ns = monotonic_ns();
        // A source that restarts counts from 1 again; that is no loss that could be counted. A
        // number may be anything: bounded, so that sums of losses stay sums.
        let dropped = frame.sequence.saturating_sub(self.last_sequence.saturating_add(1)).min(1 << 32);
        self.last_sequence = frame.sequence;
        let health = self.watch.judge(frame, start_ns);
        if health != FrameHealth::Ok {
            // A frame that is not even of its own size has nothing to draw on.
            if let Some(overlays) = ports.overlays.as_mut().filter(|_| health != FrameHealth::WrongSize) {
                overlays.write(start_ns, |overlay| overlay.reset(frame.sequence, frame.width, frame.height));
            }
            let result = Detections::blind(self.judging.camera(), frame, health, start_ns, monotonic_ns());
            let dropped = dropped + std::mem::take(&mut self.unjudged);
            ports.records.push(record(&result, dropped));
            ports.detections.publish(result.times.published_ns, result);
            return true;
        }
        let pose = self.history.at(frame.capture_ns).and_then(|tcp_in_base| {
            let mut pose = self.mount.at(&tcp_in_base);
            if let Some(known) = frame.camera_in_base {
                pose.camera_in_base = known;
            }
            if let Some(arm) = &self.arm {
                let joints = joints_at(states, frame.capture_ns, POSE_HOLD_NS, POSE_GAP_NS)?;
                let rides = self.mount.frame == MountFrame::Tcp && frame.camera_in_base.is_none();
                let viewpoint = if rides { Viewpoint::Tcp } else { Viewpoint::Base };
                pose.robot = arm.at(&joints, &tcp_in_base, &pose.camera_in_base, viewpoint)?;
            }
            Some(pose)
        });
        let mut result = Detections::default();
        let mut judged = true;
        match &mut ports.overlays {
            None => judged = self.judging.process(frame, pose.as_ref(), start_ns, &mut result, None),
            Some(overlays) => {
                overlays.write(start_ns, |overlay| {
                    judged = self.judging.process(frame, pose.as_ref(), start_ns, &mut result, Some(overlay));
                });
            }
        }
        if !judged {
            self.unjudged += dropped + 1;
            return true;
        }
        let dropped = dropped + std::mem::take(&mut self.unjudged);
        // A repeated picture is as old as the original.
        result.capture_ns = result.capture_ns.min(self.watch.content_ns());
        result.times.published_ns = monotonic_ns();
        // The record goes first: whoever sees the result in a job's record finds the frame's record
        // as well.
        ports.records.push(record(&result, dropped));
        ports.detections.publish(result.times.published_ns, result);
        true
    }
}

fn record(result: &Detections, dropped: u64) -> FrameRecord {
    let count = |kind| result.objects().iter().filter(|o| o.kind == kind).count() as u32;
    FrameRecord {
        camera: result.camera,
        sequence: result.frame_sequence,
        capture_ns: result.capture_ns,
        arrival_ns: result.times.arrival_ns,
        start_ns: result.times.start_ns,
        inferred_ns: result.times.inferred_ns,
        projected_ns: result.times.projected_ns,
        published_ns: result.times.published_ns,
        health: result.health,
        people: count(ObjectKind::Person),
        unexplained: count(ObjectKind::Unexplained) + count(ObjectKind::Unseen),
        nearest_m: result.nearest().map_or(f32::INFINITY, |o| o.distance_m),
        detected: result.detected,
        masks: result.masks,
        dropped,
    }
}
