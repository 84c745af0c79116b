//! Knobs tried once before the search: which ways this machine takes.

use takt_doctor::{Journal, Scope, Setting};

use super::{Knob, Missing};

/// Tries every way of every knob and takes it back at once: what cannot be set, or is set already, falls out and is said.
pub fn tried(journal: &mut Journal, scope: Scope, knobs: Vec<Knob>, missing: &mut Vec<Missing>) -> Vec<Knob> {
    let mut left = Vec::new();
    for mut knob in knobs {
        let title = knob.name.clone();
        let placebo = knob.placebo;
        let mut out = |way: &str, why: String| {
            let name = if way.is_empty() { title.clone() } else { format!("{title}: {way}") };
            missing.push(Missing { name, why });
        };
        knob.ways.retain_mut(|way| {
            if way.settings.is_empty() {
                return placebo;
            }
            let (mut settable, mut refused, mut set_already) = (Vec::new(), None, 0);
            for setting in std::mem::take(&mut way.settings) {
                match attempt(journal, &setting, scope) {
                    Ok(true) => settable.push(setting),
                    Ok(false) => set_already += 1,
                    Err(why) => refused = Some(why),
                }
            }
            // Of many of a kind some may be refused: interrupts that the kernel manages, threads that it binds.
            let useful = !settable.is_empty() || (placebo && set_already > 0);
            if !useful {
                out(&way.name, refused.unwrap_or_else(|| "it is so already".to_owned()));
            }
            way.settings = settable;
            useful
        });
        if !knob.ways.is_empty() {
            left.push(knob);
        }
    }
    left
}

/// Whether the setting can be set and would change anything.
fn attempt(journal: &mut Journal, setting: &Setting, scope: Scope) -> Result<bool, String> {
    let actions = setting.resolve(Some(scope)).map_err(|error| error.to_string())?;
    journal.note(&actions).map_err(|error| error.to_string())?;
    // Of many threads some end meanwhile, and one is enough to say that it can be done.
    let many = matches!(setting, Setting::Alone { .. });
    let wanted: Vec<_> = actions.iter().filter(|action| !journal.is_set(action)).collect();
    let mut outcome = Ok(());
    let mut done = 0;
    for &action in &wanted {
        match journal.set(action) {
            Ok(()) => done += 1,
            Err(why) => outcome = Err(why.to_string()),
        }
    }
    for action in wanted.iter().rev() {
        // What has ended meanwhile needs nothing.
        if let Err(why) = journal.unset(action) {
            outcome = Err(format!("it cannot be taken back: {why}"));
            done = 0;
        }
    }
    match outcome {
        Err(why) if !many || done == 0 => Err(why),
        _ => Ok(!wanted.is_empty()),
    }
}
