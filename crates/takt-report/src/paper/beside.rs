//! A published value beside ours: which configuration answers it, and how far it is off.

use super::{Figure, Headline, Other, PREEMPTION, Paper, ValueUnit};
use crate::collect::Collection;
use crate::digest::{Digest, RunDigest};
use crate::supplement::Context;
use crate::tables::spread;
use crate::words::{clean, short};

/// A published value and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// Table or figure of the paper.
    pub number: String,
    pub what: String,
    /// As the paper prints it, with its unit.
    pub published: String,
    /// Median of the repetitions, least and greatest, in the paper's unit; absent where nothing was
    /// measured.
    pub ours: Option<[f64; 3]>,
    pub unit: String,
    /// Ours over the paper's.
    pub ratio: Option<f64>,
    /// The configuration that was measured, and in what it is not the paper's; or why there is
    /// none.
    pub here: String,
}

impl Beside {
    /// Ours as a text: "12.3 ms [11, 14]".
    pub fn ours_text(&self) -> String {
        let Some([middle, low, high]) = self.ours else { return "–".to_owned() };
        let sign = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let value = format!("{}{sign}", figure(middle));
        if low == high { value } else { format!("{value} [{}, {}]", figure(low), figure(high)) }
    }
}

/// Three digits are what a repetition holds.
pub(super) fn figure(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    short(format!("{value:.digits$}").parse().unwrap_or(value))
}

/// All published values of a paper, beside the runs of a collection that are `contexts`.
pub fn besides(paper: &Paper, collection: &Collection, contexts: &[&Context<'_>]) -> Vec<Beside> {
    let items = paper.items.iter();
    items.flat_map(|item| of_item(item.number, item.headlines, collection, contexts)).collect()
}

pub(super) fn of_item(
    number: &str,
    headlines: &[Headline],
    collection: &Collection,
    contexts: &[&Context<'_>],
) -> Vec<Beside> {
    headlines.iter().map(|headline| beside(number, headline, collection, contexts)).collect()
}

fn beside(number: &str, of: &Headline, collection: &Collection, contexts: &[&Context<'_>]) -> Beside {
    let sign = of.unit.sign();
    let mut beside = Beside {
        number: number.to_owned(),
        what: of.what.to_owned(),
        published: if sign.is_empty() {
            of.published.text()
        } else {
            format!("{} {sign}", of.published.text())
        },
        ours: None,
        unit: sign.to_owned(),
        ratio: None,
        here: String::new(),
    };
    let Some(context) = contexts.iter().find(|context| context.group.name == of.measure) else {
        beside.here = format!("no run measured \"{}\"", of.measure);
        return beside;
    };
    let found = match nearest(context, of.at, of.prefer) {
        Ok(found) => found,
        Err(why) => {
            beside.here = why;
            return beside;
        }
    };
    beside.here = found.words();
    let ours = match of.figure {
        Figure::MeanBelow(other) => percent(less(context, &found, other, |run| run.summary.mean)),
        Figure::WorstBelow(other) => percent(less(context, &found, other, |run| run.summary.worst)),
        Figure::MeanLess(other) => less(context, &found, other, |run| run.summary.mean)
            .map(|[before, now]| [(before - now) / of.unit.ns(); 3]),
        Figure::Single(name) => single(collection, found.digest, name),
        figure => Ok(values(found.digest, figure, of.unit)),
    };
    match ours {
        Ok(ours) => {
            beside.ours = Some(ours);
            let published = of.published.middle();
            beside.ratio = (published != 0.0).then(|| ours[0] / published).filter(|ratio| ratio.is_finite());
        }
        Err(why) => beside.here = format!("{}; {why}", beside.here),
    }
    beside
}

/// A configuration, and the factors in which it is not the paper's.
struct Found<'a> {
    digest: &'a Digest,
    name: String,
    other: Vec<String>,
}

impl Found<'_> {
    fn words(&self) -> String {
        if self.other.is_empty() {
            self.name.clone()
        } else {
            format!("{}: {}", self.name, self.other.join(", "))
        }
    }
}

/// The value of a factor; of [`PREEMPTION`], what the kernel of the runs has, whatever the campaign
/// calls it.
fn value<'a>(context: &Context<'a>, digest: &Digest, name: &str) -> Option<&'a str> {
    if name != PREEMPTION {
        return context.factor(digest, name);
    }
    let header = &context.collection.runs[digest.runs.first()?.run].header;
    let preemption = header.machine.preemption.as_deref()?;
    Some(if preemption.starts_with("PREEMPT_RT") { "PREEMPT_RT" } else { "standard" })
}

