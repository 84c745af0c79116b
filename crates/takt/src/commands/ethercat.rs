//! `takt ethercat`: captures of EtherCAT traffic, and what they report.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use takt_link_ethercat::analyse::{AppLog, Limits, Report, Traffic, analyse};
use takt_link_ethercat::capture::{CaptureFacts, Recorder, Side, read};
use takt_rundir::RunDir;

use super::{CommandResult, stop_flag};
use crate::args::ethercat::{Analyse, Capture, Ethercat};

/// Longest log of an application: hours at 1 kHz.
const MAX_LOG_BYTES: u64 = 1 << 30;

pub fn run(what: &Ethercat) -> CommandResult {
    match what {
        Ethercat::Analyse(args) => analyse_file(args),
        Ethercat::Capture(args) => capture(args),
    }
}

fn capture(args: &Capture) -> CommandResult {
    let stop = stop_flag()?;
    let mut taps = vec![(args.interface.as_str(), Side::Master)];
    taps.extend(args.segment.as_deref().map(|name| (name, Side::Segment)));
    let recorder = Recorder::start(&args.file, &taps)?;
    println!("Recording {} into {}", args.interface, args.file.display());
    let until = args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    while !stop.load(Ordering::Acquire) && until.is_none_or(|until| Instant::now() < until) {
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{} sightings of frames captured", recorder.stop()?);
    Ok(ExitCode::SUCCESS)
}

/// Output of `--json`.
#[derive(Serialize)]
struct Printed<'a> {
    file: &'a Path,
    capture: &'a CaptureFacts,
    #[serde(flatten)]
    report: &'a Report,
}

fn analyse_file(args: &Analyse) -> CommandResult {
    let mut traffic = Traffic::default();
    let facts = read(&args.file, &mut |packet| traffic.add(&packet))?;
    let log = match &args.run {
        Some(path) => Some(app_log(path, args.clock_offset_ns.or(facts.clock_offset_ns))?),
        None => None,
    };
    let ns = |us: Option<u32>| us.map(|us| u64::from(us) * 1000);
    let period_ns = args.period.map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
    let limits = Limits { slow_ns: ns(args.slow_us), late_ns: ns(args.late_us), period_ns };
    let report = analyse(&traffic, log.as_ref(), &limits);
    if args.json {
        let printed = Printed { file: &args.file, capture: &facts, report: &report };
        println!("{}", serde_json::to_string_pretty(&printed)?);
        return judged(&args.file, &facts, &report);
    }
    println!("{}", described(&facts));
    print!("{}", report.text(args.findings, facts.cut.is_some()));
    judged(&args.file, &facts, &report)
}

/// The capture's own description, one item a line.
fn described(facts: &CaptureFacts) -> String {
    let mut lines = Vec::new();
    for interface in &facts.interfaces {
        let name = if interface.name.is_empty() { "interface" } else { &interface.name };
        let end = if interface.side == Side::Master { "at the master" } else { "at the segment" };
        if interface.foreign_packets > 0 {
            let (packets, link) = (interface.foreign_packets, &interface.link_type);
            lines.push(format!(
                "{name}: {packets} packets NOT READ: captured with link type {link}, expected Ethernet"
            ));
            continue;
        }
        let lost = match interface.dropped {
            Some(0) => String::new(),
            Some(lost) => format!(", {lost} LOST by the capture: missing frames may be among them"),
            None => ", losses during capture unknown".to_owned(),
        };
        lines.push(format!("{name}: {end}, {} EtherCAT frames{lost}", interface.frames));
    }
    let foreign: u64 = facts.interfaces.iter().map(|interface| interface.foreign_packets).sum();
    let others = facts.other_packets.saturating_sub(foreign);
    lines.extend((others > 0).then(|| format!("{others} packets of other protocols")));
    lines.extend(deep_tagged(facts));
    lines.extend(shortened(facts));
    lines.extend((facts.cut_behind_packets > 0).then(|| {
        format!(
            "{} frames cut after their datagrams, where a probe on the wire adds its timestamps; capture whole frames with `tcpdump -s 0`",
            facts.cut_behind_packets
        )
    }));
    lines.extend((facts.unstamped_packets > 0).then(|| {
        format!("{} packets without a time stamp (simple packet blocks) NOT READ", facts.unstamped_packets)
    }));
    lines.extend((facts.damaged_packets > 0).then(|| {
        format!("{} packets NOT READ: their description in the file is wrong", facts.damaged_packets)
    }));
    lines.extend(
        facts.cut.as_ref().map(|cut| format!("the file is truncated and was read up to that point: {cut}")),
    );
    lines.join("\n")
}

