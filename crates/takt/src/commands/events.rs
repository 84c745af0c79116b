//! `takt events`: what happened, and why.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use takt_rt::clock::{monotonic_ns, realtime_ns};
use takt_rt::procfs::Stat;
use takt_rundir::RunDir;
use takt_service::{
    About, Event, Follower, Kind, Options, Read, Report, clock_text, folders, read, utc_text,
};

use super::{CommandResult, stop_flag};
use crate::args::Events;

/// How often new events are looked for.
const LOOK: Duration = Duration::from_millis(200);

pub fn run(args: &Events) -> CommandResult {
    if let Some(unit) = &args.unit_ended {
        return unit_ended(unit);
    }
    let folders = folders();
    // Before what is there is read: an event that comes in between is shown twice rather than
    // never, and told apart below.
    let followers: Vec<Follower> =
        if args.follow { folders.iter().map(|folder| Follower::new(folder)).collect() } else { Vec::new() };
    let mut all = Read::default();
    for folder in &folders {
        let Read { events, problems } = read(folder);
        all.events.extend(events);
        all.problems.extend(problems);
    }
    let killed = killed(&all.events);
    all.events.extend(killed);
    all.events.sort_by_key(|event| event.wall_ns);
    let wanted: Vec<&Event> = all.events.iter().filter(|event| is_wanted(args, event)).collect();
    let from = args.last.map_or(0, |last| wanted.len().saturating_sub(last));
    for event in &wanted[from..] {
        show(args, event)?;
    }
    for problem in &all.problems {
        eprintln!("takt: {}", takt_files::shortened(problem));
    }
    if args.follow {
        return follow(args, followers, &all.events);
    }
    if wanted.is_empty() {
        nothing(args, &folders, all.events.len());
    }
    // What is not legible may be what is looked for.
    Ok(if all.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn is_wanted(args: &Events, event: &Event) -> bool {
    args.since.is_none_or(|since| event.wall_ns >= since.0)
        && args.until.is_none_or(|until| event.wall_ns < until.0)
        && args.robot.as_ref().is_none_or(|robot| event.robot == *robot)
        && (args.kind.is_empty() || args.kind.contains(&event.event))
}

fn show(args: &Events, event: &Event) -> Result<(), serde_json::Error> {
    if args.json {
        println!("{}", serde_json::to_string(event)?);
        return Ok(());
    }
    let place = event.place();
    let place = if place.is_empty() { place } else { format!("  [{place}]") };
    let message = takt_files::quoted(&event.message()).to_string();
    println!("{} {:14} {message}{place}", clock_text(event.wall_ns, realtime_ns()), event.event.name());
    Ok(())
}

/// Where nothing is shown, that is what is said, with where it was looked for.
fn nothing(args: &Events, folders: &[PathBuf], others: usize) {
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let others = match others {
        0 => String::new(),
        count => format!("; {count} others are there, without the options all are shown"),
    };
    if !args.json {
        eprintln!("takt: no such events in {}{others}", folders.join(", "));
    }
}

fn follow(args: &Events, mut followers: Vec<Follower>, known: &[Event]) -> CommandResult {
    let stop = stop_flag()?;
    let mut overlap: Vec<&Event> = known.iter().rev().take(1000).collect();
    while !stop.load(Ordering::Acquire) {
        let mut events: Vec<Event> = followers.iter_mut().flat_map(Follower::come).collect();
        events.sort_by_key(|event| event.wall_ns);
        events.retain(|event| !overlap.contains(&event));
        for event in events.iter().filter(|event| is_wanted(args, event)) {
            show(args, event)?;
        }
        if !events.is_empty() {
            overlap.clear();
        }
        std::thread::sleep(LOOK);
    }
    Ok(ExitCode::SUCCESS)
}

/// Processes that have begun, have not ended, and are not there any more: nobody was left to write
/// that. The time is the last that is known of the process.
fn killed(events: &[Event]) -> Vec<Event> {
    type Key<'a> = (&'a str, u32, u64);
    fn key(event: &Event) -> Key<'_> {
        (&event.boot, event.pid, event.pid_start_ticks)
    }
    let ended: BTreeSet<Key<'_>> =
        events.iter().filter(|event| matches!(event.event, Kind::Ended | Kind::Killed)).map(key).collect();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let lives = |event: &Event| {
        let ticks =
            |stat: Stat<Vec<u8>>| stat.is_alive() && stat.start_ticks() == Some(event.pid_start_ticks);
        event.boot == boot.trim() && Stat::of(event.pid).is_some_and(ticks)
    };
    let starts = events.iter().filter(|event| event.event == Kind::Started);
    let gone = starts.filter(|start| !ended.contains(&key(start)) && !lives(start));
    gone.map(|start| {
        let last = events.iter().rfind(|event| key(event) == key(start)).unwrap_or(start);
        killed_of(start, last, start.boot == boot.trim())
    })
    .collect()
}

