//! In steady state nothing in the loop allocates: not the controllers, not the links, not the
//! acquisition task itself, which counts for itself.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use takt_robot_daqloop::control::ControllerConfig;
use takt_robot_daqloop::plant::{Plant, PlantConfig, Reference};
use takt_robot_daqloop::{DaqConfig, DaqLoop};
use takt_rt::proof::{allocations, frees};

#[test]
fn controllers_and_plant_do_not_allocate() {
    for kind in ControllerConfig::KINDS.iter().skip(1) {
        let plant = PlantConfig::default();
        let reference = Reference::Sine { amplitude: 1.0, frequency_hz: 0.2 };
        let mut law = ControllerConfig::of_kind(kind).unwrap().build(&plant, &reference).unwrap().unwrap();
        let mut now = Plant::new(&plant);
        let before = (allocations(), frees());
        for _ in 0..200 {
            let u = law.control(now.time_s(), plant.period_s(), now.state());
            now.step(u);
        }
        assert_eq!((allocations(), frees()), before, "{kind}");
        assert!(before.0 > 0, "the counter counts");
    }
}

#[test]
fn links_do_not_allocate() {
    for kind in ["udp", "pty", "eventfd", "simulated"] {
        let file = format!("kind = '{kind}'");
        let config: takt_link_daq::LinkConfig = toml::from_str(&file).unwrap();
        let mut link = takt_link_daq::open(&config).unwrap();
        let before = (allocations(), frees());
        for edge in 0..200 {
            let level_v = if edge % 2 == 0 { 5.0 } else { 0.0 };
            link.write_v(level_v).unwrap();
            let mut reads = 0;
            while (link.read_v().unwrap() >= 1.0) != (level_v >= 1.0) && reads < 100_000 {
                reads += 1;
                std::thread::yield_now();
            }
        }
        assert_eq!((allocations(), frees()), before, "{kind}");
    }
}

/// Not a test: the plant's process of the test below is this very program.
#[test]
fn far_end() {
    if std::env::var_os("TAKT_TEST_IS_FAR_END").is_some() {
        let code = takt_robot_daqloop::plant::serve();
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

#[test]
fn acquisition_does_not_allocate_in_steady_state() {
    takt_link_daq::far_end::set_program(takt_link_daq::far_end::Program {
        path: std::env::current_exe().unwrap(),
        arguments: ["steady_state::far_end", "--exact", "--nocapture", "--test-threads=1"]
            .map(Into::into)
            .into(),
        variables: vec![("TAKT_TEST_IS_FAR_END".into(), "1".into())],
    });
    for (link, law) in [
        ("{ kind = 'simulated' }", "neuro_adaptive"),
        ("{ kind = 'simulated' }", "mpc"),
        ("{ kind = 'udp', waiting = 'block' }", "mpc"),
    ] {
        let config: DaqConfig = toml::from_str(&format!(
            "link = {link}\ncontroller.kind = '{law}'\npulse = {{ clock = 'realtime', write = 'turn' }}\nacquisition.policy = 'other'\nacquisition.lock_memory = 'off'\n\
             stop.edges = 3000\nseconds = 60"
        ))
        .unwrap();
        let mut daq = DaqLoop::start(&config).unwrap();
        let records = daq.take_records();
        let outcome = daq.wait().unwrap();
        assert_eq!(outcome.totals.edges + outcome.totals.lost_edges, 3000);
        assert_eq!(outcome.steady.unwrap().allocations, 0, "{link} {law}");
        assert!(records.is_some());
    }
}
