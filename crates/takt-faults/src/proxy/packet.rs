//! Packets as the proxy sees them: recipes by name, values by place.

use takt_link_rtde::wire::{Answer, DataType, HEADER_BYTES, PacketType, names};

/// Longest time a recipe may lie between question and answer is one exchange: questions wait in a
/// queue.
#[derive(Debug, Default)]
pub(crate) struct Recipes {
    asked_outputs: Vec<Vec<String>>,
    asked_inputs: Vec<Vec<String>>,
    outputs: Option<Layout>,
    inputs: Vec<(u8, Layout)>,
}

/// Offsets of a recipe's variables in its packets, from the byte after the recipe's number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Layout(Vec<(String, DataType, usize)>);

/// A value to put into a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// For a number of any type of the wire; every element of a vector.
    Number(f64),
    /// Only the first element of a vector.
    First(f64),
}

/// Number of elements and bytes of one element.
const fn shape(kind: DataType) -> (usize, usize) {
    match kind {
        DataType::Bool | DataType::Uint8 => (1, 1),
        DataType::Uint32 | DataType::Int32 => (1, 4),
        DataType::Uint64 | DataType::Double => (1, 8),
        DataType::Vector3d => (3, 8),
        DataType::Vector6d => (6, 8),
        DataType::Vector6Int32 | DataType::Vector6Uint32 => (6, 4),
    }
}

fn put(kind: DataType, number: f64, bytes: &mut [u8]) {
    match kind {
        DataType::Bool | DataType::Uint8 => bytes.copy_from_slice(&[number as u8]),
        DataType::Uint32 | DataType::Vector6Uint32 => bytes.copy_from_slice(&(number as u32).to_be_bytes()),
        DataType::Int32 | DataType::Vector6Int32 => bytes.copy_from_slice(&(number as i32).to_be_bytes()),
        DataType::Uint64 => bytes.copy_from_slice(&(number as u64).to_be_bytes()),
        DataType::Double | DataType::Vector3d | DataType::Vector6d => {
            bytes.copy_from_slice(&number.to_be_bytes());
        }
    }
}

impl Layout {
    fn new(names: &[String], types: &str) -> Option<Self> {
        let mut at = 0;
        let mut fields = Vec::new();
        for (name, kind) in names.iter().zip(types.split(',')) {
            let Ok(Answer::Type(kind)) = Answer::parse(kind) else { return None };
            fields.push((name.clone(), kind, at));
            at += kind.size();
        }
        (fields.len() == names.len()).then_some(Self(fields))
    }