/// The event that a killed process could not write.
fn killed_of(start: &Event, last: &Event, this_boot: bool) -> Event {
    let (wall_ns, sign) = last_sign(last);
    let how = if this_boot { "killed or crashed" } else { "the machine restarted, or lost its power" };
    let stopped = if last.event == Kind::Stop { "; the robot had been stopped before" } else { "" };
    let after_ns = wall_ns.saturating_sub(start.wall_ns);
    let at_ns = start.at_ns.saturating_add(after_ns);
    Event {
        utc: utc_text(wall_ns),
        wall_ns,
        at_ns,
        event: Kind::Killed,
        cause: format!("ended without a word after {:.1} s: {how}; {sign}{stopped}", after_ns as f64 / 1e9),
        measure: None,
        count: None,
        worst_ns: None,
        moment_s: window_began(last).and_then(|from_ns| Some(at_ns.checked_sub(from_ns)? as f64 / 1e9)),
        ..start.clone()
    }
}

/// When the window of an event's run began, by the event or by the run itself.
fn window_began(last: &Event) -> Option<u64> {
    let of_event = last.moment_s.map(|moment_s| last.at_ns.saturating_sub((moment_s * 1e9) as u64));
    of_event.or_else(|| {
        let header = RunDir::open(last.run_dir.as_ref()?).ok()?.header().ok()?;
        header.measures.first()?.window_ns.map(|[from_ns, _]| from_ns)
    })
}

/// The last that is known of a process: its last event, or the last checkpoint of its run.
fn last_sign(last: &Event) -> (u64, &'static str) {
    let of_checkpoint = || {
        let path = last.run_dir.as_ref()?.join("checkpoint.json");
        let changed = std::fs::symlink_metadata(path).ok()?.modified().ok()?;
        u64::try_from(changed.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos()).ok()
    };
    match of_checkpoint() {
        Some(wall_ns) if wall_ns >= last.wall_ns => (wall_ns, "its last checkpoint is of then"),
        _ => (last.wall_ns, "its last event is of then"),
    }
}

/// Tells how systemd saw a unit end. It sets the variables for ExecStopPost= (systemd.exec(5)).
fn unit_ended(unit: &str) -> CommandResult {
    let variable =
        |name: &str| takt_files::environment::var_os(name).and_then(|value| value.into_string().ok());
    let result = variable("SERVICE_RESULT").unwrap_or_else(|| "unknown".to_owned());
    if result == "success" {
        // The process has told of its end.
        return Ok(ExitCode::SUCCESS);
    }
    let (code, status) =
        (variable("EXIT_CODE").unwrap_or_default(), variable("EXIT_STATUS").unwrap_or_default());
    let reporting = takt_service::begin(Options::of("service"));
    takt_service::about(About { robot: unit.to_owned(), run_dir: None });
    let cause = format!("systemd: {result}, the main process {code} ({status})");
    takt_service::report(Kind::Killed, Report { at_ns: Some(monotonic_ns()), ..Report::of(cause) });
    drop(reporting);
    Ok(ExitCode::SUCCESS)
}
