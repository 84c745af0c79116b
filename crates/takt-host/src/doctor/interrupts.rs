//! Interrupts: their rates, their CPUs, and the CPUs that they may use.

use takt_rt::placement::CpuSet;
use takt_rt::processor::Family;

use crate::doctor::change::Change;
use crate::doctor::processor;
use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// `/proc/interrupts` at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interrupts {
    cpus: Vec<usize>,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    /// The number, or the kernel's abbreviation.
    label: String,
    /// One count per CPU.
    counts: Vec<u64>,
    /// The device, or the abbreviation in words.
    what: String,
    /// Each CPU has its own, which stays there: by number alone it would look like a device's.
    per_cpu: bool,
}

/// Interrupts below 32 of ARM's interrupt controllers are each CPU's own (calls between CPUs, and
/// private peripherals: timers, performance counters), and so are all of RISC-V's inner controller.
fn is_per_cpu(chip: &str, hardware: Option<u64>) -> bool {
    (chip.starts_with("GIC") && hardware.is_some_and(|number| number < 32)) || chip.starts_with("RISC-V")
}

/// Rate of one interrupt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rate {
    pub(crate) label: String,
    pub(crate) what: String,
    pub(crate) per_cpu: bool,
    /// CPU and times per second, without the zeros.
    pub(crate) per_s: Vec<(usize, f64)>,
}

impl Rate {
    pub(crate) fn total(&self) -> f64 {
        self.per_s.iter().map(|(_, rate)| rate).sum()
    }
}

