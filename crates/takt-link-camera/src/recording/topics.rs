//! Topics of a recording that belong to a camera.

use super::ReplayConfig;
use super::contents::Channel;

/// Colour topics of Takt and Foxglove, then those of ROS 2's camera drivers; rectified images come
/// first.
const COLOUR: [&str; 9] = [
    "color",
    "color/image_rect",
    "color/image_rect/compressed",
    "color/image_raw",
    "color/image_raw/compressed",
    "rgb/image_rect",
    "rgb/image_rect/compressed",
    "rgb/image_raw",
    "rgb/image_raw/compressed",
];

/// Depth topics that are aligned to colour by their name.
const DEPTH: [&str; 7] = [
    "depth",
    "aligned_depth_to_color/image_raw",
    "aligned_depth_to_color/image_raw/compressedDepth",
    "depth_registered/image_rect",
    "depth_registered/image_raw",
    "depth_registered/image_raw/compressedDepth",
    "depth_to_rgb/image_raw",
];

/// Names that a camera's topics may have, the best one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub colour: Vec<String>,
    /// Empty where only colour is replayed.
    pub depth: Vec<String>,
    pub calibration: Vec<String>,
    /// Whether the calibration's name is the user's.
    calibration_set: bool,
}

impl Names {
    pub(super) fn new(config: &ReplayConfig) -> Self {
        let prefix = config.topic.trim_end_matches('/');
        let names = |set: &Option<String>, defaults: &[&str]| match set {
            Some(name) => vec![name.clone()],
            None => defaults.iter().map(|name| format!("{prefix}/{name}")).collect(),
        };
        let colour = names(&config.color_topic, &COLOUR);
        let depth = if config.color_only { Vec::new() } else { names(&config.depth_topic, &DEPTH) };
        let mut calibration = names(&config.calibration_topic, &["calibration"]);
        let calibration_set = config.calibration_topic.is_some();
        if !calibration_set {
            calibration.extend(colour.iter().filter_map(|topic| camera_info(topic)));
        }
        Self { colour, depth, calibration, calibration_set }
    }

    /// Whether messages of the topic may be asked for.
    pub(super) fn include(&self, topic: &str) -> bool {
        let is = |name: &String| name == topic;
        let beside = |name: &String| camera_info(name).is_some_and(|info| info == topic);
        self.colour.iter().any(is)
            || self.depth.iter().any(|name| is(name) || beside(name))
            || self.calibration.iter().any(is)
    }

    /// Names of the calibration of a colour topic.
    pub(super) fn calibration_of(&self, colour: &str) -> Vec<String> {
        let mut names = vec![self.calibration[0].clone()];
        if !self.calibration_set {
            names.extend(camera_info(colour));
        }
        names
    }
}

/// The first of the names that the recording has.
pub(super) fn present(names: &[String], channels: &[&Channel]) -> Option<String> {
    let has = |name: &&String| channels.iter().any(|channel| channel.topic == **name);
    names.iter().find(has).cloned()
}

/// Topic on which ROS 2 publishes the calibration of an image topic: next to it, whatever transport
/// compresses it.
pub(super) fn camera_info(topic: &str) -> Option<String> {
    let raw = ["/compressed", "/compressedDepth"].iter().find_map(|transport| topic.strip_suffix(transport));
    let (folder, _) = raw.unwrap_or(topic).rsplit_once('/')?;
    Some(format!("{folder}/camera_info"))
}

/// Whether a topic's images are rectified, by ROS 2's names (`image_rect`, `image_rect_color`).
pub(super) fn is_rectified(topic: &str) -> bool {
    topic.split('/').any(|part| part.starts_with("image_rect"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camera_info_lies_beside_the_images_whatever_compresses_them() {
        for (topic, info) in [
            ("/c/color/image_raw", "/c/color/camera_info"),
            ("/c/color/image_raw/compressed", "/c/color/camera_info"),
            ("/c/aligned/image_raw/compressedDepth", "/c/aligned/camera_info"),
        ] {
            assert_eq!(camera_info(topic).as_deref(), Some(info));
        }
        assert_eq!(camera_info("image"), None);
        assert!(is_rectified("/c/image_rect_color/compressed") && !is_rectified("/rectified/image_raw"));
    }
}
