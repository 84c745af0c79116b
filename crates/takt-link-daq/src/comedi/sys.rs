//! The part of comedilib's C interface (`comedilib.h`) that reading and writing single samples
//! needs, loaded at run time. Its binary interface has been the same since 0.7.18 (library version
//! 0).

use std::ffi::{CStr, c_char, c_double, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;

use libloading::Library;

use crate::error::LinkError;

/// `comedi_t *`.
pub type Device = *mut c_void;

/// `COMEDI_SUBD_AI`.
pub const SUBD_AI: c_int = 1;
/// `COMEDI_SUBD_AO`.
pub const SUBD_AO: c_int = 2;
/// `UNIT_volt`.
pub const UNIT_VOLT: c_uint = 0;
/// `COMEDI_OOR_NUMBER`: the lowest and the highest code are levels like any other.
pub const OOR_NUMBER: c_int = 0;

/// `comedi_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub min: c_double,
    pub max: c_double,
    pub unit: c_uint,
}

impl Range {
    pub const NONE: Self = Self { min: 0.0, max: 1.0, unit: UNIT_VOLT };
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            UNIT_VOLT => "V",
            1 => "mA",
            _ => "(no unit)",
        };
        write!(f, "{} {unit} to {} {unit}", self.min, self.max)
    }
}

/// Kind of a subdevice, in words.
pub fn kind_name(kind: c_int) -> &'static str {
    match kind {
        0 => "an unused subdevice",
        1 => "an analog input",
        2 => "an analog output",
        3 => "a digital input",
        4 => "a digital output",
        5 => "digital lines",
        6 => "a counter",
        7 => "a timer",
        8 => "a memory",
        9 => "calibration converters",
        10 => "a processor",
        11 => "a serial line",
        12 => "pulse width modulation",
        _ => "a subdevice of unknown type",
    }
}

/// A C string of the library.
///
/// # Safety
/// Null, or a C string that lives during the call.
pub unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

macro_rules! api {
    ($($field:ident = $name:literal ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The library's functions.
        pub struct Api {
            $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps the functions loaded.
            _library: Library,
        }

        impl Api {
            fn bind(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of comedilib.h, and the library stays loaded with the
                // pointers.
                unsafe {
                    Ok(Self {
                        $($field: *library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>($name)?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

api! {
    open = b"comedi_open\0" (*const c_char) -> Device;
    close = b"comedi_close\0" (Device) -> c_int;
    loglevel = b"comedi_loglevel\0" (c_int) -> c_int;
    errno = b"comedi_errno\0" () -> c_int;
    strerror = b"comedi_strerror\0" (c_int) -> *const c_char;
    set_global_oor_behavior = b"comedi_set_global_oor_behavior\0" (c_int) -> c_int;
    get_driver_name = b"comedi_get_driver_name\0" (Device) -> *const c_char;
    get_board_name = b"comedi_get_board_name\0" (Device) -> *const c_char;
    get_n_subdevices = b"comedi_get_n_subdevices\0" (Device) -> c_int;
    get_subdevice_type = b"comedi_get_subdevice_type\0" (Device, c_uint) -> c_int;
    find_subdevice_by_type = b"comedi_find_subdevice_by_type\0" (Device, c_int, c_uint) -> c_int;
    get_n_channels = b"comedi_get_n_channels\0" (Device, c_uint) -> c_int;
    get_n_ranges = b"comedi_get_n_ranges\0" (Device, c_uint, c_uint) -> c_int;
    get_range = b"comedi_get_range\0" (Device, c_uint, c_uint, c_uint) -> *const Range;
    get_maxdata = b"comedi_get_maxdata\0" (Device, c_uint, c_uint) -> c_uint;
    to_phys = b"comedi_to_phys\0" (c_uint, *mut Range, c_uint) -> c_double;
    from_phys = b"comedi_from_phys\0" (c_double, *mut Range, c_uint) -> c_uint;
    data_read = b"comedi_data_read\0" (Device, c_uint, c_uint, c_uint, c_uint, *mut c_uint) -> c_int;
    data_read_delayed = b"comedi_data_read_delayed\0"
        (Device, c_uint, c_uint, c_uint, c_uint, *mut c_uint, c_uint) -> c_int;
    data_write = b"comedi_data_write\0" (Device, c_uint, c_uint, c_uint, c_uint, c_uint) -> c_int;
}

impl Api {
    pub fn load(path: &Path) -> Result<Self, LinkError> {
        let failed = |error: libloading::Error| LinkError::Library {
            library: path.to_owned(),
            reason: std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
        };
        // A plain name is the dynamic linker's to find.
        let checked = if path.components().count() > 1 {
            takt_files::environment::check_library(path)
                .map_err(|error| LinkError::Library { library: path.to_owned(), reason: error.to_string() })?
        } else {
            path.to_owned()
        };
        // SAFETY: loading runs the library's initialisers; comedilib's do nothing but set up a
        // version string.
        let library = unsafe { Library::new(&checked) }.map_err(failed)?;
        Self::bind(library).map_err(failed)
    }

    /// The library's words for the last failure.
    pub fn last_error(&self) -> String {
        // SAFETY: both take and return plain values; the text is static.
        unsafe { text((self.strerror)((self.errno)())) }
    }
}
