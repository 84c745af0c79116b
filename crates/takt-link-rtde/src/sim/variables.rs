//! The variables that the simulated controller knows: names, types, where outputs come from and
//! inputs go.
//!
//! Source: RTDE guide, "Field names and associated types". Those whose physics is not modelled
//! (currents, temperatures, forces) have plausible constants, since clients ask for them as a
//! block.

use super::controller::{Controller, REGISTERS};
use crate::arm::registers as reg;
use crate::wire::{DataType, Fields, PacketWriter, WireError};
use crate::{RobotMode, SafetyMode};

/// A value of an output variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    U8(u8),
    U32(u32),
    U64(u64),
    I32(i32),
    F64(f64),
    V3([f64; 3]),
    V6([f64; 6]),
    V6I([i32; 6]),
}

impl Value {
    pub(super) const fn kind(&self) -> DataType {
        match self {
            Self::Bool(_) => DataType::Bool,
            Self::U8(_) => DataType::Uint8,
            Self::U32(_) => DataType::Uint32,
            Self::U64(_) => DataType::Uint64,
            Self::I32(_) => DataType::Int32,
            Self::F64(_) => DataType::Double,
            Self::V3(_) => DataType::Vector3d,
            Self::V6(_) => DataType::Vector6d,
            Self::V6I(_) => DataType::Vector6Int32,
        }
    }

    pub(super) fn write(&self, writer: &mut PacketWriter<'_>) {
        match self {
            Self::Bool(value) => writer.u8(u8::from(*value)),
            Self::U8(value) => writer.u8(*value),
            Self::U32(value) => writer.u32(*value),
            Self::U64(value) => writer.u64(*value),
            Self::I32(value) => writer.i32(*value),
            Self::F64(value) => writer.f64(*value),
            Self::V3(values) => writer.doubles(values),
            Self::V6(values) => writer.doubles(values),
            Self::V6I(values) => {
                for value in values {
                    writer.i32(*value);
                }
                writer
            }
        };
    }
}

/// Where an output variable comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    Plain(fn(&Controller) -> Value),
    Int(usize),
    Double(usize),
    Bit(usize),
    Input(Input),
}

