//! Results that are shipped with the documentation: a small summary of each run, and the page that
//! is written from the summaries alone.
//!
//! A summary holds the run's command, machine, time, verdict and figures, and the hash that stands
//! for the whole run directory, so that whoever has the directory can hold it against the page. The
//! page says nothing that is in no summary.

mod papers;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_rundir::{COMMAND_KEY, RUN_FILE, RunDir, SealState, find_runs, judged, read_json, write_json};
use takt_stats::Verdict;

pub use papers::{ShippedHeadline, ShippedPaper, keep_papers, read_papers};

use crate::Error;
use crate::table::{Cell, Table, escape_inline};
use crate::verdict::of_run;
use crate::words::{duration, short, short_hash, time};

/// A run, summed up for the page of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShippedRun {
    pub robot: String,
    /// The run in a few words.
    pub label: String,
    /// The campaign that it belongs to; empty for none.
    pub campaign: String,
    /// The command that made it.
    pub command: String,
    /// Version of takt.
    pub takt: String,
    /// When it began, RFC 3339.
    pub started_utc: String,
    /// Length of the main measure, seconds.
    pub seconds: Option<f64>,
    pub machine: ShippedMachine,
    /// Share of the processor time that a hypervisor took, 0 to 1.
    pub stolen: f64,
    /// Share of the processor time that was used, 0 to 1.
    pub busy: f64,
    /// Settings that were asked for and not granted.
    pub not_granted: Vec<String>,
    pub verdict: Verdict,
    /// The verdict with its reasons.
    pub sentence: String,
    /// The figures of each measure with values.
    pub measures: Vec<ShippedMeasure>,
    /// Name of the run directory.
    pub run: String,
    /// Hash that stands for the whole run directory ([`RunDir::seal_hash`]).
    pub seal_sha256: String,
}

/// The facts of a machine that figures depend on most.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShippedMachine {
    /// CPU model.
    pub cpu: Option<String>,
    /// Online CPUs, as the kernel lists them.
    pub online_cpus: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Preemption model.
    pub preemption: Option<String>,
    /// Whether a hypervisor is below the kernel.
    pub hypervisor: bool,
    /// The virtual machine of Takt's own that the run was in, where time is counted in
    /// instructions.
    pub virtual_machine: Option<String>,
}

impl ShippedMachine {
    fn of(machine: &takt_rundir::Machine) -> Self {
        Self {
            cpu: machine.cpu.clone(),
            online_cpus: machine.online_cpus.clone(),
            kernel: machine.kernel.clone(),
            preemption: machine.preemption.clone(),
            hypervisor: machine.hypervisor,
            virtual_machine: machine.virtual_machine.as_ref().map(|machine| machine.machine.clone()),
        }
    }
}

/// A measure of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShippedMeasure {
    /// For people.
    pub title: String,
    /// Whether the run's verdict is about it.
    pub judged: bool,
    /// A value above this is a miss.
    pub deadline_ns: Option<u64>,
    pub count: u64,
    /// Misses, those included that did not run or did not come.
    pub misses: u64,
    /// Samples among the misses that did not run or did not come.
    pub absent: u64,
    /// 50 % quantile.
    pub median_ns: f64,
    /// 99 % quantile.
    pub p99_ns: f64,
    /// Greatest value.
    pub worst_ns: f64,
}

