//! `takt check` of a cell: its recordings and networks are opened, as a start does.

use takt_link_camera::recording::FrameReader;
use takt_link_camera::{CameraConfig, CameraError, Frame, is_built};
use takt_perception::prove_networks;

use super::file::CellFile;
use crate::error::CellError;

/// What was found, a sentence each.
///
/// # Errors
/// What a start would refuse.
pub(super) fn inspect(file: &CellFile) -> Result<Vec<String>, CellError> {
    let mut found = Vec::new();
    for camera in &file.cameras {
        let name = &camera.name;
        let failed = |source| CellError::Camera { name: name.clone(), source: Box::new(source) };
        match &camera.source {
            CameraConfig::Replay(replay) => {
                let mut reader = FrameReader::open(replay).map_err(failed)?;
                let size = reader.intrinsics();
                let mut frame = Frame::new(size.width, size.height);
                if !reader.read(&mut frame).map_err(failed)? {
                    return Err(failed(CameraError::Missing(
                        "the recording has no frame behind start_offset_s: choose a smaller one",
                    )));
                }
                found.push(format!("camera \"{name}\": recording, {}x{}", size.width, size.height));
            }
            CameraConfig::Synthetic(_) => found.push(format!("camera \"{name}\": rendered scene")),
            CameraConfig::Realsense(realsense) => {
                let which = realsense.serial.as_deref().unwrap_or("the first that is found");
                let missing = match is_built(&camera.source) {
                    Ok(()) => "not opened by a check".to_owned(),
                    Err(error) => format!("`takt run` of this build will refuse it: {error}"),
                };
                found.push(format!("camera \"{name}\": RealSense ({which}); {missing}"));
            }
        }
    }
    found.extend(prove_networks(&file.perception)?);
    Ok(found)
}
