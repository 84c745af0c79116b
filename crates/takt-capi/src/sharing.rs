//! Exchanges and locks of `takt.h`.

use std::ffi::{c_int, c_void};

use takt_sdk::exchange::{Reader, Writer};
use takt_sdk::{RawMutex, exchange};

use crate::{ARGUMENT, made, number, outcome};

/// The largest value.
const MAX_BYTES: usize = 16 << 20;

/// Bytes of a value, aligned as malloc's are.
type Value = Box<[u128]>;

/// `takt_exchange` of `takt.h`. Each side is used by one thread, through pointers of its own.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct takt_exchange {
    writer: Writer<Value>,
    reader: Reader<Value>,
    bytes: usize,
}

/// `takt_exchange_create` of `takt.h`.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_exchange_create(bytes: usize, error: *mut c_int) -> *mut takt_exchange {
    let make = || {
        if !(1..=MAX_BYTES).contains(&bytes) {
            return Err(ARGUMENT);
        }
        let (writer, reader) = exchange(|| vec![0u128; bytes.div_ceil(16)].into_boxed_slice());
        Ok(takt_exchange { writer, reader, bytes })
    };
    // SAFETY: the caller says so.
    unsafe { made(error, make) }
}

/// `takt_exchange_destroy` of `takt.h`.
///
/// # Safety
/// `pointer` is null, or an exchange that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_exchange_destroy(pointer: *mut takt_exchange) {
    if !pointer.is_null() {
        // SAFETY: it was made by `made`, and the caller gives it back.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// `takt_exchange_bytes` of `takt.h`.
///
/// # Safety
/// `pointer` is null, or an exchange.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_exchange_bytes(pointer: *const takt_exchange) -> usize {
    if pointer.is_null() {
        return 0;
    }
    // SAFETY: it never changes; the sides are not touched.
    unsafe { (*pointer).bytes }
}

/// `takt_exchange_buffer` of `takt.h`.
///
/// # Safety
/// `pointer` is null, or an exchange whose writing thread this is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_exchange_buffer(pointer: *mut takt_exchange) -> *mut c_void {
    if pointer.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the writing side is this thread's alone; the other one is not touched.
    let writer = unsafe { &mut (*pointer).writer };
    writer.buffer().as_mut_ptr().cast()
}

/// `takt_exchange_publish` of `takt.h`.
///
/// # Safety
/// As for [`takt_exchange_buffer`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_exchange_publish(pointer: *mut takt_exchange) -> c_int {
    if pointer.is_null() {
        return ARGUMENT;
    }
    // SAFETY: the writing side is this thread's alone; the other one is not touched.
    unsafe { &mut (*pointer).writer }.publish();
    0
}

/// `takt_exchange_write` of `takt.h`.
///
/// # Safety
/// As for [`takt_exchange_buffer`]; `value` is null, or has as many bytes as the exchange's values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_exchange_write(pointer: *mut takt_exchange, value: *const c_void) -> c_int {
    // SAFETY: as for the buffer.
    let buffer = unsafe { takt_exchange_buffer(pointer) };
    if buffer.is_null() || value.is_null() {
        return ARGUMENT;
    }
    // SAFETY: both have so many bytes, and the buffer is the exchange's own.
    unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), buffer.cast::<u8>(), (*pointer).bytes) };
    // SAFETY: as for the buffer.
    unsafe { takt_exchange_publish(pointer) }
}

/// `takt_exchange_read` of `takt.h`.
///
/// # Safety
/// `pointer` is null, or an exchange whose reading thread this is; `sequence` is null or may be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_exchange_read(
    pointer: *mut takt_exchange,
    sequence: *mut u64,
) -> *const c_void {
    if pointer.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the reading side is this thread's alone; the other one is not touched.
    let (value, number) = unsafe { &mut (*pointer).reader }.read();
    // SAFETY: the caller says so.
    if let Some(sequence) = unsafe { sequence.as_mut() } {
        *sequence = number;
    }
    value.as_ptr().cast()
}

/// `takt_mutex` of `takt.h`.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type takt_mutex = RawMutex;

/// `takt_mutex_create` of `takt.h`.
///
/// # Safety
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_mutex_create(error: *mut c_int) -> *mut takt_mutex {
    // SAFETY: the caller says so.
    unsafe { made(error, || RawMutex::new().map_err(|error| number(&error))) }
}

/// `takt_mutex_destroy` of `takt.h`.
///
/// # Safety
/// `mutex` is null, or one that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_mutex_destroy(mutex: *mut takt_mutex) {
    if !mutex.is_null() {
        // SAFETY: it was made by `made`, and the caller gives it back.
        drop(unsafe { Box::from_raw(mutex) });
    }
}

/// # Safety
/// `mutex` is null, or a mutex.
unsafe fn with(mutex: *mut takt_mutex, run: impl FnOnce(&RawMutex) -> Result<(), takt_sdk::Error>) -> c_int {
    // SAFETY: the caller says so.
    match unsafe { mutex.as_ref() } {
        Some(mutex) => outcome(|| run(mutex)),
        None => ARGUMENT,
    }
}

/// `takt_mutex_lock` of `takt.h`.
///
/// # Safety
/// `mutex` is null, or a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_mutex_lock(mutex: *mut takt_mutex) -> c_int {
    // SAFETY: the caller says so.
    unsafe { with(mutex, RawMutex::lock) }
}

/// `takt_mutex_try_lock` of `takt.h`.
///
/// # Safety
/// `mutex` is null, or a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_mutex_try_lock(mutex: *mut takt_mutex) -> c_int {
    // SAFETY: the caller says so.
    unsafe { with(mutex, RawMutex::try_lock) }
}

/// `takt_mutex_unlock` of `takt.h`.
///
/// # Safety
/// `mutex` is null, or a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_mutex_unlock(mutex: *mut takt_mutex) -> c_int {
    // SAFETY: the caller says so.
    unsafe { with(mutex, RawMutex::unlock) }
}
