//! Effect of lateness on this vehicle, in simulated time (the argument of the paper's section 7.4,
//! measured): how long may the rotors hold their command before the flight is lost, and what does a
//! shorter hold cost?
//!
//! A blackout begins at a release whose attitude job runs late by the blackout's length; the
//! position loop, on another CPU, goes on. It is tried at many moments of a manoeuvre, because a
//! held command is harmless in steady flight and worst just when the vehicle begins to turn.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};

use crate::config::UavConfig;
use crate::error::UavError;
use crate::reference::Reference;
use crate::sim::{JobTiming, Pattern, Simulation, Timings};
use takt_rt::config::{SettingError, all_within, within};

const MS_NS: f64 = 1e6;

/// Options of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StudyOptions {
    /// Moments of each manoeuvre at which blackouts begin. 60: every tenth of a second of the
    /// default eight.
    pub moments: u32,
    /// Longest blackout that is tried, ms. 1900: silence of 2 s counts as lost anyway.
    pub longest_ms: f64,
    /// Step of the search for the shortest blackout that loses the vehicle, ms; it is then halved
    /// down to a tenth of a millisecond. 20.
    pub search_step_ms: f64,
    /// Time for which the flight is watched after a blackout, s. 4: several times the position
    /// loop's time constant.
    pub watch_s: f64,
    /// Blackouts of the table, ms. From the paper: 0.225 (worst of PREEMPT_RT), 1.848 (worst of
    /// SCHED_FIFO on the standard kernel), 4 (the period), 9.424 (worst of SCHED_OTHER); and
    /// beyond.
    pub holds_ms: Vec<f64>,
    /// Delays from reading the state to the command's effect, for the table of lasting lateness,
    /// ms.
    pub delays_ms: Vec<f64>,
    /// Length of the flights of that table, s. 40: the paper's 10,000 jobs.
    pub flight_s: f64,
}

impl Default for StudyOptions {
    fn default() -> Self {
        Self {
            moments: 60,
            longest_ms: 1900.0,
            search_step_ms: 20.0,
            watch_s: 4.0,
            holds_ms: vec![
                0.0, 0.225, 1.848, 4.0, 9.424, 20.0, 40.0, 80.0, 120.0, 160.0, 200.0, 300.0, 400.0,
            ],
            delays_ms: vec![0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 40.0, 60.0],
            flight_s: 40.0,
        }
    }
}

