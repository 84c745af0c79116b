use super::*;
use crate::doctor::report::Check;
use crate::doctor::tree::fake;
use proptest::prelude::*;

const RT: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

fn report(changes: &[(&str, &str)]) -> Report {
    let changes = changes.iter().map(|(path, value)| Change::new(path, *value)).collect();
    Report { checks: vec![Check::new("x", "X", "w").warn("e", "f").with_changes(changes)] }
}

fn machine() -> tempfile::TempDir {
    fake::tree(&[(RT, "950000\n"), (THP, "always\n"), (GOVERNOR, "powersave\n")])
}

fn all(root: &Path) -> Vec<String> {
    [RT, THP, GOVERNOR].iter().map(|path| read(root, Path::new(path)).unwrap()).collect()
}

#[test]
fn what_is_applied_is_reverted_to_the_last_letter() {
    let root = machine();
    let state = root.path().join("state.json");
    let wanted = report(&[
        (RT, "-1"),
        (THP, "madvise"),
        (GOVERNOR, "performance"),
        ("/proc/irq/9/smp_affinity_list", "0"),
    ]);
    let changed = apply_below(root.path(), &wanted, &state).unwrap();
    assert_eq!(all(root.path()), ["-1", "madvise", "performance"]);
    assert_eq!(changed.len(), 3);
    assert_eq!(
        (changed[0].before.as_str(), changed[0].after.as_str(), &changed[0].error),
        ("950000", "-1", &None)
    );

    // Again: nothing to do, and the first state stays.
    assert_eq!(apply_below(root.path(), &wanted, &state).unwrap(), []);
    // And again after somebody else changed one: the value to go back to is still the first.
    fake::write(root.path(), RT, b"500000\n");
    apply_below(root.path(), &wanted, &state).unwrap();
    revert_below(root.path(), &state).unwrap();
    assert_eq!(all(root.path()), ["950000", "always", "powersave"]);
    assert!(!state.exists());
    assert!(matches!(revert_below(root.path(), &state), Err(DoctorError::NothingApplied { .. })));
}

#[test]
fn an_interrupted_apply_is_reverted() {
    let root = machine();
    let state = root.path().join("state.json");
    // As after a kill between the first and the second write.
    let settings = [(RT, "950000"), (THP, "always"), (GOVERNOR, "powersave")];
    let settings = settings.map(|(path, before)| Saved { path: path.into(), before: before.into() }).into();
    save(&state, &State { settings, ..State::new() }).unwrap();
    fake::write(root.path(), RT, b"-1");
    revert_below(root.path(), &state).unwrap();
    assert_eq!(all(root.path()), ["950000", "always", "powersave"]);
    assert!(!state.exists());
}

#[test]
fn what_cannot_be_put_back_stays_in_the_file() {
    let root = machine();
    let state = root.path().join("state.json");
    apply_below(root.path(), &report(&[(RT, "-1"), (THP, "never")]), &state).unwrap();
    fs::remove_file(root.path().join(&RT[1..])).unwrap();
    let error = revert_below(root.path(), &state).unwrap_err();
    assert!(matches!(&error, DoctorError::NotReverted { failed, .. } if failed.len() == 1), "{error}");
    assert_eq!(load(&state).unwrap().unwrap().settings.len(), 1);
    fake::write(root.path(), RT, b"-1\n");
    revert_below(root.path(), &state).unwrap();
    assert_eq!(all(root.path()), ["950000", "always", "powersave"]);
}

#[test]
fn a_refused_setting_is_reported_and_needs_no_revert() {
    let root = machine();
    let state = root.path().join("state.json");
    // Even root may not write there.
    let path = root.path().join(&RT[1..]);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/proc/sys/kernel/osrelease", &path).unwrap();
    let changed = apply_below(root.path(), &report(&[(RT, "-1")]), &state).unwrap();
    assert!(changed[0].error.is_some());
    assert!(!state.exists());
}

#[test]
fn nothing_changes_when_the_state_cannot_be_kept() {
    let root = machine();
    let error =
        apply_below(root.path(), &report(&[(RT, "-1")]), Path::new("/nonexistent/state")).unwrap_err();
    assert!(matches!(error, DoctorError::StateFile { .. }), "{error}");
    assert_eq!(all(root.path())[0], "950000");
}

#[test]
fn a_foreign_state_file_writes_nothing() {
    let root = machine();
    fake::write(root.path(), "/etc/passwd", b"root");
    let state = root.path().join("state.json");
    for text in [
        "",
        "[]",
        "{\"format\": 2, \"settings\": []}",
        "{\"format\": 1, \"settings\": [{\"path\": \"/etc/passwd\", \"before\": \"x\"}]}",
        "{\"format\": 1, \"settings\": [{\"path\": \"/proc/irq/../../etc/passwd/smp_affinity_list\", \"before\": \"x\"}]}",
        "{\"format\": 1, \"settings\": [{\"path\": \"/proc/sys/kernel/timer_migration\", \"before\": \"a\\nb\"}]}",
    ] {
        fs::write(&state, text).unwrap();
        let error = revert_below(root.path(), &state).unwrap_err();
        assert!(matches!(error, DoctorError::ForeignState { .. }), "{text}: {error}");
        let error = apply_below(root.path(), &report(&[(RT, "-1")]), &state).unwrap_err();
        assert!(matches!(error, DoctorError::ForeignState { .. }), "{text}: {error}");
        assert_eq!(fs::read_to_string(&state).unwrap(), text);
    }
    assert_eq!(fs::read_to_string(root.path().join("etc/passwd")).unwrap(), "root");
    assert_eq!(all(root.path()), ["950000", "always", "powersave"]);
}