/// Sums up a run.
///
/// # Errors
/// [`Error::NotShippable`] for a run without a seal, or one that was changed after it;
/// [`Error::RunDir`] for one that cannot be read.
pub fn sum_up(dir: &RunDir) -> Result<ShippedRun, Error> {
    let refuse = |why: String| Error::NotShippable { run: dir.path().display().to_string(), why };
    let seal_sha256 = match dir.seal_state() {
        SealState::Whole(hash) => hash,
        SealState::Missing => {
            return Err(refuse("it has no seal: it was cut off or is still running".to_owned()));
        }
        state => return Err(refuse(state.doubt().unwrap_or_default())),
    };
    let whole: serde_json::Value = dir.read_json(RUN_FILE)?;
    let command = whole.get(COMMAND_KEY).and_then(serde_json::Value::as_str);
    let command =
        command.ok_or_else(|| refuse(format!("{RUN_FILE} has no \"{COMMAND_KEY}\": run it again")))?;
    let of = of_run(dir)?;
    let places = judged(&of.header.measures);
    let measures = of.header.measures.iter().zip(&of.figures).enumerate();
    let measures = measures.filter(|(_, (_, figures))| figures.count() > 0 || figures.skipped > 0);
    let measures = measures.map(|(index, (measure, figures))| ShippedMeasure {
        title: measure.title.clone(),
        judged: places.contains(&index),
        deadline_ns: measure.deadline_ns,
        count: figures.count(),
        misses: figures.missed().unwrap_or(0),
        absent: figures.skipped,
        median_ns: figures.summary.median,
        p99_ns: figures.summary.p99,
        worst_ns: figures.summary.worst,
    });
    let machine = ShippedMachine::of(&of.header.machine);
    Ok(ShippedRun {
        command: command.to_owned(),
        seconds: of.figures.first().and_then(|figures| figures.seconds),
        machine,
        stolen: of.header.cpu.stolen,
        busy: of.header.cpu.busy,
        verdict: of.report.verdict,
        sentence: of.report.sentence(),
        measures: measures.collect(),
        run: dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned(),
        seal_sha256,
        robot: of.header.robot,
        label: of.header.label,
        campaign: of.header.experiment.campaign,
        takt: of.header.takt,
        started_utc: of.header.started_utc,
        not_granted: of.header.not_granted,
    })
}

/// Sums up the runs at `paths` (run directories, or folders of them) into `folder`, a file each. A
/// run of the same robot and label takes the place of the one before.
///
/// # Errors
/// As [`sum_up`]; nothing is written then. [`Error::NotShippable`], too, where two of the runs
/// would be one file.
pub fn keep(folder: &Path, paths: &[impl AsRef<Path>]) -> Result<Vec<PathBuf>, Error> {
    let mut summaries: Vec<(PathBuf, ShippedRun)> = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let runs = find_runs(path)?;
        for dir in &runs {
            let summary = sum_up(dir)?;
            let file = folder.join(file_name(&summary));
            if let Some((_, other)) = summaries.iter().find(|(other, _)| *other == file) {
                let why =
                    format!("{} and {} have the same configuration: name only one", other.run, summary.run);
                return Err(Error::NotShippable { run: path.display().to_string(), why });
            }
            summaries.push((file, summary));
        }
    }
    takt_files::make_folder(folder).map_err(Error::io(folder))?;
    for (file, summary) in &summaries {
        write_json(file, summary)?;
    }
    Ok(summaries.into_iter().map(|(file, _)| file).collect())
}

/// Robot, campaign and label in letters, digits and hyphens.
fn file_name(run: &ShippedRun) -> String {
    format!("{}.json", slug(&format!("{} {} {}", run.robot, run.campaign, run.label)))
}

/// Letters, digits and hyphens.
fn slug(text: &str) -> String {
    let text = text.to_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("-")
}

/// Reads the summaries in `folder`, in the order of robots, campaigns and labels.
///
/// # Errors
/// [`Error::RunDir`] where the folder or a summary cannot be read; [`Error::NotShippable`] for a
/// folder without one.
pub fn read(folder: &Path) -> Result<Vec<ShippedRun>, Error> {
    let mut runs: Vec<ShippedRun> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            runs.push(read_json(&path)?);
        }
    }
    if runs.is_empty() {
        let why = "there is no summary (*.json): name runs to summarise".to_owned();
        return Err(Error::NotShippable { run: folder.display().to_string(), why });
    }
    let key =
        |run: &ShippedRun| (run.robot.clone(), run.campaign.clone(), run.label.clone(), run.run.clone());
    runs.sort_by_key(key);
    Ok(runs)
}

/// The page of results, Markdown.
pub fn page(runs: &[ShippedRun]) -> String {
    whole_page(runs, &[])
}

/// The same, with the papers' headlines before the runs.
pub fn whole_page(runs: &[ShippedRun], papers: &[ShippedPaper]) -> String {
    let mut text = "<!-- Written by `takt report --results`; do not edit. CONTRIBUTING.md has the command. -->\n\n# Results\n\n".to_owned();
    text += "These runs were made on real machines; each is listed with its command, time and machine. Verdicts and figures come only from \
         the run directories; the hash is the SHA-256 of the directory's `hashes.json`, which lists all its files. FAILs are listed like \
         PASSes: how a shared or busy machine affects a robot is a result, too.\n\n";
    text += &papers::headlines(papers);
    let machines: BTreeSet<&ShippedMachine> = runs.iter().map(|run| &run.machine).collect();
    for machine in machines {
        let own: Vec<&ShippedRun> = runs.iter().filter(|run| run.machine == *machine).collect();
        text += &format!("## {}\n\n", escape_inline(&machine_words(machine)));
        text += &overview(&own).markdown();
        own.iter().for_each(|run| text += &section(run));
    }
    format!("{}\n", text.trim_end())
}

