//! Colour cameras of the kernel's Video4Linux (UVC webcams, CSI cameras with an image signal processor).
//!
//! They measure no depth: every depth is 0, and the health rules of perception call the camera blind unless its
//! configuration says otherwise. Streaming I/O with memory-mapped buffers
//! (<https://docs.kernel.org/userspace-api/media/v4l/mmap.html>).

mod ioctl;

use std::path::Path;
use std::time::Duration;

use takt_rt::clock::monotonic_ns;

use crate::camera::Camera;
use crate::config::{LATENCY_OFFSETS_MS, PixelFormat, V4l2Config};
use crate::error::CameraError;
use crate::image;
use crate::{Frame, Intrinsics};
use ioctl::{Device, MJPG, Stream, YUYV};

/// Broken images that are skipped in a row before the camera counts as lost. USB cameras deliver one now and
/// then, mostly the first.
const MAX_BROKEN: u32 = 10;

/// Exposure and transfer together take no camera longer than this; beyond, the stamp is of something else.
const LONGEST_TRANSIT_NS: u64 = 1_000_000_000;

/// When a frame was complete in the kernel, which is before a thread that has to wait for a processor could see it.
#[derive(Debug)]
struct Arrivals {
    /// The least time seen from the exposure's start to a thread that has the frame. What is more than that is delay of the
    /// thread and not of the camera.
    least_transit_ns: u64,
}

impl Arrivals {
    const fn new() -> Self {
        Self { least_transit_ns: LONGEST_TRANSIT_NS }
    }

    /// `stamp_ns` is the kernel's, `at_exposure` whether of the exposure's start, `now_ns` when the thread has the frame.
    fn arrival_ns(&mut self, stamp_ns: Option<u64>, at_exposure: bool, now_ns: u64) -> u64 {
        let Some((stamp_ns, transit_ns)) = stamp_ns.and_then(|ns| Some((ns, now_ns.checked_sub(ns)?))) else {
            return now_ns;
        };
        if transit_ns > LONGEST_TRANSIT_NS {
            return now_ns;
        }
        if !at_exposure {
            return stamp_ns;
        }
        self.least_transit_ns = self.least_transit_ns.min(transit_ns);
        stamp_ns + self.least_transit_ns
    }
}

/// A camera that streams.
pub struct V4l2Camera {
    stream: Stream,
    arrivals: Arrivals,
    device: String,
    intrinsics: Intrinsics,
    mjpeg: bool,
    timeout: Duration,
    /// How much later than the exposure the stamps are.
    latency_ns: u64,
}

