//! The three questions of SentryRT-1 (section V.A), answered in numbers from whatever was measured
//! by policy and noise.
//!
//! A policy is said to be faster only where it did not leave a greater share of its inputs
//! unanswered.

use takt_lab::questions::{Answer, Point};
use takt_stats::reduction;

/// The unmodified scheduler, which the others are compared with.
const BASELINE: &str = "CFS+CFS";
/// The policy whose kernels the paper compares (Fig. 4).
const BEST: &str = "DL+RR";

fn distinct<T: PartialEq + Clone>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen: Vec<T> = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn on(kernel: &str) -> String {
    if kernel.is_empty() { String::new() } else { format!("kernel {kernel}, ") }
}

fn lower(what: &str, percent: Option<f64>) -> String {
    match percent {
        Some(percent) if percent < 0.0 => format!("{what} {:.0} % higher", -percent),
        Some(percent) => format!("{what} {percent:.0} % lower"),
        None => format!("{what} not comparable"),
    }
}

/// Answers all three; none without points.
pub(super) fn answers(points: &[Point]) -> Vec<Answer> {
    if points.is_empty() {
        return Vec::new();
    }
    vec![
        answer("RQ1", "How does the reaction time degrade under increasing CPU interference?", noise(points)),
        answer("RQ2", "How do scheduling policies impact latency?", policies(points)),
        answer(
            "RQ3",
            "What influence does the kernel have on worst-case and average latency?",
            kernels(points),
        ),
    ]
}

fn answer(name: &str, question: &str, sentences: Vec<String>) -> Answer {
    Answer { name: name.to_owned(), question: question.to_owned(), sentences }
}

/// From least to most noise, for each policy.
fn noise(points: &[Point]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (kernel, policy) in distinct(points.iter().map(|p| (p.kernel.as_str(), p.policy.as_str()))) {
        let mut mine: Vec<&Point> =
            points.iter().filter(|p| p.kernel == kernel && p.policy == policy).collect();
        mine.sort_by_key(|p| p.noise);
        let (Some(first), Some(last)) = (mine.first(), mine.last()) else { continue };
        if first.noise == last.noise {
            sentences.push(format!("{}{policy}: only one amount of noise, {}.", on(kernel), first.noise));
            continue;
        }
        let times = |before: f64, now: f64| {
            if before > 0.0 { format!(" ({:.1} times)", now / before) } else { String::new() }
        };
        let missed = match mine.iter().find(|p| p.misses > 0) {
            Some(at) => format!("deadlines are missed from {} noise threads on", at.noise),
            None => "no deadline is missed".to_owned(),
        };
        sentences.push(format!(
            "{}{policy}, {} to {} noise threads: mean {:.1} to {:.1} ms{}, worst {:.1} to {:.1} ms{}, never answered {} to {}; \
             {missed}.",
            on(kernel),
            first.noise,
            last.noise,
            first.mean_ms,
            last.mean_ms,
            times(first.mean_ms, last.mean_ms),
            first.worst_ms,
            last.worst_ms,
            times(first.worst_ms, last.worst_ms),
            first.skipped,
            last.skipped,
        ));
    }
    sentences
}

/// Largest additional share of unanswered inputs before a side is said to do less: 2 %, the edges
/// of a short window and a lost frame per camera.
const SAME_WORK: f64 = 0.02;

/// Every policy against the unmodified scheduler, at every amount of noise.
fn policies(points: &[Point]) -> Vec<String> {
    let mut sentences = Vec::new();
    for point in points.iter().filter(|p| p.policy != BASELINE) {
        let same = |p: &&Point| {
            p.policy == BASELINE && (p.noise, p.kernel.as_str()) == (point.noise, point.kernel.as_str())
        };
        let Some(base) = points.iter().find(same) else { continue };
        let who = format!(
            "{}{} noise threads, {} against {BASELINE}",
            on(&point.kernel),
            point.noise,
            point.policy
        );
        let (mine, theirs) = (point.skipped_share(), base.skipped_share());
        // The side that answers fewer inputs answers them sooner, whichever it is.
        let faster_did_less = |mine_ms: f64, base_ms: f64| {
            if mine_ms < base_ms { mine > theirs + SAME_WORK } else { theirs > mine + SAME_WORK }
        };
        let less =
            faster_did_less(point.mean_ms, base.mean_ms) || faster_did_less(point.worst_ms, base.worst_ms);
        sentences.push(if less {
            format!(
                "{who}: not compared, because it never answered {:.1} % of its inputs ({BASELINE}: {:.1} %).",
                100.0 * mine,
                100.0 * theirs
            )
        } else {
            format!(
                "{who}: {}, {} ({} against {} misses, {:.1} against {:.1} % never answered).",
                lower("mean", reduction(base.mean_ms, point.mean_ms)),
                lower("worst", reduction(base.worst_ms, point.worst_ms)),
                point.misses,
                base.misses,
                100.0 * mine,
                100.0 * theirs
            )
        });
    }
    if sentences.is_empty() {
        sentences
            .push(format!("No answer: no other policy than {BASELINE} was measured under the same noise."));
    } else {
        sentences.push(
            "The paper, 128 noise threads on 32 processors with a GPU: mean about 85 % lower, worst about 80 % lower.".to_owned(),
        );
    }
    sentences
}

