//! A RealSense that streams, through librealsense2.

use std::ffi::{CString, c_int};
use std::sync::Arc;

use takt_rt::clock::monotonic_ns;

use super::config::{LATENCY_OFFSETS_MS, RealsenseConfig};
use super::stamp::{Clocks, RawStamp, SensorClock};
use super::sys::{self, Api, Handle, RawIntrinsics};
use crate::camera::Camera;
use crate::error::CameraError;
use crate::image::{self, ImageError};
use crate::{Frame, Intrinsics, StreamStamp, Streams};

/// No image waits in the library for longer; beyond, its stamp is of another clock.
const LONGEST_AGE_NS: u64 = 1_000_000_000;

/// An object of the library, deleted by its own function.
struct Owned {
    handle: Handle,
    delete: unsafe extern "C" fn(Handle),
    /// The functions stay loaded for as long as an object lives.
    _api: Arc<Api>,
}

impl Owned {
    fn new(api: &Arc<Api>, handle: Handle, delete: unsafe extern "C" fn(Handle)) -> Result<Self, String> {
        if handle.is_null() {
            return Err("the library returned nothing".into());
        }
        Ok(Self { handle, delete, _api: Arc::clone(api) })
    }

    /// Gives the object away, to a function that takes ownership.
    fn release(self) -> Handle {
        let handle = self.handle;
        std::mem::forget(self);
        handle
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: `handle` is a live object of the type that `delete` deletes, deleted only here.
        unsafe { (self.delete)(self.handle) };
    }
}

/// A camera that streams.
pub struct RealsenseCamera {
    // Order of the fields is the order of deletion.
    queue: Owned,
    align: Owned,
    pipeline: Pipeline,
    _context: Owned,
    api: Arc<Api>,
    device: String,
    timeout_ms: u32,
    intrinsics: Intrinsics,
    colour_clock: SensorClock,
    depth_clock: SensorClock,
    /// Of the set delivered last.
    last: Option<Streams>,
    sequence: u64,
}

// SAFETY: the objects are used by one thread at a time (all methods take `&mut self`), and
// librealsense2's objects have no tie to the thread that made them.
unsafe impl Send for RealsenseCamera {}

/// A started pipeline; it is stopped before it is deleted.
struct Pipeline(Owned, Arc<Api>);

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: the pipeline is alive. It fails when the camera is gone, which changes nothing.
        let _ = self.1.check(|e| unsafe { (self.1.pipeline_stop)(self.0.handle, e) });
    }
}

