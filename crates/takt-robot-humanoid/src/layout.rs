//! Where the objects of a drive lie in its process data.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use takt_rt::config::SettingError;

use crate::joint::DriveMode;

/// Where a drive's objects lie in its process data (RxPDO 0x1600 and TxPDO 0x1A00 in the usual
/// assignment). Little endian. Objects that a drive does not map are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DriveLayout {
    /// Bytes from the drive.
    pub input_bytes: usize,
    /// Offset of the statusword (0x6041), 16 bits.
    pub statusword: usize,
    /// Offset of the actual position (0x6064), 32 bits.
    pub position: usize,
    /// Offset of the actual velocity (0x606C), 32 bits. Without it CST takes the difference of
    /// positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub velocity: Option<usize>,
    /// Offset of the mode that the drive works in (0x6061), 8 bits. Where it is mapped, torque
    /// comes on once it is the mode wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode_display: Option<usize>,
    /// Bytes to the drive.
    pub output_bytes: usize,
    /// Offset of the controlword (0x6040), 16 bits.
    pub controlword: usize,
    /// Offset of the target position (0x607A), 32 bits; for CSP. In CSV and CST it holds where the
    /// joint is, so that a drive that is still in CSP stays there; `output_bytes` or more says that
    /// the drive does not map it: code asks [`target`](Self::target).
    pub target: usize,
    /// Offset of the target velocity (0x60FF), 32 bits; for CSV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_velocity: Option<usize>,
    /// Offset of the target torque (0x6071), 16 bits; for CST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_torque: Option<usize>,
    /// Offset of the mode (0x6060), 8 bits. Where it is not mapped the mode is written once, before
    /// SAFE-OP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<usize>,
    /// PDO to the drive that is assigned before SAFE-OP (0x1C12), as 0x1601. Absent: the one that
    /// the drive has assigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_pdo: Option<u16>,
    /// PDO from the drive, likewise (0x1C13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_pdo: Option<u16>,
}

impl Default for DriveLayout {
    /// Word and position each way: 12 bytes a drive keep 59 devices in one frame.
    fn default() -> Self {
        Self {
            input_bytes: 6,
            statusword: 0,
            position: 2,
            velocity: None,
            mode_display: None,
            output_bytes: 6,
            controlword: 0,
            target: 2,
            target_velocity: None,
            target_torque: None,
            mode: None,
            rx_pdo: None,
            tx_pdo: None,
        }
    }
}

impl DriveLayout {
    /// All objects of the three modes: RxPDO 0x1601 and TxPDO 0x1A01 of the simulated drives, 14
    /// bytes each way.
    pub fn all_modes() -> Self {
        Self {
            input_bytes: 14,
            velocity: Some(6),
            mode_display: Some(12),
            output_bytes: 14,
            target_velocity: Some(6),
            target_torque: Some(10),
            mode: Some(12),
            rx_pdo: Some(0x1601),
            tx_pdo: Some(0x1A01),
            ..Self::default()
        }
    }

    /// Where the target position lies; `None` for a drive that does not map it.
    pub fn target(&self) -> Option<usize> {
        (self.target < self.output_bytes).then_some(self.target)
    }

    /// Checks it for drives in `mode`; `None`: for what holds in every mode.
    pub(crate) fn validate(&self, mode: Option<DriveMode>) -> Result<(), SettingError> {
        // A frame holds 1486 bytes of process data (ETG.1000.4), so that no device of a segment has
        // more.
        for (key, bytes) in [("input_bytes", self.input_bytes), ("output_bytes", self.output_bytes)] {
            if bytes > 1486 {
                return Err(SettingError::value(key, bytes, "accepted are 0 to 1486, what one frame holds"));
            }
        }
        for objects in [&INPUTS[..], &OUTPUTS[..]] {
            objects.iter().try_for_each(|object| object.fits(self))?;
        }
        match mode {
            // Its target is looked at wherever it lies: this mode cannot do without it.
            Some(DriveMode::Csp) => TARGET.fits_at(self, self.target)?,
            Some(DriveMode::Csv) if self.target_velocity.is_none() => {
                return Err(SettingError::conflict("target_velocity is not set", "mode \"csv\" needs it"));
            }
            Some(DriveMode::Cst) if self.target_torque.is_none() => {
                return Err(SettingError::conflict("target_torque is not set", "mode \"cst\" needs it"));
            }
            _ => {}
        }
        apart(&INPUTS, self)?;
        apart(&OUTPUTS, self)
    }
}

/// An object in the process data: its key, its bytes, and where a layout has it. A new object is a
/// field of [`DriveLayout`], a row here, and its use in `controller.rs`.
struct Object {
    key: &'static str,
    width: usize,
    way: Way,
    offset: fn(&DriveLayout) -> Option<usize>,
}

/// Which way an object goes.
#[derive(Clone, Copy)]
enum Way {
    FromDrive,
    ToDrive,
}

