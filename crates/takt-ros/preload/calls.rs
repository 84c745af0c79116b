//! Calls of `rmw` and `rclcpp` that no tracepoint shows (before Kilted, or at all): steps of
//! service calls, which executor a thread runs, where something that it ran without a callback's
//! events has ended, and what is in which callback group.
//!
//! Each function here stands before the library's own, which it calls with the same arguments; a
//! library that binds its calls to itself is not disturbed, only not seen. Functions are chosen to
//! take registers and to return nothing or an `int`, so that they can be handed on without knowing
//! C++ types. Exceptions pass through: no frame here has anything to clean up.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::ring::{FLAG_SET, code, text_words};
use crate::{ABSENT, Gid, Next, Pointer, RTLD_LAZY, RTLD_NEXT, RTLD_NOLOAD, c, dlopen, dlsym, process};

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// By its number, as the C library does it: looking the library's function up could allocate, and
/// allocators yield.
const SYS_SCHED_YIELD: c_long = if cfg!(target_arch = "x86_64") { 24 } else { 124 };
const _: () = assert!(
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")),
    "the number of sched_yield is known for x86-64, and for architectures with the generic table of system calls"
);

/// Not 0 (`RMW_RET_OK`): `RMW_RET_ERROR`.
const ERROR: c_int = 1;

/// `rmw_request_id_t`.
#[repr(C)]
struct RequestId {
    client: [u8; 16],
    sequence: i64,
}

/// `rmw_service_info_t`.
#[repr(C)]
struct ServiceInfo {
    source_ns: i64,
    received_ns: i64,
    request: RequestId,
}

/// The head of `struct link_map`.
#[repr(C)]
struct Loaded {
    address: usize,
    name: *const c_char,
    dynamic: *const c_void,
    next: *mut Loaded,
}

/// A client's identity as the middleware gives it with requests: FNV-1a of the twelve bytes of its
/// process in the upper half, of all sixteen in the lower, which is not 0; 0 where there is none.
pub fn identity(gid: Gid) -> u64 {
    if gid.is_null() {
        return 0;
    }
    // SAFETY: 16 bytes at least in every release.
    let bytes = unsafe { std::slice::from_raw_parts(gid, 16) };
    whole(bytes)
}

fn whole(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) {
        return 0;
    }
    process_part(bytes) | u64::from(fold(bytes) | 1)
}

fn process_part(bytes: &[u8]) -> u64 {
    u64::from(fold(bytes.get(..12).unwrap_or(bytes))) << 32
}

fn fold(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The library's own function. Somebody calls it by this name, so it is somewhere: behind this
/// library, or in one that was loaded for one module alone.
#[inline]
fn real(slot: &Next, name: &CStr) -> Option<*mut c_void> {
    let found = slot.load(Ordering::Relaxed);
    let found = if found.is_null() { find(slot, name) } else { found };
    (found != ABSENT).then_some(found)
}

#[cold]
#[inline(never)]
fn find(slot: &Next, name: &CStr) -> *mut c_void {
    // SAFETY: names end in zero.
    let mut found = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        loaded(|file| {
            // SAFETY: the linker's string; nothing is loaded, only looked up.
            unsafe {
                let library = dlopen(file.as_ptr(), RTLD_LAZY | RTLD_NOLOAD);
                if !library.is_null() {
                    found = dlsym(library, name.as_ptr());
                }
            }
            !found.is_null()
        });
    }
    let found = if found.is_null() { ABSENT } else { found };
    slot.store(found, Ordering::Relaxed);
    found
}

/// Shows the names of all libraries that are loaded, but the probe's own, until one is wanted:
/// whether one was.
fn loaded(mut wanted: impl FnMut(&CStr) -> bool) -> bool {
    // SAFETY: the handle of the program itself is its entry in the linker's list of what is loaded.
    unsafe {
        let mut entry = dlopen(std::ptr::null(), RTLD_LAZY).cast::<Loaded>();
        while !entry.is_null() {
            let file = (*entry).name;
            if !file.is_null() && *file != 0 && !is_this(file) && wanted(CStr::from_ptr(file)) {
                return true;
            }
            entry = (*entry).next;
        }
    }
    false
}

/// Reports that the process's nodes are Python's, if they are: `rclpy` is loaded, and `rclcpp` is
/// not.
#[cold]
#[inline(never)]
pub fn report_python() {
    let is = |what: &'static [u8]| {
        loaded(|file| file.to_bytes().rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(what)))
    };
    if process::enabled() && is(b"_rclpy") && !is(b"librclcpp.so") {
        process::event(code::PYTHON, 0, |_| ());
    }
}

/// Whether the process has message filters, which join messages by what is in them.
static FILTERS: AtomicBool = AtomicBool::new(false);

