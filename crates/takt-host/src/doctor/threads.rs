//! The kernel's own threads beside those of robots: threads of interrupts, `ktimers`, `ksoftirqd`,
//! and where workqueues may run.

use takt_rt::placement::CpuSet;
use takt_rt::procfs::Stat;

use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// A thread of the kernel with a job that robots wait for, or are delayed by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KernelThread {
    pid: u32,
    name: String,
    /// 1 to 99 for SCHED_FIFO and SCHED_RR; 0 for a fair one.
    priority: i64,
}

/// Field 40 of `/proc/PID/stat` is the real-time priority (proc_pid_stat(5)).
fn kernel_threads(tree: &Tree) -> Vec<KernelThread> {
    let pids = tree.names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    let thread = |pid: u32| {
        let stat = Stat::parse(tree.text(&format!("/proc/{pid}/stat"))?)?;
        let name = stat.name();
        // Only threads of the kernel have kthreadd as their parent: anybody may call a program
        // `irq/9-eth0`.
        if stat.parent() != Some(2) {
            return None;
        }
        let wanted = ["irq/", "ktimers/", "ksoftirqd/"].iter().any(|kind| name.starts_with(kind));
        let priority = stat.number(40)?;
        wanted.then_some(KernelThread { pid, name, priority })
    };
    pids.filter_map(thread).collect()
}

/// Lowest and highest priority, in words.
fn range(threads: &[&KernelThread]) -> String {
    let in_words = |priority: i64| match priority {
        0 => "no real-time priority".to_owned(),
        priority => format!("rt {priority}"),
    };
    match (threads.iter().map(|t| t.priority).min(), threads.iter().map(|t| t.priority).max()) {
        (Some(least), Some(most)) if least == most => in_words(most),
        (Some(least), Some(most)) => format!("{} to {}", in_words(least), in_words(most)),
        _ => "none".to_owned(),
    }
}

/// Priorities of the threads that handle interrupts, timers and software interrupts. `robots`: the
/// priority that real-time loops are measured at.
pub(crate) fn priorities(tree: &Tree, robots: u8) -> Check {
    let check = Check::new(
        "kernel_threads",
        "Priorities of the kernel's threads",
        "on PREEMPT_RT (or with `threadirqs`) devices, timers and the network are served by threads: a thread above a robot's loop delays \
         it; a thread below it may starve, and then the loop waits forever for that thread's data",
    );
    let threads = kernel_threads(tree);
    let of = |kind: &str| threads.iter().filter(|t| t.name.starts_with(kind)).collect::<Vec<_>>();
    let (irqs, timers, softirqs) = (of("irq/"), of("ktimers/"), of("ksoftirqd/"));
    if threads.is_empty() {
        return check.unknown("the kernel's threads are not visible (a container, or /proc is hidden)");
    }
    let preempt_rt = tree.number("/sys/kernel/realtime") == Some(1);
    let evidence = format!(
        "{} interrupt threads at {}; ktimers at {}; ksoftirqd at {}",
        irqs.len(),
        range(&irqs),
        range(&timers),
        range(&softirqs)
    );
    let check = check
        .with_number("interrupt_threads", irqs.len() as f64)
        .with_number("highest_interrupt_thread", irqs.iter().map(|t| t.priority).max().unwrap_or(0) as f64)
        .with_number("ktimers_priority", timers.iter().map(|t| t.priority).max().unwrap_or(0) as f64)
        .with_number("ksoftirqd_priority", softirqs.iter().map(|t| t.priority).max().unwrap_or(0) as f64);
    // The kernel gives 99 to nobody but what must win (migration, watchdogs), 50 to threads of
    // interrupts, 1 to ktimers.
    let above: Vec<&KernelThread> = threads.iter().filter(|t| t.priority >= i64::from(robots)).collect();
    if let Some(first) = above.first() {
        let names: Vec<&str> = above.iter().take(4).map(|t| t.name.as_str()).collect();
        return check.warn(
            format!("{evidence}; at or above rt {robots}, the priority of robots: {}", names.join(", ")),
            format!(
                "`sudo chrt -f -p 50 {}` restores the kernel's default priority; above a loop, keep only the device for which it waits",
                first.pid
            ),
        );
    }
    let fair: Vec<&&KernelThread> = irqs.iter().filter(|t| t.priority == 0).collect();
    if let Some(first) = fair.first() {
        return check.warn(
            format!(
                "{evidence}; {} interrupt threads without real-time priority, such as {}",
                fair.len(),
                first.name
            ),
            format!("`sudo chrt -f -p 50 {}`, the kernel's default", first.pid),
        );
    }
    if preempt_rt && let Some(first) = timers.iter().find(|t| t.priority == 0) {
        return check.warn(
            format!("{evidence}; timers of ordinary threads wait behind every other thread"),
            format!("`sudo chrt -f -p 1 {}`, the kernel's default, for each ktimers/N", first.pid),
        );
    }
    check.ok(evidence)
}

