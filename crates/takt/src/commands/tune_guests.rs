//! `takt tune --guests`: the proposed boot parameters, each in a virtual machine beside one without
//! them.

use std::path::Path;

use takt_host::doctor::Setting;
use takt_lab::campaign::{Campaign, CampaignFile, FactorSpec, Level, Order, Plan};
use takt_lab::kernels::{Guests, KernelRow, kernel_rows};
use takt_tune::{GuestSide, InGuests, TuneReport};

use super::campaign;
use crate::args::CampaignCommon;
use crate::registry::ROBOTS;

/// Releases of a guest's loop.
const RELEASES: f64 = 1000.0;
/// Guests of slower loops measure fewer releases, and those of faster ones at least so long:
/// emulation takes many times as long.
const SECONDS: std::ops::RangeInclusive<f64> = 0.5..=5.0;
/// Rates that the cyclic task takes, and that a guest keeps up with.
const RATES_HZ: std::ops::RangeInclusive<f64> = 10.0..=2000.0;
/// Load beside the loop: kernel paths that delay other threads, as in the UAV paper.
const LOAD: &str = "uav";
/// The second CPU: that of the parameters ([`takt_tune::Proposed::for_guest`]).
const CPU: &str = "1";

/// Fills in what guests show; what cannot be shown is said.
///
/// # Errors
/// The campaign's folder cannot be made.
pub fn show(report: &mut TuneReport, kernel: &str, runs: &Path) -> Result<(), Box<dyn std::error::Error>> {
    if report.proposed.iter().all(|one| one.for_guest.is_empty()) {
        return Ok(());
    }
    let plan = Plan::resolve(&ROBOTS, &campaign_of(report, kernel)?)?;
    let campaign = Campaign::create(ROBOTS, runs, plan)?;
    let measured = campaign::measure(&campaign, &CampaignCommon::default())?;
    let rows = kernel_rows(&measured.table, Some(kernel));
    let (Some(without), with) = (rows.first(), rows.get(1..).unwrap_or_default()) else { return Ok(()) };
    let shown = report.proposed.iter_mut().filter(|one| !one.for_guest.is_empty());
    for (one, with) in shown.zip(with) {
        match (side(without), side(with)) {
            (Ok(without), Ok(with_them)) => {
                let (kernel, time) = (with.release.clone(), with.time.clone());
                one.in_guests = Some(InGuests { kernel, time, without, with: with_them });
            }
            (Err(why), _) | (_, Err(why)) => one.note = why,
        }
    }
    Ok(())
}

fn side(row: &KernelRow) -> Result<GuestSide, String> {
    match (row.median, row.p99, row.max) {
        (Some(median_us), Some(p99_us), Some(worst_us)) => {
            let skipped = row.skipped.unwrap_or(0);
            Ok(GuestSide { releases: row.count, skipped, median_us, p99_us, worst_us })
        }
        _ => Err(format!("no guest completed: {}", row.labels.join("; "))),
    }
}

/// The loop's policy: what is kept, else as found. A reservation and a CPU of its own do not go
/// together.
fn policy(report: &TuneReport) -> String {
    let of_loop = |setting: &Setting| match setting {
        Setting::Policy { thread, policy, .. } if *thread == report.tunes.thread => Some(policy.clone()),
        _ => None,
    };
    let kept = report.kept().flat_map(|knob| &knob.settings).find_map(of_loop);
    let policy = kept.unwrap_or_else(|| report.tunes.policy.clone());
    if policy.starts_with("deadline") { "fifo:80".to_owned() } else { policy }
}

/// One guest without, and one with each.
fn campaign_of(report: &TuneReport, kernel: &str) -> Result<CampaignFile, Box<dyn std::error::Error>> {
    let rate_hz = report.tunes.period_us.map_or(1000.0, |us| 1e6 / us);
    let rate_hz = rate_hz.clamp(*RATES_HZ.start(), *RATES_HZ.end());
    let level = |name: &str, parameters: &[(String, String)]| Level::Named {
        name: name.to_owned(),
        set: parameters
            .iter()
            .map(|(name, value)| {
                let value = if value.is_empty() { true.into() } else { value.clone().into() };
                (format!("boot.{name}"), value)
            })
            .collect(),
    };
    let shown = report.proposed.iter().filter(|one| !one.for_guest.is_empty());
    let mut values = vec![level("none of them", &[])];
    values.extend(shown.map(|one| level(&one.parameters, &one.for_guest)));
    let mut set = toml::Table::new();
    let texts = [("kernel", kernel), ("stress", LOAD), ("cpus", CPU), ("policy", &policy(report))];
    set.extend(texts.map(|(key, value)| (key.to_owned(), value.into())));
    set.insert("rate_hz".to_owned(), rate_hz.into());
    let file = CampaignFile {
        name: "tune-guests".to_owned(),
        about: format!("Boot parameters proposed for {}", report.tunes.thread),
        paper: None,
        robot: Some("cyclic".to_owned()),
        config: None,
        repetitions: 1,
        order: Order::Given,
        seed: 0,
        seconds: Some((RELEASES / rate_hz).clamp(*SECONDS.start(), *SECONDS.end())),
        guests: Some(Guests { cpus: 2, ..Guests::default() }),
        quick: None,
        set,
        factors: vec![FactorSpec { name: "tuning".to_owned(), values, ..FactorSpec::default() }],
    };
    // As from a file: every value is checked.
    Ok(CampaignFile::parse(&toml::to_string(&file)?, "takt tune --guests")?)
}
