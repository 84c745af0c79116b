//! The blackout study as text.

use std::fmt::Write;

use crate::blackout::{LateCost, Manoeuvre, Study, StudyOptions, study};
use crate::{UavConfig, UavError};

/// Flies the file's reference, and an aggressive step, through blackouts in simulated time: how
/// long may the rotors hold their command before the vehicle is lost, and what does a shorter hold
/// cost? Takes some ten seconds of computing and no privilege; nothing of the machine enters it.
///
/// # Errors
/// [`UavError`] for an impossible configuration.
pub fn blackout(file: &UavConfig, options: &StudyOptions) -> Result<Study, UavError> {
    study(file, options)
}

/// The study as tables.
pub fn blackout_text(study: &Study) -> String {
    let mut text = String::new();
    for manoeuvre in &study.manoeuvres {
        // Writing to a String cannot fail.
        let _ = tables(&mut text, manoeuvre, &study.options);
    }
    text
}

fn tables(out: &mut String, manoeuvre: &Manoeuvre, options: &StudyOptions) -> std::fmt::Result {
    let Manoeuvre { name, punctual_rms_m, holds, late, .. } = manoeuvre;
    match punctual_rms_m {
        Some(rms_m) => writeln!(out, "{name}: position RMS {:.1} mm with punctual jobs", rms_m * 1e3)?,
        None => writeln!(out, "{name}: lost even with punctual jobs")?,
    }
    match (manoeuvre.shortest_loss_ms, manoeuvre.worst_moment_s, manoeuvre.median_loss_ms) {
        (Some(shortest), Some(at_s), median) => {
            write!(
                out,
                "  lost by a blackout of {shortest:.1} ms at the worst moment ({at_s:.2} s into it)"
            )?;
            match median {
                Some(median) => writeln!(out, ", of {median:.1} ms at the median moment")?,
                None => writeln!(out, "; at half of the moments not even by {:.0} ms", options.longest_ms)?,
            }
        }
        _ => {
            writeln!(out, "  not lost by {:.0} ms at any of {} moments", options.longest_ms, options.moments)?
        }
    }
    writeln!(out, "\n  one blackout, worst of {} moments", options.moments)?;
    writeln!(
        out,
        "  {:>9} {:>13} {:>11} {:>9} {:>9}",
        "hold ms", "deviation mm", "error mm", "tilt deg", "lost at"
    )?;
    for row in holds {
        writeln!(
            out,
            "  {:>9.3} {:>13.2} {:>11.1} {:>9.1} {:>5}/{}",
            row.hold_ms,
            row.deviation_m * 1e3,
            row.max_position_error_m * 1e3,
            row.tilt_deg,
            row.lost,
            row.moments
        )?;
    }
    writeln!(
        out,
        "\n  lasting lateness over {:.0} s, mm RMS: from the reference, and from the punctual flight",
        options.flight_s
    )?;
    writeln!(
        out,
        "  {:>9} {:>17} {:>17} {:>21}",
        "late ms", "as a delay", "as jitter", "as a blackout each s"
    )?;
    let mm = |cost: Option<LateCost>| match cost {
        Some(cost) => format!("{:.1} {:>7.2}", cost.position_rms_m * 1e3, cost.deviation_rms_m * 1e3),
        None => "lost".to_owned(),
    };
    for row in late {
        let [delay, jitter, blackouts] = [row.delay, row.jitter, row.blackouts].map(mm);
        writeln!(out, "  {:>9.3} {delay:>17} {jitter:>17} {blackouts:>21}", row.late_ms)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_the_text() {
        let options = StudyOptions {
            moments: 4,
            holds_ms: vec![9.424, 400.0],
            delays_ms: vec![4.0],
            flight_s: 4.0,
            ..StudyOptions::default()
        };
        let study = blackout(&UavConfig::default(), &options).unwrap();
        let text = blackout_text(&study);
        for words in [
            "figure-eight: position RMS",
            "aggressive step",
            "9.424",
            "400.000",
            "lost by a blackout",
            "4.000",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
        assert!(!text.contains("NaN"), "{text}");
    }
}
