//! Plants of another user on the way to a folder, above it.

// Helpers outside `#[test]` functions may fail loudly as well.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_files::Folder;

/// A user and a group that no machine has.
const SOMEBODY: u32 = 54_321_986;
const NO_GROUP: u32 = 54_321_987;
/// Variable with which the test of relative paths starts itself.
const RELATIVE: &str = "TAKT_TEST_RELATIVE";

fn refused(path: &Path) -> String {
    let error = Folder::trusted(path, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

/// A new folder with this mode, whatever the umask.
fn made(path: PathBuf, mode: u32) -> PathBuf {
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// Gives `path` itself, also where it is a link, to another user; false, where this one may not.
fn give(path: &Path) -> bool {
    match lchown(path, Some(SOMEBODY), None) {
        Ok(()) => true,
        Err(error) => {
            takt_witness::skip!("in part: needs root to plant for another user: {error}");
            false
        }
    }
}

#[test]
fn a_folder_of_which_the_parent_is_everybodys_is_refused() {
    let base = tempfile::tempdir().unwrap();
    // In a sticky one, one's own stays one's own, as in /tmp.
    let sticky = made(base.path().join("sticky"), 0o1777);
    let folder = Folder::trusted(&sticky.join("own/below"), None).unwrap();
    folder.write("settings", "x").unwrap();
    assert_eq!(fs::read_to_string(sticky.join("own/below/settings")).unwrap(), "x");
    assert!(refused(&sticky).contains("name a new folder inside it"));
    // In another, anybody renames it away.
    let open = made(base.path().join("open"), 0o755);
    made(open.join("own"), 0o755);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for path in ["own", "new", "new/below", "own/../own", "own/../../open/own"].map(|path| open.join(path)) {
        let words = refused(&path);
        assert!(words.contains("other users may write to it (mode 0777)"), "{words}");
        assert!(words.contains(&format!("the folder {} is", open.display())), "{words}");
        assert!(!words.contains("new folder"), "{words}");
    }
    assert!(!refused(&open).contains("new folder"), "one in it would be refused as well");
    assert!(!open.join("new").exists(), "nothing is made before it is refused");
    // A link of one's own does not make it better; one that leads to nothing but itself ends.
    let link = base.path().join("link");
    symlink("open/own", &link).unwrap();
    assert!(refused(&link).contains("other users may write to it"));
    let ring = base.path().join("ring");
    symlink("ring", &ring).unwrap();
    assert_eq!(Folder::trusted(&ring, None).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    fs::write(base.path().join("file"), "").unwrap();
    let error = Folder::trusted(&base.path().join("file/new"), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotADirectory);
    // A group that nobody knows.
    let lent = made(base.path().join("lent"), 0o755);
    if chown(&lent, None, Some(NO_GROUP)).is_ok() {
        fs::set_permissions(&lent, fs::Permissions::from_mode(0o775)).unwrap();
        assert!(refused(&lent.join("new")).contains("other users may write to it (mode 0775)"));
    }
}

#[test]
fn a_folder_below_another_users_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let others = made(base.path().join("others"), 0o755);
    let own = made(others.join("own"), 0o755);
    if !give(&others) {
        return;
    }
    for path in [&own, &others.join("new"), &own.join("new")] {
        let words = refused(path);
        assert!(
            words.contains(&format!("{} is not trusted: it belongs to user {SOMEBODY}", others.display()))
        );
        assert!(!words.contains("new folder"), "{words}");
    }
    assert!(!others.join("new").exists());
    // Unless it is his for whom this is done.
    Folder::trusted(&own, Some(SOMEBODY)).unwrap();
    Folder::trusted(&others.join("new/below"), Some(SOMEBODY)).unwrap();
    // Through a link of this user's, and up again from below it.
    let link = base.path().join("link");
    symlink(&own, &link).unwrap();
    assert!(refused(&link.join("new")).contains("belongs to user"));
    assert!(refused(&link.join("../../good")).contains("belongs to user"));
    // What is planted in a sticky folder: a folder, and links to what is all in order.
    let sticky = made(base.path().join("sticky"), 0o1777);
    let good = made(base.path().join("good"), 0o755);
    let planted = made(sticky.join("planted"), 0o755);
    assert!(give(&planted));
    assert!(refused(&planted).contains("belongs to user"));
    assert!(refused(&planted.join("new")).contains("belongs to user"));
    let link = sticky.join("link");
    symlink(&good, &link).unwrap();
    Folder::trusted(&link, None).unwrap();
    assert!(give(&link));
    for path in [link.clone(), link.join("new"), link.join("..").join("good")] {
        let words = refused(&path);
        assert!(words.contains(&format!("the symbolic link {} is not trusted", link.display())), "{words}");
    }
    assert_eq!(fs::read_dir(&good).unwrap().count(), 0);
}

#[test]
fn a_relative_path_is_judged_from_the_root() {
    if let Some(expected) = std::env::var_os(RELATIVE) {
        assert_eq!(Folder::trusted(Path::new("new"), None).is_ok(), expected == "trusted");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let above = made(base.path().join("above"), 0o755);
    let current = made(above.join("current"), 0o755);
    let judged = |expected: &str| {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "on_the_way::a_relative_path_is_judged_from_the_root"]);
        let output = again.current_dir(&current).env(RELATIVE, expected).output().unwrap();
        assert!(output.status.success(), "{expected}: {}", String::from_utf8_lossy(&output.stdout));
    };
    judged("trusted");
    fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).unwrap();
    judged("refused");
}

/// Somebody renames all the time what lies on the way: either this is seen, or the folder is the
/// one that was meant.
#[test]
fn what_is_swapped_meanwhile_leads_to_nothing_of_others() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    let good = made(made(at("way"), 0o755).join("settings"), 0o755);
    let inode = fs::metadata(&good).unwrap().ino();
    // His way holds a folder of root, so that only the way itself reports.
    let planted = made(at("his"), 0o755);
    made(planted.join("settings"), 0o755);
    if !give(&planted) {
        return;
    }
    symlink(&planted, at("link")).unwrap();
    lchown(at("link"), Some(SOMEBODY), None).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let exchange = |other: &str| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, at("way"), rustix::fs::CWD, at(other), flags)
            };
            // A file system that cannot exchange leaves the way as it is.
            while !done.load(Ordering::Relaxed) {
                for other in ["his", "his", "link", "link"] {
                    let _ = exchange(other);
                }
            }
        });
        let trusted = (0..2000).filter_map(|_| Folder::trusted(&at("way/settings"), None).ok());
        let allowed = trusted
            .inspect(|folder| {
                folder.write("here", "x").unwrap();
            })
            .count();
        done.store(true, Ordering::Relaxed);
        println!("{allowed} of 2000 looks found the folder that was meant");
    });
    let written: Vec<u64> = ["way", "his"]
        .iter()
        .map(|way| at(way).join("settings"))
        .filter(|settings| settings.join("here").exists())
        .map(|settings| fs::metadata(settings).unwrap().ino())
        .collect();
    assert!(written.is_empty() || written == [inode], "{written:?} but {inode} was meant");
}
