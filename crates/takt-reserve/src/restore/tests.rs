use super::*;
use crate::system::sim::Sim;
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
        refused(&mut sim, "the file of user 65534");
        chown(&path, Some(0), None).unwrap();
    } else {
        eprintln!("SKIPPED the part that needs root: a file of another user");
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