/// Looks whether a callback's symbol is that of a message filter's subscription.
#[cold]
#[inline(never)]
pub fn look_for_filters(symbol: *const c_char) {
    if !symbol.is_null() {
        // SAFETY: the caller's C string, as `tracetools` reads it itself.
        let symbol = unsafe { CStr::from_ptr(symbol) };
        if symbol.to_bytes().starts_with(b"message_filters::") {
            FILTERS.store(true, Ordering::Relaxed);
        }
    }
}

/// Reports how the message begins that is taken or published next, where messages are joined by
/// that.
#[inline]
pub fn head(message: Pointer) {
    if FILTERS.load(Ordering::Relaxed) && !message.is_null() && message.addr() % 8 < 1 {
        // SAFETY: a message, whose memory is aligned and comes in words of eight bytes: objects of
        // C++ that are smaller lie in an allocation or a frame that goes on behind them. Whatever
        // is read is compared, and nothing else.
        let head = unsafe { message.cast::<u64>().read_volatile() };
        process::event(code::HEAD, 1, |record| record.word(head));
    }
}

/// The head of `rmw_message_info_t` (since Foxy).
#[repr(C)]
struct MessageInfo {
    source_ns: i64,
    received_ns: i64,
}

/// Reports when the message that is taken next was received, where the middleware has said it by
/// now: `source_ns` is what it says to `tracetools`.
#[inline]
pub fn received(source_ns: i64) {
    let info = process::info().cast::<MessageInfo>();
    if info.is_null() {
        return;
    }
    // SAFETY: what `rcl` handed to the middleware, which is under way and fills it in before it
    // reports the take.
    let (source, received) = unsafe { ((*info).source_ns, (*info).received_ns) };
    report_received(source, received, source == source_ns);
}

#[inline]
fn report_received(source_ns: i64, received_ns: i64, filled_in: bool) {
    // A middleware that knows none of them leaves 0.
    if filled_in && source_ns > 0 && received_ns > 0 {
        let after_ns = received_ns.wrapping_sub(source_ns);
        process::event(code::RECEIVED, 1, |record| record.word(after_ns as u64));
    }
}

/// Runs a take, whose tracepoint comes from within.
#[inline]
fn takes(info: Pointer, call: impl FnOnce() -> c_int) -> c_int {
    process::set_info(info.cast());
    let result = call();
    process::set_info(std::ptr::null());
    result
}

/// Whether this is the probe's own file.
fn is_this(file: *const c_char) -> bool {
    // SAFETY: the linker's string.
    unsafe { CStr::from_ptr(file) }.to_bytes().ends_with(b"libtakt_probe.so")
}

/// One hooked function: `hook!(name "symbol" (arguments) -> result or else, |call| body)`, where
/// `call()` runs the library's own.
macro_rules! hook {
    ($name:ident, $symbol:literal, ($($argument:ident: $of:ty),*) $(-> $result:ty)?, $otherwise:expr, |$call:ident| $body:block) => {
        #[unsafe(export_name = $symbol)]
        extern "C-unwind" fn $name($($argument: $of),*) $(-> $result)? {
            static REAL: Next = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            let Some(function) = real(&REAL, NAME) else {
                c::complain(concat!("cannot find ", $symbol).as_bytes());
                return $otherwise;
            };
            // SAFETY: of this signature in every release that has the symbol.
            let $call = || unsafe {
                std::mem::transmute::<*mut c_void, extern "C-unwind" fn($($of),*) $(-> $result)?>(function)($($argument),*)
            };
            $body
        }
    };
}

fn step(at_ns: Option<u64>, code: u8, handle: Pointer, sequence: i64, client: u64) {
    process::event_at(at_ns, code, 3, |record| {
        record.word(handle as u64);
        record.word(sequence as u64);
        record.word(client);
    });
}

/// Runs a step of a service call, of which tracepoints need not report.
fn inside<R>(call: impl FnOnce() -> R) -> R {
    process::set_inside(true);
    let result = call();
    process::set_inside(false);
    result
}

hook!(
    take_with_info, "rmw_take_with_info",
    (subscription: Pointer, message: Pointer, taken: Pointer, info: Pointer, allocation: Pointer) -> c_int, ERROR,
    |call| { takes(info, call) }
);
hook!(
    take_serialized, "rmw_take_serialized_message_with_info",
    (subscription: Pointer, message: Pointer, taken: Pointer, info: Pointer, allocation: Pointer) -> c_int, ERROR,
    |call| { takes(info, call) }
);
hook!(
    take_loaned, "rmw_take_loaned_message_with_info",
    (subscription: Pointer, message: Pointer, taken: Pointer, info: Pointer, allocation: Pointer) -> c_int, ERROR,
    |call| { takes(info, call) }
);

