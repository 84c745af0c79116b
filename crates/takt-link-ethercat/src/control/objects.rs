//! Objects of devices in PRE-OP, of any length.

use takt_rt::config::SettingError;

use super::bring_up::{Found, MAX_IMAGE};
use super::config::{ControlConfig, Identity, MAX_DEVICES, ObjectWrite};
use super::error::ControlError;
use super::master::{Carrier, Limits, Master};
use super::port::ImagePlace;
use super::sdo;
use super::wire::Wire;

/// Writes `data` of `write`, and reads back where that is asked for.
pub(super) fn write(
    master: &mut Master,
    limits: &Limits,
    position: usize,
    found: &Found,
    write: &ObjectWrite,
) -> Result<(), ControlError> {
    const PHASE: &str = "writing objects";
    let device = master.device();
    let (index, sub) = (write.index, write.sub);
    let written = write.payload();
    let name = || found.name.clone();
    if write.data.is_some() {
        let length = written.len();
        master
            .run(PHASE, limits, sdo::download(device, found.address, index, sub, &written))?
            .map_err(|source| ControlError::Sdo { position, name: name(), index, sub, length, source })?;
    }
    if write.verify {
        let held = read(master, limits, position, found, index, sub)?;
        if held != written {
            let at = held.iter().zip(&written).take_while(|(held, written)| held == written).count();
            let (written, held) = (written.len(), held.len());
            return Err(ControlError::NotHeld { position, name: name(), index, sub, written, held, at });
        }
    }
    Ok(())
}

fn read(
    master: &mut Master,
    limits: &Limits,
    position: usize,
    found: &Found,
    index: u16,
    sub: u8,
) -> Result<Vec<u8>, ControlError> {
    let upload = sdo::upload(master.device(), found.address, index, sub);
    master.run("reading objects", limits, upload)?.map_err(|source| ControlError::Sdo {
        position,
        name: found.name.clone(),
        index,
        sub,
        length: 0,
        source,
    })
}

/// Reads an object of the device at `position` of the wire, counted from 0; devices are taken to
/// PRE-OP and left there.
///
/// Call it before [`bring_up`](super::bring_up), from a thread without real-time policy. Time
/// limits are those of `config`.
///
/// # Errors
/// [`ControlError`]: nobody there, no such device, a device that refuses.
pub fn read_object(
    wire: Box<dyn Wire>,
    config: &ControlConfig,
    position: usize,
    index: u16,
    sub: u8,
) -> Result<Vec<u8>, ControlError> {
    config.validate()?;
    let mut master = Master::new(wire, config.clock_frames)?;
    let device = master.device();
    let limits = Limits::of(config, master.now_ns());
    let group = device.init_single_group::<MAX_DEVICES, MAX_IMAGE>(ethercrab::std::ethercat_now);
    let group = master.run("looking for devices", &limits, group)?;
    let found = group.iter(device).nth(position).map(|sub| Found {
        name: sub.name().to_owned(),
        identity: Identity::default(),
        address: sub.configured_address(),
        place: ImagePlace::default(),
    });
    let devices = group.len();
    let Some(found) = found else {
        let accepted = format!("there are {devices} on the wire, counted from 0");
        return Err(SettingError::value("device", position, accepted).into());
    };
    read(&mut master, &limits, position, &found, index, sub)
}