impl Interrupts {
    pub(crate) fn read(tree: &Tree) -> Option<Self> {
        Self::parse(&tree.text("/proc/interrupts")?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let header = lines.next()?;
        let cpus: Option<Vec<usize>> =
            header.split_ascii_whitespace().map(|name| name.strip_prefix("CPU")?.parse().ok()).collect();
        let cpus = cpus.filter(|cpus| !cpus.is_empty())?;
        let rows = lines.filter_map(|line| {
            let (label, rest) = line.split_once(':')?;
            let mut words = rest.split_ascii_whitespace();
            let counts: Vec<u64> =
                words.by_ref().take(cpus.len()).map_while(|word| word.parse().ok()).collect();
            // Errors are counted once for all CPUs; they are no interrupts ("Err" on ARM).
            let whole = counts.len() == cpus.len() && !matches!(label.trim(), "ERR" | "Err" | "MIS");
            // The last word names the device; abbreviations are reported in words.
            let label = label.trim().to_owned();
            let numbered = label.parse::<u32>().is_ok();
            let rest: Vec<&str> = words.collect();
            let what =
                if numbered { rest.last().copied().unwrap_or_default().to_owned() } else { rest.join(" ") };
            // "GICv3  27 Level     arch_timer": the controller, and its number of the interrupt.
            let chip = rest.first().copied().unwrap_or_default();
            let hardware = rest.get(1).and_then(|word| word.parse().ok());
            let per_cpu = numbered && is_per_cpu(chip, hardware);
            whole.then_some(Row { label, counts, what, per_cpu })
        });
        Some(Self { rows: rows.collect(), cpus })
    }

    /// All interrupts that `cpu` has served.
    pub(crate) fn of_cpu(&self, cpu: usize) -> Option<u64> {
        let column = self.cpus.iter().position(|&other| other == cpu)?;
        Some(self.rows.iter().fold(0, |sum, row| sum.wrapping_add(row.counts[column])))
    }

    /// Rates since `earlier`, the busiest first.
    pub(crate) fn since(&self, earlier: &Self, seconds: f64) -> Vec<Rate> {
        if self.cpus != earlier.cpus || seconds <= 0.0 {
            return Vec::new();
        }
        let mut rates: Vec<Rate> = self
            .rows
            .iter()
            .filter_map(|row| {
                let before = earlier.rows.iter().find(|old| old.label == row.label)?;
                let columns = self.cpus.iter().zip(row.counts.iter().zip(&before.counts));
                let per_s = columns
                    .map(|(&cpu, (now, before))| (cpu, now.saturating_sub(*before) as f64 / seconds))
                    .filter(|(_, rate)| *rate > 0.0)
                    .collect();
                let (label, what) = (row.label.clone(), row.what.clone());
                Some(Rate { label, what, per_cpu: row.per_cpu, per_s })
            })
            .filter(|rate| !rate.per_s.is_empty())
            .collect();
        rates.sort_by(|a, b| b.total().total_cmp(&a.total()));
        rates
    }
}

/// Interrupts by number with the CPUs that they may go to, and how many there are that nobody can
/// move.
fn affinities(tree: &Tree) -> (Vec<(u32, CpuSet)>, usize) {
    let numbers = tree.names("/proc/irq").into_iter().filter_map(|name| name.parse().ok());
    let all: Vec<(u32, CpuSet)> = numbers
        .filter_map(|irq: u32| Some((irq, tree.cpus(&format!("/proc/irq/{irq}/smp_affinity_list"))?)))
        .collect();
    let (mut movable, fixed): (Vec<_>, Vec<_>) = all.into_iter().partition(|(irq, _)| is_movable(tree, *irq));
    movable.sort_by_key(|(irq, _)| *irq);
    (movable, fixed.len())
}

/// Whether the kernel would take another affinity. Newer kernels show it by the file's mode; older
/// ones let it be written, and refuse.
fn is_movable(tree: &Tree, irq: u32) -> bool {
    let file = tree.at(&format!("/proc/irq/{irq}/smp_affinity_list"));
    let read_only = std::fs::metadata(file).is_ok_and(|data| data.permissions().readonly());
    let hardware = tree.number(&format!("/sys/kernel/irq/{irq}/hwirq"));
    let chip = tree.line(&format!("/sys/kernel/irq/{irq}/chip_name")).unwrap_or_else(|| {
        // The older controllers of ARM (GIC-400) have no name there; those behind them have one.
        let arm = hardware.is_some() && processor::family(tree) == Family::Arm;
        if arm { "GIC".to_owned() } else { String::new() }
    });
    // Raspberry Pi 5: devices behind the RP1 come by one MSI-X vector each, on one CPU.
    let rp1 = chip.starts_with("rp1");
    !read_only && !rp1 && !is_per_cpu(&chip, hardware.and_then(|number| number.try_into().ok()))
}

/// Process id of irqbalance.
fn irqbalance(tree: &Tree) -> Option<u32> {
    let pids = tree.names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    pids.into_iter().find(|pid| tree.line(&format!("/proc/{pid}/comm")).as_deref() == Some("irqbalance"))
}

/// Affinity of interrupts, and the programs that move them. `rates`: what was measured.
pub(crate) fn placement(tree: &Tree, rates: Option<&[Rate]>) -> Check {
    let check = Check::new(
        "interrupts",
        "Interrupts",
        "an interrupt runs before any thread; on the CPU of a real-time thread it delays the job by its full length, and irqbalance may \
         move interrupts to any CPU at any time",
    );
    let (affinities, fixed) = affinities(tree);
    let measured = rates.map(|rates| {
        let device = |rate: &&Rate| rate.label.parse::<u32>().is_ok() && !rate.per_cpu;
        let shown = |rate: &Rate| {
            let cpus = rate.per_s.iter().map(|(cpu, per_s)| format!("{per_s:.0}/s on CPU {cpu}"));
            let name = if rate.what.is_empty() { &rate.label } else { &rate.what };
            format!("{name} {}", cpus.collect::<Vec<_>>().join(", "))
        };
        let busiest: Vec<_> = rates.iter().filter(device).take(3).map(shown).collect();
        // The sum of nothing is -0.0 in floating point, which would be printed as such.
        let sum = |rates: &mut dyn Iterator<Item = &Rate>| rates.map(Rate::total).sum::<f64>() + 0.0;
        let (total, from_devices) = (sum(&mut rates.iter()), sum(&mut rates.iter().filter(device)));
        let list = if busiest.is_empty() { "none".into() } else { busiest.join("; ") };
        (total, from_devices, format!("measured {total:.0}/s, from devices {from_devices:.0}/s: {list}"))
    });
    let (check, sentence) = match measured {
        Some((total, devices, sentence)) => (
            check.with_number("interrupts_per_s", total).with_number("device_interrupts_per_s", devices),
            sentence,
        ),
        None => (check, "rates not measured".into()),
    };
    let sentence = match fixed {
        0 => sentence,
        fixed => format!("{fixed} others cannot be moved; {sentence}"),
    };
    if affinities.is_empty() && rates.is_none_or(<[Rate]>::is_empty) {
        return check.unknown("/proc/interrupts and /proc/irq are empty");
    }
    let isolated = tree.cpus("/sys/devices/system/cpu/isolated").unwrap_or(CpuSet::EMPTY);
    let rest = tree.online().without(&isolated);
    let astray: Vec<&(u32, CpuSet)> =
        affinities.iter().filter(|(_, cpus)| isolated.iter().any(|cpu| cpus.contains(cpu))).collect();
    let balancing = irqbalance(tree);
    if !astray.is_empty() && !rest.is_empty() {
        let mut changes: Vec<Change> = astray
            .iter()
            .map(|(irq, cpus)| {
                let left = cpus.without(&isolated);
                let cpus = if left.is_empty() { rest } else { left };
                Change::new(&format!("/proc/irq/{irq}/smp_affinity_list"), cpus.to_string())
            })
            .collect();
        changes.extend(default_affinity(tree, &rest));
        let evidence = format!(
            "{} of {} interrupts may go to the isolated CPUs {isolated}{}; {sentence}",
            astray.len(),
            affinities.len(),
            if balancing.is_some() { ", and irqbalance is running" } else { "" },
        );
        let fix = format!(
            "for i in /proc/irq/*/smp_affinity_list; do echo {rest} | sudo tee $i; done{}",
            if balancing.is_some() { "; sudo systemctl stop irqbalance" } else { "" }
        );
        return check.warn(evidence, fix).with_changes(changes);
    }
    if let Some(pid) = balancing {
        let fix = "sudo systemctl disable --now irqbalance";
        return check
            .warn(format!("irqbalance is running (process {pid}) and moves interrupts; {sentence}"), fix);
    }
    let away = if isolated.is_empty() { "" } else { ", none may go to an isolated CPU" };
    check.ok(format!(
        "{} interrupts with an affinity{away}; irqbalance is not running; {sentence}",
        affinities.len()
    ))
}

/// The mask for interrupts to come, as the kernel will print it.
fn default_affinity(tree: &Tree, cpus: &CpuSet) -> Option<Change> {
    const FILE: &str = "/proc/irq/default_smp_affinity";
    let now = tree.line(FILE)?;
    let digits = now.chars().filter(char::is_ascii_hexdigit).count();
    // Anything but a mask is left alone.
    if digits == 0 || digits > 1024 || now.chars().any(|c| !c.is_ascii_hexdigit() && c != ',') {
        return None;
    }
    Some(Change::new(FILE, mask(cpus, digits)))
}

/// A mask of CPUs of so many hexadecimal digits, in groups of eight with commas, as the kernel
/// prints it.
pub fn mask(cpus: &CpuSet, digits: usize) -> String {
    let mut mask = String::new();
    for place in (0..digits).rev() {
        let digit = (0..4).fold(0, |digit, bit| digit | u32::from(cpus.contains(place * 4 + bit)) << bit);
        mask.extend(char::from_digit(digit, 16));
        if place % 8 == 0 && place > 0 {
            mask.push(',');
        }
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;
    use proptest::prelude::*;

    const BEFORE: &str = "           CPU0       CPU1       \n  9:          1          0  IO-APIC   9-edge      acpi\n \
                          36:          0        100 PCI-MSIX-0000:00:02.0   0-edge      eth0\nLOC:        \
                          10         20   Local timer interrupts\nERR:          5\n";

    #[test]
    fn rates_come_from_two_looks() {
        let before = Interrupts::parse(BEFORE).unwrap();
        assert_eq!((before.of_cpu(0), before.of_cpu(1), before.of_cpu(2)), (Some(11), Some(120), None));
        let after = BEFORE.replace("100 PCI", "300 PCI").replace("10         20", "20         30");
        let rates = Interrupts::parse(&after).unwrap().since(&before, 2.0);
        assert_eq!(rates.len(), 2);
        assert_eq!((rates[0].what.as_str(), &rates[0].per_s), ("eth0", &vec![(1, 100.0)]));
        assert_eq!((rates[1].what.as_str(), rates[1].total()), ("Local timer interrupts", 10.0));
        let check = placement(&Tree::new(fake::tree(&[]).path()), Some(&rates));
        assert!(
            check.evidence.contains("measured 110/s, from devices 100/s: eth0 100/s on CPU 1"),
            "{check:?}"
        );
        // A virtual machine without devices that interrupt.
        let check = placement(&Tree::new(fake::tree(&[]).path()), Some(&rates[1..]));
        assert!(check.evidence.contains("measured 10/s, from devices 0/s: none"), "{check:?}");
        // Another CPU came meanwhile: no rates.
        let other = Interrupts::parse("CPU0\n 9: 4 x y acpi\n").unwrap();
        assert!(other.since(&before, 1.0).is_empty());
    }

    /// As an RK3588 has them (GICv3), the timer's row being each CPU's own; and a machine with one
    /// CPU, where the row of errors is as long as the others.
    #[test]
    fn a_core_s_own_interrupts_are_no_device_s() {
        let text = |timer: u32, uart: u32| {
            format!(
                "           CPU0       CPU1       \n 13:       {timer}       2068     GICv3  26 Level     arch_timer\n 15:          \
                 0          0     GICv3  23 Level     arm-pmu\n 17:          {uart}          0     GICv3 126 Level     \
                 fb000000.gpu\nIPI0:      {timer}       6475       Rescheduling interrupts\nErr:          0\n"
            )
        };
        let before = Interrupts::parse(&text(100, 0)).unwrap();
        assert_eq!(before.rows.len(), 4);
        let rates = Interrupts::parse(&text(300, 7)).unwrap().since(&before, 1.0);
        let check = placement(&Tree::new(fake::tree(&[]).path()), Some(&rates));
        assert!(
            check.evidence.contains("measured 407/s, from devices 7/s: fb000000.gpu 7/s on CPU 0"),
            "{check:?}"
        );
        let one = Interrupts::parse("CPU0\n 2: 3228 GICv3 27 Level arch_timer\nErr: 7\n").unwrap();
        assert_eq!((one.of_cpu(0), one.rows[0].per_cpu), (Some(3228), true));
    }

    #[test]
    fn interrupts_are_kept_from_isolated_cpus() {
        let root = fake::tree(&[
            ("/sys/devices/system/cpu/online", "0-7\n"),
            ("/sys/devices/system/cpu/isolated", "2-3\n"),
            ("/proc/irq/9/smp_affinity_list", "0-7\n"),
            ("/proc/irq/36/smp_affinity_list", "3\n"),
            ("/proc/irq/40/smp_affinity_list", "0-1\n"),
            ("/proc/irq/default_smp_affinity", "ff\n"),
            ("/proc/77/comm", "irqbalance\n"),
        ]);
        let check = placement(&Tree::new(root.path()), None);
        assert_eq!((check.status, check.safe), (Status::Warn, true));
        let changes: Vec<_> = check
            .changes
            .iter()
            .map(|change| (change.path.to_str().unwrap(), change.value.as_str()))
            .collect();
        assert_eq!(
            changes,
            [
                ("/proc/irq/9/smp_affinity_list", "0-1,4-7"),
                ("/proc/irq/36/smp_affinity_list", "0-1,4-7"),
                ("/proc/irq/default_smp_affinity", "f3"),
            ]
        );
        assert!(check.evidence.contains("2 of 3") && check.fix.unwrap().contains("irqbalance"));
        fake::write(root.path(), "/sys/devices/system/cpu/isolated", b"\n");
        let check = placement(&Tree::new(root.path()), None);
        assert!(check.changes.is_empty() && check.evidence.contains("process 77"), "{check:?}");
    }

    #[test]
    fn masks_are_as_wide_as_the_kernel_prints_them() {
        let root = fake::tree(&[("/proc/irq/default_smp_affinity", "ff,ffffffff\n")]);
        let tree = Tree::new(root.path());
        let mask = |cpus: &str| default_affinity(&tree, &cpus.parse().unwrap()).unwrap().value;
        assert_eq!(mask("0-3,36"), "10,0000000f");
        assert_eq!(mask("33"), "02,00000000");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC*", numbers in proptest::collection::vec(any::<u64>(), 0..9)) {
            Interrupts::parse(&text);
            let row: Vec<_> = numbers.iter().map(u64::to_string).collect();
            if let Some(all) = Interrupts::parse(&format!("CPU0 CPU1\nX: {}\n{text}", row.join(" "))) {
                all.of_cpu(1);
                all.since(&all, 1.0);
            }
        }
    }
}
