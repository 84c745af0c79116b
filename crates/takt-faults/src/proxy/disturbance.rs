//! Disturbances that the proxy can cause.

use std::sync::atomic::{AtomicU64, Ordering};

use super::packet::Value;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Commands: from the cell to the controller.
    ToRobot,
    /// States: from the controller to the cell.
    ToCell,
}

/// Disturbed connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that commands the speed.
    Safety,
    /// The one that only moves the arm.
    Mission,
    /// All of them.
    All,
}

/// One planted fault. Only packets with values are changed, dropped or delayed: set-ups pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Disturbance {
    /// One packet in so many is dropped; 1: all.
    Drop(Direction, Which, u32),
    /// Packets arrive this late, milliseconds.
    Delay(Direction, Which, u64),
    /// The delay grows by so many milliseconds a second, up to so many milliseconds.
    Creep(Direction, u64, u64),
    /// Every packet of the safety connection arrives so many times.
    Duplicate(Direction, u32),
    /// Half of the next packet, then the end of the connection.
    Cut(Direction),
    /// This byte of every packet is exclusive-ored with this mask.
    Flip(Direction, usize, u8),
    /// Packets arrive in pairs, the later first.
    Swap(Direction),
    /// Nothing is read any more: the sender's buffers fill.
    Stall(Direction),
    /// Bytes that are no packet, once.
    Garbage(Direction),
    /// Nothing passes on the connections that are open now, and nobody is informed.
    HalfOpen,
    /// All connections are reset, once.
    Reset,
    /// All connections are reset, and new ones closed at once.
    Refuse,
    /// The first packet after planting, again for every later one.
    Replay(Direction),
    /// A variable keeps the value of the first packet after planting.
    Freeze(Direction, &'static str),
    /// A variable has this value.
    Set(Direction, &'static str, Value),
    /// A variable has the second value wherever it had the first.
    Map(Direction, &'static str, f64, f64),
    /// A variable is greater by this.
    Add(Direction, &'static str, f64),
    /// A variable goes from its value at planting at this factor of its pace.
    Pace(Direction, &'static str, f64),
}

impl Disturbance {
    pub(crate) const fn direction(&self) -> Option<Direction> {
        match self {
            Self::Drop(direction, ..)
            | Self::Delay(direction, ..)
            | Self::Creep(direction, ..)
            | Self::Duplicate(direction, _)
            | Self::Cut(direction)
            | Self::Flip(direction, ..)
            | Self::Swap(direction)
            | Self::Stall(direction)
            | Self::Garbage(direction)
            | Self::Replay(direction)
            | Self::Freeze(direction, _)
            | Self::Set(direction, ..)
            | Self::Map(direction, ..)
            | Self::Add(direction, ..)
            | Self::Pace(direction, ..) => Some(*direction),
            Self::HalfOpen | Self::Reset | Self::Refuse => None,
        }
    }

    pub(crate) const fn which(&self) -> Which {
        match self {
            Self::Drop(_, which, _) | Self::Delay(_, which, _) => *which,
            Self::HalfOpen | Self::Reset | Self::Refuse => Which::All,
            // A variable is found by its name, on whichever connection has it.
            Self::Freeze(..) | Self::Set(..) | Self::Map(..) | Self::Add(..) | Self::Pace(..) => Which::All,
            _ => Which::Safety,
        }
    }
}

/// The present disturbance.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) disturbances: Vec<Disturbance>,
    pub(crate) since_ns: u64,
    /// Differs for every plan, so that a pump sees a new one.
    pub(crate) number: u64,
}

impl Plan {
    pub(crate) fn new(disturbances: Vec<Disturbance>, since_ns: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Self { disturbances, since_ns, number: NUMBER.fetch_add(1, Ordering::Relaxed) }
    }
}
