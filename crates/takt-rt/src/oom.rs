//! Process that the kernel kills when memory runs out (`/proc/self/oom_score_adj`): the 2009
//! humanoid paper recommends choosing it, so that it is never the motion controller.

use std::fs;
use std::io;

const OWN: &str = "/proc/self/oom_score_adj";

/// The kernel's OOM_SCORE_ADJ_MIN: a process that is never chosen.
pub const NEVER: i32 = -1000;
/// OOM_SCORE_ADJ_MAX: one that is chosen before all others.
pub const FIRST: i32 = 1000;

/// The adjustment of this process's score, -1000 to 1000; `None` if the kernel does not show it.
pub fn score_adj() -> Option<i32> {
    fs::read_to_string(OWN).ok()?.trim().parse().ok()
}

/// This process is never chosen while this lives. Dropping it puts the own score back.
///
/// Processes started in the meantime inherit the adjustment, so their starter must give them
/// another score: interference (`takt-load`) makes its processes the first to be chosen.
#[derive(Debug)]
pub struct Protected {
    before: i32,
}

impl Protected {
    /// Needs CAP_SYS_RESOURCE.
    ///
    /// # Errors
    /// The kernel's error when [`NEVER`] is written, or another value is read back.
    pub fn begin() -> io::Result<Self> {
        let before = score_adj()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{OWN} cannot be read")))?;
        fs::write(OWN, NEVER.to_string())?;
        match score_adj() {
            Some(NEVER) => Ok(Self { before }),
            found => Err(io::Error::other(format!("wrote {NEVER}, but it reads back {found:?}"))),
        }
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        // Raising it is permitted to everybody.
        let _ = fs::write(OWN, self.before.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_protected_for_a_while() {
        let before = score_adj().expect("every kernel has it");
        match Protected::begin() {
            Ok(protected) => {
                assert_eq!(score_adj(), Some(NEVER));
                drop(protected);
            }
            Err(error) => {
                takt_witness::skip!("no right to lower oom_score_adj: {error}");
            }
        }
        assert_eq!(score_adj(), Some(before));
    }
}
