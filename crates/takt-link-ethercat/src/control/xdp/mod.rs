//! An interface past the kernel's network stack: AF_XDP (Documentation/networking/af_xdp.rst of the
//! kernel).
//!
//! A program at the interface's driver turns EtherCAT frames of one queue over to a socket whose
//! memory this process shares with the kernel; everything else on the interface goes its usual way.
//! With a driver that can (`native`, zero copy) the network card writes into that memory itself.
//! `generic` works with every driver, after the kernel has made a packet of the frame.
//!
//! The program hangs on a descriptor (`bpf_link`, kernel 5.9 and later): it is detached when the
//! wire is dropped or the process ends in any way. While it is there, captures on this interface do
//! not see EtherCAT frames; capture at the devices' end then.

#[cfg(feature = "xdp")]
mod program;
#[cfg(feature = "xdp")]
mod socket;

use serde::{Deserialize, Serialize};

use super::error::ControlError;
use super::wire::Wire;

/// Queues that an interface can have here: far more than cards for EtherCAT have.
pub const MAX_QUEUES: u32 = 4096;

/// Attachment of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpAttach {
    /// In the driver where it can, else as `generic`.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// Behind the driver: every driver can.
    Generic,
}

/// Options of an interface through AF_XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpOptions {
    /// Queue of the interface, from 0. Frames that are not IP come to the first one, unless the
    /// card was instructed otherwise; a card with one queue (`ethtool -L NAME combined 1`) leaves
    /// no doubt.
    pub queue: u32,
    /// Attachment of the program.
    pub attach: XdpAttach,
}

/// Opens interface `name` through AF_XDP; also in a few words how, as in "native, zero copy". Needs
/// CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and the feature `xdp`. A driver may take the link down
/// for some seconds while it changes over: this waits.
///
/// # Errors
/// [`ControlError::UnknownInterface`], [`ControlError::InterfaceDown`]; [`ControlError::Xdp`] with
/// what was tried.
#[cfg(feature = "xdp")]
pub fn open_xdp(name: &str, options: &XdpOptions) -> Result<(Box<dyn Wire>, String), ControlError> {
    let wire = socket::Xdp::open(name, options)?;
    let how = wire.how().to_owned();
    Ok((Box::new(wire), how))
}

/// As with the feature `xdp`, without which there is none.
///
/// # Errors
/// [`ControlError::Xdp`], which names the feature.
#[cfg(not(feature = "xdp"))]
pub fn open_xdp(name: &str, _options: &XdpOptions) -> Result<(Box<dyn Wire>, String), ControlError> {
    Err(ControlError::Xdp {
        interface: name.to_owned(),
        reason: "this takt was built without AF_XDP".to_owned(),
        fix: "build it with `--features takt/xdp`, or use the interface through a raw socket (wire.kind = \"interface\")"
            .to_owned(),
    })
}

#[cfg(all(test, not(feature = "xdp")))]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_it_is_named() {
        let error = open_xdp("eth1", &XdpOptions::default()).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("eth1") && text.contains("takt/xdp")));
    }
}
