//! The preload library: stands before ROS 2's `libtracetools.so`, writes what is reported to it
//! into the session's rings, and hands every call on, so that LTTng goes on working. Functions that
//! the event model has no use for are not interposed at all.

#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use ring::{FLAG_SET, code, text_words};

mod c;
mod calls;
mod off_cpu;
mod process;
#[allow(dead_code)]
#[path = "../src/preload/ring.rs"]
mod ring;
mod session;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
}

const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;

type Pointer = *const c_void;
type Text = *const c_char;
type Gid = *const u8;
/// A C `bool`, whatever its byte.
type Flag = u8;

/// The function of the next library: null while not looked up, `ABSENT` where it has none.
type Next = AtomicPtr<c_void>;
const ABSENT: *mut c_void = std::ptr::without_provenance_mut(1);

#[inline]
fn next(slot: &Next, name: &CStr) -> Option<*mut c_void> {
    let found = slot.load(Ordering::Relaxed);
    let found = if found.is_null() { look_up(slot, name) } else { found };
    (found != ABSENT).then_some(found)
}

/// The libraries that come after this one, and else a `libtracetools.so` that was loaded for one
/// module alone (as Python does).
#[cold]
#[inline(never)]
fn look_up(slot: &Next, name: &CStr) -> *mut c_void {
    // SAFETY: names end in zero; nothing is loaded, only looked up.
    let found = unsafe {
        match dlsym(RTLD_NEXT, name.as_ptr()) {
            found if !found.is_null() => found,
            _ => match dlopen(c"libtracetools.so".as_ptr(), RTLD_LAZY | RTLD_NOLOAD) {
                library if !library.is_null() => dlsym(library, name.as_ptr()),
                _ => std::ptr::null_mut(),
            },
        }
    };
    let found = if found.is_null() { ABSENT } else { found };
    slot.store(found, Ordering::Relaxed);
    found
}

