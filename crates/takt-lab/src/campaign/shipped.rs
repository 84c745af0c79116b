//! The shipped campaigns: each reproduces a paper's experiment.

use super::CampaignFile;
use crate::LabError;

/// Name and text of every shipped campaign.
pub const SHIPPED: [(&str, &str); 11] = [
    ("sentryrt1", include_str!("../../../../campaigns/sentryrt1.toml")),
    ("sentryrt1-gpu", include_str!("../../../../campaigns/sentryrt1-gpu.toml")),
    ("sentryrt1-kernels", include_str!("../../../../campaigns/sentryrt1-kernels.toml")),
    ("uav", include_str!("../../../../campaigns/uav.toml")),
    ("uav-isolation", include_str!("../../../../campaigns/uav-isolation.toml")),
    ("uav-kernels", include_str!("../../../../campaigns/uav-kernels.toml")),
    ("humanoid", include_str!("../../../../campaigns/humanoid.toml")),
    ("manager", include_str!("../../../../campaigns/manager.toml")),
    ("daq", include_str!("../../../../campaigns/daq.toml")),
    ("daq-cores", include_str!("../../../../campaigns/daq-cores.toml")),
    ("daq-long", include_str!("../../../../campaigns/daq-long.toml")),
];

/// A shipped campaign by its name.
///
/// # Errors
/// [`LabError::Config`] for a name that is none.
pub fn shipped(name: &str) -> Result<CampaignFile, LabError> {
    match SHIPPED.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => CampaignFile::parse(text, &format!("campaigns/{name}.toml (built in)")),
        None => {
            let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            Err(LabError::Config(format!(
                "\"{name}\" is no file and no shipped campaign; shipped are {}",
                names.join(", ")
            )))
        }
    }
}
