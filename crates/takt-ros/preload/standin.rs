//! A stand-in for ROS 2's `libtracetools.so`: exports the same functions with bare bodies, as the
//! real one has while LTTng is off, so that workloads and tests call what `rclcpp` calls, through
//! dynamic linking.

#![no_std]

use core::ffi::{c_char, c_void};

#[macro_use]
#[path = "tracepoints.rs"]
mod tracepoints;

type Pointer = *const c_void;
type Text = *const c_char;
type Gid = *const u8;
type Flag = bool;

macro_rules! stand_in {
    ($($name:ident($($argument:ident: $of:ty),*);)*) => {
        $(
            const _: () = {
                #[unsafe(export_name = concat!("ros_trace_", stringify!($name)))]
                extern "C" fn plain($($argument: $of),*) { $(let _ = $argument;)* }
                #[unsafe(export_name = concat!("ros_trace_do_", stringify!($name)))]
                extern "C" fn unasked($($argument: $of),*) { $(let _ = $argument;)* }
                #[unsafe(export_name = concat!("ros_trace_enabled_", stringify!($name)))]
                extern "C" fn enabled() -> bool { false }
            };
        )*
    };
}
tracepoints!(stand_in);

/// Whether tracing is compiled in.
#[unsafe(no_mangle)]
pub extern "C" fn ros_trace_compile_status() -> bool {
    false
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
