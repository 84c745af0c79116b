//! QEMU's command line.

use std::ffi::OsString;
use std::path::Path;

use super::{Accelerator, Machine};
use crate::guest::PORT_NAME;

/// File names in a machine's directory.
pub(super) const CONSOLE: &str = "console.log";
pub(super) const QEMU_LOG: &str = "qemu.log";
pub(super) const STREAM: &str = "stream";
/// The serial line of guests without the virtio driver.
pub(super) const LINE: &str = "stream-line";

/// A fixed model. No entropy instructions, and no features that QEMU's translator gained later; its vendor is AMD's, so
/// that no kernel spends instructions on Meltdown, which the machine does not have. `xsave` is left out: kernel 6.1 does
/// not come up with it on QEMU 7.2 under a counted clock.
const CPU: &str = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+smep,+smap,+fsgsbase,-rdrand,-rdseed,-kvm";

/// Takt's boot parameters.
///
/// `nokaslr norandmaps`: addresses decide about collisions in hash tables and thus about instructions.
/// `random.trust_cpu=off random.trust_bootloader=off`: no entropy of the host. `panic=-1` with QEMU's `-no-reboot`: a panic
/// ends the machine. `loglevel=6`: enough for a sign of life, little enough to boot fast; the guest lowers it later.
/// `cryptomgr.notests`: self-tests of ciphers cost seconds. `rdinit=/init`: no search.
const PARAMETERS: &str = "console=ttyS0 panic=-1 loglevel=6 nokaslr norandmaps random.trust_cpu=off \
                          random.trust_bootloader=off cryptomgr.notests rdinit=/init";

/// The time-stamp counter is exactly the virtual clock: nothing to calibrate, and no watchdog that compares it with a
/// device's.
const COUNTED_PARAMETERS: &str = "tsc=reliable no_timer_check";

/// A path in an option's list: commas are doubled there.
fn escaped(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes();
    let doubled = bytes.iter().flat_map(|&byte| std::iter::repeat_n(byte, if byte == b',' { 2 } else { 1 }));
    OsString::from_vec(doubled.collect())
}

fn with_path(before: &str, path: &Path) -> OsString {
    let mut option = OsString::from(before);
    option.push(escaped(path));
    option
}

/// The guest's command line.
pub(super) fn kernel_parameters(machine: &Machine) -> String {
    let counted = if machine.settings.accelerator.is_virtual_time() { COUNTED_PARAMETERS } else { "" };
    [PARAMETERS, counted, machine.settings.boot_parameters.trim()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Arguments for QEMU. `kernel`: the machine's, or what was unpacked from it.
pub(super) fn arguments(machine: &Machine, kernel: &Path) -> Vec<OsString> {
    let settings = &machine.settings;
    let directory = &machine.directory;
    let mut list: Vec<OsString> = Vec::new();
    let mut add = |option: &str, value: OsString| {
        list.push(option.into());
        list.push(value);
    };
    match settings.accelerator {
        Accelerator::Counted => {
            // One thread for all CPUs is what counting needs; said here so that QEMU never chooses.
            add("-accel", "tcg,thread=single".into());
            add("-machine", "q35,hpet=off,vmport=off,i8042=off".into());
            add("-cpu", CPU.into());
            add("-icount", "shift=0,sleep=off,align=off".into());
            add("-rtc", "base=2024-01-01T00:00:00,clock=vm".into());
            add("-seed", settings.seed.to_string().into());
        }
        Accelerator::Kvm => {
            add("-accel", "kvm".into());
            add("-machine", "q35,vmport=off".into());
            add("-cpu", "host".into());
        }
    }
    add("-smp", format!("cpus={0},sockets=1,cores={0},threads=1", settings.cpus).into());
    add("-m", format!("{}M", settings.memory_mib).into());
    add("-kernel", kernel.into());
    add("-initrd", machine.initramfs.clone().into());
    add("-append", kernel_parameters(machine).into());
    add("-chardev", with_path("file,id=console,path=", &directory.join(CONSOLE)));
    add("-serial", "chardev:console".into());
    add("-chardev", with_path("file,id=line,path=", &directory.join(LINE)));
    add("-serial", "chardev:line".into());
    // Without ioeventfd, QEMU takes the guest's bytes in the CPU's own thread, at the instruction that sends them.
    add("-device", "virtio-serial-pci,id=ports,ioeventfd=off,max_ports=2".into());
    add("-chardev", with_path("file,id=results,path=", &directory.join(STREAM)));
    add("-device", format!("virtserialport,bus=ports.0,chardev=results,name={PORT_NAME}").into());
    for option in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        list.push(option.into());
    }
    list.push("-display".into());
    list.push("none".into());
    list
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    fn machine(settings: Settings) -> Machine {
        Machine { kernel: "/k/vmlinuz".into(), initramfs: "/i".into(), settings, directory: "/a,b".into() }
    }

    fn value(arguments: &[OsString], option: &str) -> String {
        let at = arguments.iter().position(|argument| argument == option).unwrap();
        arguments[at + 1].to_str().unwrap().to_owned()
    }

    #[test]
    fn counted_time_shuts_out_the_host() {
        let arguments = arguments(&machine(Settings::default()), "/k".as_ref());
        assert_eq!(value(&arguments, "-icount"), "shift=0,sleep=off,align=off");
        assert!(value(&arguments, "-rtc").ends_with("clock=vm"));
        assert_eq!(value(&arguments, "-seed"), "1");
        let cpu = value(&arguments, "-cpu");
        assert!(cpu.contains("-rdrand") && cpu.contains("-rdseed"), "{cpu}");
        assert!(value(&arguments, "-append").contains("nokaslr"));
    }

    #[test]
    fn kvm_takes_no_counted_clock() {
        let settings = Settings { accelerator: Accelerator::Kvm, ..Settings::default() };
        let arguments = arguments(&machine(settings), "/k".as_ref());
        assert!(!arguments.iter().any(|argument| argument == "-icount"));
        assert_eq!(value(&arguments, "-accel"), "kvm");
        assert!(!value(&arguments, "-append").contains("tsc="));
    }

    #[test]
    fn a_comma_in_a_path_stays_in_the_path() {
        let arguments = arguments(&machine(Settings::default()), "/k".as_ref());
        assert!(arguments.contains(&"file,id=console,path=/a,,b/console.log".into()), "{arguments:?}");
    }

    #[test]
    fn boot_parameters_come_last_so_that_they_win() {
        let settings = Settings { boot_parameters: " isolcpus=1 loglevel=3".into(), ..Settings::default() };
        assert!(kernel_parameters(&machine(settings)).ends_with("no_timer_check isolcpus=1 loglevel=3"));
    }
}
