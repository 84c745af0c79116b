//! From runs to a document: which sections there are, and what stands in them.

use takt_rundir::KERNEL_FACTS;
use takt_stats::Verdict;

use crate::collect::{Collection, Group, Run, Seal};
use crate::digest::{Digest, digests};
use crate::document::{Block, Document, Section};
use crate::figure::Figure;
use crate::paper;
use crate::pictures;
use crate::supplement::{Context, Shapes, Supplements};
use crate::table::Table;
use crate::tables::{self, spread};
use crate::words::{Unit, clean, count, time};

mod kernel;
mod next;

/// Share of processor time taken by a hypervisor from which a reader is warned: at 0.1 % one job in
/// a thousand may have waited for somebody else's machine, which is what a worst value is made of.
const STOLEN_WARNING: f64 = 0.001;

/// Late releases shown one by one, over all traced runs.
const LATE_SHOWN: usize = 12;

/// Builds the report of runs, with what their robots add.
pub fn build(collection: &Collection, supplements: &Supplements) -> Document {
    let measured: Vec<(&Group, Vec<Digest>)> =
        collection.groups.iter().map(|group| (group, digests(collection, group))).collect();
    let contexts: Vec<Context<'_>> = measured
        .iter()
        .map(|(group, digests)| Context {
            collection,
            group,
            digests,
            unit: unit_of(digests),
            supplement: supplements.of(&group.robot),
        })
        .collect();
    let papers = paper::section::papers(collection, supplements);
    let mut sections: Vec<Section> = papers
        .iter()
        .map(|(robot, paper)| {
            let own: Vec<&Context<'_>> = contexts.iter().filter(|c| c.group.robot == *robot).collect();
            paper::section::section(paper, collection, &own)
        })
        .collect();
    let mut measures = Vec::new();
    let mut robots: Vec<&str> = Vec::new();
    for (number, context) in contexts.iter().enumerate() {
        // The first measure of a robot is its main one and gets every table and figure.
        let main = !robots.contains(&context.group.robot.as_str());
        robots.push(&context.group.robot);
        // Figures already shown in a paper's section are not repeated.
        let in_paper = papers.iter().any(|(robot, _)| *robot == context.group.robot);
        let section = measure(context, number + 1, main, in_paper);
        measures.push(if main { section } else { section.folded() });
    }
    // A paper's section shows its own figures first.
    let lead = if papers.is_empty() { take_lead(&contexts, &mut measures) } else { None };
    let kernel = kernel::kernel(collection);
    sections.push(introduction(collection, &contexts, lead, kernel.is_some()));
    sections.extend(kernel::virtual_time(collection));
    sections.extend(measures);
    let added = || supplements.within(collection);
    for (robot, supplement) in added() {
        let own: Vec<&Context<'_>> = contexts.iter().filter(|c| c.group.robot == robot).collect();
        sections.extend(supplement.sections(collection, &own));
    }
    let losses = tables::losses(collection).into_iter();
    let late = added().flat_map(|(_, supplement)| supplement.losses(collection));
    let losses: Vec<Block> = losses.chain(late).map(Block::Table).collect();
    if !losses.is_empty() {
        sections.push(section("losses", "What was lost on the way, or came late", losses));
    }
    let figures = tables::figures_by_phase(collection).into_iter().chain(tables::figures(collection));
    let figures: Vec<Block> = figures.map(Block::Table).collect();
    if !figures.is_empty() {
        sections.push(section("figures-of-the-robot", "Figures of the robot", figures).folded());
    }
    sections.extend(kernel);
    sections.push(conditions(collection).folded());
    sections.push(provenance(collection).folded());
    Document { title: title(collection), sections, papers: papers.len() }
}

fn section(id: &str, title: &str, blocks: Vec<Block>) -> Section {
    let mut section = Section::new(id, title);
    blocks.into_iter().for_each(|block| section.add(block));
    section
}

pub(crate) fn unit_of(digests: &[Digest]) -> Unit {
    let medians = digests.iter().filter(|d| d.summary.count > 0).map(|d| d.summary.median);
    Unit::for_typical(spread(medians)[0])
}

fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for value in values.filter(|v| !v.trim().is_empty()) {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn title(collection: &Collection) -> String {
    let headers = || collection.runs.iter().map(|r| &r.header);
    let campaigns = distinct(headers().map(|h| h.experiment.campaign.as_str()));
    let words = match (&campaigns[..], &collection.runs[..]) {
        ([], [run]) if !run.header.label.trim().is_empty() => {
            format!("{}, {}", run.header.robot, run.header.label)
        }
        ([], _) => distinct(headers().map(|h| h.robot.as_str())).join(", "),
        (names, _) => format!("campaign {}", names.join(", ")),
    };
    clean(&format!("Takt report: {words}"))
}

/// Takes the figure of the first screen out of its measure: the distribution of what is judged
/// first, with its deadline and its greatest value.
fn take_lead(contexts: &[Context<'_>], measures: &mut [Section]) -> Option<Figure> {
    let judged = |context: &Context<'_>| context.digests.iter().any(|digest| digest.verdict.is_some());
    let number = contexts.iter().position(judged).unwrap_or(0);
    let measure = measures.get_mut(number)?;
    let id = format!("{}-distribution-1", measure.id);
    measure.take_figure(&id)
}

/// The first screen: verdict, one figure, what to do next, and what a reader must not overlook. The
/// conditions of the runs and the tables of verdicts follow.
fn introduction(
    collection: &Collection,
    contexts: &[Context<'_>],
    lead: Option<Figure>,
    is_traced: bool,
) -> Section {
    let mut section = section("introduction", "The verdict", Vec::new());
    let mut tables = Vec::new();
    let mut robots: Vec<&str> = Vec::new();
    for context in contexts {
        if robots.contains(&context.group.robot.as_str()) {
            continue;
        }
        robots.push(&context.group.robot);
        let judged = tables::judged::judged(contexts, &context.group.robot);
        if judged.is_empty() {
            // A paper's leading measure need not be the one that has a deadline.
            let own = contexts.iter().filter(|other| other.group.robot == context.group.robot);
            let mut with_verdict = own.filter(|other| other.digests.iter().any(|d| d.verdict.is_some()));
            tables.extend(answer(with_verdict.next().unwrap_or(context), &mut section));
        } else {
            tables.extend(answer_all(&judged, &mut section));
        }
    }
    if let Some(figure) = lead {
        section.add(Block::Figure(Box::new(figure)));
    }
    let steps = next::steps(collection, contexts, is_traced);
    if !steps.is_empty() {
        section.add(Block::Heading("What to do next".to_owned()));
        section.add(Block::List(steps));
    }
    let scaled = paper::section::scaled(collection);
    if !scaled.is_empty() {
        section.add(Block::Warning(scaled));
    }
    let warnings = warnings(collection, contexts);
    if !warnings.is_empty() {
        section.add(Block::Warning(warnings));
    }
    section.add(Block::Paragraph(what_was_run(collection, contexts)));
    tables.into_iter().for_each(|table| section.add(Block::Table(table)));
    section
}

fn what_was_run(collection: &Collection, contexts: &[Context<'_>]) -> String {
    let headers = || collection.runs.iter().map(|r| &r.header);
    let robots = distinct(headers().map(|h| h.robot.as_str())).join(", ");
    let mut text = format!(
        "{} of robot {robots} in {}",
        count(collection.runs.len(), "run", "runs"),
        count(collection.configurations.len(), "configuration", "configurations"),
    );
    let repetitions = collection.configurations.iter().map(|c| c.runs.len());
    let (least, most) = (repetitions.clone().min().unwrap_or(0), repetitions.max().unwrap_or(0));
    match (least, most) {
        (_, 0 | 1) => {}
        (least, most) if least == most => text += &format!(", {most} repetitions each"),
        (least, most) => text += &format!(", {least} to {most} repetitions"),
    }
    let started = headers().map(|h| h.started_utc.as_str()).min().unwrap_or_default();
    let machine = &collection.runs[0].header.machine;
    let fact = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    // A guest whose time is counted has a calendar of its own.
    if !collection.runs.iter().all(in_counted_time) {
        text += &format!(", begun {started}");
    }
    if headers().all(|h| h.machine.virtual_machine.is_some()) {
        text += ", in virtual machines";
    } else if collection.differing.is_empty() {
        text += &format!(
            ", on {} ({}, kernel {}, preemption {})",
            fact(&machine.host),
            fact(&machine.cpu),
            fact(&machine.kernel),
            fact(&machine.preemption)
        );
    } else {
        text += ", on different machines";
    }
    text += ".";
    let several = |c: &&Context<'_>| !tables::judged::judged(contexts, &c.group.robot).is_empty();
    if let Some(main) = contexts.first().filter(|c| !several(c)) {
        text += &format!(" The main measure is \"{}\".", main.group.title);
    }
    if !collection.common.is_empty() {
        let same: Vec<String> = collection.common.iter().map(|f| format!("{} {}", f.name, f.value)).collect();
        text += &format!(" Identical in all runs: {}.", same.join(", "));
    }
    text
}

/// The verdict about the main measure of a robot. Returns the tables behind it.
fn answer(context: &Context<'_>, section: &mut Section) -> Vec<Table> {
    let judged = || context.digests.iter().filter_map(|d| Some((d, d.verdict.as_ref()?)));
    let with = |verdict: Verdict| judged().filter(|(_, v)| v.verdict == verdict).count();
    match &context.digests {
        [digest] => match &digest.verdict {
            Some(report) => section.add(Block::Verdict(report.verdict, sentence(&report.reasons))),
            None => section.add(Block::Paragraph("No deadline is set, so there is no verdict.".to_owned())),
        },
        _ if judged().count() == 0 => {
            section.add(Block::Paragraph("No deadline is set, so there are no verdicts.".to_owned()));
        }
        digests => {
            let deadlines: Vec<u64> = {
                let mut all: Vec<u64> = digests.iter().filter_map(|d| d.deadline_ns).collect();
                all.sort_unstable();
                all.dedup();
                all
            };
            let deadline = match deadlines[..] {
                [one] => format!("the deadline of {}", time(one as f64)),
                _ => "their deadlines".to_owned(),
            };
            for verdict in [Verdict::Fail, Verdict::Inconclusive, Verdict::Pass] {
                let number = with(verdict);
                if number == 0 {
                    continue;
                }
                let has_missed = |d: &&Digest| d.misses().saturating_add(d.skipped()) > 0;
                let those = judged().filter(|(_, v)| v.verdict == verdict).map(|(d, _)| d);
                let missed = those.filter(has_missed).count();
                let what = match verdict {
                    Verdict::Pass if missed > 0 => format!(
                        "met the claim with enough evidence, {missed} of them with misses of {deadline}"
                    ),
                    Verdict::Pass => format!("met {deadline} with enough evidence"),
                    // A robot that stopped, or lost frames, fails without a late job.
                    Verdict::Fail if missed == 0 => {
                        format!("failed for reasons other than {deadline}, which the table lists")
                    }
                    Verdict::Fail if missed == number => format!("missed {deadline} at least once"),
                    Verdict::Fail => format!(
                        "failed: {missed} missed {deadline} at least once, {} for other reasons, which the table lists",
                        number - missed
                    ),
                    Verdict::Inconclusive if missed > 0 => format!(
                        "support neither a PASS nor a FAIL of the claim: {missed} missed {deadline} at least once"
                    ),
                    Verdict::Inconclusive => {
                        format!("missed nothing, but the evidence is too weak for a PASS for {deadline}")
                    }
                };
                let all = count(digests.len(), "configuration", "configurations");
                section.add(Block::Verdict(verdict, format!("{number} of {all} {what}.")));
            }
        }
    }
    vec![tables::verdicts(context)]
}

/// The verdict about all measures of a robot that has several to keep. Returns the tables behind
/// it.
fn answer_all(judged: &[&Context<'_>], section: &mut Section) -> Vec<Table> {
    let overalls = tables::judged::overalls(judged);
    match &overalls[..] {
        [] => {
            section.add(Block::Paragraph("No deadline is set, so there is no verdict.".to_owned()));
            return Vec::new();
        }
        [(configuration, report)] => {
            let words = tables::judged::what_came(judged, *configuration, report);
            section.add(Block::Verdict(report.verdict, sentence(&[words])));
            section.add(Block::List(report.reasons.clone()));
        }
        several => {
            for verdict in [Verdict::Fail, Verdict::Inconclusive, Verdict::Pass] {
                // Those of which the same is to be said are reported together.
                let mut reported: Vec<(String, Vec<&str>)> = Vec::new();
                for (configuration, report) in several.iter().filter(|(_, report)| report.verdict == verdict)
                {
                    let words = tables::judged::what_came(judged, *configuration, report);
                    let name = judged[0].collection.configurations[*configuration].name.as_str();
                    match reported.iter_mut().find(|(same, _)| *same == words) {
                        Some((_, names)) => names.push(name),
                        None => reported.push((words, vec![name])),
                    }
                }
                for (words, names) in reported {
                    section.add(Block::Verdict(verdict, format!("{}: {words}.", names.join(", "))));
                }
            }
        }
    }
    vec![tables::judged::verdicts(judged, &overalls), tables::judged::misses(judged)]
}

/// Sentences made of reasons.
fn sentence(reasons: &[String]) -> String {
    let mut text = reasons.join("; ");
    if let Some(first) = text.chars().next() {
        text.replace_range(..first.len_utf8(), &first.to_uppercase().to_string());
    }
    text + "."
}

fn warnings(collection: &Collection, contexts: &[Context<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !collection.gaps.is_empty() {
        warnings.push(format!(
            "{} left out of all tables and figures; see section \"Runs\" for the reasons.",
            count(collection.gaps.len(), "folder or file is", "folders or files are")
        ));
    }
    let failed: usize = contexts.iter().flat_map(|c| c.digests).map(|d| d.failed.len()).sum();
    if failed > 0 {
        warnings.push(format!(
            "{} could not be used; the tables label the configuration.",
            count(failed, "series of samples", "series of samples")
        ));
    }
    let keys = |pick: &dyn Fn(&crate::collect::Run) -> bool| {
        let keys: Vec<&str> = collection.runs.iter().filter(|r| pick(r)).map(|r| r.key.as_str()).collect();
        (!keys.is_empty()).then(|| keys.join(", "))
    };
    if let Some(runs) = keys(&|r| r.seal == Seal::Missing && !r.seal.is_gone(&r.header)) {
        warnings.push(format!(
            "Not sealed, because they were cut off or still run: {runs}. Their figures may change."
        ));
    }
    if let Some(runs) = keys(&|r| r.seal.is_gone(&r.header)) {
        warnings.push(format!("Finished without a seal: {runs}. Their figures prove nothing."));
    }
    if let Some(runs) = keys(&|r| matches!(r.seal, Seal::Changed(_))) {
        warnings.push(format!(
            "Runs whose files were changed after sealing: {runs}. Their figures prove nothing."
        ));
    }
    let differing = unplanned(collection);
    if !differing.is_empty() {
        let facts: Vec<String> = differing.iter().map(|name| name.replace('_', " ")).collect();
        warnings.push(format!(
            "The machines of the runs differ ({}): differences between configurations may come from them. Section \"Machine\" lists each \
             run's machine.",
            facts.join(", ")
        ));
    }
    if collection.runs.iter().any(in_counted_time) {
        warnings.push(
            "Time is counted in instructions: verdicts compare kernels and say nothing about a board. See section \"What virtual time \
             means\"."
                .to_owned(),
        );
    }
    if let Some(runs) = keys(&|r| !r.header.not_granted.is_empty()) {
        warnings.push(format!("The kernel did not grant all requested settings: {runs}."));
    }
    if let Some(runs) = keys(&|r| r.header.records_lost > 0) {
        warnings.push(format!("Runs that lost records before they were stored: {runs}."));
    }
    let stolen = collection.runs.iter().map(|r| r.header.cpu.stolen).fold(0.0, f64::max);
    if stolen >= STOLEN_WARNING {
        warnings.push(format!(
            "A hypervisor took up to {:.1} % of the processor time: the worst values here may come from it, not from the kernel.",
            100.0 * stolen
        ));
    }
    warnings
}

fn in_counted_time(run: &Run) -> bool {
    run.header.machine.virtual_machine.as_ref().is_some_and(|guest| guest.virtual_time)
}

/// Facts in which the machines differ and that nobody varied on purpose: guests are made by their
/// campaign, each with its kernel.
fn unplanned(collection: &Collection) -> Vec<&str> {
    let guests = collection.runs.iter().all(|run| run.header.machine.virtual_machine.is_some());
    let names = collection.differing.iter().map(|fact| fact.name.as_str());
    names.filter(|name| !(guests && KERNEL_FACTS.contains(name))).collect()
}

/// A measure: its tables and figures.
fn measure(context: &Context<'_>, number: usize, main: bool, in_paper: bool) -> Section {
    let id = format!("m{number}");
    let title = if context.group.title.is_empty() { &context.group.name } else { &context.group.title };
    let mut section = Section::new(&id, title);
    if !main && context.digests.iter().any(|d| d.verdict.is_some()) {
        section.add(Block::Table(tables::verdicts(context)));
    }
    section.add(Block::Table(tables::latency(context)));
    let mut figures = pictures::by_phase(context, &id);
    figures.extend(pictures::rows(context, &id));
    if let Some(table) = tables::repetitions(context) {
        section.add(Block::Table(table));
    }
    if main {
        figures.extend(pictures::series(context, &id));
        figures.extend(pictures::trends(context, &id));
    }
    let shapes = if in_paper { Vec::new() } else { shapes(context, main) };
    shapes.into_iter().for_each(|table| section.add(Block::Table(table)));
    tables::extremes(context).into_iter().for_each(|table| section.add(Block::Table(table)));
    figures.into_iter().for_each(|figure| section.add(Block::Figure(Box::new(figure))));
    section
}

/// Tables in the shapes of the robot's own paper; a robot without one has those that no paper is
/// alone with.
fn shapes(context: &Context<'_>, main: bool) -> Vec<Table> {
    let shapes = context.supplement.map_or(Shapes::default(), |supplement| supplement.shapes());
    let has_paper = context.supplement.is_some_and(|supplement| !supplement.papers().is_empty());
    let mut tables = Vec::new();
    if main {
        tables.extend(context.supplement.map_or_else(Vec::new, |supplement| supplement.tables(context)));
        let has_jitter = context.supplement.is_some_and(|supplement| supplement.jitter().is_some());
        if has_jitter || !has_paper {
            tables.extend(tables::share_of_the_period(context));
        }
        if shapes.effects || !has_paper {
            tables.extend(tables::effects(context));
        }
        if shapes.conditions {
            tables.push(tables::conditions(context));
        }
    }
    if shapes.low {
        tables.extend(tables::low(context));
    }
    tables
}

fn conditions(collection: &Collection) -> Section {
    let mut section = section("machine", "Machine, settings, interference", Vec::new());
    section.add(Block::Table(tables::machine(collection)));
    match tables::shortfalls(collection) {
        Some(table) => section.add(Block::Table(table)),
        None => section.add(Block::Paragraph(
            "Every requested setting was granted, and no run reports a problem.".to_owned(),
        )),
    }
    match tables::interference(collection) {
        Some(table) => section.add(Block::Table(table)),
        None => section.add(Block::Paragraph("No run had interference of Takt's own.".to_owned())),
    }
    section
}

fn provenance(collection: &Collection) -> Section {
    let mut section = section("runs", "Runs", Vec::new());
    section.add(Block::Paragraph(
        "All tables and figures are computed only from these directories. The hash covers every file of a run: sha256sum of its \
         hashes.json gives the same value."
            .to_owned(),
    ));
    section.add(Block::Table(tables::runs(collection)));
    match tables::gaps(collection) {
        Some(table) => section.add(Block::Table(table)),
        None => section.add(Block::Paragraph("No folder or file is left out.".to_owned())),
    }
    section
}
