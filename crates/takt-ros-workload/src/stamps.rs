//! The nodes' own records: every activation with its release, start and end, the message that
//! activated it and the time at which it sent its own. Latencies of chains are read from these
//! files after a run, so that no program beside the nodes needs to watch.
//!
//! Each node has the file `NODE.stamps` in the folder of its run. Lines, fields parted by tabs:
//!
//! ```text
//! takt-stamps  1
//! activity  NUMBER  NODE/NAME
//! run  NUMBER  INDEX  RELEASE  START  END  INPUT  SENT  WRITE
//! ```
//!
//! `NUMBER` is the activity's place in [`System::activities`], `INDEX` counts its activations from
//! 0. Times are CLOCK_MONOTONIC nanoseconds. `RELEASE` is a timer's expiry or a source's reading,
//! `-` for subscriptions. `INPUT` is `NUMBER:INDEX` of the activation that sent the message, `-`
//! without one. `SENT` is the time just before the first message left, `-` if none did. `WRITE` is
//! the CPU time that writing this thread's line before took. A line is one system call, so that a
//! kill loses none that was written.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_rt::clock::thread_cpu_ns;

use crate::system::{Activity, System};

const HEAD: &str = "takt-stamps\t1";
/// Bits of a message's identity for its activation; the number of its activity is above.
const INDEX_BITS: u32 = 48;

/// The activation of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActivationId {
    /// Place of the activity in [`System::activities`].
    pub activity: u16,
    /// Counted from 0.
    pub index: u64,
}

impl ActivationId {
    /// As messages carry it.
    #[must_use]
    pub fn packed(self) -> u64 {
        u64::from(self.activity) << INDEX_BITS | (self.index & ((1 << INDEX_BITS) - 1))
    }

    #[must_use]
    pub fn unpacked(packed: u64) -> Self {
        // The shift leaves 16 bits.
        Self { activity: (packed >> INDEX_BITS) as u16, index: packed & ((1 << INDEX_BITS) - 1) }
    }

    fn parse(text: &str) -> Option<Self> {
        let (activity, index) = text.split_once(':')?;
        Some(Self { activity: activity.parse().ok()?, index: index.parse().ok()? })
    }
}

/// File to which a node of a run writes: `NODE.stamps` in that folder.
#[must_use]
pub fn path_of(directory: &Path, node: &str) -> PathBuf {
    directory.join(format!("{node}.{EXTENSION}"))
}

/// Of the files.
pub const EXTENSION: &str = "stamps";

/// One activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub index: u64,
    /// A timer's expiry, a source's reading.
    pub release_ns: Option<u64>,
    pub start_ns: u64,
    pub end_ns: u64,
    /// The activation that sent the message.
    pub input: Option<ActivationId>,
    /// Just before its own messages left; `None`: it sent none.
    pub sent_ns: Option<u64>,
}

/// Writes the lines of one thread.
#[derive(Debug)]
pub struct Stamper {
    file: Arc<File>,
    unwritten: Arc<AtomicU64>,
    line: String,
    write_ns: u64,
}

/// A node's file.
#[derive(Debug)]
pub struct Stamps {
    file: Arc<File>,
    unwritten: Arc<AtomicU64>,
}

impl Stamps {
    /// Makes the file of a node, empty of what an earlier run left.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(system: &System, node: &str, directory: &Path) -> io::Result<Self> {
        let mut head = format!("{HEAD}\n");
        for (number, (of, activity)) in system.activities().enumerate() {
            if of.name == node {
                let name: String = activity.name().chars().filter(|c| !c.is_control()).collect();
                let _ = writeln!(head, "activity\t{number}\t{node}/{name}");
            }
        }
        let path = path_of(directory, node);
        std::fs::write(&path, head)?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Self { file: Arc::new(file), unwritten: Arc::default() })
    }

    /// For one of the node's threads.
    #[must_use]
    pub fn stamper(&self) -> Stamper {
        let line = String::with_capacity(160);
        Stamper { file: Arc::clone(&self.file), unwritten: Arc::clone(&self.unwritten), line, write_ns: 0 }
    }

    /// Lines that could not be written.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }
}

