//! Observations of the thread that times a run, about cameras and link: faults that leave no record
//! because nothing arrived.

use std::time::{Duration, Instant};

use takt_lab::Happening;
use takt_link_camera::{CameraFeed, FeedState, FeedStatus};
use takt_link_rtde::client::LinkEvent;
use takt_rt::clock::monotonic_ns;

use crate::Cell;

/// Link events that are kept one by one: a link that flaps for weeks must not fill the memory.
const EVENTS_KEPT: usize = 256;

/// Watches over a run from the start of the cell to its end.
#[derive(Debug)]
pub(super) struct Watch {
    /// The first events of the link, in words.
    pub events: Vec<String>,
    events_left_out: u64,
    /// Number of losses of the robot link.
    pub lost: u64,
    first_loss: Option<String>,
    ended: Vec<bool>,
    last_turn: Instant,
    /// What has been told of each camera.
    reported: Vec<Option<String>>,
    /// Longest time between two turns of the loop: together with a pause of the SSM task it reports
    /// of a process that stood still.
    pub longest_still: Duration,
}

impl Watch {
    pub(super) fn new(cameras: usize) -> Self {
        Self {
            events: Vec::new(),
            events_left_out: 0,
            lost: 0,
            first_loss: None,
            ended: vec![false; cameras],
            reported: vec![None; cameras],
            last_turn: Instant::now(),
            longest_still: Duration::ZERO,
        }
    }

    /// One look, every now and then.
    pub(super) fn turn(&mut self, cell: &Cell) {
        for event in cell.link_events() {
            if let LinkEvent::Lost { reason, .. } = &event {
                self.lost += 1;
                self.first_loss.get_or_insert_with(|| reason.clone());
            }
            report_link(&event);
            match self.events.len() {
                0..EVENTS_KEPT => self.events.push(format!("{event:?}")),
                _ => self.events_left_out += 1,
            }
        }
        for (ended, feed) in self.ended.iter_mut().zip(cell.feeds()) {
            *ended |= feed.state() == FeedState::Ended;
        }
    }

    /// Tells those who operate the cell of cameras that were lost and that came back.
    pub(super) fn report_cameras(&mut self, cell: &Cell, names: &[String]) {
        let feeds = cell.feeds().iter().zip(names).zip(&self.ended).zip(&mut self.reported);
        for (((feed, name), ended), reported) in feeds {
            let found = match feed.status() {
                FeedStatus::Starting => None,
                _ => camera(feed, name, *ended),
            };
            if found != *reported {
                let cause = found.clone().unwrap_or_else(|| format!("camera {name} delivers again"));
                takt_lab::report_event(Happening::Link, monotonic_ns(), None, cause);
                *reported = found;
            }
        }
    }

    /// The same from the loop that turns at its own pace: one that comes late is noted.
    pub(super) fn punctual_turn(&mut self, cell: &Cell) {
        self.longest_still = self.longest_still.max(self.last_turn.elapsed());
        self.turn(cell);
        self.last_turn = Instant::now();
    }

    /// The loop begins now.
    pub(super) fn begin(&mut self) {
        self.last_turn = Instant::now();
    }

    /// Faults so far that remain whatever comes, for a checkpoint.
    pub(super) fn so_far(&self, cell: &Cell, names: &[String], max_link_losses: u64) -> Vec<String> {
        let delivers = |feed: &CameraFeed| feed.status() != FeedStatus::Starting;
        let feeds = cell.feeds().iter().zip(names).zip(&self.ended).filter(|((feed, _), _)| delivers(feed));
        let cameras = feeds.flat_map(|((feed, name), ended)| {
            camera(feed, name, *ended).into_iter().chain(without_partner(feed, name))
        });
        self.link_lost(max_link_losses).into_iter().chain(cameras).collect()
    }

    fn link_lost(&self, max_link_losses: u64) -> Option<String> {
        let why = self.first_loss.as_deref().unwrap_or("unknown");
        (self.lost > max_link_losses)
            .then(|| format!("the robot link was lost {} times; first: {why}", self.lost))
    }

    /// Faults, one sentence each. The robot link may be lost `max_link_losses` times.
    pub(super) fn troubles(&mut self, cell: &Cell, names: &[String], max_link_losses: u64) -> Vec<String> {
        self.turn(cell);
        let mut reported: Vec<String> = self.link_lost(max_link_losses).into_iter().collect();
        for ((feed, name), ended) in cell.feeds().iter().zip(names).zip(&self.ended) {
            reported.extend(camera(feed, name, *ended));
            reported.extend(without_partner(feed, name));
        }
        if self.events_left_out > 0 {
            self.events.push(format!("and {} more events", self.events_left_out));
        }
        reported
    }
}

/// The first connection is none that has changed: a run tells of its start.
fn report_link(event: &LinkEvent) {
    let (at_ns, cause) = match event {
        LinkEvent::Connected { at_ns, version } => {
            (*at_ns, format!("connected to the controller ({version})"))
        }
        LinkEvent::Lost { at_ns, reason } => (*at_ns, format!("the robot link is lost: {reason}")),
        LinkEvent::Retry { at_ns, reason } => (*at_ns, format!("connecting again failed: {reason}")),
        LinkEvent::Message { at_ns, text } => (*at_ns, format!("the controller says: {text}")),
    };
    takt_lab::report_event(Happening::Link, at_ns, None, cause);
}

/// Images that a recording has and that were no frames. They are in the counts of dropped frames;
/// this is why.
fn without_partner(feed: &CameraFeed, name: &str) -> Option<String> {
    feed.unpaired().map(|unpaired| format!("camera {name}: {unpaired}"))
}

fn camera(feed: &CameraFeed, name: &str, ended: bool) -> Option<String> {
    let failure = || feed.last_failure().unwrap_or_else(|| "unknown".into());
    if ended {
        return Some(format!("camera {name} ended before the run: its recording was over"));
    }
    match feed.status() {
        FeedStatus::Failed { message, retrying: false } => Some(format!("camera {name} failed: {message}")),
        FeedStatus::Failed { message, retrying: true } => {
            Some(format!("camera {name} was lost and did not come back: {message}"))
        }
        FeedStatus::Starting => Some(format!("camera {name} delivered no frame at all")),
        _ if feed.interruptions() > 0 => Some(format!(
            "camera {name} was lost {} times and came back: {}",
            feed.interruptions(),
            failure()
        )),
        _ => None,
    }
}
