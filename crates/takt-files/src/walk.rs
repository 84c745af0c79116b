//! Paths on which nobody else can lead elsewhere, one part after the other.
//!
//! A user who may write to a folder can rename its files and plant his own in their place, whoever
//! owned them. So each folder on the way is judged once it is open, and the next part is looked up
//! in this open folder and not by its path (openat(2), path_resolution(7)). For outputs that the
//! user named, folders are the user's choice, and whose the links are is judged alone.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, getxattr, mkdirat, open, openat, readlinkat};
use rustix::io::Errno;

use crate::CONFIGURATION_BYTES;

/// Most symbolic links on one path, as the kernel's own limit (path_resolution(7)).
const LINKS: usize = 40;

/// Users who may have made what lies on the way: root, who runs this, and for whom it is done.
#[derive(Debug, Clone, Copy)]
pub struct Users {
    own: u32,
    owner: Option<u32>,
}

impl Users {
    /// This process's user, root, and `owner`.
    pub fn new(owner: Option<u32>) -> Self {
        Self { own: rustix::process::geteuid().as_raw(), owner }
    }

    fn contains(self, uid: u32) -> bool {
        uid == 0 || uid == self.own || Some(uid) == self.owner
    }

    /// As they are named in messages.
    fn words(self) -> String {
        let others = [Some(self.own), self.owner].into_iter().flatten().filter(|&uid| uid != 0);
        let mut words = others.fold("root".to_owned(), |words, uid| format!("{words} or user {uid}"));
        words.push_str(" alone");
        words
    }

    /// Refuses what belongs to anybody else.
    fn check_owner(self, what: &str, path: &Path, found: &Stat) -> io::Result<()> {
        if self.contains(found.st_uid) {
            return Ok(());
        }
        let why = format!("it belongs to user {}, but this is user {}", found.st_uid, self.own);
        denied(what, path, &why, &self.way_out())
    }

    /// Refuses a symbolic link that somebody else made, on the way to an output.
    fn check_link(self, path: &Path, found: &Stat) -> io::Result<()> {
        if self.contains(found.st_uid) {
            return Ok(());
        }
        let text = format!(
            "{} is a symbolic link of user {}, which is not followed; name its target",
            path.display(),
            found.st_uid
        );
        Err(Error::new(ErrorKind::PermissionDenied, text))
    }

    fn way_out(self) -> String {
        format!("choose another path, on which {} may change something", self.words())
    }

    /// Refuses a folder in which others can plant, sticky or not: they may have put something in it
    /// already.
    pub(crate) fn check_last(self, folder: &OwnedFd, path: &Path) -> io::Result<()> {
        let found = fstat(folder)?;
        self.check_owner("folder", path, &found)?;
        if found.st_mode & 0o022 == 0 {
            return Ok(());
        }
        // A file in a sticky folder belongs to its creator; in another folder, any user can rename
        // it away.
        let way_out = match found.st_mode & 0o1000 {
            0 => format!("`chmod go-w` it, or {}", self.way_out()),
            _ => "name a new folder inside it, or `chmod go-w` it".to_owned(),
        };
        denied("folder", path, &open_to_others(&found), &way_out)
    }

    /// Refuses a folder of which others can rename what lies in it.
    fn check_on_the_way(self, folder: &OwnedFd, path: &Path) -> io::Result<()> {
        let found = fstat(folder)?;
        let open = match found.st_mode & 0o022 {
            0 => false,
            // In a sticky folder only the owner of a thing, or of the folder, may rename it: whose
            // the thing is, is looked at next.
            _ if found.st_mode & 0o1000 != 0 => false,
            // As made where each user has a group of his own and the umask is 002 (pam_umask(8),
            // usergroups).
            0o020 => !(self.is_group_private(found.st_gid) && has_no_list(folder)),
            _ => true,
        };
        if !open {
            return Ok(());
        }
        let way_out = format!("`chmod go-w` it, or {}", self.way_out());
        denied("folder", path, &open_to_others(&found), &way_out)
    }

