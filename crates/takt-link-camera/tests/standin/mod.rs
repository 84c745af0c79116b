//! A librealsense2 that plays a script, compiled and loaded by the tests. The backend finds it as
//! it finds the real library: by its name, which the loader has under that name already.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;
use takt_link_camera::RealsenseConfig;
use takt_rt::clock::{monotonic_ns, realtime_ns};

pub const WIDTH: u32 = 64;
pub const HEIGHT: u32 = 48;
pub const DEPTH: i32 = 1;
pub const COLOUR: i32 = 2;
pub const HARDWARE: i32 = 0;
pub const SYSTEM: i32 = 1;
pub const GLOBAL: i32 = 2;

/// One image of a set; mirrors `struct part`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub stream: i32,
    pub format: i32,
    pub width: i32,
    pub height: i32,
    pub stride: i32,
    pub size: i32,
    pub domain: i32,
    pub null_data: i32,
    pub number: u64,
    pub seed: u64,
    pub stamp_ms: f64,
    pub unit_m: f32,
    pub arrived_ms_ago: i32,
}

impl Part {
    /// A good image of the size that [`config`] asks for.
    pub fn new(stream: i32, number: u64, stamp_ms: f64, domain: i32) -> Self {
        let bytes = if stream == DEPTH { 2 } else { 3 };
        Self {
            stream,
            format: if stream == DEPTH { 1 } else { 5 },
            width: WIDTH as i32,
            height: HEIGHT as i32,
            stride: WIDTH as i32 * bytes,
            size: (WIDTH * HEIGHT) as i32 * bytes,
            domain,
            null_data: 0,
            number,
            seed: number << 32,
            stamp_ms,
            unit_m: 0.001,
            arrived_ms_ago: 0,
        }
    }
}

/// Result of one wait; mirrors `struct set`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Set {
    pub kind: i32,
    pub count: i32,
    pub parts: [Part; 4],
}

impl Set {
    pub fn of(parts: &[Part]) -> Self {
        let mut set = Self { kind: 0, count: parts.len() as i32, parts: [Part::default(); 4] };
        set.parts[..parts.len()].copy_from_slice(parts);
        set
    }

    /// Colour and depth with their numbers and stamps.
    pub fn pair(colour: (u64, f64), depth: (u64, f64), domain: i32) -> Self {
        Self::of(&[Part::new(COLOUR, colour.0, colour.1, domain), Part::new(DEPTH, depth.0, depth.1, domain)])
    }

    pub const TIME_OUT: Self = Self { kind: 1, ..Self::EMPTY };
    pub const FAILURE: Self = Self { kind: 2, ..Self::EMPTY };
    pub const NULL: Self = Self { kind: 3, ..Self::EMPTY };
    pub const EMPTY: Self = Self {
        kind: 0,
        count: 0,
        parts: [Part {
            stream: 0,
            format: 0,
            width: 0,
            height: 0,
            stride: 0,
            size: 0,
            domain: 0,
            null_data: 0,
            number: 0,
            seed: 0,
            stamp_ms: 0.0,
            unit_m: 0.0,
            arrived_ms_ago: 0,
        }; 4],
    };
}

pub struct Standin {
    library: Library,
    _alone: MutexGuard<'static, ()>,
}

impl Standin {
    /// Builds and loads the stand-in, for one test at a time, with an empty script.
    pub fn load() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = FOLDER.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let source = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../takt-link-camera/tests/standin/librealsense2.c");
            let status = Command::new("cc")
                .args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,librealsense2.so", "-o"])
                .arg(folder.path().join("librealsense2.so"))
                .arg(source)
                .status()
                .expect("a C compiler, which linking Rust needs, too");
            assert!(status.success(), "the stand-in compiles");
            folder
        });
        // SAFETY: the stand-in has no initialisers.
        let library = unsafe { Library::new(folder.path().join("librealsense2.so")) }.expect("it loads");
        let standin = Self { library, _alone: alone };
        standin.call("standin_clear");
        standin
    }

    fn call(&self, name: &str) -> i64 {
        // SAFETY: the stand-in's functions without arguments give nothing, an int or a long.
        unsafe { self.library.get::<unsafe extern "C" fn() -> i64>(name.as_bytes()).expect("a symbol")() }
    }

    pub fn push(&self, set: Set) {
        // SAFETY: the set has the layout of the stand-in's.
        unsafe {
            let push =
                self.library.get::<unsafe extern "C" fn(*const Set)>(b"standin_push").expect("a symbol");
            push(&set);
        }
    }

    /// Objects of the library that nobody has released.
    pub fn live(&self) -> i64 {
        self.call("standin_live")
    }

    /// Sets of the script that nobody has fetched.
    pub fn left(&self) -> i32 {
        self.call("standin_left") as i32
    }
}

pub fn config() -> RealsenseConfig {
    RealsenseConfig {
        serial: Some("stand-in".into()),
        width: WIDTH,
        height: HEIGHT,
        rate_fps: 30,
        timeout_ms: 1000,
        latency_offset_ms: None,
    }
}

/// A moment on both clocks.
#[derive(Clone, Copy)]
pub struct Moment {
    pub monotonic_ns: u64,
    pub realtime_ms: f64,
}

impl Moment {
    pub fn now() -> Self {
        // The closest of many readings: a thread may lose its processor in between.
        let readings = (0..50).map(|_| {
            let (before_ns, real_ns, after_ns) = (monotonic_ns(), realtime_ns(), monotonic_ns());
            (after_ns - before_ns, Self { monotonic_ns: before_ns, realtime_ms: real_ns as f64 / 1e6 })
        });
        readings.min_by_key(|(width_ns, _)| *width_ns).expect("fifty readings").1
    }

    pub fn after(self, ms: f64) -> Self {
        Self {
            monotonic_ns: (self.monotonic_ns as f64 + ms * 1e6) as u64,
            realtime_ms: self.realtime_ms + ms,
        }
    }
}
