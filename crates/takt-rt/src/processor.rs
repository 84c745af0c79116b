//! The processor as `/proc` and `/sys` describe it: on this machine, or in a copy of them in
//! another folder. Nothing here asks which processor this program was built for, so that a copy of
//! a Raspberry Pi can be looked at on a workstation.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use crate::placement::CpuSet;

/// The family of a processor, as far as advice differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// x86-64 and its 32 bits: system management interrupts, MSRs, hyper-threads.
    X86,
    /// ARM, mostly of 64 bits: firmware at EL3, MIDR, device trees, cores of several kinds.
    Arm,
    /// RISC-V: firmware in machine mode.
    Riscv,
    /// Nothing in `/proc/cpuinfo` says.
    Unknown,
}

/// The family of the processor below `root`.
pub fn family(root: &Path) -> Family {
    let cpuinfo = cpuinfo(root);
    // `model name` is no mark: ARM kernels of Android and Jetson have one, too.
    match () {
        () if values(&cpuinfo, "CPU implementer").next().is_some() => Family::Arm,
        () if values(&cpuinfo, "isa").any(|isa| isa.starts_with("rv")) => Family::Riscv,
        () if values(&cpuinfo, "vendor_id").next().is_some() => Family::X86,
        () if values(&cpuinfo, "flags").next().is_some() => Family::X86,
        () => Family::Unknown,
    }
}

/// The board's name from the device tree below `root`, such as "Raspberry Pi 5 Model B Rev 1.0".
/// Machines with ACPI have none.
pub fn board(root: &Path) -> Option<String> {
    ["sys/firmware/devicetree/base/model", "proc/device-tree/model"]
        .iter()
        .find_map(|path| line(&root.join(path)))
        .or_else(|| values(&cpuinfo(root), "Model").next().map(str::to_owned))
}

fn cpuinfo(root: &Path) -> String {
    fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default()
}

/// The text of a file of one line; `None` where it is empty or cannot be read.
pub fn line(path: &Path) -> Option<String> {
    // Files of the device tree end with NUL.
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    (!text.is_empty()).then(|| text.to_owned())
}

/// The online CPUs below `root`; none where that cannot be read.
pub fn online(root: &Path) -> CpuSet {
    let list = line(&root.join("sys/devices/system/cpu/online"));
    list.and_then(|list| list.parse().ok()).unwrap_or_default()
}

/// The CPU's name below `root`: what x86 calls `model name`; of ARM implementer and part (MIDR), of
/// RISC-V the microarchitecture, each with the board from the device tree.
pub fn name(root: &Path) -> Option<String> {
    let cpuinfo = cpuinfo(root);
    // A Jetson's kernel says "ARMv8 Processor rev 1 (v8l)", which names no core.
    let cores = arm(root, &cpuinfo).or_else(|| riscv(&cpuinfo));
    if cores.is_none()
        && let Some(model) = values(&cpuinfo, "model name").next()
    {
        return Some(model.to_owned());
    }
    let board = board(root);
    match (cores, board) {
        (Some(cores), Some(board)) => Some(format!("{cores} ({board})")),
        (cores, board) => cores.or(board),
    }
}

/// Values of the lines with this key, which may hold blanks.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key && !value.trim().is_empty()).then(|| value.trim())
    })
}

/// "4 × ARM Cortex-A76 r4p1": kinds of cores in the order of their first CPU.
fn arm(root: &Path, cpuinfo: &str) -> Option<String> {
    let from_register = |cpu: usize| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        let text = line(&root.join(path))?;
        u64::from_str_radix(text.trim_start_matches("0x"), 16).ok().map(Midr::from_register)
    };
    let mut cores: Vec<Midr> = online(root).iter().filter_map(from_register).collect();
    if cores.is_empty() {
        cores = Midr::from_cpuinfo(cpuinfo);
    }
    counted(cores.into_iter())
}

