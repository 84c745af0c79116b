//! The cell's side of one camera: asks the worker, waits no longer than the budget, and always has
//! an answer or says that there is none.

use std::sync::Arc;

use crate::{BreakerConfig, Detections, FrameHealth, FramePose, GpuConfig, Overlay, Perception, WhenOpen};
use takt_link_camera::Frame;
use takt_rt::clock::monotonic_ns;
use takt_rt::ring::Producer;

use crate::process::breaker::{State, Trip, View};
use crate::process::channel::{Asker, Waited};
use crate::process::event::{EventKind, Record};
use crate::process::text::Text;
use crate::process::wire::{Answer, Garbled, Outcome, Question};
use crate::process::worker_state::WorkerState;

/// Origin of a frame's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The worker's.
    Worker,
    /// The fallback's.
    Fallback,
    /// Nobody's: the camera says that it is blind, which stops the robot.
    Blind,
    /// None; nothing must be published.
    Dropped,
}

/// Rules of one camera's side.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub budget_ns: u64,
    pub hang_ns: u64,
    pub overruns: u32,
    pub when_open: WhenOpen,
}

impl Rules {
    pub fn of(config: &GpuConfig) -> Self {
        let ns = |ms: f64| (ms * 1e6) as u64;
        let BreakerConfig { hang_ms, overruns, when_open, .. } = config.breaker;
        Self {
            budget_ns: ns(if config.enforce_budget { config.budget_ms } else { hang_ms }),
            hang_ns: ns(hang_ms),
            overruns,
            when_open,
        }
    }
}

/// One camera's perception in another process. One thread owns it.
///
/// After the first frames nothing is allocated here; the only system calls are the wait, with an
/// absolute end, and the wake-up of the worker.
#[derive(Debug)]
pub struct Remote {
    camera: u32,
    asker: Asker,
    shared: Arc<WorkerState>,
    rules: Rules,
    fallback: Option<Perception>,
    records: Producer<Record>,
    overruns: u32,
    /// Since when frames wait without any answer; 0 when none does.
    silent_since_ns: u64,
    generation: u32,
    /// Reason why the newest frame has no answer.
    unanswered: Text,
}

impl Remote {
    pub(crate) fn new(
        camera: u32,
        asker: Asker,
        shared: Arc<WorkerState>,
        rules: Rules,
        fallback: Option<Perception>,
        records: Producer<Record>,
    ) -> Self {
        Self {
            camera,
            asker,
            shared,
            rules,
            fallback,
            records,
            overruns: 0,
            silent_since_ns: 0,
            generation: 0,
            unanswered: Text::EMPTY,
        }
    }

    /// Index of the camera.
    pub fn camera(&self) -> u32 {
        self.camera
    }

    /// Judges one frame, as [`Perception::process`] does. `out` counts unless the frame was
    /// [`Judged::Dropped`].
    pub fn process(
        &mut self,
        frame: &Frame,
        pose: Option<&FramePose>,
        start_ns: u64,
        out: &mut Detections,
        overlay: Option<&mut Overlay>,
    ) -> Judged {
        let view = self.shared.breaker.view();
        if !view.asks() {
            self.unanswered = Text::format(format_args!("not sent: the breaker is {}", view.in_words()));
        }
        if view.asks() && self.ask(view, frame, pose, start_ns, out) {
            out.times.arrival_ns = frame.arrival_ns;
            out.times.start_ns = start_ns;
            if let Some(overlay) = overlay {
                blank(overlay, frame);
            }
            return Judged::Worker;
        }
        // Looked at again: if this very frame opened the breaker, it is the first to be answered
        // that way.
        if !self.shared.breaker.view().asks() && self.rules.when_open == WhenOpen::Stop {
            self.be_blind(frame, pose, start_ns, out);
            return Judged::Blind;
        }
        match &mut self.fallback {
            Some(perception) => {
                perception.process(frame, pose, start_ns, out, overlay);
                self.note(EventKind::Fallback, frame.sequence, start_ns, None, self.unanswered);
                Judged::Fallback
            }
            None => Judged::Dropped,
        }
    }

