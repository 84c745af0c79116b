//! A bare cyclic task: a loop that wakes up, works a set time, and sleeps. It is the rest of a
//! robot without the robot; it shows the effect of the machine itself on a loop (cyclictest is the
//! same idea), and it is used if a campaign is only about scheduling (humanoid paper, section 3).

mod file;
mod run;

pub use file::{CyclicFile, SHIPPED};
pub use run::KIND;
