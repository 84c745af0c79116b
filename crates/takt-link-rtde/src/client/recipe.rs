//! The two recipes of the safety job and how their values lie in the packets.

use crate::session::Variable;
use crate::wire::{DataType, Fields, HEADER_BYTES, PacketType, PacketWriter, WireError};
use crate::{Command, RobotMode, RobotState, SafetyMode};

pub(super) const OUTPUTS: [Variable; 14] = [
    ("timestamp", DataType::Double),
    ("actual_q", DataType::Vector6d),
    ("actual_qd", DataType::Vector6d),
    ("actual_TCP_pose", DataType::Vector6d),
    ("actual_TCP_speed", DataType::Vector6d),
    ("robot_mode", DataType::Int32),
    ("safety_mode", DataType::Int32),
    ("runtime_state", DataType::Uint32),
    ("target_speed_fraction", DataType::Double),
    ("actual_digital_output_bits", DataType::Uint64),
    ("input_int_register_24", DataType::Int32),
    ("output_int_register_26", DataType::Int32),
    ("output_int_register_27", DataType::Int32),
    ("output_int_register_28", DataType::Int32),
];

pub(super) const INPUTS: [Variable; 6] = [
    ("speed_slider_mask", DataType::Uint32),
    ("speed_slider_fraction", DataType::Double),
    ("standard_digital_output_mask", DataType::Uint8),
    ("standard_digital_output", DataType::Uint8),
    ("input_int_register_24", DataType::Int32),
    ("input_int_register_27", DataType::Int32),
];

/// Size of a command packet: header, recipe, and [`INPUTS`] in order.
pub(super) const COMMAND_BYTES: usize = HEADER_BYTES + 1 + 4 + 8 + 1 + 1 + 4 + 4;

/// `runtime_state`: a program runs.
const PLAYING: u32 = 2;

/// Decodes the values of [`OUTPUTS`]. What reports of time and connection is the caller's.
pub(super) fn decode(values: &[u8], state: &mut RobotState) -> Result<(), WireError> {
    let mut fields = Fields::new(values);
    *state = RobotState {
        sequence: state.sequence,
        received_ns: state.received_ns,
        measured_ns: state.measured_ns,
        age_error_ns: state.age_error_ns,
        content: state.content,
        clock_faults: state.clock_faults,
        clock_fault: state.clock_fault,
        heartbeat_echo_ns: state.heartbeat_echo_ns,
        script_echo_ns: state.script_echo_ns,
        connected: state.connected,
        controller_s: fields.f64()?,
        joints_rad: fields.doubles()?,
        joint_speeds_rad_s: fields.doubles()?,
        tcp_pose: fields.doubles()?,
        tcp_speed: fields.doubles()?,
        robot_mode: RobotMode::from_rtde(fields.i32()?),
        safety_mode: SafetyMode::from_rtde(fields.i32()?),
        program_running: fields.u32()? == PLAYING,
        speed_fraction: fields.f64()?,
        digital_outputs: fields.u64()?,
        heartbeat_echo: fields.i32()?,
        script_echo: fields.i32()?,
        script_answer: fields.i32()?,
        script_guard: fields.i32()?,
    };
    fields.finish()
}

/// Lays a command out. A speed fraction that is no number means stop, others are cut to 0 to 1.
pub(super) fn encode(command: &Command, recipe: u8, buffer: &mut [u8; COMMAND_BYTES]) {
    let fraction = if command.speed_fraction.is_nan() { 0.0 } else { command.speed_fraction.clamp(0.0, 1.0) };
    let packed = PacketWriter::new(buffer, PacketType::Data)
        .u8(recipe)
        .u32(1)
        .f64(fraction)
        .u8(command.digital_outputs_mask)
        .u8(command.digital_outputs)
        .i32(command.heartbeat)
        .i32(command.challenge)
        .finish();
    debug_assert_eq!(packed, Ok(COMMAND_BYTES));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_packet_is_as_long_as_its_recipe() {
        let payload: usize = INPUTS.iter().map(|(_, kind)| kind.size()).sum();
        assert_eq!(COMMAND_BYTES, HEADER_BYTES + 1 + payload);
    }

    #[test]
    fn no_number_means_stop() {
        let mut buffer = [0; COMMAND_BYTES];
        for (asked, sent) in
            [(f64::NAN, 0.0), (-1.0, 0.0), (7.0, 1.0), (f64::NEG_INFINITY, 0.0), (0.25, 0.25)]
        {
            let command = Command {
                speed_fraction: asked,
                digital_outputs: 1,
                digital_outputs_mask: 7,
                heartbeat: -3,
                challenge: 5,
            };
            encode(&command, 9, &mut buffer);
            assert_eq!(buffer[..4], [0, COMMAND_BYTES as u8, b'U', 9]);
            let mut fields = Fields::new(&buffer[4..]);
            assert_eq!(fields.u32(), Ok(1));
            assert_eq!(fields.f64(), Ok(sent));
            assert_eq!((fields.u8(), fields.u8()), (Ok(7), Ok(1)));
            assert_eq!((fields.i32(), fields.i32()), (Ok(-3), Ok(5)));
        }
    }

    #[test]
    fn state_of_the_wrong_length_is_an_error() {
        let size: usize = OUTPUTS.iter().map(|(_, kind)| kind.size()).sum();
        let mut state = RobotState::default();
        assert_eq!(decode(&vec![0; size], &mut state), Ok(()));
        assert!(decode(&vec![0; size - 1], &mut state).is_err());
        assert_eq!(decode(&vec![0; size + 1], &mut state), Err(WireError::Trailing { left: 1 }));
    }
}
