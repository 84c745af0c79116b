//! When a cycle begins.

use std::time::Duration;

use takt_link_rtde::RtdeError;
use takt_link_rtde::client::{ClockFollower, Content};
use takt_link_rtde::servo::ServoLink;
use takt_rt::clock::monotonic_ns;
use takt_rt::periodic::Periodic;

use crate::config::{Pacing, ServoConfig};

/// The beginning of a cycle.
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    /// Number of the control cycle.
    pub index: u64,
    /// When it was to begin.
    pub planned_ns: u64,
    /// When it began.
    pub wake_ns: u64,
    /// Cycles passed over before it.
    pub skipped: u64,
    /// Packets that came for it.
    pub packets: u32,
    /// Control cycles that no packet reported.
    pub lost_packets: u32,
    /// Own time of the newest packet, if one arrived.
    pub content: Option<Content>,
}

/// Waits for cycles.
#[derive(Debug)]
pub struct Pacer {
    pacing: Pacing,
    period_ns: u64,
    grid: Periodic,
    clock: ClockFollower,
    /// Controller time of cycle 0.
    first_s: Option<f64>,
    /// Number of the newest packet's cycle, and of the newest cycle that began.
    received: u64,
    index: u64,
    begun: bool,
    /// When the next packet can be here at the earliest.
    due_ns: u64,
    /// When the newest state was measured.
    measured_ns: u64,
}

impl Pacer {
    /// Begins now, with a link that has delivered.
    ///
    /// # Errors
    /// A period of zero.
    pub fn new(config: &ServoConfig, link: &ServoLink) -> Result<Self, takt_rt::Error> {
        let period_ns = config.period_ns();
        let now_ns = monotonic_ns();
        let grid = Periodic::new(now_ns + period_ns, Duration::from_nanos(period_ns), config.task.sleep)?;
        Ok(Self {
            pacing: config.task.pacing,
            period_ns,
            grid,
            clock: ClockFollower::default(),
            first_s: None,
            received: 0,
            index: 0,
            begun: false,
            due_ns: now_ns + period_ns,
            measured_ns: link.state().received_ns,
        })
    }

    /// Age of the newest state at `now_ns`.
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.measured_ns)
    }

    /// Waits for the next cycle; at most one and a half periods.
    ///
    /// # Errors
    /// The link broke.
    pub fn next(&mut self, link: &mut ServoLink) -> Result<Wake, RtdeError> {
        match self.pacing {
            Pacing::Locked => self.with_the_packet(link),
            Pacing::Free => self.on_the_grid(link),
        }
    }

    fn with_the_packet(&mut self, link: &mut ServoLink) -> Result<Wake, RtdeError> {
        let (mut packets, mut lost_packets, mut content) = (0, 0, None);
        loop {
            let until_ns = self.due_ns.saturating_add(self.period_ns / 2);
            let came = link.receive(until_ns)?;
            if came > 0 {
                packets += came;
                let (lost, now) = self.follow(link, came);
                lost_packets += lost;
                content = Some(now);
                // A packet of a cycle that has begun without it brings news, and no new cycle.
                if self.received > self.index || !self.begun {
                    self.due_ns = self.measured_ns + self.period_ns;
                    let (index, wake_ns) = (self.received, link.state().received_ns);
                    let skipped = self.begin(index);
                    let planned_ns = self.measured_ns;
                    return Ok(Wake { index, planned_ns, wake_ns, skipped, packets, lost_packets, content });
                }
            }
            // A clock that does not go on is for the monitor, and packets of the past keep nobody
            // beyond the time.
            let doubt = content.is_some_and(|content| content != Content::New);
            if came == 0 || doubt || monotonic_ns() >= until_ns {
                // Late or lost: the arm must not wait for it. Time goes on by what was expected.
                let wake_ns = monotonic_ns();
                let away = wake_ns.saturating_sub(self.due_ns) / self.period_ns;
                let planned_ns = self.due_ns + away * self.period_ns;
                self.due_ns = planned_ns + self.period_ns;
                let index = self.index + 1 + away;
                let skipped = self.begin(index);
                return Ok(Wake { index, planned_ns, wake_ns, skipped, packets, lost_packets, content });
            }
        }
    }

    fn on_the_grid(&mut self, link: &mut ServoLink) -> Result<Wake, RtdeError> {
        let release = self.grid.next();
        let packets = link.receive(0)?;
        let (lost_packets, content) = if packets > 0 {
            let (lost, content) = self.follow(link, packets);
            (lost, Some(content))
        } else {
            (0, None)
        };
        // Before the first one lies the thread's own start.
        let skipped = self.begin(release.index);
        Ok(Wake {
            index: release.index,
            planned_ns: release.planned_ns,
            wake_ns: release.wake_ns,
            skipped,
            packets,
            lost_packets,
            content,
        })
    }

    fn begin(&mut self, index: u64) -> u64 {
        let skipped = if self.begun { index.saturating_sub(self.index + 1) } else { 0 };
        self.begun = true;
        self.index = index;
        skipped
    }

    /// Takes the newest state's time in; how many control cycles no packet reported.
    fn follow(&mut self, link: &ServoLink, packets: u32) -> (u32, Content) {
        let state = link.state();
        let followed = self.clock.follow(state.controller_s, state.received_ns, false);
        self.measured_ns = followed.measured_ns;
        let first_s = *self.first_s.get_or_insert(state.controller_s);
        let cycles = (state.controller_s - first_s) * 1e9 / self.period_ns as f64;
        // No number, or a time before the first: the monitor stops for it.
        let received = if cycles.is_finite() && cycles > 0.0 { cycles.round() as u64 } else { 0 };
        let passed = received.saturating_sub(self.received);
        let lost = passed.saturating_sub(packets.into());
        self.received = received;
        (u32::try_from(lost).unwrap_or(u32::MAX), followed.content)
    }
}
