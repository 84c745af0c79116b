//! Blocks: what belongs on one node.

use std::collections::BTreeMap;

use takt_lab::campaign::{CellRun, Plan};

/// Runs of one repetition that ask for the same conditions, in the order of the plan.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// Name, the same as long as the plan is: `r2`, `r2 kernel=rt`.
    pub name: String,
    /// Conditions: `kernel`, `boot.PARAMETER` and others, with their values.
    pub labels: &'a BTreeMap<String, String>,
    pub runs: Vec<&'a CellRun>,
}

/// The blocks of a plan, in the order in which their first runs stand there. A repetition holds
/// every configuration once (a randomised complete block); where conditions need other nodes, it is
/// a block for each condition.
pub fn blocks(plan: &Plan) -> Vec<Block<'_>> {
    let mut all: Vec<Block<'_>> = Vec::new();
    for run in &plan.runs {
        let labels = &run.setup.labels;
        let repetition = run.setup.experiment.repetition;
        let same = |block: &&mut Block<'_>| {
            block.labels == labels && block.runs[0].setup.experiment.repetition == repetition
        };
        match all.iter_mut().rev().find(same) {
            Some(block) => block.runs.push(run),
            None => {
                let conditions = labels.iter().map(|(name, value)| format!(" {name}={value}"));
                let name = format!("r{repetition}{}", conditions.collect::<String>());
                all.push(Block { name, labels, runs: vec![run] });
            }
        }
    }
    all
}
