//! Judges on the GPU.

use takt_gpu::{CudaVersion, Gpu, Info};
use takt_rt::census::CensusKeeper;

use crate::region::Setup;
use crate::said::About;
use crate::worker::Judges;

/// What a run directory keeps of a device.
fn about(info: &Info, engine: String) -> About {
    let mut labels = Vec::new();
    if info.emulated {
        labels.push("the GPU is emulated: its times say nothing about a GPU".to_owned());
    }
    About {
        device: format!("{} ({})", info.name, info.uuid),
        driver: format!("CUDA {}", CudaVersion(info.driver_version)),
        engine,
        labels,
    }
}

/// Judges on the GPU of the setup.
pub(crate) fn judges(
    setup: &Setup,
    _census: &CensusKeeper,
    _progress: &mut dyn FnMut(String),
) -> Result<Judges, String> {
    let gpu = Gpu::open(setup.perception.gpu.ordinal).map_err(|e| e.to_string())?;
    let _about = about(gpu.info(), String::new());
    Err("no GPU pipeline in this program yet".to_owned())
}