const fn input(key: &'static str, width: usize, offset: fn(&DriveLayout) -> Option<usize>) -> Object {
    Object { key, width, way: Way::FromDrive, offset }
}

const fn output(key: &'static str, width: usize, offset: fn(&DriveLayout) -> Option<usize>) -> Object {
    Object { key, width, way: Way::ToDrive, offset }
}

/// What a drive sends.
const INPUTS: [Object; 4] = [
    input("statusword", 2, |layout| Some(layout.statusword)),
    input("position", 4, |layout| Some(layout.position)),
    input("velocity", 4, |layout| layout.velocity),
    input("mode_display", 1, |layout| layout.mode_display),
];

const TARGET: Object = output("target", 4, DriveLayout::target);

/// What a drive takes.
const OUTPUTS: [Object; 5] = [
    output("controlword", 2, |layout| Some(layout.controlword)),
    TARGET,
    output("target_velocity", 4, |layout| layout.target_velocity),
    output("target_torque", 2, |layout| layout.target_torque),
    output("mode", 1, |layout| layout.mode),
];

impl Object {
    fn fits(&self, layout: &DriveLayout) -> Result<(), SettingError> {
        (self.offset)(layout).map_or(Ok(()), |offset| self.fits_at(layout, offset))
    }

    fn fits_at(&self, layout: &DriveLayout, offset: usize) -> Result<(), SettingError> {
        let bytes = match self.way {
            Way::FromDrive => layout.input_bytes,
            Way::ToDrive => layout.output_bytes,
        };
        if offset.checked_add(self.width).is_some_and(|end| end <= bytes) {
            return Ok(());
        }
        let accepted = format!("{} bytes do not fit the {bytes} bytes of process data", self.width);
        Err(SettingError::value(self.key, offset, accepted))
    }
}

/// Refuses objects that share bytes: one would overwrite the other.
fn apart(objects: &[Object], layout: &DriveLayout) -> Result<(), SettingError> {
    for (place, object) in objects.iter().enumerate() {
        for before in &objects[..place] {
            let (Some(at), Some(other)) = ((object.offset)(layout), (before.offset)(layout)) else {
                continue;
            };
            if at < other + before.width && other < at + object.width {
                let unmapped = if [object.key, before.key].contains(&TARGET.key) {
                    "; a drive in csv or cst that does not map 0x607A has target = output_bytes"
                } else {
                    ""
                };
                let accepted = format!(
                    "its {} bytes overlap the {} bytes of {} = {other}; accepted are offsets that share no byte{unmapped}",
                    object.width, before.width, before.key
                );
                return Err(SettingError::value(object.key, at, accepted));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn objects() -> impl Iterator<Item = &'static Object> {
        INPUTS.iter().chain(&OUTPUTS)
    }

    #[test]
    fn every_key_that_is_an_offset_is_an_object() {
        let table = toml::Table::try_from(DriveLayout::all_modes()).unwrap();
        let keys: BTreeSet<&str> = table.keys().map(String::as_str).collect();
        let others = ["input_bytes", "output_bytes", "rx_pdo", "tx_pdo"];
        let known: BTreeSet<&str> = objects().map(|object| object.key).chain(others).collect();
        assert_eq!(keys, known);
    }

    #[test]
    fn every_object_lies_where_its_own_key_says() {
        for object in objects() {
            let at = |offset: i64| {
                let mut table = toml::Table::try_from(DriveLayout::all_modes()).unwrap();
                table.insert(object.key.to_owned(), offset.into());
                let layout: DriveLayout = table.try_into().unwrap();
                (object.offset)(&layout)
            };
            assert_eq!((at(3), at(5)), (Some(3), Some(5)), "{}", object.key);
        }
    }

    #[test]
    fn objects_that_do_not_fit_or_overlap_are_refused_by_their_key() {
        for object in objects() {
            let refused = |offset: i64| {
                let mut table = toml::Table::try_from(DriveLayout::all_modes()).unwrap();
                table.insert(object.key.to_owned(), offset.into());
                let layout: DriveLayout = table.try_into().unwrap();
                layout.validate(Some(DriveMode::Csp)).unwrap_err().to_string()
            };
            let far = refused(200);
            assert!(far.contains(object.key) && far.contains("do not fit"), "{far}");
        }
        let layout = DriveLayout { target_torque: Some(7), ..DriveLayout::all_modes() };
        let error = layout.validate(Some(DriveMode::Cst)).unwrap_err().to_string();
        assert!(error.contains("target_torque") && error.contains("target_velocity = 6"), "{error}");
        assert!(DriveLayout::all_modes().validate(Some(DriveMode::Cst)).is_ok());
        let unmapped = DriveLayout { target: 14, ..DriveLayout::all_modes() };
        assert_eq!((unmapped.target(), unmapped.validate(Some(DriveMode::Csv)).is_ok()), (None, true));
        assert!(unmapped.validate(Some(DriveMode::Csp)).is_err());
    }
}