impl V4l2Camera {
    /// Opens the device and starts streaming.
    ///
    /// # Errors
    /// When there is no such device, it is busy, permission is missing, or it lacks the wanted size or format;
    /// the error says what it offers.
    pub fn open(config: &V4l2Config) -> Result<Self, CameraError> {
        let bad = |key, value: String, expected| Err(CameraError::BadConfig { key, value, expected });
        let Intrinsics { width, height, .. } = config.intrinsics;
        if !(1..=16_384).contains(&width) || !(1..=16_384).contains(&height) {
            return bad("intrinsics", format!("{width}x{height}"), "expected a size of 1x1 to 16384x16384");
        }
        if !(1..=1000).contains(&config.rate_fps) {
            return bad("rate_fps", config.rate_fps.to_string(), "expected 1 to 1000");
        }
        if !(2..=32).contains(&config.buffers) {
            return bad("buffers", config.buffers.to_string(), "expected 2 to 32");
        }
        if !(1..=60_000).contains(&config.timeout_ms) {
            return bad("timeout_ms", config.timeout_ms.to_string(), "expected 1 to 60000");
        }
        if !LATENCY_OFFSETS_MS.contains(&config.latency_offset_ms) {
            return bad("latency_offset_ms", config.latency_offset_ms.to_string(), "expected 0 to 1000");
        }
        let name = config.device.display().to_string();
        let device = Device::open(&config.device).map_err(|e| device_error(&name, e))?;
        let unsupported = |reason, advice| CameraError::Unsupported { device: name.clone(), reason, advice };
        if !device.can_stream_video().map_err(|e| device_error(&name, e))? {
            return Err(unsupported(
                "not a video capture device".into(),
                "one camera often has several nodes; `v4l2-ctl --list-devices` names them",
            ));
        }
        let wanted: &[u32] = match config.format {
            PixelFormat::Auto => &[YUYV, MJPG],
            PixelFormat::Yuyv => &[YUYV],
            PixelFormat::Mjpeg => &[MJPG],
        };
        let mut got = Vec::new();
        let mut chosen = None;
        for &format in wanted {
            let set = device.set_format(width, height, format).map_err(|e| device_error(&name, e))?;
            if (set.width, set.height, set.pixelformat) == (width, height, format) {
                chosen = Some(set);
                break;
            }
            got.push(format!("{} {}x{}", ioctl::fourcc(set.pixelformat), set.width, set.height));
        }
        let Some(format) = chosen else {
            let wanted: Vec<_> = wanted.iter().map(|&format| ioctl::fourcc(format)).collect();
            return Err(unsupported(
                format!(
                    "asked for {} at {width}x{height}, it offers {} (formats: {})",
                    wanted.join(" or "),
                    got.join(", "),
                    device.formats().join(", ")
                ),
                "`v4l2-ctl --list-formats-ext` lists sizes; set intrinsics and format to one of them",
            ));
        };
        let rate = device.set_rate(config.rate_fps).map_err(|e| device_error(&name, e))?;
        if rate.is_some_and(|fps| (fps - f64::from(config.rate_fps)).abs() > 0.5) {
            return Err(unsupported(
                format!("asked for {} FPS, it delivers {:.1}", config.rate_fps, rate.unwrap_or(0.0)),
                "set rate_fps to a rate that it has at this size and format",
            ));
        }
        let mjpeg = format.pixelformat == MJPG;
        let stream = Stream::start(device, format, config.buffers).map_err(|e| device_error(&name, e))?;
        Ok(Self {
            stream,
            arrivals: Arrivals::new(),
            device: name,
            intrinsics: config.intrinsics,
            mjpeg,
            timeout: Duration::from_millis(config.timeout_ms),
            latency_ns: (config.latency_offset_ms * 1e6) as u64,
        })
    }
}

impl Camera for V4l2Camera {
    fn intrinsics(&self) -> Intrinsics {
        self.intrinsics
    }

    fn has_depth(&self) -> bool {
        false
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        let Intrinsics { width, height, .. } = self.intrinsics;
        let mut broken = 0;
        loop {
            let Some(buffer) = self.stream.newest(self.timeout).map_err(|e| device_error(&self.device, e))?
            else {
                return Err(CameraError::Timeout {
                    device: self.device.clone(),
                    timeout_ms: self.timeout.as_millis() as u64,
                });
            };
            // The thread's own time: the kernel has had the frame for as long as the thread waited for a processor.
            let now_ns = monotonic_ns();
            let data = self.stream.data(&buffer);
            let converted = if buffer.is_broken() {
                Err("the driver marks it as broken".to_string())
            } else if self.mjpeg {
                image::decode_jpeg(data, width, height, &mut frame.rgb).map_err(|e| e.to_string())
            } else {
                let stride = self.stream.format().bytesperline as usize;
                image::yuyv_to_rgb(data, stride, width, height, &mut frame.rgb).map_err(|e| e.to_string())
            };
            let (sequence, capture_ns) = (buffer.sequence(), buffer.capture_ns());
            let arrival_ns = self.arrivals.arrival_ns(capture_ns, buffer.is_stamped_at_exposure(), now_ns);
            self.stream.give_back(buffer).map_err(|e| device_error(&self.device, e))?;
            if let Err(reason) = converted {
                broken += 1;
                if broken < MAX_BROKEN {
                    continue;
                }
                return Err(CameraError::Unsupported {
                    device: self.device.clone(),
                    reason: format!("{broken} broken images in a row, last: {reason}"),
                    advice: "check cable and bus bandwidth, or choose the other format",
                });
            }
            frame.sequence = sequence;
            // The kernel's stamp, where it is of our clock; one of the future is passed on, as the fault that it is.
            let stamp_ns = capture_ns.unwrap_or(arrival_ns);
            frame.capture_ns = stamp_ns.saturating_sub(self.latency_ns);
            frame.source_ns = stamp_ns;
            frame.arrival_ns = arrival_ns;
            (frame.width, frame.height) = (width, height);
            frame.depth_mm.clear();
            frame.depth_mm.resize(self.intrinsics.pixels(), 0);
            frame.camera_in_base = None;
            frame.streams = None;
            return Ok(());
        }
    }
}

