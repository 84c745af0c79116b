//! Clocks and absolute sleep. All times are nanoseconds of `CLOCK_MONOTONIC` unless the name says
//! otherwise.

const NS_PER_S: u64 = 1_000_000_000;

fn read(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec to write into; an unknown clock only makes the call return
    // an error.
    let rc = unsafe { libc::clock_gettime(clock, &mut ts) };
    // The clocks used here exist on every Linux; a failure would leave zero.
    debug_assert_eq!(rc, 0);
    ts.tv_sec as u64 * NS_PER_S + ts.tv_nsec as u64
}

/// Time of `CLOCK_MONOTONIC` in nanoseconds: never set back, the base of all releases and time
/// stamps. Costs about 20 ns (vDSO, no system call).
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time that the calling thread has consumed (`CLOCK_THREAD_CPUTIME_ID`), in nanoseconds. A
/// system call.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that thread `tid` of this process has consumed; 0 where there is none.
pub fn cpu_ns_of_thread(tid: i32) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // MAKE_THREAD_CPUCLOCK(tid, CPUCLOCK_SCHED) of the kernel's include/linux/posix-timers.h.
    let clock = !tid << 3 | 0b110;
    // SAFETY: as above.
    match unsafe { libc::clock_gettime(clock, &mut ts) } {
        0 => ts.tv_sec as u64 * NS_PER_S + ts.tv_nsec as u64,
        _ => 0,
    }
}

/// CPU time that all threads of this process have consumed (`CLOCK_PROCESS_CPUTIME_ID`), in
/// nanoseconds.
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Wall-clock time (`CLOCK_REALTIME`) in nanoseconds since the Unix epoch: for labels in files,
/// never for measuring, since it can be set.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// The scheduler's tick, nanoseconds: the coarse clocks advance with it, and say so.
pub fn tick_ns() -> Option<u64> {
    resolution(libc::CLOCK_MONOTONIC_COARSE)
}

/// Resolution of timers, nanoseconds: 1 with high-resolution timers, else a tick.
pub fn timer_resolution_ns() -> Option<u64> {
    resolution(libc::CLOCK_MONOTONIC)
}

fn resolution(clock: libc::clockid_t) -> Option<u64> {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `resolution` is a valid place for the answer.
    let rc = unsafe { libc::clock_getres(clock, &mut resolution) };
    let ns = resolution.tv_sec as u64 * NS_PER_S + resolution.tv_nsec as u64;
    (rc == 0 && ns > 0).then_some(ns)
}

/// Converts nanoseconds to the kernel's `timespec`.
pub(crate) fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / NS_PER_S) as libc::time_t, tv_nsec: (ns % NS_PER_S) as libc::c_long }
}

/// Sleeps until `deadline_ns` of `CLOCK_MONOTONIC` (`clock_nanosleep` with `TIMER_ABSTIME`),
/// sleeping on when a signal interrupts. A deadline that has passed returns at once.
///
/// The sleep is absolute, so neither a signal nor preemption between reading the clock and sleeping
/// shifts the wake-up.
pub fn sleep_until(deadline_ns: u64) {
    let ts = timespec(deadline_ns);
    loop {
        // SAFETY: `ts` is a valid, normalised timespec; no remainder is written in absolute mode.
        let rc = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &ts, std::ptr::null_mut())
        };
        if rc != libc::EINTR {
            debug_assert_eq!(rc, 0);
            return;
        }
    }
}

/// Sleeps for `ns`, measured by `CLOCK_REALTIME`, as the DAQ paper's Algorithm 1 does
/// (`clock_nanosleep(CLOCK_REALTIME, 0, ...)`). For reproducing that loop alone: a release belongs
/// on [`sleep_until`], which neither preemption before the call nor a set clock shifts. A signal
/// ends it early.
pub fn sleep_realtime(ns: u64) {
    let ts = timespec(ns);
    // SAFETY: `ts` is a valid, normalised timespec; no remainder is asked for.
    let rc = unsafe { libc::clock_nanosleep(libc::CLOCK_REALTIME, 0, &ts, std::ptr::null_mut()) };
    debug_assert!(rc == 0 || rc == libc::EINTR);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_never_goes_back() {
        let mut last = monotonic_ns();
        for _ in 0..10_000 {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn sleep_never_ends_before_the_deadline() {
        for step_ns in [0, 1, 50_000, 1_000_000] {
            let deadline = monotonic_ns() + step_ns;
            sleep_until(deadline);
            assert!(monotonic_ns() >= deadline);
        }
        sleep_until(0);
    }

    #[test]
    fn a_sleep_on_the_clock_of_the_day_lasts_at_least_so_long() {
        let before = monotonic_ns();
        sleep_realtime(2_000_000);
        assert!(monotonic_ns() - before >= 2_000_000);
    }

    #[test]
    fn interrupted_sleep_goes_on_to_the_deadline() {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: installs a handler that does nothing, for a signal that nothing else in this
        // process uses.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
        }
        // SAFETY: pthread_self has no preconditions.
        let me = unsafe { libc::pthread_self() } as usize;
        let deadline = monotonic_ns() + 30_000_000;
        let pest = std::thread::spawn(move || {
            for _ in 0..5 {
                sleep_until(monotonic_ns() + 2_000_000);
                // SAFETY: the thread behind `me` sleeps below and joins this thread, so it is
                // alive.
                unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR2) };
            }
        });
        sleep_until(deadline);
        assert!(monotonic_ns() >= deadline);
        pest.join().unwrap();
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let before = thread_cpu_ns();
        let mut x = 1u64;
        while thread_cpu_ns() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(process_cpu_ns() >= thread_cpu_ns() - before);
    }
}
