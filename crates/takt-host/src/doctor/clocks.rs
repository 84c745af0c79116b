//! Clocks: source, resolution, cost.

use takt_rt::clock::monotonic_ns;
use takt_rt::processor::Family;

use crate::doctor::processor;
use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// Cost and precision of reading the clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    /// Cost of one reading: the least mean of several rows, so that an interruption of some does
    /// not count.
    pub(crate) cost_ns: f64,
    /// Smallest step between two readings that differ.
    pub(crate) step_ns: u64,
    /// Readings that were earlier than the one before.
    pub(crate) backwards: u64,
}

/// Reads the clock some ten thousand times.
pub(crate) fn measure_reading() -> Reading {
    const ROWS: usize = 50;
    const READINGS: usize = 400;
    let mut reading = Reading { cost_ns: f64::MAX, step_ns: u64::MAX, backwards: 0 };
    for _ in 0..ROWS {
        let first = monotonic_ns();
        let mut last = first;
        for _ in 0..READINGS {
            let now = monotonic_ns();
            if now < last {
                reading.backwards += 1;
            } else if now > last {
                reading.step_ns = reading.step_ns.min(now - last);
            }
            last = now;
        }
        let mean = last.saturating_sub(first) as f64 / READINGS as f64;
        reading.cost_ns = reading.cost_ns.min(mean);
    }
    reading
}

/// A reading above this is a system call or worse: hardware that is asked over a slow bus.
const SLOW_READING_NS: f64 = 200.0;

pub(crate) fn source(tree: &Tree, reading: Option<Reading>) -> Check {
    const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
    let check = Check::new(
        "clock",
        "Clock source",
        "every release and every timestamp reads the clock; a slow source costs microseconds each time, and timers without high resolution \
         fire at the next tick",
    );
    let name = tree.line(&format!("{FOLDER}/current_clocksource"));
    let others = tree.line(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
    let resolution = reading.and_then(|_| takt_rt::clock::timer_resolution_ns());
    let shown = match reading {
        None => String::new(),
        Some(reading) => format!(
            "; a reading costs {:.0} ns, the smallest step was {} ns, {} of 20000 went backwards; timers resolve {} ns",
            reading.cost_ns,
            reading.step_ns,
            reading.backwards,
            resolution.map_or_else(|| "unknown".into(), |ns| ns.to_string()),
        ),
    };
    let check = match reading {
        Some(reading) => check
            .with_number("clock_reading_ns", reading.cost_ns)
            .with_number("timer_resolution_ns", resolution.unwrap_or(0) as f64),
        None => check,
    };
    let Some(name) = name else { return check.unknown(format!("the clock source cannot be read{shown}")) };
    let evidence = format!("{name}{shown}");
    let coarse = resolution.is_some_and(|ns| ns > 1000);
    let backwards = reading.is_some_and(|reading| reading.backwards > 0);
    if coarse {
        return check
            .fail(evidence, "use a kernel with CONFIG_HIGH_RES_TIMERS=y, booted without `highres=off`");
    }
    if backwards {
        let fix = match processor::family(tree) {
            Family::Arm | Family::Riscv => {
                "use a kernel with the workaround for this core's timer (`sudo dmesg | grep -iE 'arch_timer|erratum'`), or newer firmware"
            }
            Family::X86 | Family::Unknown => {
                "boot with `clocksource=hpet` until the firmware synchronises the timestamp counters"
            }
        };
        return check.fail(evidence, fix);
    }
    let slow = reading.is_some_and(|reading| reading.cost_ns > SLOW_READING_NS);
    if slow || matches!(name.as_str(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit") {
        let fix = if others.split_whitespace().any(|other| other == "tsc") {
            format!(
                "echo tsc | sudo tee {FOLDER}/current_clocksource, unless the kernel found it unstable (`sudo dmesg | grep -i tsc`)"
            )
        } else {
            "`sudo dmesg | grep -i clocksource` shows why the kernel did not use the CPU's own counter".into()
        };
        return check.warn(evidence, fix);
    }
    check.ok(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;

    #[test]
    fn the_clock_is_read_many_times() {
        let reading = measure_reading();
        assert!(reading.cost_ns > 0.0 && reading.cost_ns.is_finite());
        assert!(reading.step_ns > 0 && reading.backwards == 0, "{reading:?}");
    }

    #[test]
    fn slow_and_backward_clocks_are_found() {
        let with = |name: &str, reading| {
            let root = fake::tree(&[
                ("/sys/devices/system/clocksource/clocksource0/current_clocksource", name),
                ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet\n"),
            ]);
            source(&Tree::new(root.path()), reading)
        };
        let good = Reading { cost_ns: 25.0, step_ns: 20, backwards: 0 };
        assert_eq!(with("tsc\n", Some(good)).status, Status::Ok);
        assert_eq!(with("tsc\n", None).status, Status::Ok);
        assert_eq!(with("\n", None).status, Status::Unknown);
        let hpet = with("hpet\n", Some(good));
        assert!(hpet.status == Status::Warn && hpet.fix.unwrap().contains("echo tsc"));
        assert_eq!(with("tsc\n", Some(Reading { cost_ns: 900.0, ..good })).status, Status::Warn);
        assert_eq!(with("tsc\n", Some(Reading { backwards: 1, ..good })).status, Status::Fail);
    }
}