impl RealsenseCamera {
    /// Loads the library, opens the camera and waits for its first frame.
    ///
    /// # Errors
    /// When the library is missing (with how to install it) or too old, or no such camera is there,
    /// or it cannot stream at this size and rate.
    pub fn open(config: &RealsenseConfig) -> Result<Self, CameraError> {
        let bad = |key, value: u64, expected| {
            Err(CameraError::BadConfig { key, value: value.to_string(), expected })
        };
        if !(1..=4096).contains(&config.width) {
            return bad("width", config.width.into(), "expected 1 to 4096");
        }
        if !(1..=4096).contains(&config.height) {
            return bad("height", config.height.into(), "expected 1 to 4096");
        }
        if !(1..=300).contains(&config.rate_fps) {
            return bad("rate_fps", config.rate_fps.into(), "expected 1 to 300");
        }
        if !(1..=60_000).contains(&config.timeout_ms) {
            return bad("timeout_ms", config.timeout_ms, "expected 1 to 60000");
        }
        if let Some(offset_ms) = config.latency_offset_ms
            && !LATENCY_OFFSETS_MS.contains(&offset_ms)
        {
            return Err(CameraError::BadConfig {
                key: "latency_offset_ms",
                value: offset_ms.to_string(),
                expected: "expected 0 to 1000",
            });
        }
        let api = Arc::new(Api::load()?);
        let device = match &config.serial {
            Some(serial) => format!("RealSense {serial}"),
            None => "RealSense".to_string(),
        };
        let failed = |reason| CameraError::Unsupported {
            device: device.clone(),
            reason,
            advice: "see that it is listed by `rs-enumerate-devices -s` with this serial number, is on USB 3, is \
                     not used by another program, and that the udev rules of librealsense are installed; \
                     `rs-enumerate-devices` lists sizes and rates",
        };
        let (context, pipeline, align, queue) = start(&api, config).map_err(failed)?;
        let mut camera = Self {
            queue,
            align,
            pipeline: Pipeline(pipeline, Arc::clone(&api)),
            _context: context,
            api,
            device: device.clone(),
            timeout_ms: config.timeout_ms as u32,
            intrinsics: Intrinsics {
                width: config.width,
                height: config.height,
                fx: 0.0,
                fy: 0.0,
                cx: 0.0,
                cy: 0.0,
            },
            colour_clock: SensorClock::new(config.latency_offset_ms, config.rate_fps),
            depth_clock: SensorClock::new(config.latency_offset_ms, config.rate_fps),
            last: None,
            sequence: 0,
        };
        // The first frame reports the intrinsics; a camera takes up to some seconds for it.
        let (frames, _) = camera.aligned(5_000)?;
        let color = camera.part(&frames, sys::STREAM_COLOR, sys::FORMAT_RGB8)?;
        let raw = camera.intrinsics_of(&color).map_err(failed)?;
        camera.intrinsics = Intrinsics {
            fx: raw.fx.into(),
            fy: raw.fy.into(),
            cx: raw.ppx.into(),
            cy: raw.ppy.into(),
            ..camera.intrinsics
        };
        if (raw.width, raw.height) != (config.width as c_int, config.height as c_int) {
            return Err(CameraError::SizeMismatch {
                what: device,
                width: config.width,
                height: config.height,
                found_width: raw.width.unsigned_abs(),
                found_height: raw.height.unsigned_abs(),
            });
        }
        Ok(camera)
    }

    fn unplugged(&self, reason: String) -> CameraError {
        CameraError::Unsupported {
            device: self.device.clone(),
            reason,
            advice: "check the cable and the power of the USB port",
        }
    }

    /// The next set of frames, depth aligned to colour, and when the library had it complete.
    fn aligned(&mut self, timeout_ms: u32) -> Result<(Owned, u64), CameraError> {
        let api = &self.api;
        let timed_out =
            || CameraError::Timeout { device: self.device.clone(), timeout_ms: timeout_ms.into() };
        // SAFETY: the pipeline is started and alive.
        let raw = api
            .check(|e| unsafe { (api.pipeline_wait_for_frames)(self.pipeline.0.handle, timeout_ms, e) })
            .map_err(|e| self.no_frame(e, timeout_ms))?;
        let arrival_ns = monotonic_ns();
        let raw = Owned::new(api, raw, api.release_frame).map_err(|_| timed_out())?;
        // SAFETY: block and frame are alive; the block takes ownership of the frame.
        api.check(|e| unsafe { (api.process_frame)(self.align.handle, raw.release(), e) })
            .map_err(|e| self.unplugged(e))?;
        // SAFETY: the queue is alive.
        let aligned = api
            .check(|e| unsafe { (api.wait_for_frame)(self.queue.handle, timeout_ms, e) })
            .map_err(|e| self.no_frame(e, timeout_ms))?;
        let aligned = Owned::new(api, aligned, api.release_frame).map_err(|_| timed_out())?;
        Ok((aligned, arrival_ns))
    }

    /// Why a wait for a frame failed: the library says "Frame didn't arrive within N" when its time
    /// is up, and something else when the device is gone.
    fn no_frame(&self, reason: String, timeout_ms: u32) -> CameraError {
        if reason.contains("arrive") {
            CameraError::Timeout { device: self.device.clone(), timeout_ms: timeout_ms.into() }
        } else {
            self.unplugged(reason)
        }
    }