/// Kernels under most noise and the paper's best policy.
fn kernels(points: &[Point]) -> Vec<String> {
    let best = |p: &&Point| p.policy == BEST;
    let policy = if points.iter().any(|p| best(&p)) { BEST } else { points[0].policy.as_str() };
    let Some(noise) = points.iter().filter(|p| p.policy == policy).map(|p| p.noise).max() else {
        return Vec::new();
    };
    let chosen: Vec<&Point> = points.iter().filter(|p| p.policy == policy && p.noise == noise).collect();
    let mut sentences: Vec<String> = chosen
        .iter()
        .map(|p| {
            let kernel = if p.kernel.is_empty() { "this kernel" } else { p.kernel.as_str() };
            format!(
                "{kernel}, {policy}, {noise} noise threads: mean {:.1} ms, SD {:.2} ms, P99 {:.1} ms, worst {:.1} ms, {} misses.",
                p.mean_ms, p.stddev_ms, p.p99_ms, p.worst_ms, p.misses
            )
        })
        .collect();
    if distinct(chosen.iter().map(|p| p.kernel.as_str())).len() < 2 {
        sentences.push(
            "No answer: only one kernel was measured; the campaign sentryrt1-kernels boots others."
                .to_owned(),
        );
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(policy: &str, noise: u32, mean_ms: f64, worst_ms: f64, skipped: u64) -> Point {
        let (policy, misses) = (policy.to_owned(), if worst_ms > 37.3 { 3 + skipped } else { skipped });
        Point { policy, noise, count: 100, skipped, misses, mean_ms, worst_ms, ..Point::default() }
    }

    fn sentences(points: &[Point]) -> Vec<Vec<String>> {
        answers(points).into_iter().map(|answer| answer.sentences).collect()
    }

    #[test]
    fn the_questions_are_answered_from_the_rows() {
        let points = [
            point("CFS+CFS", 128, 60.0, 400.0, 50),
            point("DL+RR", 128, 6.0, 40.0, 0),
            point("CFS+CFS", 0, 5.0, 20.0, 0),
            point("DL+RR", 0, 5.5, 18.0, 0),
        ];
        let [noise, policies, kernels] = &sentences(&points)[..] else { panic!("three questions") };
        assert_eq!(
            noise[0],
            "CFS+CFS, 0 to 128 noise threads: mean 5.0 to 60.0 ms (12.0 times), worst 20.0 to 400.0 ms (20.0 times), never \
             answered 0 to 50; deadlines are missed from 128 noise threads on."
        );
        assert_eq!(
            policies[0],
            "128 noise threads, DL+RR against CFS+CFS: mean 90 % lower, worst 90 % lower (3 against 53 misses, 0.0 against \
             33.3 % never answered)."
        );
        assert!(policies[1].contains("mean 10 % higher"), "{policies:?}");
        assert!(kernels[0].starts_with("this kernel, DL+RR, 128 noise threads: mean 6.0 ms"), "{kernels:?}");
        assert!(kernels[1].contains("No answer"), "{kernels:?}");
    }

    #[test]
    fn who_answers_less_is_not_called_faster_and_nothing_is_answered_from_nothing() {
        let points = [point("CFS+CFS", 64, 60.0, 400.0, 10), point("DL+CFS", 64, 1.0, 2.0, 90)];
        let policies = &sentences(&points)[1];
        assert!(policies[0].contains("not compared") && !policies[0].contains("lower"), "{policies:?}");
        assert!(answers(&[]).is_empty());
        assert!(sentences(&[point("DL+RR", 64, 1.0, 2.0, 0)])[1][0].contains("No answer"));
        let kernels = [("generic", 9.0), ("rt", 6.0)]
            .map(|(kernel, mean)| Point { kernel: kernel.to_owned(), ..point("DL+RR", 128, mean, 30.0, 0) });
        let answer = &sentences(&kernels)[2];
        assert_eq!(answer.len(), 2, "{answer:?}");
        assert!(answer[1].starts_with("rt, DL+RR, 128 noise threads: mean 6.0 ms"), "{answer:?}");
    }
}
