//! The calls, against a small library with comedilib's interface that the test compiles.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use super::*;
use crate::config::Aref;
use crate::testing::edges;

/// A board of three subdevices: digital lines, analog input (2 channels, ranges ±10 V and 0 V to 5
/// V, 16 bits), analog output (1 channel, ranges 0 V to 5 V and 4 mA to 20 mA, 12 bits), with AO0
/// wired to AI0.
const SOURCE: &str = include_str!("fake.c");

/// The compiled library; None where there is no C compiler.
fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let folder = std::env::temp_dir().join(format!("takt-fake-comedi-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let (source, library) = (folder.join("fake.c"), folder.join("libcomedi.so.0"));
            std::fs::write(&source, SOURCE).unwrap();
            let compiler =
                Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
            match compiler {
                Ok(status) if status.success() => Some(library),
                outcome => {
                    assert!(
                        std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none(),
                        "TAKT_REQUIRE_OUTSIDE is set and cc does not compile: {outcome:?}"
                    );
                    takt_witness::skip!("no C compiler: {outcome:?}");
                    None
                }
            }
        })
        .as_deref()
}

fn config() -> Option<ComediConfig> {
    let input = ComediChannel { range: 1, ..ComediChannel::default() };
    Some(ComediConfig { library: library()?.to_owned(), input, ..ComediConfig::default() })
}

fn error_of(config: &ComediConfig) -> String {
    Comedi::open(config, false).err().expect("the board must be refused").to_string()
}

#[test]
fn edges_go_through_the_board() {
    let Some(config) = config() else { return };
    for settling in [Duration::ZERO, Duration::from_micros(3)] {
        let mut board = Comedi::open(&ComediConfig { settling, ..config.clone() }, false).unwrap();
        assert_eq!(edges(&mut board, 10), 10);
        let description = &board.facts().description;
        assert!(description.contains("fake-1716") && description.contains("0 V to 5 V"), "{description}");
    }
}

#[test]
fn the_ends_of_the_range_are_levels_and_not_nan() {
    let Some(config) = config() else { return };
    let mut board = Comedi::open(&config, false).unwrap();
    for level_v in [0.0, 5.0, 2.5] {
        board.write_v(level_v).unwrap();
        let read_v = board.read_v().unwrap();
        assert!((read_v - level_v).abs() < 5.0 / 4095.0, "{level_v} {read_v}");
    }
}

#[test]
fn channel_range_reference_and_pause_reach_the_library() {
    let Some(mut config) = config() else { return };
    config.input = ComediChannel { subdevice: Some(1), channel: 1, range: 0, aref: Aref::Diff };
    config.settling = Duration::from_micros(7);
    let mut board = Comedi::open(&config, false).unwrap();
    // Channel 1 of the fake shows how it was asked: code = range * 1000 + aref * 100 + pause in
    // microseconds.
    let code = ((board.read_v().unwrap() + 10.0) / 20.0 * 65535.0).round();
    assert_eq!(code, 207.0);
}

#[test]
fn what_the_board_does_not_have_is_reported_with_what_it_has() {
    let Some(config) = config() else { return };
    let with = |change: &dyn Fn(&mut ComediConfig)| {
        let mut changed = config.clone();
        change(&mut changed);
        error_of(&changed)
    };
    let error = with(&|c| c.input.subdevice = Some(0));
    assert!(error.contains("link.input.subdevice = 0") && error.contains("digital lines"), "{error}");
    assert!(error.contains("subdevice 1 is an analog input"), "{error}");
    let error = with(&|c| c.output.subdevice = Some(9));
    assert!(error.contains("3 subdevices") && error.contains("subdevice 2 is an analog output"), "{error}");
    let error = with(&|c| c.input.channel = 2);
    assert!(error.contains("link.input.channel = 2") && error.contains("less than 2"), "{error}");
    let error = with(&|c| c.input.range = 2);
    assert!(error.contains("0: -10 V to 10 V, 1: 0 V to 5 V"), "{error}");
    let error = with(&|c| c.output.range = 1);
    assert!(error.contains("expected a range in volts, found 4 mA to 20 mA"), "{error}");
}

#[test]
fn a_device_that_does_not_open_is_reported_with_the_fix() {
    let Some(config) = config() else { return };
    for (device, words, fix) in [
        ("/dev/comedi-absent", "No such file", "modprobe"),
        ("/dev/comedi-forbidden", "Permission denied", "usermod"),
        ("/dev/comedi-unconfigured", "No such device", "comedi_config"),
        ("/dev/comedi\0", "NUL", "link.device"),
    ] {
        let error = error_of(&ComediConfig { device: device.into(), ..config.clone() });
        assert!(error.contains(words) && error.contains(fix), "{error}");
    }
}

#[test]
fn a_failed_conversion_carries_the_librarys_words() {
    let Some(config) = config() else { return };
    let mut board =
        Comedi::open(&ComediConfig { device: "/dev/comedi-broken".into(), ..config }, false).unwrap();
    let error = board.write_v(5.0).unwrap_err().to_string();
    assert!(error.contains("comedi_data_write") && error.contains("Input/output error"), "{error}");
    assert!(board.read_v().unwrap_err().to_string().contains("comedi_data_read"));
}

#[test]
fn a_missing_or_foreign_library_is_reported_with_the_fix() {
    let missing = ComediConfig { library: "libcomedi-absent.so.0".into(), ..ComediConfig::default() };
    let error = error_of(&missing);
    assert!(error.contains("libcomedi-absent.so.0") && error.contains("apt install"), "{error}");
    // The C library is a library without comedi's functions.
    let foreign = ComediConfig { library: "libc.so.6".into(), ..ComediConfig::default() };
    assert!(error_of(&foreign).contains("comedi_open"), "{}", error_of(&foreign));
}
