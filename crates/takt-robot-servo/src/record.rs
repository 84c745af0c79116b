//! Records of the thread: one for every cycle, and sums that are complete even if records were
//! lost.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CycleRecord {
    /// Number of the control cycle, from 0 at the first packet; passed over ones count.
    pub index: u64,
    /// When it was to begin: paced by the controller, when its packet could be here at the
    /// earliest; free, the grid.
    pub planned_ns: u64,
    /// When the thread was awake with it.
    pub wake_ns: u64,
    /// When the newest packet, which it answers, was read.
    pub received_ns: u64,
    /// When the command was handed to the kernel; 0 where none was.
    pub sent_ns: u64,
    /// When the cycle's work ended.
    pub end_ns: u64,
    /// Age of the state that the command answers, at the time of sending.
    pub age_ns: u64,
    /// Releases passed over since the record before.
    pub skipped: u32,
    /// Packets that came.
    pub packets: u32,
    /// Control cycles that no packet reported.
    pub lost_packets: u32,
    /// Farthest joint from the newest target, rad.
    pub following_rad: f64,
    /// Controller time of the state.
    pub controller_s: f64,
    /// Joints of the state, rad.
    pub joints_rad: [f64; 6],
    /// Newest targets that were planned, rad.
    pub targets_rad: [f64; 6],
    /// Count of the command.
    pub count: i32,
    /// Control cycles without a command, as the program on the robot has counted so far.
    pub missed: i32,
    /// Most of them in a row, by the same count.
    pub longest: i32,
    /// Whether targets were streamed, not held before or after.
    pub streaming: bool,
}

impl CycleRecord {
    /// Wake-up after the planned release.
    pub fn lateness_ns(&self) -> u64 {
        self.wake_ns.saturating_sub(self.planned_ns)
    }

    /// Command sent after the planned release; without one, the end of the cycle.
    pub fn response_ns(&self) -> u64 {
        let done_ns = if self.sent_ns > 0 { self.sent_ns } else { self.end_ns };
        done_ns.saturating_sub(self.planned_ns)
    }

    /// From reading the packet to handing the command to the kernel.
    pub fn packet_to_command_ns(&self) -> Option<u64> {
        (self.sent_ns > 0).then(|| self.sent_ns.saturating_sub(self.received_ns))
    }
}

/// Sums of one quantity over cycles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extremes {
    /// Number of values.
    pub count: u64,
    /// The least; `u64::MAX` without one.
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u64,
}

impl Default for Extremes {
    fn default() -> Self {
        Self { count: 0, min_ns: u64::MAX, max_ns: 0, sum_ns: 0 }
    }
}

impl Extremes {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Mean, where there is one.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }
}

/// Sums over all cycles in which targets were streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Cycles that ran.
    pub cycles: u64,
    /// Releases passed over.
    pub skipped: u64,
    /// Cycles whose command was late against `task.deadline_us`, or never sent.
    pub late: u64,
    /// Packets that came.
    pub packets: u64,
    /// Control cycles that no packet reported.
    pub lost_packets: u64,
    /// Cycles without a packet.
    pub without_packet: u64,
    /// Commands that the kernel did not take.
    pub not_sent: u64,
    /// From one command to the next.
    pub period: Extremes,
    /// Sum of the differences of successive periods, nanoseconds: over their number the jitter of
    /// the UR driver's benchmark.
    pub jitter_sum_ns: u64,
    /// Sum of (period - nominal)², us²: for the benchmark's RMS error.
    pub period_squares_us2: f64,
    /// Wake-up after release.
    pub lateness: Extremes,
    /// Command after release.
    pub response: Extremes,
    /// Command after packet.
    pub packet_to_command: Extremes,
    /// Greatest following error, rad.
    pub following_max_rad: f64,
    /// Sum of its squares, rad².
    pub following_squares_rad2: f64,
    last_sent_ns: u64,
    last_period_ns: u64,
}

impl Totals {
    /// Takes a cycle in.
    pub fn add(&mut self, record: &CycleRecord, period_ns: u64, deadline_ns: u64) {
        self.cycles += 1;
        self.skipped += u64::from(record.skipped);
        self.packets += u64::from(record.packets);
        self.lost_packets += u64::from(record.lost_packets);
        self.without_packet += u64::from(record.packets == 0);
        self.lateness.add(record.lateness_ns());
        self.response.add(record.response_ns());
        self.late += u64::from(record.sent_ns == 0 || record.response_ns() > deadline_ns);
        if let Some(ns) = record.packet_to_command_ns() {
            self.packet_to_command.add(ns);
        }
        self.following_max_rad = self.following_max_rad.max(record.following_rad);
        self.following_squares_rad2 += record.following_rad.powi(2);
        if record.sent_ns == 0 {
            self.not_sent += 1;
            return;
        }
        if self.last_sent_ns > 0 {
            let now_ns = record.sent_ns.saturating_sub(self.last_sent_ns);
            if self.last_period_ns > 0 {
                self.jitter_sum_ns = self.jitter_sum_ns.saturating_add(now_ns.abs_diff(self.last_period_ns));
            }
            self.period.add(now_ns);
            self.period_squares_us2 += (now_ns.abs_diff(period_ns) as f64 / 1000.0).powi(2);
            self.last_period_ns = now_ns;
        }
        self.last_sent_ns = record.sent_ns;
    }

    /// Another stream begins: no period leads from the last command of the one before to its first.
    pub fn begin_again(&mut self) {
        (self.last_sent_ns, self.last_period_ns) = (0, 0);
    }

    /// Mean difference of successive periods: `j` of the UR driver's benchmark.
    pub fn jitter_ns(&self) -> Option<f64> {
        (self.period.count > 1).then(|| self.jitter_sum_ns as f64 / (self.period.count - 1) as f64)
    }

    /// Root of the mean squared difference from the nominal period.
    pub fn period_rms_error_ns(&self) -> Option<f64> {
        (self.period.count > 0).then(|| (self.period_squares_us2 / self.period.count as f64).sqrt() * 1000.0)
    }

    /// Root of the mean squared following error, rad.
    pub fn following_rms_rad(&self) -> Option<f64> {
        (self.cycles > 0).then(|| (self.following_squares_rad2 / self.cycles as f64).sqrt())
    }
}