const WORKQUEUES: &str = "/sys/devices/virtual/workqueue/cpumask";

/// A mask in the kernel's groups of 32 bits: `ff`, `3,ffffffff`.
fn mask(text: &str) -> Option<CpuSet> {
    let mut cpus = Vec::new();
    for (group, word) in text.trim().rsplit(',').enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        cpus.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| group * 32 + bit));
    }
    // Beyond what a set holds there are no CPUs; masks name all possible ones.
    CpuSet::from_cpus(cpus.into_iter().filter(|&cpu| cpu <= CpuSet::MAX_CPU))
}

/// The mask of `cpus`, as the kernel takes it.
fn in_words(cpus: &CpuSet) -> String {
    let last = cpus.iter().last().unwrap_or(0) / 32;
    let word = |group: usize| {
        (0..32).filter(|bit| cpus.contains(group * 32 + bit)).fold(0_u32, |word, bit| word | 1 << bit)
    };
    let groups = (0..=last).rev().map(|group| match group == last {
        true => format!("{:x}", word(group)),
        false => format!("{:08x}", word(group)),
    });
    groups.collect::<Vec<_>>().join(",")
}

/// On which CPUs workqueues that are bound to none may run.
pub(crate) fn workqueues(tree: &Tree) -> Check {
    let check = Check::new(
        "workqueues",
        "Workqueues",
        "work that drivers and file systems defer runs in kworker threads on any CPU of this mask, including a real-time thread's, and \
         holds locks for which others wait",
    );
    let Some(text) = tree.line(WORKQUEUES) else {
        return check.unknown("the mask of workqueues cannot be read (sysfs hidden)");
    };
    let online = tree.online();
    let Some(allowed) = mask(&text) else {
        return check.unknown(format!(
            "the mask of workqueues reads `{}`",
            text.chars().take(80).collect::<String>()
        ));
    };
    let allowed = allowed.both(&online);
    let isolated = tree.cpus("/sys/devices/system/cpu/isolated").unwrap_or(CpuSet::EMPTY);
    let evidence = format!("work without a fixed CPU runs on CPUs {allowed} of {online}");
    let (shared, rest) = (allowed.both(&isolated), online.without(&isolated));
    if isolated.is_empty() {
        return check.ok(format!("{evidence}; no CPU is isolated, so it need not avoid any"));
    }
    if shared.is_empty() || rest.is_empty() {
        return check.ok(format!("{evidence}; the isolated CPUs are {isolated}"));
    }
    check.warn(
        format!("{evidence}, of which {shared} are isolated for real time"),
        format!("`echo {} | sudo tee {WORKQUEUES}`", in_words(&rest)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;

    fn stat(pid: u32, name: &str, parent: u32, priority: u32) -> (String, String) {
        let policy = u32::from(priority > 0);
        // State and parent, 35 fields that nobody reads, the priority, and the policy.
        let text = format!("{pid} ({name}) S {parent} {}{priority} {policy} 0 0\n", "0 ".repeat(35));
        (format!("/proc/{pid}/stat"), text)
    }

    fn examine(threads: &[(u32, &str, u32, u32)], realtime: bool) -> Check {
        let mut files: Vec<(String, String)> =
            threads.iter().map(|&(pid, name, parent, priority)| stat(pid, name, parent, priority)).collect();
        files.push(("/sys/kernel/realtime".into(), if realtime { "1\n" } else { "0\n" }.into()));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        priorities(&Tree::new(fake::tree(&files).path()), 80)
    }

    #[test]
    fn the_kernels_own_priorities_are_fine() {
        let usual = [(15, "ksoftirqd/0", 2, 0), (16, "ktimers/0", 2, 1), (40, "irq/9-acpi (x)", 2, 50)];
        let check = examine(&usual, true);
        assert_eq!(check.status, Status::Ok, "{check:?}");
        assert!(
            check.evidence.contains("1 interrupt threads at rt 50; ktimers at rt 1; ksoftirqd at no real")
        );
        assert_eq!(check.measured["highest_interrupt_thread"], 50.0);
        // Somebody's program of that name is no thread of the kernel.
        assert_eq!(
            examine(&[(15, "ksoftirqd/0", 2, 0), (99, "irq/1-mine", 1000, 99)], true).status,
            Status::Ok
        );
        assert_eq!(examine(&[], true).status, Status::Unknown);
    }

    #[test]
    fn priorities_that_delay_or_starve_are_reported_with_the_command() {
        let check = examine(&[(16, "ktimers/0", 2, 1), (40, "irq/30-eth0", 2, 95)], true);
        assert_eq!(check.status, Status::Warn);
        assert!(
            check.evidence.contains("at or above rt 80, the priority of robots: irq/30-eth0"),
            "{check:?}"
        );
        assert!(check.fix.unwrap().contains("chrt -f -p 50 40"));
        let check = examine(&[(16, "ktimers/0", 2, 1), (40, "irq/30-eth0", 2, 0)], true);
        assert!(
            check.evidence.contains("1 interrupt threads without real-time priority, such as irq/30-eth0"),
            "{check:?}"
        );
        let check = examine(&[(16, "ktimers/0", 2, 0), (40, "irq/30-eth0", 2, 50)], true);
        assert!(check.fix.unwrap().contains("chrt -f -p 1 16"));
        // Without PREEMPT_RT nobody has ktimers to be starved.
        assert_eq!(examine(&[(16, "ktimers/0", 2, 0), (40, "irq/3-x", 2, 50)], false).status, Status::Ok);
    }

    #[test]
    fn masks_are_read_and_reported_as_the_kernel_does() {
        for (text, cpus) in
            [("f", "0-3"), ("ff,ffffffff", "0-39"), ("00000000,00000003", "0-1"), ("1,00000000", "32")]
        {
            assert_eq!(mask(text).unwrap(), cpus.parse().unwrap(), "{text}");
        }
        for text in ["f", "ff,ffffffff", "1,00000000", "3,00000001,00000000"] {
            assert_eq!(in_words(&mask(text).unwrap()), text);
        }
        assert!(mask("").is_none() && mask("xyz").is_none() && mask("fffffffff").is_none());
    }

    #[test]
    fn workqueues_keep_off_isolated_cpus() {
        let examine = |mask: &str, isolated: &str| {
            let cpus = "/sys/devices/system/cpu";
            let (online, list) = (format!("{cpus}/online"), format!("{cpus}/isolated"));
            let files = [(online.as_str(), "0-3\n"), (list.as_str(), isolated), (WORKQUEUES, mask)];
            workqueues(&Tree::new(fake::tree(&files).path()))
        };
        let check = examine("f\n", "2-3\n");
        assert_eq!(check.status, Status::Warn);
        assert!(check.evidence.contains("on CPUs 0-3 of 0-3, of which 2-3 are isolated"), "{check:?}");
        assert_eq!(check.fix.unwrap(), format!("`echo 3 | sudo tee {WORKQUEUES}`"));
        assert_eq!(examine("3\n", "2-3\n").status, Status::Ok);
        assert_eq!(examine("f\n", "\n").status, Status::Ok);
        assert_eq!(examine("nonsense\n", "2-3\n").status, Status::Unknown);
        assert_eq!(workqueues(&Tree::new(fake::tree(&[]).path())).status, Status::Unknown);
    }
}