impl Stamper {
    /// Writes an activation down.
    pub fn write(&mut self, activity: u16, run: &Run) {
        let before_ns = thread_cpu_ns();
        let Run { index, release_ns, start_ns, end_ns, input, sent_ns } = run;
        self.line.clear();
        let line = &mut self.line;
        // Writing to a string cannot fail.
        let _ = write!(line, "run\t{activity}\t{index}\t");
        optional(line, *release_ns);
        let _ = write!(line, "\t{start_ns}\t{end_ns}\t");
        match input {
            Some(ActivationId { activity, index }) => {
                let _ = write!(line, "{activity}:{index}");
            }
            None => line.push('-'),
        }
        line.push('\t');
        optional(line, *sent_ns);
        let _ = writeln!(line, "\t{}", self.write_ns);
        // A short write leaves a torn line, which the reader refuses.
        if !matches!((&*self.file).write(self.line.as_bytes()), Ok(length) if length == self.line.len()) {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        self.write_ns = thread_cpu_ns().saturating_sub(before_ns);
    }
}

fn optional(line: &mut String, value: Option<u64>) {
    match value {
        Some(value) => {
            let _ = write!(line, "{value}");
        }
        None => line.push('-'),
    }
}

/// Reason why the timestamps of a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StampError {
    #[error("{}: {source}. The node writes this file when it starts", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: expected \"{HEAD}\" as its first line, found {found:?}", path.display())]
    Head { path: PathBuf, found: String },
    #[error("{}: line {line} is not a timestamp of an activation of this system: {found:?}", path.display())]
    Line { path: PathBuf, line: usize, found: String },
}

/// Records of all nodes of a run.
#[derive(Debug, Clone, Default)]
pub struct Stamped {
    /// By activity, in the order of their indices.
    runs: Vec<Vec<Run>>,
    /// Period of each activity that has one.
    periods: Vec<Option<u64>>,
    /// Sources begin when they publish.
    sources: Vec<bool>,
    /// Lines read, and the CPU time that writing them took.
    pub lines: u64,
    pub write_ns: u64,
}

/// One end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    pub began_ns: u64,
    pub ended_ns: u64,
}

/// The instances of a chain on one way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instances {
    /// Those that came to their end, by their ends.
    pub ended: Vec<Completion>,
    /// Begins of those that a later one passed: a message was overwritten, or a filter let nothing
    /// through.
    pub dropped: Vec<u64>,
    /// Begins of the others, which were under way when the nodes ended.
    pub open: Vec<u64>,
}

impl Stamped {
    /// Reads the files of a system's nodes. The torn last line of a killed node is left out.
    ///
    /// # Errors
    /// [`StampError`].
    pub fn read(system: &System, directory: &Path) -> Result<Self, StampError> {
        let all: Vec<_> = system.activities().map(|(_, activity)| activity).collect();
        let mut stamped = Self {
            runs: vec![Vec::new(); all.len()],
            periods: all.iter().map(Activity::period_ns).collect(),
            sources: all.iter().map(|activity| matches!(activity, Activity::Source(_))).collect(),
            lines: 0,
            write_ns: 0,
        };
        for node in &system.node {
            let path = path_of(directory, &node.name);
            let text = std::fs::read_to_string(&path)
                .map_err(|source| StampError::Read { path: path.clone(), source })?;
            let first = text.lines().next().unwrap_or_default();
            if first != HEAD {
                return Err(StampError::Head { path, found: first.to_owned() });
            }
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            for (number, line) in whole.lines().enumerate().skip(1) {
                if line.starts_with("activity\t") {
                    continue;
                }
                if stamped.take(line).is_none() {
                    return Err(StampError::Line { path, line: number + 1, found: line.to_owned() });
                }
            }
        }
        for runs in &mut stamped.runs {
            runs.sort_by_key(|run| run.index);
        }
        Ok(stamped)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let optional = |text: &str| match text {
            "-" => Some(None),
            text => text.parse::<u64>().ok().map(Some),
        };
        let mut fields = line.strip_prefix("run\t")?.split('\t');
        let activity: usize = fields.next()?.parse().ok()?;
        let run = Run {
            index: fields.next()?.parse().ok()?,
            release_ns: optional(fields.next()?)?,
            start_ns: fields.next()?.parse().ok()?,
            end_ns: fields.next()?.parse().ok()?,
            input: match fields.next()? {
                "-" => None,
                text => Some(ActivationId::parse(text)?),
            },
            sent_ns: optional(fields.next()?)?,
        };
        let write_ns: u64 = fields.next()?.parse().ok()?;
        if fields.next().is_some() || run.end_ns < run.start_ns {
            return None;
        }
        self.runs.get_mut(activity)?.push(run);
        self.lines += 1;
        self.write_ns = self.write_ns.saturating_add(write_ns);
        Some(())
    }

    /// The activations of an activity.
    #[must_use]
    pub fn runs(&self, activity: usize) -> &[Run] {
        self.runs.get(activity).map_or(&[], Vec::as_slice)
    }

