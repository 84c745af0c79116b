//! The shipped campaigns: each reproduces a paper's experiment, and comes with its robot.

use super::CampaignFile;
use crate::LabError;
use crate::registry::Registry;

/// Name and text of every shipped campaign.
pub fn all(registry: &Registry) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    registry.kinds().iter().flat_map(|kind| kind.campaigns)
}

/// Text of a shipped campaign.
///
/// # Errors
/// [`LabError::Config`] for a name that is none.
pub fn shipped_text(registry: &Registry, name: &str) -> Result<&'static str, LabError> {
    all(registry).find(|(known, _)| *known == name).map(|(_, text)| *text).ok_or_else(|| {
        let names: Vec<&str> = all(registry).map(|(name, _)| *name).collect();
        LabError::Config(format!(
            "\"{name}\": no file and no shipped campaign has that name; shipped campaigns: {}{}",
            names.join(", "),
            takt_files::did_you_mean(name, names.iter().copied())
        ))
    })
}

/// A shipped campaign by its name.
///
/// # Errors
/// [`LabError::Config`] for a name that is none.
pub fn shipped(registry: &Registry, name: &str) -> Result<CampaignFile, LabError> {
    CampaignFile::parse(shipped_text(registry, name)?, &format!("campaigns/{name}.toml (built in)"))
}
