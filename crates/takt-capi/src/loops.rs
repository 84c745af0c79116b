//! Loops of `takt.h`.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use takt_sdk::{Error, Loop};

use crate::{ARGUMENT, INTERNAL, guarded, made, number, outcome, text};

/// `takt_loop` of `takt.h`.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type takt_loop = Loop;

/// Calls something with a loop, or says that there is none.
///
/// # Safety
/// `pointer` is null, or a loop that is open, which no other thread uses.
unsafe fn with(pointer: *mut takt_loop, run: impl FnOnce(&mut Loop) -> Result<(), Error>) -> c_int {
    // SAFETY: the caller says so.
    match unsafe { pointer.as_mut() } {
        Some(opened) => outcome(|| run(opened)),
        None => ARGUMENT,
    }
}

/// `takt_loop_open` of `takt.h`.
///
/// # Safety
/// `name` is null or a C string; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_open(
    name: *const c_char,
    period_ns: u64,
    deadline_ns: u64,
    error: *mut c_int,
) -> *mut takt_loop {
    // SAFETY: the caller says so.
    unsafe {
        made(error, || {
            let builder = Loop::periodic(text(name)?, Duration::from_nanos(period_ns));
            let opened = builder.deadline(Duration::from_nanos(deadline_ns)).open();
            opened.map_err(|error| number(&error))
        })
    }
}

/// `takt_loop_open_driven` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_open_driven(
    name: *const c_char,
    deadline_ns: u64,
    error: *mut c_int,
) -> *mut takt_loop {
    // SAFETY: the caller says so.
    unsafe {
        made(error, || {
            let builder = Loop::driven(text(name)?);
            let opened = builder.deadline(Duration::from_nanos(deadline_ns)).open();
            opened.map_err(|error| number(&error))
        })
    }
}

/// `takt_loop_close` of `takt.h`.
///
/// # Safety
/// `opened` is null, or a loop that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_close(opened: *mut takt_loop) {
    if !opened.is_null() {
        // SAFETY: it was made by `made`, and the caller gives it back.
        guarded((), || drop(unsafe { Box::from_raw(opened) }));
    }
}

/// `takt_loop_spin_margin` of `takt.h`.
///
/// # Safety
/// `opened` is null, or a loop that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_spin_margin(opened: *mut takt_loop, ns: u64) -> c_int {
    let set = |opened: &mut Loop| match opened.period() {
        Some(_) => {
            opened.set_spin_margin(Duration::from_nanos(ns));
            Ok(())
        }
        None => Err(Error::WrongKind { is_driven: true }),
    };
    // SAFETY: the caller says so.
    unsafe { with(opened, set) }
}

/// A number of releases, or an error.
fn counted(run: impl FnOnce() -> Result<u64, Error>) -> i64 {
    guarded(INTERNAL.into(), || match run() {
        Ok(skipped) => i64::try_from(skipped).unwrap_or(i64::MAX),
        Err(error) => number(&error).into(),
    })
}

/// `takt_loop_wait` of `takt.h`.
///
/// # Safety
/// `opened` is null, or a loop that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_wait(opened: *mut takt_loop) -> i64 {
    // SAFETY: the caller says so.
    match unsafe { opened.as_mut() } {
        Some(opened) => counted(|| opened.wait().map(|release| release.skipped)),
        None => ARGUMENT.into(),
    }
}

/// `takt_loop_next` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`]; `release_ns` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_next(opened: *mut takt_loop, release_ns: *mut u64) -> i64 {
    // SAFETY: the caller says so.
    let (Some(opened), Some(release_ns)) = (unsafe { opened.as_mut() }, unsafe { release_ns.as_mut() })
    else {
        return ARGUMENT.into();
    };
    counted(|| {
        *release_ns = opened.next_release()?;
        Ok(opened.passed_over())
    })
}

/// `takt_loop_begin` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_begin(opened: *mut takt_loop) -> c_int {
    // SAFETY: the caller says so.
    unsafe { with(opened, |opened| opened.begin().map(drop)) }
}

/// `takt_loop_release` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_release(opened: *mut takt_loop, at_ns: u64) -> c_int {
    // SAFETY: the caller says so.
    unsafe { with(opened, |opened| opened.release(at_ns).map(drop)) }
}

/// `takt_loop_input` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_input(opened: *mut takt_loop, sequence: u64) -> c_int {
    // SAFETY: the caller says so.
    unsafe { with(opened, |opened| opened.input(sequence)) }
}

/// `takt_loop_stage` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`]; `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_stage(opened: *mut takt_loop, name: *const c_char) -> c_int {
    // SAFETY: the caller says so.
    match unsafe { text(name) } {
        // SAFETY: the caller says so.
        Ok(name) => unsafe { with(opened, |opened| opened.stage(name)) },
        Err(code) => code,
    }
}

/// `takt_loop_value` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_value(opened: *mut takt_loop, value: f64) -> c_int {
    // SAFETY: the caller says so.
    unsafe { with(opened, |opened| opened.value(value)) }
}

/// `takt_loop_end` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_end(opened: *mut takt_loop) -> c_int {
    // SAFETY: the caller says so.
    unsafe { with(opened, Loop::end) }
}

/// `takt_loop_release_ns` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_release_ns(opened: *const takt_loop) -> u64 {
    // SAFETY: the caller says so.
    unsafe { opened.as_ref() }.and_then(Loop::current).map_or(0, |release| release.release_ns)
}

/// `takt_loop_begin_ns` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_begin_ns(opened: *const takt_loop) -> u64 {
    // SAFETY: the caller says so.
    unsafe { opened.as_ref() }.and_then(Loop::current).map_or(0, |release| release.begin_ns)
}

/// `takt_loop_skipped` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_skipped(opened: *const takt_loop) -> u64 {
    // SAFETY: the caller says so.
    unsafe { opened.as_ref() }.map_or(0, Loop::skipped)
}

/// `takt_loop_attached` of `takt.h`.
///
/// # Safety
/// As for [`takt_loop_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_loop_attached(opened: *const takt_loop) -> c_int {
    // SAFETY: the caller says so.
    unsafe { opened.as_ref() }.is_some_and(Loop::is_attached).into()
}

/// `takt_now_ns` of `takt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn takt_now_ns() -> u64 {
    takt_sdk::now_ns()
}
