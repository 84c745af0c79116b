//! Capabilities that a program has from its file: who keeps them, and when the widest of them is in
//! force.
//!
//! A package installs the program for everybody, with capabilities, and gives it a group of its own
//! (`root:takt`, mode 0755). The kernel gives the capabilities to everybody who starts it, so the
//! program itself gives them up for all but root and the members of that group: then everybody can
//! list robots, read reports and run the demo, and only the group can raise priorities and trace.
//! CAP_DAC_READ_SEARCH, which the files of tracefs need, reads every file of the machine. It is in
//! force only while one of those files is opened ([`reading`]), so that nobody can have a private
//! file read as a robot's.

use std::fs;
use std::io::{self, Error};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{DumpableBehavior, getegid, geteuid, getgid, getgroups, getuid, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::environment;

/// Set once this process has no right any more that its starter has not.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Whether this process has given up what it had from its file.
pub(crate) fn given_up() -> bool {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// Gives up the capabilities of the program's file, unless they are for this user; puts them in
/// force then, but for CAP_DAC_READ_SEARCH. To be called first in `main`, before there is another
/// thread: capabilities are a thread's. Returns whether they were given up.
///
/// # Errors
/// The system's answer. The process must end then: it may still have them.
pub fn settle() -> io::Result<bool> {
    // Other rights, of set-user-ID or set-group-ID, are left to whoever gave them.
    if !environment::is_secure() || getuid() != geteuid() || getgid() != getegid() {
        return Ok(false);
    }
    let own = getgroups()?.into_iter().chain([getgid()]).map(|gid| gid.as_raw());
    // Without /proc nobody knows whose the file is.
    let mine = fs::metadata("/proc/self/exe").is_ok_and(|file| is_for(file.mode(), file.gid(), own));
    if !mine {
        let none = CapabilitySet::empty();
        change(CapabilitySets { effective: none, permitted: none, inheritable: none })?;
        // An ordinary process again: its owner may debug and profile it.
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        GIVEN_UP.store(true, Ordering::Relaxed);
        return Ok(true);
    }
    // Also where the file has them without the effective bit, with which the kernel refuses to
    // start a program in a container or service that has not all of them.
    let had = capabilities(None)?;
    change(CapabilitySets { effective: had.permitted - CapabilitySet::DAC_READ_SEARCH, ..had })?;
    Ok(false)
}

/// Whether a file of this mode and group gives its capabilities to a user of these groups. One that
/// not everybody may start has been restricted by its mode. One of root's group is for whoever may
/// start it, as capabilities(7) has it: nobody has restricted it.
fn is_for(mode: u32, group: u32, mut own: impl Iterator<Item = u32>) -> bool {
    mode & 0o001 == 0 || group == 0 || own.any(|gid| gid == group)
}

/// Sets the capabilities of this thread, and looks whether they are so.
fn change(wanted: CapabilitySets) -> io::Result<()> {
    set_capabilities(None, wanted)?;
    let are = capabilities(None)?;
    if (are.effective, are.permitted) != (wanted.effective, wanted.permitted) {
        return Err(Error::other(format!("capabilities: expected {wanted:?}, received {are:?}")));
    }
    Ok(())
}

/// Calls `open` with CAP_DAC_READ_SEARCH in force, where this program has it from its file. Only
/// for names that the program itself chooses.
pub fn reading<T>(open: impl FnOnce() -> T) -> T {
    struct Restore(CapabilitySets);
    impl Drop for Restore {
        fn drop(&mut self) {
            // Less than there is can always be had.
            let _ = set_capabilities(None, self.0);
        }
    }
    let held = capabilities(None).ok().filter(|had| {
        let wanted = CapabilitySet::DAC_READ_SEARCH;
        had.permitted.contains(wanted) && !had.effective.contains(wanted)
    });
    let raised = held.filter(|had| {
        let effective = had.effective | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, CapabilitySets { effective, ..*had }).is_ok()
    });
    let _restore = raised.map(Restore);
    open()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_for_everybody_keeps_its_rights_for_its_group() {
        let (member, stranger) = ([1000, 990], [1000, 100]);
        for (mode, group, own, expected) in [
            (0o100_755, 990, member, true),
            (0o100_755, 990, stranger, false),
            (0o100_750, 990, stranger, true),
            (0o100_755, 0, stranger, true),
            (0o100_711, 990, stranger, false),
        ] {
            assert_eq!(is_for(mode, group, own.into_iter()), expected, "{mode:o} of {group} for {own:?}");
        }
    }

    #[test]
    fn what_is_read_in_force_is_out_of_force_afterwards() {
        let before = capabilities(None).unwrap();
        assert_eq!(reading(|| 7), 7);
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
