//! Settings of the calling thread, of `takt.h`.

use std::ffi::{c_char, c_int};
use std::mem::{offset_of, size_of};
use std::time::Duration;

use takt_sdk::{Error, Granted, LockMemory, Policy, Setting, ThreadSettings};

use crate::{ARGUMENT, INTERNAL, guarded, number, text};

/// `takt_thread_settings` of `takt.h`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TaktThreadSettings {
    size: u32,
    policy: i32,
    priority: i32,
    lock_memory: i32,
    cpus: *const c_char,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    prefault_stack_bytes: u64,
    prefault_heap_bytes: u64,
}

const CPUS_BYTES: usize = 256;
const WHY_BYTES: usize = 768;

/// `takt_thread_granted` of `takt.h`.
#[repr(C)]
pub struct TaktThreadGranted {
    size: u32,
    differences: u32,
    tid: i32,
    policy: i32,
    priority: i32,
    reserved: i32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    locked_bytes: u64,
    cpus: [u8; CPUS_BYTES],
    why: [u8; WHY_BYTES],
}

const _: () = assert!(size_of::<TaktThreadGranted>() == 56 + CPUS_BYTES + WHY_BYTES);
const _: () = assert!(offset_of!(TaktThreadGranted, runtime_ns) == 24);

/// Writes as much of a text as fits, whole characters, and a zero.
fn write<const BYTES: usize>(to: &mut [u8; BYTES], text: &str) {
    let end = (0..=text.len().min(BYTES - 1)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    to.fill(0);
    to[..end].copy_from_slice(&text.as_bytes()[..end]);
}

/// A policy in numbers: kind, priority, and the three times.
fn in_numbers(policy: Option<Policy>) -> (i32, i32, [u64; 3]) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    match policy {
        Some(Policy::Other { nice }) => (1, nice, [0; 3]),
        Some(Policy::Fifo { priority }) => (2, priority, [0; 3]),
        Some(Policy::RoundRobin { priority }) => (3, priority, [0; 3]),
        Some(Policy::Deadline { runtime, deadline, period }) => {
            (4, 0, [ns(runtime), ns(deadline), ns(period)])
        }
        _ => (-1, 0, [0; 3]),
    }
}

impl TaktThreadSettings {
    /// # Safety
    /// `cpus` is null or a C string.
    unsafe fn read(&self) -> Result<ThreadSettings, c_int> {
        let policy = match self.policy {
            0 => None,
            1 => Some(Policy::Other { nice: self.priority }),
            2 => Some(Policy::Fifo { priority: self.priority }),
            3 => Some(Policy::RoundRobin { priority: self.priority }),
            4 => Some(Policy::Deadline {
                runtime: Duration::from_nanos(self.runtime_ns),
                deadline: Duration::from_nanos(self.deadline_ns),
                period: Duration::from_nanos(self.period_ns),
            }),
            _ => return Err(ARGUMENT),
        };
        let lock_memory = match self.lock_memory {
            0 => LockMemory::Keep,
            1 => LockMemory::Current,
            2 => LockMemory::All,
            _ => return Err(ARGUMENT),
        };
        let cpus = match self.cpus.is_null() {
            true => None,
            // SAFETY: the caller says so.
            false => Some(unsafe { text(self.cpus) }?.parse().map_err(|error: Error| number(&error))?),
        };
        let bytes = |bytes: u64| usize::try_from(bytes).map_err(|_| ARGUMENT);
        Ok(ThreadSettings {
            policy,
            cpus,
            lock_memory,
            prefault_stack_bytes: bytes(self.prefault_stack_bytes)?,
            prefault_heap_bytes: bytes(self.prefault_heap_bytes)?,
        })
    }
}

impl TaktThreadGranted {
    fn fill(&mut self, granted: &Granted) {
        let bit = |setting: Setting| match setting {
            Setting::Memory => 1,
            Setting::Cpus => 2,
            Setting::Policy => 4,
            Setting::Stack => 8,
        };
        self.differences = granted.differences.iter().fold(0, |bits, one| bits | bit(one.setting));
        self.tid = granted.tid;
        let (policy, priority, times) = in_numbers(granted.policy);
        (self.policy, self.priority, self.reserved) = (policy, priority, 0);
        [self.runtime_ns, self.deadline_ns, self.period_ns] = times;
        self.locked_bytes = granted.locked_bytes;
        write(&mut self.cpus, &granted.cpus.map_or_else(String::new, |cpus| cpus.to_string()));
        let why: Vec<&str> = granted.differences.iter().map(|one| one.why.as_str()).collect();
        write(&mut self.why, &why.join("\n"));
    }
}

/// `takt_thread_apply` of `takt.h`.
///
/// # Safety
/// `asked` points to settings whose texts are C strings; `granted` is null or may be written to.
/// Both say in `size` how long they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn takt_thread_apply(
    asked: *const TaktThreadSettings,
    granted: *mut TaktThreadGranted,
) -> c_int {
    // SAFETY: the caller says so; the size comes first.
    let is_whole = |size: *const u32, whole: usize| unsafe { size.read() } as usize >= whole;
    if asked.is_null()
        || !is_whole(asked.cast(), size_of::<TaktThreadSettings>())
        || (!granted.is_null() && !is_whole(granted.cast(), size_of::<TaktThreadGranted>()))
    {
        return ARGUMENT;
    }
    guarded(INTERNAL, || {
        // SAFETY: as long as its size says.
        let settings = match unsafe { (*asked).read() } {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        match settings.apply() {
            Ok(has) => {
                // SAFETY: null, or as long as its size says.
                if let Some(granted) = unsafe { granted.as_mut() } {
                    granted.fill(&has);
                }
                // Four settings.
                has.differences.len() as c_int
            }
            Err(error) => number(&error),
        }
    })
}
