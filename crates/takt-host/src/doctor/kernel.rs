//! Properties of the kernel: preemption, throttling, groups, timers.

use crate::doctor::change::Change;
use crate::doctor::processor;
use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// File with the preemption model of a PREEMPT_DYNAMIC kernel.
const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

/// Whether the running kernel is PREEMPT_RT.
pub(crate) fn is_real_time(tree: &Tree) -> bool {
    let version = tree.line("/proc/sys/kernel/version").unwrap_or_default();
    let word = version.split_whitespace().find(|word| word.starts_with("PREEMPT"));
    tree.number("/sys/kernel/realtime") == Some(1) || word == Some("PREEMPT_RT")
}

/// A boot parameter's value; empty for one without.
fn boot_parameter(tree: &Tree, name: &str) -> Option<String> {
    let line = tree.line("/proc/cmdline")?;
    line.split_ascii_whitespace().find_map(|word| match word.split_once('=') {
        Some((key, value)) if key == name => Some(value.to_owned()),
        None if word == name => Some(String::new()),
        _ => None,
    })
}

pub(crate) fn preemption(tree: &Tree) -> Check {
    let check = Check::new(
        "preemption",
        "Preemption model",
        "where the kernel cannot be preempted, a woken real-time thread waits for the running system call or soft interrupt to end: \
         milliseconds under load",
    );
    let version = tree.line("/proc/sys/kernel/version").unwrap_or_default();
    let release = tree.line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown release".into());
    let word = version.split_whitespace().find(|word| word.starts_with("PREEMPT"));
    if is_real_time(tree) {
        return check.ok(format!("{release} is a PREEMPT_RT kernel"));
    }
    let rt_kernel = processor::rt_kernel(tree);
    let is_set = |option| tree.config(option).as_deref() == Some("y");
    let in_force =
        tree.choice(PREEMPT).or_else(|| boot_parameter(tree, "preempt").filter(|mode| !mode.is_empty()));
    let mode = in_force.or_else(|| {
        let built = [
            ("CONFIG_PREEMPT_NONE", "none"),
            ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
            ("CONFIG_PREEMPT_LAZY", "lazy"),
            ("CONFIG_PREEMPT", "full"),
        ];
        built.iter().find(|(option, _)| is_set(option)).map(|(_, mode)| (*mode).to_owned())
    });
    let word = word.unwrap_or("no PREEMPT in its version");
    match (mode.as_deref(), word) {
        (Some("full"), _) => {
            check.warn(format!("{release} is not a PREEMPT_RT kernel ({word}, mode full)"), rt_kernel)
        }
        (Some(mode), "PREEMPT_DYNAMIC") => {
            let evidence = format!("{release} is not a PREEMPT_RT kernel (PREEMPT_DYNAMIC, mode {mode})");
            let fix = format!(
                "{rt_kernel}; until then, boot with `preempt=full`, or `echo full | sudo tee {PREEMPT}` where debugfs is mounted"
            );
            let settable = tree.exists(PREEMPT);
            let changes = if settable { vec![Change::new(PREEMPT, "full")] } else { Vec::new() };
            if mode == "lazy" { check.warn(evidence, fix) } else { check.fail(evidence, fix) }
                .with_changes(changes)
        }
        (Some(mode), _) => {
            check.fail(format!("{release} is not a PREEMPT_RT kernel ({word}, mode {mode})"), rt_kernel)
        }
        (None, "PREEMPT") => check.warn(format!("{release} is not a PREEMPT_RT kernel (PREEMPT)"), rt_kernel),
        (None, "PREEMPT_DYNAMIC") => check.warn(
            format!("{release} is not a PREEMPT_RT kernel (PREEMPT_DYNAMIC, mode not readable)"),
            format!("{rt_kernel}; until then, boot with `preempt=full`"),
        ),
        (None, _) if version.is_empty() => check.unknown("the kernel's version cannot be read"),
        (None, _) => check.fail(format!("{release} is not a PREEMPT_RT kernel ({word})"), rt_kernel),
    }
}

/// Major and minor version.
fn release(tree: &Tree) -> Option<(u32, u32)> {
    crate::reserve::system::version(&tree.line("/proc/sys/kernel/osrelease")?)
}

