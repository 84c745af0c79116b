//! Messages of the primary client interface, as bytes.

use crate::kinematics::Arm;
use crate::wire::{Fields, WireError};

/// Type of a message that holds the robot's state.
pub(crate) const ROBOT_STATE: u8 = 16;
/// Type of the sub-package with the calibrated kinematics.
pub(crate) const KINEMATICS_INFO: u8 = 5;
/// Size and type.
pub(crate) const HEAD_BYTES: usize = 5;
/// Longest message that is taken. Robot states are below 2 kB; some other messages carry texts.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// A sane arm: links and offsets below this, metres. Offsets of nearly parallel axes may be far
/// larger than the arm.
const MAX_LENGTH_M: f64 = 10.0;
const MAX_OFFSET_M: f64 = 10_000.0;
const MAX_ANGLE_RAD: f64 = 4.0 * std::f64::consts::PI;

/// Reason why bytes are not a message of the client interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrimaryError {
    /// A size that no message has.
    #[error(
        "a message of {received} bytes, accepted: 5 to {MAX_MESSAGE_BYTES}; is this the client interface's port?"
    )]
    Size {
        /// As received.
        received: i64,
    },
    /// A sub-package that is longer than what is left of its message.
    #[error("a sub-package of {received} bytes where {left} are left")]
    SubPackage {
        /// As received.
        received: i64,
        /// Bytes left.
        left: usize,
    },
    /// A sub-package that ends too soon.
    #[error("kinematics info: {0}")]
    Short(#[from] WireError),
    /// Numbers that are no arm.
    #[error(
        "kinematics info with impossible {what}; accepted: finite, lengths within 10 m, angles within 4 pi"
    )]
    Impossible {
        /// The numbers, in words.
        what: &'static str,
    },
}

/// The calibrated Denavit-Hartenberg parameters that a controller reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KinematicsInfo {
    /// Checksum of each joint's calibration.
    pub checksums: [u32; 6],
    /// Angles that are added to the joints', radians.
    pub theta_rad: [f64; 6],
    /// Link lengths, metres.
    pub a_m: [f64; 6],
    /// Link offsets, metres.
    pub d_m: [f64; 6],
    /// Link twists, radians.
    pub alpha_rad: [f64; 6],
    /// Status of the calibration as the controller shows it. The guide names no values that could
    /// be judged.
    pub calibration_status: u32,
}

impl KinematicsInfo {
    /// The arm that it describes; what it does not report (limits) is the nominal arm's.
    pub const fn arm(&self, nominal: &Arm) -> Arm {
        Arm { a_m: self.a_m, d_m: self.d_m, alpha_rad: self.alpha_rad, theta_rad: self.theta_rad, ..*nominal }
    }

    /// The controller's report on an arm.
    pub const fn of(arm: &Arm) -> Self {
        Self {
            checksums: [0; 6],
            theta_rad: arm.theta_rad,
            a_m: arm.a_m,
            d_m: arm.d_m,
            alpha_rad: arm.alpha_rad,
            calibration_status: 0,
        }
    }

    fn parse(body: &[u8]) -> Result<Self, PrimaryError> {
        let mut fields = Fields::new(body);
        let mut checksums = [0; 6];
        for sum in &mut checksums {
            *sum = fields.u32()?;
        }
        let info = Self {
            checksums,
            theta_rad: fields.doubles()?,
            a_m: fields.doubles()?,
            d_m: fields.doubles()?,
            alpha_rad: fields.doubles()?,
            // The guide says one byte, controllers send four: what follows the parameters is of no
            // use here.
            calibration_status: fields.u32().unwrap_or_default(),
        };
        let within = |values: &[f64; 6], limit: f64| values.iter().all(|value| value.abs() <= limit);
        for (what, holds) in [
            ("theta", within(&info.theta_rad, MAX_ANGLE_RAD)),
            ("a", within(&info.a_m, MAX_LENGTH_M)),
            ("d", within(&info.d_m, MAX_OFFSET_M)),
            ("alpha", within(&info.alpha_rad, MAX_ANGLE_RAD)),
        ] {
            if !holds {
                return Err(PrimaryError::Impossible { what });
            }
        }
        Ok(info)
    }

    /// A robot state that holds this and nothing else, as a controller sends it.
    pub fn message(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for sum in self.checksums {
            body.extend(sum.to_be_bytes());
        }
        for value in [self.theta_rad, self.a_m, self.d_m, self.alpha_rad].iter().flatten() {
            body.extend(value.to_be_bytes());
        }
        body.extend(self.calibration_status.to_be_bytes());
        framed(ROBOT_STATE, &framed(KINEMATICS_INFO, &body))
    }
}

/// A message or sub-package: size, type, content.
pub(crate) fn framed(kind: u8, content: &[u8]) -> Vec<u8> {
    let size = (content.len() + HEAD_BYTES) as u32;
    let mut bytes = Vec::with_capacity(content.len() + HEAD_BYTES);
    bytes.extend(size.to_be_bytes());
    bytes.push(kind);
    bytes.extend(content);
    bytes
}