/// "4 × A, 2 × B": kinds in the order of their first; `None` without any.
fn counted<T: PartialEq + Display>(all: impl Iterator<Item = T>) -> Option<String> {
    let mut kinds: Vec<(T, usize)> = Vec::new();
    for one in all {
        match kinds.iter_mut().find(|(kind, _)| *kind == one) {
            Some((_, count)) => *count += 1,
            None => kinds.push((one, 1)),
        }
    }
    let words: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Main ID Register of an ARM core (Arm ARM, MIDR_EL1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Midr {
    implementer: u8,
    part: u16,
    variant: u8,
    revision: u8,
}

impl Midr {
    fn from_register(value: u64) -> Self {
        Self {
            implementer: (value >> 24) as u8,
            part: (value >> 4 & 0xfff) as u16,
            variant: (value >> 20 & 0xf) as u8,
            revision: (value & 0xf) as u8,
        }
    }

    /// One for each processor of a `/proc/cpuinfo` of ARM.
    fn from_cpuinfo(text: &str) -> Vec<Self> {
        let number = |block: &str, key: &'static str| {
            let value = values(block, key).next()?;
            match value.strip_prefix("0x") {
                Some(hex) => u16::from_str_radix(hex, 16).ok(),
                None => value.parse().ok(),
            }
        };
        let core = |block: &str| {
            Some(Self {
                implementer: u8::try_from(number(block, "CPU implementer")?).ok()?,
                part: number(block, "CPU part")?,
                variant: u8::try_from(number(block, "CPU variant").unwrap_or(0)).ok()?,
                revision: u8::try_from(number(block, "CPU revision").unwrap_or(0)).ok()?,
            })
        };
        text.split("\n\n").filter_map(core).collect()
    }
}

impl std::fmt::Display for Midr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { implementer, part, variant, revision } = self;
        let maker = MAKERS.iter().find(|(number, _)| number == implementer).map(|(_, name)| *name);
        let core = PARTS.iter().find(|(of, number, _)| (of, number) == (implementer, part));
        match (maker, core) {
            (Some(maker), Some((_, _, core))) => write!(f, "{maker} {core}")?,
            (Some(maker), None) => write!(f, "{maker} part {part:#05x}")?,
            (None, _) => write!(f, "implementer {implementer:#04x} part {part:#05x}")?,
        }
        write!(f, " r{variant}p{revision}")
    }
}

/// Implementers, as util-linux's lscpu has them.
const MAKERS: &[(u8, &str)] = &[
    (0x41, "ARM"),
    (0x42, "Broadcom"),
    (0x43, "Cavium"),
    (0x46, "Fujitsu"),
    (0x48, "HiSilicon"),
    (0x4e, "NVIDIA"),
    (0x50, "APM"),
    (0x51, "Qualcomm"),
    (0x53, "Samsung"),
    (0x56, "Marvell"),
    (0x61, "Apple"),
    (0x69, "Intel"),
    (0xc0, "Ampere"),
];

/// Cores of boards that robots run on, as util-linux's lscpu has them; others are reported by
/// number.
const PARTS: &[(u8, u16, &str)] = &[
    (0x41, 0xc07, "Cortex-A7"),
    (0x41, 0xc08, "Cortex-A8"),
    (0x41, 0xc09, "Cortex-A9"),
    (0x41, 0xc0f, "Cortex-A15"),
    (0x41, 0xd02, "Cortex-A34"),
    (0x41, 0xd03, "Cortex-A53"),
    (0x41, 0xd04, "Cortex-A35"),
    (0x41, 0xd05, "Cortex-A55"),
    (0x41, 0xd07, "Cortex-A57"),
    (0x41, 0xd08, "Cortex-A72"),
    (0x41, 0xd09, "Cortex-A73"),
    (0x41, 0xd0a, "Cortex-A75"),
    (0x41, 0xd0b, "Cortex-A76"),
    (0x41, 0xd0c, "Neoverse-N1"),
    (0x41, 0xd0d, "Cortex-A77"),
    (0x41, 0xd0e, "Cortex-A76AE"),
    (0x41, 0xd40, "Neoverse-V1"),
    (0x41, 0xd41, "Cortex-A78"),
    (0x41, 0xd42, "Cortex-A78AE"),
    (0x41, 0xd44, "Cortex-X1"),
    (0x41, 0xd46, "Cortex-A510"),
    (0x41, 0xd47, "Cortex-A710"),
    (0x41, 0xd49, "Neoverse-N2"),
    (0x41, 0xd4b, "Cortex-A78C"),
    (0x41, 0xd4f, "Neoverse-V2"),
    (0x4e, 0x003, "Denver 2"),
    (0x4e, 0x004, "Carmel"),
];