    /// When the library had an image, where it says so: before any thread of ours woke up for it.
    /// Its whole milliseconds are rounded down, which makes a reaction longer, never shorter. A
    /// wall clock that was set meanwhile says nothing.
    fn library_arrival_ns(&self, image: &Owned, clocks: &Clocks) -> Option<u64> {
        let api = &self.api;
        // SAFETY: the image is alive, for both calls.
        let supported = api
            .check(|e| unsafe { (api.supports_frame_metadata)(image.handle, sys::TIME_OF_ARRIVAL, e) })
            .ok()?;
        if supported == 0 {
            return None;
        }
        // SAFETY: as above.
        let ms =
            api.check(|e| unsafe { (api.get_frame_metadata)(image.handle, sys::TIME_OF_ARRIVAL, e) }).ok()?;
        let wall_ns = u64::try_from(ms).ok()?.checked_mul(1_000_000)?;
        let age_ns = clocks.realtime_ns.checked_sub(wall_ns).filter(|age_ns| *age_ns < LONGEST_AGE_NS)?;
        clocks.monotonic_ns.checked_sub(age_ns)
    }

    /// The frame of one stream in a set.
    fn part(&self, set: &Owned, stream: c_int, format: c_int) -> Result<Owned, CameraError> {
        let api = &self.api;
        let wanted = format;
        let find = || -> Result<Option<Owned>, String> {
            // SAFETY: the set is alive.
            let count = api.check(|e| unsafe { (api.embedded_frames_count)(set.handle, e) })?;
            for index in 0..count {
                // SAFETY: the index is below the count; the frame returned is ours to release.
                let frame = api.check(|e| unsafe { (api.extract_frame)(set.handle, index, e) })?;
                let frame = Owned::new(api, frame, api.release_frame)?;
                // SAFETY: the frame is alive; its profile belongs to it.
                let profile = api.check(|e| unsafe { (api.get_frame_stream_profile)(frame.handle, e) })?;
                let mut data = [0; 5];
                let [kind, format, number, id, rate] = &mut data;
                // SAFETY: five places for integers.
                api.check(|e| unsafe {
                    (api.get_stream_profile_data)(profile, kind, format, number, id, rate, e)
                })?;
                if data[0] == stream {
                    if data[1] != wanted {
                        return Err(format!("stream {stream} has the format {}, expected {wanted}", data[1]));
                    }
                    return Ok(Some(frame));
                }
            }
            Ok(None)
        };
        find()
            .map_err(|e| self.unplugged(e))?
            .ok_or_else(|| self.unplugged("a set of frames without colour or depth".into()))
    }

    fn intrinsics_of(&self, frame: &Owned) -> Result<RawIntrinsics, String> {
        let api = &self.api;
        let mut intrinsics = RawIntrinsics::default();
        // SAFETY: the frame is alive; its profile belongs to it.
        let profile = api.check(|e| unsafe { (api.get_frame_stream_profile)(frame.handle, e) })?;
        // SAFETY: a place of the right layout.
        api.check(|e| unsafe { (api.get_video_stream_intrinsics)(profile, &mut intrinsics, e) })?;
        Ok(intrinsics)
    }

    /// The bytes of a frame with its row distance, its size checked.
    fn pixels<'a>(&self, frame: &'a Owned, bytes_per_pixel: usize) -> Result<(&'a [u8], usize), CameraError> {
        let api = &self.api;
        let get = || -> Result<_, String> {
            // SAFETY: the frame is a live video frame, for all five calls.
            let width = api.check(|e| unsafe { (api.get_frame_width)(frame.handle, e) })?;
            // SAFETY: as above.
            let height = api.check(|e| unsafe { (api.get_frame_height)(frame.handle, e) })?;
            // SAFETY: as above.
            let stride = api.check(|e| unsafe { (api.get_frame_stride)(frame.handle, e) })?;
            // SAFETY: as above.
            let data = api.check(|e| unsafe { (api.get_frame_data)(frame.handle, e) })?;
            // SAFETY: as above.
            let size = api.check(|e| unsafe { (api.get_frame_data_size)(frame.handle, e) })?;
            Ok((width, height, stride, data, size))
        };
        let (width, height, stride, data, size) = get().map_err(|e| self.unplugged(e))?;
        let Intrinsics { width: expected_width, height: expected_height, .. } = self.intrinsics;
        let stride = usize::try_from(stride).unwrap_or(0);
        if (width, height) != (expected_width as c_int, expected_height as c_int)
            || data.is_null()
            || stride < expected_width as usize * bytes_per_pixel
            || usize::try_from(size).unwrap_or(0) < stride * expected_height as usize
        {
            return Err(CameraError::SizeMismatch {
                what: self.device.clone(),
                width: expected_width,
                height: expected_height,
                found_width: width.unsigned_abs(),
                found_height: height.unsigned_abs(),
            });
        }
        // SAFETY: the library's frame has `height` rows of `stride` bytes, as its size says, which
        // live as long as the frame.
        let bytes =
            unsafe { std::slice::from_raw_parts(data.cast::<u8>(), stride * expected_height as usize) };
        Ok((bytes, stride))
    }
}

