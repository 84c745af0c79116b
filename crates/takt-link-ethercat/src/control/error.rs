//! Errors between the motion controller and the devices.

use std::fmt;
use std::io;
use std::time::Duration;

use takt_rt::config::SettingError;

use super::config::Identity;
use super::sdo::SdoError;

/// An error of the control interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No interface of that name.
    #[error("network interface `{given}` does not exist; the interfaces are: {present}")]
    UnknownInterface {
        /// The name as given.
        given: String,
        /// The interfaces of this machine.
        present: String,
    },
    /// The interface is switched off.
    #[error("network interface `{interface}` is down. Fix: ip link set {interface} up")]
    InterfaceDown {
        /// Its name.
        interface: String,
    },
    /// Raw sockets are for processes with CAP_NET_RAW.
    #[error(
        "no permission to open a raw socket on `{interface}` ({source}). Fix: setcap cap_net_raw,cap_sys_nice,cap_ipc_lock+ep on the \
         program, or run it as root"
    )]
    NoRawSocket {
        /// The interface.
        interface: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Another refusal of the system.
    #[error("network interface `{interface}`: {source}")]
    Wire {
        /// The interface.
        interface: String,
        /// The system's answer.
        source: io::Error,
    },
    /// An AF_XDP socket is not to be had.
    #[error("AF_XDP on `{interface}`: {reason}. Fix: {fix}")]
    Xdp {
        /// The interface.
        interface: String,
        /// The attempt and its result.
        reason: String,
        /// The way out.
        fix: String,
    },
    /// The configuration cannot be meant.
    #[error(transparent)]
    Invalid(#[from] SettingError),
    /// Not one frame came back.
    #[error(
        "no EtherCAT device answers while {phase}: no frame came back within {waited:?}. Check the cable, the devices' supply, and that \
         this is the devices' interface"
    )]
    Silent {
        /// The step.
        phase: &'static str,
        /// Time waited.
        waited: Duration,
    },
    /// A phase took longer than allowed.
    #[error("{phase} took longer than {allowed:?}{detail}")]
    TooLong {
        /// The step.
        phase: &'static str,
        /// The time allowed.
        allowed: Duration,
        /// Devices that are behind, beginning with a separator, or empty.
        detail: String,
    },
    /// Fewer or other devices than configured.
    #[error("the devices on the wire differ from the configuration: {}", Mismatches(.0))]
    Devices(Vec<Mismatch>),
    /// The master's own report.
    #[error("EtherCAT master while {phase}: {message}")]
    Master {
        /// The step.
        phase: &'static str,
        /// Its words.
        message: String,
    },
    /// A device refused a configuration object.
    #[error("device {position} ({name}) refused object {index:#06x}:{sub:02x} = {value:#x}: {message}")]
    Object {
        /// Place in the configured list, from 0.
        position: usize,
        /// Its name.
        name: String,
        /// Object index.
        index: u16,
        /// Sub-index.
        sub: u8,
        /// The value to be written.
        value: u32,
        /// The master's words.
        message: String,
    },
    /// A device did not take or report a whole object.
    #[error("device {position} ({name}), object {index:#06x}:{sub:02x}, {length} bytes: {source}")]
    Sdo {
        /// Place in the configured list, from 0.
        position: usize,
        /// Its name.
        name: String,
        /// Object index.
        index: u16,
        /// Sub-index.
        sub: u8,
        /// Bytes to be written; 0 when it was read.
        length: usize,
        /// Its error.
        source: SdoError,
    },
    /// An object that was read back holds something else.
    #[error(
        "device {position} ({name}), object {index:#06x}:{sub:02x}: {written} bytes were written, but it holds {held} bytes that differ \
         from byte {at} on; omit `verify` if the device changes them"
    )]
    NotHeld {
        /// Place in the configured list, from 0.
        position: usize,
        /// Its name.
        name: String,
        /// Object index.
        index: u16,
        /// Sub-index.
        sub: u8,
        /// Bytes written.
        written: usize,
        /// Bytes read back.
        held: usize,
        /// The first byte that differs.
        at: usize,
    },
    /// A device maps more or fewer bytes than its configuration says.
    #[error(
        "device {position} ({name}): expected {expected} bytes of {direction}, its sync managers map {found}; change the configuration or the device's PDO assignment"
    )]
    Mapping {
        /// Place in the configured list, from 0.
        position: usize,
        /// Its name.
        name: String,
        /// `inputs` or `outputs`.
        direction: &'static str,
        /// Bytes configured.
        expected: usize,
        /// Bytes mapped.
        found: usize,
    },
    /// Sync0 is asked of a device that has no clock for it.
    #[error(
        "device {position} ({name}): sync0 is configured, but it has no distributed clock; omit sync0 for it"
    )]
    NoClock {
        /// Place in the configured list, from 0.
        position: usize,
        /// Its name.
        name: String,
    },
    /// A real-time primitive's error.
    #[error(transparent)]
    Rt(#[from] takt_rt::Error),
    /// The priority-inheritance mutex could not be made.
    #[error(transparent)]
    Lock(#[from] takt_rt::pi_mutex::LockError),
}

/// One place on the wire where the wrong device, or none, is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Place on the wire, from 0.
    pub position: usize,
    /// Name and identity as configured; `None` for a device too many.
    pub expected: Option<(String, Identity)>,
    /// Device found; `None` for a missing device.
    pub found: Option<(String, Identity)>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: expected ", self.position)?;
        match &self.expected {
            Some((name, identity)) => write!(f, "{name} ({identity})")?,
            None => f.write_str("nothing")?,
        }
        match &self.found {
            Some((name, identity)) => write!(f, ", found {name} ({identity})"),
            None => f.write_str(", found nothing"),
        }
    }
}

struct Mismatches<'a>(&'a [Mismatch]);

/// Mismatches reported in one message; the rest is counted.
const MAX_LISTED: usize = 4;

impl fmt::Display for Mismatches<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, mismatch) in self.0.iter().take(MAX_LISTED).enumerate() {
            write!(f, "{}{mismatch}", if number > 0 { "; " } else { "" })?;
        }
        match self.0.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
