//! The web view of a live run: what a browser gets, and how the page looks with real people.
//!
//! The picture is left in the target directory (`tmp/view-live.png`).

#![allow(clippy::unwrap_used)]

use crate::takt;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use takt::{Beside, PATIENCE, alone, demo, demo_text, missing, takt as run, wait_for};

/// An answer of the view to one request: status and body.
fn get(address: &str, host: &str, path: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("an HTTP answer");
    let status = String::from_utf8_lossy(&answer[..head]).split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_off(head + 4))
}

/// The cell beside the test, with its page, until interrupted.
fn live(config: &Path, runs: &Path) -> (Beside, String) {
    let mut command = run(["run", config.to_str().unwrap(), "--runs"]);
    command.arg(runs);
    let mut cell = Beside::start(command);
    let url = cell.line("stderr", "View: ");
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{url}");
    (cell, address)
}

fn status(address: &str) -> Value {
    let (code, body) = get(address, address, "/api/status");
    assert_eq!(code, 200);
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn the_page_is_served_to_this_machine_alone() {
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    let (mut cell, address) = live(&demo(), runs.path());
    let (code, page) = get(&address, &address, "/");
    assert_eq!(code, 200);
    assert!(String::from_utf8_lossy(&page).to_lowercase().contains("<!doctype html>"));
    assert_eq!(status(&address)["cameras"].as_array().map(Vec::len), Some(5));
    for path in ["/", "/api/status"] {
        assert_eq!(get(&address, "robots.example", path).0, 403, "{path} was given to a foreign name");
    }
    cell.signal(Signal::INT);
    assert_eq!(cell.end().code(), Some(0), "{}", cell.output("stderr"));
    assert!(cell.output("stdout").contains("Run directory: "), "{}", cell.output("stdout"));
}

fn browser() -> Option<&'static str> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let answer = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        answer.is_ok_and(|status| status.success())
    });
    if missing("no Chromium is installed (apt-get install chromium)", found.is_some()) { None } else { found }
}

/// Lets Chromium draw the page; gives the width of the picture and its pixels.
fn shoot(browser: &str, url: &str, path: &Path) -> (usize, Vec<[u8; 3]>) {
    let _ = std::fs::remove_file(path);
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--hide-scrollbars", "--force-device-scale-factor=1", "--disable-dev-shm-usage"])
        // Virtual time: the clock of the page stands still while it waits for an answer.
        .args(["--virtual-time-budget=1000", "--window-size=1280,800"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--screenshot={}", path.display()))
        .arg(url)
        .stdin(Stdio::null());
    let mut child = Beside::start(command);
    assert!(child.end().success(), "{}", child.output("stderr"));
    let file = std::io::BufReader::new(std::fs::File::open(path).expect("the browser left no picture"));
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut data = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut data).unwrap();
    assert_eq!((info.width, info.height), (1280, 800));
    let pixels = data[..info.buffer_size()].chunks_exact(info.color_type.samples());
    (1280, pixels.map(|p| [p[0], p[1], p[2]]).collect())
}

/// Inside of the picture of camera `i`: three columns right of the panel.
fn camera_area(i: usize) -> (usize, usize, usize, usize) {
    (274 + (i % 3) * 334 + 20, 80 + (i / 3) * 286, 284, 180)
}

/// Distinct colours, by eighths, within the picture of camera `i`.
fn colours_of(pixels: &[[u8; 3]], width: usize, i: usize) -> usize {
    let (left, top, w, h) = camera_area(i);
    let inside = (top..top + h).flat_map(|y| &pixels[y * width + left..][..w]);
    inside.map(|p| p.map(|v| v / 8)).collect::<HashSet<[u8; 3]>>().len()
}

#[test]
fn the_page_shows_five_live_pictures_of_real_people() {
    let Some(browser) = browser() else { return };
    let _machine = alone();
    let runs = tempfile::tempdir().unwrap();
    // At the pace of life, a third of the demonstration's: a browser without a GPU needs the CPUs,
    // too.
    let config = runs.path().join("cell.toml");
    let text = demo_text().replace("rate_fps = 30.0", "rate_fps = 10.0");
    std::fs::write(&config, text.replacen("[ssm]", "[ssm]\nstale_after_ms = 300", 1)).unwrap();
    let (mut cell, address) = live(&config, runs.path());
    // Every camera has had its first frames judged.
    wait_for("frames of every camera", || {
        let status = status(&address);
        let cameras = status["cameras"].as_array().unwrap();
        cameras.iter().all(|camera| camera["frames"].as_u64() > Some(30)).then_some(())
    });
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("view-live.png");
    // A browser that starves shows a picture that is old by then, greyed as the page must do. The
    // next look is a new chance; a page that never has five live pictures fails all of them.
    let mut colours = [0; 5];
    for _look in 0..4 {
        let (width, pixels) = shoot(browser, &format!("http://{address}/"), &path);
        assert!(cell.runs(), "{}", cell.output("stderr"));
        eprintln!("picture: {}", path.display());
        colours = std::array::from_fn(|camera| colours_of(&pixels, width, camera));
        if colours.iter().all(|&count| count > 100) {
            break;
        }
    }
    assert!(colours.iter().all(|&count| count > 100), "colours of the five pictures: {colours:?}");
    cell.signal(Signal::INT);
    assert_eq!(cell.end().code(), Some(0), "{}", cell.output("stderr"));
}