impl StudyOptions {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`SettingError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), SettingError> {
        within("moments", f64::from(self.moments), 1.0, 1e4)?;
        all_within(
            "",
            &[
                ("longest_ms", self.longest_ms, 1.0, 1990.0),
                ("search_step_ms", self.search_step_ms, 0.1, 1000.0),
                ("watch_s", self.watch_s, 0.1, 60.0),
                ("flight_s", self.flight_s, 0.1, 3600.0),
            ],
        )?;
        let lists = [("holds_ms", &self.holds_ms, 1990.0), ("delays_ms", &self.delays_ms, 120.0)];
        for (key, values, most) in lists {
            if let Some(value) = values.iter().find(|value| !(0.0..=most).contains(*value)) {
                return Err(SettingError::value(
                    key,
                    format!("{values:?}"),
                    format!("{value} is not in 0 to {most}"),
                ));
            }
        }
        Ok(())
    }
}

/// Effect of blackouts of one length, over all moments of a manoeuvre.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HoldRow {
    /// Length of the blackout, ms.
    pub hold_ms: f64,
    /// Greatest distance from the reference while watched, at the worst moment, m.
    pub max_position_error_m: f64,
    /// Root mean square of the distance while watched, at the moment where it is greatest, m.
    pub position_rms_m: f64,
    /// Greatest distance from the same flight without the blackout, at the worst moment, m.
    pub deviation_m: f64,
    /// Greatest tilt, at the worst moment, degrees.
    pub tilt_deg: f64,
    /// Moments at which the flight was lost.
    pub lost: u32,
    /// Moments tried.
    pub moments: u32,
}

/// Cost of lasting lateness over a whole flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateCost {
    /// Root mean square of the distance from the reference, m.
    pub position_rms_m: f64,
    /// Root mean square of the distance from the same flight with punctual jobs, m: the cost of
    /// lateness alone.
    pub deviation_rms_m: f64,
}

/// Lasting lateness of one size; a cost is absent where the flight was lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateRow {
    /// The delay, the greatest jitter, or the length of a blackout once a second, ms.
    pub late_ms: f64,
    /// With every command late by it.
    pub delay: Option<LateCost>,
    /// With every wake-up late by a random time up to it.
    pub jitter: Option<LateCost>,
    /// With one wake-up a second late by it.
    pub blackouts: Option<LateCost>,
}

/// One manoeuvre under blackouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manoeuvre {
    /// Name.
    pub name: String,
    /// The flown reference.
    pub reference: Reference,
    /// Root mean square distance from the reference without lateness, m; absent where the flight is
    /// lost even so.
    pub punctual_rms_m: Option<f64>,
    /// Shortest blackout that loses the vehicle, at the worst moment, ms; absent where the longest
    /// tried loses it at no moment.
    pub shortest_loss_ms: Option<f64>,
    /// The worst moment, s from the start of the manoeuvre.
    pub worst_moment_s: Option<f64>,
    /// Median over the moments of the shortest blackout that loses the vehicle, ms; absent where
    /// fewer than half of the moments lose it.
    pub median_loss_ms: Option<f64>,
    /// The table of blackouts.
    pub holds: Vec<HoldRow>,
    /// The table of lasting lateness; a figure is absent where the flight was lost.
    pub late: Vec<LateRow>,
}

/// The study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Options of the study.
    pub options: StudyOptions,
    /// The configured reference, and an aggressive step.
    pub manoeuvres: Vec<Manoeuvre>,
}

/// Flies the configured reference and [`Reference::aggressive_step`] through blackouts and lasting
/// lateness.
///
/// # Errors
/// [`UavError::Config`].
pub fn study(config: &UavConfig, options: &StudyOptions) -> Result<Study, UavError> {
    options.validate().map_err(|error| error.within_section("blackout study: "))?;
    let aggressive = Reference::aggressive_step();
    let mut manoeuvres = vec![manoeuvre(name(&config.reference), config.reference, config, options)?];
    if config.reference != aggressive {
        manoeuvres.push(manoeuvre("aggressive step", aggressive, config, options)?);
    }
    Ok(Study { options: options.clone(), manoeuvres })
}

fn name(reference: &Reference) -> &'static str {
    match reference {
        Reference::Hover { .. } => "hover",
        Reference::Step { .. } => "step",
        Reference::FigureEight { .. } => "figure-eight",
    }
}

/// Between which times blackouts begin: one period once the flight has settled, or for a step the
/// time from the jump until the vehicle slows down.
fn window_s(reference: &Reference) -> (f64, f64) {
    match *reference {
        Reference::Hover { .. } => (1.0, 2.0),
        Reference::Step { hold_s, .. } => (hold_s, hold_s + hold_s.min(1.5)),
        Reference::FigureEight { period_s, .. } => (period_s, 2.0 * period_s),
    }
}

fn manoeuvre(
    name: &str,
    reference: Reference,
    config: &UavConfig,
    options: &StudyOptions,
) -> Result<Manoeuvre, UavError> {
    let config = UavConfig { reference, ..config.clone() };
    let mut flight = Simulation::new(&config)?;
    let (from_s, to_s) = window_s(&reference);
    let mut moments = Vec::new();
    for index in 0..options.moments {
        let at_s = from_s + (to_s - from_s) * f64::from(index) / f64::from(options.moments);
        flight.fly_to((at_s * 1e9) as u64, Pattern::Punctual);
        let mut begin = flight.clone();
        begin.restart_figures();
        moments.push((at_s - from_s, begin));
    }

    let mut losses: Vec<(f64, f64)> =
        moments.iter().filter_map(|(at_s, begin)| Some((shortest_loss_ms(begin, options)?, *at_s))).collect();
    losses.sort_by(|a, b| a.0.total_cmp(&b.0));
    let median = losses.get(moments.len() / 2).map(|&(ms, _)| ms);
    let shortest = losses.first().copied();

    let watch_ns = (options.watch_s * 1e9) as u64;
    let punctual: Vec<_> = moments.iter().map(|(_, begin)| after_hold(begin, 0.0, watch_ns)).collect();
    let holds =
        options.holds_ms.iter().map(|&hold_ms| hold_row(&moments, &punctual, hold_ms, watch_ns)).collect();

    let whole_flight = Simulation::new(&config)?;
    let length_ns = (options.flight_s * 1e9) as u64;
    let late = options
        .delays_ms
        .iter()
        .map(|&late_ms| {
            let ns = (late_ms * MS_NS) as u64;
            let cost = |pattern| late_cost(&whole_flight, pattern, length_ns);
            LateRow {
                late_ms,
                delay: cost(Pattern::Delay { delay_ns: ns }),
                jitter: cost(Pattern::Jitter { most_ns: ns, seed: 1 }),
                blackouts: cost(Pattern::Blackouts { every_ns: 1_000_000_000, hold_ns: ns }),
            }
        })
        .collect();
    let punctual_flight = late_cost(&whole_flight, Pattern::Punctual, length_ns);
    Ok(Manoeuvre {
        name: name.to_owned(),
        reference,
        punctual_rms_m: punctual_flight.map(|cost| cost.position_rms_m),
        shortest_loss_ms: shortest.map(|(ms, _)| ms),
        worst_moment_s: shortest.map(|(_, at_s)| at_s),
        median_loss_ms: median,
        holds,
        late,
    })
}

/// Flies from the beginning under a pattern; `None` when the flight is lost.
fn late_cost(begin: &Simulation, pattern: Pattern, length_ns: u64) -> Option<LateCost> {
    let (mut flight, mut punctual) = (begin.clone(), begin.clone());
    let mut timings = Timings::new(pattern, flight.next_release_ns());
    let (mut sum_squares_m2, mut jobs) = (0.0, 0u32);
    while flight.next_release_ns() < length_ns {
        flight.job(timings.next(flight.next_release_ns()));
        let plant = flight.plant();
        if plant.loss().is_some() {
            return None;
        }
        let undisturbed = punctual.punctual_at(plant.now_ns());
        sum_squares_m2 += (plant.state().position_m - undisturbed.position_m).norm_squared();
        jobs += 1;
    }
    Some(LateCost {
        position_rms_m: flight.quality().position_rms_m,
        deviation_rms_m: (sum_squares_m2 / f64::from(jobs.max(1))).sqrt(),
    })
}

/// One attitude job late by `hold_ms`, then punctual ones for the time of watching. Positions at
/// each release, and the greatest tilt.
struct Flown {
    quality: crate::sim::Quality,
    track: Vec<(u64, nalgebra::Vector3<f64>)>,
    tilt_deg: f64,
}

fn after_hold(begin: &Simulation, hold_ms: f64, watch_ns: u64) -> Flown {
    let mut flight = begin.clone();
    let end_ns = flight.next_release_ns() + watch_ns;
    let mut track = Vec::new();
    let mut tilt_rad = 0.0f64;
    let mut timing = JobTiming { lateness_ns: (hold_ms * MS_NS) as u64, actuation_ns: 0 };
    while flight.next_release_ns() < end_ns && flight.plant().loss().is_none() {
        flight.job(timing);
        timing = JobTiming::default();
        let plant = flight.plant();
        tilt_rad = tilt_rad.max(plant.state().tilt_rad());
        track.push((plant.now_ns(), plant.state().position_m));
    }
    Flown { quality: flight.quality(), track, tilt_deg: tilt_rad.to_degrees() }
}

fn is_lost(begin: &Simulation, hold_ms: f64, options: &StudyOptions) -> bool {
    after_hold(begin, hold_ms, (options.watch_s * 1e9) as u64).quality.loss.is_some()
}

/// The shortest blackout from this moment that loses the vehicle: the first step of the search that
/// does, refined by halving.
fn shortest_loss_ms(begin: &Simulation, options: &StudyOptions) -> Option<f64> {
    let mut safe_ms = 0.0;
    let mut lost_ms = loop {
        let next_ms: f64 = safe_ms + options.search_step_ms;
        if next_ms > options.longest_ms {
            return None;
        }
        if is_lost(begin, next_ms, options) {
            break next_ms;
        }
        safe_ms = next_ms;
    };
    while lost_ms - safe_ms > 0.1 {
        let middle_ms = (safe_ms + lost_ms) / 2.0;
        if is_lost(begin, middle_ms, options) {
            lost_ms = middle_ms;
        } else {
            safe_ms = middle_ms;
        }
    }
    Some(lost_ms)
}

fn hold_row(moments: &[(f64, Simulation)], punctual: &[Flown], hold_ms: f64, watch_ns: u64) -> HoldRow {
    let mut row = HoldRow {
        hold_ms,
        max_position_error_m: 0.0,
        position_rms_m: 0.0,
        deviation_m: 0.0,
        tilt_deg: 0.0,
        lost: 0,
        moments: moments.len() as u32,
    };
    for ((_, begin), undisturbed) in moments.iter().zip(punctual) {
        let flown = after_hold(begin, hold_ms, watch_ns);
        row.max_position_error_m = row.max_position_error_m.max(flown.quality.max_position_error_m);
        row.position_rms_m = row.position_rms_m.max(flown.quality.position_rms_m);
        row.tilt_deg = row.tilt_deg.max(flown.tilt_deg);
        row.lost += u32::from(flown.quality.loss.is_some());
        // Both tracks lie on the grid but for the late job itself.
        for (at_ns, position_m) in &flown.track {
            if let Ok(index) = undisturbed.track.binary_search_by_key(at_ns, |&(ns, _)| ns) {
                row.deviation_m = row.deviation_m.max((position_m - undisturbed.track[index].1).norm());
            }
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_holds_cost_more_and_the_shortest_loss_is_at_the_edge() {
        let options = StudyOptions {
            moments: 6,
            holds_ms: vec![0.0, 10.0, 50.0, 200.0],
            delays_ms: vec![0.0, 4.0, 120.0],
            flight_s: 8.0,
            ..StudyOptions::default()
        };
        let config = UavConfig::default();
        let study = study(&config, &options).unwrap();
        assert_eq!(study.manoeuvres.len(), 2);
        for manoeuvre in &study.manoeuvres {
            let rows = &manoeuvre.holds;
            assert_eq!(rows[0].deviation_m, 0.0);
            assert!(rows.windows(2).all(|pair| pair[1].deviation_m > pair[0].deviation_m), "{rows:?}");
            assert_eq!(rows[1].lost, 0, "the paper's 9.4 ms lose nothing here: {rows:?}");
            // The eight is so gentle that most moments survive any hold.
            let shortest = manoeuvre.shortest_loss_ms.unwrap_or(f64::INFINITY);
            assert!(shortest > 10.0 && shortest <= manoeuvre.median_loss_ms.unwrap_or(f64::INFINITY));
            let late = &manoeuvre.late;
            assert_eq!(late[2].delay, None, "120 ms of delay are beyond the phase margin");
            let none = late[0].delay.unwrap();
            assert_eq!((Some(none.position_rms_m), none.deviation_rms_m), (manoeuvre.punctual_rms_m, 0.0));
            assert!(
                late[1].delay.unwrap().deviation_rms_m > 0.0 && late[1].jitter.unwrap().deviation_rms_m > 0.0
            );
        }
        // At the edge: a tenth of a millisecond less and the vehicle comes back.
        let step = UavConfig { reference: Reference::aggressive_step(), ..config };
        let manoeuvre = &study.manoeuvres[1];
        let (loss_ms, at_s) = (manoeuvre.shortest_loss_ms.unwrap(), manoeuvre.worst_moment_s.unwrap());
        let mut flight = Simulation::new(&step).unwrap();
        flight.fly_to(((4.0 + at_s) * 1e9) as u64, Pattern::Punctual);
        assert!(is_lost(&flight, loss_ms, &options) && !is_lost(&flight, loss_ms - 0.2, &options));
    }

    #[test]
    fn options_are_checked_by_name() {
        let wrong = |options: StudyOptions| study(&UavConfig::default(), &options).unwrap_err().to_string();
        assert!(wrong(StudyOptions { moments: 0, ..StudyOptions::default() }).contains("moments"));
        assert!(wrong(StudyOptions { holds_ms: vec![-1.0], ..StudyOptions::default() }).contains("holds_ms"));
    }
}
