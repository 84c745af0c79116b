//! Rights of this process, found by trying them in a separate thread.

use takt_rt::latency::DmaLatency;
use takt_rt::memory;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;
use takt_rt::{Error, soft_limit, thread};

use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// Whether a thread gets `policy`; the reason and the fix if not.
fn attempt(policy: Policy) -> Result<(), (String, String)> {
    let settings = ThreadSettings::default().with_policy(policy);
    let error = |error: Error| (error.to_string(), "run as root".to_owned());
    let handle = thread::spawn("takt-try", &settings, || ()).map_err(error)?;
    let difference = handle.granted().differences.first().cloned();
    handle.join().map_err(error)?;
    match difference {
        None => Ok(()),
        Some(difference) => Err((difference.reason, difference.fix)),
    }
}

fn shown(limit: u64) -> String {
    if limit == libc::RLIM_INFINITY { "unlimited".into() } else { limit.to_string() }
}

/// Real-time policies.
pub fn fifo() -> Check {
    let check = Check::new(
        "policy_fifo",
        "Real-time policies",
        "without permission for SCHED_FIFO and SCHED_RR, every loop competes with all other programs",
    );
    let limit = shown(soft_limit(libc::RLIMIT_RTPRIO));
    match attempt(Policy::Fifo { priority: 99 }) {
        Ok(()) => check.ok(format!("a thread got SCHED_FIFO 99 (RLIMIT_RTPRIO {limit})")),
        Err((reason, fix)) => match attempt(Policy::Fifo { priority: 1 }) {
            Ok(()) => {
                let evidence =
                    format!("a thread got SCHED_FIFO 1 but not 99 (RLIMIT_RTPRIO {limit}): {reason}");
                check.warn(evidence, fix)
            }
            Err(_) => check.fail(format!("no SCHED_FIFO (RLIMIT_RTPRIO {limit}): {reason}"), fix),
        },
    }
}

/// Reservations.
pub fn deadline() -> Check {
    let check = Check::new(
        "policy_deadline",
        "SCHED_DEADLINE",
        "reservations need CAP_SYS_NICE, a free share of the CPUs, and threads that may use all of them",
    );
    let ms = std::time::Duration::from_millis;
    let policy = Policy::Deadline { runtime: ms(1), deadline: ms(10), period: ms(10), reclaim: false };
    match attempt(policy) {
        Ok(()) => check.ok("a thread got a reservation of 1 ms in 10 ms"),
        Err((reason, fix)) => check.warn(format!("no reservation of 1 ms in 10 ms: {reason}"), fix),
    }
}

/// Locked memory.
pub fn memory_lock() -> Check {
    let check = Check::new(
        "memory_lock",
        "Memory locking",
        "memory that is not locked may be evicted, and then costs a fault when it is touched again",
    );
    let limit = shown(soft_limit(libc::RLIMIT_MEMLOCK));
    if memory::locked_bytes() > 0 {
        // Trying would undo what somebody in this process relies on.
        return check.ok(format!("this process has {} bytes locked already", memory::locked_bytes()));
    }
    let Err(reason) = memory::try_lock() else {
        return check.ok(format!("all memory of this process could be locked (RLIMIT_MEMLOCK {limit})"));
    };
    check.fail(
        format!("memory cannot be locked (RLIMIT_MEMLOCK {limit} bytes): {reason}"),
        "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/99-realtime.conf, and log in again; or give the \
         program CAP_IPC_LOCK",
    )
}

/// CPUs kept out of deep idle states, on this machine.
pub fn dma_latency() -> Check {
    dma_latency_in(&Tree::new(std::path::Path::new("/")))
}

pub(crate) fn dma_latency_in(tree: &Tree) -> Check {
    let check = Check::new(
        "dma_latency",
        "PM QoS",
        "a program that holds /dev/cpu_dma_latency at 0 keeps the CPUs out of deep idle states; otherwise each wake-up may wait for one to \
         end",
    );
    if !tree.exists("/dev/cpu_dma_latency") {
        return check.unknown(
            "there is no /dev/cpu_dma_latency: the CPUs have no idle states, or this is a container",
        );
    }
    match DmaLatency::hold(0) {
        Ok(held) => {
            drop(held);
            check.ok("/dev/cpu_dma_latency could be held at 0")
        }
        Err(error) => check.warn(error.to_string(), "sudo chmod o+rw /dev/cpu_dma_latency, or run as root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Status;

    #[test]
    fn trying_leaves_nothing_behind() {
        let before = (Policy::read(0).unwrap(), memory::locked_bytes());
        let tree = Tree::new(std::path::Path::new("/"));
        for check in [fifo(), deadline(), memory_lock(), dma_latency_in(&tree)] {
            assert!(!check.evidence.is_empty());
            // Whatever is refused comes with a way out.
            assert_eq!(check.fix.is_some(), matches!(check.status, Status::Warn | Status::Fail), "{check:?}");
        }
        assert_eq!((Policy::read(0).unwrap(), memory::locked_bytes()), before);
    }
}