/// Packets with more VLAN tags than are followed.
fn deep_tagged(facts: &CaptureFacts) -> Option<String> {
    let (packets, most) = (facts.deep_tagged_packets, CaptureFacts::MAX_TAGS);
    (packets > 0).then(|| {
        format!(
            "{packets} packets NOT READ: they have more than {most} VLAN tags. `editcap -C 12:4 FILE bus.pcapng` removes the first tag of \
             each packet"
        )
    })
}

/// Frames of which the capture has the beginning alone.
fn shortened(facts: &CaptureFacts) -> Option<String> {
    (facts.cut_packets > 0).then(|| {
        format!(
            "{} frames CUT by the capture (to {} bytes): they are judged without their working counters. Capture whole frames with \
             `tcpdump -s 0`",
            facts.cut_packets, facts.cut_to_bytes
        )
    })
}

/// Success, where there was something to judge: a script must not take an empty capture for a clean
/// one.
fn judged(file: &Path, facts: &CaptureFacts, report: &Report) -> CommandResult {
    if report.judges() {
        return Ok(ExitCode::SUCCESS);
    }
    let cut = facts.cut.as_ref().map_or(String::new(), |why| format!(" before it ends abruptly ({why})"));
    let mut reasons: Vec<String> = facts
        .interfaces
        .iter()
        .filter(|interface| interface.foreign_packets > 0)
        .map(|interface| {
            let (packets, link) = (interface.foreign_packets, &interface.link_type);
            format!("{packets} packets were captured with link type {link}, expected Ethernet: capture at one interface of the bus")
        })
        .collect();
    reasons.extend(deep_tagged(facts));
    reasons.extend(shortened(facts));
    if facts.unstamped_packets > 0 {
        reasons.push(format!("{} packets have no time stamp", facts.unstamped_packets));
    }
    let why = if reasons.is_empty() { String::new() } else { format!(". {}", reasons.join("; ")) };
    Err(format!("nothing to judge: no cyclic EtherCAT frame in {}{cut}{why}", file.display()).into())
}

/// The application's stamps, of a run directory or a CSV file.
fn app_log(path: &Path, clock_offset_ns: Option<i64>) -> Result<AppLog, Box<dyn std::error::Error>> {
    let offset_ns = clock_offset_ns.ok_or(
        "--run: the capture does not state the offset of its clock from CLOCK_MONOTONIC, which a run uses. Capture with `takt segment \
         --capture` or `takt ethercat capture`, or give --clock-offset-ns (CLOCK_REALTIME less CLOCK_MONOTONIC)",
    )?;
    let log = if path.is_dir() {
        let dir = RunDir::open(path)?;
        let mut column = |name: &str| dir.columns(takt_robot_humanoid::lab::CYCLES, &[name]).ok()?.pop();
        AppLog::from_columns(&mut column, offset_ns)
    } else {
        let text = takt_files::read_to_string(path, MAX_LOG_BYTES)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        AppLog::from_csv(&text, offset_ns)
    };
    log.map_err(|error| format!("--run {}: {error}", path.display()).into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use takt_link_ethercat::capture::Writer;

    use super::*;

    /// Runs `takt ethercat analyse` on `bytes`: the error, or `None` for success.
    fn analysed(bytes: &[u8], json: bool) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bus.pcapng");
        std::fs::write(&file, bytes).unwrap();
        let args = Analyse {
            file,
            run: None,
            clock_offset_ns: None,
            period: None,
            slow_us: None,
            late_us: None,
            findings: 20,
            json,
        };
        analyse_file(&args).err().map(|error| error.to_string())
    }

    #[test]
    fn a_capture_in_which_nothing_can_be_judged_is_no_success() {
        let mut writer = Writer::new(Vec::new(), &[("eth0", Side::Master)]).unwrap();
        let head = writer.flush().map(|()| writer.into_inner()).unwrap();
        // Nothing but its header; and broken at its first packet.
        let mut broken = head.clone();
        broken.extend([6, 0, 0, 0, 3, 0, 0, 0, 1]);
        for json in [false, true] {
            let error = analysed(&head, json).unwrap();
            assert!(error.contains("nothing to judge: no cyclic EtherCAT frame in"), "{error}");
            let error = analysed(&broken, json).unwrap();
            assert!(error.contains("bus.pcapng before it ends abruptly"), "{error}");
        }
    }
}