    /// Whether nobody else is in the group, as far as the machine's own files say; a group that
    /// they do not know is not private.
    fn is_group_private(self, gid: u32) -> bool {
        let text = |path: &str| crate::read_to_string(Path::new(path), CONFIGURATION_BYTES).ok();
        let (Some(groups), Some(users)) = (text("/etc/group"), text("/etc/passwd")) else { return false };
        is_group_of(gid, &groups, &users, |uid| self.contains(uid))
    }
}

/// Whether the group (group(5)) has members, by its own line or by theirs (passwd(5)), and all of
/// them are `trusted`.
fn is_group_of(gid: u32, groups: &str, users: &str, trusted: impl Fn(u32) -> bool) -> bool {
    let gid = gid.to_string();
    let lines = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let lines: Vec<Vec<&str>> = lines.filter(|parts| parts.get(2) == Some(&gid.as_str())).collect();
    let names = lines.iter().filter_map(|parts| parts.get(3)).flat_map(|names| names.split(','));
    let mut unknown: BTreeSet<&str> = names.map(str::trim).filter(|name| !name.is_empty()).collect();
    let listed = unknown.clone();
    for line in users.lines() {
        let parts: Vec<&str> = line.split(':').collect();
        let &[name, _, uid, group, ..] = parts.as_slice() else { continue };
        if (group == gid || listed.contains(name)) && !uid.parse().is_ok_and(&trusted) {
            return false;
        }
        unknown.remove(name);
    }
    // A listed entry that is unknown here may be any user.
    !lines.is_empty() && unknown.is_empty()
}