/// Context, started pipeline, align block and its queue.
fn start(api: &Arc<Api>, config: &RealsenseConfig) -> Result<(Owned, Owned, Owned, Owned), String> {
    // SAFETY: no argument but the place for an error.
    let version = api.check(|e| unsafe { (api.get_api_version)(e) })?;
    // SAFETY: the library's own version is always accepted.
    let context = api.check(|e| unsafe { (api.create_context)(version, e) })?;
    let context = Owned::new(api, context, api.delete_context)?;
    // SAFETY: the context is alive.
    let pipeline = api.check(|e| unsafe { (api.create_pipeline)(context.handle, e) })?;
    let pipeline = Owned::new(api, pipeline, api.delete_pipeline)?;
    // SAFETY: no argument but the place for an error.
    let settings = api.check(|e| unsafe { (api.create_config)(e) })?;
    let settings = Owned::new(api, settings, api.delete_config)?;
    if let Some(serial) = &config.serial {
        let serial = CString::new(serial.as_str()).map_err(|_| "the serial number contains a NUL")?;
        // SAFETY: the settings are alive, the text is a C string.
        api.check(|e| unsafe { (api.config_enable_device)(settings.handle, serial.as_ptr(), e) })?;
    }
    let (width, height, fps) = (config.width as c_int, config.height as c_int, config.rate_fps as c_int);
    for (stream, format) in [(sys::STREAM_COLOR, sys::FORMAT_RGB8), (sys::STREAM_DEPTH, sys::FORMAT_Z16)] {
        // SAFETY: the settings are alive; index -1 is "any".
        api.check(|e| unsafe {
            (api.config_enable_stream)(settings.handle, stream, -1, width, height, format, fps, e)
        })?;
    }
    // SAFETY: pipeline and settings are alive. The profile returned is not needed.
    let profile =
        api.check(|e| unsafe { (api.pipeline_start_with_config)(pipeline.handle, settings.handle, e) })?;
    drop(Owned::new(api, profile, api.delete_pipeline_profile)?);
    // SAFETY: a stream number.
    let align = api.check(|e| unsafe { (api.create_align)(sys::STREAM_COLOR, e) })?;
    let align = Owned::new(api, align, api.delete_processing_block)?;
    // SAFETY: a capacity of one: the newest set of frames.
    let queue = api.check(|e| unsafe { (api.create_frame_queue)(1, e) })?;
    let queue = Owned::new(api, queue, api.delete_frame_queue)?;
    // SAFETY: both are alive, and stay so: the camera deletes the queue's block after the queue.
    api.check(|e| unsafe { (api.start_processing_queue)(align.handle, queue.handle, e) })?;
    Ok((context, pipeline, align, queue))
}

