//! Plants of another user in places where Takt reads and writes.

// Helpers outside `#[test]` functions may fail loudly as well.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use takt_files::{
    Folder, append, create_output, open, open_for_change, open_lock, open_own, open_shared, private_folder,
    read, read_own, read_to_string, shortened, write,
};
use takt_witness::plant::Plant;

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn only_regular_files_are_read_and_no_more_than_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    fifo(&path);
    // Without anybody who writes, this would wait for ever.
    let error = read(&path, 100).unwrap_err();
    assert!(error.to_string().starts_with("a FIFO;"), "{error}");
    let error = read(Path::new("/dev/zero"), 100).unwrap_err();
    assert!(error.to_string().starts_with("a device;"), "{error}");
    assert_eq!(open(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(open(&folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    let link = folder.path().join("link");
    symlink("/dev/zero", &link).unwrap();
    assert_eq!(read(&link, 100).unwrap_err().kind(), ErrorKind::InvalidInput);
    let text = folder.path().join("text");
    fs::write(&text, "0123456789").unwrap();
    assert_eq!(read_to_string(&text, 10).unwrap(), "0123456789");
    let error = read_to_string(&text, 9).unwrap_err();
    assert_eq!(error.to_string(), "10 bytes; at most 9 are read here");
    // Files of /proc have no length.
    assert!(read(Path::new("/proc/self/status"), 1 << 20).unwrap().len() > 100);
    assert_eq!(read(Path::new("/proc/self/status"), 10).unwrap_err().kind(), ErrorKind::FileTooLarge);
    fs::write(&text, [b'a', 0xff]).unwrap();
    assert_eq!(read_to_string(&text, 10).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn a_planted_link_is_replaced_and_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let at = |name: &str| folder.path().join(name);
    // In the place of the file, and of the draft that it is written to first.
    symlink(&victim, at("report.html")).unwrap();
    symlink(&victim, at("report.html.tmp")).unwrap();
    write(&at("report.html"), "new").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(fs::read_to_string(at("report.html")).unwrap(), "new");
    assert!(!at("report.html").symlink_metadata().unwrap().file_type().is_symlink());
    assert!(!at("report.html.tmp").exists());
    // A hard link is another name of the victim.
    fs::hard_link(&victim, at("figures.md")).unwrap();
    write(&at("figures.md"), "new").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    // In the place of a folder below.
    fs::create_dir(at("elsewhere")).unwrap();
    symlink(at("elsewhere"), at("figures")).unwrap();
    let open = Folder::open(folder.path()).unwrap();
    assert!(open.subfolder("figures").is_err());
    open.subfolder("drawn").unwrap().write("a.svg", "x").unwrap();
    assert_eq!(fs::read_to_string(at("drawn/a.svg")).unwrap(), "x");
    assert_eq!(open.subfolder("..").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(open.draft("a/b").unwrap_err().kind(), ErrorKind::InvalidInput);
    // Appended to.
    symlink(&victim, at("samples.csv")).unwrap();
    assert!(append(&at("samples.csv")).is_err());
    append(&at("rows.csv")).unwrap().write_all(b"1\n").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_draft_that_is_given_up_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let open = Folder::open(folder.path()).unwrap();
    open.write("a", "before").unwrap();
    let mut draft = open.private_draft("a").unwrap();
    draft.write_all(b"half").unwrap();
    assert_eq!(folder.path().join("a.tmp").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    drop(draft);
    assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "before");
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn only_own_files_are_acted_upon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    fs::write(&path, "{}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(read_own(&path, 10).unwrap(), "{}");
    let refused = |why: &str| {
        let error = read_own(&path, 10).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    refused("may write to it (mode 0666)");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let other = folder.path().join("other");
    fs::hard_link(&path, &other).unwrap();
    refused("2 names");
    fs::remove_file(&other).unwrap();
    if chown(&path, Some(NOBODY), Some(NOBODY)).is_ok() {
        refused("belongs to user 65534");
        let link = folder.path().join("link");
        std::os::unix::fs::lchown(folder.path(), Some(NOBODY), None).unwrap();
        fs::write(&other, "precious").unwrap();
        symlink(&other, &link).unwrap();
        assert!(create_output(&link).is_ok(), "one's own links are followed");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
        assert!(create_output(&link).unwrap_err().to_string().contains("link of user 65534"));
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    } else {
        takt_witness::skip!("a second user needs root");
    }
    fs::remove_file(&path).unwrap();
    symlink(&other, &path).unwrap();
    assert!(read_own(&path, 10).is_err());
}

#[test]
fn folders_in_which_others_could_replace_a_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("a/b");
    private_folder(&own).unwrap();
    assert_eq!(own.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    private_folder(&own).unwrap();
    // As /tmp: others may add files, and may not replace ours.
    fs::set_permissions(&own, fs::Permissions::from_mode(0o1777)).unwrap();
    private_folder(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
    let error = private_folder(&own).unwrap_err().to_string();
    assert!(error.contains("other users may write to it (mode 0777)"), "{error}");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    if chown(&own, Some(NOBODY), Some(NOBODY)).is_err() {
        takt_witness::skip!("a second user needs root");
        return;
    }
    let error = private_folder(&own).unwrap_err().to_string();
    assert!(error.contains("belongs to user 65534"), "{error}");
}

#[test]
fn messages_do_not_echo_a_long_line() {
    assert_eq!(shortened("short"), "short");
    // As the errors of TOML quote the line and mark the place.
    let (line, place) = (format!("{}!{}", "a".repeat(5_000_000), "b".repeat(5_000_000)), 5_000_000);
    let message = format!(
        "TOML parse error at line 1, column {place}\n  |\n1 | {line}\n  | {}^\nno",
        " ".repeat(place)
    );
    let reported = shortened(&message);
    assert!(reported.len() < 1000, "{}", reported.len());
    let lines: Vec<&str> = reported.lines().collect();
    let column = |line: &str, mark: char| line.chars().position(|c| c == mark).unwrap();
    assert_eq!(column(lines[2], '!'), column(lines[3], '^'), "{reported}");
    assert_eq!((lines[0], lines[4]), ("TOML parse error at line 1, column 5000000", "no"), "{reported}");
    assert!(shortened(&"a\n".repeat(100_000)).len() < 200);
    let unicode = "ä".repeat(10_000);
    assert_eq!(shortened(&unicode), format!("{}… (10000 characters)", "ä".repeat(60)));
    let words = "ä b ".repeat(2500);
    assert!(shortened(&words).ends_with("… (6000 characters more)"));
    // A value in a sentence, as errors of configuration and of the command line quote it.
    for (before, after) in [
        ("--stress `", "`: accepted are off, cpu"),
        ("invalid value '", "' for '--seconds <S>'"),
        ("name = \"", "\"."),
    ] {
        for value in ["A".repeat(5000), "a b".repeat(1667)] {
            let message = shortened(&format!("it doesn't fit: {before}{value}{after}"));
            let shown: String = value.chars().take(60).collect();
            let count = value.chars().count();
            assert_eq!(message, format!("it doesn't fit: {before}{shown}… ({count} characters){after}"));
        }
    }
    // What is no longer than a person reads stays, and so do paths and commands.
    let fix = format!(
        "Fix: `perf record -a -k CLOCK_MONOTONIC -e 'sched:*,irq:*' -o /tmp/{}/perf.data` and again {}",
        "p".repeat(80),
        "x ".repeat(60)
    );
    assert_eq!(shortened(&fix), fix);
}

/// Run as a copy of this test that has a capability from its file, by another user.
#[test]
fn the_environment_of_a_privileged_program_is_not_believed() {
    let secure = takt_files::environment::is_secure();
    if std::env::var_os("TAKT_TEST_ENVIRONMENT").is_some() || secure {
        let seen = takt_files::environment::var_os("ORT_DYLIB_PATH");
        // SAFETY: nothing else in this process asks for the environment now.
        let dropped = unsafe { takt_files::environment::drop_untrusted() };
        let path = std::env::var("PATH").unwrap_or_default();
        println!("\nSEEN secure={secure} seen={} dropped={} path={path}", seen.is_some(), dropped.len());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("privileged");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |uid: Option<u32>| {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&copy);
        command.args([
            "--exact",
            "planted::the_environment_of_a_privileged_program_is_not_believed",
            "--nocapture",
        ]);
        command.env("TAKT_TEST_ENVIRONMENT", "1").env("ORT_DYLIB_PATH", "/tmp/planted.so");
        command.env("PATH", "/tmp/planted").current_dir("/");
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        let output = command.output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find_map(|line| line.strip_prefix("SEEN ").map(str::to_owned))
    };
    let ordinary = run(None).unwrap();
    assert_eq!(ordinary, "secure=false seen=true dropped=0 path=/tmp/planted");
    // VFS_CAP_REVISION_2 with the effective bit (include/uapi/linux/capability.h), CAP_SYS_NICE
    // (23) permitted.
    let mut capability = [0u8; 20];
    capability[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    capability[4..8].copy_from_slice(&(1_u32 << 23).to_le_bytes());
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&copy, "security.capability", &capability, flags) {
        takt_witness::skip!("no capabilities on files here: {error}");
        return;
    }
    match run(Some(NOBODY)) {
        Some(reported) if reported.starts_with("secure=true") => {
            assert!(reported.contains("seen=false"), "{reported}");
            assert!(!reported.contains("dropped=0"), "{reported}");
            assert!(reported.ends_with(takt_files::environment::SAFE_PATH), "{reported}");
        }
        // A file system that is mounted without set-user-ID, or no right to become another user.
        reported => takt_witness::skip!("the copy got no capability: {reported:?}"),
    }
}

/// Settings that somebody will install: what another user could put into their folder, or swap, he
/// must not have.
#[test]
fn a_folder_for_settings_is_refused_where_others_can_plant() {
    let base = tempfile::tempdir().unwrap();
    let refused = |path: &Path, owner| Folder::trusted(path, owner).unwrap_err().to_string();
    // New, and new below what is not there yet: nobody else may write to either, whatever the
    // umask.
    let new = base.path().join("a/b");
    let folder = Folder::trusted(&new, None).unwrap();
    assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o022, 0);
    assert!(folder.names().unwrap().is_empty());
    folder.trusted_subfolder("units", None).unwrap().write("50-takt.conf", "x").unwrap();
    assert_eq!(folder.names().unwrap(), ["units"]);
    // As /tmp: sticky does not help, for one who planted a folder of the same name before.
    let open = base.path().join("open");
    fs::create_dir(&open).unwrap();
    for mode in [0o1777, 0o777, 0o775] {
        fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
        assert!(refused(&open, None).contains("other users may write to it"), "{mode:o}");
    }
    // A link as a folder of the plan, and a file in place of a folder.
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    let target = base.path().join("target");
    fs::create_dir(&target).unwrap();
    symlink(&target, open.join("systemd")).unwrap();
    let folder = Folder::trusted(&open, None).unwrap();
    assert_eq!(
        folder.trusted_subfolder("systemd", None).map(drop).unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    assert!(folder.trusted_subfolder("../target", None).is_err());
    // A planted link as a file is replaced, not written through.
    let victim = base.path().join("victim");
    fs::write(&victim, "whole").unwrap();
    symlink(&victim, open.join("launch.py")).unwrap();
    symlink(&victim, open.join("launch.py.tmp")).unwrap();
    folder.write("launch.py", "settings").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "whole");
    assert_eq!(fs::read_to_string(open.join("launch.py")).unwrap(), "settings");
    // Another's folder, unless it is his for whom this is done.
    let others = base.path().join("others");
    fs::create_dir(&others).unwrap();
    if chown(&others, Some(NOBODY), None).is_err() {
        takt_witness::skip!("in part: needs root");
        return;
    }
    assert!(refused(&others, None).contains("belongs to user 65534"));
    assert!(Folder::trusted(&others, Some(NOBODY)).is_ok());
    chown(&target, Some(NOBODY), None).unwrap();
    fs::rename(&target, open.join("units")).unwrap();
    assert!(folder.trusted_subfolder("units", None).is_err());
}

/// A way to open a name, and what it accepts of what somebody may have planted there.
struct Way {
    name: &'static str,
    open: fn(&Path) -> std::io::Result<()>,
    /// These alone are accepted. Of a file that changes meanwhile, both is right.
    accepts: &'static [Plant],
}

const REGULAR: &[Plant] = &[Plant::Sparse, Plant::Growing, Plant::Shrinking];
const LINKED: &[Plant] = &[Plant::LinkToFile, Plant::Sparse, Plant::Growing, Plant::Shrinking];

const WAYS: &[Way] = &[
    Way { name: "open", open: |path| open(path).map(drop), accepts: LINKED },
    Way {
        name: "read",
        open: |path| read(path, 1 << 20).map(drop),
        accepts: &[Plant::LinkToFile, Plant::Growing, Plant::Shrinking],
    },
    Way {
        name: "read_to_string",
        open: |path| read_to_string(path, 1 << 20).map(drop),
        accepts: &[Plant::LinkToFile, Plant::Growing, Plant::Shrinking],
    },
    // As recorded traces are read: what a file lacks in length it must not take in memory.
    Way {
        name: "read of gigabytes",
        open: |path| read(path, takt_files::TRACE_BYTES).map(drop),
        accepts: &[Plant::LinkToFile, Plant::Growing, Plant::Shrinking],
    },
    Way {
        name: "read_own",
        open: |path| read_own(path, 1 << 20).map(drop),
        accepts: &[Plant::Growing, Plant::Shrinking],
    },
    Way { name: "open_own", open: |path| open_own(path).map(drop), accepts: REGULAR },
    Way { name: "append", open: |path| append(path).map(drop), accepts: REGULAR },
    Way { name: "open_for_change", open: |path| open_for_change(path).map(drop), accepts: REGULAR },
    Way { name: "open_shared", open: |path| open_shared(path).map(drop), accepts: REGULAR },
    Way { name: "open_lock", open: |path| open_lock(path).map(drop), accepts: REGULAR },
    // What the user names for output may be a device, and his own link leads where he wants.
    Way {
        name: "create_output",
        open: |path| create_output(path).map(drop),
        accepts: &[
            Plant::LinkToFile,
            Plant::LinkToNothing,
            Plant::LinkToDevice,
            Plant::Device,
            Plant::Sparse,
            Plant::Growing,
            Plant::Shrinking,
        ],
    },
    // What is there is replaced, whatever it is.
    Way {
        name: "write",
        open: |path| write(path, "new"),
        accepts: &[
            Plant::Fifo,
            Plant::LinkToFile,
            Plant::LinkToNothing,
            Plant::LinkToDevice,
            Plant::Device,
            Plant::Socket,
            Plant::Sparse,
            Plant::Growing,
            Plant::Shrinking,
        ],
    },
];

#[test]
fn every_way_to_open_survives_whatever_was_planted() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for way in WAYS {
        for plant in Plant::ALL {
            let path = folder.path().join("name");
            let planted = match plant.at(&path, b"good") {
                Ok(planted) => planted,
                Err(error) => {
                    takt_witness::skip!("in part: no {plant:?}: {error}");
                    continue;
                }
            };
            let (done, outcome) = std::sync::mpsc::channel();
            let (open, at) = (way.open, path.clone());
            let thread = std::thread::spawn(move || done.send(open(&at)));
            let Ok(outcome) = outcome.recv_timeout(std::time::Duration::from_secs(60)) else {
                panic!("{} does not return from {plant:?}", way.name);
            };
            thread.join().unwrap().unwrap();
            let changes = matches!(plant, Plant::Growing | Plant::Shrinking);
            let expected = way.accepts.contains(&plant);
            if outcome.is_ok() != expected && !(changes && expected) {
                wrong.push(format!("{} of {plant:?}: {outcome:?}", way.name));
            }
            drop(planted);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_file_longer_than_the_memory_is_refused_before_it_takes_any() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    fs::File::create(&path).unwrap().set_len(1 << 43).unwrap();
    let error = read(&path, u64::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
    assert!(error.to_string().contains("bytes of memory are free"), "{error}");
}

#[test]
fn a_file_is_read_as_long_as_it_was_when_it_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("growing");
    let planted = Plant::Growing.at(&path, b"good").unwrap();
    for _ in 0..20 {
        match read(&path, 64 << 20) {
            Ok(bytes) => assert!(bytes.starts_with(b"good")),
            Err(error) => assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}"),
        }
    }
    drop(planted);
    // One that has no length yet has an end, too.
    fs::write(&path, "").unwrap();
    assert_eq!(read(&path, u64::MAX).unwrap(), b"");
}

#[test]
fn what_nests_too_deeply_says_how_deep_it_may() {
    let dotted = "TOML parse error at line 1, column 161\n  |\n1 | a.a.a\n  |      ^\nrecursion limit\n";
    let message = shortened(dotted);
    assert!(message.contains("more than 80 parts between dots; write fewer"), "{message}");
    assert!(message.contains("1 | a.a.a\n  |      ^"), "{message}");
    let message = shortened("goals.toml: line 1\ncannot recurse further; max recursion depth met");
    assert_eq!(message, "goals.toml: line 1\nnested more than 80 levels deep; write fewer levels");
    let message = shortened("summary.json: recursion limit exceeded at line 1 column 128");
    assert!(message.contains("nested more than 128 levels deep; write fewer levels at line 1"), "{message}");
    // A file may have these words in it.
    assert_eq!(shortened("1 | note = \"recursion limit\""), "1 | note = \"recursion limit\"");
}
