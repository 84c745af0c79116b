//! The gate on runs that were recorded: runs of one build, dealt anew as baseline and candidates,
//! and with a planted regression; and on a machine that is made up, whose state drifts from run to
//! run and from day to day.
//!
//! `tests/data/lateness` holds 60 runs of the bare 1 kHz task (5 s each, SCHED_FIFO 80) on a
//! virtual machine that compiled other things beside: a noisy shared machine. To record others:
//! `TAKT_GATE_RUNS=FOLDER cargo test -p takt-history --features store --test it simulated:: -- --ignored keep`.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use serde::Serialize;
use takt_history::gate::Decision;
use takt_history::gate::judge::{Made, Settings, TAIL, interval, judge};
use takt_rt::random::SplitMix64;
use takt_rundir::{Machine, RUN_FILE, RunDir, find_runs};

const SETTINGS: Settings = Settings { tail: TAIL, tolerance: 0.1, find: 0.2 };

/// With so many runs a rise of a fifth is found on this machine, where the P99 of runs scatters by
/// a third.
const BEFORE: usize = 300;
const AFTER: usize = 150;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/lateness")
}

#[derive(Serialize)]
struct Row {
    run: u64,
    lateness_ns: u64,
}

/// Puts the lateness of all runs of a folder into one run directory, in the order in which they
/// were made.
#[test]
#[ignore = "makes the recording that the other tests read"]
fn campaign_keep() {
    let mut runs = find_runs(Path::new(&std::env::var("TAKT_GATE_RUNS").unwrap())).unwrap();
    runs.sort_by_key(|run| run.header().unwrap().started_utc);
    let kept = RunDir::create_at(&data()).unwrap();
    let mut file = kept.samples("lateness").unwrap();
    for (index, run) in (0u64..).zip(&runs) {
        let measure = run.header().unwrap().measures.into_iter().find(|m| m.name == "lateness").unwrap();
        for lateness_ns in run.series(&measure).unwrap().values_ns {
            file.push(&Row { run: index, lateness_ns }).unwrap();
        }
    }
    file.flush().unwrap();
    let mut header = runs[0].header().unwrap();
    header.measures.clear();
    let Machine { kernel, preemption, cpu, online_cpus, hypervisor, .. } = header.machine;
    header.machine = Machine { kernel, preemption, cpu, online_cpus, hypervisor, ..Machine::default() };
    header.label = format!("{} runs of {}", runs.len(), header.label);
    kept.write_json(RUN_FILE, &header).unwrap();
    kept.seal().unwrap();
}

/// The recorded runs, in the order in which they were made.
fn recorded() -> Vec<Vec<u64>> {
    let dir = RunDir::open(&data()).unwrap();
    assert!(dir.changed_files().unwrap().is_empty());
    let columns = dir.columns("lateness", &["run", "lateness_ns"]).unwrap();
    let mut runs: Vec<Vec<u64>> = Vec::new();
    for (run, value) in columns[0].iter().zip(&columns[1]) {
        runs.resize_with(runs.len().max(*run as usize + 1), Vec::new);
        runs[*run as usize].push(*value);
    }
    runs
}

fn quantile(values: &[u64], q: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1]
}

/// Figure of a run that the gate uses.
fn figure(values: &[u64]) -> f64 {
    (quantile(values, 0.99) as f64).ln()
}

/// A build whose slowest twentieth of the jobs takes a fifth longer: its P99 has risen by a fifth,
/// its median not at all.
fn regressed(values: &[u64], by: f64) -> Vec<u64> {
    let from = quantile(values, 0.95);
    values.iter().map(|v| if *v >= from { (*v as f64 * by) as u64 } else { *v }).collect()
}

fn deal<T: Clone>(dice: &mut SplitMix64, items: &[T]) -> Vec<T> {
    let mut dealt = items.to_vec();
    for last in (1..dealt.len()).rev() {
        dealt.swap(last, (dice.bits() % (last as u64 + 1)) as usize);
    }
    dealt
}

/// Any number of runs as those that were recorded, drawn again and again.
fn drawn(dice: &mut SplitMix64, figures: &[f64], count: usize) -> Vec<f64> {
    (0..count).map(|_| figures[(dice.bits() % figures.len() as u64) as usize]).collect()
}

