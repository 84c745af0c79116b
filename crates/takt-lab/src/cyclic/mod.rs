//! A bare cyclic task: a loop that wakes up, works a set time, and sleeps. What is left of a robot
//! when the robot is taken away; it shows what the machine itself does to a loop (cyclictest is the
//! same idea), and stands in where a campaign is about scheduling alone (humanoid paper, section
//! 3).

mod file;
mod run;

pub use file::{CyclicFile, SHIPPED};
pub use run::KIND;
