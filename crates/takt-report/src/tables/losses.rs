//! Losses on the robots' wires, next to the limits of their configurations.

use takt_rundir::Loss;

use crate::collect::Collection;
use crate::table::{Cell, Table};
use crate::words::clean;

/// A row for each configuration and kind of loss, also where nothing was lost; `None` where no run
/// counts losses.
pub fn losses(collection: &Collection) -> Option<Table> {
    let heads = ["Configuration", "What", "#Lost", "#Of", "#Allowed", "Allowed by", "Runs"];
    let mut table = Table::new("Communication losses", &heads);
    for configuration in &collection.configurations {
        let mut sum: Vec<Loss> = Vec::new();
        for &run in &configuration.runs {
            Loss::add_all(&mut sum, &collection.runs[run].header.losses);
        }
        for loss in sum {
            // The limit is one of a run: which runs went beyond theirs decides.
            let beyond: Vec<&str> = configuration
                .runs
                .iter()
                .map(|&run| &collection.runs[run])
                .filter(|run| run.header.losses.iter().any(|l| l.name == loss.name && l.is_exceeded()))
                .map(|run| run.key.as_str())
                .collect();
            table.push(vec![
                Cell::text(&configuration.name),
                Cell::text(clean(&loss.title)),
                Cell::number(loss.lost),
                if loss.of > 0 { Cell::number(loss.of) } else { Cell::gap("not known") },
                Cell::number(loss.allowed),
                Cell::text(clean(&loss.key)),
                match beyond[..] {
                    [] => Cell::text("within the limit"),
                    _ => Cell::text(format!("above the limit: {}", beyond.join(", "))),
                },
            ]);
        }
    }
    if table.rows().is_empty() {
        return None;
    }
    table.note("Sums over repetitions; a run that lost more than its configuration allows is a FAIL.");
    Some(table)
}