#[test]
fn a_hundred_new_runs_of_the_same_build_are_called_worse_once_at_most() {
    let figures: Vec<f64> = recorded().iter().map(|run| figure(run)).collect();
    let mut dice = SplitMix64::new(1);
    let (mut all, mut unlucky) = (0, 0);
    // The hundred share a baseline, which may be an unlucky one: so often it is. No run is on both
    // sides.
    for _ in 0..50 {
        let dealt = deal(&mut dice, &figures);
        let (before, rest) = dealt.split_at(20);
        let again = |dice: &mut SplitMix64| {
            interval(before, &deal(dice, rest)[..10], &Made::InTurns, &SETTINGS).decision
        };
        let worse = (0..100).filter(|_| again(&mut dice) == Decision::Worse).count();
        all += worse;
        unlucky += usize::from(worse > 1);
    }
    println!("20 and 10 runs: {all} of 5000 worse; {unlucky} of 50 hundreds with more than one");
    assert!(all <= 5 && unlucky <= 1, "{all} of 5000 worse; {unlucky} of 50 hundreds with more than one");
    // With as many runs as find a rise of a fifth.
    let before = drawn(&mut dice, &figures, BEFORE);
    let again = |dice: &mut SplitMix64| {
        interval(&before, &drawn(dice, &figures, AFTER), &Made::InTurns, &SETTINGS).decision
    };
    let worse = (0..100).filter(|_| again(&mut dice) == Decision::Worse).count();
    println!("{BEFORE} and {AFTER} runs: {worse} of 100 worse");
    assert!(worse <= 1, "{worse} of 100 worse");
}

#[test]
fn what_the_machine_drifts_is_no_regression() {
    let figures: Vec<f64> = recorded().iter().map(|run| figure(run)).collect();
    // As they were made: each stretch is judged by those before it.
    let (before, after) = (40, 10);
    let worse = figures
        .windows(before + after)
        .filter(|runs| {
            interval(&runs[..before], &runs[before..], &Made::apart(before, after), &SETTINGS).decision
                == Decision::Worse
        })
        .count();
    println!("{worse} of {} worse", figures.len() + 1 - before - after);
    assert_eq!(worse, 0);
}

/// A machine whose state comes and goes: each run is `follows` of the one before (an autoregressive
/// process), and scatters by `noise` around it.
struct Drifting {
    dice: SplitMix64,
    follows: f64,
    state: f64,
    noise: f64,
}

