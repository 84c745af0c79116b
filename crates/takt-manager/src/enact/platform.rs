//! This machine's resources for reservations.

use std::io;

use super::Error;
use crate::goals;
use crate::plan::Platform;
use crate::policy::Policy;
use crate::system::{Linux, deadline_capacity};

/// The platform that `options` and this machine make: the cores named, or all online ones but the
/// system core, and as much of each as the kernel admits. A machine of one or two cores has none to
/// spare: there the system core takes reservations, too. The paper's manager has a system core of
/// its own wherever there is another one (section IV.B of *ROS-Llama*).
///
/// # Errors
///
/// A core that is not online.
pub fn platform(options: &goals::Options) -> Result<Platform, Error> {
    let online = takt_rt::placement::online().map_err(|error| Error::Online(io::Error::other(error)))?;
    let system_core = options.system_core;
    let cores = match &options.cores {
        Some(cores) => cores.clone(),
        None => for_reservations(options.policy, online.iter(), system_core),
    };
    if let Some(&core) = cores.iter().chain([&system_core]).find(|core| !online.contains(**core)) {
        return Err(Error::Core { core, online: Box::new(online) });
    }
    let capacity = deadline_capacity().unwrap_or(options.max_bandwidth);
    let max_bandwidth = options.max_bandwidth.min(capacity);
    let max_system_bandwidth = options.max_system_bandwidth.map_or(max_bandwidth, |most| most.min(capacity));
    Ok(Platform {
        max_bandwidth,
        max_system_bandwidth,
        enforcement_ns: takt_host::reserve::enforce::known(&Linux::new()).granularity_ns,
        ..Platform::new(cores, system_core, max_bandwidth)
    })
}

/// Cores for reservations, where none are named.
fn for_reservations(policy: Policy, online: impl Iterator<Item = usize>, system_core: usize) -> Vec<usize> {
    let online: Vec<usize> = online.collect();
    let spare: Vec<usize> = online.iter().copied().filter(|core| *core != system_core).collect();
    let least = match policy {
        Policy::Takt => 2,
        Policy::RosLlama => 1,
    };
    if spare.len() < least { online } else { spare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_manager_never_shares_its_system_core_but_on_one_core() {
        let cores = |policy, count| for_reservations(policy, 0..count, 0);
        assert_eq!(cores(Policy::Takt, 4), [1, 2, 3]);
        assert_eq!(cores(Policy::RosLlama, 4), [1, 2, 3]);
        assert_eq!(cores(Policy::Takt, 2), [0, 1]);
        assert_eq!(cores(Policy::RosLlama, 2), [1]);
        assert_eq!([cores(Policy::Takt, 1), cores(Policy::RosLlama, 1)], [[0], [0]]);
    }
}
