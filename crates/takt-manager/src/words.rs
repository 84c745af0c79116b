//! Numbers and names as people read them.

/// Milliseconds with as many digits as matter.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn ms(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ms >= 100.0 {
        format!("{ms:.0}")
    } else if ms >= 1.0 {
        format!("{ms:.1}")
    } else {
        format!("{ms:.3}")
    }
}

/// Names like the one that was asked for, best first, at most five.
pub fn near<'a>(asked: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let plain = |s: &str| s.trim_start_matches('/').to_lowercase();
    let asked = plain(asked);
    let mut scored: Vec<(f64, &str)> = names
        .map(|name| {
            let candidate = plain(name);
            let inside = candidate.contains(&asked) || (!candidate.is_empty() && asked.contains(&candidate));
            let score = strsim::jaro_winkler(&asked, &candidate) + if inside { 0.5 } else { 0.0 };
            (score, name)
        })
        .filter(|(score, _)| *score > 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(5).map(|(_, name)| name.to_owned()).collect()
}
