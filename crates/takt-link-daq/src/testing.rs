//! Helpers of the tests.

use crate::Link;
use crate::config::EchoConfig;
use takt_rt::policy::Policy;

/// An echo thread that does not disturb the other tests.
pub fn polite() -> EchoConfig {
    EchoConfig { policy: Policy::default(), ..EchoConfig::default() }
}

/// Sends edges and reads until each has arrived; returns how many did. Gives up on an edge after
/// many reads.
pub fn edges(link: &mut dyn Link, count: u64) -> u64 {
    arrived(link, count, false)
}

/// The same, and after each read that does not show the level it is written again.
pub fn edges_written_each_turn(link: &mut dyn Link, count: u64) -> u64 {
    arrived(link, count, true)
}

fn arrived(link: &mut dyn Link, count: u64, each_turn: bool) -> u64 {
    let mut arrived = 0;
    for edge in 0..count {
        let level_v = if edge % 2 == 0 { 5.0 } else { 0.0 };
        link.write_v(level_v).unwrap();
        for _ in 0..200_000 {
            if (link.read_v().unwrap() >= 1.0) == (level_v >= 1.0) {
                arrived += 1;
                break;
            }
            if each_turn {
                link.again_v(level_v).unwrap();
            }
            std::thread::yield_now();
        }
    }
    arrived
}
