//! Events on the wire, reported through a ring.

use std::fmt;

/// A change that the control interface noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct LinkEvent {
    /// Cycle in which it was noticed.
    pub cycle: u64,
    /// When, in CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Its kind.
    pub kind: EventKind,
}

/// Kinds of [`LinkEvent`]. Each is reported when it begins, not in every cycle that it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Fewer devices than expected took part in the exchange.
    WorkingCounter {
        /// Of all devices.
        expected: u16,
        /// Received.
        got: u16,
    },
    /// The working counter is right again.
    WorkingCounterRight,
    /// A frame did not come back in time.
    FrameLost,
    /// A frame came after all, cycles after it should have.
    FrameLate {
        /// Cycles by which inputs were behind then.
        cycles: u32,
    },
    /// Several frames in a row did not come back.
    LinkLost,
    /// Frames come back again.
    LinkBack,
    /// Another number of devices answers.
    DeviceCount {
        /// As brought up.
        expected: u16,
        /// Answering.
        got: u16,
    },
    /// A device left or reached OP.
    DeviceState {
        /// Place on the wire, from 0.
        device: u16,
        /// AL status: 1 INIT, 2 PRE-OP, 4 SAFE-OP, 8 OP, 16 with an error; 0 when it does not
        /// answer.
        state: u8,
        /// AL status code.
        code: u16,
    },
    /// A reader held the cache for so long that the cycle went on without publishing.
    ReaderHeld {
        /// Time waited, microseconds.
        waited_us: u32,
    },
    /// The interface refused a frame.
    SendFailed {
        /// The system's answer.
        errno: i32,
    },
}

impl fmt::Display for LinkEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cycle {}: ", self.cycle)?;
        match self.kind {
            EventKind::WorkingCounter { expected, got } => {
                write!(f, "working counter {got}, expected {expected}: a device does not take part")
            }
            EventKind::WorkingCounterRight => f.write_str("working counter right again"),
            EventKind::FrameLost => f.write_str("a frame did not come back in time"),
            EventKind::FrameLate { cycles } => write!(f, "a frame arrived {cycles} cycles late"),
            EventKind::LinkLost => f.write_str("link lost: frames in a row did not come back"),
            EventKind::LinkBack => f.write_str("link back"),
            EventKind::DeviceCount { expected, got } => {
                write!(f, "{got} devices answer, expected {expected}")
            }
            EventKind::DeviceState { device, state, code } => {
                write!(f, "device {device} is in {}", state_name(state))?;
                if code != 0 { write!(f, ", AL status code {code:#06x}") } else { Ok(()) }
            }
            EventKind::ReaderHeld { waited_us } => {
                write!(f, "a reader held the cache longer than {waited_us} µs; this cycle was not published")
            }
            EventKind::SendFailed { errno } => {
                write!(f, "the interface refused a frame: {}", std::io::Error::from_raw_os_error(errno))
            }
        }
    }
}

/// The name of an AL state.
pub fn state_name(state: u8) -> &'static str {
    match state {
        0 => "no state (it does not answer)",
        1 => "INIT",
        2 => "PRE-OP",
        3 => "BOOT",
        4 => "SAFE-OP",
        8 => "OP",
        17 => "INIT with an error",
        18 => "PRE-OP with an error",
        20 => "SAFE-OP with an error",
        24 => "OP with an error",
        _ => "an unknown state",
    }
}
