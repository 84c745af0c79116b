//! The page in a real browser: headless Chromium draws it, and the pixels are looked at.
//!
//! The pictures are left in the target directory (`tmp/view-*.png`). Without Chromium the tests say
//! that they are skipped, or fail where `TAKT_REQUIRE_OUTSIDE=1` asks for them.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use crate::view_cell as cell;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cell::{Scene, start};
use takt_robot_cell::view::{CellStatus, ViewConfig};

/// Time for Chromium to draw before it is ended; hundreds of times what it needs.
const PATIENCE: Duration = Duration::from_secs(300);
/// Many times what a picture takes beside other tests.
const STANDSTILL: Duration = Duration::from_secs(60);

fn browser() -> Option<&'static str> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let answer = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        answer.is_ok_and(|status| status.success())
    });
    if found.is_none() {
        assert!(
            std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"),
            "TAKT_REQUIRE_OUTSIDE=1, but no Chromium is installed: apt-get install chromium"
        );
        takt_witness::skip!("no Chromium is installed (apt-get install chromium)");
    }
    found
}

struct Image {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Image {
    fn read(path: &Path) -> Self {
        let file = std::io::BufReader::new(std::fs::File::open(path).expect("the browser left no picture"));
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut data = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut data).unwrap();
        let channels = info.color_type.samples();
        assert!(channels >= 3, "{:?}", info.color_type);
        let rgb =
            data[..info.buffer_size()].chunks_exact(channels).flat_map(|p| [p[0], p[1], p[2]]).collect();
        Self { width: info.width as usize, height: info.height as usize, rgb }
    }

    fn pixels(&self, area: Area) -> impl Iterator<Item = [u8; 3]> + '_ {
        let (left, top, width, height) = area;
        assert!(left + width <= self.width && top + height <= self.height, "{area:?} is outside the picture");
        (top..top + height).flat_map(move |y| {
            (left..left + width).map(move |x| {
                let at = (y * self.width + x) * 3;
                [self.rgb[at], self.rgb[at + 1], self.rgb[at + 2]]
            })
        })
    }

    /// Share of the pixels of an area that are near a colour.
    fn share(&self, area: Area, colour: [u8; 3]) -> f64 {
        let near = |p: &[u8; 3]| p.iter().zip(colour).all(|(&a, b)| a.abs_diff(b) <= 24);
        self.pixels(area).filter(near).count() as f64 / (area.2 * area.3) as f64
    }

    /// Pixels of an area that are clearly not grey.
    fn coloured(&self, area: Area) -> usize {
        self.pixels(area).filter(|[r, g, b]| r.max(g).max(b) - r.min(g).min(b) > 40).count()
    }

    /// Number of clearly different colours in an area.
    fn colours(&self, area: Area) -> usize {
        self.pixels(area).map(|p| p.map(|v| v / 8)).collect::<std::collections::HashSet<_>>().len()
    }
}

/// As many pictures as there are: the virtual time of the page runs ahead of the server's.
fn fast() -> ViewConfig {
    ViewConfig { max_fps: 60.0, ..ViewConfig::default() }
}

/// Left, top, width, height in pixels.
type Area = (usize, usize, usize, usize);

/// Lets Chromium draw `url` and leaves the picture in the target directory. A headless Chromium now
/// and then stands still for ever, with no connection open: another one is started then.
fn shoot(browser: &str, url: &str, name: &str, width: u32, height: u32) -> Image {
    let draw = |patience| draw(browser, url, name, (width, height), 3000, patience, || ());
    draw(STANDSTILL).or_else(|| draw(STANDSTILL)).or_else(|| draw(PATIENCE)).expect("the browser did not end")
}

/// As [`shoot`], after `virtual_ms` of the page's own time; `meanwhile` runs while the browser
/// does.
fn shoot_while(
    browser: &str,
    url: &str,
    name: &str,
    size: (u32, u32),
    virtual_ms: u32,
    meanwhile: impl FnOnce(),
) -> Image {
    draw(browser, url, name, size, virtual_ms, PATIENCE, meanwhile).expect("the browser did not end")
}

