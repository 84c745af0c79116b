//! Cost of the view. Run by hand:
//! `cargo test -p takt-robot-cell --test it view_cost:: -- --ignored --nocapture`.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use crate::view_cell as cell;

use std::time::{Duration, Instant};

use cell::{Scene, connect, exchange, start};
use takt_robot_cell::view::ViewConfig;

/// CPU time of the thread `view-http`, seconds (first field of schedstat).
fn cpu_s() -> f64 {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "view-http") {
            let schedstat = std::fs::read_to_string(path.join("schedstat")).unwrap();
            return schedstat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9;
        }
    }
    panic!("no view thread")
}

/// Asks as the page does: state and five pictures, eight times a second.
#[test]
#[ignore = "measures for 20 s"]
fn campaign_cpu_of_one_client_and_of_none() {
    let (cell, server) = start(ViewConfig::default());
    let _player = cell.play(Scene::Reduced, Duration::from_millis(33));
    let address = server.address();
    std::thread::sleep(Duration::from_secs(1));
    let (before, since) = (cpu_s(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    eprintln!("no client: {:.2} % of a core", (cpu_s() - before) / since.elapsed().as_secs_f64() * 100.0);

    let mut stream = connect(address);
    let (before, since) = (cpu_s(), Instant::now());
    let (mut bytes, mut pictures) = (0, 0);
    while since.elapsed() < Duration::from_secs(15) {
        for path in ["status", "camera/0", "camera/1", "camera/2", "camera/3", "camera/4"] {
            let request = format!("GET /api/{path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
            let reply = exchange(&mut stream, request.as_bytes()).unwrap();
            (bytes, pictures) = (bytes + reply.body.len(), pictures + usize::from(path != "status"));
        }
        std::thread::sleep(Duration::from_millis(125));
    }
    let wall = since.elapsed().as_secs_f64();
    eprintln!(
        "one client: {:.2} % of a core, {:.1} pictures/s, {:.0} KiB/s",
        (cpu_s() - before) / wall * 100.0,
        pictures as f64 / wall,
        bytes as f64 / wall / 1024.0
    );
}