    /// The instances of a chain along these activities. An instance begins with the release of its
    /// first timer, with the message that activates its first subscription, or with the message of
    /// its source, and ends with its last activity: as the latency manager counts them.
    #[must_use]
    pub fn instances(&self, path: &[usize]) -> Instances {
        let Some((&first, rest)) = path.split_first() else { return Instances::default() };
        let takers: Vec<HashMap<ActivationId, &Run>> = rest
            .iter()
            .map(|&step| self.runs(step).iter().filter_map(|run| Some((run.input?, run))).collect())
            .collect();
        let mut instances = Instances::default();
        let mut unfinished = Vec::new();
        for run in self.runs(first) {
            let Some(began_ns) = self.began_ns(first, run) else { continue };
            let (mut at, mut last) = (first, Some(run));
            for (&step, takers) in rest.iter().zip(&takers) {
                let sent = last.filter(|run| run.sent_ns.is_some());
                // Validation bounds the number of activities.
                let id = sent.map(|run| ActivationId { activity: at as u16, index: run.index });
                last = id.and_then(|id| takers.get(&id).copied());
                at = step;
            }
            match last {
                Some(last) => instances.ended.push(Completion { began_ns, ended_ns: last.end_ns }),
                None => unfinished.push(began_ns),
            }
        }
        instances.ended.sort_by_key(|one| (one.ended_ns, one.began_ns));
        let latest_ns = instances.ended.iter().map(|one| one.began_ns).max();
        let (dropped, open) = unfinished.into_iter().partition(|&began_ns| Some(began_ns) < latest_ns);
        (instances.dropped, instances.open) = (dropped, open);
        instances
    }

    /// When an instance that begins with this activation did.
    fn began_ns(&self, activity: usize, run: &Run) -> Option<u64> {
        if self.sources.get(activity).copied().unwrap_or(false) {
            return run.sent_ns;
        }
        run.release_ns.or_else(|| {
            let ActivationId { activity, index } = run.input?;
            let sent = self.runs(usize::from(activity));
            let place = sent.binary_search_by_key(&index, |sent| sent.index).ok()?;
            sent[place].sent_ns
        })
    }

