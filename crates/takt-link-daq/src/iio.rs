//! Converters of the kernel's Industrial I/O subsystem.
//!
//! Libiio ([`industrial_io`]) finds the channel and says what its codes mean. The conversions
//! themselves go through the open sysfs attribute (`Documentation/ABI/testing/sysfs-bus-iio`):
//! `pread` at 0 makes the driver convert anew, and nothing allocates, as libiio does in each
//! access.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use industrial_io::{Channel, Context, Device, Direction};

use crate::config::{IioChannel, IioConfig};
use crate::error::LinkError;
use crate::{Link, LinkFacts};

const DEVICES: &str = "/sys/bus/iio/devices";
/// Longest text of a code: a sign, 19 digits, an end of line.
const CODE_BYTES: usize = 24;

/// An open channel.
struct Converter {
    file: File,
    path: PathBuf,
    /// Level = (code + offset) * scale.
    scale_v: f64,
    offset: f64,
}

/// Open converters.
pub struct Iio {
    output: Converter,
    input: Converter,
    plant: Option<(Converter, [Converter; 2])>,
    facts: LinkFacts,
}

fn none(reason: String) -> LinkError {
    let fix = "load the converter's driver and check `iio_info`; link.input and link.output name device and channel";
    LinkError::Iio { reason, fix }
}

impl Iio {
    pub fn open(config: &IioConfig, plant: bool) -> Result<Self, LinkError> {
        let context = Context::from_uri("local:")
            .map_err(|error| none(format!("libiio finds no Industrial I/O subsystem here: {error}")))?;
        let open = |asked: &IioChannel, direction| Converter::open(&context, asked, direction);
        let output = open(&config.output, Direction::Output)?;
        let input = open(&config.input, Direction::Input)?;
        let mut description =
            format!("iio: output {}, input {}", output.path.display(), input.path.display());
        let plant = if plant {
            let [position, speed] = &config.sensors;
            let drive = open(&config.drive, Direction::Output)?;
            let sensors = [open(position, Direction::Input)?, open(speed, Direction::Input)?];
            let [position, speed] = &sensors;
            description += &format!(
                ", drive {}, sensors {} and {}",
                drive.path.display(),
                position.path.display(),
                speed.path.display()
            );
            Some((drive, sensors))
        } else {
            None
        };
        Ok(Self { output, input, plant, facts: LinkFacts { description, echo: None } })
    }
}

impl Converter {
    fn open(context: &Context, asked: &IioChannel, direction: Direction) -> Result<Self, LinkError> {
        let word = if direction == Direction::Output { "output" } else { "input" };
        let fits = |device: &Device| {
            asked.device.is_empty()
                || device.name().as_deref() == Some(asked.device.as_str())
                || device.id().as_deref() == Some(asked.device.as_str())
        };
        let found = context
            .devices()
            .filter(fits)
            .find_map(|device| Some((device.id()?, device.find_channel(&asked.channel, direction)?)));
        let Some((device, channel)) = found else {
            let there: Vec<String> =
                context.devices().flat_map(|device| channels(&device, direction)).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            let of = if asked.device.is_empty() { String::new() } else { format!(" of {}", asked.device) };
            return Err(none(format!("no {word} \"{}\"{of}; available {word}s: {there}", asked.channel)));
        };
        let number =
            |name: &str| channel.has_attr(name).then(|| channel.attr_read_float(name).ok()).flatten();
        // Millivolts for a code (the kernel's ABI); without one, codes are millivolts.
        let scale_v = number("scale").unwrap_or(1.0) / 1e3;
        let offset = number("offset").unwrap_or(0.0);
        if !(scale_v.is_finite() && scale_v != 0.0 && offset.is_finite()) {
            let asked = &asked.channel;
            return Err(none(format!(
                "{device}: {word} \"{asked}\": a scale of {scale_v} V and an offset of {offset}"
            )));
        }
        let path = Path::new(DEVICES).join(device).join(attribute(&channel, direction));
        let opened = OpenOptions::new().read(true).write(direction == Direction::Output).open(&path);
        let file = opened.map_err(|source| LinkError::IioConversion { path: path.clone(), source })?;
        Ok(Self { file, path, scale_v, offset })
    }

    fn failed(&self, source: io::Error) -> LinkError {
        LinkError::IioConversion { path: self.path.clone(), source }
    }

    fn read_v(&self) -> Result<f64, LinkError> {
        let mut text = [0; CODE_BYTES];
        let bytes = self.file.read_at(&mut text, 0).map_err(|error| self.failed(error))?;
        match code(&text[..bytes]) {
            Some(code) => Ok((code as f64 + self.offset) * self.scale_v),
            None => Err(self.failed(io::Error::new(io::ErrorKind::InvalidData, "no number"))),
        }
    }

    fn write_v(&self, level_v: f64) -> Result<(), LinkError> {
        let mut text = [0; CODE_BYTES];
        let mut rest = text.as_mut_slice();
        // `as` saturates and turns NaN into 0.
        let code = (level_v / self.scale_v - self.offset).round() as i64;
        writeln!(rest, "{code}").map_err(|error| self.failed(error))?;
        let bytes = CODE_BYTES - rest.len();
        self.file.write_all_at(&text[..bytes], 0).map_err(|error| self.failed(error))
    }
}

