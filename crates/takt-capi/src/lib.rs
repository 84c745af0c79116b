//! `takt.h`: the library of one's own loop for C. Each function checks its pointers, calls
//! `takt-sdk`, and turns its errors into numbers. No panic crosses it.
//!
//! - `loops`: loops and the clock;
//! - `threads`: settings of the calling thread;
//! - `sharing`: exchanges and locks.

mod loops;
mod sharing;
mod threads;

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use takt_sdk::Error;

/// `TAKT_ABI_VERSION`.
const ABI_VERSION: u32 = 1;

/// `-TAKT_EARGUMENT`.
const ARGUMENT: c_int = -1;
/// `-TAKT_EINTERNAL`.
const INTERNAL: c_int = -13;

/// An error as C sees it.
fn number(error: &Error) -> c_int {
    if let Error::System { errno, .. } | Error::Memory { errno, .. } = *error {
        // SAFETY: the calling thread's own; every C library that Linux has keeps it like this.
        unsafe { *errno_location() = errno };
    }
    -error.code()
}

unsafe extern "C" {
    #[link_name = "__errno_location"]
    fn errno_location() -> *mut c_int;
}

/// Runs what may not unwind into C; `broken` is what a panic becomes.
fn guarded<T>(broken: T, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(broken)
}

/// An outcome as C sees it.
fn outcome(run: impl FnOnce() -> Result<(), Error>) -> c_int {
    guarded(INTERNAL, || run().map_or_else(|error| number(&error), |()| 0))
}

/// Makes something, or says why not.
///
/// # Safety
/// `error` is null or may be written to.
unsafe fn made<T>(error: *mut c_int, make: impl FnOnce() -> Result<T, c_int>) -> *mut T {
    let (made, code) = match guarded(Err(INTERNAL), make) {
        Ok(made) => (Box::into_raw(Box::new(made)), 0),
        Err(code) => (std::ptr::null_mut(), code),
    };
    if !error.is_null() {
        // SAFETY: the caller says so.
        unsafe { *error = code };
    }
    made
}

/// A text of C as one of Rust: `-TAKT_EARGUMENT` for null, `-TAKT_ENAME` for what is no UTF-8.
///
/// # Safety
/// `text` is null, or a C string that outlives the result.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, c_int> {
    if text.is_null() {
        return Err(ARGUMENT);
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| -2)
}

/// `takt_abi_version` of `takt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn takt_abi_version() -> u32 {
    ABI_VERSION
}

/// `takt_strerror` of `takt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn takt_strerror(error: c_int) -> *const c_char {
    Error::text(error).as_ptr()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_number() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(outcome(|| panic!("planted")), INTERNAL);
        let mut error = 5;
        // SAFETY: `error` lives here.
        let made = unsafe { made::<u8>(&raw mut error, || panic!("planted")) };
        assert!(made.is_null() && error == INTERNAL);
        std::panic::set_hook(hook);
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        let header = include_str!("../include/takt.h");
        for (name, code) in
            [("EARGUMENT", ARGUMENT), ("EINTERNAL", INTERNAL), ("ETWICE", -4), ("EDEADLOCK", -12)]
        {
            assert!(header.contains(&format!("TAKT_{name} = {}", -code)), "{name}");
        }
        assert!(header.contains(&format!("#define TAKT_ABI_VERSION {ABI_VERSION}")));
        for (name, number) in [
            ("MAX_NAME", takt_sdk::layout::MAX_NAME),
            ("MAX_STAGES", takt_sdk::layout::MAX_STAGES),
            ("MAX_STAGE_NAME", takt_sdk::layout::MAX_STAGE_NAME),
            ("MAX_LOOPS", takt_sdk::layout::MAX_LOOPS),
        ] {
            assert!(header.contains(&format!("#define TAKT_{name} {number} ")), "{name}");
        }
        // Every function of the header is in the version script, and no other.
        let script = include_str!("../takt.map");
        let exported: std::collections::BTreeSet<&str> =
            script.split([' ', ';', '\n', '\t']).filter(|word| word.starts_with("takt_")).collect();
        let code: String = header.split("*/").filter_map(|part| part.split("/*").next()).collect();
        let code = code.split("#ifdef TAKT_TSAN").next().unwrap();
        let words = code.split(|c: char| !(c.is_ascii_alphanumeric() || "_(".contains(c)));
        let declared: std::collections::BTreeSet<&str> = words
            .filter_map(|word| word.split_once('(').map(|(name, _)| name))
            .filter(|name| name.starts_with("takt_"))
            .collect();
        assert_eq!(exported, declared);
    }
}
