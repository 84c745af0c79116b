//! Recipes as tables: each variable stands beside the field that takes or gives its value. Names,
//! types, decoding, encoding and comparison all come from that one row, so that their order cannot
//! disagree.

use crate::servo::ProgramState;
use crate::session::Variable;
use crate::wire::{DataType, Fields, PacketType, PacketWriter, WireError};
use crate::{RobotMode, SafetyMode};

/// `runtime_state`: a program runs.
pub(crate) const PLAYING: u32 = 2;

/// A variable that the controller sends, and the field of a state that takes its value.
pub(crate) type Output<S> = (&'static str, for<'a> fn(&'a mut S) -> Field<'a>);

/// A variable that the controller takes, and its value in a command.
pub(crate) type Input<C> = (&'static str, fn(&C) -> Value);

/// A field of a state, by what the variable of the wire means for it.
pub(crate) enum Field<'a> {
    Double(&'a mut f64),
    Doubles(&'a mut [f64; 6]),
    Int(&'a mut i32),
    Bits(&'a mut u64),
    RobotMode(&'a mut RobotMode),
    SafetyMode(&'a mut SafetyMode),
    /// Whether a program runs (`runtime_state`).
    Playing(&'a mut bool),
    /// State of the program that follows a stream.
    Program(&'a mut ProgramState),
}

impl Field<'_> {
    const fn kind(&self) -> DataType {
        match self {
            Self::Double(_) => DataType::Double,
            Self::Doubles(_) => DataType::Vector6d,
            Self::Int(_) | Self::RobotMode(_) | Self::SafetyMode(_) | Self::Program(_) => DataType::Int32,
            Self::Bits(_) => DataType::Uint64,
            Self::Playing(_) => DataType::Uint32,
        }
    }

    fn read(self, fields: &mut Fields<'_>) -> Result<(), WireError> {
        match self {
            Self::Double(value) => *value = fields.f64()?,
            Self::Doubles(values) => *values = fields.doubles()?,
            Self::Int(value) => *value = fields.i32()?,
            Self::Bits(value) => *value = fields.u64()?,
            Self::RobotMode(mode) => *mode = RobotMode::from_rtde(fields.i32()?),
            Self::SafetyMode(mode) => *mode = SafetyMode::from_rtde(fields.i32()?),
            Self::Playing(runs) => *runs = fields.u32()? == PLAYING,
            Self::Program(state) => *state = ProgramState::from_register(fields.i32()?),
        }
        Ok(())
    }

    /// By their bits: a value that is no number is the same as itself.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Double(a), Self::Double(b)) => a.to_bits() == b.to_bits(),
            (Self::Doubles(a), Self::Doubles(b)) => a.map(f64::to_bits) == b.map(f64::to_bits),
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Bits(a), Self::Bits(b)) => a == b,
            (Self::RobotMode(a), Self::RobotMode(b)) => a == b,
            (Self::SafetyMode(a), Self::SafetyMode(b)) => a == b,
            (Self::Playing(a), Self::Playing(b)) => a == b,
            (Self::Program(a), Self::Program(b)) => a == b,
            _ => false,
        }
    }
}

/// A value of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Byte(u8),
    Mask(u32),
    Int(i32),
    Double(f64),
}

impl Value {
    const fn kind(self) -> DataType {
        match self {
            Self::Byte(_) => DataType::Uint8,
            Self::Mask(_) => DataType::Uint32,
            Self::Int(_) => DataType::Int32,
            Self::Double(_) => DataType::Double,
        }
    }
}

/// Names and types of what the controller sends, as they are asked for.
pub(crate) fn outputs<S: Default>(recipe: &[Output<S>]) -> Vec<Variable> {
    let mut state = S::default();
    recipe.iter().map(|(name, field)| (*name, field(&mut state).kind())).collect()
}

/// Names and types of what the controller takes.
pub(crate) fn inputs<C: Default>(recipe: &[Input<C>]) -> Vec<Variable> {
    let command = C::default();
    recipe.iter().map(|(name, value)| (*name, value(&command).kind())).collect()
}

/// Decodes the values of a packet into the fields of their variables; `state` stays as it is where
/// they are too few or too many.
pub(crate) fn decode<S: Copy>(recipe: &[Output<S>], values: &[u8], state: &mut S) -> Result<(), WireError> {
    let (mut fields, mut decoded) = (Fields::new(values), *state);
    for (_, field) in recipe {
        field(&mut decoded).read(&mut fields)?;
    }
    fields.finish()?;
    *state = decoded;
    Ok(())
}

/// Whether two packets had the same values, time stamp and all.
pub(crate) fn have_same_values<S: Copy>(recipe: &[Output<S>], a: &S, b: &S) -> bool {
    let (mut a, mut b) = (*a, *b);
    recipe.iter().all(|(_, field)| field(&mut a).is_same(&field(&mut b)))
}

/// Lays a command out behind the number of its recipe.
///
/// # Errors
/// [`WireError::BufferFull`].
pub(crate) fn encode<C>(
    inputs: &[Input<C>],
    command: &C,
    recipe: u8,
    buffer: &mut [u8],
) -> Result<usize, WireError> {
    let mut writer = PacketWriter::new(buffer, PacketType::Data);
    writer.u8(recipe);
    for (_, value) in inputs {
        match value(command) {
            Value::Byte(value) => writer.u8(value),
            Value::Mask(value) => writer.u32(value),
            Value::Int(value) => writer.i32(value),
            Value::Double(value) => writer.f64(value),
        };
    }
    writer.finish()
}

/// Packets for tests of recipes: every variable has a value of its own.
#[cfg(test)]
pub(crate) mod distinct {
    use super::*;

    /// The value that the variable at `index` of the recipe has: a mode that there is, for the
    /// variables that are one.
    fn number(name: &str, index: usize) -> u8 {
        match name {
            "robot_mode" => 5,
            "safety_mode" => 3,
            "runtime_state" => PLAYING as u8,
            "output_int_register_30" => 12,
            _ => 100 + index as u8,
        }
    }

    /// A packet's values. The variable `other` has one more than its own.
    pub(crate) fn packet(variables: &[Variable], other: Option<&str>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, (name, kind)) in variables.iter().enumerate() {
            let value = number(name, index) + u8::from(other == Some(*name));
            match kind {
                DataType::Int32 | DataType::Uint32 => bytes.extend(u32::from(value).to_be_bytes()),
                DataType::Uint64 => bytes.extend(u64::from(value).to_be_bytes()),
                DataType::Double => bytes.extend(f64::from(value).to_be_bytes()),
                DataType::Vector6d => {
                    let each = (0..6).map(|axis| f64::from(value) + f64::from(axis) / 8.0);
                    bytes.extend(each.flat_map(f64::to_be_bytes));
                }
                _ => panic!("no recipe has {kind:?}"),
            }
        }
        bytes
    }

    fn of(variables: &[Variable], name: &str) -> u8 {
        let index = variables.iter().position(|(known, _)| *known == name).expect(name);
        number(name, index)
    }

    /// What [`packet`] has for that variable.
    pub(crate) fn int(variables: &[Variable], name: &str) -> i32 {
        of(variables, name).into()
    }

    /// The same of a double.
    pub(crate) fn double(variables: &[Variable], name: &str) -> f64 {
        of(variables, name).into()
    }

    /// The same of six doubles.
    pub(crate) fn doubles(variables: &[Variable], name: &str) -> [f64; 6] {
        std::array::from_fn(|axis| f64::from(of(variables, name)) + axis as f64 / 8.0)
    }

    /// Every variable of a recipe makes a difference, and none makes a difference to itself.
    pub(crate) fn each_counts<S: Copy + Default>(recipe: &[Output<S>]) {
        let variables = outputs(recipe);
        let state = |other| {
            let mut state = S::default();
            decode(recipe, &packet(&variables, other), &mut state).expect("as long as the recipe");
            state
        };
        let first = state(None);
        assert!(have_same_values(recipe, &first, &state(None)));
        for (name, _) in &variables {
            assert!(!have_same_values(recipe, &first, &state(Some(name))), "{name}");
        }
    }

    /// A packet of another length changes nothing.
    pub(crate) fn lengths_count<S: Copy + Default + PartialEq + std::fmt::Debug>(recipe: &[Output<S>]) {
        let variables = outputs(recipe);
        let whole = packet(&variables, None);
        let mut state = S::default();
        assert!(decode(recipe, &whole[..whole.len() - 1], &mut state).is_err());
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(decode(recipe, &longer, &mut state), Err(WireError::Trailing { left: 1 }));
        assert_eq!(state, S::default());
        assert_eq!(decode(recipe, &whole, &mut state), Ok(()));
    }
}
