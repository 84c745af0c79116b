//! The part of librealsense2's C interface (`librealsense2/rs.h`) that aligned streaming needs,
//! loaded at run time.
//!
//! Signatures are those of librealsense 2.39 and later; the interface is stable within major
//! version 2.

use std::ffi::{CStr, c_char, c_float, c_int, c_longlong, c_uint, c_ulonglong, c_void};

use libloading::Library;

use crate::error::CameraError;

/// Any of the library's opaque objects.
pub type Handle = *mut c_void;
/// Where a function reports an error.
pub type ErrorSlot = *mut Handle;

/// `RS2_STREAM_DEPTH`.
pub const STREAM_DEPTH: c_int = 1;
/// `RS2_STREAM_COLOR`.
pub const STREAM_COLOR: c_int = 2;
/// `RS2_FORMAT_Z16`.
pub const FORMAT_Z16: c_int = 1;
/// `RS2_FORMAT_RGB8`.
pub const FORMAT_RGB8: c_int = 5;
/// `RS2_FRAME_METADATA_TIME_OF_ARRIVAL`: when the library had the image, milliseconds of the host's
/// wall clock.
pub const TIME_OF_ARRIVAL: c_int = 7;
/// `RS2_TIMESTAMP_DOMAIN_HARDWARE_CLOCK`: milliseconds of a clock of the device's own.
pub const DOMAIN_HARDWARE_CLOCK: c_int = 0;
/// `RS2_TIMESTAMP_DOMAIN_SYSTEM_TIME`: arrival at the host, milliseconds of its wall clock.
pub const DOMAIN_SYSTEM_TIME: c_int = 1;
/// `RS2_TIMESTAMP_DOMAIN_GLOBAL_TIME`: exposure by the device's clock, carried over to the host's
/// wall clock.
pub const DOMAIN_GLOBAL_TIME: c_int = 2;

/// `rs2_intrinsics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawIntrinsics {
    pub width: c_int,
    pub height: c_int,
    pub ppx: c_float,
    pub ppy: c_float,
    pub fx: c_float,
    pub fy: c_float,
    pub model: c_int,
    pub coeffs: [c_float; 5],
}

const LIBRARY: &str = "librealsense2.so";
const ADVICE: &str = "install it (https://github.com/IntelRealSense/librealsense/blob/master/doc/\
    distribution_linux.md: package librealsense2 of Intel's repository; on ROS machines \
    ros-$ROS_DISTRO-librealsense2) and its udev rules, and see that the loader finds it (ldconfig, LD_LIBRARY_PATH)";

fn library_error(reason: impl ToString) -> CameraError {
    CameraError::Library { library: LIBRARY, reason: reason.to_string(), advice: ADVICE }
}

