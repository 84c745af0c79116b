use super::*;
use crate::reserve::system::sim::Sim;
use proptest::prelude::*;

#[test]
fn no_file_is_nothing_to_do() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(restore(&mut Sim::new(2), &folder.path().join("none.json")).unwrap(), None);
}

#[test]
fn after_a_reboot_the_file_is_only_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let mut sim = Sim::new(2);
    sim.spawn(10, 10, "worker");
    let (mut journal, _) = Journal::begin(&mut sim, &path).unwrap();
    journal.record(&sim, [(10, 10)], None).unwrap();
    sim.files.insert("/proc/sys/kernel/random/boot_id".into(), "another\n".into());
    sim.set_affinity(10, &CpuSet::single(1).unwrap()).unwrap();
    let changes = sim.changes;
    assert_eq!(restore(&mut sim, &path).unwrap(), Some(Restored::default()));
    assert_eq!(sim.changes, changes);
    assert!(!path.exists());
}

#[test]
fn a_state_file_that_cannot_be_made_stops_everything_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let path = folder.path().join("file/state.json");
    assert!(matches!(Journal::begin(&mut Sim::new(2), &path), Err(Error::File { .. })));
}

/// `manage --restore` as root, with a state file that another user wrote or planted.
#[test]
fn what_another_user_wrote_is_neither_read_nor_followed() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let path = folder.path().join("state.json");
    for draft in ["state.json.next", "state.json.tmp"] {
        symlink(&victim, folder.path().join(draft)).unwrap();
    }
    let mut sim = Sim::new(2);
    drop(Journal::begin(&mut sim, &path).unwrap());
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");

    // The manager that wrote it is said to be another boot's, so that nothing but the owner speaks
    // against it.
    sim.files.insert("/proc/sys/kernel/random/boot_id".into(), "another\n".into());
    let refused = |sim: &mut Sim, why: &str| {
        let error = restore(sim, &path).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(path.exists());
    };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o622)).unwrap();
    refused(&mut sim, "others may write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    if chown(&path, Some(65_534), None).is_ok() {
        refused(&mut sim, "it belongs to user 65534");
        chown(&path, Some(0), None).unwrap();
    } else {
        takt_witness::skip!("in part: needs root: a file of another user");
    }
    assert_eq!(restore(&mut sim, &path).unwrap(), Some(Restored::default()));
}

/// A state file is a person's word (`--state`), read by root: it undoes what a manager does, and is
/// no way to write anything else.
#[test]
fn what_no_manager_changes_is_not_undone() {
    let mut sim = Sim::new(2);
    let manager = system::identify(&sim, std::process::id(), std::process::id()).unwrap();
    let boot = journal::boot(&sim);
    sim.files.insert("/etc/shadow".into(), "root:*".into());
    let file = |path: &str, undo: &str| Change::File { path: path.into(), undo: undo.into() };
    let group = |path: &str, heir: &str| Change::Group {
        path: path.into(),
        version: GroupVersion::V1,
        heir: heir.into(),
    };
    let foreign = [
        file("/etc/shadow", "root::"),
        file("/cpuset/../etc/shadow", "root::"),
        file("/proc/sys/kernel/sched_rt_runtime_us", "1\n2"),
        group("/etc", "/cpuset"),
        group("/cpuset/others", "/cpuset"),
        group("/cpuset/takt-1", "/etc"),
        group("/cpuset/x/../takt-1", "/cpuset"),
    ];
    for change in foreign {
        let state = State {
            version: VERSION,
            boot: boot.clone(),
            manager,
            threads: Vec::new(),
            processes: Vec::new(),
            changes: vec![change.clone()],
            given: Vec::new(),
            died: false,
        };
        let (files, changes) = (sim.files.clone(), sim.changes);
        let restored = undo(&mut sim, &state);
        assert_eq!((restored.failures.len(), restored.changes), (1, 0), "{change:?}");
        assert!(sim.files == files && sim.changes == changes, "{change:?}");
    }
}

proptest! {
    /// A file cut at any byte, or with any byte changed, is refused whole or read as something
    /// valid; nothing panics.
    #[test]
    fn a_torn_file_is_refused_and_nothing_changed(cut in 0_usize..2000, byte: u8, place in 0_usize..2000) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut sim = Sim::new(2);
        sim.spawn(10, 10, "worker");
        let (mut journal, _) = Journal::begin(&mut sim, &path).unwrap();
        journal.record(&sim, [(10, 10)], None).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let cut = cut % whole.len();
        std::fs::write(&path, &whole[..cut]).unwrap();
        let changes = sim.changes;
        let unreadable = matches!(restore(&mut sim, &path), Err(Error::Unreadable { .. }));
        prop_assert!(unreadable, "cut at {} of {}", cut, whole.len());
        prop_assert!(path.exists());
        prop_assert_eq!(sim.changes, changes);
        let mut changed = whole;
        let place = place % changed.len();
        changed[place] = byte;
        std::fs::write(&path, &changed).unwrap();
        let _ = restore(&mut sim, &path);
    }
}