type Plain = (&'static str, fn(&Controller) -> Value);

/// `joint_mode`: running.
const JOINT_RUNNING: i32 = 253;

/// Holding currents and torques of an unloaded arm, order of magnitude.
const HOLDING_A: [f64; 6] = [0.1, -2.5, -1.5, -0.5, 0.1, 0.0];

static OUTPUTS: &[Plain] = &[
    ("timestamp", |c| Value::F64(c.time_s())),
    ("target_q", |c| Value::V6(c.joints_rad)),
    ("target_qd", |c| Value::V6(c.speeds_rad_s)),
    ("target_qdd", |c| Value::V6(c.accelerations_rad_s2)),
    ("target_current", |_| Value::V6(HOLDING_A)),
    ("target_moment", |_| Value::V6(HOLDING_A)),
    ("actual_q", |c| Value::V6(c.joints_rad)),
    ("actual_qd", |c| Value::V6(c.speeds_rad_s)),
    ("actual_current", |_| Value::V6(HOLDING_A)),
    ("actual_current_window", |_| Value::V6([1.0; 6])),
    ("actual_current_as_torque", |_| Value::V6(HOLDING_A)),
    ("joint_control_output", |_| Value::V6(HOLDING_A)),
    ("actual_TCP_pose", |c| Value::V6(c.tcp_pose)),
    ("actual_TCP_speed", |c| Value::V6(c.tcp_speed)),
    ("actual_TCP_force", |_| Value::V6([0.0; 6])),
    ("target_TCP_pose", |c| Value::V6(c.tcp_pose)),
    ("target_TCP_speed", |c| Value::V6(c.tcp_speed)),
    ("tcp_offset", |c| Value::V6(c.tcp_offset())),
    ("tcp_force_scalar", |_| Value::F64(0.0)),
    ("ft_raw_wrench", |_| Value::V6([0.0; 6])),
    ("actual_digital_input_bits", |_| Value::U64(0)),
    ("actual_digital_output_bits", |c| Value::U64(c.digital_outputs)),
    ("joint_temperatures", |_| Value::V6([30.0; 6])),
    ("actual_execution_time", |_| Value::F64(0.3)),
    ("robot_mode", |c| Value::I32(c.robot_mode.to_rtde())),
    ("joint_mode", |_| Value::V6I([JOINT_RUNNING; 6])),
    ("safety_mode", |c| Value::I32(c.safety_mode.to_rtde())),
    ("safety_status", |c| Value::I32(c.safety_mode.to_rtde())),
    ("actual_tool_accelerometer", |_| Value::V3([0.0, 0.0, -9.82])),
    ("speed_scaling", |c| Value::F64(c.run_scale)),
    ("target_speed_fraction", |c| Value::F64(c.slider_followed)),
    ("actual_momentum", |_| Value::F64(0.0)),
    ("actual_main_voltage", |_| Value::F64(48.0)),
    ("actual_robot_voltage", |_| Value::F64(48.0)),
    ("actual_robot_current", |_| Value::F64(0.6)),
    ("actual_joint_voltage", |_| Value::V6([48.0; 6])),
    ("runtime_state", |c| Value::U32(c.runtime as u32)),
    ("elbow_position", |_| Value::V3([0.0; 3])),
    ("elbow_velocity", |_| Value::V3([0.0; 3])),
    ("robot_status_bits", |c| Value::U32(robot_status_bits(c))),
    ("safety_status_bits", |c| Value::U32(safety_status_bits(c))),
    ("analog_io_types", |_| Value::U32(0)),
    ("standard_analog_input0", |_| Value::F64(0.0)),
    ("standard_analog_input1", |_| Value::F64(0.0)),
    ("standard_analog_output0", |c| Value::F64(c.registers.standard_analog_output[0])),
    ("standard_analog_output1", |c| Value::F64(c.registers.standard_analog_output[1])),
    ("io_current", |_| Value::F64(0.05)),
    ("euromap67_input_bits", |_| Value::U32(0)),
    ("euromap67_output_bits", |_| Value::U32(0)),
    ("euromap67_24V_voltage", |_| Value::F64(0.0)),
    ("euromap67_24V_current", |_| Value::F64(0.0)),
    ("tool_mode", |_| Value::U32(JOINT_RUNNING as u32)),
    ("tool_analog_input_types", |_| Value::U32(0)),
    ("tool_analog_input0", |_| Value::F64(0.0)),
    ("tool_analog_input1", |_| Value::F64(0.0)),
    ("tool_output_voltage", |_| Value::I32(24)),
    ("tool_output_current", |_| Value::F64(0.1)),
    ("tool_temperature", |_| Value::F64(30.0)),
    ("tool_output_mode", |_| Value::U8(0)),
    ("tool_digital_output0_mode", |_| Value::U8(0)),
    ("tool_digital_output1_mode", |_| Value::U8(0)),
    ("output_bit_registers0_to_31", |c| Value::U32(c.registers.output_bits as u32)),
    ("output_bit_registers32_to_63", |c| Value::U32((c.registers.output_bits >> 32) as u32)),
    ("payload", |_| Value::F64(1.6)),
    ("payload_cog", |_| Value::V3([0.0, 0.0, 0.05])),
    ("payload_inertia", |_| Value::V6([0.0; 6])),
    ("script_control_line", |_| Value::U32(0)),
    ("time_scale_source", |_| Value::I32(0)),
    ("collision_detection_ratio", |_| Value::F64(0.0)),
    ("joint_position_deviation_ratio", |_| Value::F64(0.0)),
];

/// Bit 0 power, bit 1 program running, bit 3 power button.
fn robot_status_bits(c: &Controller) -> u32 {
    let powered = matches!(c.robot_mode, RobotMode::PowerOn | RobotMode::Idle | RobotMode::Running);
    let running = c.runtime == super::RuntimeState::Playing;
    u32::from(powered) | u32::from(running) << 1 | u32::from(powered) << 3
}

/// Bit 0 normal, 2 protective stop, 6 robot emergency stop, 7 any emergency stop, 10 stopped for
/// safety.
fn safety_status_bits(c: &Controller) -> u32 {
    match c.safety_mode {
        SafetyMode::Normal => 1,
        SafetyMode::ProtectiveStop => 1 << 2 | 1 << 10,
        SafetyMode::RobotEmergencyStop => 1 << 6 | 1 << 7 | 1 << 10,
        _ => 1 << 10,
    }
}

/// Number at the end of a register's name, in `range`.
fn register(name: &str, prefix: &str, range: std::ops::Range<usize>) -> Option<usize> {
    let digits = name.strip_prefix(prefix)?;
    // The controller knows one spelling: no sign, no leading zero.
    let plain =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|number| plain && range.contains(number))
}

