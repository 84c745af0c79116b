//! A board through comedi. The library is loaded at run time, so that one binary runs with and
//! without it.

mod sys;

use std::ffi::{CString, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::config::{ComediChannel, ComediConfig};
use crate::error::LinkError;
use crate::{Link, LinkFacts};
use sys::{Api, Device, Range};

/// A channel that has been checked against the board.
#[derive(Clone, Copy, Debug)]
struct Channel {
    subdevice: u32,
    channel: u32,
    range_number: u32,
    aref: u32,
    range: Range,
    maxdata: u32,
}

/// An open board.
pub struct Comedi {
    api: Api,
    device: Device,
    path: PathBuf,
    output: Channel,
    input: Channel,
    /// Wired to a plant, where a controller runs.
    plant: Option<(Channel, [Channel; 2])>,
    settling_ns: u32,
    facts: LinkFacts,
}

// SAFETY: comedilib keeps the state of a device behind its handle and is used here by one thread at
// a time (`&mut self`); a handle is not bound to the thread that made it. Only the error number is
// per process.
unsafe impl Send for Comedi {}

impl Comedi {
    pub fn open(config: &ComediConfig, plant: bool) -> Result<Self, LinkError> {
        let path = config.device.clone();
        let refused = |reason: String, fix: String| LinkError::Device { device: path.clone(), reason, fix };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| refused("the name holds a NUL".into(), "correct link.device".into()))?;
        let api = Api::load(&config.library)?;
        // The library's own messages would go to standard error; ours carry the same words.
        // SAFETY: a number is set.
        unsafe { (api.loglevel)(0) };
        // By default the library turns the lowest and the highest code into NaN, and those are just
        // the levels of a pulse from 0 V to 5 V on a range of 0 V to 5 V. SAFETY: a number is set.
        unsafe { (api.set_global_oor_behavior)(sys::OOR_NUMBER) };
        // SAFETY: the name is a C string that outlives the call.
        let device = unsafe { (api.open)(name.as_ptr()) };
        if device.is_null() {
            let errno = io::Error::last_os_error();
            return Err(refused(api.last_error(), open_fix(&path, &errno)));
        }
        // From here on dropping closes the device.
        let mut board = Self {
            api,
            device,
            path: path.clone(),
            output: Channel::NONE,
            input: Channel::NONE,
            plant: None,
            settling_ns: config.settling.as_nanos() as u32,
            facts: LinkFacts { description: String::new(), echo: None },
        };
        board.output = board.channel("output", &config.output, sys::SUBD_AO)?;
        board.input = board.channel("input", &config.input, sys::SUBD_AI)?;
        if plant {
            let drive = board.channel("drive", &config.drive, sys::SUBD_AO)?;
            let position = board.channel("sensors[0]", &config.sensors[0], sys::SUBD_AI)?;
            let speed = board.channel("sensors[1]", &config.sensors[1], sys::SUBD_AI)?;
            board.plant = Some((drive, [position, speed]));
        }
        board.facts.description = board.describe();
        Ok(board)
    }

    /// Checks a channel against the board.
    fn channel(&self, key: &str, asked: &ComediChannel, kind: c_int) -> Result<Channel, LinkError> {
        let wrong = |field: &str, given: u32, expected: String, found: String| LinkError::Channel {
            device: self.path.clone(),
            key: format!("{key}.{field}"),
            given,
            expected,
            found,
        };
        let kind_name = if kind == sys::SUBD_AI { "an analog input" } else { "an analog output" };
        // SAFETY: the device is open, here and in the queries below.
        let count = unsafe { (self.api.get_n_subdevices)(self.device) };
        // SAFETY: as above.
        let first = unsafe { (self.api.find_subdevice_by_type)(self.device, kind, 0) };
        let count = u32::try_from(count).unwrap_or(0);
        let hint = match u32::try_from(first) {
            Ok(first) => format!("subdevice {first} is {kind_name}"),
            Err(_) => format!("none of this board's {count} subdevices is {kind_name}: choose another board"),
        };
        let subdevice = match (asked.subdevice, u32::try_from(first)) {
            (Some(subdevice), _) | (None, Ok(subdevice)) => subdevice,
            (None, Err(_)) => return Err(wrong("subdevice", 0, kind_name.into(), hint)),
        };
        if subdevice >= count {
            let found = format!("{count} subdevices; {hint}");
            return Err(wrong("subdevice", subdevice, format!("less than {count}"), found));
        }
        // SAFETY: as above; the subdevice exists.
        let found_kind = unsafe { (self.api.get_subdevice_type)(self.device, subdevice) };
        if found_kind != kind {
            let found = format!("{}; {hint}", sys::kind_name(found_kind));
            return Err(wrong("subdevice", subdevice, kind_name.into(), found));
        }
        // SAFETY: as above.
        let channels = unsafe { (self.api.get_n_channels)(self.device, subdevice) };
        let channels = u32::try_from(channels).unwrap_or(0);
        if asked.channel >= channels {
            let found = format!("{channels} channels");
            return Err(wrong("channel", asked.channel, format!("less than {channels}"), found));
        }
        // SAFETY: as above; the channel exists.
        let ranges = unsafe { (self.api.get_n_ranges)(self.device, subdevice, asked.channel) };
        let ranges = u32::try_from(ranges).unwrap_or(0);
        if asked.range >= ranges {
            let list: Vec<String> = (0..ranges)
                .filter_map(|number| {
                    Some(format!("{number}: {}", self.range(subdevice, asked.channel, number)?))
                })
                .collect();
            let found = format!("{ranges} ranges ({})", list.join(", "));
            return Err(wrong("range", asked.range, format!("less than {ranges}"), found));
        }
        let range = self.range(subdevice, asked.channel, asked.range);
        let Some(range) = range.filter(|range| range.unit == sys::UNIT_VOLT && range.min < range.max) else {
            let found = range.map_or("an unreadable range".into(), |range| range.to_string());
            return Err(wrong("range", asked.range, "a range in volts".into(), found));
        };
        // SAFETY: as above.
        let maxdata = unsafe { (self.api.get_maxdata)(self.device, subdevice, asked.channel) };
        if maxdata == 0 {
            let found = "a converter without steps (maxdata 0)".into();
            return Err(wrong("channel", asked.channel, "a converter".into(), found));
        }
        Ok(Channel {
            subdevice,
            channel: asked.channel,
            range_number: asked.range,
            aref: asked.aref.code(),
            range,
            maxdata,
        })
    }

    fn range(&self, subdevice: u32, channel: u32, number: u32) -> Option<Range> {
        // SAFETY: subdevice, channel and number exist; the library keeps the range until the device
        // is closed, and it is copied here.
        unsafe { (self.api.get_range)(self.device, subdevice, channel, number).as_ref() }.copied()
    }

    fn describe(&self) -> String {
        // SAFETY: the device is open; the names live as long as it.
        let (board, driver) = unsafe {
            let board = (self.api.get_board_name)(self.device);
            let driver = (self.api.get_driver_name)(self.device);
            (sys::text(board), sys::text(driver))
        };
        let path = self.path.display();
        let (output, input) = (&self.output, &self.input);
        let plant = match &self.plant {
            Some((drive, [position, speed])) => format!(
                ", drive {}.{} {}, sensors {}.{} {} and {}.{} {}",
                drive.subdevice,
                drive.channel,
                drive.range,
                position.subdevice,
                position.channel,
                position.range,
                speed.subdevice,
                speed.channel,
                speed.range
            ),
            None => String::new(),
        };
        format!(
            "{board} (driver {driver}) at {path}: output {}.{} {}, input {}.{} {}{plant}",
            output.subdevice, output.channel, output.range, input.subdevice, input.channel, input.range
        )
    }

    fn failed(&self, doing: &'static str) -> LinkError {
        LinkError::Conversion { device: self.path.clone(), doing, reason: self.api.last_error() }
    }
}

