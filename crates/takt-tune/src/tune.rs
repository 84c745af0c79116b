//! From a target to the table: the loop is found, knobs are tried, searched, and everything is
//! taken back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use takt_rt::placement::{self, CpuSet};

use crate::boot;
use crate::catalog::{self, Knob, Loop, Missing};
use crate::design::{Block, Factor};
use crate::error::TuneError;
use crate::live::{Live, LiveOptions, TO_END};
use crate::prompt::Prompt;
use crate::search::{Found, Judged, SearchSettings, Stage, geometric_mean, search};
use crate::tuned::{KnobRow, Proposed, Side, TuneReport, Tunes};

/// Options of tuning.
#[derive(Debug)]
pub struct Options {
    /// The machine and the loop.
    pub live: LiveOptions,
    pub search: SearchSettings,
    /// Interfaces whose knobs are tried.
    pub links: Vec<String>,
    /// Only knobs and ways whose name contains one of these; all when empty. Placebos are always
    /// among them.
    pub only: Vec<String>,
    /// Only the knobs are tried, and nothing is searched.
    pub only_list: bool,
}

/// Tunes; `progress` is called with what goes on.
///
/// # Errors
/// [`TuneError`]. Whatever had been changed has been taken back.
pub fn tune(
    options: Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<TuneReport, TuneError> {
    let began = Instant::now();
    let (target, aim) = (options.live.target.to_string(), options.live.aim.clone());
    let budget_s = options.live.budget.as_secs_f64();
    let deadline = began + options.live.budget.saturating_sub(TO_END);
    let _prompt = Prompt::begin(deadline);
    let (only, only_list) = (options.only, options.only_list);
    progress(&format!("looking for the loop of {target}"));
    let (mut live, seen) = Live::begin(options.live, stop)?;
    let about = live.about.clone();
    let period = about.period_ns.map_or("no period".to_owned(), |ns| format!("every {:.3} ms", ns / 1e6));
    progress(&format!(
        "the loop: {} (thread {} of {}), {period}, {}, CPUs {}",
        about.thread, about.scope.tid, about.process, about.policy, about.cpus
    ));
    let online = placement::online().unwrap_or(about.cpus);
    let (mut offered, mut missing) = catalog::offers(&about, online, &seen.busy, &options.links);
    if !only.is_empty() {
        let meant = |name: &str| only.iter().any(|part| name.contains(part.as_str()));
        for knob in offered.iter_mut().filter(|knob| !knob.placebo) {
            let title = knob.name.clone();
            knob.ways.retain(|way| meant(&format!("{title}: {}", way.name)));
        }
        offered.retain(|knob| !knob.ways.is_empty());
        missing.retain(|one| meant(&one.name));
    }
    let trying = Instant::now();
    let knobs = match live.journal() {
        Some(journal) => {
            let over = || Instant::now() >= deadline || stop.load(Ordering::Acquire);
            catalog::tried(journal, about.scope, offered, &mut missing, &over)
        }
        None => Vec::new(),
    };
    live.offer(&knobs);
    // All of them were set and taken back: a block sets half of them.
    live.change_took(trying.elapsed() / 2);
    progress(&format!(
        "{} settings can be changed here, {} cannot; each block takes {:.2} s",
        knobs.iter().filter(|knob| !knob.placebo).count(),
        missing.len(),
        live.block.as_secs_f64()
    ));
    let factors: Vec<Factor> = knobs.iter().map(factor).collect();
    // A block of fewer cycles has no such quantile: its worst stands for what is rarer than it.
    let cycles = about.period_ns.map_or(0.0, |ns| live.block.as_nanos() as f64 / ns);
    let is_rarer = (1.0 - aim.quantile) * cycles < 1.0;
    let settings =
        SearchSettings { stretch: if is_rarer { options.search.stretch } else { 0 }, ..options.search };
    let found = if only_list { listed(&factors) } else { search(&mut live, &factors, &settings, progress)? };
    if stop.load(Ordering::Acquire) && (found.measured == 0 || only_list) {
        live.end()?;
        return Err(TuneError::Stopped);
    }
    let mut notes = found.notes.clone();
    notes.extend(live.refused.iter().map(|(why, times)| format!("refused {times} times: {why}")));
    if live.lost > 0 {
        notes.push(format!(
            "{} kernel events were lost: the cycles at those moments were not counted",
            live.lost
        ));
    }
    if live.left_behind > 0 {
        notes.push(format!(
            "{} settings of an earlier search, killed together with its watchdog, were restored first",
            live.left_behind
        ));
    }
    if live.guarded_again() > 0 {
        notes.push(format!("the watchdog was killed {} times and restarted", live.guarded_again()));
    }
    let block_s = live.block.as_secs_f64();
    live.end()?;
    let limit_us = aim.limit.map(|limit| limit.as_secs_f64() * 1e6);
    let [before, after] = [&found.blocks[0], &found.blocks[1]].map(|blocks| side(blocks, limit_us));
    if found.placebo_credited {
        notes.push(
            "a placebo was credited even after longer measurements: trust only gains far above its own"
                .to_owned(),
        );
    }
    Ok(TuneReport {
        target,
        aim_reached: after.within_limit.filter(|_| after.blocks > 0).map(|within| within == after.blocks),
        aim,
        tunes: Tunes {
            process: about.process.clone(),
            thread: about.thread.clone(),
            pid: seen.thread.pid,
            tid: seen.thread.tid,
            period_us: seen.thread.period_us,
            policy: about.policy.to_string(),
            cpus: about.cpus.to_string(),
        },
        knobs: rows(&knobs, &missing, &found),
        gain_us: found.total.map(|total| [total.gain, total.low, total.high]),
        before,
        after,
        placebo_credited: found.placebo_credited,
        proposed: proposed(&about, online, &only),
        blocks: found.measured,
        remeasured: found.remeasured,
        block_s,
        budget_s,
        over: found.over,
        stopped: found.stopped,
        undecided: found
            .undecided
            .iter()
            .filter_map(|&(factor, way)| Some(named(knobs.get(factor)?, way)))
            .collect(),
        seconds: began.elapsed().as_secs_f64(),
        notes,
        files: Vec::new(),
    })
}

/// Boot parameters, those of the names that were asked for.
fn proposed(about: &Loop, online: CpuSet, only: &[String]) -> Vec<Proposed> {
    let mut all = boot::boot_parameters(about, online);
    all.retain(|one| only.is_empty() || only.iter().any(|part| one.parameters.contains(part.as_str())));
    all
}

/// Every way of every factor, unjudged.
fn listed(factors: &[Factor]) -> Found {
    let ways = factors.iter().enumerate().flat_map(|(factor, about)| {
        (0..about.options.len()).map(move |way| Judged {
            factor,
            way,
            stage: Stage::Screened,
            gain: None,
            stretches: None,
            kept: false,
        })
    });
    Found { judged: ways.collect(), ..Found::default() }
}

fn factor(knob: &Knob) -> Factor {
    Factor {
        name: knob.name.clone(),
        options: knob.ways.iter().map(|way| way.name.clone()).collect(),
        placebo: knob.placebo,
        costs: !knob.cost.is_empty(),
    }
}

fn side(blocks: &[Block], limit_us: Option<f64>) -> Side {
    let count = blocks.len();
    let mean = |pick: fn(&Block) -> f64| blocks.iter().map(pick).sum::<f64>() / count.max(1) as f64;
    Side {
        blocks: count,
        releases: blocks.iter().map(|block| block.releases).sum(),
        typical_us: geometric_mean(blocks.iter().map(|block| block.value_us)),
        worst_us: blocks.iter().map(|block| block.worst_us).fold(0.0, f64::max),
        stolen: mean(|block| block.stolen),
        load: mean(|block| block.load),
        within_limit: limit_us.map(|limit| blocks.iter().filter(|block| block.value_us < limit).count()),
    }
}

fn named(knob: &Knob, way: usize) -> String {
    match knob.ways.get(way) {
        Some(way) if !way.name.is_empty() => format!("{}: {}", knob.name, way.name),
        _ => knob.name.clone(),
    }
}

fn rows(knobs: &[Knob], missing: &[Missing], found: &Found) -> Vec<KnobRow> {
    let mut rows: Vec<KnobRow> = found
        .judged
        .iter()
        .filter_map(|judged| {
            let knob = knobs.get(judged.factor)?;
            let way = knob.ways.get(judged.way)?;
            let name = named(knob, judged.way);
            let finite = |pick: fn(&takt_stats::paired::Paired) -> f64| {
                judged.gain.as_ref().map(pick).filter(|value| value.is_finite())
            };
            Some(KnobRow {
                name,
                gain_us: finite(|gain| gain.gain),
                low: finite(|gain| gain.low),
                high: finite(|gain| gain.high),
                p: finite(|gain| gain.p).filter(|_| judged.stage == Stage::Ablated),
                stretches: judged.stretches,
                kept: judged.kept && !knob.placebo,
                placebo: knob.placebo,
                stage: judged.stage,
                note: String::new(),
                cost: knob.cost.to_owned(),
                settings: way.settings.clone(),
            })
        })
        .collect();
    rows.sort_by(|a, b| {
        let key = |row: &KnobRow| (!row.kept, row.placebo, std::cmp::Reverse(row.stage));
        key(a).cmp(&key(b)).then(b.gain_us.unwrap_or(f64::MIN).total_cmp(&a.gain_us.unwrap_or(f64::MIN)))
    });
    rows.extend(missing.iter().map(|one| KnobRow {
        name: one.name.clone(),
        gain_us: None,
        low: None,
        high: None,
        p: None,
        stretches: None,
        kept: false,
        placebo: false,
        stage: Stage::Unavailable,
        note: one.why.clone(),
        cost: String::new(),
        settings: Vec::new(),
    }));
    rows
}