macro_rules! c_name {
    ($($part:expr),*) => {
        match CStr::from_bytes_with_nul(concat!($($part,)* "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

/// For each function the three that Jazzy exports (`X`, `do_X`, `enabled_X`), and one that looks
/// all of them up.
macro_rules! probes {
    ($($name:ident($($argument:ident: $of:ty),*) $order:ident $record:block)*) => {
        $(
            mod $name {
                use super::*;

                static PLAIN: Next = Next::new(std::ptr::null_mut());
                static UNASKED: Next = Next::new(std::ptr::null_mut());
                static ENABLED: Next = Next::new(std::ptr::null_mut());
                const PLAIN_NAME: &CStr = c_name!("ros_trace_", stringify!($name));
                const UNASKED_NAME: &CStr = c_name!("ros_trace_do_", stringify!($name));
                const ENABLED_NAME: &CStr = c_name!("ros_trace_enabled_", stringify!($name));

                pub(super) fn resolve() {
                    look_up(&PLAIN, PLAIN_NAME);
                    look_up(&UNASKED, UNASKED_NAME);
                    look_up(&ENABLED, ENABLED_NAME);
                }

                /// Whether whoever comes next wants to be informed.
                fn wanted() -> bool {
                    next(&ENABLED, ENABLED_NAME).is_none_or(|function| {
                        // SAFETY: of this signature in every release that has it.
                        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> Flag>(function)() != 0 }
                    })
                }

                #[inline]
                fn hand_on(slot: &Next, name: &CStr, $($argument: $of),*) {
                    if let Some(function) = next(slot, name) {
                        // SAFETY: of this signature in every release that has it; `rmw_publish`
                        // before Jazzy looks at the first argument alone.
                        unsafe {
                            std::mem::transmute::<*mut c_void, extern "C" fn($($of),*)>(function)($($argument),*);
                        }
                    }
                }

                #[inline]
                fn record($($argument: $of),*) $record

                #[unsafe(export_name = concat!("ros_trace_", stringify!($name)))]
                extern "C" fn plain($($argument: $of),*) {
                    probes!(@ $order record($($argument),*), hand_on(&PLAIN, PLAIN_NAME, $($argument),*))
                }

                #[unsafe(export_name = concat!("ros_trace_do_", stringify!($name)))]
                extern "C" fn unasked($($argument: $of),*) {
                    record($($argument),*);
                    if wanted() {
                        hand_on(&UNASKED, UNASKED_NAME, $($argument),*);
                    }
                }

                #[unsafe(export_name = concat!("ros_trace_enabled_", stringify!($name)))]
                extern "C" fn enabled() -> bool {
                    process::enabled() || (next(&ENABLED, ENABLED_NAME).is_some() && wanted())
                }
            }
        )*

        fn resolve_all() {
            $($name::resolve();)*
        }
    };
    (@ first $record:expr, $on:expr) => {{ $record; $on; }};
    // The other library's cost stays out of the time of the callback that starts.
    (@ last $record:expr, $on:expr) => {{ $on; $record; }};
}

/// Records words alone.
macro_rules! words {
    ($code:ident, $($word:expr),*) => {{
        let words = [$($word as u64),*];
        process::event(code::$code, words.len(), |record| words.iter().for_each(|&word| record.word(word)));
    }};
}

/// Records words and then texts.
macro_rules! with_text {
    ($code:ident, [$($word:expr),*], $($text:expr),*) => {{
        let words = [$($word as u64),*];
        // SAFETY: the caller's C strings, as `tracetools` reads them itself.
        let texts = unsafe { [$(c::text($text)),*] };
        let all = words.len() + texts.iter().map(|text| text_words(text)).sum::<usize>();
        process::event(code::$code, all, |record| {
            words.iter().for_each(|&word| record.word(word));
            texts.iter().for_each(|text| record.text(text));
        });
    }};
}

/// Records words and the event's own flag.
macro_rules! flagged {
    ($code:ident, $flag:expr, $($word:expr),*) => {{
        let words = [$($word as u64),*];
        process::event(code::$code, words.len(), |record| {
            if $flag != 0 {
                record.flag(FLAG_SET);
            }
            words.iter().for_each(|&word| record.word(word));
        });
    }};
}

probes! {
    rcl_init(context: Pointer) first { words!(INIT, context) }
    rcl_node_init(node: Pointer, _rmw: Pointer, name: Text, namespace: Text) first {
        calls::report_python();
        with_text!(NODE, [node], name, namespace)
    }
    rcl_publisher_init(publisher: Pointer, node: Pointer, rmw: Pointer, topic: Text, depth: usize) first {
        with_text!(PUBLISHER, [publisher, node, rmw, depth], topic)
    }
    rcl_subscription_init(subscription: Pointer, node: Pointer, rmw: Pointer, topic: Text, depth: usize) first {
        with_text!(SUBSCRIPTION, [subscription, node, rmw, depth], topic)
    }
    rclcpp_subscription_init(subscription: Pointer, object: Pointer) first {
        words!(SUBSCRIPTION_OBJECT, subscription, object)
    }
    rclcpp_subscription_callback_added(object: Pointer, callback: Pointer) first {
        words!(SUBSCRIPTION_CALLBACK, object, callback)
    }
    rcl_service_init(service: Pointer, node: Pointer, rmw: Pointer, name: Text) first {
        with_text!(SERVICE, [service, node, rmw], name)
    }
    rclcpp_service_callback_added(service: Pointer, callback: Pointer) first {
        words!(SERVICE_CALLBACK, service, callback)
    }
    rcl_client_init(client: Pointer, node: Pointer, rmw: Pointer, name: Text) first {
        with_text!(CLIENT, [client, node, rmw], name)
    }
    rcl_timer_init(timer: Pointer, period_ns: i64) first { words!(TIMER, timer, period_ns) }
    rclcpp_timer_callback_added(timer: Pointer, callback: Pointer) first {
        words!(TIMER_CALLBACK, timer, callback)
    }
    rclcpp_timer_link_node(timer: Pointer, node: Pointer) first { words!(TIMER_NODE, timer, node) }
    rclcpp_callback_register(callback: Pointer, symbol: Text) first {
        calls::look_for_filters(symbol);
        with_text!(SYMBOL, [callback], symbol)
    }
    callback_start(callback: Pointer, intra_process: Flag) last {
        process::set_ran(process::ran::REPORTED);
        process::callback_start(callback as u64, intra_process != 0)
    }
    callback_end(callback: Pointer) first { process::callback_end(callback as u64) }
    rclcpp_publish(_publisher: Pointer, message: Pointer) first { words!(RCLCPP_PUBLISH, message) }
    rcl_publish(publisher: Pointer, message: Pointer) first {
        process::keep_message(message as u64);
        calls::head(message);
        words!(RCL_PUBLISH, publisher, message)
    }
    rmw_publish(first: Pointer, second: Pointer, third: i64) first {
        match is_old(first, second) {
            true => words!(RMW_PUBLISH_OLD, first),
            false => words!(RMW_PUBLISH, first, second, third),
        }
    }
    rclcpp_intra_publish(publisher: Pointer, message: Pointer) first {
        words!(INTRA_PUBLISH, publisher, message)
    }
    rmw_take(rmw_subscription: Pointer, message: Pointer, source_ns: i64, taken: Flag) first {
        if taken != 0 {
            calls::head(message);
            calls::received(source_ns);
        }
        flagged!(RMW_TAKE, taken, rmw_subscription, message, source_ns)
    }
    // Where the calls themselves go through `calls`, that reports more.
    rmw_send_request(rmw_client: Pointer, _request: Pointer, sequence: i64) first {
        if !process::inside() {
            words!(SEND_REQUEST, rmw_client, sequence, 0)
        }
    }
    rmw_take_request(rmw_service: Pointer, _request: Pointer, gid: Gid, sequence: i64, taken: Flag) first {
        if taken != 0 && !process::inside() {
            words!(TAKE_REQUEST, rmw_service, sequence, calls::identity(gid))
        }
    }
    rmw_send_response(rmw_service: Pointer, _response: Pointer, gid: Gid, sequence: i64, _source_ns: i64) first {
        if !process::inside() {
            words!(SEND_RESPONSE, rmw_service, sequence, calls::identity(gid))
        }
    }
    rmw_take_response(rmw_client: Pointer, _response: Pointer, sequence: i64, _source_ns: i64, taken: Flag) first {
        if taken != 0 && !process::inside() {
            words!(TAKE_RESPONSE, rmw_client, sequence, 0)
        }
    }
    rclcpp_executor_wait_for_work(timeout_ns: i64) first {
        process::selected();
        words!(WAIT, timeout_ns)
    }
    rclcpp_executor_get_next_ready() first { process::next_ready() }
    rclcpp_executor_execute(handle: Pointer) first {
        process::selected();
        words!(EXECUTE, handle)
    }
    rclcpp_ipb_to_subscription(buffer: Pointer, subscription: Pointer) first {
        words!(BUFFER_OF_SUBSCRIPTION, buffer, subscription)
    }
    rclcpp_buffer_to_ipb(inner: Pointer, buffer: Pointer) first { words!(BUFFER_INSIDE, inner, buffer) }
    rcl_lifecycle_transition(machine: Pointer, from: Text, to: Text) first {
        with_text!(TRANSITION, [machine], from, to)
    }
}

/// Whether this `rmw_publish` is that of before Jazzy, whose one argument is the message; later its
/// first is the publisher, its second the message. Which of them `rcl_publish` has just named shows
/// it; no symbol does (Iron has Jazzy's symbols, and Humble's arguments).
fn is_old(first: Pointer, second: Pointer) -> bool {
    let Some(header) = session::header() else { return false };
    match header.rmw_publish.load(Ordering::Relaxed) {
        0 => {}
        arguments => return arguments == 1,
    }
    let message = process::last_message();
    let arguments = match message != 0 {
        true if first as u64 == message => 1,
        true if second as u64 == message => 3,
        // Without `rcl` above it: Humble has no `enabled` functions; anything else is taken for
        // newer.
        _ => return next(&HAS_ENABLED, c"ros_trace_enabled_rmw_publish").is_none(),
    };
    header.rmw_publish.store(arguments, Ordering::Relaxed);
    arguments == 1
}

static HAS_ENABLED: Next = Next::new(std::ptr::null_mut());

extern "C" fn load() {
    session::load();
    // Where tracetools is linked, as it is into C++ nodes, nothing remains to be looked up in a
    // real-time thread. SAFETY: the name ends in zero.
    if !unsafe { dlsym(RTLD_NEXT, c"ros_trace_callback_start".as_ptr()) }.is_null() {
        resolve_all();
        look_up(&HAS_ENABLED, c"ros_trace_enabled_rmw_publish");
    }
}

extern "C" fn unload() {
    session::unload();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