impl Output {
    pub(super) fn find(name: &str) -> Option<Self> {
        if let Some((_, read)) = OUTPUTS.iter().find(|(known, _)| *known == name) {
            return Some(Self::Plain(*read));
        }
        if let Some(input) = Input::find(name).filter(Input::is_register) {
            return Some(Self::Input(input));
        }
        register(name, "output_int_register_", 0..REGISTERS)
            .map(Self::Int)
            .or_else(|| register(name, "output_double_register_", 0..REGISTERS).map(Self::Double))
            .or_else(|| register(name, "output_bit_register_", 64..128).map(Self::Bit))
    }

    pub(super) fn value(&self, c: &Controller) -> Value {
        let r = &c.registers;
        match *self {
            Self::Plain(read) => read(c),
            Self::Int(n) => Value::I32(r.output_int[n]),
            Self::Double(n) => Value::F64(r.output_double[n]),
            Self::Bit(n) => Value::Bool(r.output_bits >> n & 1 == 1),
            Self::Input(Input::Int(n)) => Value::I32(r.input_int[n]),
            Self::Input(Input::Double(n)) => Value::F64(r.input_double[n]),
            Self::Input(Input::Bit(n)) => Value::Bool(r.input_bits >> n & 1 == 1),
            Self::Input(Input::Bits(shift)) => Value::U32((r.input_bits >> shift) as u32),
            // Not registers: `find` never makes them.
            Self::Input(_) => Value::U32(0),
        }
    }
}

/// Where an input variable goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    SliderMask,
    SliderFraction,
    /// Mask of digital outputs that start at this bit.
    DigitalMask(u32),
    /// Values of digital outputs that start at this bit.
    Digital(u32),
    AnalogMask,
    AnalogType,
    Analog(usize),
    Int(usize),
    Double(usize),
    Bit(usize),
    /// 32 bit registers from this one on.
    Bits(u32),
    ExternalForce,
}

const STANDARD: u32 = 0;
const CONFIGURABLE: u32 = 8;
const TOOL: u32 = 16;

static INPUTS: &[(&str, Input)] = &[
    ("speed_slider_mask", Input::SliderMask),
    ("speed_slider_fraction", Input::SliderFraction),
    ("standard_digital_output_mask", Input::DigitalMask(STANDARD)),
    ("standard_digital_output", Input::Digital(STANDARD)),
    ("configurable_digital_output_mask", Input::DigitalMask(CONFIGURABLE)),
    ("configurable_digital_output", Input::Digital(CONFIGURABLE)),
    ("tool_digital_output_mask", Input::DigitalMask(TOOL)),
    ("tool_digital_output", Input::Digital(TOOL)),
    ("standard_analog_output_mask", Input::AnalogMask),
    ("standard_analog_output_type", Input::AnalogType),
    ("standard_analog_output_0", Input::Analog(0)),
    ("standard_analog_output_1", Input::Analog(1)),
    ("input_bit_registers0_to_31", Input::Bits(0)),
    ("input_bit_registers32_to_63", Input::Bits(32)),
    ("external_force_torque", Input::ExternalForce),
];