/// The kinematics in the content of a robot state (what follows size and type); `None` where it
/// holds none.
///
/// # Errors
/// Sub-packages that do not fit, or numbers that are no arm.
pub fn kinematics_in(content: &[u8]) -> Result<Option<KinematicsInfo>, PrimaryError> {
    let mut left = content;
    while !left.is_empty() {
        let mut head = Fields::new(left);
        let (size, kind) = (head.u32()?, head.u8()?);
        let package = usize::try_from(size).ok().filter(|size| (HEAD_BYTES..=left.len()).contains(size));
        let Some(size) = package else {
            return Err(PrimaryError::SubPackage { received: i64::from(size), left: left.len() });
        };
        if kind == KINEMATICS_INFO {
            return KinematicsInfo::parse(&left[HEAD_BYTES..size]).map(Some);
        }
        left = &left[size..];
    }
    Ok(None)
}

/// Cuts a stream into messages and looks for kinematics in the robot's states.
#[derive(Clone, Debug, Default)]
pub struct StateBuffer {
    bytes: Vec<u8>,
}

impl StateBuffer {
    /// Takes what has come; the kinematics once a state with them is whole.
    ///
    /// # Errors
    /// The received bytes are not a stream of messages.
    pub fn take(&mut self, received: &[u8]) -> Result<Option<KinematicsInfo>, PrimaryError> {
        self.bytes.extend_from_slice(received);
        while let Some((head, _)) = self.bytes.split_first_chunk::<HEAD_BYTES>() {
            let size = i32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            let kind = head[4];
            let Some(size) =
                usize::try_from(size).ok().filter(|size| (HEAD_BYTES..=MAX_MESSAGE_BYTES).contains(size))
            else {
                return Err(PrimaryError::Size { received: i64::from(size) });
            };
            if self.bytes.len() < size {
                break;
            }
            let found =
                if kind == ROBOT_STATE { kinematics_in(&self.bytes[HEAD_BYTES..size])? } else { None };
            self.bytes.drain(..size);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinematics::UR10E;
    use proptest::prelude::*;

    fn info(seed: u32) -> KinematicsInfo {
        let mut info = KinematicsInfo::of(&UR10E);
        info.checksums = std::array::from_fn(|joint| seed.wrapping_mul(31).wrapping_add(joint as u32));
        (info.theta_rad[2], info.d_m[1], info.calibration_status) = (1e-3, 91.25, seed);
        info
    }

    /// Laid out by hand from the guide: 225 bytes, checksums, theta, a, d, alpha, status.
    #[test]
    fn the_layout_is_the_guide_s() {
        let message = info(7).message();
        assert_eq!(message.len(), 5 + 225);
        assert_eq!(message[..10], [0, 0, 0, 230, 16, 0, 0, 0, 225, 5]);
        let double = |at: usize| f64::from_be_bytes(message[at..at + 8].try_into().unwrap());
        let theta = 10 + 24;
        assert_eq!((double(theta + 16), double(theta + 48 + 8)), (1e-3, -0.6127));
        assert_eq!((double(theta + 96), double(theta + 96 + 8)), (0.1807, 91.25));
        assert_eq!(double(theta + 144), std::f64::consts::FRAC_PI_2);
    }

    #[test]
    fn other_messages_and_sub_packages_are_passed_over() {
        let state = info(3).message();
        let inner =
            [framed(0, &[1; 38]), framed(1, &[]), state[HEAD_BYTES..].to_vec(), framed(9, &[0; 4])].concat();
        let stream = [framed(20, &[5; 90]), framed(16, &framed(0, &[2; 38])), framed(16, &inner)].concat();
        assert_eq!(StateBuffer::default().take(&stream), Ok(Some(info(3))));
    }

    #[test]
    fn a_stream_of_something_else_is_refused() {
        let error = StateBuffer::default().take(b"HTTP/1.1 400 Bad Request").unwrap_err();
        assert!(error.to_string().contains("client interface"), "{error}");
        assert!(StateBuffer::default().take(&[0, 0, 0, 4, 16]).is_err(), "shorter than its own head");
        let mut nan = info(1);
        nan.a_m[3] = f64::NAN;
        assert_eq!(StateBuffer::default().take(&nan.message()), Err(PrimaryError::Impossible { what: "a" }));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 1usize..64) {
            let mut buffer = StateBuffer::default();
            for part in bytes.chunks(cut) {
                if buffer.take(part).is_err() {
                    break;
                }
            }
            let _ = kinematics_in(&bytes);
        }

        #[test]
        fn a_flipped_byte_is_a_value_or_an_error(at in 0usize..230, flip in 1u8..) {
            let mut message = info(9).message();
            message[at] ^= flip;
            if let Ok(Some(found)) = StateBuffer::default().take(&message) {
                prop_assert!(found.a_m.iter().chain(&found.d_m).all(|value| value.is_finite()));
            }
        }

        #[test]
        fn however_it_is_cut_it_is_found(seed: u32, cut in 1usize..300, before in prop::collection::vec(0u8..=255, 0..40)) {
            let stream = [framed(20, &before), info(seed).message()].concat();
            let mut buffer = StateBuffer::default();
            let mut found = None;
            for part in stream.chunks(cut) {
                found = found.or(buffer.take(part).unwrap());
            }
            prop_assert_eq!(found, Some(info(seed)));
        }
    }
}
