//! The two recipes of a stream and how their values lie in the packets.

use super::{ProgramState, ServoCommand, ServoState};
use crate::session::Variable;
use crate::wire::{DataType, Fields, HEADER_BYTES, PacketType, PacketWriter, WireError};
use crate::{RobotMode, SafetyMode};

pub(super) const OUTPUTS: [Variable; 11] = [
    ("timestamp", DataType::Double),
    ("actual_q", DataType::Vector6d),
    ("actual_qd", DataType::Vector6d),
    ("robot_mode", DataType::Int32),
    ("safety_mode", DataType::Int32),
    ("runtime_state", DataType::Uint32),
    ("target_speed_fraction", DataType::Double),
    ("output_int_register_29", DataType::Int32),
    ("output_int_register_30", DataType::Int32),
    ("output_int_register_31", DataType::Int32),
    ("output_int_register_32", DataType::Int32),
];

pub(super) const INPUTS: [Variable; 12] = [
    ("input_int_register_24", DataType::Int32),
    ("input_int_register_25", DataType::Int32),
    ("input_int_register_26", DataType::Int32),
    ("input_double_register_24", DataType::Double),
    ("input_double_register_25", DataType::Double),
    ("input_double_register_26", DataType::Double),
    ("input_double_register_27", DataType::Double),
    ("input_double_register_28", DataType::Double),
    ("input_double_register_29", DataType::Double),
    ("input_double_register_30", DataType::Double),
    ("input_double_register_31", DataType::Double),
    ("input_double_register_32", DataType::Double),
];

/// Size of a command packet: header, recipe, and [`INPUTS`] in order.
pub(super) const COMMAND_BYTES: usize = HEADER_BYTES + 1 + 3 * 4 + 9 * 8;

/// `runtime_state`: a program runs.
const PLAYING: u32 = 2;

/// Decodes the values of [`OUTPUTS`]. Sequence and time of arrival are the caller's.
pub(super) fn decode(values: &[u8]) -> Result<ServoState, WireError> {
    let mut fields = Fields::new(values);
    let state = ServoState {
        sequence: 0,
        received_ns: 0,
        controller_s: fields.f64()?,
        joints_rad: fields.doubles()?,
        joint_speeds_rad_s: fields.doubles()?,
        robot_mode: RobotMode::from_rtde(fields.i32()?),
        safety_mode: SafetyMode::from_rtde(fields.i32()?),
        program_running: fields.u32()? == PLAYING,
        speed_fraction: fields.f64()?,
        count_read: fields.i32()?,
        program: ProgramState::from_register(fields.i32()?),
        missed: fields.i32()?,
        longest: fields.i32()?,
    };
    fields.finish()?;
    Ok(state)
}

/// Lays a command out.
pub(super) fn encode(command: &ServoCommand, recipe: u8, buffer: &mut [u8; COMMAND_BYTES]) {
    let packed = PacketWriter::new(buffer, PacketType::Data)
        .u8(recipe)
        .i32(command.count)
        .i32(command.asked)
        .i32(command.silent_cycles)
        .doubles(&command.targets_rad)
        .f64(command.lookahead_s)
        .f64(command.gain)
        .f64(command.answered_s)
        .finish();
    debug_assert_eq!(packed, Ok(COMMAND_BYTES));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_as_long_as_its_recipe_and_a_state_as_its_own() {
        let payload: usize = INPUTS.iter().map(|(_, kind)| kind.size()).sum();
        assert_eq!(COMMAND_BYTES, HEADER_BYTES + 1 + payload);
        let size: usize = OUTPUTS.iter().map(|(_, kind)| kind.size()).sum();
        assert!(decode(&vec![0; size]).is_ok());
        assert!(decode(&vec![0; size - 1]).is_err());
        assert_eq!(decode(&vec![0; size + 1]), Err(WireError::Trailing { left: 1 }));
    }
}
