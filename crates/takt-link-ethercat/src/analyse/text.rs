//! The report for people.

use std::fmt::Write as _;

use super::report::{Report, Spread};

impl Report {
    /// Whether there is anything to judge: without a cyclic frame, nothing is not found because
    /// nothing was looked at.
    pub fn judges(&self) -> bool {
        self.cyclic_frames > 0
    }

    /// For people: figures, then findings, at most `most` of them, the worst of each kind. `cut`:
    /// the file breaks off after what is judged here.
    pub fn text(&self, most: usize, cut: bool) -> String {
        let mut text = String::new();
        let period =
            self.period_us.map_or(String::new(), |us| format!(", period {us:.1} µs (time by frames)"));
        let _ = writeln!(
            text,
            "{} frames, {} with process data, in {:.3} s{period}",
            self.frames, self.cyclic_frames, self.length_s
        );
        let _ = writeln!(
            text,
            "\n{:<28} {:>9} {:>10} {:>10} {:>10} {:>10}",
            "process data, µs", "frames", "least", "median", "99 %", "greatest"
        );
        if let Some(intervals) = &self.send_interval_us {
            let (n, min, median) = (intervals.n, intervals.min, intervals.median);
            let (p99, max) = (intervals.p99, intervals.max);
            let _ = writeln!(
                text,
                "{:<28} {n:>9} {min:>10.1} {median:>10.1} {p99:>10.1} {max:>10.1}",
                "from send to send"
            );
        }
        let rows: [(&str, &Option<Spread>); 5] = [
            ("application to interface", &self.host_send),
            ("round trip", &self.round_trip),
            ("  master to segment", &self.outward),
            ("  in the segment", &self.in_segment),
            ("  segment to master", &self.homeward),
        ];
        for (name, spread) in rows {
            if let Some(Spread { n, min_us, median_us, p99_us, max_us }) = spread {
                let _ = writeln!(
                    text,
                    "{name:<28} {n:>9} {min_us:>10.1} {median_us:>10.1} {p99_us:>10.1} {max_us:>10.1}"
                );
            }
        }
        let _ = writeln!(
            text,
            "\nslow: above {:.0} µs, late: above {:.0} µs",
            self.slow_limit_us, self.late_limit_us
        );
        let uneven = self.send_interval_us.as_ref().filter(|intervals| intervals.uneven);
        if let Some(intervals) = uneven {
            let _ = writeln!(text, "UNEVEN: {}", intervals.in_words());
        }
        if !self.judges() {
            let _ = writeln!(text, "nothing to judge: no cyclic EtherCAT frame");
        } else if self.findings.is_empty() && cut {
            let (cyclic, length_s) = (self.cyclic_frames, self.length_s);
            let _ = writeln!(
                text,
                "nothing slow, late or missing in the {cyclic} cyclic frames of {length_s:.3} s before the file ends abruptly; the rest is \
                 unknown"
            );
        } else if self.findings.is_empty() && uneven.is_some_and(|intervals| !intervals.has_due_times) {
            let _ = writeln!(
                text,
                "nothing slow or missing; lateness is not judged, because the period is unknown: pass it with `--period`"
            );
        } else if self.findings.is_empty() {
            let _ = writeln!(text, "nothing slow, late or missing");
        }
        for (kind, count) in &self.kinds {
            let _ = writeln!(text, "{:<12} {count}", kind.name());
        }
        for (blame, count) in &self.blames {
            let _ = writeln!(text, "to blame: {:<22} {count}", blame.name());
        }
        if self.held_up > 0 {
            let _ = writeln!(
                text,
                "{} frames were sent late because the previous answer was late or missing",
                self.held_up
            );
        }
        if self.unasked > 0 {
            let _ = writeln!(
                text,
                "{} unexpected answers (duplicates, or to frames from before the capture)",
                self.unasked
            );
        }
        if let Some(cycles) = self.cycles_found {
            let _ = writeln!(text, "{cycles} cycles of the application's log found");
        }
        // The worst ones, in the order of time.
        let mut shown: Vec<usize> = (0..self.findings.len()).collect();
        shown.sort_by(|&a, &b| {
            let excess = |at: usize| self.findings[at].excess_us.unwrap_or(f64::INFINITY);
            excess(b).total_cmp(&excess(a))
        });
        shown.truncate(most);
        shown.sort_unstable();
        if !shown.is_empty() {
            let _ = writeln!(
                text,
                "\n{:>9} {:>10} {:<11} {:>10}  {:<20} evidence",
                "frame", "at s", "what", "trip µs", "to blame"
            );
        }
        for at in &shown {
            let finding = &self.findings[*at];
            let frame = if finding.frame > 0 { finding.frame.to_string() } else { "-".to_owned() };
            let trip = finding.round_trip_us.map_or("-".to_owned(), |us| format!("{us:.0}"));
            let counters: Vec<String> = finding
                .working_counters
                .iter()
                .map(|counter| {
                    let usual = if counter.got == counter.usual {
                        String::new()
                    } else {
                        format!("/{}", counter.usual)
                    };
                    format!("{} {}{usual}", counter.command, counter.got)
                })
                .collect();
            let counters =
                if counters.is_empty() { String::new() } else { format!(" [{}]", counters.join(", ")) };
            let _ = writeln!(
                text,
                "{frame:>9} {:>10.6} {:<11} {trip:>10}  {:<20} {}{counters}",
                finding.at_s,
                finding.kind.name(),
                finding.blame.name(),
                finding.why
            );
        }
        if shown.len() < self.findings.len() {
            let _ = writeln!(text, "... and {} more (--findings, --json)", self.findings.len() - shown.len());
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}