macro_rules! api {
    ($($field:ident = $name:ident ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The library's functions.
        pub struct Api {
            $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps the functions loaded; last, so that nothing outlives it.
            _library: Library,
        }

        impl Api {
            fn bind(library: Library) -> Result<Self, CameraError> {
                Ok(Self {
                    // SAFETY: the symbol of this name has this signature in librealsense2's C
                    // header.
                    $($field: unsafe {
                        *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(library_error)?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

api! {
    get_api_version = rs2_get_api_version(ErrorSlot) -> c_int;
    get_error_message = rs2_get_error_message(Handle) -> *const c_char;
    free_error = rs2_free_error(Handle);
    create_context = rs2_create_context(c_int, ErrorSlot) -> Handle;
    delete_context = rs2_delete_context(Handle);
    create_pipeline = rs2_create_pipeline(Handle, ErrorSlot) -> Handle;
    delete_pipeline = rs2_delete_pipeline(Handle);
    create_config = rs2_create_config(ErrorSlot) -> Handle;
    delete_config = rs2_delete_config(Handle);
    config_enable_device = rs2_config_enable_device(Handle, *const c_char, ErrorSlot);
    config_enable_stream =
        rs2_config_enable_stream(Handle, c_int, c_int, c_int, c_int, c_int, c_int, ErrorSlot);
    pipeline_start_with_config = rs2_pipeline_start_with_config(Handle, Handle, ErrorSlot) -> Handle;
    pipeline_stop = rs2_pipeline_stop(Handle, ErrorSlot);
    delete_pipeline_profile = rs2_delete_pipeline_profile(Handle);
    pipeline_wait_for_frames = rs2_pipeline_wait_for_frames(Handle, c_uint, ErrorSlot) -> Handle;
    create_align = rs2_create_align(c_int, ErrorSlot) -> Handle;
    delete_processing_block = rs2_delete_processing_block(Handle);
    create_frame_queue = rs2_create_frame_queue(c_int, ErrorSlot) -> Handle;
    delete_frame_queue = rs2_delete_frame_queue(Handle);
    start_processing_queue = rs2_start_processing_queue(Handle, Handle, ErrorSlot);
    process_frame = rs2_process_frame(Handle, Handle, ErrorSlot);
    wait_for_frame = rs2_wait_for_frame(Handle, c_uint, ErrorSlot) -> Handle;
    release_frame = rs2_release_frame(Handle);
    embedded_frames_count = rs2_embedded_frames_count(Handle, ErrorSlot) -> c_int;
    extract_frame = rs2_extract_frame(Handle, c_int, ErrorSlot) -> Handle;
    get_frame_stream_profile = rs2_get_frame_stream_profile(Handle, ErrorSlot) -> Handle;
    get_stream_profile_data = rs2_get_stream_profile_data(
        Handle, *mut c_int, *mut c_int, *mut c_int, *mut c_int, *mut c_int, ErrorSlot);
    get_video_stream_intrinsics =
        rs2_get_video_stream_intrinsics(Handle, *mut RawIntrinsics, ErrorSlot);
    get_frame_data = rs2_get_frame_data(Handle, ErrorSlot) -> *const c_void;
    get_frame_width = rs2_get_frame_width(Handle, ErrorSlot) -> c_int;
    get_frame_height = rs2_get_frame_height(Handle, ErrorSlot) -> c_int;
    get_frame_stride = rs2_get_frame_stride_in_bytes(Handle, ErrorSlot) -> c_int;
    get_frame_data_size = rs2_get_frame_data_size(Handle, ErrorSlot) -> c_int;
    get_frame_number = rs2_get_frame_number(Handle, ErrorSlot) -> c_ulonglong;
    get_frame_timestamp = rs2_get_frame_timestamp(Handle, ErrorSlot) -> f64;
    get_frame_timestamp_domain = rs2_get_frame_timestamp_domain(Handle, ErrorSlot) -> c_int;
    supports_frame_metadata = rs2_supports_frame_metadata(Handle, c_int, ErrorSlot) -> c_int;
    get_frame_metadata = rs2_get_frame_metadata(Handle, c_int, ErrorSlot) -> c_longlong;
    depth_frame_get_units = rs2_depth_frame_get_units(Handle, ErrorSlot) -> c_float;
}

impl Api {
    /// Loads the library.
    pub fn load() -> Result<Self, CameraError> {
        // SAFETY: loading runs the library's initialisers; librealsense2's set up its own state
        // only.
        let library = unsafe { Library::new(LIBRARY).or_else(|_| Library::new("librealsense2.so.2")) };
        // The versioned names of current releases, for machines without the development link.
        let library = library.or_else(|first| {
            (39..=70)
                .rev()
                // SAFETY: as above.
                .find_map(|minor| unsafe { Library::new(format!("librealsense2.so.2.{minor}")) }.ok())
                .ok_or(first)
        });
        let api = Self::bind(library.map_err(library_error)?)?;
        let version = api.check(|slot| {
            // SAFETY: `slot` is a valid place for an error.
            unsafe { (api.get_api_version)(slot) }
        });
        // major * 10000 + minor * 100 + patch
        match version {
            Ok(version) if version / 10_000 == 2 && version >= 23_900 => Ok(api),
            Ok(version) => Err(library_error(format!("version {version}, expected 2.39 or later (23900)"))),
            Err(reason) => Err(library_error(reason)),
        }
    }

    /// Calls a function that reports errors through its last argument.
    pub(super) fn check<T>(&self, call: impl FnOnce(ErrorSlot) -> T) -> Result<T, String> {
        let mut error: Handle = std::ptr::null_mut();
        let result = call(&mut error);
        if error.is_null() {
            return Ok(result);
        }
        // SAFETY: the library set `error` to an error object, which lives until it is freed here,
        // once.
        unsafe {
            let message = (self.get_error_message)(error);
            let text = if message.is_null() {
                "unknown error".into()
            } else {
                CStr::from_ptr(message).to_string_lossy().into_owned()
            };
            (self.free_error)(error);
            Err(text)
        }
    }
}