fn device_error(device: &str, source: std::io::Error) -> CameraError {
    let advice = match source.raw_os_error() {
        Some(libc::ENOENT) => "no such device: `v4l2-ctl --list-devices` names those connected",
        Some(libc::ENODEV | libc::ENXIO | libc::EIO) => "the camera was unplugged or failed: check the cable",
        Some(libc::EACCES | libc::EPERM) => {
            "no permission: add yourself to the group `video` (`sudo usermod -aG video $USER`) and log in again"
        }
        Some(libc::EBUSY) => "another program uses the camera: close it (`fuser -v DEVICE` names it)",
        Some(libc::ENOTTY | libc::EINVAL) => "not a Video4Linux capture device",
        Some(libc::ENOSPC) => {
            "the USB bus lacks bandwidth: use format = \"mjpeg\", a lower rate, or another port"
        }
        _ => "see `dmesg` for what the driver says",
    };
    CameraError::Device { device: device.into(), source, advice }
}

/// Whether a path looks like a Video4Linux node that exists, for listings.
pub fn exists(device: &Path) -> bool {
    Device::open(device).and_then(|d| d.can_stream_video()).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(device: &str) -> V4l2Config {
        V4l2Config {
            device: device.into(),
            intrinsics: Intrinsics { width: 640, height: 480, fx: 600.0, fy: 600.0, cx: 320.0, cy: 240.0 },
            rate_fps: 30,
            format: PixelFormat::Auto,
            buffers: 4,
            timeout_ms: 500,
            latency_offset_ms: 0.0,
        }
    }

    fn message(config: &V4l2Config) -> String {
        V4l2Camera::open(config).err().expect("must fail").to_string()
    }

    #[test]
    fn a_frame_arrived_when_the_kernel_had_it_and_not_when_a_thread_came_to_it() {
        const MS: u64 = 1_000_000;
        // A stamp of the last byte is the arrival, however late the thread.
        let mut ends = Arrivals::new();
        assert_eq!(ends.arrival_ns(Some(100 * MS), false, 140 * MS), 100 * MS);
        // Exposure and transfer take 20 ms; what a late thread adds is no part of them.
        let mut exposures = Arrivals::new();
        assert_eq!(exposures.arrival_ns(Some(100 * MS), true, 125 * MS), 125 * MS);
        assert_eq!(exposures.arrival_ns(Some(200 * MS), true, 220 * MS), 220 * MS);
        assert_eq!(exposures.arrival_ns(Some(300 * MS), true, 390 * MS), 320 * MS);
        // Stamps of another clock, of the future, or absurdly old ones say nothing.
        for stamp_ns in [None, Some(5001 * MS), Some(0)] {
            assert_eq!(exposures.arrival_ns(stamp_ns, true, 5000 * MS), 5000 * MS);
            assert_eq!(ends.arrival_ns(stamp_ns, false, 5000 * MS), 5000 * MS);
        }
    }

    #[test]
    fn a_missing_device_is_named_with_the_way_out() {
        let text = message(&config("/dev/video-that-is-not-there"));
        assert!(
            text.starts_with("/dev/video-that-is-not-there: ") && text.contains("v4l2-ctl --list-devices"),
            "{text}"
        );
    }

    #[test]
    fn another_device_is_refused() {
        let text = message(&config("/dev/null"));
        assert!(text.contains("not a Video4Linux capture device"), "{text}");
        assert!(!exists(Path::new("/dev/null")));
    }

    #[test]
    fn impossible_values_are_refused_before_the_device_is_touched() {
        let mut bad = config("/dev/null");
        bad.buffers = 1;
        assert_eq!(message(&bad), "buffers = 1: expected 2 to 32");
    }

    #[test]
    fn every_errno_of_interest_has_advice_of_its_own() {
        let advice = |errno| device_error("d", std::io::Error::from_raw_os_error(errno)).to_string();
        assert!(advice(libc::EBUSY).contains("another program"));
        assert!(advice(libc::EACCES).contains("group `video`"));
        assert!(advice(libc::ENODEV).contains("unplugged"));
        assert!(advice(libc::ENOSPC).contains("bandwidth"));
    }
}