impl Camera for RealsenseCamera {
    fn intrinsics(&self) -> Intrinsics {
        self.intrinsics
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        let (set, arrival_ns) = self.aligned(self.timeout_ms)?;
        let color = self.part(&set, sys::STREAM_COLOR, sys::FORMAT_RGB8)?;
        let depth = self.part(&set, sys::STREAM_DEPTH, sys::FORMAT_Z16)?;
        let api = &self.api;
        let stamp_of = |frame: &Owned| -> Result<RawStamp, String> {
            // SAFETY: a live frame, for all three calls.
            let number = api.check(|e| unsafe { (api.get_frame_number)(frame.handle, e) })?;
            // SAFETY: as above.
            let stamp_ms = api.check(|e| unsafe { (api.get_frame_timestamp)(frame.handle, e) })?;
            // SAFETY: as above.
            let domain = api.check(|e| unsafe { (api.get_frame_timestamp_domain)(frame.handle, e) })?;
            Ok(RawStamp { number, stamp_ms, domain })
        };
        let facts = || -> Result<_, String> {
            // SAFETY: a live frame; an aligned depth frame is a depth frame.
            let unit_m = api.check(|e| unsafe { (api.depth_frame_get_units)(depth.handle, e) })?;
            if !(1e-6..=0.1).contains(&unit_m) {
                return Err(format!("the unit of depth is {unit_m} m, expected 0.000001 to 0.1"));
            }
            Ok((stamp_of(&color)?, stamp_of(&depth)?, unit_m))
        };
        let (color_stamp, depth_stamp, unit_m) = facts().map_err(|e| self.unplugged(e))?;
        let clocks = Clocks::now();
        let mut stamps = || -> Result<_, String> {
            Ok(Streams {
                colour: self.colour_clock.convert(color_stamp, arrival_ns, &clocks)?,
                depth: self.depth_clock.convert(depth_stamp, arrival_ns, &clocks)?,
            })
        };
        let stamps = stamps();
        let streams = stamps.map_err(|e| self.unplugged(e))?;
        let Intrinsics { width, height, .. } = self.intrinsics;
        let short = |e: ImageError| self.unplugged(e.to_string());
        let (bytes, stride) = self.pixels(&color, 3)?;
        image::copy_colour(bytes, stride, width, height, image::ColourLayout::Rgb, &mut frame.rgb)
            .map_err(short)?;
        let (bytes, stride) = self.pixels(&depth, 2)?;
        // Rounded: 0.001 m as a float is not exactly one millimetre.
        let scale = (unit_m * 1e6).round() / 1e3;
        image::copy_depth(bytes, stride, width, height, false, scale, &mut frame.depth_mm).map_err(short)?;

        // A set is new when one of its images is; that the other one stands still shows in its own
        // stamp, which is the older one. A number that goes backwards adds nothing, and shows in
        // its own image, too.
        let last = self.last.unwrap_or_default();
        let advance = |new: StreamStamp, old: StreamStamp| new.number.saturating_sub(old.number);
        let advance = advance(streams.colour, last.colour).max(advance(streams.depth, last.depth));
        // Bounded: one wrong number must not use up all that follow.
        self.sequence = self.sequence.saturating_add(advance.min(1 << 32));
        self.last = Some(streams);
        frame.sequence = self.sequence;
        frame.capture_ns = streams.colour.capture_ns.min(streams.depth.capture_ns);
        frame.source_ns = (color_stamp.stamp_ms * 1e6) as u64;
        // Complete when the later of the two images was; never later than this thread had them.
        let arrivals = [&color, &depth].map(|image| self.library_arrival_ns(image, &clocks));
        frame.arrival_ns = match arrivals {
            [Some(colour_ns), Some(depth_ns)] => colour_ns.max(depth_ns).min(arrival_ns),
            _ => arrival_ns,
        };
        frame.streams = Some(streams);
        (frame.width, frame.height) = (width, height);
        frame.camera_in_base = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_library_or_camera_the_error_says_what_to_do() {
        let config = RealsenseConfig {
            serial: Some("not-a-serial".into()),
            width: 424,
            height: 240,
            rate_fps: 30,
            timeout_ms: 1000,
            latency_offset_ms: None,
        };
        match RealsenseCamera::open(&config).err().expect("there is no such camera") {
            CameraError::Library { library, advice, .. } => {
                assert_eq!(library, "librealsense2.so");
                assert!(advice.contains("install"));
            }
            CameraError::Unsupported { advice, .. } => assert!(advice.contains("rs-enumerate-devices")),
            other => panic!("{other}"),
        }
        let zero = RealsenseConfig { rate_fps: 0, ..config };
        let error = RealsenseCamera::open(&zero).err().unwrap().to_string();
        assert_eq!(error, "rate_fps = 0: expected 1 to 300");
    }
}