/// "4 × sifive,u74-mc rv64imafdc": kinds of harts in the order of their first.
fn riscv(cpuinfo: &str) -> Option<String> {
    let harts = cpuinfo.split("\n\n").filter_map(|block| {
        let isa = values(block, "isa").next()?;
        // Single letters say what matters to compare; the list of extensions behind them is long.
        let isa = isa.split('_').next().unwrap_or(isa);
        Some(match values(block, "uarch").next() {
            Some(core) => format!("{core} {isa}"),
            None => isa.to_owned(),
        })
    });
    counted(harts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use takt_witness::plant::tree;

    /// As a Raspberry Pi 5 shows itself.
    const RASPBERRY: &str = "processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm\nCPU implementer\t: 0x41\nCPU \
                             architecture: 8\nCPU variant\t: 0x4\nCPU part\t: 0xd0b\nCPU revision\t: 1\n\nprocessor\t: 1\nCPU \
                             implementer\t: 0x41\nCPU variant\t: 0x4\nCPU part\t: 0xd0b\nCPU revision\t: \
                             1\n\nRevision\t: d04170\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n";

    #[test]
    fn arm_is_named_by_its_registers_and_its_board() {
        let root = tree(&[
            ("proc/cpuinfo", RASPBERRY),
            ("proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0"),
        ]);
        let expected = "2 × ARM Cortex-A76 r4p1 (Raspberry Pi 5 Model B Rev 1.0)";
        assert_eq!(name(root.path()).as_deref(), Some(expected));
        // The board is in cpuinfo alone.
        assert_eq!(name(tree(&[("proc/cpuinfo", RASPBERRY)]).path()).as_deref(), Some(expected));
    }

    #[test]
    fn kinds_of_cores_are_distinguished_by_the_register() {
        let midr = "regs/identification/midr_el1";
        let cpu = |n: usize| format!("sys/devices/system/cpu/cpu{n}/{midr}");
        let paths = [cpu(0), cpu(1), cpu(2)];
        let root = tree(&[
            ("sys/devices/system/cpu/online", "0-2\n"),
            (&paths[0], "0x00000000412fd050\n"),
            (&paths[1], "0x00000000412fd050\n"),
            (&paths[2], "0x00000000990fabc3\n"),
        ]);
        let expected = "2 × ARM Cortex-A55 r2p0, 1 × implementer 0x99 part 0xabc r0p3";
        assert_eq!(name(root.path()).as_deref(), Some(expected));
    }

    #[test]
    fn riscv_is_named_by_its_microarchitecture() {
        let text = "processor\t: 0\nhart\t\t: 2\nisa\t\t: rv64imafdc_zicntr_zicsr\nmmu\t\t: sv39\nuarch\t\t: \
                    sifive,u74-mc\n\nprocessor\t: 1\nisa\t\t: rv64imafdc_zicntr\nuarch\t\t: sifive,u74-mc\n\n";
        let model = ("sys/firmware/devicetree/base/model", "StarFive VisionFive 2 v1.3B\0");
        let root = tree(&[("proc/cpuinfo", text), model]);
        let expected = "2 × sifive,u74-mc rv64imafdc (StarFive VisionFive 2 v1.3B)";
        assert_eq!(name(root.path()).as_deref(), Some(expected));
        assert_eq!(name(tree(&[model]).path()).as_deref(), Some("StarFive VisionFive 2 v1.3B"));
        assert_eq!(name(tree(&[]).path()), None);
    }

    /// Of a Jetson's kernel 5.10: with a `model name`, and without a register file.
    #[test]
    fn a_model_name_hides_no_core() {
        let core = |implementer: &str, part: &str| {
            format!(
                "processor\t: 0\nmodel name\t: ARMv8 Processor rev 0 (v8l)\nCPU implementer\t: {implementer}\nCPU variant\t: \
                 0x0\nCPU part\t: {part}\nCPU revision\t: 0\nMTS version\t: 55637613\n\n"
            )
        };
        let xavier = [core("0x4e", "0x004"), core("0x4e", "0x004")].concat();
        let root = tree(&[("proc/cpuinfo", &xavier)]);
        assert_eq!(name(root.path()).as_deref(), Some("2 × NVIDIA Carmel r0p0"));
        assert_eq!(family(root.path()), Family::Arm);
    }

    #[test]
    fn families_are_known_by_what_only_they_have() {
        let of = |text: &str| family(tree(&[("proc/cpuinfo", text)]).path());
        assert_eq!(of(RASPBERRY), Family::Arm);
        assert_eq!(of("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: x\n"), Family::X86);
        assert_eq!(of("flags\t: fpu hypervisor\n"), Family::X86);
        assert_eq!(of("processor\t: 0\nhart\t: 2\nisa\t: rv64imafdc\n"), Family::Riscv);
        assert_eq!(of(""), Family::Unknown);
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_none(text in "((CPU (implementer|part|variant|revision)|isa|uarch|Model)\t: (0x)?[0-9a-f]{0,8}\n|\n|.{0,20}){0,12}") {
            let root = tree(&[("proc/cpuinfo", &text)]);
            let _ = (name(root.path()), family(root.path()), board(root.path()));
            let _ = Midr::from_cpuinfo(&text);
        }
    }
}
