//! The loop over every link that needs no hardware.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use takt_link_daq::LinkConfig;
use takt_robot_daqloop::control::{ControllerConfig, NeuroConfig, RbfConfig};
use takt_robot_daqloop::saving::{DisplayLine, EdgeSink};
use takt_robot_daqloop::{DaqConfig, DaqLoop, EdgeRecord, Ended, Stamp};

/// Not a test: the plant's process of the tests below is this very program.
#[test]
fn far_end() {
    if std::env::var_os(IS_FAR_END).is_some() {
        let code = takt_robot_daqloop::plant::serve();
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

const IS_FAR_END: &str = "TAKT_TEST_IS_FAR_END";

fn use_this_program_as_plant() {
    takt_link_daq::far_end::set_program(takt_link_daq::far_end::Program {
        path: std::env::current_exe().unwrap(),
        arguments: ["daq::far_end", "--exact", "--nocapture", "--test-threads=1"].map(Into::into).into(),
        variables: vec![(IS_FAR_END.into(), "1".into())],
    });
}

/// A loop that leaves the other tests their processors.
fn polite(text: &str) -> DaqConfig {
    let defaults = "acquisition.policy = 'other'\nacquisition.lock_memory = 'off'\n";
    let seconds = if text.contains("seconds") { "" } else { "seconds = 60\n" };
    let mut config: DaqConfig = toml::from_str(&format!("{defaults}{seconds}{text}")).unwrap();
    match &mut config.link {
        LinkConfig::Udp(udp) => udp.echo.policy = Default::default(),
        LinkConfig::Pty(pty) => pty.echo.policy = Default::default(),
        LinkConfig::Eventfd(eventfd) => eventfd.echo.policy = Default::default(),
        LinkConfig::Simulated(_) | LinkConfig::Comedi(_) | LinkConfig::Iio(_) => {}
    }
    config
}

fn all(daq: &mut DaqLoop) -> Box<dyn FnMut() -> Vec<EdgeRecord>> {
    let mut records = daq.take_records().unwrap();
    Box::new(move || {
        let mut edges = Vec::new();
        records.take_into(&mut edges, 1 << 20);
        edges
    })
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<(Vec<u64>, Vec<DisplayLine>)>>);

impl EdgeSink for Kept {
    fn edge(&mut self, edge: &EdgeRecord) -> io::Result<()> {
        self.0.lock().unwrap().0.push(edge.index);
        Ok(())
    }

    fn display(&mut self, line: &DisplayLine) -> io::Result<()> {
        self.0.lock().unwrap().1.push(*line);
        Ok(())
    }
}

#[test]
fn every_edge_of_every_link_is_recorded_and_saved() {
    for link in [
        "{ kind = 'simulated' }",
        "{ kind = 'udp', waiting = 'block' }",
        "{ kind = 'udp' }",
        "{ kind = 'pty', waiting = 'block' }",
        "{ kind = 'pty', echo_by = 'line', waiting = 'block' }",
        "{ kind = 'eventfd', waiting = 'block' }",
    ] {
        let config = polite(&format!("link = {link}\nstop.edges = 300\nsaving.display.every = 100"));
        let kept = Kept::default();
        let mut daq = DaqLoop::start_saving(&config, Box::new(kept.clone())).unwrap();
        let mut records = all(&mut daq);
        let outcome = daq.wait().unwrap();
        assert_eq!(outcome.ended, Ended::Edges, "{link}");
        let edges = records();
        assert_eq!(edges.len(), 300, "{link}");
        assert_eq!(outcome.totals.edges + outcome.totals.lost_edges, 300, "{link}");
        for (index, pair) in edges.windows(2).enumerate() {
            assert_eq!(pair[0].index, index as u64);
            assert!(
                pair[1].sent_ns >= pair[0].received_ns,
                "{link}: an edge is sent after the one before has come"
            );
        }
        for pair in edges.windows(2).filter(|pair| pair[0].arrived && pair[1].arrived) {
            assert_eq!(pair[1].latency_ns, pair[1].received_ns - pair[0].received_ns, "{link}");
        }
        if outcome.totals.lost_edges == 0 {
            assert!(
                edges.iter().all(|edge| (edge.level_v == 5.0) == (edge.index % 2 == 0)),
                "{link}: levels alternate"
            );
        }
        let (saved, lines) = &*kept.0.lock().unwrap();
        assert_eq!(*saved, (0..300).collect::<Vec<_>>(), "{link}");
        let max_ns = edges.iter().filter(|edge| edge.arrived).map(|edge| edge.latency_ns).max();
        assert_eq!(lines.iter().map(|line| line.max_ns).max(), max_ns, "{link}");
        assert_eq!(Some(outcome.totals.max_ns), max_ns, "{link}");
    }
}

#[test]
fn stamped_at_the_last_arrival_the_wait_is_latency_too() {
    let latency = |stamp: &str| {
        let config = polite(&format!(
            "link = {{ kind = 'simulated' }}\nstop.edges = 20\npulse = {{ wait = '2ms', stamp = '{stamp}' }}"
        ));
        let mut daq = DaqLoop::start(&config).unwrap();
        let mut records = all(&mut daq);
        daq.wait().unwrap();
        records().iter().map(|edge| edge.latency_ns).min().unwrap()
    };
    assert_eq!(toml::from_str::<DaqConfig>("").unwrap().pulse.stamp, Stamp::Receive);
    // The sleep is in the one and not in the other; the least of twenty is far from any delay of a
    // busy machine.
    assert!(latency("receive") >= 2_000_000);
    assert!(latency("write") < 2_000_000);
}

/// Algorithm 1 as printed: its clock, and a write in each turn. A level that is written again is
/// the same edge.
#[test]
fn the_papers_clock_and_writes_count_the_same_edges() {
    for link in [
        "{ kind = 'simulated', ai_rate_hz = 1e6 }",
        "{ kind = 'udp', waiting = 'block' }",
        "{ kind = 'udp' }",
        "{ kind = 'pty', waiting = 'block' }",
        "{ kind = 'eventfd' }",
    ] {
        let config = polite(&format!(
            "link = {link}\nstop.edges = 200\npulse = {{ clock = 'realtime', write = 'turn', wait = '1ms' }}"
        ));
        let mut daq = DaqLoop::start(&config).unwrap();
        let mut records = all(&mut daq);
        let outcome = daq.wait().unwrap();
        assert_eq!((outcome.ended.clone(), outcome.totals.edges), (Ended::Edges, 200), "{link}: {outcome:?}");
        assert_eq!(outcome.totals.clock_steps, 0, "{link}");
        let edges = records();
        assert!(edges.iter().all(|edge| (edge.level_v == 5.0) == (edge.index % 2 == 0)), "{link}");
        for pair in edges.windows(2) {
            // The sleep is relative and on another clock, and still in the latency.
            assert!(pair[1].latency_ns >= 1_000_000, "{link}: {pair:?}");
            let by_monotonic = pair[1].received_ns - pair[0].received_ns;
            assert!(pair[1].latency_ns.abs_diff(by_monotonic) < 10_000_000, "{link}: {pair:?}");
            assert!(pair[1].stall_ns > 0 && pair[1].stall_from_ns + pair[1].stall_ns <= pair[1].received_ns);
        }
    }
    // Nothing else than the level that is there is written: without a level that rises nothing
    // comes.
    let stuck = polite(
        "link = { kind = 'simulated', range_v = [0.0, 0.5] }\npulse = { write = 'turn', timeout = '1ms', lost_in_a_row = 2 }",
    );
    assert_eq!(DaqLoop::start(&stuck).unwrap().wait().unwrap().totals.lost_edges, 2);
}

#[test]
fn the_data_sheet_bounds_the_latency_from_below() {
    let link = "link = { kind = 'simulated', ai_rate_hz = 10e3, register = '0ns', noise_v = 0.0 }";
    let config = polite(&format!("{link}\nstop.edges = 50"));
    let outcome = DaqLoop::start(&config).unwrap().wait().unwrap();
    // The update shows after 1 us, so the first conversion of 100 us misses it.
    assert!(outcome.totals.min_ns >= 100_000, "{:?}", outcome.totals);
}

#[test]
fn a_loop_ends_by_time_and_when_asked() {
    let config = polite("link = { kind = 'simulated' }\nseconds = 0.05");
    let outcome = DaqLoop::start(&config).unwrap().wait().unwrap();
    assert_eq!(outcome.ended, Ended::Duration);
    assert!(outcome.totals.edges > 0);

    let daq = DaqLoop::start(&polite("link = { kind = 'simulated' }")).unwrap();
    let stopper = daq.stopper();
    std::thread::sleep(Duration::from_millis(20));
    assert!(!daq.is_finished());
    stopper.stop();
    assert_eq!(daq.wait().unwrap().ended, Ended::Asked);
}

#[test]
fn an_edge_that_never_comes_is_lost_and_the_loop_ends_with_its_reason() {
    // Half a volt never reaches the threshold: the converter stops at 0.5 V.
    let config = polite(
        "link = { kind = 'simulated', range_v = [0.0, 0.5] }\npulse = { timeout = '1ms', lost_in_a_row = 3 }",
    );
    let mut daq = DaqLoop::start(&config).unwrap();
    let mut records = all(&mut daq);
    let outcome = daq.wait().unwrap();
    let problem = outcome.ended.problem().unwrap().to_owned();
    assert!(problem.contains("3 edges in a row") && problem.contains("pulse.timeout"), "{problem}");
    let edges = records();
    assert_eq!((edges.len(), outcome.totals.lost_edges, outcome.totals.edges), (3, 3, 0));
    assert!(edges.iter().all(|edge| !edge.arrived && edge.latency_ns >= 1_000_000));
    assert_eq!(outcome.totals.mean_ns(), None);
}

#[test]
fn lost_datagrams_show_in_the_edges_that_they_delayed() {
    let config = polite(
        "link = { kind = 'udp', drop_every = 5, resend_after = '500us', waiting = 'block' }\nstop.edges = 100",
    );
    let mut daq = DaqLoop::start(&config).unwrap();
    let mut records = all(&mut daq);
    let outcome = daq.wait().unwrap();
    assert!(outcome.link.resent >= 20, "{outcome:?}");
    let delayed: Vec<EdgeRecord> = records().into_iter().filter(|edge| edge.resends > 0).collect();
    assert!(!delayed.is_empty());
    assert!(delayed.iter().all(|edge| edge.latency_ns >= 500_000), "{delayed:?}");
}

#[test]
fn every_controller_runs_in_the_loop_and_its_time_is_recorded() {
    use_this_program_as_plant();
    let links = [
        "{ kind = 'simulated', noise_v = 0.0 }",
        "{ kind = 'udp', waiting = 'block' }",
        "{ kind = 'pty', waiting = 'block' }",
        "{ kind = 'eventfd', waiting = 'block' }",
        "{ kind = 'udp' }",
    ];
    let kinds = ControllerConfig::KINDS.into_iter().skip(1);
    for (kind, link) in kinds.cycle().zip(links) {
        // Real time: a second and a half is enough to reach the reference from rest.
        let config = polite(&format!("link = {link}\ncontroller.kind = '{kind}'\nseconds = 1.5"));
        let mut daq = DaqLoop::start(&config).unwrap();
        assert!(daq.granted()[1].0.contains("daq-far-end (process "), "{:?}", daq.granted());
        let mut records = all(&mut daq);
        let outcome = daq.wait().unwrap();
        assert_eq!(outcome.ended, Ended::Duration, "{kind} over {link}");
        let edges = records();
        // A clock of a nanosecond's resolution sees even the least of them.
        let timed = edges.iter().filter(|edge| edge.controller_ns > 0).count();
        assert!(timed * 10 > edges.len() * 9, "{kind}: {timed} of {}", edges.len());
        let tracking = outcome.tracking.unwrap();
        println!("{kind} over {link}: {} edges, {tracking:?}", edges.len());
        // By the plant's own clock, not by turns of the loop. It is held open-loop stable, so that
        // a busy machine costs little.
        assert!(tracking.steps > 1000 && tracking.steps < 10_000, "{kind}: {tracking:?}");
        assert!(tracking.last_error.abs() < 0.2, "{kind} over {link}: {tracking:?}");
        assert!(outcome.totals.controller_mean_ns().unwrap() > 0.0);
    }
}

/// The experiment: what a controller costs is part of the paper's latency and not of the
/// bare link's.
#[test]
fn the_latency_includes_the_controller_and_the_link_does_not() {
    use_this_program_as_plant();
    let mut config = polite("link = { kind = 'simulated' }\nstop.edges = 500");
    let f = RbfConfig::even(400, [2.0, 4.0]);
    config.controller = ControllerConfig::NeuroAdaptive(NeuroConfig { f, ..NeuroConfig::corrected() });
    let mut daq = DaqLoop::start(&config).unwrap();
    let mut records = all(&mut daq);
    daq.wait().unwrap();
    let edges = records();
    assert_eq!(edges.len(), 500);
    for edge in &edges {
        assert!(edge.latency_ns >= edge.controller_ns + edge.link_ns(), "{edge:?}");
    }
    let mut costs: Vec<u64> = edges.iter().map(|edge| edge.controller_ns).collect();
    let mut links: Vec<u64> = edges.iter().map(EdgeRecord::link_ns).collect();
    costs.sort_unstable();
    links.sort_unstable();
    // The heavy law costs far more than a conversion; its least turn is more than the link's
    // median.
    assert!(costs[0] > links[250], "{} {}", costs[0], links[250]);
}

#[test]
fn a_plant_whose_process_dies_ends_the_loop_with_its_reason_and_leaves_nothing() {
    use_this_program_as_plant();
    let config = polite(
        "link = { kind = 'udp', waiting = 'block', resend_after = '1ms' }\ncontroller.kind = 'pid'\n\
         pulse = { timeout = '200ms', lost_in_a_row = 3 }",
    );
    let daq = DaqLoop::start(&config).unwrap();
    let name = daq.granted()[1].0.clone();
    let id: i32 = name.trim_start_matches("daq-far-end (process ").trim_end_matches(')').parse().unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
    let outcome = daq.wait().unwrap();
    let problem = outcome.ended.problem().unwrap_or_default().to_owned();
    assert!(problem.contains("far end") && problem.contains("signal"), "{problem}");
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "it was waited for");
}

#[test]
fn a_line_that_only_echoes_is_no_plant() {
    let config = polite("link = { kind = 'pty', echo_by = 'line' }\ncontroller.kind = 'pid'");
    let error = DaqLoop::start(&config).err().unwrap().to_string();
    assert!(error.contains("echo_by") && error.contains("thread"), "{error}");
}

#[test]
fn saving_off_is_off() {
    let config = polite("link = { kind = 'simulated' }\nsaving.enabled = false\nstop.edges = 20");
    let kept = Kept::default();
    let daq = DaqLoop::start_saving(&config, Box::new(kept.clone())).unwrap();
    let names: Vec<String> = daq.granted().iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["daq-acquire"]);
    let outcome = daq.wait().unwrap();
    assert!(outcome.saved.is_none());
    assert!(kept.0.lock().unwrap().0.is_empty());
}

#[test]
fn what_was_not_granted_is_reported_or_refused() {
    let text = "link = { kind = 'simulated' }\nstop.edges = 5\nacquisition.cpus = '1023'";
    let daq = DaqLoop::start(&polite(text)).unwrap();
    let reported = daq.not_granted();
    assert!(reported.len() == 1 && reported[0].starts_with("daq-acquire: cpus"), "{reported:?}");
    daq.wait().unwrap();
    let strict = polite(&format!("{text}\nacquisition.strict = true"));
    assert!(DaqLoop::start(&strict).is_err());
}
