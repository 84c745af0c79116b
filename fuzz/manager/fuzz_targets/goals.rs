//! Any text is goals or a clear error; goals that are accepted are whole, and a manager survives
//! them on an empty model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_manager::{Goals, Manager, Platform};
use takt_model::Model;

fuzz_target!(|text: &str| {
    let Ok(goals) = Goals::parse(text, "fuzz.toml") else { return };
    let mut order = goals.degradation_order.clone();
    order.sort_unstable();
    assert_eq!(order, (0..goals.chains.len()).collect::<Vec<_>>(), "every chain has one place");
    assert!(goals.options.validate().is_ok());
    let platform = Platform::new(vec![1], 0, goals.options.max_bandwidth);
    let plan = Manager::new(goals.clone(), platform).plan(&Model::default());
    assert_eq!(plan.chains.len(), goals.chains.len());
    assert!(plan.reservations.is_empty());
});
