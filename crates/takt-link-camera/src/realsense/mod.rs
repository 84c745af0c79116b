//! Intel RealSense D4xx: colour, and depth aligned to it, through librealsense2 (cargo feature `realsense`).
//!
//! The library is loaded at run time, so that one binary runs with and without it. Depth is aligned to the colour
//! image by the library's align block in this thread; its own threads are helpers in the sense of the thread census.
//! Colour is taken as an ideal pinhole image: the lens distortion left in a D4xx's colour is not corrected.

mod sys;

use std::ffi::{CString, c_int};
use std::sync::Arc;

use takt_rt::clock::{monotonic_ns, realtime_ns};

use crate::camera::Camera;
use crate::config::RealsenseConfig;
use crate::error::CameraError;
use crate::image::{self, ImageError};
use crate::{Frame, Intrinsics};
use sys::{Api, Handle, RawIntrinsics};

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
    /// Taken while opening, delivered first.
    first_number: u64,
}

// SAFETY: the objects are used by one thread at a time (all methods take `&mut self`), and librealsense2's objects
// have no tie to the thread that made them.
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
    /// When the library is missing (with how to install it) or too old, or no such camera is there, or it cannot
    /// stream at this size and rate.
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
            first_number: 0,
        };
        // The first frame tells the intrinsics; a camera takes up to some seconds for it.
        let frames = camera.aligned(5_000)?;
        let color = camera.part(&frames, sys::STREAM_COLOR)?;
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
        // SAFETY: `color` is a live frame.
        camera.first_number = camera
            .api
            .check(|e| unsafe { (camera.api.get_frame_number)(color.handle, e) })
            .map_err(failed)?;
        Ok(camera)
    }

    fn unplugged(&self, reason: String) -> CameraError {
        CameraError::Unsupported {
            device: self.device.clone(),
            reason,
            advice: "check the cable and the power of the USB port",
        }
    }

    /// The next set of frames, depth aligned to colour.
    fn aligned(&mut self, timeout_ms: u32) -> Result<Owned, CameraError> {
        let api = &self.api;
        let timed_out =
            || CameraError::Timeout { device: self.device.clone(), timeout_ms: timeout_ms.into() };
        // SAFETY: the pipeline is started and alive.
        let raw = api
            .check(|e| unsafe { (api.pipeline_wait_for_frames)(self.pipeline.0.handle, timeout_ms, e) })
            .map_err(|_| timed_out())?;
        let raw = Owned::new(api, raw, api.release_frame).map_err(|_| timed_out())?;
        // SAFETY: block and frame are alive; the block takes ownership of the frame.
        api.check(|e| unsafe { (api.process_frame)(self.align.handle, raw.release(), e) })
            .map_err(|e| self.unplugged(e))?;
        // SAFETY: the queue is alive.
        let aligned = api
            .check(|e| unsafe { (api.wait_for_frame)(self.queue.handle, timeout_ms, e) })
            .map_err(|_| timed_out())?;
        Owned::new(api, aligned, api.release_frame).map_err(|_| timed_out())
    }

    /// The frame of one stream in a set.
    fn part(&self, set: &Owned, stream: c_int) -> Result<Owned, CameraError> {
        let api = &self.api;
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
            // SAFETY: the frame is a live video frame, for all four calls.
            let width = api.check(|e| unsafe { (api.get_frame_width)(frame.handle, e) })?;
            // SAFETY: as above.
            let height = api.check(|e| unsafe { (api.get_frame_height)(frame.handle, e) })?;
            // SAFETY: as above.
            let stride = api.check(|e| unsafe { (api.get_frame_stride)(frame.handle, e) })?;
            // SAFETY: as above.
            let data = api.check(|e| unsafe { (api.get_frame_data)(frame.handle, e) })?;
            Ok((width, height, stride, data))
        };
        let (width, height, stride, data) = get().map_err(|e| self.unplugged(e))?;
        let Intrinsics { width: expected_width, height: expected_height, .. } = self.intrinsics;
        let stride = usize::try_from(stride).unwrap_or(0);
        if (width, height) != (expected_width as c_int, expected_height as c_int)
            || data.is_null()
            || stride < expected_width as usize * bytes_per_pixel
        {
            return Err(CameraError::SizeMismatch {
                what: self.device.clone(),
                width: expected_width,
                height: expected_height,
                found_width: width.unsigned_abs(),
                found_height: height.unsigned_abs(),
            });
        }
        // SAFETY: the library's frame has `height` rows of `stride` bytes, which live as long as the frame.
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
        let set = self.aligned(self.timeout_ms)?;
        let arrival_ns = monotonic_ns();
        let color = self.part(&set, sys::STREAM_COLOR)?;
        let depth = self.part(&set, sys::STREAM_DEPTH)?;
        let api = &self.api;
        let facts = || -> Result<_, String> {
            // SAFETY: both are live frames, for all four calls.
            let number = api.check(|e| unsafe { (api.get_frame_number)(color.handle, e) })?;
            // SAFETY: as above.
            let stamp_ms = api.check(|e| unsafe { (api.get_frame_timestamp)(color.handle, e) })?;
            // SAFETY: as above.
            let domain = api.check(|e| unsafe { (api.get_frame_timestamp_domain)(color.handle, e) })?;
            // SAFETY: as above; an aligned depth frame is a depth frame.
            let unit_m = api.check(|e| unsafe { (api.depth_frame_get_units)(depth.handle, e) })?;
            Ok((number, stamp_ms, domain, unit_m))
        };
        let (number, stamp_ms, domain, unit_m) = facts().map_err(|e| self.unplugged(e))?;
        let Intrinsics { width, height, .. } = self.intrinsics;
        let short = |e: ImageError| self.unplugged(e.to_string());
        let (bytes, stride) = self.pixels(&color, 3)?;
        image::copy_colour(bytes, stride, width, height, false, &mut frame.rgb).map_err(short)?;
        let (bytes, stride) = self.pixels(&depth, 2)?;
        // Rounded: 0.001 m as a float is not exactly one millimetre.
        let scale = (unit_m * 1e6).round() / 1e3;
        image::copy_depth(bytes, stride, width, height, scale, &mut frame.depth_mm).map_err(short)?;

        frame.sequence = number.saturating_sub(self.first_number).max(1);
        frame.source_ns = (stamp_ms.max(0.0) * 1e6) as u64;
        frame.arrival_ns = arrival_ns;
        // Stamps of the wall clock are carried over to our clock by the frame's age; an age that no frame has means
        // that the clocks disagree.
        let age_ns = realtime_ns().saturating_sub(frame.source_ns);
        let usable = domain != sys::DOMAIN_HARDWARE_CLOCK && age_ns < 1_000_000_000;
        frame.capture_ns = if usable { monotonic_ns().saturating_sub(age_ns) } else { arrival_ns };
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
