//! The two recipes of a stream.

use super::{ServoCommand, ServoState};
use crate::recipe::{self, Field, Input, Output, Value};
use crate::wire::{HEADER_BYTES, WireError};

/// What the controller sends.
pub(super) const OUTPUTS: [Output<ServoState>; 11] = [
    ("timestamp", |s| Field::Double(&mut s.controller_s)),
    ("actual_q", |s| Field::Doubles(&mut s.joints_rad)),
    ("actual_qd", |s| Field::Doubles(&mut s.joint_speeds_rad_s)),
    ("robot_mode", |s| Field::RobotMode(&mut s.robot_mode)),
    ("safety_mode", |s| Field::SafetyMode(&mut s.safety_mode)),
    ("runtime_state", |s| Field::Playing(&mut s.program_running)),
    ("target_speed_fraction", |s| Field::Double(&mut s.speed_fraction)),
    ("output_int_register_29", |s| Field::Int(&mut s.count_read)),
    ("output_int_register_30", |s| Field::Program(&mut s.program)),
    ("output_int_register_31", |s| Field::Int(&mut s.missed)),
    ("output_int_register_32", |s| Field::Int(&mut s.longest)),
];

/// What the controller takes.
pub(super) const INPUTS: [Input<ServoCommand>; 12] = [
    ("input_int_register_24", |c| Value::Int(c.count)),
    ("input_int_register_25", |c| Value::Int(c.asked)),
    ("input_int_register_26", |c| Value::Int(c.silent_cycles)),
    ("input_double_register_24", |c| Value::Double(c.targets_rad[0])),
    ("input_double_register_25", |c| Value::Double(c.targets_rad[1])),
    ("input_double_register_26", |c| Value::Double(c.targets_rad[2])),
    ("input_double_register_27", |c| Value::Double(c.targets_rad[3])),
    ("input_double_register_28", |c| Value::Double(c.targets_rad[4])),
    ("input_double_register_29", |c| Value::Double(c.targets_rad[5])),
    ("input_double_register_30", |c| Value::Double(c.lookahead_s)),
    ("input_double_register_31", |c| Value::Double(c.gain)),
    ("input_double_register_32", |c| Value::Double(c.answered_s)),
];

/// Size of a command packet: header, recipe, and [`INPUTS`] in order.
pub(super) const COMMAND_BYTES: usize = HEADER_BYTES + 1 + 3 * 4 + 9 * 8;

/// Decodes the values of [`OUTPUTS`]. Sequence and time of arrival are the caller's.
pub(super) fn decode(values: &[u8]) -> Result<ServoState, WireError> {
    let mut state = ServoState::default();
    recipe::decode(&OUTPUTS, values, &mut state)?;
    Ok(state)
}

/// Lays a command out.
pub(super) fn encode(command: &ServoCommand, recipe: u8, buffer: &mut [u8; COMMAND_BYTES]) {
    let packed = recipe::encode(&INPUTS, command, recipe, buffer);
    debug_assert_eq!(packed, Ok(COMMAND_BYTES));
}

#[cfg(test)]
mod tests {
    use crate::recipe::distinct;
    use crate::servo::ProgramState;
    use crate::wire::Fields;
    use crate::{RobotMode, SafetyMode};

    use super::*;

    #[test]
    fn a_command_has_its_values_in_the_order_of_its_recipe() {
        let payload: usize = recipe::inputs(&INPUTS).iter().map(|(_, kind)| kind.size()).sum();
        assert_eq!(COMMAND_BYTES, HEADER_BYTES + 1 + payload);
        let command = ServoCommand {
            count: 1,
            asked: 2,
            silent_cycles: 3,
            targets_rad: [4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            lookahead_s: 10.0,
            gain: 11.0,
            answered_s: 12.0,
        };
        let mut buffer = [0; COMMAND_BYTES];
        encode(&command, 9, &mut buffer);
        let mut fields = Fields::new(&buffer[4..]);
        assert_eq!([1, 2, 3].map(Ok), [fields.i32(), fields.i32(), fields.i32()]);
        assert_eq!(fields.doubles::<9>(), Ok([4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]));
        let names: Vec<&str> = INPUTS.iter().map(|(name, _)| *name).collect();
        let int = (24..27).map(|number| format!("input_int_register_{number}"));
        let double = (24..33).map(|number| format!("input_double_register_{number}"));
        assert_eq!(names, int.chain(double).collect::<Vec<_>>());
    }

    #[test]
    fn each_variable_is_in_its_own_field() {
        let variables = recipe::outputs(&OUTPUTS);
        let expected = ServoState {
            controller_s: distinct::double(&variables, "timestamp"),
            joints_rad: distinct::doubles(&variables, "actual_q"),
            joint_speeds_rad_s: distinct::doubles(&variables, "actual_qd"),
            robot_mode: RobotMode::Idle,
            safety_mode: SafetyMode::ProtectiveStop,
            program_running: true,
            speed_fraction: distinct::double(&variables, "target_speed_fraction"),
            count_read: distinct::int(&variables, "output_int_register_29"),
            program: ProgramState::from_register(distinct::int(&variables, "output_int_register_30")),
            missed: distinct::int(&variables, "output_int_register_31"),
            longest: distinct::int(&variables, "output_int_register_32"),
            ..ServoState::default()
        };
        assert_eq!(decode(&distinct::packet(&variables, None)), Ok(expected));
        assert_ne!(expected.program, ProgramState::default());
        distinct::each_counts(&OUTPUTS);
        distinct::lengths_count(&OUTPUTS);
    }
}