    /// Whether the worker answered in time.
    fn ask(
        &mut self,
        view: View,
        frame: &Frame,
        pose: Option<&FramePose>,
        start_ns: u64,
        out: &mut Detections,
    ) -> bool {
        let generation = self.shared.generation();
        if generation != self.generation {
            self.generation = generation;
            self.overruns = 0;
            self.silent_since_ns = 0;
        }
        let deadline_ns = start_ns.saturating_add(self.rules.budget_ns);
        let mut question = Question {
            ticket: 0,
            deadline_ns,
            start_ns,
            sequence: frame.sequence,
            capture_ns: frame.capture_ns,
            arrival_ns: frame.arrival_ns,
            pose: pose.copied(),
        };
        self.shared.breaker.asked(self.camera as usize, view);
        let Some(ticket) = self.asker.post(generation, frame, &mut question) else {
            let cause = Text::format(format_args!(
                "frame of {}x{} with {} depth values cannot be handed over: unexpected size, or the worker holds every slot",
                frame.width,
                frame.height,
                frame.depth_mm.len()
            ));
            self.overrun(view, EventKind::Failed, frame, start_ns, None, cause);
            return false;
        };
        if self.silent_since_ns == 0 {
            self.silent_since_ns = monotonic_ns();
        }
        let (camera, records, silent) = (self.camera, &mut self.records, &mut self.silent_since_ns);
        let breaker = &self.shared.breaker;
        let go_on = || breaker.view() == view || breaker.view().asks();
        let waited = self.asker.wait(ticket, deadline_ns, go_on, |late, answer| {
            let now_ns = monotonic_ns();
            // The next frame waits since now, if anything still does.
            *silent = now_ns;
            let cause = late_cause(late, generation, answer.as_ref(), now_ns);
            let about = answer.as_ref().map_or(0, |a| a.detections.frame_sequence);
            records.push(Record {
                camera: Some(camera),
                frame: about,
                ..timed(EventKind::Late, now_ns, generation, 0, answer.as_ref(), cause)
            });
        });
        match waited {
            Waited::Answer(answer) => self.take(view, frame, start_ns, &answer, out),
            Waited::Garbled(garbled) => {
                self.refuse(frame, start_ns, garbled);
                false
            }
            Waited::TimeUp => {
                let cause = Text::format(format_args!(
                    "no answer within {:.1} ms",
                    self.rules.budget_ns as f64 / 1e6
                ));
                self.overrun(view, EventKind::Overrun, frame, start_ns, None, cause);
                false
            }
            Waited::Abandoned => {
                let cause = Text::new("abandoned: the breaker opened in the meantime");
                self.unanswered = cause;
                self.note(EventKind::Overrun, frame.sequence, start_ns, None, cause);
                false
            }
        }
    }

    /// Judges an answer to the question that was asked.
    fn take(
        &mut self,
        view: View,
        frame: &Frame,
        start_ns: u64,
        answer: &Answer,
        out: &mut Detections,
    ) -> bool {
        self.silent_since_ns = 0;
        match answer.outcome {
            Outcome::Judged => {
                let found = &answer.detections;
                if (found.camera, found.frame_sequence, found.capture_ns)
                    != (self.camera, frame.sequence, frame.capture_ns)
                {
                    let garbled = Garbled::OtherFrame {
                        camera: found.camera,
                        asked: frame.sequence,
                        found: found.frame_sequence,
                    };
                    self.refuse(frame, start_ns, garbled);
                    return false;
                }
                *out = *found;
                self.overruns = 0;
                self.note(EventKind::Answered, frame.sequence, start_ns, Some(answer), Text::EMPTY);
                if self.shared.breaker.answered(self.camera as usize, view) {
                    self.note(EventKind::BreakerClosed, 0, 0, None, Text::new("all trial frames in time"));
                }
                true
            }
            Outcome::Failed(cause) => {
                self.overrun(view, EventKind::Failed, frame, start_ns, Some(answer), cause);
                false
            }
            Outcome::Overran(cause) => {
                self.overrun(view, EventKind::Overrun, frame, start_ns, Some(answer), cause);
                false
            }
            Outcome::Lost(cause) => {
                self.unanswered = cause;
                self.note(EventKind::Lost, frame.sequence, start_ns, Some(answer), cause);
                self.trip(Trip::Lost, cause);
                false
            }
        }
    }