fn machine_words(machine: &ShippedMachine) -> String {
    let unknown = || "unknown".to_owned();
    let mut words = vec![
        machine.cpu.clone().unwrap_or_else(unknown),
        format!("CPUs {}", machine.online_cpus.clone().unwrap_or_else(unknown)),
        format!("Linux {}", machine.kernel.clone().unwrap_or_else(unknown)),
    ];
    words.extend(machine.preemption.clone());
    words.extend(machine.hypervisor.then(|| "under a hypervisor".to_owned()));
    words.extend(machine.virtual_machine.as_ref().map(|how| format!("time counted in instructions ({how})")));
    words.join(", ")
}

/// Title of a run's section: robot, campaign, label.
fn title(run: &ShippedRun) -> String {
    let campaign = (!run.campaign.is_empty()).then(|| format!(" (campaign {})", run.campaign));
    format!("{}: {}{}", run.robot, run.label, campaign.unwrap_or_default())
}

/// A time in the unit that suits it, which no line break parts from its number.
fn whole_time(ns: f64) -> Cell {
    Cell::number(time(ns).replace(' ', "\u{a0}"))
}

fn overview(runs: &[&ShippedRun]) -> Table {
    let mut table =
        Table::new("Main measures", &["run", "verdict", "#median", "#P99", "#worst", "#deadline", "#misses"]);
    for run in runs {
        let Some(main) = run.measures.first() else { continue };
        table.push(vec![
            Cell::text(title(run)),
            Cell::Verdict(run.verdict),
            whole_time(main.median_ns),
            whole_time(main.p99_ns),
            whole_time(main.worst_ns),
            main.deadline_ns.map_or_else(|| Cell::gap("none"), |deadline| whole_time(deadline as f64)),
            Cell::number(format!("{}\u{a0}of\u{a0}{}", main.misses, main.count.saturating_add(main.absent))),
        ]);
    }
    table
}

fn section(run: &ShippedRun) -> String {
    let started = run.started_utc.get(..16).unwrap_or(&run.started_utc).replace('T', " ");
    let percent = |share: f64| format!("{} %", short((share * 1000.0).round() / 10.0));
    let length = run.seconds.map_or_else(String::new, |seconds| format!(", {}", duration(seconds)));
    let mut text = format!("### {}\n\n", escape_inline(&title(run)));
    // Whatever a command line holds stays within its line of code: a row of backticks would end it.
    text += &format!("    {}\n\n", crate::words::clean(&run.command));
    text += &format!(
        "{} UTC{length}, takt {}; CPUs {} busy, {} taken by the hypervisor; run `{}`, hash `{}`.\n\n",
        escape_inline(&started),
        escape_inline(&run.takt),
        percent(run.busy),
        percent(run.stolen),
        escape_inline(&run.run),
        short_hash(&run.seal_sha256),
    );
    // The sentence begins with the verdict, which stands out alone.
    let verdict = run.verdict.to_string();
    let reasons = run.sentence.strip_prefix(&verdict).unwrap_or(&run.sentence);
    text += &format!("**{verdict}**{}\n\n", escape_inline(reasons));
    if !run.not_granted.is_empty() {
        text += &format!("Not granted: {}.\n\n", escape_inline(&run.not_granted.join("; ")));
    }
    let heads = [
        "measure",
        "judged",
        "#deadline",
        "#values",
        "#misses",
        "#did not come",
        "#median",
        "#P99",
        "#worst",
    ];
    let mut table = Table::new("Measures", &heads);
    for measure in &run.measures {
        let with_deadline =
            |n: u64| measure.deadline_ns.map_or_else(|| Cell::gap("none"), |_| Cell::number(n));
        table.push(vec![
            Cell::text(&measure.title),
            Cell::text(if measure.judged { "yes" } else { "" }),
            measure.deadline_ns.map_or_else(|| Cell::gap("none"), |deadline| whole_time(deadline as f64)),
            Cell::number(measure.count),
            with_deadline(measure.misses),
            with_deadline(measure.absent),
            whole_time(measure.median_ns),
            whole_time(measure.p99_ns),
            whole_time(measure.worst_ns),
        ]);
    }
    text + &table.markdown()
}
