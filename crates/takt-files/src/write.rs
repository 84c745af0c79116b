//! Writing into folders that others may write to.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Error, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, open, openat, renameat, unlinkat};

use crate::environment;
use crate::walk::{Users, output_folder, trusted_folder};

/// An open folder. It stays this folder, whatever its path comes to mean.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens the folder at `path`, which the user named: symbolic links are followed.
    ///
    /// # Errors
    /// The system's answer.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(Self(open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens a folder for outputs that the user named, and makes it where there is none, as
    /// [`make_folder`].
    ///
    /// # Errors
    /// As [`make_folder`].
    pub fn output(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(output_folder(path)?, ".", flags, Mode::empty())?))
    }

    /// Makes the folder at `path`, which must not exist, and those above it as [`make_folder`].
    ///
    /// # Errors
    /// As [`make_folder`]; [`ErrorKind::AlreadyExists`] for whatever is there, also a symbolic link
    /// that leads nowhere.
    pub fn create(path: &Path) -> io::Result<Self> {
        // `.`, `..` and `/` have none, and are there.
        let name = path.file_name().ok_or(ErrorKind::AlreadyExists)?;
        let above = output_folder(path.parent().unwrap_or(Path::new("")))?;
        mkdirat(&above, name, Mode::from_raw_mode(0o777))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(openat(above, name, flags, Mode::empty())?))
    }

    /// Opens the folder that holds `path`, with the last part of `path`.
    ///
    /// # Errors
    /// The system's answer, or [`ErrorKind::InvalidInput`] where `path` does not end in a name.
    pub fn of(path: &Path) -> io::Result<(Self, &OsStr)> {
        let name = path.file_name().ok_or_else(|| Error::new(ErrorKind::InvalidInput, "no file name"))?;
        Ok((Self::open(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Opens the folder `name` in this one, and makes it where there is none. A symbolic link is
    /// not followed.
    ///
    /// # Errors
    /// The system's answer ([`ErrorKind::NotADirectory`] for a symbolic link).
    pub fn subfolder(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = plain(name.as_ref())?;
        match mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Err(error) if error != rustix::io::Errno::EXIST => return Err(error.into()),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Opens the folder at `path` for files that somebody will install or run, and makes it where
    /// there is none. Nobody else may have planted anything in it, or can put another folder in its
    /// place: it and all folders and symbolic links on the way belong to this user, root or
    /// `owner`, and others may not write to them. Above it, a sticky folder (as /tmp) may be
    /// everybody's.
    ///
    /// # Errors
    /// The system's answer, or [`ErrorKind::PermissionDenied`] that says which part of the path is
    /// not trusted, and why.
    pub fn trusted(path: &Path, owner: Option<u32>) -> io::Result<Self> {
        Ok(Self(trusted_folder(path, Users::new(owner))?))
    }

    /// As [`Self::subfolder`], and refuses one that is not trusted ([`Self::trusted`]).
    ///
    /// # Errors
    /// As [`Self::trusted`].
    pub fn trusted_subfolder(&self, name: impl AsRef<OsStr>, owner: Option<u32>) -> io::Result<Self> {
        let name = name.as_ref();
        match mkdirat(&self.0, plain(name)?, Mode::from_raw_mode(0o755)) {
            Err(error) if error != rustix::io::Errno::EXIST => return Err(error.into()),
            _ => {}
        }
        let folder = self.subfolder(name)?;
        Users::new(owner).check_last(&folder.0, Path::new(name))?;
        Ok(folder)
    }

    /// Names in it.
    ///
    /// # Errors
    /// The system's answer.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Begins a file that will be `name` once it is whole.
    ///
    /// # Errors
    /// The system's answer.
    pub fn draft(&self, name: impl AsRef<OsStr>) -> io::Result<Draft> {
        self.draft_with_mode(name, 0o666)
    }

    /// As [`Self::draft`], for this user alone.
    ///
    /// # Errors
    /// The system's answer.
    pub fn private_draft(&self, name: impl AsRef<OsStr>) -> io::Result<Draft> {
        self.draft_with_mode(name, 0o600)
    }

    fn draft_with_mode(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Draft> {
        let name = plain(name.as_ref())?;
        let mut temporary = name.to_owned();
        temporary.push(".tmp");
        // Always the same name, so that a kill leaves one such file at most; whatever is there is
        // not opened, but removed.
        match unlinkat(&self.0, &temporary, AtFlags::empty()) {
            Err(error) if error != rustix::io::Errno::NOENT => return Err(error.into()),
            _ => {}
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, &temporary, flags, Mode::from_raw_mode(mode))?;
        let folder = self.0.as_fd().try_clone_to_owned()?;
        Ok(Draft { folder, file: file.into(), temporary, name: name.to_owned(), done: false })
    }

    /// Writes the file `name` whole or not at all.
    ///
    /// # Errors
    /// The system's answer.
    pub fn write(&self, name: impl AsRef<OsStr>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let mut draft = self.draft(name)?;
        draft.write_all(bytes.as_ref())?;
        draft.finish()
    }
}

/// Makes the folder at `path` (for this user alone) where there is none, and refuses one in which
/// somebody else could replace our files: it is this user's or root's, no symbolic link of
/// another's, and others may not write to it unless it is sticky (as /tmp).
///
/// # Errors
/// The system's answer, or [`ErrorKind::PermissionDenied`] that says why the folder is not trusted.
pub fn private_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    check_folder(path)
}

/// Makes a folder for outputs that the user named, with those above it. A symbolic link on the way
/// that somebody else made is not followed, as by [`create_output`](crate::create_output), nor one
/// to which a link of this user leads: whoever made it would choose where folders and files of this
/// user come to lie. [`Folder::output`] opens the folder besides.
///
/// # Errors
/// The system's answer, or [`ErrorKind::PermissionDenied`] that names the link.
pub fn make_folder(path: &Path) -> io::Result<()> {
    output_folder(path).map(drop)
}

/// As [`private_folder`] for a folder that the user named: it must be there.
///
/// # Errors
/// As [`private_folder`].
pub fn check_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let metadata = path.symlink_metadata()?;
    let own = rustix::process::geteuid().as_raw();
    let denied = |why: String| {
        let text = format!("the folder {} is not trusted: {why}; choose another path", path.display());
        Err(Error::new(ErrorKind::PermissionDenied, text))
    };
    if !metadata.is_dir() && metadata.uid() != own && metadata.uid() != 0 {
        return denied(format!("it is a symbolic link of user {}", metadata.uid()));
    }
    // A link of one's own, or of root's (/var/run), leads where its maker wants.
    let metadata = path.metadata()?;
    if metadata.uid() != own && metadata.uid() != 0 {
        return denied(format!("it belongs to user {}, but this is user {own}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 && metadata.mode() & 0o1000 == 0 {
        return denied(format!("other users may write to it (mode {:04o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

/// Folder in which programs of this user keep persistent files: `/var/lib/takt` for root, otherwise
/// `$XDG_STATE_HOME/takt` or `~/.local/state/takt` (XDG Base Directory Specification). It is never
/// a shared folder.
pub fn state_folder() -> PathBuf {
    let absolute =
        |name: &str| environment::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match rustix::process::geteuid().is_root() {
        true => None,
        false => absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state"))),
    };
    base.unwrap_or_else(|| "/var/lib".into()).join("takt")
}

/// Writes the file at `path` whole or not at all. An earlier file or symbolic link is replaced.
///
/// # Errors
/// The system's answer.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let (folder, name) = Folder::of(path)?;
    folder.write(name, bytes)
}

/// A new file beside the one that it will replace. Dropped before [`Draft::finish`], it is removed.
#[derive(Debug)]
pub struct Draft {
    folder: OwnedFd,
    file: File,
    temporary: OsString,
    name: OsString,
    done: bool,
}

impl Draft {
    /// The file, for writers that want to own it.
    ///
    /// # Errors
    /// The system's answer.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its name, in place of whatever has that name: a kill at any point leaves the
    /// old or the new file.
    ///
    /// # Errors
    /// The system's answer; the name is what it was then.
    pub fn finish(mut self) -> io::Result<()> {
        renameat(&self.folder, &self.temporary, &self.folder, &self.name)?;
        self.done = true;
        Ok(())
    }

    /// As [`Self::finish`], and on the disk before this returns: a loss of power leaves the old or
    /// the new file, too.
    ///
    /// # Errors
    /// The system's answer; the name is what it was then.
    pub fn finish_on_disk(self) -> io::Result<()> {
        self.file.sync_all()?;
        let folder = self.folder.try_clone()?;
        self.finish()?;
        // Some file systems cannot; the file itself is on the disk.
        let _ = fsync(&folder);
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.done {
            let _ = unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

/// A name is one part of a path, and none that leads elsewhere.
fn plain(name: &OsStr) -> io::Result<&OsStr> {
    if Path::new(name).file_name() == Some(name) {
        return Ok(name);
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("`{}` is not a plain file name", Path::new(name).display()),
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn folders_are_made_through_links_of_ones_own_alone() {
        let workspace = tempfile::tempdir().unwrap();
        let (target, link) = (workspace.path().join("target"), workspace.path().join("link"));
        fs::create_dir(&target).unwrap();
        symlink(&target, &link).unwrap();
        make_folder(&link.join("one/two")).unwrap();
        make_folder(&link).unwrap();
        assert!(target.join("one/two").is_dir());
        make_folder(&link.join("../beside")).unwrap();
        assert!(workspace.path().join("beside").is_dir());
        Folder::output(&link.join("three")).unwrap().write("file", "text").unwrap();
        assert_eq!(fs::read_to_string(target.join("three/file")).unwrap(), "text");
        fs::remove_dir_all(target.join("three")).unwrap();
        // A new one, and none in place of what is there.
        let new = Folder::create(&link.join("four/new")).unwrap();
        new.write("file", "text").unwrap();
        assert!(target.join("four/new/file").is_file());
        symlink("nowhere", target.join("four/leads")).unwrap();
        for taken in ["four/new", "four/new/file", "four/leads", ".."] {
            assert_eq!(Folder::create(&link.join(taken)).unwrap_err().kind(), ErrorKind::AlreadyExists);
        }
        let circle = workspace.path().join("circle");
        symlink("circle", &circle).unwrap();
        assert_eq!(make_folder(&circle).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        fs::write(target.join("file"), "").unwrap();
        assert_eq!(make_folder(&link.join("file")).unwrap_err().kind(), ErrorKind::NotADirectory);
        if lchown(&link, Some(65534), Some(65534)).is_err() {
            takt_witness::skip!("another user's link needs root");
            return;
        }
        // A link of one's own leads to it, with a name before it and as a whole.
        let (own, beside) = (workspace.path().join("own"), workspace.path().join("beside/own"));
        symlink("link/five", &own).unwrap();
        symlink("../link", &beside).unwrap();
        for path in [
            link.join("three"),
            link.join("three/four"),
            link.clone(),
            own.clone(),
            own.join("six"),
            beside.join("seven"),
            beside,
        ] {
            let error = make_folder(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("link of user 65534"), "{error}");
            let error = Folder::create(&path.join("eight")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        }
        for name in ["three", "five", "seven", "eight"] {
            assert!(!target.join(name).exists(), "{name}");
        }
    }
}