    /// A frame without an answer: opens the breaker if that goes on.
    fn overrun(
        &mut self,
        view: View,
        kind: EventKind,
        frame: &Frame,
        start_ns: u64,
        answer: Option<&Answer>,
        cause: Text,
    ) {
        self.unanswered = cause;
        self.note(kind, frame.sequence, start_ns, answer, cause);
        self.overruns = self.overruns.saturating_add(1);
        let silent_ns = match self.silent_since_ns {
            0 => 0,
            since_ns => monotonic_ns().saturating_sub(since_ns),
        };
        if silent_ns >= self.rules.hang_ns {
            let cause = Text::format(format_args!("no answer at all for {:.0} ms", silent_ns as f64 / 1e6));
            self.note(EventKind::Hung, frame.sequence, start_ns, None, cause);
            self.trip(Trip::Hung, cause);
        } else if view.state() == State::HalfOpen {
            self.trip(Trip::Overruns, Text::format(format_args!("on trial: {cause}")));
        } else if self.overruns >= self.rules.overruns {
            let cause =
                Text::format(format_args!("{} frames in a row without an answer: {cause}", self.overruns));
            self.trip(Trip::Overruns, cause);
        }
    }

    fn refuse(&mut self, frame: &Frame, start_ns: u64, garbled: Garbled) {
        let cause = Text::format(format_args!("{garbled}"));
        self.unanswered = cause;
        self.note(EventKind::Garbled, frame.sequence, start_ns, None, cause);
        self.trip(Trip::Garbled, cause);
    }

    fn trip(&mut self, trip: Trip, cause: Text) {
        if self.shared.breaker.trip(trip) {
            self.overruns = 0;
            self.silent_since_ns = 0;
            self.note(EventKind::BreakerOpen, 0, 0, None, cause);
            self.shared.changed.notify();
        }
    }

    fn note(&mut self, kind: EventKind, frame: u64, asked_ns: u64, answer: Option<&Answer>, cause: Text) {
        let record = timed(kind, monotonic_ns(), self.generation, asked_ns, answer, cause);
        // A full ring counts its losses.
        self.records.push(Record { camera: Some(self.camera), frame, ..record });
    }

    fn be_blind(&self, frame: &Frame, pose: Option<&FramePose>, start_ns: u64, out: &mut Detections) {
        *out = Detections::default();
        out.camera = self.camera;
        out.frame_sequence = frame.sequence;
        out.capture_ns = frame.capture_ns;
        out.health = FrameHealth::InferenceFailed;
        if let Some(pose) = pose {
            out.tcp_m = pose.tcp_in_base.translation.vector.cast();
        }
        let now_ns = monotonic_ns();
        let times = &mut out.times;
        (times.arrival_ns, times.start_ns) = (frame.arrival_ns, start_ns);
        (times.inferred_ns, times.projected_ns, times.published_ns) = (now_ns, now_ns, now_ns);
    }
}

fn timed(
    kind: EventKind,
    time_ns: u64,
    generation: u32,
    asked_ns: u64,
    answer: Option<&Answer>,
    cause: Text,
) -> Record {
    let mut record = Record { asked_ns, ..Record::of(kind, time_ns, generation, cause) };
    if let Some(answer) = answer {
        (record.taken_ns, record.done_ns) = (answer.taken_ns, answer.done_ns);
        record.stages = answer.stages;
    }
    record
}

fn late_cause(ticket: u64, generation: u32, answer: Option<&Answer>, now_ns: u64) -> Text {
    let of = ticket >> 32;
    match answer {
        _ if of != u64::from(generation) => Text::format(format_args!(
            "answer from worker process {of}, which has ended; {generation} is used now"
        )),
        Some(answer) => Text::format(format_args!(
            "{:.1} ms in the worker, discarded",
            answer.done_ns.saturating_sub(answer.taken_ns).min(now_ns) as f64 / 1e6
        )),
        None => Text::new("an invalid answer, discarded"),
    }
}

/// The worker sends no masks: the view shows boxes.
fn blank(overlay: &mut Overlay, frame: &Frame) {
    (overlay.frame_sequence, overlay.width, overlay.height) = (frame.sequence, frame.width, frame.height);
    overlay.mask.resize(frame.width as usize * frame.height as usize, 0);
    overlay.mask.fill(0);
}