hook!(send_request, "rmw_send_request", (client: Pointer, request: Pointer, sequence: *mut i64) -> c_int, ERROR, |call| {
    // Stamped before: the service may be quicker than the return.
    let at_ns = process::now();
    let result = inside(call);
    if result == 0 && !sequence.is_null() {
        // SAFETY: the middleware has just set it.
        step(Some(at_ns), code::SEND_REQUEST, client, unsafe { *sequence }, own_process(client));
    }
    result
});

hook!(
    take_request, "rmw_take_request",
    (service: Pointer, info: *const ServiceInfo, request: Pointer, taken: *mut u8) -> c_int, ERROR,
    |call| {
        let result = inside(call);
        // SAFETY: the middleware has set both.
        if result == 0 && !info.is_null() && !taken.is_null() && unsafe { *taken } != 0 {
            // SAFETY: as above.
            let info = unsafe { &*info };
            report_received(info.source_ns, info.received_ns, true);
            let id = &info.request;
            step(None, code::TAKE_REQUEST, service, id.sequence, whole(&id.client));
        }
        result
    }
);

hook!(send_response, "rmw_send_response", (service: Pointer, id: *const RequestId, response: Pointer) -> c_int, ERROR, |call| {
    let at_ns = process::now();
    // SAFETY: the caller's; the middleware reads it as well.
    let sent = unsafe { id.as_ref() }.map(|id| (id.sequence, whole(&id.client)));
    let result = inside(call);
    if let Some((sequence, client)) = sent.filter(|_| result == 0) {
        step(Some(at_ns), code::SEND_RESPONSE, service, sequence, client);
    }
    result
});

hook!(
    take_response, "rmw_take_response",
    (client: Pointer, info: *const ServiceInfo, response: Pointer, taken: *mut u8) -> c_int, ERROR,
    |call| {
        let result = inside(call);
        // SAFETY: the middleware has set both.
        if result == 0 && !info.is_null() && !taken.is_null() && unsafe { *taken } != 0 {
            // SAFETY: as above.
            let info = unsafe { &*info };
            report_received(info.source_ns, info.received_ns, true);
            let id = &info.request;
            step(None, code::TAKE_RESPONSE, client, id.sequence, own_process(client));
            process::eventless_begins();
        }
        result
    }
);

/// Which process a client is of, as the middleware shows it (Iron on). What services are informed
/// of it differs in the rest.
fn own_process(client: Pointer) -> u64 {
    static REAL: Next = AtomicPtr::new(std::ptr::null_mut());
    let Some(function) = real(&REAL, c"rmw_get_gid_for_client") else { return 0 };
    /// `rmw_gid_t`, with room to spare.
    #[repr(C)]
    struct OffCpu {
        implementation: *const c_char,
        data: [u8; 64],
    }
    let mut reported = OffCpu { implementation: std::ptr::null(), data: [0; 64] };
    // SAFETY: of this signature in every release that has the symbol; its result has room.
    let result = unsafe {
        std::mem::transmute::<*mut c_void, extern "C-unwind" fn(Pointer, *mut OffCpu) -> c_int>(function)(client, &mut reported)
    };
    if result == 0 { process_part(&reported.data) } else { 0 }
}

/// The thread runs `executor`, whose C++ type its run-time type information reports (Itanium ABI:
/// the word before the first virtual function points to it, and its second word to the name).
#[inline]
fn spins(executor: Pointer) {
    if process::new_executor(executor as u64) && process::enabled() {
        report_executor(executor);
    }
}

#[cold]
#[inline(never)]
fn report_executor(executor: Pointer) {
    // SAFETY: a live object of a class with virtual functions; without type information the pointer
    // is null.
    let kind = unsafe {
        let table = *executor.cast::<*const *const *const c_char>();
        let information = table.sub(1).read();
        if information.is_null() { c"" } else { CStr::from_ptr(information.add(1).read()) }
    };
    let kind = kind.to_bytes();
    process::event(code::SPIN, 1 + text_words(kind), |record| {
        record.word(executor as u64);
        record.text(kind);
    });
}

/// Runs what an executor has selected, and reports its end where nothing else has.
#[inline]
fn executes(call: impl FnOnce()) {
    process::execution_begins();
    let before = process::set_ran(process::ran::NOTHING);
    call();
    let reported = process::set_ran(process::ran::REPORTED) == process::ran::REPORTED;
    if !reported || before == process::ran::NOT_RUN {
        process::executed(reported);
    }
}

