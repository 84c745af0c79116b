//! Plans for a model that a run left (`takt manage --json`, key `model`), for a person who looks
//! closer.
//!
//! `TAKT_REPLAY=manage.json TAKT_REPLAY_GOALS=goals.toml cargo test -p takt-manager --test it replay:: -- --ignored --nocapture`

#![allow(clippy::unwrap_used)]

use takt_manager::plan::Platform;
use takt_manager::{Goals, Manager};

#[test]
#[ignore = "for a person"]
fn campaign_a_model_that_was_kept_is_planned_for() {
    let text = std::fs::read_to_string(std::env::var_os("TAKT_REPLAY").unwrap()).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let model: takt_model::Model = serde_json::from_value(all["model"].clone()).unwrap();
    let goals = std::env::var_os("TAKT_REPLAY_GOALS").unwrap();
    let goals = Goals::parse(&std::fs::read_to_string(goals).unwrap(), "goals").unwrap();
    let tick_ns = std::env::var("TAKT_REPLAY_TICK_NS").map_or(4_000_000, |ns| ns.parse().unwrap());
    let platform = Platform { enforcement_ns: tick_ns, ..Platform::new(vec![0, 1], 0, 0.9) };
    let mut manager = Manager::new(goals, platform);
    let plan = manager.plan(&model);
    println!("period {} ms, analysis {} ms", plan.period_ns as f64 / 1e6, plan.analysis_ns as f64 / 1e6);
    println!("shared {}, {:?}", plan.shared, plan.slack);
    for chain in &plan.chains {
        let bound_ms = chain.bound_ns.map_or(f64::NAN, |ns| ns as f64 / 1e6);
        println!(
            "{:13} {bound_ms:8.1} ({:8.1} as measured) of {:6.1} ms {:?}",
            chain.name,
            chain.measured_bound_ns.map_or(f64::NAN, |ns| ns as f64 / 1e6),
            chain.goal_ns as f64 / 1e6,
            chain.state
        );
        for part in &chain.bound_parts {
            println!("{:>20} {part:?}", "");
        }
    }
    for reservation in &plan.reservations {
        println!(
            "{:>20} {:5.1} % core {}",
            reservation.name,
            reservation.bandwidth() * 100.0,
            reservation.core
        );
    }
}
