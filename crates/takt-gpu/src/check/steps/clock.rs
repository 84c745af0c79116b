//! The device's clock on this machine's: whether the error that is reported holds.

use takt_load::gpu::Priority;
use takt_rt::clock::{monotonic_ns, sleep_until};
use takt_stats::Summary;

use super::{HUNG_NS, Step, StepError, after, hung, open};
use crate::clock::Clock;
use crate::wait::{Wait, Waited};

/// Between two looks: 100 a second.
const EVERY_NS: u64 = 10_000_000;

/// Least looks of each half.
const LEAST: usize = 10;

/// Most that a moment may be unsure of where the picture beside the CPU's threads is to mean
/// something.
const MAX_ERROR_NS: u64 = 50_000;

/// Brackets of a new base: some 10 us each, once a second in use.
const BRACKETS: u32 = 5;

/// Records events between two readings of the host's clock and looks whether the mapped moment can
/// lie between them: first with one base that grows old, then with bases renewed as in use.
///
/// # Errors
/// The first error of opening or of any call.
pub fn clock(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let stream = gpu.stream(Priority::Normal)?;
    let event = stream.event(true)?;
    let mut clock = Clock::new(&gpu)?;
    step.figure("first_mapping", clock.mapping());
    for (name, renewed) in [("one ageing reference", false), ("bases renewed", true)] {
        step.progress(name);
        if renewed {
            // As in use, where no base is older than a second: this one is as old as the first
            // part.
            clock.renew(BRACKETS, monotonic_ns() + HUNG_NS)?;
        }
        let until_ns = after(step.work_s / 2.0);
        let (mut errors, mut outside, mut farthest_ns) = (Vec::new(), 0, 0);
        while errors.len() < LEAST || monotonic_ns() < until_ns {
            let before_ns = monotonic_ns();
            stream.record(&event)?;
            if event.wait(before_ns + HUNG_NS, Wait::Spin)? == Waited::Overrun {
                return Err(hung("an event").into());
            }
            let after_ns = monotonic_ns();
            let stamp = clock.stamp(&event)?;
            let early = before_ns.saturating_sub(stamp.at_ns + stamp.error_ns);
            let late = stamp.at_ns.saturating_sub(stamp.error_ns).saturating_sub(after_ns);
            outside += usize::from(early > 0 || late > 0);
            farthest_ns = farthest_ns.max(early).max(late);
            errors.push(stamp.error_ns as f64 / 1e3);
            if renewed && errors.len() % LEAST == 0 {
                clock.renew(BRACKETS, monotonic_ns() + HUNG_NS)?;
            }
            sleep_until(after_ns + EVERY_NS);
        }
        let looks = errors.len();
        let error_us = Summary::of(&mut errors);
        step.judge(
            &format!("moments of the device lie within the error that is reported ({name})"),
            format!("{outside} of {looks} outside, at most {farthest_ns} ns"),
            outside == 0,
        );
        if renewed {
            step.judge_time(
                &format!("p99 of the error is at most {} us", MAX_ERROR_NS / 1000),
                format!(
                    "mean {:.2} us, p99 {:.2} us, worst {:.2} us",
                    error_us.mean, error_us.p99, error_us.worst
                ),
                error_us.p99 * 1e3 <= MAX_ERROR_NS as f64,
            );
        }
        step.figure(name, serde_json::json!({ "error_us": error_us, "mapping": clock.mapping() }));
    }
    Ok(())
}
