//! Any text is a campaign or a clear error; one that is accepted resolves, or says why not, and
//! survives being written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_lab::campaign::{CampaignFile, Plan};

#[path = "../../../crates/takt/src/registry.rs"]
mod registry;

fuzz_target!(|text: &str| {
    let Ok(file) = CampaignFile::parse(text, "fuzz.toml") else { return };
    // Configurations of their own lead to files; big matrices only take time.
    let runs: usize = file.factors.iter().map(|factor| factor.values.len()).product();
    if file.config.is_some() || runs * file.repetitions as usize > 64 {
        return;
    }
    if let Ok(plan) = Plan::resolve(&registry::ROBOTS, &file) {
        let text = serde_json::to_string(&plan).expect("a plan can be written");
        assert_eq!(serde_json::from_str::<Plan>(&text).expect("and read again").runs, plan.runs);
        let rows: usize = plan.configurations().iter().map(|(_, runs)| runs.len()).sum();
        assert_eq!(rows, plan.runs.len(), "every run belongs to a row");
    }
});
