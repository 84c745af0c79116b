//! The exported `ros_trace_*` functions, called as `rclcpp`, `rcl` and `rmw` call them, and
//! identities to call them with.

use std::ffi::c_void;
use std::sync::OnceLock;

use takt_ros::standin::Tracepoints;

/// The functions of this process, looked up once.
pub fn trace() -> &'static Tracepoints {
    static FOUND: OnceLock<Tracepoints> = OnceLock::new();
    FOUND.get_or_init(Tracepoints::find)
}

/// The identity of an object: an address that no other object of this process has. Never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    /// An object that exists only for the trace.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "they differ from each other")]
    pub fn new() -> Self {
        // A leaked word each: objects live as long as their process here.
        Self::of(Box::leak(Box::new(0u64)))
    }

    /// The identity of a thing that is there, such as a message.
    #[must_use]
    pub fn of<T>(thing: &T) -> Self {
        Self(std::ptr::from_ref(thing) as usize)
    }

    /// As the tracepoints take it.
    #[must_use]
    pub fn pointer(self) -> *const c_void {
        self.0 as *const c_void
    }
}
