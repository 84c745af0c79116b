//! `takt check` of a cell: its recordings and networks are opened, as a start does.

use takt_perception::prove_networks;

use super::file::CellFile;
use crate::error::CellError;

/// Findings, one sentence each.
///
/// # Errors
/// The error with which a start would refuse.
pub(super) fn inspect(file: &CellFile) -> Result<Vec<String>, CellError> {
    let mut found = Vec::new();
    for camera in &file.cameras {
        let name = &camera.name;
        let failed = |source| CellError::Camera { name: name.clone(), source: Box::new(source) };
        let words = camera.source.inspect().map_err(failed)?;
        found.push(format!("camera \"{name}\": {words}"));
    }
    found.extend(prove_networks(&file.perception)?);
    Ok(found)
}
