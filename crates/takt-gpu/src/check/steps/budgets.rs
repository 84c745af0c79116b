//! Budgets: whether waiting returns on time while others use the device, and what becomes of work
//! that is late.

use takt_load::gpu::{Interference, Priority};
use takt_rt::clock::monotonic_ns;
use takt_stats::Summary;

use super::{Busy, Step, StepError, after, finish, open};
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::interference::Interfering;
use crate::wait::{Wait, Waited};

/// Work that does not end within its budget, milliseconds.
const WORK_MS: f64 = 5.0;

/// Most of it: how long a kernel takes was measured on a device, and on a host, that others may
/// have used just then.
const MAX_WORK_MS: f64 = 160.0;

/// The budget, nanoseconds.
const BUDGET_NS: u64 = 1_000_000;

/// Latest return that is on time: a look is 50 us at most, and a call into the driver some us.
const ON_TIME_NS: u64 = 1_000_000;

/// Least waits of each kind.
const LEAST: usize = 10;

/// Latest return that counts as a return at the deadline on every device, and the share of the
/// waits that must be so: what is between is the host's, which no program on it can help.
const AT_DEADLINE_NS: u64 = 5_000_000;
const SHARE: f64 = 0.5;

/// Tries to have something late.
const TRIES: u32 = 20;

/// Checks waiting and late work.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn budgets(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let busy = Busy::new(&gpu)?;
    discarded(step, &gpu, &busy)?;
    step.progress("interference starts");
    let mut config = Interference { ordinal: step.ordinal, ..Interference::default() };
    if step.is_emulated() {
        // Its kernels run on the CPU, one after the other.
        config.streams = 1;
    }
    let interfering = Interfering::start(&config)?;
    for wait in [Wait::Spin, Wait::Yield, Wait::Block] {
        step.progress(format!("waiting under a budget: {wait:?}"));
        on_time(step, &gpu, &busy, wait)?;
        if let Some(error) = interfering.death() {
            return Err(error.clone().into());
        }
    }
    step.figure("interference", interfering.stop());
    Ok(())
}

/// Time for which this thread has waited for a CPU so far, nanoseconds (proc_pid_schedstat(5)); 0
/// if the kernel does not count it.
fn waited_for_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn on_time(step: &mut Step<'_>, gpu: &Gpu, busy: &Busy, wait: Wait) -> Result<(), StepError> {
    let stream = gpu.stream(Priority::Critical)?;
    let done = stream.event(false)?;
    let until_ns = after(step.work_s / 3.0);
    let (mut late_us, mut own_us) = (Vec::new(), Vec::new());
    let (mut waits, mut early, mut work_ms) = (0, 0, WORK_MS);
    while (late_us.len() < LEAST && waits < 10 * LEAST) || monotonic_ns() < until_ns {
        waits += 1;
        busy.submit(&stream, work_ms)?;
        stream.record(&done)?;
        let held_ns = waited_for_cpu_ns();
        let deadline_ns = monotonic_ns() + BUDGET_NS;
        let waited = done.wait(deadline_ns, wait)?;
        let returned_ns = monotonic_ns();
        let held_ns = waited_for_cpu_ns() - held_ns;
        if waited == Waited::Overrun {
            early += usize::from(returned_ns < deadline_ns);
            let late_ns = returned_ns.saturating_sub(deadline_ns);
            late_us.push(late_ns as f64 / 1e3);
            own_us.push(late_ns.saturating_sub(held_ns) as f64 / 1e3);
        } else {
            work_ms = (2.0 * work_ms).min(MAX_WORK_MS);
        }
        finish(&stream, "work over its budget")?;
    }
    let within = |ns: u64| own_us.iter().filter(|us| **us * 1e3 <= ns as f64).count();
    let (on_time, at_deadline) = (within(ON_TIME_NS), within(AT_DEADLINE_NS));
    let (all, own) = (Summary::of(&mut late_us), Summary::of(&mut own_us));
    let name = format!("{wait:?}").to_lowercase();
    let reported = format!(
        "{on_time} of {} within {} us after the deadline, {early} before it; mean {:.1} us, p99 {:.1} us, worst {:.1} us, of which the \
         CPU's scheduler took at most {:.1} us",
        own.count,
        ON_TIME_NS / 1000,
        all.mean,
        all.p99,
        all.worst,
        all.worst - own.worst
    );
    let enough = own.count > 0 && early == 0 && at_deadline as f64 >= SHARE * own.count as f64;
    step.judge(&format!("waiting ({name}) returns at its deadline, under interference"), &*reported, enough);
    step.judge_time(
        &format!("waiting ({name}) never returns {} us late", ON_TIME_NS / 1000),
        reported,
        own.worst * 1e3 <= ON_TIME_NS as f64,
    );
    step.figure(&format!("late_us_{name}"), all);
    Ok(())
}

/// Late work keeps its memory until it ends, cannot be read before, and then has the right result.
fn discarded(step: &mut Step<'_>, gpu: &Gpu, busy: &Busy) -> Result<(), StepError> {
    step.progress("late work");
    let stream = gpu.stream(Priority::Normal)?;
    let done = stream.event(false)?;
    let what =
        "work over its budget cannot be read before it ends, keeps its memory, and then has the right result";
    let mut work_ms = WORK_MS;
    for _ in 0..TRIES {
        let (host, device) = (gpu.pinned::<u32>(1000)?, gpu.buffer::<u32>(1000)?);
        stream.fill_words(&device, 77)?;
        busy.submit(&stream, work_ms)?;
        stream.download(&device, &host)?;
        stream.record(&done)?;
        if done.wait(monotonic_ns() + BUDGET_NS, Wait::Block)? == Waited::Done {
            work_ms = (2.0 * work_ms).min(MAX_WORK_MS);
            continue;
        }
        let refused = matches!(host.read(), Err(GpuError::InFlight { .. }));
        // The device may have ended by now, so that there is nothing to put off.
        drop(device);
        finish(&stream, "work over its budget")?;
        let right = host.read()?.iter().all(|word| *word == 77);
        let kept = gpu.waiting_to_be_freed();
        let reported =
            format!("refused: {refused}; right: {right}; pieces of memory still kept at the end: {kept}");
        step.judge(what, reported, refused && right && kept == 0);
        return Ok(());
    }
    step.not_run(
        what,
        format!("{TRIES} times {WORK_MS} ms of work and more ended within {} us", BUDGET_NS / 1000),
    );
    Ok(())
}
