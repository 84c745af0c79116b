//! The functions of ROS 2's `tracetools` as a program without ROS can call them: by name, from
//! whatever library the loader has put in front (the probe, LTTng's, or the stand-in that
//! [`crate::preload::ProbeSession`] brings), as `rclcpp` does.

use std::ffi::{CStr, c_char, c_void};

#[macro_use]
#[path = "../preload/tracepoints.rs"]
mod tracepoints;

/// The stand-in itself: a shared library that exports the functions with empty bodies, to be
/// written to a file and preloaded.
pub const STAND_IN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtracetools.so"));

type Pointer = *const c_void;
type Text<'a> = &'a CStr;
type Gid<'a> = &'a [u8; 24];
type Flag = bool;

macro_rules! c_type {
    (Text) => { *const c_char };
    (Gid) => { *const u8 };
    ($other:ident) => { $other };
}

macro_rules! c_value {
    ($value:ident, Text) => {
        $value.as_ptr()
    };
    ($value:ident, Gid) => {
        $value.as_ptr()
    };
    ($value:ident, $other:ident) => {
        $value
    };
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $of:ident),*);)*) => {
        /// The functions that are there.
        #[derive(Debug, Clone, Copy)]
        pub struct Tracepoints {
            $($name: Option<extern "C" fn($(c_type!($of)),*)>,)*
        }

        impl Tracepoints {
            /// Looks all of them up.
            pub fn find() -> Self {
                Self {
                    $($name: {
                        let address = look_up(concat!("ros_trace_", stringify!($name), "\0"));
                        // SAFETY: null is `None`; else the function of this name, of this signature
                        // in every release (`rmw_publish` looked at its first argument alone before
                        // Jazzy).
                        unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn($(c_type!($of)),*)>>(address) }
                    },)*
                }
            }

            /// Their number; 0: neither ROS 2 nor the stand-in is loaded.
            pub fn count(&self) -> usize {
                [$(self.$name.is_some()),*].iter().filter(|&&there| there).count()
            }

            $(
                #[doc = concat!("`", stringify!($name), "`; nothing where it is not there.")]
                #[allow(clippy::too_many_arguments)]
                pub fn $name(&self $(, $argument: $of)*) {
                    if let Some(function) = self.$name {
                        function($(c_value!($argument, $of)),*);
                    }
                }
            )*
        }
    };
}
tracepoints!(calls);

fn look_up(name: &str) -> *mut c_void {
    // SAFETY: all names end in zero; nothing is loaded.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast()) }
}