/// Whether no access control list (acl(5)) stands behind the group's bits; where it cannot be
/// reported, there is one.
fn has_no_list(folder: &OwnedFd) -> bool {
    // Through /proc, because a descriptor of O_PATH has no attributes.
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let mut nothing: [u8; 0] = [];
    let answer = getxattr(path, "system.posix_acl_access", &mut nothing);
    matches!(answer, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

fn open_to_others(found: &Stat) -> String {
    format!("other users may write to it (mode {:04o})", found.st_mode & 0o7777)
}

fn denied<T>(what: &str, path: &Path, why: &str, way_out: &str) -> io::Result<T> {
    let text = format!("the {what} {} is not trusted: {why}; {way_out}", path.display());
    Err(Error::new(ErrorKind::PermissionDenied, text))
}

/// Opens the folder at `path`, and makes it and those above it where there are none. All folders
/// and symbolic links on the way are of `users`, and nobody else can rename any of them.
///
/// # Errors
/// The system's answer, or [`ErrorKind::PermissionDenied`] that names the part that is not trusted.
pub(crate) fn trusted_folder(path: &Path, users: Users) -> io::Result<OwnedFd> {
    // From the root: the current folder may lie in one of another user's.
    let path = if path.is_absolute() { path.to_path_buf() } else { std::env::current_dir()?.join(path) };
    users.check_owner("folder", Path::new("/"), &fstat(&start("/")?)?)?;
    let (folder, at) = walk(&path, users, Judged::All)?;
    users.check_last(&folder, &at)?;
    // The same folder, now to be read.
    Ok(openat(&folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens the folder at `path` (for lookups alone, `O_PATH`), and makes it and those above it where
/// there are none. All symbolic links on the way, also those to which others lead, are this user's
/// or root's.
///
/// # Errors
/// The system's answer, or [`ErrorKind::PermissionDenied`] that names the link.
pub(crate) fn output_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(walk(path, Users::new(None), Judged::Links)?.0)
}

/// Parts of the path that must belong to trusted users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    /// Folders, which others may not be able to rename, and symbolic links.
    All,
    /// Symbolic links: whoever made one chooses where it leads.
    Links,
}

fn start(path: &str) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The folder to which `path` leads, with where it is.
fn walk(path: &Path, users: Users, judged: Judged) -> io::Result<(OwnedFd, PathBuf)> {
    let (first, at) = if path.is_absolute() { ("/", "/") } else { (".", "") };
    let mode = if judged == Judged::All { 0o755 } else { 0o777 };
    // The open folders down to the current one, with where they are; `..` is the one before, which
    // was judged.
    let mut open_folders = vec![(start(first)?, PathBuf::from(at))];
    let mut parts = parts_of(path);
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        let Some((folder, at)) = open_folders.last() else { break };
        match part {
            Part::Root => open_folders = vec![(start("/")?, PathBuf::from("/"))],
            Part::Up if open_folders.len() > 1 => drop(open_folders.pop()),
            // Above the current folder; the root's is itself.
            Part::Up => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let above = (openat(folder, "..", flags, Mode::empty())?, at.join(".."));
                if at.as_os_str() != "/" {
                    open_folders = vec![above];
                }
            }
            Part::Name(name) => {
                if judged == Judged::All {
                    users.check_on_the_way(folder, at)?;
                }
                let next_at = at.join(&name);
                let next = open_or_make(folder, &name, mode)?;
                // Judged once it is open: the name may come to mean something else at any time.
                let found = fstat(&next)?;
                match FileType::from_raw_mode(found.st_mode) {
                    FileType::Directory => {
                        if judged == Judged::All {
                            users.check_owner("folder", &next_at, &found)?;
                        }
                        open_folders.push((next, next_at));
                    }
                    FileType::Symlink => {
                        match judged {
                            Judged::All => users.check_owner("symbolic link", &next_at, &found)?,
                            Judged::Links => users.check_link(&next_at, &found)?,
                        }
                        links += 1;
                        if links > LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        let target = OsString::from_vec(readlinkat(&next, "", Vec::new())?.into_bytes());
                        let mut through = parts_of(Path::new(&target));
                        through.append(&mut parts);
                        parts = through;
                    }
                    _ => return Err(Errno::NOTDIR.into()),
                }
            }
        }
    }
    open_folders.pop().ok_or_else(|| Errno::NOENT.into())
}

enum Part {
    Root,
    Up,
    Name(OsString),
}

fn parts_of(path: &Path) -> VecDeque<Part> {
    let part = |component| match component {
        Component::RootDir => Some(Part::Root),
        Component::ParentDir => Some(Part::Up),
        Component::Normal(name) => Some(Part::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

/// Opens whatever has the name, a symbolic link itself, to be looked at and gone through; makes a
/// folder where there is nothing.
fn open_or_make(folder: &OwnedFd, name: &OsString, mode: u32) -> io::Result<OwnedFd> {
    match look(folder, name) {
        Err(Errno::NOENT) => {}
        answer => return Ok(answer?),
    }
    match mkdirat(folder, name, Mode::from_raw_mode(mode)) {
        // Somebody was quicker; whose it is, is looked at.
        Err(error) if error != Errno::EXIST => return Err(error.into()),
        _ => {}
    }
    Ok(look(folder, name)?)
}

fn look(folder: &OwnedFd, name: &OsString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // As a folder first: only so does the kernel mount what is mounted on demand (autofs).
    match openat(folder, name, flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => openat(folder, name, flags, Mode::empty()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_private_where_all_of_its_members_are_trusted() {
        let users = "root:x:0:0::/root:\nann:x:1000:1000::/home/ann:\nbob:x:1001:1001::/home/bob:\n\
                     eve:x:1002:1003::/home/eve:\nbroken\n";
        let groups = "root:x:0:\nann:x:1000:\nbob:x:1001:ann\nstaff:x:50:ann,bob\nown:x:51:ann\n\
                      far:x:52:ann,somebody\nlent:x:1003:ann\nempty:x:53:\n";
        let private = |gid| is_group_of(gid, groups, users, |uid| [0, 1000].contains(&uid));
        assert!([0, 1000, 51, 53].into_iter().all(private));
        // Bob's own, one that both share, one with a member from elsewhere, one that is eve's first
        // group, and one without a line.
        assert!(![1001, 50, 52, 1003, 54].into_iter().any(private));
    }
}