/// The picture, or nothing where the browser did not end within `patience`.
fn draw(
    browser: &str,
    url: &str,
    name: &str,
    (width, height): (u32, u32),
    virtual_ms: u32,
    patience: Duration,
    meanwhile: impl FnOnce(),
) -> Option<Image> {
    let profile = tempfile::tempdir().unwrap();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--hide-scrollbars", "--force-device-scale-factor=1", "--disable-dev-shm-usage"])
        // Virtual time: the clock of the page stands still while it waits for an answer, so that
        // the page is at the same state on a slow machine.
        .arg(format!("--virtual-time-budget={virtual_ms}"))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--screenshot={}", path.display()))
        .arg(url)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let message = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    meanwhile();
    let since = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if since.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            eprintln!("{browser} did not end within {patience:?}");
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let message = message.join().unwrap();
    assert!(status.success(), "{browser}: {status}\n{message}");
    eprintln!("picture: {}", path.display());
    let image = Image::read(&path);
    assert_eq!((image.width, image.height), (width as usize, height as usize));
    Some(image)
}

const GREEN: [u8; 3] = [0x3d, 0xdc, 0x84];
const ORANGE: [u8; 3] = [0xff, 0xb0, 0x20];
const RED: [u8; 3] = [0xff, 0x52, 0x52];

/// The picture of camera `i` at a window of 1280 pixels: three columns right of the panel of 250
/// pixels.
fn camera_area(i: usize) -> Area {
    (274 + (i % 3) * 334 + 20, 70 + (i / 3) * 270 + 30, 284, 180)
}

/// The banner over the whole width.
const BANNER: Area = (700, 44, 560, 10);
const BELOW_THE_BANNER: Area = (0, 90, 1280, 780);

#[test]
fn the_page_shows_every_camera_and_the_light() {
    let Some(browser) = browser() else { return };
    for (scene, name, colour) in [
        (Scene::Running, "view-running.png", GREEN),
        (Scene::Reduced, "view-reduced.png", ORANGE),
        (Scene::Stopped, "view-stopped.png", RED),
    ] {
        let (cell, server) = start(fast());
        let player = cell.play(scene, Duration::from_millis(12));
        let image = shoot(browser, &server.url(), name, 1280, 800);
        drop(player);
        for camera in 0..5 {
            let colours = image.colours(camera_area(camera));
            assert!(colours > 12, "{name}: camera {camera} shows only {colours} colours");
        }
        assert!(image.share(BANNER, colour) > 0.9, "{name}: the banner has another colour");
    }
}

#[test]
fn a_narrow_screen_shows_it_too() {
    let Some(browser) = browser() else { return };
    let (cell, server) = start(fast());
    let _player = cell.play(Scene::Reduced, Duration::from_millis(12));
    let image = shoot(browser, &server.url(), "view-narrow.png", 500, 2400);
    assert!(image.share((300, 100, 180, 10), [20, 26, 36]) < 1.0);
    assert!(image.colours((20, 500, 460, 1700)) > 200);
}

#[test]
fn a_silent_cell_does_not_look_live() {
    let Some(browser) = browser() else { return };
    let (mut cell, server) = start(fast());
    cell.publish_frames(7, Scene::Running);
    cell.publish_status(7, Scene::Running);
    // An hour-old state: what the page must not show in colour.
    cell.status.publish(1, CellStatus { light: takt_robot_cell::ssm::Light::Green, ..CellStatus::default() });
    let image = shoot(browser, &server.url(), "view-stale.png", 1280, 900);
    assert!(image.share(BANNER, GREEN) < 0.01, "the banner is green");
    assert_eq!(image.coloured(BELOW_THE_BANNER), 0);
}

#[test]
fn a_lost_connection_does_not_look_live() {
    let Some(browser) = browser() else { return };
    let (cell, server) = start(fast());
    let player = cell.play(Scene::Running, Duration::from_millis(12));
    let (url, address) = (server.url(), server.address());
    let image = shoot_while(browser, &url, "view-lost.png", (1280, 900), 60_000, || {
        // The server goes when the page has had its second picture of every camera.
        let since = Instant::now();
        loop {
            let state = cell::get(address, "/api/status").json();
            if (0..5).all(|i| state["cameras"][i]["pictures"].as_u64().unwrap() >= 2) {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "the page asks for no pictures");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(server);
    });
    drop(player);
    for camera in 0..5 {
        assert!(
            image.colours(camera_area(camera)) > 2,
            "camera {camera} has no picture that could look live"
        );
    }
    assert!(image.share(BANNER, GREEN) < 0.01, "the banner is green");
    assert_eq!(image.coloured(BELOW_THE_BANNER), 0);
}
