//! The model that an earlier run learnt, so that a restart is planned from what is known and not
//! from its first seconds.
//!
//! The stored model is the last snapshot, with the machine and the programs from which it was
//! learnt. It is used as follows:
//! - **Identity**: a callback is kept by its name (node, kind, and topic, service or period), and
//!   only for the program that it was learnt of: the executable of its process has the same path,
//!   size and time of change. A model from another machine (processor, number of CPUs) is not used.
//! - **Use**: a callback that runs again gets the greater of both execution-time curves and
//!   self-suspensions, and the shorter of both spans of arrivals; its outputs and what it publishes
//!   are added. Observations can only make a bound greater.
//! - **Checked against reality**: where the present run shows longer executions or denser arrivals
//!   than were kept, by more than [`MARGIN_PERCENT`], the kept curves of that callback were of
//!   something else: they are dropped, and it is said.
//!
//! - **Start-up is not kept**: snapshots in which a process is starting are completed and not
//!   written down.
//!
//! A snapshot is completed by what *earlier* runs learnt, never by what this one kept before: what
//! this run has forgotten (start-up, extremes older than the horizon) would come back with each
//! snapshot and stay for ever. Curves in the file are maxima over all runs since they were first
//! kept; delete the file to begin anew.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_model::{Callback, CostCurve, Model, TopicId};

use crate::curves::Cost;
use crate::words::ms;

/// Percentage by which observations may exceed the stored model, as measured costs vary anyway: the
/// margin that plans add (goals' `cost_margin_percent`).
pub const MARGIN_PERCENT: u64 = 10;
/// Activations of the present run before it is held against what was kept: a first activation loads
/// caches and pages.
const MIN_SEEN: u64 = 8;
/// A model of a thousand callbacks takes some megabytes.
const MAX_BYTES: u64 = 256 << 20;
/// 1 kept what was seen in start-up.
const VERSION: u32 = 2;

/// A model and what it was learnt of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    version: u32,
    machine: String,
    /// By callback: the program of its process.
    programs: BTreeMap<String, Program>,
    model: Model,
    /// Model of earlier runs, as read.
    #[serde(skip)]
    earlier: Option<Model>,
    /// Callbacks of which something was said already.
    #[serde(skip)]
    mentioned: BTreeSet<String>,
}

/// Identity of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    path: PathBuf,
    bytes: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Program {
    fn of(pid: u32) -> Option<Self> {
        let link = format!("/proc/{pid}/exe");
        let (path, metadata) = (std::fs::read_link(&link).ok()?, std::fs::metadata(&link).ok()?);
        Some(Self {
            path,
            bytes: metadata.len(),
            changed_s: metadata.mtime(),
            changed_ns: metadata.mtime_nsec(),
        })
    }
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cpus = takt_rt::placement::online().map(|cpus| cpus.iter().count()).unwrap_or(0);
    format!("{}, {cpus} CPUs", model.map_or("processor", |(_, name)| name.trim()))
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            version: VERSION,
            machine: machine(),
            programs: BTreeMap::new(),
            model: Model::default(),
            earlier: None,
            mentioned: BTreeSet::new(),
        }
    }
}

