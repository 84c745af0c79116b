//! The cell's additions to reports: the questions of its paper (SentryRT-1), and the effect of a
//! GPU on the reaction time.

mod gpu;

use takt_lab::questions::Point;
use takt_report::document::{Block, Section};
use takt_report::{Collection, Context, Digest, Drawn, Group, Supplement, clean};

use super::questions::answers;
use super::rows::REACTION;

/// The cell's additions to reports.
#[derive(Debug)]
pub(super) struct Paper;

impl Supplement for Paper {
    fn papers(&self) -> &'static [takt_report::paper::Paper] {
        &super::paper::PAPERS
    }

    fn remark(&self, group: &Group, figure: Drawn) -> Option<&'static str> {
        (group.name == REACTION).then_some(match figure {
            Drawn::Bars => "SentryRT-1, Fig. 3, has the same bars.",
            Drawn::Distribution => "SentryRT-1, Fig. 4, shows one run of each kernel so.",
        })
    }

    fn sections(&self, collection: &Collection, contexts: &[&Context<'_>]) -> Vec<Section> {
        let reaction = contexts.iter().copied().find(|context| context.group.name == REACTION);
        let mut sections: Vec<Section> = reaction.and_then(questions).into_iter().collect();
        let tables = [reaction.and_then(gpu::mitigations), gpu::perception_process(collection)];
        let tables: Vec<Block> = tables.into_iter().flatten().map(Block::Table).collect();
        if !tables.is_empty() {
            sections.push(section("gpu", "GPU", tables));
        }
        sections
    }
}

fn section(id: &str, title: &str, blocks: Vec<Block>) -> Section {
    let mut section = Section::new(id, title);
    blocks.into_iter().for_each(|block| section.add(block));
    section
}

/// The paper's questions, where reaction times were measured by policy and noise.
fn questions(context: &Context<'_>) -> Option<Section> {
    let point = |digest: &Digest| {
        let (summary, skipped) = (&digest.summary, digest.skipped());
        Some(Point {
            policy: context.factor(digest, "policy")?.to_owned(),
            noise: context.factor(digest, "noise")?.parse().ok()?,
            kernel: context.factor(digest, "kernel").unwrap_or_default().to_owned(),
            count: summary.count,
            skipped,
            misses: digest.misses().saturating_add(skipped),
            mean_ms: summary.mean / 1e6,
            worst_ms: summary.worst / 1e6,
            stddev_ms: summary.stddev / 1e6,
            p99_ms: summary.p99 / 1e6,
        })
    };
    let points: Vec<Point> =
        context.digests.iter().filter(|d| d.summary.count > 0).filter_map(point).collect();
    let blocks: Vec<Block> = answers(&points)
        .into_iter()
        .flat_map(|answer| {
            let question = format!("{}: {}", answer.name, clean(&answer.question));
            let sentences = answer.sentences.iter().map(|sentence| clean(sentence)).collect();
            [Block::Paragraph(question), Block::List(sentences)]
        })
        .collect();
    (!blocks.is_empty()).then(|| section("questions", "The paper's three questions", blocks))
}

#[cfg(test)]
mod tests;
