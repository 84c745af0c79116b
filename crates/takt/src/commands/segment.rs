//! `takt segment`: simulated EtherCAT devices alone, for any master.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use takt_link_ethercat::capture::{Recorder, Side};
use takt_link_ethercat::segment::{Segment, SegmentConfig, veth};
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

use super::{CommandResult, stop_flag};
use crate::args;

pub fn run(args: &args::Segment) -> CommandResult {
    let stop = stop_flag()?;
    let config = match &args.config {
        Some(path) => {
            let text = takt_files::read_configuration(path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            toml::from_str(&text)
                .map_err(|error| format!("{}: {}", path.display(), error.to_string().trim_end()))?
        }
        None => SegmentConfig::humanoid(args.devices),
    };
    let segment = Segment::new(&config)?;
    let control = segment.control();
    let (pair, interface) = match &args.interface {
        Some(name) => (None, name.clone()),
        None => {
            let pair = veth::VethPair::unique()?;
            let end = pair.segment().to_owned();
            (Some(pair), end)
        }
    };
    let settings = ThreadSettings {
        policy: args.policy.unwrap_or(Policy::Other { nice: 0 }),
        ..ThreadSettings::default()
    };
    let recorder = match &args.capture {
        Some(path) => {
            let mut taps = vec![(interface.as_str(), Side::Segment)];
            taps.extend(pair.iter().map(|pair| (pair.master(), Side::Master)));
            Some(Recorder::start(path, &taps)?)
        }
        None => None,
    };
    let server = veth::serve(&interface, segment, "takt-segment", &settings)?;
    println!("{} devices at {interface}", config.devices.len());
    if let Some(pair) = &pair {
        println!("Master's end of the pair: {}", pair.master());
    }
    let until = args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    while !stop.load(Ordering::Acquire) && until.is_none_or(|until| Instant::now() < until) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let counts = control.counts();
    drop(server);
    println!("{counts:?}");
    if let Some(recorder) = recorder {
        println!("{} sightings of frames captured", recorder.stop()?);
    }
    Ok(ExitCode::SUCCESS)
}
