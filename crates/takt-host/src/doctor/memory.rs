//! Sources of slow memory accesses: swap, huge pages.

use crate::doctor::change::Change;
use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

pub(crate) fn swap(tree: &Tree) -> Check {
    let check = Check::new(
        "swap",
        "Swap",
        "reading a swapped-out page from the disk takes milliseconds; locked memory is safe from that, other programs' files and libraries \
         are not",
    );
    let Some(text) = tree.text("/proc/swaps") else { return check.unknown("/proc/swaps cannot be read") };
    let areas: Vec<(&str, u64, u64)> = text
        .lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Some((*words.first()?, words.get(2)?.parse().ok()?, words.get(3)?.parse().ok()?))
        })
        .collect();
    if areas.is_empty() {
        return check.ok("no swap is in use");
    }
    let mib = |kib: fn(&(&str, u64, u64)) -> u64| {
        areas.iter().fold(0u64, |sum, area| sum.saturating_add(kib(area))) / 1024
    };
    let (size, used) = (mib(|area| area.1), mib(|area| area.2));
    let names: Vec<_> = areas.iter().map(|(name, ..)| *name).collect();
    check
        .with_number("swap_used_mib", used as f64)
        .warn(format!("{}: {size} MiB, {used} MiB of it used", names.join(", ")), "sudo swapoff -a")
}

pub(crate) fn huge_pages(tree: &Tree) -> Check {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let check = Check::new(
        "huge_pages",
        "Transparent huge pages",
        "a fault may have to clear 2 MiB at once, and khugepaged collects pages under locks that faults wait for",
    );
    match tree.choice(FILE).as_deref() {
        None => check.ok("this kernel has no transparent huge pages"),
        Some("always") => check
            .warn("transparent huge pages are always used", format!("echo madvise | sudo tee {FILE}"))
            .with_changes(vec![Change::new(FILE, "madvise")]),
        Some(mode) => check.ok(format!("transparent huge pages are set to `{mode}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;

    fn on(files: &[(&str, &str)], check: impl Fn(&Tree) -> Check) -> Check {
        let root = fake::tree(files);
        check(&Tree::new(root.path()))
    }

    #[test]
    fn swap_in_use_is_summed() {
        let head = "Filename\tType\tSize\tUsed\tPriority\n";
        assert_eq!(on(&[("/proc/swaps", head)], swap).status, Status::Ok);
        let two = format!("{head}/swap file\t2048\t1024\t-2\n/dev/sda2 partition\t2048\t1024\t-2\n");
        let check = on(&[("/proc/swaps", &two)], swap);
        assert_eq!(check.evidence, "/swap, /dev/sda2: 4 MiB, 2 MiB of it used");
        assert_eq!(on(&[], swap).status, Status::Unknown);
    }

    #[test]
    fn huge_pages_on_request_are_fine() {
        const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
        assert!(on(&[(FILE, "[always] madvise never\n")], huge_pages).safe);
        assert_eq!(on(&[(FILE, "always [madvise] never\n")], huge_pages).status, Status::Ok);
        assert_eq!(on(&[], huge_pages).status, Status::Ok);
    }
}