/// Root's `--apply` and `--revert` with a state file in a folder that others write to, too.
#[test]
fn what_another_user_planted_is_neither_followed_nor_believed() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let root = machine();
    let shared = root.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let victim = root.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let state = shared.join("state.json");
    for draft in ["state.json.new", "state.json.tmp"] {
        symlink(&victim, shared.join(draft)).unwrap();
    }
    apply_below(root.path(), &report(&[(RT, "-1")]), &state).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);
    revert_below(root.path(), &state).unwrap();

    // A state that somebody else wrote, or could have: `--revert` must not write what it says.
    let planted = "{\"format\": 1, \"settings\": [{\"path\": \"/proc/sys/kernel/sched_rt_runtime_us\", \"before\": \"1\"}]}";
    fs::write(&state, planted).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o666)).unwrap();
    let refused = |why: &str| {
        let error = revert_below(root.path(), &state).unwrap_err();
        assert!(
            matches!(error, DoctorError::ForeignState { .. }) && error.to_string().contains(why),
            "{error}"
        );
        let error = apply_below(root.path(), &report(&[(RT, "-1")]), &state).unwrap_err();
        assert!(matches!(error, DoctorError::ForeignState { .. }), "{error}");
        assert_eq!(all(root.path())[0], "950000");
    };
    refused("others may write");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o644)).unwrap();
    if chown(&state, Some(65_534), None).is_err() {
        takt_witness::skip!("a second user needs root");
        return;
    }
    refused("it belongs to user 65534");
    // A folder of somebody else's: the file could be replaced between writing and reading.
    fs::remove_file(&state).unwrap();
    chown(&shared, Some(65_534), None).unwrap();
    let error = apply_below(root.path(), &report(&[(RT, "-1")]), &state).unwrap_err().to_string();
    assert!(error.contains("belongs to user 65534"), "{error}");
    assert_eq!(all(root.path())[0], "950000");
}

#[test]
fn findings_that_are_not_safe_are_left_alone() {
    let root = machine();
    let mut wanted = report(&[(RT, "-1")]);
    wanted.checks[0].safe = false;
    assert_eq!(apply_below(root.path(), &wanted, &root.path().join("state")).unwrap(), []);
    assert_eq!(all(root.path())[0], "950000");
}

/// On the running system, with a setting that harms nobody.
#[test]
fn a_real_setting_goes_there_and_back() {
    const KNOB: &str = "/proc/sys/kernel/timer_migration";
    struct Restore(String);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = fs::write(KNOB, &self.0);
        }
    }
    let Ok(before) = fs::read_to_string(KNOB) else {
        takt_witness::skip!("no {KNOB}");
        return;
    };
    let restore = Restore(before.clone());
    if let Err(refusal) = fs::write(KNOB, &before) {
        takt_witness::skip!("{KNOB}: {refusal}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let other = if before.trim() == "0" { "1" } else { "0" };
    let changed = apply(&report(&[(KNOB, other)]), &state).unwrap();
    assert_eq!((changed.len(), changed[0].after.as_str(), &changed[0].error), (1, other, &None));
    assert_eq!(fs::read_to_string(KNOB).unwrap().trim(), other);
    revert(&state).unwrap();
    assert_eq!(fs::read_to_string(KNOB).unwrap(), before);
    drop(restore);
}

proptest! {
    // Each case waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_state_file_is_answered(text in "\\PC*", path in "\\PC{0,40}") {
        let root = machine();
        let state = root.path().join("state.json");
        fs::write(&state, &text).unwrap();
        prop_assert!(revert_below(root.path(), &state).is_err());
        let saved = format!("{{\"format\": 1, \"settings\": [{{\"path\": {path:?}, \"before\": \"1\"}}]}}");
        fs::write(&state, saved).unwrap();
        prop_assert!(revert_below(root.path(), &state).is_err());
        prop_assert_eq!(all(root.path()), ["950000", "always", "powersave"]);
    }

    /// Whatever is applied in whatever order, one revert leads back.
    #[test]
    fn one_revert_undoes_all(rounds in proptest::collection::vec((0usize..3, 0u32..5), 1..12)) {
        let root = machine();
        let state = root.path().join("state.json");
        for (which, value) in rounds {
            let wanted = report(&[([RT, THP, GOVERNOR][which], &value.to_string())]);
            apply_below(root.path(), &wanted, &state).unwrap();
        }
        revert_below(root.path(), &state).unwrap();
        prop_assert_eq!(all(root.path()), ["950000", "always", "powersave"]);
    }
}
