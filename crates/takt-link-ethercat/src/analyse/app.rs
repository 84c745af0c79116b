//! The application's own stamps: what a run directory or a log of any program reports of its
//! cycles.

/// A cycle of the application; times in CLOCK_MONOTONIC, 0 where unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppCycle {
    /// When it was to wake up.
    pub planned_ns: u64,
    /// When it was awake.
    pub wake_ns: u64,
    /// When it handed its frame to the system.
    pub sent_ns: u64,
    /// When it had taken the answer to this cycle's frame; 0 when it never did.
    pub taken_ns: u64,
    /// When it began to look for that answer.
    pub looked_ns: u64,
    /// When it gave up waiting for that answer.
    pub gave_up_ns: u64,
}

/// The application's cycles, in the order of sending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppLog {
    /// The cycles.
    pub cycles: Vec<AppCycle>,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC: added to a cycle's time it is the capture's.
    pub clock_offset_ns: i64,
}

/// Reason why a text or a file is not a log of cycles.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A column is missing.
    #[error(
        "the log has no column sent_ns or taken_ns; accepted are the cycles of a run made with this version, or a CSV file with the \
         columns {} in CLOCK_MONOTONIC nanoseconds",
        COLUMNS.join(", ")
    )]
    Columns,
    /// A line with more or fewer values than there are names.
    #[error("line {line}: {found} values, but the first line names {expected}")]
    Line {
        /// Number of the line, counted from 1.
        line: usize,
        /// Its values.
        found: usize,
        /// The names of the first line.
        expected: usize,
    },
}

/// Columns that a log has, in CLOCK_MONOTONIC nanoseconds; `sent_ns` and `taken_ns` must be there.
const COLUMNS: [&str; 4] = ["planned_ns", "wake_ns", "sent_ns", "taken_ns"];

impl AppLog {
    /// A log out of columns by name: of a run's cycles, or of any program's. An answer taken no
    /// later than the frame was sent belongs to the frame of the previous cycle (a pipelined
    /// exchange).
    ///
    /// # Errors
    /// [`LogError::Columns`].
    pub fn from_columns(
        column: &mut dyn FnMut(&str) -> Option<Vec<u64>>,
        clock_offset_ns: i64,
    ) -> Result<Self, LogError> {
        let [planned, wake, sent, taken] = COLUMNS.map(&mut *column);
        let (Some(sent), Some(taken)) = (sent, taken) else {
            return Err(LogError::Columns);
        };
        let at = |column: &Option<Vec<u64>>, row: usize| {
            column.as_ref().and_then(|column| column.get(row)).copied().unwrap_or(0)
        };
        let stamp =
            |row: usize| (at(&planned, row), at(&wake, row), sent[row], taken.get(row).copied().unwrap_or(0));
        let pipelined = (0..sent.len()).map(stamp).any(|(_, _, sent, taken)| taken > 0 && taken <= sent);
        let cycles = (0..sent.len()).filter(|&row| sent[row] > 0).map(|row| {
            let (planned_ns, wake_ns, sent_ns, own_taken_ns) = stamp(row);
            let next = (row + 1 < sent.len()).then(|| stamp(row + 1));
            let (taken_ns, looked_ns, gave_up_ns) = match (pipelined, next) {
                // Taken before the next frame is sent, or never.
                (true, Some((_, next_wake_ns, next_sent_ns, next_taken_ns))) => {
                    (next_taken_ns, next_wake_ns, next_sent_ns)
                }
                (true, None) => (0, 0, 0),
                (false, next) => (own_taken_ns, sent_ns, next.map_or(0, |next| next.2)),
            };
            AppCycle { planned_ns, wake_ns, sent_ns, taken_ns, looked_ns, gave_up_ns }
        });
        let mut cycles: Vec<AppCycle> = cycles.collect();
        cycles.sort_by_key(|cycle| cycle.sent_ns);
        Ok(Self { cycles, clock_offset_ns })
    }

    /// A log out of CSV text with a line of names.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn from_csv(text: &str, clock_offset_ns: i64) -> Result<Self, LogError> {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
        let mut columns: Vec<Vec<u64>> = vec![Vec::new(); names.len()];
        for (number, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let values: Vec<&str> = line.split(',').collect();
            if values.len() != names.len() {
                let (found, expected) = (values.len(), names.len());
                return Err(LogError::Line { line: number + 2, found, expected });
            }
            for (column, value) in columns.iter_mut().zip(values) {
                // Other columns may hold anything.
                column.push(value.trim().parse().unwrap_or(0));
            }
        }
        let mut column = |wanted: &str| {
            names.iter().position(|name| *name == wanted).map(|place| std::mem::take(&mut columns[place]))
        };
        Self::from_columns(&mut column, clock_offset_ns)
    }

    /// `time_ns` of this log on the capture's clock.
    pub(super) fn in_capture(&self, time_ns: u64) -> u64 {
        time_ns.saturating_add_signed(self.clock_offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipelined_log_is_distinguished_from_a_waiting_one() {
        let waiting = AppLog::from_csv("sent_ns,taken_ns\n1000,1100\n2000,0\n3000,3200\n", 5).unwrap();
        let seen: Vec<_> = waiting.cycles.iter().map(|c| (c.sent_ns, c.taken_ns, c.gave_up_ns)).collect();
        assert_eq!(seen, [(1000, 1100, 2000), (2000, 0, 3000), (3000, 3200, 0)]);
        assert_eq!(waiting.in_capture(10), 15);
        let text = "wake_ns,taken_ns,sent_ns,mode\n990,0,1000,x\n1990,1995,2000,x\n2990,0,3000,x\n";
        let pipelined = AppLog::from_csv(text, 0).unwrap();
        let seen: Vec<_> =
            pipelined.cycles.iter().map(|c| (c.sent_ns, c.looked_ns, c.taken_ns, c.gave_up_ns)).collect();
        assert_eq!(seen, [(1000, 1990, 1995, 2000), (2000, 2990, 0, 3000), (3000, 0, 0, 0)]);
    }

    #[test]
    fn what_is_no_log_is_said() {
        assert!(AppLog::from_csv("a,b\n1,2\n", 0).unwrap_err().to_string().contains("sent_ns"));
        assert!(AppLog::from_csv("sent_ns,taken_ns\n1\n", 0).unwrap_err().to_string().contains("line 2"));
        assert!(AppLog::from_csv("", 0).is_err());
        assert!(AppLog::from_csv("sent_ns,taken_ns\nx,-5\n", 0).unwrap().cycles.is_empty());
    }
}