    /// Releases of a timer or source within `[from_ns, to_ns)` that never ran; 0 for others.
    #[must_use]
    pub fn skipped(&self, activity: usize, [from_ns, to_ns]: [u64; 2]) -> u64 {
        let Some(period_ns) = self.periods.get(activity).copied().flatten() else { return 0 };
        let period_ns = period_ns.max(1);
        let within = |at_ns: &u64| (from_ns..to_ns).contains(at_ns);
        let releases = self.runs(activity).iter().filter_map(|run| run.release_ns);
        let ran = releases.clone().filter(within).count() as u64;
        // Any release of it shows where its grid lies.
        let offset_ns = releases.clone().next().map_or(from_ns, |known_ns| known_ns) % period_ns;
        let up_to = |at_ns: u64| at_ns.saturating_sub(offset_ns).div_ceil(period_ns);
        up_to(to_ns).saturating_sub(up_to(from_ns)).saturating_sub(ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer, a source and what they lead to; the filter lets every second message through.
    fn system() -> System {
        System::parse(
            r#"
            phases = ["one"]
            [[node]]
            name = "base"
            timer = [{ name = "tick", period_ms = 0.1, cost = { ms = [0.0] }, publishes = ["/tick"] }]
            [[node]]
            name = "laser"
            source = [{ name = "reader", period_ms = 0.1, cost = { ms = [0.0] }, publishes = ["/scan"] }]
            [[node]]
            name = "local"
            subscription = [
              { topic = "/tick", name = "on_tick", cost = { ms = [0.0] } },
              { topic = "/scan", name = "on_scan", cost = { ms = [0.0] }, publishes = ["/both"], needs = "/tick" },
              { topic = "/both", name = "locate", cost = { ms = [0.0] } },
            ]
            "#,
        )
        .unwrap()
    }

    fn run(index: u64, release_ns: Option<u64>, [start_ns, end_ns]: [u64; 2]) -> Run {
        Run { index, release_ns, start_ns, end_ns, input: None, sent_ns: None }
    }

    fn folder() -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().unwrap();
        let system = system();
        let of = |node: &str| Stamps::create(&system, node, folder.path()).unwrap();
        let (base, laser, local) = (of("base"), of("laser"), of("local"));
        let (mut tick, mut scan, mut locate) = (base.stamper(), laser.stamper(), local.stamper());
        // The release of 300,000 never runs.
        for (index, release_ns) in [100_000, 200_000, 400_000, 500_000].into_iter().enumerate() {
            let one = run(index as u64, Some(release_ns), [release_ns + 10, release_ns + 20]);
            tick.write(0, &Run { sent_ns: Some(release_ns + 15), ..one });
        }
        for index in 0..4 {
            let at_ns = index * 100_000;
            scan.write(1, &Run { sent_ns: Some(at_ns + 5), ..run(index, Some(at_ns), [at_ns, at_ns + 6]) });
        }
        let from = |activity, index| Some(ActivationId { activity, index });
        // The second tick is overwritten, the last one under way at the end.
        for (index, input, end_ns) in [(0, 0, 100_070), (1, 2, 400_090)] {
            locate.write(2, &Run { input: from(0, input), ..run(index, None, [end_ns - 30, end_ns]) });
        }
        // Of four scans the filter lets the first and the third through; those are located.
        for index in 0..4 {
            let at_ns = index * 100_000 + 50;
            let sent_ns = (index % 2 == 0).then_some(at_ns + 2);
            locate.write(3, &Run { input: from(1, index), sent_ns, ..run(index, None, [at_ns, at_ns + 3]) });
        }
        for (index, input) in [(0, 0), (1, 2)] {
            let at_ns = input * 100_000 + 60;
            locate.write(4, &Run { input: from(3, input), ..run(index, None, [at_ns, at_ns + 10]) });
        }
        assert_eq!(local.unwritten(), 0);
        (folder, system)
    }

    fn latencies(instances: &Instances) -> Vec<u64> {
        instances.ended.iter().map(|one| one.ended_ns - one.began_ns).collect()
    }

    #[test]
    fn chains_are_followed_from_release_to_end() {
        let (folder, system) = folder();
        let stamped = Stamped::read(&system, folder.path()).unwrap();
        let ticks = stamped.instances(&[0, 2]);
        assert_eq!(latencies(&ticks), [70, 90]);
        assert_eq!((ticks.dropped, ticks.open), (vec![200_000], vec![500_000]));
        assert_eq!(latencies(&stamped.instances(&[0])), [20; 4], "a chain of one activity");
        // A source's begins with its message, and what the filter holds is dropped.
        let scans = stamped.instances(&[1, 3, 4]);
        assert_eq!(latencies(&scans), [65, 65]);
        assert_eq!((scans.dropped, scans.open), (vec![100_005], vec![300_005]));
        // A subscription's begins with the message that activates it.
        assert_eq!(latencies(&stamped.instances(&[4])), [18, 18]);
        assert_eq!(stamped.instances(&[]), Instances::default());
        assert_eq!(stamped.lines, 16);
    }

    #[test]
    fn releases_that_never_ran_are_counted_within_the_window() {
        let (folder, system) = folder();
        let stamped = Stamped::read(&system, folder.path()).unwrap();
        assert_eq!(stamped.skipped(0, [100_000, 600_000]), 1);
        assert_eq!(stamped.skipped(0, [100_000, 300_000]), 0, "the window ends before it");
        assert_eq!(stamped.skipped(0, [300_000, 301_000]), 1);
        assert_eq!(stamped.skipped(0, [100_000, 800_000]), 3, "and those after the last");
        assert_eq!(stamped.skipped(2, [0, 1_000_000]), 0, "messages have no grid");
        assert_eq!(stamped.skipped(99, [0, 1_000_000]), 0);
        // A callback that never ran is due all the same.
        let quiet = Stamped { runs: vec![Vec::new()], periods: vec![Some(100)], ..Stamped::default() };
        assert_eq!(quiet.skipped(0, [1_000, 2_000]), 10);
    }

    #[test]
    fn damage_is_named_and_a_torn_last_line_left_out() {
        let (folder, system) = folder();
        let path = path_of(folder.path(), "base");
        let text = std::fs::read_to_string(&path).unwrap();
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Stamped::read(&system, folder.path())
        };
        assert_eq!(read(text.trim_end()).unwrap().lines, 15);
        for (line, place) in
            [("run\t0\t9\t-\t5\t4\t-\t-\t0", 7), ("run\t77\t0\t-\t1\t2\t-\t-\t0", 7), ("noise", 7)]
        {
            let error = read(&format!("{text}{line}\n")).unwrap_err().to_string();
            assert!(error.contains(&format!("line {place}")) && error.contains("base.stamps"), "{error}");
        }
        let error = read("takt-stamps\t2\n").unwrap_err().to_string();
        assert!(error.contains("takt-stamps\\t2"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(Stamped::read(&system, folder.path()).unwrap_err().to_string().contains("base.stamps"));
    }

    #[test]
    fn identities_travel_in_a_message() {
        for id in [
            ActivationId { activity: 0, index: 0 },
            ActivationId { activity: 65_534, index: (1 << 48) - 1 },
            ActivationId { activity: 7, index: 1 << 40 },
        ] {
            assert_eq!(ActivationId::unpacked(id.packed()), id);
        }
    }
}
