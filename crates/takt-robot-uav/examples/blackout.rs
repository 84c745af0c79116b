//! Prints the blackout study of the default quadrotor: `cargo run -p takt-robot-uav --example blackout`.

use takt_robot_uav::UavConfig;
use takt_robot_uav::blackout::{StudyOptions, study};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let study = study(&UavConfig::default(), &StudyOptions::default())?;
    for manoeuvre in &study.manoeuvres {
        println!("{}: RMS {:.1} mm without lateness", manoeuvre.name, manoeuvre.punctual_rms_m * 1e3);
        println!(
            "lost after {:?} ms at the worst moment ({:?} s), {:?} ms at the median moment",
            manoeuvre.shortest_loss_ms, manoeuvre.worst_moment_s, manoeuvre.median_loss_ms
        );
        println!(" hold ms   max mm   rms mm  deviation mm  tilt deg  lost");
        for row in &manoeuvre.holds {
            println!(
                "{:8.3} {:8.1} {:8.1} {:13.2} {:9.1} {:>3}/{}",
                row.hold_ms,
                row.max_position_error_m * 1e3,
                row.position_rms_m * 1e3,
                row.deviation_m * 1e3,
                row.tilt_deg,
                row.lost,
                row.moments
            );
        }
        println!(" late ms  RMS mm: delay   jitter   one blackout a second");
        for row in &manoeuvre.late {
            let mm = |rms: Option<f64>| rms.map_or("lost".to_owned(), |m| format!("{:.1}", m * 1e3));
            println!(
                "{:8.1} {:>14} {:>8} {:>8}",
                row.late_ms,
                mm(row.delay_rms_m),
                mm(row.jitter_rms_m),
                mm(row.blackout_rms_m)
            );
        }
    }
    Ok(())
}