pub(crate) fn throttling(tree: &Tree) -> Check {
    const FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let check = Check::new(
        "rt_throttling",
        "Real-time throttling",
        "a real-time thread that has used its share of a period is stopped for the rest of it; robots usually switch this off, but then a \
         thread that never sleeps takes its CPU completely",
    );
    let period = tree.number("/proc/sys/kernel/sched_rt_period_us").unwrap_or(1_000_000);
    match tree.number(FILE) {
        None => check.unknown(format!("{FILE} cannot be read")),
        Some(runtime) if runtime < 0 => {
            check.ok("sched_rt_runtime_us is -1: no limit, and no admission control")
        }
        Some(runtime) if runtime >= period => {
            check.ok(format!("sched_rt_runtime_us is the whole period, {period}"))
        }
        Some(runtime) => {
            let mut evidence =
                format!("real-time threads may use {runtime} of {period} us per CPU (sched_rt_runtime_us)");
            // The general throttling went out with 6.12; groups still have theirs.
            if release(tree).is_some_and(|release| release >= (6, 12)) {
                evidence.push_str(
                    "; from 6.12 on, this limits control groups and SCHED_DEADLINE, and a fair server gives waiting SCHED_OTHER threads 50 \
                     ms per second instead",
                );
            }
            check
                .with_number("rt_runtime_us", runtime as f64)
                .warn(evidence, "sudo sysctl kernel.sched_rt_runtime_us=-1")
                .with_changes(vec![Change::new(FILE, "-1")])
        }
    }
}

/// The control group of this process with the controller `cpu` (cgroup v1), and with v2.
fn groups(tree: &Tree) -> (Option<String>, Option<String>) {
    let text = tree.text("/proc/self/cgroup").unwrap_or_default();
    let (mut cpu, mut unified) = (None, None);
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if controllers.is_empty() {
            unified = Some(path.to_owned());
        } else if controllers.split(',').any(|name| name == "cpu") {
            cpu = Some(path.to_owned());
        }
    }
    (cpu, unified)
}

pub(crate) fn group_scheduling(tree: &Tree) -> Check {
    let check = Check::new(
        "rt_group",
        "Real-time group scheduling",
        "with CONFIG_RT_GROUP_SCHED a control group has no real-time runtime until it is assigned some; until then the kernel refuses \
         real-time policies in it, also in containers",
    );
    let (cpu, unified) = groups(tree);
    if let Some(group) = cpu.filter(|group| !group.contains("..")) {
        for mount in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"] {
            let file = format!("{mount}{}/cpu.rt_runtime_us", group.trim_end_matches('/'));
            match tree.number(&file) {
                Some(0) => {
                    let fix = format!("echo 950000 | sudo tee {file}   # its parents need as much");
                    return check
                        .fail(format!("the control group {group} has a real-time runtime of 0 us"), fix);
                }
                Some(runtime) => {
                    return check
                        .ok(format!("the control group {group} has a real-time runtime of {runtime} us"));
                }
                None => {}
            }
        }
    }
    match tree.config("CONFIG_RT_GROUP_SCHED").as_deref() {
        Some("y") if boot_parameter(tree, "rt_group_sched").as_deref() == Some("0") => {
            check.ok("built in but switched off by the boot parameter rt_group_sched=0")
        }
        Some("y") => match unified.as_deref() {
            None | Some("/") => check.ok("CONFIG_RT_GROUP_SCHED is set; this process is in the root group"),
            Some(group) => check.warn(
                format!("CONFIG_RT_GROUP_SCHED is set, and {group} is not the root group"),
                "boot with `rt_group_sched=0` (6.15 and newer), or `echo $$ | sudo tee /sys/fs/cgroup/cgroup.procs`",
            ),
        },
        Some(_) => check.ok("CONFIG_RT_GROUP_SCHED is not set"),
        None => check.unknown("the kernel's configuration cannot be read, and no group shows a real-time runtime"),
    }
}

pub(crate) fn autogroup(tree: &Tree) -> Check {
    const FILE: &str = "/proc/sys/kernel/sched_autogroup_enabled";
    let check = Check::new(
        "autogroup",
        "Autogroup",
        "each session gets an equal share, so a thread's nice value counts only within its own session, and SCHED_OTHER settings do not \
         have their usual effect",
    );
    match tree.number(FILE) {
        None => check.ok("this kernel has no autogroups"),
        Some(0) => check.ok("sched_autogroup_enabled is 0"),
        Some(value) => check
            .warn(
                format!("sched_autogroup_enabled is {value}"),
                "sudo sysctl kernel.sched_autogroup_enabled=0",
            )
            .with_changes(vec![Change::new(FILE, "0")]),
    }
}

