//! CPU time of whole plans: the paper's seven chains, and a big system of 100 executors and 50
//! chains.
//!
//! `cargo run -p takt-manager --example analysis_time -- [SEEDS]`

#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::turtlebot;
use takt_manager::plan::{ChainState, Platform};
use takt_manager::simulate::{System, Trigger};
use takt_manager::{Goals, Manager};
use takt_rt::random::SplitMix64;

fn main() {
    for phase in 0..3 {
        report(
            &format!("Table I, phase {phase}, 2 cores"),
            &turtlebot::system(phase),
            &turtlebot::goals(),
            2,
        );
    }
    let seeds = std::env::args().nth(1).map_or(3, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        let (system, goals) = big(seed, 100, 50);
        report(&format!("100 executors, 50 chains, seed {seed}, 16 cores"), &system, &goals, 16);
        report(&format!("100 executors, 50 chains, seed {seed}, 4 cores"), &system, &goals, 4);
    }
}

fn report(what: &str, system: &System, goals: &Goals, cores: usize) {
    let platform = Platform::new((1..=cores).collect(), 0, 0.95);
    let mut manager = Manager::new(goals.clone(), platform);
    let model = system.exact_model();
    let plan = manager.plan(&model);
    let work = manager.work();
    let again = manager.plan(&model);
    let kept = plan.chains.iter().filter(|c| c.state == ChainState::Guaranteed).count();
    println!(
        "{what}: {:.2} ms, period {} ms, {} executor analyses, {} remembered, {} rounds; {kept} of {} chains kept; repeated {:.3} ms ({})",
        plan.analysis_ns as f64 / 1e6,
        plan.period_ns as f64 / 1e6,
        work.executors,
        work.remembered,
        work.rounds,
        plan.chains.len(),
        again.analysis_ns as f64 / 1e6,
        again.cached,
    );
}

/// Chains of one to four hops over executors that several chains share.
fn big(seed: u64, executors: usize, chains: usize) -> (System, Goals) {
    let mut random = SplitMix64::new(seed);
    let mut system = System::default();
    let nodes: Vec<usize> = (0..executors).map(|n| system.executor(&format!("node{n}"), false)).collect();
    let mut text = String::new();
    let mut order = Vec::new();
    for chain in 0..chains {
        let hops = random.within(1, 4);
        let mut before: Option<usize> = None;
        let mut ends = (String::new(), String::new());
        for hop in 0..=hops {
            let node = nodes[usize::try_from(random.within(0, executors as u64 - 1)).unwrap()];
            let name = format!("/node{node} chain{chain} hop{hop}");
            let topic = system.topic(&format!("/t{chain}_{hop}"));
            let trigger = match before {
                None => Trigger::Periodic { period_ns: random.within(20, 200) * 1_000_000, jitter_ns: 0 },
                Some(topic) => Trigger::Topic(topic),
            };
            let usual = random.within(100_000, 4_000_000);
            let costs = (0..random.within(1, 10)).map(|i| if i == 0 { usual } else { usual / 3 }).collect();
            system.callback(node, &name, trigger, costs, vec![topic]);
            before = Some(topic);
            if hop == 0 {
                ends.0 = name.clone();
            }
            ends.1 = name;
        }
        let goal = random.within(150, 800);
        text += &format!(
            "[[chain]]\nname = \"c{chain}\"\nstart = \"{}\"\nend = \"{}\"\ngoal_ms = {goal}\n",
            ends.0, ends.1
        );
        order.push(format!("\"c{chain}\""));
    }
    let text = format!("degradation_order = [{}]\n{text}", order.join(", "));
    (system, Goals::parse(&text, "big").expect("goals"))
}
