//! The two recipes of the safety job.

use crate::recipe::{self, Field, Input, Output, Value};
use crate::wire::{HEADER_BYTES, WireError};
use crate::{Command, RobotState};

/// What the controller sends. A row that names another field than its variable's is found by
/// `each_variable_is_in_its_own_field`.
pub(super) const OUTPUTS: [Output<RobotState>; 14] = [
    ("timestamp", |s| Field::Double(&mut s.controller_s)),
    ("actual_q", |s| Field::Doubles(&mut s.joints_rad)),
    ("actual_qd", |s| Field::Doubles(&mut s.joint_speeds_rad_s)),
    ("actual_TCP_pose", |s| Field::Doubles(&mut s.tcp_pose)),
    ("actual_TCP_speed", |s| Field::Doubles(&mut s.tcp_speed)),
    ("robot_mode", |s| Field::RobotMode(&mut s.robot_mode)),
    ("safety_mode", |s| Field::SafetyMode(&mut s.safety_mode)),
    ("runtime_state", |s| Field::Playing(&mut s.program_running)),
    ("target_speed_fraction", |s| Field::Double(&mut s.speed_fraction)),
    ("actual_digital_output_bits", |s| Field::Bits(&mut s.digital_outputs)),
    ("input_int_register_24", |s| Field::Int(&mut s.heartbeat_echo)),
    ("output_int_register_26", |s| Field::Int(&mut s.script_echo)),
    ("output_int_register_27", |s| Field::Int(&mut s.script_answer)),
    ("output_int_register_28", |s| Field::Int(&mut s.script_guard)),
];

/// What the controller takes.
pub(super) const INPUTS: [Input<Command>; 6] = [
    ("speed_slider_mask", |_| Value::Mask(1)),
    ("speed_slider_fraction", |c| Value::Double(fraction(c))),
    ("standard_digital_output_mask", |c| Value::Byte(c.digital_outputs_mask)),
    ("standard_digital_output", |c| Value::Byte(c.digital_outputs)),
    ("input_int_register_24", |c| Value::Int(c.heartbeat)),
    ("input_int_register_27", |c| Value::Int(c.challenge)),
];

/// Size of a command packet: header, recipe, and [`INPUTS`] in order.
pub(super) const COMMAND_BYTES: usize = HEADER_BYTES + 1 + 4 + 8 + 1 + 1 + 4 + 4;

/// A speed fraction that is no number means stop, others are cut to 0 to 1.
fn fraction(command: &Command) -> f64 {
    if command.speed_fraction.is_nan() { 0.0 } else { command.speed_fraction.clamp(0.0, 1.0) }
}

/// Decodes the values of [`OUTPUTS`]. The caller handles time and connection.
pub(super) fn decode(values: &[u8], state: &mut RobotState) -> Result<(), WireError> {
    recipe::decode(&OUTPUTS, values, state)
}

/// Lays a command out.
pub(super) fn encode(command: &Command, recipe: u8, buffer: &mut [u8; COMMAND_BYTES]) {
    let packed = recipe::encode(&INPUTS, command, recipe, buffer);
    debug_assert_eq!(packed, Ok(COMMAND_BYTES));
}

#[cfg(test)]
mod tests {
    use crate::recipe::distinct;
    use crate::wire::Fields;
    use crate::{RobotMode, SafetyMode};

    use super::*;

    #[test]
    fn command_packet_is_as_long_as_its_recipe() {
        let payload: usize = recipe::inputs(&INPUTS).iter().map(|(_, kind)| kind.size()).sum();
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
    fn each_variable_is_in_its_own_field() {
        let variables = recipe::outputs(&OUTPUTS);
        let mut state = RobotState { sequence: 7, connected: true, ..RobotState::default() };
        decode(&distinct::packet(&variables, None), &mut state).unwrap();
        let expected = RobotState {
            sequence: 7,
            connected: true,
            controller_s: distinct::double(&variables, "timestamp"),
            joints_rad: distinct::doubles(&variables, "actual_q"),
            joint_speeds_rad_s: distinct::doubles(&variables, "actual_qd"),
            tcp_pose: distinct::doubles(&variables, "actual_TCP_pose"),
            tcp_speed: distinct::doubles(&variables, "actual_TCP_speed"),
            robot_mode: RobotMode::Idle,
            safety_mode: SafetyMode::ProtectiveStop,
            program_running: true,
            speed_fraction: distinct::double(&variables, "target_speed_fraction"),
            digital_outputs: distinct::int(&variables, "actual_digital_output_bits") as u64,
            heartbeat_echo: distinct::int(&variables, "input_int_register_24"),
            script_echo: distinct::int(&variables, "output_int_register_26"),
            script_answer: distinct::int(&variables, "output_int_register_27"),
            script_guard: distinct::int(&variables, "output_int_register_28"),
            ..RobotState::default()
        };
        assert_eq!(state, expected);
    }

    #[test]
    fn state_of_the_wrong_length_is_an_error() {
        distinct::lengths_count(&OUTPUTS);
    }

    #[test]
    fn another_value_of_any_variable_is_another_measurement() {
        distinct::each_counts(&OUTPUTS);
        // What the caller knows beside the packet does not count.
        let state = RobotState::running();
        let later = RobotState { received_ns: 5, sequence: 9, ..state };
        assert!(recipe::have_same_values(&OUTPUTS, &state, &later));
    }
}