/// Of the configurations with the factors `at`, the one with most of `prefer`.
fn nearest<'a>(
    context: &Context<'a>,
    at: &[(&str, &str)],
    prefer: &[(&str, &str)],
) -> Result<Found<'a>, String> {
    let of = |digest: &Digest, name: &str| value(context, digest, name);
    let fits = |digest: &&Digest| at.iter().all(|(name, value)| of(digest, name) == Some(*value));
    let measured = |digest: &&Digest| digest.summary.count > 0;
    let other = |digest: &Digest| -> Vec<String> {
        let other = prefer.iter().filter(|(name, value)| of(digest, name) != Some(*value));
        other
            .map(|(name, value)| match of(digest, name) {
                Some(here) => clean(&format!("{name}: {here}, in the paper {value}")),
                None => format!("{name}: not varied, in the paper {value}"),
            })
            .collect()
    };
    let all = context.digests.iter().filter(fits);
    let found = all.clone().filter(measured).map(|digest| (digest, other(digest)));
    match found.min_by_key(|(_, other)| other.len()) {
        Some((digest, other)) => Ok(Found { digest, name: context.name(digest).to_owned(), other }),
        None => {
            let words: Vec<String> = at.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let words = words.join(", ");
            Err(match all.count() {
                0 => format!("no run with {words}"),
                _ => format!("nothing was measured with {words}"),
            })
        }
    }
}

fn values(digest: &Digest, figure: Figure, unit: ValueUnit) -> [f64; 3] {
    let measured = digest.runs.iter().filter(|run| run.summary.count > 0);
    let of = |run: &RunDigest| {
        let s = &run.summary;
        let ns = match figure {
            Figure::Median => s.median,
            Figure::Worst => s.worst,
            Figure::StdDev => s.stddev,
            Figure::P90 => s.p90,
            Figure::P99 => s.p99,
            Figure::Misses => {
                return (run.misses.as_ref().map_or(0, |misses| misses.misses) as f64) + run.skipped as f64;
            }
            _ => s.mean,
        };
        ns / unit.ns()
    };
    spread(measured.map(of))
}

/// The figure of the other configuration and of this one: medians over the repetitions.
fn less(
    context: &Context<'_>,
    found: &Found<'_>,
    other: Other,
    pick: fn(&RunDigest) -> f64,
) -> Result<[f64; 2], String> {
    let base = nearest(context, other.at, other.prefer)?;
    if base.digest.configuration == found.digest.configuration {
        return Err(format!("compared with itself: there is only {}", base.name));
    }
    let median =
        |digest: &Digest| spread(digest.runs.iter().filter(|run| run.summary.count > 0).map(pick))[0];
    let before = median(base.digest);
    if before > 0.0 {
        Ok([before, median(found.digest)])
    } else {
        Err(format!("no value to compare with in {}", base.name))
    }
}

fn percent(less: Result<[f64; 2], String>) -> Result<[f64; 3], String> {
    less.map(|[before, now]| [100.0 * (before - now) / before; 3])
}

fn single(collection: &Collection, digest: &Digest, name: &str) -> Result<[f64; 3], String> {
    let headers = digest.runs.iter().map(|run| &collection.runs[run.run].header);
    let values: Vec<f64> = headers.filter_map(|header| header.figures.get(name).copied()).collect();
    if values.is_empty() {
        Err(format!("no run has the figure {name}"))
    } else {
        Ok(spread(values.into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in
            [(353.4, "353"), (15.66, "15.7"), (0.123_45, "0.123"), (4869.2, "4869"), (0.0, "0")]
        {
            assert_eq!(figure(value), text);
        }
    }
}