impl Channel {
    const NONE: Self =
        Self { subdevice: 0, channel: 0, range_number: 0, aref: 0, range: Range::NONE, maxdata: 1 };
}

fn open_fix(path: &std::path::Path, errno: &io::Error) -> String {
    match errno.raw_os_error() {
        Some(libc::ENOENT) => "load the board's driver (`sudo modprobe adv_pci1716`, or the one that `lspci -k` names) and check `ls \
             /dev/comedi*`; for boards without automatic set-up run `sudo comedi_config /dev/comedi0 DRIVER`"
            .to_owned(),
        Some(libc::EACCES | libc::EPERM) => format!(
            "join the group of the device (`stat -c %G {0}`, usually `sudo usermod -aG iocard $USER`), or `sudo \
             chmod a+rw {0}`",
            path.display()
        ),
        Some(libc::ENODEV | libc::ENXIO) => {
            "no board is configured there: load its driver, or run `sudo comedi_config`, and check `comedi_board_info`"
                .to_owned()
        }
        Some(libc::EBUSY) => "another program uses the board: end it".to_owned(),
        _ => format!("check that {} is a comedi device (`comedi_board_info`)", path.display()),
    }
}

impl Comedi {
    fn write(&self, to: Channel, level_v: f64) -> Result<(), LinkError> {
        let Channel { subdevice, channel, range_number, aref, mut range, maxdata } = to;
        // SAFETY: the range is a copy that outlives the call; the device is open and the channel
        // was checked.
        let rc = unsafe {
            let data = (self.api.from_phys)(level_v, &mut range, maxdata);
            (self.api.data_write)(self.device, subdevice, channel, range_number, aref, data)
        };
        if rc < 0 { Err(self.failed("comedi_data_write")) } else { Ok(()) }
    }

    fn read(&self, from: Channel) -> Result<f64, LinkError> {
        let Channel { subdevice, channel, range_number, aref, mut range, maxdata } = from;
        let mut data = 0;
        // SAFETY: `data` outlives the call; the device is open and the channel was checked.
        let rc = unsafe {
            if self.settling_ns == 0 {
                (self.api.data_read)(self.device, subdevice, channel, range_number, aref, &mut data)
            } else {
                let settling_ns = self.settling_ns;
                (self.api.data_read_delayed)(
                    self.device,
                    subdevice,
                    channel,
                    range_number,
                    aref,
                    &mut data,
                    settling_ns,
                )
            }
        };
        if rc < 0 {
            return Err(self.failed("comedi_data_read"));
        }
        // SAFETY: the range is a copy that outlives the call.
        Ok(unsafe { (self.api.to_phys)(data, &mut range, maxdata) })
    }
}

impl Link for Comedi {
    fn write_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        self.write(self.output, level_v)
    }

    fn read_v(&mut self) -> Result<f64, LinkError> {
        self.read(self.input)
    }

    fn drive_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        let Some((drive, _)) = self.plant else { return Err(self.no_plant()) };
        self.write(drive, level_v)
    }

    fn sense_v(&mut self) -> Result<[f64; 2], LinkError> {
        let Some((_, [position, speed])) = self.plant else { return Err(self.no_plant()) };
        Ok([self.read(position)?, self.read(speed)?])
    }

    fn facts(&self) -> &LinkFacts {
        &self.facts
    }
}

impl Drop for Comedi {
    fn drop(&mut self) {
        // SAFETY: the device is open and not used after this.
        unsafe { (self.api.close)(self.device) };
    }
}

#[cfg(test)]
mod tests;