impl Kept {
    /// Reads a file that this user (or root) wrote and nobody else can have; nothing kept where
    /// there is none. With it words, where what is there is of no use here.
    ///
    /// # Errors
    ///
    /// It cannot be read, is somebody else's, or no file of this kind.
    pub fn read(path: &Path) -> io::Result<(Self, Option<String>)> {
        let text = match takt_files::read_own(path, MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Self::default(), None)),
            text => text?,
        };
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let kept: Self = serde_json::from_str(&text).map_err(|error| {
            wrong(format!("the stored model cannot be used ({error}); delete it to start again"))
        })?;
        if kept.version < VERSION {
            let words =
                format!("the stored model has an earlier version ({}) and is relearned", kept.version);
            return Ok((Self::default(), Some(words)));
        }
        kept.check().map_err(|why| {
            wrong(format!("the stored model cannot be used ({why}); delete it to start again"))
        })?;
        let here = machine();
        if kept.machine != here {
            let words = format!(
                "the stored model comes from another machine ({}; this is {here}) and is not used",
                kept.machine
            );
            return Ok((Self::default(), Some(words)));
        }
        Ok((kept, None))
    }

    /// Indices within their tables: what reads the model relies on it.
    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("version {}; expected {VERSION}", self.version));
        }
        let topics = self.model.topics.len();
        let fits = |callback: &Callback| {
            callback
                .publishes
                .iter()
                .chain(callback.outputs.iter().map(|output| &output.topic))
                .all(|id| id.0 < topics)
        };
        match self.model.callbacks.iter().find(|callback| !fits(callback)) {
            Some(callback) => Err(format!("`{}` publishes to a topic that does not exist", callback.name)),
            None => Ok(()),
        }
    }

    /// Writes it whole or not at all, for this user alone.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        use std::io::Write as _;
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        let (folder, name) = takt_files::Folder::of(path)?;
        let mut draft = folder.private_draft(name)?;
        draft.write_all(&bytes)?;
        draft.finish()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.model.callbacks.is_empty()
    }

    /// Completes the snapshot by what was kept, and then keeps it; returns what there is to say.
    pub fn complete(&mut self, model: &mut Model) -> Vec<String> {
        let mut words = Vec::new();
        let mut earlier = self.earlier.take().unwrap_or_else(|| self.model.clone());
        let anything = !earlier.callbacks.is_empty();
        let mut programs: BTreeMap<u32, Option<Program>> = BTreeMap::new();
        let (mut known, mut dropped) = (0_usize, BTreeSet::new());
        for index in 0..model.callbacks.len() {
            let pid = process(model, index);
            let program = pid.and_then(|pid| programs.entry(pid).or_insert_with(|| Program::of(pid)).clone());
            let name = model.callbacks[index].name.clone();
            if let Some(program) = &program
                && let Some(before) = self.programs.get(&name)
                && before != program
            {
                words.push(format!(
                    "{name}: {} has changed since its model was stored, so it is relearned",
                    program.path.display()
                ));
                dropped.insert(name.clone());
            }
            if let Some(program) = program {
                self.programs.insert(name.clone(), program);
            }
            let kept = earlier.callbacks.iter().find(|callback| callback.name == name);
            let Some(kept) = kept.filter(|_| !dropped.contains(&name)) else { continue };
            if let Some(why) = refuted(&model.callbacks[index], kept) {
                words.push(format!("{name}: {why}, so its stored model is dropped"));
                dropped.insert(name);
                continue;
            }
            known += 1;
            let topics = topics(&earlier, model);
            merge(&mut model.callbacks[index], kept, &topics);
        }
        connect(model);
        // Dropped entries stay dropped.
        earlier.callbacks.retain(|callback| !dropped.contains(&callback.name));
        self.earlier = Some(earlier);
        if self.mentioned.insert(String::new()) && anything {
            words.insert(
                0,
                format!("using the model of an earlier run: {known} of {} callbacks", model.callbacks.len()),
            );
        }
        if model.starting.is_empty() {
            self.keep(model, &dropped);
        }
        words
    }

    /// Takes over what is known now; what does not run now stays.
    fn keep(&mut self, model: &Model, dropped: &BTreeSet<String>) {
        if model.callbacks.is_empty() {
            return;
        }
        let mut next =
            Model { topics: model.topics.clone(), callbacks: model.callbacks.clone(), ..Model::default() };
        let names: BTreeSet<String> = next.callbacks.iter().map(|callback| callback.name.clone()).collect();
        for gone in self
            .model
            .callbacks
            .iter()
            .filter(|gone| !names.contains(&gone.name) && !dropped.contains(&gone.name))
        {
            let mut gone = gone.clone();
            let mut to = |id: TopicId| -> Option<TopicId> {
                let topic = self.model.topics.get(id.0)?;
                let place =
                    next.topics.iter().position(|known| known.name == topic.name).unwrap_or_else(|| {
                        next.topics.push(topic.clone());
                        next.topics.len() - 1
                    });
                Some(TopicId(place))
            };
            gone.publishes = gone.publishes.iter().filter_map(|id| to(*id)).collect();
            gone.outputs.retain_mut(|output| to(output.topic).map(|id| output.topic = id).is_some());
            next.callbacks.push(gone);
        }
        self.model = next;
    }
}

fn process(model: &Model, callback: usize) -> Option<u32> {
    let executor = model.executors.get(model.callbacks.get(callback)?.executor.0)?;
    executor.threads.iter().find_map(|thread| model.threads.get(thread.0)).map(|thread| thread.pid)
}

/// For each topic of the one model its place in the other.
fn topics(from: &Model, to: &Model) -> Vec<Option<TopicId>> {
    let place = |name: &str| to.topics.iter().position(|topic| topic.name == name).map(TopicId);
    from.topics.iter().map(|topic| place(&topic.name)).collect()
}