hook!(
    execute_any, "_ZN6rclcpp8Executor22execute_any_executableERNS_13AnyExecutableE", (this: Pointer, any: Pointer), (),
    |call| {
        spins(this);
        executes(call);
    }
);
hook!(
    execute_event, "_ZN6rclcpp12experimental9executors14EventsExecutor13execute_eventERKNS1_13ExecutorEventE",
    (this: Pointer, event: Pointer), (),
    |call| {
        spins(this);
        executes(call);
    }
);
// What the executor waits in, which threads of a multi-threaded one do that never run anything.
hook!(
    wait_for_work, "_ZN6rclcpp8Executor13wait_for_workENSt6chrono8durationIlSt5ratioILl1ELl1000000000EEEE",
    (this: Pointer, timeout_ns: i64), (),
    |call| {
        spins(this);
        call()
    }
);
// Called by all executors, and by the static one directly.
hook!(
    execute_client, "_ZN6rclcpp8Executor14execute_clientESt10shared_ptrINS_10ClientBaseEE", (client: Pointer), (),
    |call| { executes(call) }
);
hook!(
    execute_service, "_ZN6rclcpp8Executor15execute_serviceESt10shared_ptrINS_11ServiceBaseEE", (service: Pointer), (),
    |call| { executes(call) }
);
hook!(
    static_spin, "_ZN6rclcpp9executors28StaticSingleThreadedExecutor4spinEv", (this: Pointer), (),
    |call| {
        spins(this);
        call()
    }
);
hook!(
    static_spin_some,
    "_ZN6rclcpp9executors28StaticSingleThreadedExecutor14spin_some_implENSt6chrono8durationIlSt5ratioILl1ELl1000000000EEEEb",
    (this: Pointer, most_ns: i64, exhaustive: c_int), (),
    |call| {
        spins(this);
        call()
    }
);
hook!(
    events_spin, "_ZN6rclcpp12experimental9executors14EventsExecutor4spinEv", (this: Pointer), (),
    |call| {
        spins(this);
        call()
    }
);

/// A group and its new member, which is handed over as a `shared_ptr`: the object is its first
/// word.
#[cold]
#[inline(never)]
fn joins(group: Pointer, member: u64, object: Pointer) {
    static TYPE: Next = AtomicPtr::new(std::ptr::null_mut());
    if !process::enabled() {
        return;
    }
    let Some(function) = real(&TYPE, c"_ZNK6rclcpp13CallbackGroup4typeEv") else { return };
    // SAFETY: of this signature in every release: a reference to an `enum class` of which 0 is
    // mutually exclusive, 1 reentrant. The argument is a `shared_ptr` behind a hidden reference, as
    // for all types that are not copied trivially.
    let (kind, object) = unsafe {
        let kind = std::mem::transmute::<*mut c_void, extern "C-unwind" fn(Pointer) -> *const c_int>(function)(group);
        (*kind, *object.cast::<u64>())
    };
    process::event(code::GROUP_MEMBER, 3, |record| {
        if kind == 1 {
            record.flag(FLAG_SET);
        }
        record.word(group as u64);
        record.word(member);
        record.word(object);
    });
}

hook!(
    add_timer, "_ZN6rclcpp13CallbackGroup9add_timerESt10shared_ptrINS_9TimerBaseEE", (group: Pointer, timer: Pointer), (),
    |call| {
        joins(group, 0, timer);
        call()
    }
);
hook!(
    add_subscription, "_ZN6rclcpp13CallbackGroup16add_subscriptionESt10shared_ptrINS_16SubscriptionBaseEE",
    (group: Pointer, subscription: Pointer), (),
    |call| {
        joins(group, 1, subscription);
        call()
    }
);
hook!(
    add_service, "_ZN6rclcpp13CallbackGroup11add_serviceESt10shared_ptrINS_11ServiceBaseEE",
    (group: Pointer, service: Pointer), (),
    |call| {
        joins(group, 2, service);
        call()
    }
);
hook!(
    add_client, "_ZN6rclcpp13CallbackGroup10add_clientESt10shared_ptrINS_10ClientBaseEE",
    (group: Pointer, client: Pointer), (),
    |call| {
        joins(group, 3, client);
        call()
    }
);

// A thread with a reservation that yields gives the rest of its budget away, and the kernel counts
// it as if it had been preempted.
macro_rules! yields {
    ($($name:ident $symbol:literal)*) => {
        $(
            #[unsafe(export_name = $symbol)]
            extern "C" fn $name() -> c_int {
                process::yields();
                // SAFETY: takes nothing.
                unsafe { syscall(SYS_SCHED_YIELD) as c_int }
            }
        )*
    };
}

yields! {
    sched_yield "sched_yield"
    pthread_yield "pthread_yield"
    thrd_yield "thrd_yield"
}