impl Input {
    pub(super) fn find(name: &str) -> Option<Self> {
        if let Some((_, input)) = INPUTS.iter().find(|(known, _)| *known == name) {
            return Some(*input);
        }
        register(name, "input_int_register_", 0..REGISTERS)
            .map(Self::Int)
            .or_else(|| register(name, "input_double_register_", 0..REGISTERS).map(Self::Double))
            .or_else(|| register(name, "input_bit_register_", 64..128).map(Self::Bit))
    }

    pub(super) const fn kind(&self) -> DataType {
        match self {
            Self::SliderMask | Self::Bits(_) => DataType::Uint32,
            Self::SliderFraction | Self::Analog(_) | Self::Double(_) => DataType::Double,
            Self::DigitalMask(_) | Self::Digital(_) | Self::AnalogMask | Self::AnalogType => DataType::Uint8,
            Self::Int(_) => DataType::Int32,
            Self::Bit(_) => DataType::Bool,
            Self::ExternalForce => DataType::Vector6d,
        }
    }

    /// Whether it can be read back as an output variable.
    const fn is_register(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Double(_) | Self::Bit(_) | Self::Bits(_))
    }
}

/// Takes the values of one input packet in.
///
/// Masks say which of the other values of the same packet count; they do not last beyond it.
/// Nothing is taken from a packet of the wrong length.
pub(super) fn apply(
    inputs: &[Input],
    values: &[u8],
    c: &mut Controller,
    now_ns: u64,
) -> Result<(), WireError> {
    let needed: usize = inputs.iter().map(|input| input.kind().size()).sum();
    if values.len() < needed {
        return Err(WireError::Short { needed, left: values.len() });
    }
    if values.len() > needed {
        return Err(WireError::Trailing { left: values.len() - needed });
    }
    let mut fields = Fields::new(values);
    let (mut slider, mut masks, mut digital) = ((0, None), [0_u8; 3], [0_u8; 3]);
    let (mut analog_mask, mut analog) = (0, [None; 2]);
    for input in inputs {
        match *input {
            Input::SliderMask => slider.0 = fields.u32()?,
            Input::SliderFraction => slider.1 = Some(fields.f64()?),
            Input::DigitalMask(shift) => masks[(shift / 8) as usize] = fields.u8()?,
            Input::Digital(shift) => digital[(shift / 8) as usize] = fields.u8()?,
            Input::AnalogMask => analog_mask = fields.u8()?,
            Input::AnalogType => {
                fields.u8()?;
            }
            Input::Analog(n) => analog[n] = Some(fields.f64()?),
            Input::Int(n) => {
                c.registers.input_int[n] = fields.i32()?;
                if n == reg::HEARTBEAT {
                    c.heartbeat(now_ns);
                }
            }
            Input::Double(n) => c.registers.input_double[n] = fields.f64()?,
            Input::Bit(n) => {
                let bit = 1 << n;
                let set = fields.u8()? != 0;
                c.registers.input_bits =
                    if set { c.registers.input_bits | bit } else { c.registers.input_bits & !bit };
            }
            Input::Bits(shift) => {
                let mask = u128::from(u32::MAX) << shift;
                let bits = u128::from(fields.u32()?) << shift;
                c.registers.input_bits = c.registers.input_bits & !mask | bits;
            }
            Input::ExternalForce => c.registers.external_force = fields.doubles()?,
        }
    }
    if let (1.., Some(fraction)) = slider {
        c.set_slider(fraction);
    }
    for (shift, (mask, values)) in
        [STANDARD, CONFIGURABLE, TOOL].into_iter().zip(masks.into_iter().zip(digital))
    {
        // The tool has two digital outputs, the others eight.
        let existing = if shift == TOOL { 0b11 } else { 0xff };
        c.set_outputs(shift, mask & existing, values);
    }
    for (n, value) in analog.into_iter().enumerate() {
        if let (Some(value), true) = (value, analog_mask >> n & 1 == 1) {
            c.registers.standard_analog_output[n] = value;
        }
    }
    Ok(())
}
