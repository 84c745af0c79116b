//! The exported `ros_trace_*` functions, called as `rclcpp`, `rcl` and `rmw` call them: through dynamic linking, so that whatever is
//! preloaded in front of `libtracetools.so` sees the calls.
//!
//! They are looked up once, in the global scope. Where no library exports one, it is not called, as with `TRACETOOLS_DISABLED`.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

type Pointer = *const c_void;
type Text = *const c_char;

/// The identity of an object: an address that no other object of this process has. Never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    /// An object that exists only for the trace.
    #[must_use]
    pub fn new() -> Self {
        // A leaked byte each: objects live as long as their process here.
        Self(std::ptr::from_ref::<u64>(Box::leak(Box::new(0))) as usize)
    }

    /// The identity of a thing that is there, such as a message.
    #[must_use]
    pub fn of<T>(thing: &T) -> Self {
        Self(std::ptr::from_ref(thing) as usize)
    }
}

impl Default for Handle {
    fn default() -> Self {
        Self::new()
    }
}

/// A globally unique identifier, as the middlewares give them.
pub type Gid = [u8; 24];

/// An argument as this crate knows it, and as C does.
trait Argument<Abi> {
    fn abi(self) -> Abi;
}

impl Argument<Pointer> for Handle {
    fn abi(self) -> Pointer {
        self.0 as Pointer
    }
}

impl Argument<Text> for &CStr {
    fn abi(self) -> Text {
        self.as_ptr()
    }
}

impl Argument<*const u8> for &Gid {
    fn abi(self) -> *const u8 {
        self.as_ptr()
    }
}

impl<T> Argument<T> for T {
    fn abi(self) -> T {
        self
    }
}

macro_rules! tracepoints {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $api:ty => $kind:ty),*);)*) => {
        #[derive(Default)]
        struct Table {
            $($name: Option<unsafe extern "C" fn($($kind),*)>,)*
        }

        impl Table {
            fn look_up() -> Self {
                Self {
                    $($name: symbol(concat!("ros_trace_", stringify!($name), "\0")).map(|address| {
                        // SAFETY: the symbol of this name has this signature in every tracetools from Jazzy on (its public
                        // header tracetools.h); stand-ins and probes are bound to the same ABI.
                        unsafe { std::mem::transmute::<Pointer, unsafe extern "C" fn($($kind),*)>(address) }
                    }),)*
                }
            }

            fn found(&self) -> usize {
                0 $(+ usize::from(self.$name.is_some()))*
            }
        }

        $($(#[$doc])* pub fn $name($($argument: $api),*) {
            if let Some(function) = table().$name {
                // SAFETY: signature as above; tracetools stores or formats the arguments and follows only strings and gids, which
                // are borrowed for the call.
                unsafe { function($(Argument::<$kind>::abi($argument)),*) }
            }
        })*
    };
}

tracepoints! {
    /// A context.
    rcl_init(context: Handle => Pointer);
    /// A node.
    rcl_node_init(node: Handle => Pointer, rmw: Handle => Pointer, name: &CStr => Text, namespace: &CStr => Text);
    /// A publisher in the middleware.
    rmw_publisher_init(rmw_publisher: Handle => Pointer, gid: &Gid => *const u8);
    /// A publisher.
    rcl_publisher_init(publisher: Handle => Pointer, node: Handle => Pointer, rmw_publisher: Handle => Pointer, topic: &CStr => Text, depth: usize => usize);
    /// A subscription in the middleware.
    rmw_subscription_init(rmw_subscription: Handle => Pointer, gid: &Gid => *const u8);
    /// A subscription.
    rcl_subscription_init(subscription: Handle => Pointer, node: Handle => Pointer, rmw_subscription: Handle => Pointer, topic: &CStr => Text, depth: usize => usize);
    /// Its C++ object.
    rclcpp_subscription_init(subscription: Handle => Pointer, object: Handle => Pointer);
    /// Its callback.
    rclcpp_subscription_callback_added(object: Handle => Pointer, callback: Handle => Pointer);
    /// A timer.
    rcl_timer_init(timer: Handle => Pointer, period_ns: i64 => i64);
    /// Its callback.
    rclcpp_timer_callback_added(timer: Handle => Pointer, callback: Handle => Pointer);
    /// Its node.
    rclcpp_timer_link_node(timer: Handle => Pointer, node: Handle => Pointer);
    /// A callback's function.
    rclcpp_callback_register(callback: Handle => Pointer, symbol: &CStr => Text);
    /// Publication, first step.
    rclcpp_publish(publisher: Handle => Pointer, message: Handle => Pointer);
    /// Second step.
    rcl_publish(publisher: Handle => Pointer, message: Handle => Pointer);
    /// Third step.
    rmw_publish(rmw_publisher: Handle => Pointer, message: Handle => Pointer, source_ns: i64 => i64);
    /// Take, first step.
    rmw_take(rmw_subscription: Handle => Pointer, message: Handle => Pointer, source_ns: i64 => i64, taken: bool => bool);
    /// Second step.
    rcl_take(message: Handle => Pointer);
    /// Third step.
    rclcpp_take(message: Handle => Pointer);
    /// A callback begins.
    callback_start(callback: Handle => Pointer, intra_process: bool => bool);
    /// A callback ends.
    callback_end(callback: Handle => Pointer);
    /// The executor has nothing ready.
    rclcpp_executor_wait_for_work(timeout_ns: i64 => i64);
    /// The executor looks for what is ready.
    rclcpp_executor_get_next_ready();
    /// The executor runs a timer or subscription.
    rclcpp_executor_execute(handle: Handle => Pointer);
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(Table::look_up)
}

/// How many of the functions this process found; 0: nobody will see its events.
#[must_use]
pub fn found() -> usize {
    table().found()
}

fn symbol(name_with_nul: &str) -> Option<Pointer> {
    let name = CStr::from_bytes_with_nul(name_with_nul.as_bytes()).ok()?;
    // SAFETY: dlsym with a terminated name only reads.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const())
}