impl Drifting {
    fn normal(&mut self) -> f64 {
        let mut unit = || ((self.dice.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
    }

    /// Two figures of so many runs in a row, the one beside the tail with less of the state.
    fn runs(&mut self, count: usize) -> [Vec<f64>; 2] {
        let mut at = self.normal();
        let mut all = [Vec::new(), Vec::new()];
        for _ in 0..count {
            at = self.follows * at + (1.0 - self.follows * self.follows).sqrt() * self.normal();
            for (figures, share) in all.iter_mut().zip([1.0, 0.7]) {
                figures.push(10.0 + share * self.state * at + self.noise * self.normal());
            }
        }
        all
    }
}

/// Both figures in one gate: their share of the error.
const BOTH: Settings = Settings { tail: TAIL / 2.0, ..SETTINGS };

/// When a run began, by day and minute.
fn began(day: usize, minute: usize) -> String {
    format!("2026-11-{:02}T{:02}:{:02}:00.000Z", 1 + day, 6 + minute / 60, minute % 60)
}

fn of_times(before: &[String], after: &[String]) -> Made {
    let [before, after] = [before, after].map(|side| side.iter().map(String::as_str).collect::<Vec<&str>>());
    Made::of(&before, &after)
}

#[test]
#[ignore = "takes 60 s"]
fn a_machine_that_drifts_between_old_and_new_runs_is_no_regression() {
    for follows in [0.5, 0.9, 0.97] {
        for (before, after, state) in
            [(20, 10, 0.1), (20, 10, 0.3), (60, 10, 0.1), (60, 10, 0.3), (300, 10, 0.3)]
        {
            let times: Vec<String> = (0..before + after).map(|minute| began(0, minute)).collect();
            let made = of_times(&times[..before], &times[before..]);
            let mut machine = Drifting { dice: SplitMix64::new(5), follows, state, noise: 0.1 };
            let tries = if before > 100 { 100 } else { 1000 };
            let worse = (0..tries)
                .filter(|_| {
                    machine.runs(before + after).iter().any(|figures| {
                        let found = interval(&figures[..before], &figures[before..], &made, &BOTH);
                        found.decision == Decision::Worse
                    })
                })
                .count();
            println!("follows {follows}, state {state}, {before} and {after}: {worse} of {tries} worse");
            assert!(worse * 100 <= tries, "{follows} {state} {before} {after}: {worse} of {tries} worse");
        }
    }
}

#[test]
#[ignore = "takes 85 s"]
fn another_day_is_no_regression() {
    for (days, state) in [(1, 0.05), (1, 0.15), (3, 0.15), (6, 0.05), (6, 0.15)] {
        let old: Vec<String> =
            (0..days).flat_map(|day| (0..120 / days).map(move |minute| began(day, minute))).collect();
        let new: Vec<String> = (0..10).map(|minute| began(days, minute)).collect();
        let made = of_times(&old, &new);
        let mut machine = Drifting { dice: SplitMix64::new(6), follows: 0.0, state: 0.0, noise: 0.05 };
        let worse = (0..1000)
            .filter(|_| {
                let levels: Vec<f64> = (0..=days).map(|_| state * machine.normal()).collect();
                let figures = machine.runs(old.len() + new.len());
                figures.iter().any(|figures| {
                    let day = |index: usize| (index * days / old.len()).min(days);
                    let runs: Vec<f64> =
                        figures.iter().enumerate().map(|(i, v)| v + levels[day(i)]).collect();
                    let found = interval(&runs[..old.len()], &runs[old.len()..], &made, &BOTH);
                    found.decision == Decision::Worse
                })
            })
            .count();
        println!("{days} days that differ by {state}: {worse} of 1000 worse");
        assert!(worse <= 10, "{days} days that differ by {state}: {worse} of 1000 worse");
    }
}

#[test]
fn blocks_of_either_side_that_drift_are_no_regression() {
    // One after the other, by so many: what takes turns too seldom shares no drift.
    for (length, follows, state) in
        [(1, 0.97, 0.3), (2, 0.9, 0.3), (5, 0.7, 0.3), (7, 0.5, 0.3), (7, 0.8, 0.5)]
    {
        let side = |is_new: bool| -> Vec<usize> {
            (0..14 * length).filter(|index| (index / length % 2 == 1) == is_new).collect()
        };
        let (old, new) = (side(false), side(true));
        let times = |side: &[usize]| side.iter().map(|minute| began(0, *minute)).collect::<Vec<String>>();
        let made = of_times(&times(&old), &times(&new));
        assert_eq!(made == Made::InTurns, length <= 2, "{length}");
        let mut machine = Drifting { dice: SplitMix64::new(7), follows, state, noise: 0.1 };
        // Those that are in turn are the question.
        let tries = if length <= 2 { 3000 } else { 300 };
        let worse = (0..tries)
            .filter(|_| {
                machine.runs(14 * length).iter().any(|figures| {
                    let of = |side: &[usize]| side.iter().map(|index| figures[*index]).collect::<Vec<f64>>();
                    interval(&of(&old), &of(&new), &made, &BOTH).decision == Decision::Worse
                })
            })
            .count();
        println!("blocks of {length}, follows {follows}: {worse} of {tries} worse");
        assert!(1000 * worse <= 3 * tries, "blocks of {length}, follows {follows}: {worse} of {tries} worse");
    }
}

#[test]
fn a_baseline_that_goes_on_around_the_turns_is_no_regression() {
    // Old runs on three days, the new ones in turns with those of the second; and without pauses.
    for (pause, follows, day) in [(1440, 0.0, 0.15), (0, 0.97, 0.0)] {
        let is_new = |run: usize| (12..36).contains(&run) && run % 2 == 1;
        let of_day = |run: usize| if run < 12 { 0 } else { usize::from(run >= 36) + 1 };
        let side = |wanted: bool| (0..48).filter(move |run| is_new(*run) == wanted);
        let times = |wanted: bool| -> Vec<String> {
            side(wanted).map(|run| began(of_day(run) * usize::from(pause > 0), run)).collect()
        };
        let made = of_times(&times(false), &times(true));
        let mut machine = Drifting { dice: SplitMix64::new(12), follows, state: 0.3, noise: 0.05 };
        if follows == 0.0 {
            machine.state = 0.0;
        }
        let worse = (0..1000)
            .filter(|_| {
                let days = [0, 1, 2].map(|_| day * machine.normal());
                machine.runs(48).iter().any(|figures| {
                    let of = |wanted: bool| -> Vec<f64> {
                        side(wanted).map(|run| figures[run] + days[of_day(run)]).collect()
                    };
                    interval(&of(false), &of(true), &made, &BOTH).decision == Decision::Worse
                })
            })
            .count();
        println!("follows {follows}, days {day}: {made:?}: {worse} of 1000 worse");
        assert!(worse <= 10, "follows {follows}, days {day}: {worse} of 1000 worse");
    }
}

#[test]
fn a_long_baseline_before_finds_what_is_more_than_its_stretches_differ() {
    let mut machine = Drifting { dice: SplitMix64::new(8), follows: 0.9, state: 0.03, noise: 0.05 };
    let made = Made::apart(200, 10);
    let found = (0..200)
        .filter(|_| {
            let [figures, _] = machine.runs(210);
            let new: Vec<f64> = figures[200..].iter().map(|figure| figure + 1.3f64.ln()).collect();
            interval(&figures[..200], &new, &made, &BOTH).decision == Decision::Worse
        })
        .count();
    println!("{found} of 200 found");
    assert!(found >= 190, "{found} of 200");
}

/// Number of `tries` in which a rise is found.
fn found(runs: &[Vec<u64>], before: usize, after: usize, by: f64, tries: usize) -> usize {
    let plain: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
    let risen: Vec<f64> = runs.iter().map(|run| figure(&regressed(run, by))).collect();
    let mut dice = SplitMix64::new(2);
    (0..tries)
        .filter(|_| {
            let (old, new) = (drawn(&mut dice, &plain, before), drawn(&mut dice, &risen, after));
            interval(&old, &new, &Made::InTurns, &SETTINGS).decision == Decision::Worse
        })
        .count()
}

#[test]
fn a_rise_of_a_fifth_is_found_in_nineteen_of_twenty() {
    let of = found(&recorded(), BEFORE, AFTER, 1.2, 100);
    println!("{of} of 100 with {BEFORE} runs before and {AFTER} after");
    assert!(of >= 95, "{of} of 100");
}

#[test]
fn what_is_said_to_be_detectable_is_found() {
    let runs = recorded();
    let figures: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
    let mut dice = SplitMix64::new(3);
    let mut least: Vec<f64> = (0..20)
        .map(|_| {
            let (old, new) = (drawn(&mut dice, &figures, 20), drawn(&mut dice, &figures, 10));
            judge(&old, &new, &Made::InTurns, &SETTINGS).minimum_detectable.unwrap()
        })
        .collect();
    least.sort_unstable_by(f64::total_cmp);
    let middle = least[least.len() / 2];
    let of = found(&runs, 20, 10, middle.exp(), 400);
    println!("a rise of {:.1} % is found in {of} of 400", 100.0 * middle.exp_m1());
    assert!(of >= 360, "a rise of {:.1} % is found in {of} of 400", 100.0 * middle.exp_m1());
}

/// The table of the book: what is found with how many runs of how many values.
#[test]
#[ignore = "prints a table"]
fn campaign_table() {
    let runs = recorded();
    let mut dice = SplitMix64::new(4);
    for values in [1000, 5000] {
        let short: Vec<Vec<u64>> = runs.iter().map(|run| run[..values.min(run.len())].to_vec()).collect();
        let figures: Vec<f64> = short.iter().map(|run| figure(run)).collect();
        for (before, after) in
            [(20, 10), (60, 60), (100, 100), (150, 150), (200, 200), (300, 100), (400, 150)]
        {
            let of = found(&short, before, after, 1.2, 100);
            let (old, new) = (drawn(&mut dice, &figures, before), drawn(&mut dice, &figures, after));
            let judged = judge(&old, &new, &Made::InTurns, &SETTINGS);
            let detectable = judged.minimum_detectable.map(|log| 100.0 * log.exp_m1());
            println!(
                "{values} values, {before} and {after} runs: {of} of 100; {detectable:?} %; {:?} needed",
                judged.runs_needed
            );
        }
    }
}

/// The book's figures about histories: how often one without a change shows one, and names a first
/// bad run.
#[test]
#[ignore = "prints a table"]
fn campaign_histories_of_runs_that_hang_together() {
    for follows in [0.0, 0.5, 0.8] {
        let mut machine = Drifting { dice: SplitMix64::new(9), follows, state: 0.2, noise: 0.0 };
        let shown = (0..200)
            .filter(|_| {
                let [figures, _] = machine.runs(40);
                !takt_stats::change::changes(&figures, |_| true, 1).is_empty()
            })
            .count();
        println!("follows {follows}: {shown} of 200 histories of 40 runs show a change");
    }
}
