//! Owner of a launched program: the user who typed the command, not root, to which `sudo` switched.
//! Only the manager needs privilege (SCHED_DEADLINE, the journal of changes); nodes, their files
//! and their logs are the user's.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A user with groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Number of the user.
    pub uid: u32,
    /// Number of the first group.
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Name; without an entry in the list of users, the number.
    pub name: OsString,
    /// Home directory, where the list of users names one.
    pub home: Option<OsString>,
}

fn owned(text: *const libc::c_char) -> Option<OsString> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and the library ends such strings with a zero byte within the buffer that
    // the caller still holds.
    Some(OsString::from_vec(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()))
}

/// Entry of the list of users, found by `look`.
fn entry(
    mut look: impl FnMut(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> i32,
) -> Option<(u32, u32, OsString, Option<OsString>)> {
    // Entries of networks can be long; a page is twice as much as any that the library itself would
    // take.
    let mut buffer = vec![0 as libc::c_char; 1 << 16];
    // SAFETY: all zeros is a valid passwd of null pointers, to be overwritten.
    let mut passwd: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    if look(&mut passwd, &mut buffer, &mut found) != 0 || found.is_null() {
        return None;
    }
    Some((passwd.pw_uid, passwd.pw_gid, owned(passwd.pw_name)?, owned(passwd.pw_dir)))
}

impl Account {
    /// The user with this number, in these groups. One that no list knows has the group given
    /// alone.
    #[must_use]
    pub fn numbered(uid: u32, gid: Option<u32>) -> Self {
        let found = entry(|passwd, buffer, found| {
            // SAFETY: all three are valid for writing, the buffer for as many bytes as said.
            unsafe { libc::getpwuid_r(uid, passwd, buffer.as_mut_ptr(), buffer.len(), found) }
        });
        match found {
            Some((uid, own, name, home)) => {
                let gid = gid.unwrap_or(own);
                Self { uid, gid, groups: groups(&name, gid), name, home }
            }
            None => {
                let gid = gid.unwrap_or(uid);
                Self { uid, gid, groups: vec![gid], name: uid.to_string().into(), home: None }
            }
        }
    }

    /// The user who became root by `sudo` or `pkexec` to start this program; `None` where nobody
    /// did.
    #[must_use]
    pub fn invoking() -> Option<Self> {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let uid = number("SUDO_UID").or_else(|| number("PKEXEC_UID")).filter(|&uid| uid != 0)?;
        Some(Self::numbered(uid, number("SUDO_GID")))
    }

    /// Makes `command` run as this user. Its environment names the user's home and name; all else
    /// stays as it is.
    pub fn apply(&self, command: &mut Command) {
        if let Some(home) = &self.home {
            command.env("HOME", home);
        }
        command.env("USER", &self.name).env("LOGNAME", &self.name);
        // They said who became root; nothing of that is true of the program.
        for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "PKEXEC_UID"] {
            command.env_remove(name);
        }
        let (uid, gid, groups) = (self.uid, self.gid, self.groups.clone());
        // SAFETY: system calls only, in the child, on memory that was made before the fork. Raw,
        // because the library's own would change all threads of a process, which the child is not
        // yet.
        unsafe {
            command.pre_exec(move || {
                let done = |rc: libc::c_long| if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
                done(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
                done(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
                done(libc::syscall(libc::SYS_setresuid, uid, uid, uid))
            });
        }
    }
}

fn groups(name: &OsString, gid: u32) -> Vec<u32> {
    let Ok(name) = CString::new(name.clone().into_vec()) else { return vec![gid] };
    let mut count: libc::c_int = 256;
    let mut groups = vec![0; 256];
    // SAFETY: the list has room for as many as said, and the library writes no more.
    if unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) } < 0 {
        return vec![gid];
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_number() {
        let root = Account::numbered(0, None);
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0) && root.home.is_some(), "{root:?}");
        let nobody = Account::numbered(4_000_000, Some(12));
        assert_eq!((nobody.gid, nobody.groups.as_slice(), nobody.home), (12, &[12][..], None));
    }
}
