//! Published headlines beside ours, as they are shipped with the documentation: a summary of each
//! campaign that reproduces a paper, and the table that is written from the summaries.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use takt_rundir::{read_json, sha256_of, write_json};

use super::ShippedMachine;
use crate::collect::{Run, Seal, collect};
use crate::digest::digests;
use crate::paper::{Beside, besides, section};
use crate::supplement::{Context, Supplements};
use crate::table::{Cell, Table};
use crate::words::{count, short_hash};
use crate::{Error, plan};

/// Folder of these summaries, within that of the results.
const FOLDER: &str = "papers";

/// A campaign that reproduces a paper, summed up for the page of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShippedPaper {
    /// Its short name.
    pub paper: String,
    pub campaign: String,
    /// The command that made the campaign.
    pub command: String,
    pub takt: String,
    /// When the first run began, RFC 3339.
    pub started_utc: String,
    pub machine: ShippedMachine,
    pub runs: u64,
    /// Parts of the configuration that were not run, and other differences from the paper, one
    /// sentence each.
    pub differs: Vec<String>,
    pub headlines: Vec<ShippedHeadline>,
    /// SHA-256 of the hashes of all runs, in their order, a line each.
    pub seals_sha256: String,
}

/// A published value and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShippedHeadline {
    /// Table or figure of the paper.
    pub number: String,
    pub what: String,
    pub published: String,
    /// As a text; a dash where nothing was measured.
    pub ours: String,
    /// Ours over the paper's.
    pub ratio: Option<f64>,
    /// The configuration that was measured, and in what it is not the paper's.
    pub here: String,
}

impl From<&Beside> for ShippedHeadline {
    fn from(beside: &Beside) -> Self {
        Self {
            number: beside.number.clone(),
            what: beside.what.clone(),
            published: beside.published.clone(),
            ours: beside.ours_text(),
            // Three digits are what a repetition holds; more would change with every run.
            ratio: beside.ratio.map(|ratio| (ratio * 1000.0).round() / 1000.0),
            here: beside.here.clone(),
        }
    }
}

/// Sums up the campaigns among `paths` that reproduce a paper into `folder`, a file each; the other
/// paths are given back.
///
/// # Errors
/// [`Error::NotShippable`] for a run without a seal, or one that was changed after it;
/// [`Error::RunDir`] for runs that cannot be read.
pub fn keep_papers<'p>(
    folder: &Path,
    paths: &'p [PathBuf],
    supplements: &Supplements,
) -> Result<(Vec<PathBuf>, Vec<&'p PathBuf>), Error> {
    let (mut written, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        let summaries = sum_up(path, supplements)?;
        if summaries.is_empty() {
            others.push(path);
        }
        for (key, summary) in summaries {
            let folder = folder.join(FOLDER);
            takt_files::make_folder(&folder).map_err(Error::io(&folder))?;
            let file = folder.join(format!("{key}-{}.json", super::slug(&summary.campaign)));
            write_json(&file, &summary)?;
            written.push(file);
        }
    }
    Ok((written, others))
}

fn sum_up(path: &Path, supplements: &Supplements) -> Result<Vec<(&'static str, ShippedPaper)>, Error> {
    let collection = collect(&[path])?;
    let mut summaries = Vec::new();
    for (robot, paper) in section::papers(&collection, supplements) {
        let runs: Vec<&Run> = collection.runs.iter().filter(|run| run.header.robot == robot).collect();
        let seal = |run: &&Run| match &run.seal {
            Seal::Whole(hash) => Ok(hash.clone()),
            Seal::Missing | Seal::Changed(_) => Err(Error::NotShippable {
                run: run.dir.path().display().to_string(),
                why: run
                    .seal
                    .doubt()
                    .unwrap_or_else(|| "it has no seal: it was cut off or is still running".to_owned()),
            }),
        };
        let seals = runs.iter().map(seal).collect::<Result<Vec<String>, Error>>()?;
        let measured: Vec<_> = collection
            .groups
            .iter()
            .filter(|group| group.robot == robot)
            .map(|group| (group, digests(&collection, group)))
            .collect();
        let contexts: Vec<Context<'_>> = measured
            .iter()
            .map(|(group, digests)| Context {
                collection: &collection,
                group,
                digests,
                unit: crate::build::unit_of(digests),
                supplement: supplements.of(&robot),
            })
            .collect();
        let contexts: Vec<&Context<'_>> = contexts.iter().collect();
        let Some(first) = runs.iter().min_by_key(|run| &run.header.started_utc) else { continue };
        let here = paper.differs_here.map_or_else(Vec::new, |differs| differs(&collection));
        let besides = besides(paper, &collection, &contexts);
        summaries.push((
            paper.key,
            ShippedPaper {
                paper: paper.name.to_owned(),
                campaign: first.header.experiment.campaign.clone(),
                command: plan::command(path)
                    .unwrap_or_else(|| format!("takt campaign run {}", first.header.experiment.campaign)),
                takt: first.header.takt.clone(),
                started_utc: first.header.started_utc.clone(),
                machine: ShippedMachine::of(&first.header.machine),
                runs: runs.len() as u64,
                differs: section::scaled(&collection).into_iter().chain(here).collect(),
                headlines: besides.iter().map(ShippedHeadline::from).collect(),
                seals_sha256: sha256_of(seals.join("\n").as_bytes()),
            },
        ));
    }
    Ok(summaries)
}

/// Reads the summaries below `folder`; none where there are none.
///
/// # Errors
/// [`Error::RunDir`] for one that cannot be read.
pub fn read_papers(folder: &Path) -> Result<Vec<ShippedPaper>, Error> {
    let folder = folder.join(FOLDER);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().map(|path| Ok(read_json(path)?)).collect()
}

/// The table of published headlines, Markdown; nothing without a summary.
pub(super) fn headlines(papers: &[ShippedPaper]) -> String {
    if papers.is_empty() {
        return String::new();
    }
    let mut text = "## Published headlines\n\nFigures printed in the papers next to those that `takt` measured. The chapter \"Papers\" \
         states for every table and figure whether our definition is the same.\n\n"
        .to_owned();
    for paper in papers {
        let escape = crate::table::escape_inline;
        text += &format!("### {} (campaign {})\n\n", escape(&paper.paper), escape(&paper.campaign));
        text += &format!("    {}\n\n", crate::words::clean(&paper.command));
        text += &format!(
            "{} UTC, {}, takt {}, on {}; hash of all runs `{}`.\n\n",
            escape(&paper.started_utc.get(..16).unwrap_or(&paper.started_utc).replace('T', " ")),
            count(paper.runs as usize, "run", "runs"),
            escape(&paper.takt),
            escape(&super::machine_words(&paper.machine)),
            short_hash(&paper.seals_sha256),
        );
        let heads = ["published in", "what", "#paper", "#ours", "#ours / paper", "our configuration"];
        let mut table = Table::new("Published, and ours", &heads);
        for headline in &paper.headlines {
            table.push(vec![
                Cell::text(&headline.number),
                Cell::text(&headline.what),
                Cell::number(&headline.published),
                Cell::number(&headline.ours),
                headline.ratio.map_or_else(|| Cell::gap("none"), |ratio| Cell::number(format!("{ratio:.2}"))),
                Cell::text(&headline.here),
            ]);
        }
        text += &table.markdown();
        if !paper.differs.is_empty() {
            text += "What differs:\n\n";
            for sentence in &paper.differs {
                text += &format!("- {}\n", escape(sentence));
            }
            text.push('\n');
        }
    }
    text
}
