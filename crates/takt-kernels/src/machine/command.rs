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

const CPU_MODEL: &str = "qemu64";

/// Its features: a fixed set. No entropy instructions, and no features that QEMU's translator
/// gained later; its vendor is AMD's, so that no kernel spends instructions on Meltdown, which the
/// machine does not have. `xsave` is left out: kernel 6.1 does not come up with it on QEMU 7.2
/// under a counted clock.
const CPU_FEATURES: &str = "+ssse3,+sse4.1,+sse4.2,+popcnt,+smep,+smap,+fsgsbase,-rdrand,-rdseed,-kvm";

/// Takt's boot parameters.
///
/// `nokaslr norandmaps`: addresses decide about collisions in hash tables and thus about
/// instructions. `random.trust_cpu=off random.trust_bootloader=off`: no entropy of the host.
/// `panic=-1` with QEMU's `-no-reboot`: a panic ends the machine. `earlyprintk=ttyS0`: the words of
/// a kernel that dies before it has a console. `loglevel=6`: enough for a sign of life, little
/// enough to boot fast; the guest lowers it later. `cryptomgr.notests`: self-tests of ciphers cost
/// seconds. `rdinit=/init`: no search.
const PARAMETERS: &str = "console=ttyS0 earlyprintk=ttyS0 panic=-1 loglevel=6 nokaslr norandmaps random.trust_cpu=off \
                          random.trust_bootloader=off cryptomgr.notests rdinit=/init";

/// The time-stamp counter is exactly the virtual clock: nothing to calibrate, and no watchdog that
/// compares it with a device's.
const COUNTED_PARAMETERS: &str = "tsc=reliable no_timer_check";

/// In real time the time-stamp counter is the host's, the same for all CPUs; every other clock is a
/// device whose reading stops all of them.
const REAL_TIME_PARAMETERS: &str = "tsc=reliable";

/// Longest turn of one CPU, microseconds. Without it, a turn ends where the next timer is due, a
/// tenth of a second later if nobody has set one, and a CPU whose timer has just expired learns of
/// it that much later. A network filter that has no network is QEMU's one device with a periodic
/// timer on the virtual clock that the guest does not see. A shorter one costs the host more and
/// the guest nothing.
const TURN_US: u32 = 25;

/// The order in which QEMU takes turns between CPUs under a counted clock, by their numbers in the
/// guest: between two of the guest's (`0..cpus`), one that the guest never starts.
///
/// A turn ends at the next timer of any CPU. Up to QEMU 8.0 the turn after that has no time left
/// and only sets off the timer; if it were a CPU of the guest's, that CPU would stand still as long
/// as the one before it is busy, and a guest with two CPUs would not even start. So the empty turn
/// is given to a CPU that has nothing to do.
fn order_of_cpus(cpus: u32) -> impl Iterator<Item = u32> {
    (0..cpus).flat_map(move |cpu| std::iter::once(cpu).chain((cpu + 1 < cpus).then_some(cpus + cpu)))
}

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
    let settings = &machine.settings;
    let counted = match settings.accelerator {
        Accelerator::Counted => COUNTED_PARAMETERS,
        Accelerator::RealTime => REAL_TIME_PARAMETERS,
        Accelerator::Kvm => "",
    };
    // Numbers above belong to the CPUs that stay idle.
    let cpus = match settings.accelerator {
        Accelerator::Counted if settings.cpus > 1 => format!("nr_cpus={}", settings.cpus),
        _ => String::new(),
    };
    [PARAMETERS, counted, &cpus, settings.boot_parameters.trim()]
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
            add("-cpu", format!("{CPU_MODEL},{CPU_FEATURES}").into());
            add("-icount", "shift=0,sleep=off,align=off".into());
            add("-rtc", "base=2024-01-01T00:00:00,clock=vm".into());
            add("-seed", settings.seed.to_string().into());
        }
        Accelerator::RealTime => {
            add("-accel", "tcg,thread=multi".into());
            add("-machine", "q35,hpet=off,vmport=off,i8042=off".into());
            add("-cpu", format!("{CPU_MODEL},{CPU_FEATURES}").into());
        }
        Accelerator::Kvm => {
            add("-accel", "kvm".into());
            add("-machine", "q35,vmport=off".into());
            add("-cpu", "host".into());
        }
    }
    match settings.accelerator {
        Accelerator::Counted => {
            let places = 2 * settings.cpus - 1;
            add("-smp", format!("cpus=1,maxcpus={places},sockets=1,cores={places},threads=1").into());
            for core in order_of_cpus(settings.cpus).skip(1) {
                let place = format!("{CPU_MODEL}-x86_64-cpu,socket-id=0,core-id={core},thread-id=0");
                add("-device", place.into());
            }
            if settings.cpus > 1 {
                add("-netdev", "hubport,id=turns,hubid=0".into());
                let timer = format!("filter-buffer,id=turn,netdev=turns,interval={TURN_US}");
                add("-object", timer.into());
            }
        }
        Accelerator::RealTime | Accelerator::Kvm => {
            add("-smp", format!("cpus={0},sockets=1,cores={0},threads=1", settings.cpus).into());
        }
    }
    add("-m", format!("{}M", settings.memory_mib).into());
    add("-kernel", kernel.into());
    add("-initrd", machine.initramfs.clone().into());
    add("-append", kernel_parameters(machine).into());
    add("-chardev", with_path("file,id=console,path=", &directory.join(CONSOLE)));
    add("-serial", "chardev:console".into());
    add("-chardev", with_path("file,id=line,path=", &directory.join(LINE)));
    add("-serial", "chardev:line".into());
    // Without ioeventfd, QEMU takes the guest's bytes in the CPU's own thread, at the instruction
    // that sends them.
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
    fn a_cpu_without_work_takes_the_empty_turns() {
        assert_eq!(order_of_cpus(1).collect::<Vec<_>>(), [0]);
        assert_eq!(order_of_cpus(2).collect::<Vec<_>>(), [0, 2, 1]);
        assert_eq!(order_of_cpus(4).collect::<Vec<_>>(), [0, 4, 1, 5, 2, 6, 3]);
        let two = machine(Settings { cpus: 2, ..Settings::default() });
        let arguments = arguments(&two, "/k".as_ref());
        let cores: Vec<_> = arguments
            .iter()
            .filter_map(|argument| argument.to_str()?.split_once(",core-id=").map(|(_, rest)| rest))
            .collect();
        assert_eq!(cores, ["2,thread-id=0", "1,thread-id=0"]);
        assert!(value(&arguments, "-append").contains(" nr_cpus=2"));
        assert!(value(&arguments, "-smp").contains("maxcpus=3"));
        assert!(value(&arguments, "-object").contains("interval=25"));
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
    fn emulation_in_real_time_gives_each_cpu_a_thread() {
        let settings = Settings { accelerator: Accelerator::RealTime, cpus: 4, ..Settings::default() };
        let arguments = arguments(&machine(settings), "/k".as_ref());
        assert!(!arguments.iter().any(|argument| argument == "-icount"));
        assert_eq!(value(&arguments, "-accel"), "tcg,thread=multi");
        assert!(value(&arguments, "-smp").starts_with("cpus=4,"));
        let words = value(&arguments, "-append");
        assert!(words.contains("tsc=reliable") && !words.contains("nr_cpus"), "{words}");
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