pub(crate) fn timer_migration(tree: &Tree) -> Check {
    const FILE: &str = "/proc/sys/kernel/timer_migration";
    let check = Check::new(
        "timer_migration",
        "Timer migration",
        "timers of an idle CPU move to a busy one, perhaps that of a real-time thread, and fire there",
    );
    match tree.number(FILE) {
        None => check.unknown(format!("{FILE} cannot be read")),
        Some(0) => check.ok("timer_migration is 0"),
        Some(value) => check
            .warn(format!("timer_migration is {value}"), "sudo sysctl kernel.timer_migration=0")
            .with_changes(vec![Change::new(FILE, "0")]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;

    const VERSION: &str = "/proc/sys/kernel/version";
    const RELEASE: (&str, &str) = ("/proc/sys/kernel/osrelease", "6.8.0-x\n");

    fn on(files: &[(&str, &str)], check: impl Fn(&Tree) -> Check) -> Check {
        let root = fake::tree(files);
        check(&Tree::new(root.path()))
    }

    #[test]
    fn preemption_models_are_distinguished() {
        let with = |version: &str, more: &[(&str, &str)]| {
            on(&[&[(VERSION, version), RELEASE], more].concat(), preemption)
        };
        assert_eq!(with("#1 SMP PREEMPT_RT x", &[]).status, Status::Ok);
        assert_eq!(with("#1 SMP PREEMPT RT x", &[("/sys/kernel/realtime", "1\n")]).status, Status::Ok);
        assert_eq!(with("#1 SMP PREEMPT x", &[]).status, Status::Warn);
        assert_eq!(with("#1 SMP x", &[]).status, Status::Fail);
        let dynamic = "#1 SMP PREEMPT_DYNAMIC x";
        assert_eq!(with(dynamic, &[]).status, Status::Warn);
        assert_eq!(with(dynamic, &[("/proc/cmdline", "a preempt=full b")]).status, Status::Warn);
        let none = with(dynamic, &[("/boot/config-6.8.0-x", "CONFIG_PREEMPT_NONE=y\n")]);
        assert_eq!((none.status, none.safe), (Status::Fail, false));
        assert!(none.evidence.contains("mode none"), "{}", none.evidence);
        // The mode in force outweighs the built-in one.
        let settable =
            with(dynamic, &[(PREEMPT, "none (voluntary) full lazy\n"), ("/proc/cmdline", "preempt=full")]);
        assert_eq!((settable.status, settable.safe), (Status::Fail, true));
        assert_eq!(settable.changes, [Change::new(PREEMPT, "full")]);
        assert_eq!(on(&[], preemption).status, Status::Unknown);
    }

    #[test]
    fn throttling_is_read_with_its_period() {
        const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
        assert_eq!(on(&[(RUNTIME, "-1\n")], throttling).status, Status::Ok);
        assert_eq!(on(&[(RUNTIME, "1000000\n")], throttling).status, Status::Ok);
        let old = on(&[(RUNTIME, "950000\n"), RELEASE], throttling);
        assert_eq!((old.status, old.safe), (Status::Warn, true));
        assert!(!old.evidence.contains("fair server"));
        let new = on(&[(RUNTIME, "950000\n"), ("/proc/sys/kernel/osrelease", "6.18.44-fc\n")], throttling);
        assert!(new.evidence.contains("fair server"), "{}", new.evidence);
        assert_eq!(on(&[(RUNTIME, "many\n")], throttling).status, Status::Unknown);
    }

    #[test]
    fn groups_without_runtime_are_found() {
        let config = ("/boot/config-6.8.0-x", "CONFIG_RT_GROUP_SCHED=y\n");
        let v1 = ("/proc/self/cgroup", "3:cpu,cpuacct:/robot\n0::/\n");
        let file = "/sys/fs/cgroup/cpu,cpuacct/robot/cpu.rt_runtime_us";
        assert_eq!(on(&[v1, (file, "0\n")], group_scheduling).status, Status::Fail);
        assert_eq!(on(&[v1, (file, "950000\n")], group_scheduling).status, Status::Ok);
        let v2 = ("/proc/self/cgroup", "0::/user.slice\n");
        assert_eq!(on(&[v2, config, RELEASE], group_scheduling).status, Status::Warn);
        let off = ("/proc/cmdline", "quiet rt_group_sched=0");
        assert_eq!(on(&[v2, config, RELEASE, off], group_scheduling).status, Status::Ok);
        assert_eq!(on(&[v2], group_scheduling).status, Status::Unknown);
        // A path that leads out is not followed.
        let out = ("/proc/self/cgroup", "3:cpu:/../../x\n");
        assert_eq!(on(&[out], group_scheduling).status, Status::Unknown);
    }

    #[test]
    fn switches_of_the_scheduler() {
        const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";
        assert_eq!(on(&[], autogroup).status, Status::Ok);
        assert_eq!(on(&[(AUTOGROUP, "0")], autogroup).status, Status::Ok);
        assert!(on(&[(AUTOGROUP, "1")], autogroup).safe);
        const MIGRATION: &str = "/proc/sys/kernel/timer_migration";
        assert_eq!(on(&[(MIGRATION, "0")], timer_migration).status, Status::Ok);
        assert!(on(&[(MIGRATION, "1")], timer_migration).safe);
    }
}