/// Two managers with state files of their own, one of which is killed together with its watchdog.
#[test]
fn settings_of_the_machine_have_one_owner_and_a_killed_one_is_undone_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let state = |name: &str| folder.path().join(name).join("state.json");
    let mut sim = Sim::new(2);
    sim.owner_file = Some(folder.path().join("run/machine.lock"));
    let before = sim.settings();
    let admission = Path::new(ADMISSION_FILE);
    let off = |sim: &mut Sim, journal: &mut Journal| {
        crate::reserve::set(sim, journal, admission, "-1", None).unwrap()
    };

    let (mut first, _) = Journal::begin(&mut sim, &state("first")).unwrap();
    off(&mut sim, &mut first);
    // The second would take -1 for what was there.
    let refused = Journal::begin(&mut sim, &state("second")).unwrap_err();
    assert!(matches!(&refused, Error::Owned { .. }), "{refused}");
    assert!(refused.to_string().contains(&format!("process {} ", std::process::id())), "{refused}");
    assert!(!state("second").exists());
    assert_eq!(restore(&mut sim, &state("second")).unwrap(), None);
    // Killed: the kernel releases its lock, and its number is another's.
    drop(first);
    let ours = std::process::id();
    sim.threads.get_mut(&ours).unwrap().start_ticks += 1;
    let (mut second, left) = Journal::begin(&mut sim, &state("second")).unwrap();
    assert_eq!(left.map(|left| (left.changes, left.is_complete())), Some((1, true)));
    assert!(!state("first").exists());
    assert_eq!(sim.settings(), before);
    off(&mut sim, &mut second);
    assert!(second.undo(&mut sim).unwrap().is_complete());
    assert_eq!(sim.settings(), before);
    // A manager that ended cleanly leaves nothing to undo.
    drop(second);
    let (third, left) = Journal::begin(&mut sim, &state("third")).unwrap();
    assert_eq!(left, None);
    drop(third);

    // A search for settings that was killed: who undoes it is said.
    let place = sim.owner_file.take();
    sim = Sim::new(2);
    sim.owner_file = place;
    std::fs::write(folder.path().join("tune.json"), "{}").unwrap();
    let tune = folder.path().join("tune.json");
    let (owner, _) = Owner::take(&mut sim, &tune).unwrap();
    owner.unwrap().undone_by(&sim, &tune, owner::Form::Settings).unwrap();
    let refused = Journal::begin(&mut sim, &state("fourth")).unwrap_err().to_string();
    assert!(refused.contains("takt tune --restore --state") && refused.contains("tune.json"), "{refused}");
    std::fs::remove_file(&tune).unwrap();
    assert!(Journal::begin(&mut sim, &state("fourth")).is_ok());
}

#[test]
fn a_lock_that_root_cannot_have_and_a_link_in_its_place_stop_everything() {
    if !journal::is_root() {
        takt_witness::skip!("for others the kernel keeps settings as they are");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let mut sim = Sim::new(2);
    std::fs::write(folder.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink(folder.path().join("file"), folder.path().join("link")).unwrap();
    for place in ["file/machine.lock", "link"] {
        sim.owner_file = Some(folder.path().join(place));
        let refused = Journal::begin(&mut sim, &path).unwrap_err();
        assert!(matches!(&refused, Error::NoOwner { .. }), "{refused}");
        assert!(refused.to_string().contains("nothing was changed") && !path.exists(), "{refused}");
    }
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"");
}

/// `sysctl -w` while the manager ends, after its last look.
#[test]
fn an_admission_test_that_another_program_has_switched_on_since_stays_as_it_set_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = Sim::new(2);
    let admission = Path::new(ADMISSION_FILE);
    for (then, at_the_end) in [(None, "950000"), (Some("800000"), "800000")] {
        sim.files.insert(admission.into(), "950000\n".into());
        let (mut journal, _) = Journal::begin(&mut sim, &folder.path().join("state.json")).unwrap();
        crate::reserve::set(&mut sim, &mut journal, admission, "-1", None).unwrap();
        if let Some(then) = then {
            sim.write(admission, then).unwrap();
        }
        assert!(journal.undo(&mut sim).unwrap().is_complete());
        assert_eq!(sim.read(admission).unwrap().trim(), at_the_end);
    }
    // Also one that found it off.
    let (mut journal, _) = Journal::begin(&mut sim, &folder.path().join("state.json")).unwrap();
    sim.files.insert(admission.into(), "-1\n".into());
    crate::reserve::set(&mut sim, &mut journal, admission, "-1", None).unwrap();
    assert_eq!(journal.state().changes, []);
    journal.supersede(admission, "700000").unwrap();
    journal.supersede(admission, "600000").unwrap();
    assert!(journal.undo(&mut sim).unwrap().is_complete());
    assert_eq!(sim.read(admission).unwrap().trim(), "600000");
}