/// The attribute of a channel's code, by the kernel's naming.
fn attribute(channel: &Channel, direction: Direction) -> String {
    let word = if direction == Direction::Output { "out" } else { "in" };
    let id = channel.id().unwrap_or_default();
    match channel.name() {
        Some(name) => format!("{word}_{id}_{name}_raw"),
        None => format!("{word}_{id}_raw"),
    }
}

/// A device's channels of a direction, for people.
fn channels(device: &Device, direction: Direction) -> Vec<String> {
    let name = device.name().or_else(|| device.id()).unwrap_or_default();
    let of = |channel: Channel| {
        (channel.direction() == direction && channel.has_attr("raw"))
            .then(|| format!("{} of {name}", channel.id().unwrap_or_default()))
    };
    device.channels().filter_map(of).collect()
}

/// The number in the first line.
fn code(text: &[u8]) -> Option<i64> {
    let line = text.split(|&byte| byte == b'\n').next()?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

impl Link for Iio {
    fn write_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        self.output.write_v(level_v)
    }

    fn read_v(&mut self) -> Result<f64, LinkError> {
        self.input.read_v()
    }

    fn drive_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        match &self.plant {
            Some((drive, _)) => drive.write_v(level_v),
            None => Err(self.no_plant()),
        }
    }

    fn sense_v(&mut self) -> Result<[f64; 2], LinkError> {
        match &self.plant {
            Some((_, [position, speed])) => Ok([position.read_v()?, speed.read_v()?]),
            None => Err(self.no_plant()),
        }
    }

    fn facts(&self) -> &LinkFacts {
        &self.facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::edges;
    use proptest::prelude::*;
    use std::process::Command;

    /// The kernel's files for a converter of three channels each way, with inputs that are the
    /// outputs' own files: no kernel of Debian has the dummy driver (CONFIG_IIO_SIMPLE_DUMMY needs
    /// CONFIG_IIO_SW_DEVICE, which is not set), so libiio is given a folder that looks like one, in
    /// a separate mount namespace.
    const TREE: &str = "mount -t tmpfs none /sys/bus && d=/sys/bus/iio/devices/iio:device0 && mkdir -p $d && cd $d && \
        echo loop16 > name && for n in 0 1 2; do echo 0 > out_voltage${n}_raw; ln out_voltage${n}_raw in_voltage${n}_raw; done && \
        echo 0.305 > out_voltage_scale && echo 0.305 > in_voltage_scale && echo -100 > in_voltage_offset && \
        echo -100 > out_voltage_offset && exec \"$@\"";

    #[test]
    fn edges_go_through_what_libiio_finds() {
        let output = Command::new("unshare")
            .args(["-m", "sh", "-ec", TREE, "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "iio::tests::in_the_tree", "--nocapture"])
            .output();
        let output = match output {
            Ok(output) if output.status.success() => output,
            refused => {
                let message = format!("{refused:?}");
                assert!(!message.contains("panicked"), "{message}");
                takt_witness::skip!("no mount namespace here: {message}");
                return;
            }
        };
        let message = String::from_utf8_lossy(&output.stdout);
        assert!(message.contains("1 passed"), "{message}");
    }

    #[test]
    fn in_the_tree() {
        if !Path::new("/sys/bus/iio/devices/iio:device0/out_voltage2_raw").exists() {
            return;
        }
        let config = IioConfig::default();
        let mut link = Iio::open(&config, true).unwrap();
        let description = link.facts().description.clone();
        assert!(
            description.contains("iio:device0/out_voltage0_raw") && description.contains("sensors"),
            "{description}"
        );
        assert_eq!(edges(&mut link, 100), 100);
        for level_v in [-10.0, -3.3, 0.0, 5.0, 9.99] {
            link.write_v(level_v).unwrap();
            let read_v = link.read_v().unwrap();
            assert!((read_v - level_v).abs() <= 0.305e-3 / 2.0 + 1e-9, "{level_v} {read_v}");
        }
        // By the kernel's ABI: (code + offset) * scale millivolts.
        let code = std::fs::read_to_string(&link.output.path).unwrap();
        assert_eq!(
            code.lines().next().unwrap().parse::<f64>().unwrap(),
            (9.99 / 0.305e-3 + 100.0_f64).round()
        );
        link.drive_v(2.0).unwrap();
        assert!((link.sense_v().unwrap()[0] - 2.0).abs() < 1e-3);
        for (device, channel, words) in
            [("", "voltage9", "voltage0 of loop16"), ("ad5592r", "voltage0", "of ad5592r")]
        {
            let input = IioChannel { device: device.into(), channel: channel.into() };
            let error = Iio::open(&IioConfig { input, ..config.clone() }, false).err().unwrap().to_string();
            assert!(error.contains(words) && error.contains("iio_info"), "{error}");
        }
        std::fs::write(&link.input.path, "soon\n").unwrap();
        assert!(link.read_v().unwrap_err().to_string().contains("no number"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = code(&text);
        }

        #[test]
        fn codes_read_back(value: i64) {
            prop_assert_eq!(code(format!("{value}\n4\n").as_bytes()), Some(value));
        }
    }
}
