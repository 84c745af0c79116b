//! Changes of what the manager promises, as events.

use takt_lab::Happening;
use takt_manager::live::Change;

/// Tells a change that was seen at `at_ns`, CLOCK_MONOTONIC.
pub fn report(at_ns: u64, change: Change) {
    let (kind, chain, cause) = match change {
        Change::Guaranteed { chain } => (Happening::Guaranteed, Some(chain), String::new()),
        Change::GuaranteeLost { chain, why } => (Happening::GuaranteeLost, Some(chain), why),
        Change::Degraded { chain, why } => (Happening::Degraded, Some(chain), why),
        Change::NotAsAsked { difference } => (Happening::Fault, None, difference),
    };
    let cause = match (&chain, cause.is_empty()) {
        (None, _) => cause,
        (Some(chain), true) => format!("chain {chain}"),
        (Some(chain), false) => format!("chain {chain}: {cause}"),
    };
    takt_lab::report_event(kind, at_ns, chain, cause);
}
