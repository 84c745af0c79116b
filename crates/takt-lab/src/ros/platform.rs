//! What of this machine the manager may reserve.

use takt_manager::Platform;
use takt_manager::goals::Options;
use takt_manager::system::deadline_room;
use takt_rt::placement::online;

use crate::LabError;

/// Cores and their greatest bandwidth, from the goals' options and what the kernel admits.
///
/// Without a choice in the options, all cores but the system core take reservations, as in the paper; a machine with one or two
/// cores has none to spare, so the system core takes them as well.
///
/// # Errors
/// [`LabError::Config`] when the kernel does not say which CPUs it has.
pub fn platform(options: &Options) -> Result<Platform, LabError> {
    let online = online().map_err(|error| LabError::Config(format!("CPUs online: {error}")))?;
    let all: Vec<usize> = online.iter().collect();
    let spare: Vec<usize> = all.iter().copied().filter(|cpu| *cpu != options.system_core).collect();
    let cores = match &options.cores {
        Some(cores) => cores.clone(),
        None if spare.len() < 2 => all,
        None => spare,
    };
    // Where it cannot be told, the kernel's default with a fair server.
    let room = deadline_room().unwrap_or(0.9);
    Ok(Platform { cores, system_core: options.system_core, most_bandwidth: options.most_bandwidth.min(room) })
}
