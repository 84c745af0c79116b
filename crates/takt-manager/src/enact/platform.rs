//! What this machine offers to reservations.

use std::io;

use super::Error;
use crate::goals;
use crate::plan::Platform;
use crate::system::{Linux, deadline_capacity};

/// The platform that `options` and this machine make: the cores named, or all online ones but the
/// system core, and as much of each as the kernel admits. A machine of one or two cores has none to
/// spare: there the system core takes reservations, too.
///
/// # Errors
///
/// A core that is not online.
pub fn platform(options: &goals::Options) -> Result<Platform, Error> {
    let online = takt_rt::placement::online().map_err(|error| Error::Online(io::Error::other(error)))?;
    let system_core = options.system_core;
    let spare: Vec<usize> = online.iter().filter(|&core| core != system_core).collect();
    let cores = match &options.cores {
        Some(cores) => cores.clone(),
        None if spare.len() < 2 => online.iter().collect(),
        None => spare,
    };
    if let Some(&core) = cores.iter().chain([&system_core]).find(|core| !online.contains(**core)) {
        return Err(Error::Core { core, online: Box::new(online) });
    }
    let capacity = deadline_capacity().unwrap_or(options.most_bandwidth);
    let most_bandwidth = options.most_bandwidth.min(capacity);
    let most_system_bandwidth =
        options.most_system_bandwidth.map_or(most_bandwidth, |most| most.min(capacity));
    Ok(Platform {
        most_bandwidth,
        most_system_bandwidth,
        enforcement_ns: takt_reserve::enforce::known(&Linux::new()).granularity_ns,
        ..Platform::new(cores, system_core, most_bandwidth)
    })
}
