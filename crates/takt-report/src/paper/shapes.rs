//! Shapes of published figures, from digests.

use crate::digest::{Digest, RunDigest};
use crate::document::Block;
use crate::figure::{
    Axis, BoxRow, GroupPanel, Groups, Pair, PublishedBar, RidgeRow, Whisker, boxes, groups, ridges,
};
use crate::pictures::{Words, figure, sources};
use crate::supplement::Context;
use crate::tables::spread;
use crate::words::clean;

/// Bars in groups of a published figure.
#[derive(Clone, Copy, Debug)]
pub struct BarsOf {
    /// Name of the picture, unique in the report.
    pub id: &'static str,
    pub title: &'static str,
    pub caption: &'static str,
    /// The factor of the groups, what its values are, and those that the paper has, in its order.
    pub groups: (&'static str, &'static str, &'static [&'static str]),
    /// The factor of the bars within a group, and its values in the paper's order.
    pub series: (&'static str, &'static [&'static str]),
    /// The factors that make a panel.
    pub panels: &'static [&'static str],
    pub published: &'static [PublishedPair],
}

/// A bar whose values the paper prints, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct PublishedPair {
    /// Its panel: the values of the panels' factors.
    pub panel: &'static [&'static str],
    pub group: &'static str,
    pub series: &'static str,
    /// Least and greatest.
    pub ranges_ns: &'static [[f64; 2]],
}

/// Groups of bars of mean and worst value; `None` where nothing was measured that the figure shows.
/// Groups and bars that the paper has and these runs have not are left empty, so that the figure
/// keeps the paper's shape.
pub fn grouped_bars(context: &Context<'_>, of: &BarsOf) -> Option<Block> {
    let (group_factor, quantity, group_values) = of.groups;
    let (series_factor, series_values) = of.series;
    let value = |digest: &Digest, factor: &str| context.factor(digest, factor).unwrap_or("").to_owned();
    let panel_of = |digest: &Digest| of.panels.iter().map(|factor| value(digest, factor)).collect::<Vec<_>>();
    let measured: Vec<&Digest> = context
        .digests
        .iter()
        .filter(|digest| digest.summary.count > 0 && context.factor(digest, series_factor).is_some())
        .collect();
    if measured.is_empty() {
        return None;
    }
    let with_others = |published: &[&str], factor: &str| {
        let mut all: Vec<String> = published.iter().map(|value| (*value).to_owned()).collect();
        for digest in &measured {
            let value = value(digest, factor);
            if !all.contains(&value) {
                all.push(value);
            }
        }
        all
    };
    let groups_of = with_others(group_values, group_factor);
    let series = with_others(series_values, series_factor);
    let mut panels: Vec<Vec<String>> = Vec::new();
    for digest in &measured {
        let panel = panel_of(digest);
        if !panels.contains(&panel) {
            panels.push(panel);
        }
    }
    let made: Vec<GroupPanel> = panels
        .iter()
        .map(|panel| {
            let bar = |group: &String, series: &String| {
                let digest = measured.iter().find(|digest| {
                    panel_of(digest) == *panel
                        && value(digest, group_factor) == *group
                        && value(digest, series_factor) == *series
                });
                digest.map(|digest| pair(digest))
            };
            let bars =
                groups_of.iter().map(|group| series.iter().map(|one| bar(group, one)).collect()).collect();
            let place = |all: &[String], value: &str| all.iter().position(|other| other == value);
            let here = of.published.iter().filter(|published| panel.iter().eq(published.panel.iter()));
            let published = here.flat_map(|published| {
                let places = place(&groups_of, published.group).zip(place(&series, published.series));
                let bars = published.ranges_ns.iter().filter_map(move |range| {
                    places.map(|(group, series)| PublishedBar { group, series, range: *range })
                });
                bars.collect::<Vec<_>>()
            });
            let words = of.panels.iter().zip(panel).filter(|(_, value)| !value.is_empty());
            let words: Vec<String> =
                words.map(|(factor, value)| format!("{} {value}", factor.replace('_', " "))).collect();
            GroupPanel { name: clean(&words.join(", ")), bars, published: published.collect() }
        })
        .collect();
    let deadlines: Vec<u64> = measured.iter().filter_map(|digest| digest.deadline_ns).collect();
    let deadline_ns = deadlines.first().filter(|first| deadlines.iter().all(|one| one == *first));
    let axis = Axis { quantity: &context.group.title, unit: context.unit };
    let of_picture = Groups {
        quantity,
        groups: &groups_of,
        series: &series,
        deadline_ns: deadline_ns.map(|ns| *ns as f64),
    };
    let words = Words { id: of.id.to_owned(), title: of.title.to_owned(), caption: of.caption.to_owned() };
    let runs = sources(context, measured.iter().flat_map(|digest| &digest.runs).map(|run| run.run));
    Some(Block::Figure(Box::new(figure(words, runs, |about| groups(&axis, about, &of_picture, &made)))))
}

fn pair(digest: &Digest) -> Pair {
    let whisker = |pick: fn(&RunDigest) -> f64| {
        let [middle, low, high] = spread(digest.runs.iter().filter(|run| run.summary.count > 0).map(pick));
        Whisker { low, middle, high }
    };
    Pair { mean: whisker(|run| run.summary.mean), worst: whisker(|run| run.summary.worst) }
}

/// Box plots of these configurations, with the deadline; `None` for none.
pub fn boxes_of(
    context: &Context<'_>,
    (id, title, caption): (&str, &str, &str),
    digests: &[&Digest],
) -> Option<Block> {
    let digests: Vec<&&Digest> = digests.iter().filter(|digest| digest.summary.count > 0).collect();
    if digests.is_empty() {
        return None;
    }
    let rows: Vec<BoxRow> = digests.iter().map(|digest| digest.box_row(context.name(digest))).collect();
    let axis = Axis { quantity: &context.group.title, unit: context.unit };
    let words = Words { id: id.to_owned(), title: title.to_owned(), caption: caption.to_owned() };
    let runs = sources(context, digests.iter().flat_map(|digest| &digest.runs).map(|run| run.run));
    Some(Block::Figure(Box::new(figure(words, runs, |about| boxes(&axis, about, &rows)))))
}

/// Distribution functions of a measure with phases, a panel for each; none where nothing was
/// measured by phase.
pub fn by_phase(context: &Context<'_>, id: &str) -> Vec<Block> {
    crate::pictures::by_phase(context, id).into_iter().map(|figure| Block::Figure(Box::new(figure))).collect()
}

/// Distributions of these configurations, one above the other over one axis; `None` for none.
pub fn distributions(
    context: &Context<'_>,
    (id, title, caption): (&str, &str, &str),
    digests: &[&Digest],
) -> Option<Block> {
    let digests: Vec<&&Digest> = digests.iter().filter(|digest| digest.summary.count > 0).collect();
    if digests.is_empty() {
        return None;
    }
    let rows: Vec<RidgeRow> = digests
        .iter()
        .map(|digest| RidgeRow {
            name: context.name(digest).to_owned(),
            bins: digest.bins.clone(),
            median: digest.summary.median,
            max: digest.summary.worst,
            deadline_ns: digest.deadline_ns.map(|ns| ns as f64),
        })
        .collect();
    let axis = Axis { quantity: &context.group.title, unit: context.unit };
    let words = Words { id: id.to_owned(), title: title.to_owned(), caption: caption.to_owned() };
    let runs = sources(context, digests.iter().flat_map(|digest| &digest.runs).map(|run| run.run));
    Some(Block::Figure(Box::new(figure(words, runs, |about| ridges(&axis, about, &rows)))))
}