    /// The bytes of a variable within the values.
    pub(crate) fn field(&self, name: &str) -> Option<(DataType, std::ops::Range<usize>)> {
        let (_, kind, at) = self.0.iter().find(|(known, ..)| known == name)?;
        Some((*kind, *at..*at + kind.size()))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// Writes a variable; a packet without it stays as it is.
    pub(crate) fn set(&self, values: &mut [u8], name: &str, value: Value) {
        let Some((kind, range)) = self.field(name) else { return };
        let (elements, size) = shape(kind);
        let (number, elements) = match value {
            Value::Number(number) => (number, elements),
            Value::First(number) => (number, 1),
        };
        if let Some(bytes) = values.get_mut(range) {
            bytes.chunks_exact_mut(size).take(elements).for_each(|bytes| put(kind, number, bytes));
        }
    }

    /// The first element of a variable that is a double or an integer.
    pub(crate) fn get(&self, values: &[u8], name: &str) -> Option<f64> {
        let (kind, range) = self.field(name)?;
        let bytes = values.get(range)?;
        Some(match kind {
            DataType::Bool | DataType::Uint8 => f64::from(*bytes.first()?),
            DataType::Uint32 | DataType::Vector6Uint32 => {
                f64::from(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
            }
            DataType::Int32 | DataType::Vector6Int32 => {
                f64::from(i32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
            }
            DataType::Uint64 => u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?) as f64,
            DataType::Double | DataType::Vector3d | DataType::Vector6d => {
                f64::from_be_bytes(bytes.get(..8)?.try_into().ok()?)
            }
        })
    }
}

fn list(bytes: &[u8]) -> Vec<String> {
    std::str::from_utf8(bytes).map_or_else(|_| Vec::new(), |text| names(text).map(str::to_owned).collect())
}

fn take_first(queue: &mut Vec<Vec<String>>) -> Option<Vec<String>> {
    if queue.is_empty() { None } else { Some(queue.remove(0)) }
}

impl Recipes {
    /// Learns from what the cell says.
    pub(crate) fn observe_cell(&mut self, packet: &[u8]) {
        let Some((kind, payload)) = open(packet) else { return };
        if kind == PacketType::SetupOutputs as u8 {
            self.asked_outputs.push(list(payload.get(8..).unwrap_or_default()));
        } else if kind == PacketType::SetupInputs as u8 {
            self.asked_inputs.push(list(payload));
        }
    }

    /// Learns from what the controller answers.
    pub(crate) fn observe_controller(&mut self, packet: &[u8]) {
        let Some((kind, payload)) = open(packet) else { return };
        let Some((&recipe, types)) = payload.split_first() else { return };
        let Ok(types) = std::str::from_utf8(types) else { return };
        if kind == PacketType::SetupOutputs as u8 {
            self.outputs = take_first(&mut self.asked_outputs).and_then(|names| Layout::new(&names, types));
        } else if kind == PacketType::SetupInputs as u8
            && let Some(layout) =
                take_first(&mut self.asked_inputs).and_then(|names| Layout::new(&names, types))
        {
            self.inputs.push((recipe, layout));
        }
    }

    /// The layout of a data packet to the cell.
    pub(crate) fn output(&self) -> Option<&Layout> {
        self.outputs.as_ref()
    }

    /// The layout of a data packet to the robot.
    pub(crate) fn input(&self, recipe: u8) -> Option<&Layout> {
        self.inputs.iter().find(|(known, _)| *known == recipe).map(|(_, layout)| layout)
    }

    /// Whether this is the connection that commands the speed.
    pub(crate) fn is_safety(&self) -> bool {
        self.inputs.iter().any(|(_, layout)| layout.has("speed_slider_fraction"))
    }
}

/// Type byte and payload.
fn open(packet: &[u8]) -> Option<(u8, &[u8])> {
    Some((*packet.get(2)?, packet.get(HEADER_BYTES..)?))
}

/// Whether the packet carries values, and of which recipe.
pub(crate) fn data_recipe(packet: &[u8]) -> Option<u8> {
    let (kind, payload) = open(packet)?;
    (kind == PacketType::Data as u8).then(|| payload.first().copied())?
}

/// The values of a data packet.
pub(crate) fn values(packet: &mut [u8]) -> &mut [u8] {
    packet.get_mut(HEADER_BYTES + 1..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipes() -> Recipes {
        let mut recipes = Recipes::default();
        let packet = |kind: u8, payload: &[u8]| {
            let mut bytes = ((payload.len() + 3) as u16).to_be_bytes().to_vec();
            bytes.push(kind);
            bytes.extend_from_slice(payload);
            bytes
        };
        let mut names = 500.0_f64.to_be_bytes().to_vec();
        names.extend_from_slice(b"timestamp,actual_TCP_speed,robot_mode");
        recipes.observe_cell(&packet(b'O', &names));
        recipes.observe_controller(&packet(b'O', b"\x01DOUBLE,VECTOR6D,INT32"));
        recipes.observe_cell(&packet(b'I', b"speed_slider_mask,speed_slider_fraction"));
        recipes.observe_controller(&packet(b'I', b"\x03UINT32,DOUBLE"));
        recipes
    }

    #[test]
    fn recipes_are_learnt_from_the_wire() {
        let recipes = recipes();
        assert!(recipes.is_safety());
        let layout = recipes.output().unwrap();
        assert_eq!(layout.field("actual_TCP_speed"), Some((DataType::Vector6d, 8..56)));
        assert_eq!(layout.field("robot_mode"), Some((DataType::Int32, 56..60)));
        assert_eq!(recipes.input(3).unwrap().field("speed_slider_fraction"), Some((DataType::Double, 4..12)));
        assert!(recipes.input(1).is_none());
    }

    #[test]
    fn values_are_changed_by_name_and_nothing_else_is() {
        let recipes = recipes();
        let layout = recipes.output().unwrap();
        let mut values = vec![0; 60];
        layout.set(&mut values, "robot_mode", Value::Number(-1.0));
        assert_eq!(values[56..], (-1_i32).to_be_bytes());
        assert!(values[..56].iter().all(|&byte| byte == 0));
        layout.set(&mut values, "actual_TCP_speed", Value::First(f64::NAN));
        assert!(layout.get(&values, "actual_TCP_speed").unwrap().is_nan());
        assert!(values[16..56].iter().all(|&byte| byte == 0));
        let before = values.clone();
        layout.set(&mut values, "no_such_name", Value::Number(1.0));
        layout.set(&mut values[..3], "timestamp", Value::Number(1.0));
        assert_eq!(values, before);
    }
}