/// Reason why the stored model does not fit the running callback.
fn refuted(live: &Callback, kept: &Callback) -> Option<String> {
    if live.cost.seen < MIN_SEEN || live.cost.cpu_time != kept.cost.cpu_time {
        return None;
    }
    let over = |now: u64, before: u64| {
        now > before.saturating_add(before / 100 * MARGIN_PERCENT).saturating_add(100_000)
    };
    let costs = live.cost.most_ns.iter().zip(&kept.cost.most_ns);
    if let Some((now, before)) = costs.into_iter().find(|(now, before)| over(**now, **before)) {
        return Some(format!("it takes {} ms, above the stored maximum of {} ms", ms(*now), ms(*before)));
    }
    // The last entry may hold the start of observation.
    let real = live.arrivals.least_span_ns.len().min(live.arrivals.seen.saturating_sub(1) as usize);
    let spans = live.arrivals.least_span_ns.iter().take(real).zip(&kept.arrivals.least_span_ns).enumerate();
    let denser = spans.into_iter().find(|(_, (now, before))| over(**before, **now));
    denser.map(|(i, (now, before))| {
        format!(
            "{} activations came within {} ms, below the stored minimum of {} ms",
            i + 2,
            ms(*now),
            ms(*before)
        )
    })
}

fn merge(live: &mut Callback, kept: &Callback, topics: &[Option<TopicId>]) {
    live.arrivals = live.arrivals.denser(&kept.arrivals);
    live.cost = costlier(&live.cost, &kept.cost);
    live.suspension = costlier(&live.suspension, &kept.suspension);
    live.suspensions = oftener(&times(live), &times(kept));
    live.most_suspensions = live.most_suspensions.max(kept.most_suspensions);
    live.yields = oftener(&live.yields, &kept.yields);
    let here = |id: &TopicId| topics.get(id.0).copied().flatten();
    for topic in kept.publishes.iter().filter_map(here) {
        if !live.publishes.contains(&topic) {
            live.publishes.push(topic);
        }
    }
    for output in &kept.outputs {
        let Some(topic) = here(&output.topic) else { continue };
        match live.outputs.iter_mut().find(|known| known.topic == topic) {
            Some(known) => {
                known.most_per_activation = known.most_per_activation.max(output.most_per_activation);
                // One of them without a curve: its greatest number is all that is known.
                known.most = match known.most.is_empty() || output.most.is_empty() {
                    true => Vec::new(),
                    false => oftener(&known.most, &output.most),
                };
                known.arrivals = known.arrivals.denser(&output.arrivals);
            }
            None => live.outputs.push(takt_model::Output { topic, ..output.clone() }),
        }
    }
}

/// Publishers of topics follow from what callbacks publish.
fn connect(model: &mut Model) {
    for (index, callback) in model.callbacks.iter().enumerate() {
        for topic in &callback.publishes {
            if let Some(topic) = model.topics.get_mut(topic.0)
                && !topic.publishers.contains(&takt_model::CallbackId(index))
                // A callback that subscribes to its own topic activates itself no more than before.
                && !topic.subscribers.contains(&takt_model::CallbackId(index))
            {
                topic.publishers.push(takt_model::CallbackId(index));
            }
        }
    }
}

/// Numbers of suspensions of activations in a row.
fn times(callback: &Callback) -> Vec<u64> {
    match callback.suspensions.is_empty() && callback.most_suspensions > 0 {
        true => vec![callback.most_suspensions],
        false => callback.suspensions.clone(),
    }
}

/// The greater of two curves of numbers, each repeated beyond its end.
fn oftener(a: &[u64], b: &[u64]) -> Vec<u64> {
    let (a, b) = (Cost::new(a, 0.0), Cost::new(b, 0.0));
    let entries = a.most_ns().len().max(b.most_ns().len()) as u64;
    let most: Vec<u64> = (1..=entries).map(|n| a.of(n).max(b.of(n))).collect();
    if most.last().is_some_and(|&most| most > 0) { most } else { Vec::new() }
}

fn costlier(a: &CostCurve, b: &CostCurve) -> CostCurve {
    if a.most_ns.is_empty() || b.most_ns.is_empty() {
        return if a.most_ns.is_empty() { b.clone() } else { a.clone() };
    }
    let entries = a.most_ns.len().max(b.most_ns.len());
    let most = |i: usize| a.most_ns.get(i).max(b.most_ns.get(i)).copied();
    let mut most_ns: Vec<u64> = (0..entries).filter_map(most).collect();
    for i in 1..most_ns.len() {
        most_ns[i] = most_ns[i].max(most_ns[i - 1]);
    }
    let more = if a.seen >= b.seen { a } else { b };
    CostCurve { most_ns, seen: more.seen, total_ns: more.total_ns, cpu_time: a.cpu_time && b.cpu_time }
}

#[cfg(test)]
mod tests;
