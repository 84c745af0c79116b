//! Streams with priorities, and events.

mod event;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytemuck::NoUninit;
use cudarc::driver::sys::CUstream;
use takt_load::gpu::Priority;

use crate::error::GpuError;
use crate::gpu::{Device, Gpu};
use crate::kernel::{Arg, Function, Grid, MAX_ARGS};
use crate::memory::{Allocation, DeviceBuffer, Pinned};
use crate::timeline::STREAMS;
use crate::wait::{self, Wait, Waited};

pub use event::Event;
pub(crate) use event::Moment;

/// Does not wait for the default stream, nor it for this one: a library that uses that must not
/// stop a camera.
const NON_BLOCKING: u32 = 1;

/// `CU_STREAM_ATTRIBUTE_PRIORITY`.
const ATTRIBUTE_PRIORITY: u32 = 8;

/// `CUstreamAttrValue`: a union of 64 bytes, of which a priority is the first number.
#[repr(C, align(8))]
struct AttributeValue([i32; 16]);

const EVENT_BLOCKING_SYNC: u32 = 1;
const EVENT_DISABLE_TIMING: u32 = 2;

/// The driver's number of a priority in its range from `least` to `greatest` (which is the lower
/// number).
fn number(priority: Priority, (least, greatest): (i32, i32)) -> i32 {
    match priority {
        Priority::Background => least,
        Priority::Critical => greatest,
        // CUDA gives a stream without a priority 0, the lowest; here it is the middle, if there is
        // one.
        Priority::Normal => least + (greatest - least) / 2,
    }
}

/// A queue of work that the device does in order. It is used by one thread at a time.
#[derive(Debug)]
pub struct Stream {
    pub(crate) device: Arc<Device>,
    raw: CUstream,
    slot: usize,
    priority: Priority,
    /// Resources of a capture, while there is one.
    capture: RefCell<Option<Captured>>,
    /// The number in the driver's scale, read back.
    granted: Cell<i32>,
}

/// Resources and records of a captured graph.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) memory: Vec<(Arc<Allocation>, bool)>,
    pub(crate) events: Vec<Arc<Moment>>,
    pub(crate) modules: Vec<Arc<crate::kernel::Loaded>>,
}

// SAFETY: a stream's handle may be used from any thread; `Cell` and `RefCell` keep it to one at a
// time.
unsafe impl Send for Stream {}

impl Gpu {
    /// A new stream. At most 254 at a time.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] when there are too many, or what the driver refuses.
    pub fn stream(&self, priority: Priority) -> Result<Stream, GpuError> {
        let device = Arc::clone(&self.0);
        device.bind()?;
        let slot = device.timelines.take().ok_or_else(|| GpuError::Invalid {
            what: "streams",
            expected: format!("1..={STREAMS}"),
            received: (STREAMS + 1).to_string(),
        })?;
        let mut raw = std::ptr::null_mut();
        let number = number(priority, device.info.priorities);
        // SAFETY: a valid place for the answer, with the context current.
        let code = unsafe { (device.api.stream_create)(&raw mut raw, NON_BLOCKING, number) };
        if let Err(error) = device.call("cuStreamCreateWithPriority", code) {
            device.timelines.give_back(slot);
            return Err(error);
        }
        *device.timelines.of(slot).stream() = raw as usize;
        let stream =
            Stream { device, raw, slot, priority, capture: RefCell::default(), granted: Cell::new(number) };
        stream.read_priority()?;
        Ok(stream)
    }
}

impl Stream {
    /// Asks the driver for the priority that the stream has.
    fn read_priority(&self) -> Result<(), GpuError> {
        let mut granted = self.granted.get();
        // SAFETY: a valid place for the answer; the stream is there.
        self.device.call("cuStreamGetPriority", unsafe {
            (self.device.api.stream_priority)(self.raw, &raw mut granted)
        })?;
        self.granted.set(granted);
        Ok(())
    }

    /// Gives a stream that is there another priority, for work that is submitted from now on.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] where the driver takes the call and leaves the priority as it was, or
    /// what it refuses.
    pub fn set_priority(&mut self, priority: Priority) -> Result<(), GpuError> {
        self.device.bind()?;
        let number = number(priority, self.device.info.priorities);
        let mut value = AttributeValue([0; 16]);
        value.0[0] = number;
        // SAFETY: the stream is there; the value is as large as the driver's union.
        let code = unsafe {
            (self.device.api.stream_attribute)(self.raw, ATTRIBUTE_PRIORITY, (&raw const value).cast())
        };
        self.device.call("cuStreamSetAttribute", code)?;
        self.read_priority()?;
        if self.granted.get() != number {
            let (expected, received) = (number.to_string(), self.granted.get().to_string());
            return Err(GpuError::Invalid {
                what: "priority of a stream after cuStreamSetAttribute",
                expected,
                received,
            });
        }
        self.priority = priority;
        Ok(())
    }

    /// The priority asked for.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The priority that the driver granted, in its own scale ([`crate::Info::priorities`]).
    pub fn granted_priority(&self) -> i32 {
        self.granted.get()
    }

    /// The driver's handle, for libraries that put work into this stream. Record an event behind
    /// such work: only then do buffers know of it.
    pub fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// A new event of this stream. `timed`: it can be asked for its time, and costs the device a
    /// little more.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn event(&self, timed: bool) -> Result<Event, GpuError> {
        self.device.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = EVENT_BLOCKING_SYNC | if timed { 0 } else { EVENT_DISABLE_TIMING };
        // SAFETY: a valid place for the answer, with the context current.
        let code = unsafe { (self.device.api.event_create)(&raw mut raw, flags) };
        self.device.call("cuEventCreate", code)?;
        let (device, number) = (Arc::clone(&self.device), AtomicU64::new(0));
        let in_graph = AtomicBool::new(false);
        Ok(Event(Arc::new(Moment { device, raw, slot: self.slot, timed, number, in_graph })))
    }

    /// Puts `event` behind all work submitted so far. While a capture is under way it becomes part
    /// of the graph and is recorded at each launch: for its time alone ([`Event::since`], once an
    /// event behind the launch is reached), since it cannot tell one launch from the next.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] for an event of another stream, or what the driver refuses.
    pub fn record(&self, event: &Event) -> Result<(), GpuError> {
        let moment = &event.0;
        if moment.slot != self.slot || !Arc::ptr_eq(&moment.device, &self.device) {
            return Err(GpuError::Invalid {
                what: "event",
                expected: "one made by this stream".to_owned(),
                received: "one of another stream".to_owned(),
            });
        }
        self.device.bind()?;
        // 1: a record inside a graph that can be asked from outside.
        let number = match self.capture.borrow_mut().as_mut() {
            Some(captured) => {
                captured.events.push(Arc::clone(moment));
                moment.in_graph.store(true, Ordering::SeqCst);
                None
            }
            None => Some(self.device.timelines.of(self.slot).submit()),
        };
        // SAFETY: both are alive, and of one context.
        let code =
            unsafe { (self.device.api.event_record)(moment.raw, self.raw, u32::from(number.is_none())) };
        if let Some(number) = number {
            // Behind the call: another thread that asks meanwhile learns of the record before, if
            // anything.
            moment.number.store(number, Ordering::SeqCst);
            moment.in_graph.store(false, Ordering::SeqCst);
        }
        self.handed("cuEventRecord", code)
    }

    /// Work submitted from now on waits (on the device) until `event`, of any stream of this
    /// device, is reached.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn wait_for(&self, event: &Event) -> Result<(), GpuError> {
        self.device.bind()?;
        // SAFETY: both are alive.
        let code = unsafe { (self.device.api.stream_wait_event)(self.raw, event.0.raw, 0) };
        self.device.call("cuStreamWaitEvent", code)
    }

    /// Whether all work has ended.
    ///
    /// # Errors
    /// [`GpuError::Lost`] or what else the work has led to.
    pub fn is_idle(&self) -> Result<bool, GpuError> {
        self.device.bind()?;
        let timeline = self.device.timelines.of(self.slot);
        let submitted = timeline.submitted();
        // SAFETY: the stream is alive.
        match unsafe { (self.device.api.stream_query)(self.raw) } {
            0 => {
                timeline.complete(submitted);
                Ok(true)
            }
            wait::NOT_READY => Ok(false),
            code => Err(self.device.fail("cuStreamQuery", code)),
        }
    }

    /// Waits until all work has ended or `deadline_ns` of CLOCK_MONOTONIC has passed.
    ///
    /// # Errors
    /// As [`Stream::is_idle`].
    pub fn drain(&self, deadline_ns: u64, wait: Wait) -> Result<Waited, GpuError> {
        wait::until(deadline_ns, wait, || self.is_idle())
    }

    /// Copies all of `from` to the start of `to`.
    ///
    /// # Errors
    /// [`GpuError::Size`] when it does not fit, [`GpuError::InFlight`] while `from` is being
    /// written on the host, or what the driver refuses.
    pub fn upload<T: NoUninit>(&self, from: &Pinned<T>, to: &DeviceBuffer<T>) -> Result<(), GpuError> {
        self.upload_part(from, 0, to, 0, from.len())
    }

    /// Copies `count` elements of `from` to `to`.
    ///
    /// # Errors
    /// As [`Stream::upload`].
    pub fn upload_part<T: NoUninit>(
        &self,
        from: &Pinned<T>,
        from_at: usize,
        to: &DeviceBuffer<T>,
        to_at: usize,
        count: usize,
    ) -> Result<(), GpuError> {
        fits("upload, from", from_at, count, from.len())?;
        fits("upload, to", to_at, count, to.len())?;
        self.uses(&[(&from.allocation, false), (&to.allocation, true)])?;
        let size = size_of::<T>();
        let (source, target) = (from.address().wrapping_add(from_at), to.address + (to_at * size) as u64);
        // SAFETY: both ranges are inside their allocations, which stay until this work has ended.
        let code = unsafe { (self.device.api.copy_to_device)(target, source.cast(), count * size, self.raw) };
        self.handed("cuMemcpyHtoDAsync", code)
    }

    /// Copies all of `to`'s length from the start of `from`.
    ///
    /// # Errors
    /// As [`Stream::upload`].
    pub fn download<T: NoUninit>(&self, from: &DeviceBuffer<T>, to: &Pinned<T>) -> Result<(), GpuError> {
        self.download_part(from, 0, to, 0, to.len())
    }

    /// Copies `count` elements of `from` to `to`.
    ///
    /// # Errors
    /// As [`Stream::upload`].
    pub fn download_part<T: NoUninit>(
        &self,
        from: &DeviceBuffer<T>,
        from_at: usize,
        to: &Pinned<T>,
        to_at: usize,
        count: usize,
    ) -> Result<(), GpuError> {
        fits("download, from", from_at, count, from.len())?;
        fits("download, to", to_at, count, to.len())?;
        self.uses(&[(&from.allocation, false), (&to.allocation, true)])?;
        let size = size_of::<T>();
        let (source, target) = (from.address + (from_at * size) as u64, to.address().wrapping_add(to_at));
        // SAFETY: as in `upload_part`.
        let code = unsafe { (self.device.api.copy_to_host)(target.cast(), source, count * size, self.raw) };
        self.handed("cuMemcpyDtoHAsync", code)
    }

    /// Copies all of `from` to the start of `to`, on the device.
    ///
    /// # Errors
    /// As [`Stream::upload`].
    pub fn copy<T: NoUninit>(&self, from: &DeviceBuffer<T>, to: &DeviceBuffer<T>) -> Result<(), GpuError> {
        fits("copy", 0, from.len(), to.len())?;
        self.uses(&[(&from.allocation, false), (&to.allocation, true)])?;
        // SAFETY: as in `upload_part`.
        let code =
            unsafe { (self.device.api.copy_on_device)(to.address, from.address, from.bytes(), self.raw) };
        self.handed("cuMemcpyDtoDAsync", code)
    }

    /// Fills `buffer` with `byte`.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn fill<T: NoUninit>(&self, buffer: &DeviceBuffer<T>, byte: u8) -> Result<(), GpuError> {
        self.uses(&[(&buffer.allocation, true)])?;
        // SAFETY: as in `upload_part`.
        let code = unsafe { (self.device.api.fill_bytes)(buffer.address, byte, buffer.bytes(), self.raw) };
        self.handed("cuMemsetD8Async", code)
    }

    /// Fills `buffer`, of elements of 4 bytes, with `word` (a float's bits, say).
    ///
    /// # Errors
    /// [`GpuError::Size`] for elements of another size, or what the driver refuses.
    pub fn fill_words<T: NoUninit>(&self, buffer: &DeviceBuffer<T>, word: u32) -> Result<(), GpuError> {
        if size_of::<T>() != 4 {
            let (expected, received) = ("4 bytes".to_owned(), format!("{} bytes", size_of::<T>()));
            return Err(GpuError::Size { what: "element of fill_words", expected, received });
        }
        self.uses(&[(&buffer.allocation, true)])?;
        // SAFETY: as in `upload_part`.
        let code = unsafe { (self.device.api.fill_words)(buffer.address, word, buffer.len(), self.raw) };
        self.handed("cuMemsetD32Async", code)
    }

    /// Starts `function` on `grid`. Buffers among `args` are taken until the work has ended.
    ///
    /// # Errors
    /// [`GpuError::Invalid`] for more than 32 arguments, or what the driver refuses. Faults *of the
    /// kernel* show at a later call.
    ///
    /// # Safety
    /// `args` are what the kernel declares, in number, order and size; the kernel stays inside the
    /// memory that they name, and only reads what is [`Arg::read_only`](crate::Arg::read_only).
    pub unsafe fn launch(&self, function: &Function, grid: Grid, args: &[Arg<'_>]) -> Result<(), GpuError> {
        self.device.bind()?;
        if args.len() > MAX_ARGS {
            let (expected, received) = (format!("0..={MAX_ARGS}"), args.len().to_string());
            return Err(GpuError::Invalid { what: "kernel arguments", expected, received });
        }
        let number = self.begin();
        let mut pointers = [std::ptr::null_mut::<c_void>(); MAX_ARGS];
        for (pointer, arg) in pointers.iter_mut().zip(args) {
            if let Some((allocation, writes)) = arg.allocation() {
                self.use_one(number, allocation, writes)?;
            }
            *pointer = arg.pointer();
        }
        if let Some(captured) = self.capture.borrow_mut().as_mut()
            && !captured.modules.iter().any(|known| Arc::ptr_eq(known, &function.module))
        {
            captured.modules.push(Arc::clone(&function.module));
        }
        let ([gx, gy, gz], [bx, by, bz]) = (grid.blocks, grid.threads);
        // SAFETY: the driver copies the arguments before it returns; the rest is the caller's.
        let code = unsafe {
            (self.device.api.launch)(
                function.raw,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                grid.shared_bytes,
                self.raw,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.handed("cuLaunchKernel", code)
    }

    /// The driver has answered `code` to what was submitted.
    pub(crate) fn handed(&self, name: &'static str, code: u32) -> Result<(), GpuError> {
        self.device.timelines.of(self.slot).hand_over();
        self.device.call(name, code)
    }

    /// A number for the work that is submitted next, `None` while it goes into a graph.
    fn begin(&self) -> Option<u64> {
        let capturing = self.capture.borrow().is_some();
        (!capturing).then(|| self.device.timelines.of(self.slot).submit())
    }

    fn use_one(
        &self,
        number: Option<u64>,
        allocation: &Arc<Allocation>,
        writes: bool,
    ) -> Result<(), GpuError> {
        if !Arc::ptr_eq(&allocation.device, &self.device) {
            return Err(GpuError::Invalid {
                what: "memory",
                expected: "of this stream's device".to_owned(),
                received: "of another".to_owned(),
            });
        }
        match number {
            Some(number) => allocation.mark(self.slot, number, writes),
            None => {
                if let Some(captured) = self.capture.borrow_mut().as_mut() {
                    // Once each, so that a launch marks each once.
                    match captured.memory.iter_mut().find(|(known, _)| Arc::ptr_eq(known, allocation)) {
                        Some((_, written)) => *written |= writes,
                        None => captured.memory.push((Arc::clone(allocation), writes)),
                    }
                }
                Ok(())
            }
        }
    }

    /// The work that is submitted next uses `memory` (`true`: writes there).
    fn uses(&self, memory: &[(&Arc<Allocation>, bool)]) -> Result<(), GpuError> {
        self.device.bind()?;
        let number = self.begin();
        memory.iter().try_for_each(|(allocation, writes)| self.use_one(number, allocation, *writes))
    }

    /// Marks the resources of a graph that is about to be launched.
    pub(crate) fn uses_graph(&self, captured: &Captured) -> Result<(), GpuError> {
        let number = self.device.timelines.of(self.slot).submit();
        for (allocation, writes) in &captured.memory {
            allocation.mark(self.slot, number, *writes)?;
        }
        Ok(())
    }

    pub(crate) fn capture_cell(&self) -> &RefCell<Option<Captured>> {
        &self.capture
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let timeline = self.device.timelines.of(self.slot);
        self.device.refresh(std::iter::once(self.slot));
        let mut stream = timeline.stream();
        if self.device.bind().is_ok() {
            // SAFETY: made once, used by nobody any more; the driver lets its work end first,
            // without waiting here.
            unsafe { (self.device.api.stream_destroy)(self.raw) };
        }
        *stream = 0;
        drop(stream);
        self.device.timelines.give_back(self.slot);
    }
}

fn fits(what: &'static str, at: usize, count: usize, len: usize) -> Result<(), GpuError> {
    if at.checked_add(count).is_some_and(|end| end <= len) {
        return Ok(());
    }
    Err(GpuError::Size {
        what,
        expected: format!("at most {len} elements"),
        received: format!("{count} from element {at}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_fill_the_range_whatever_it_is() {
        let of =
            |range| [Priority::Background, Priority::Normal, Priority::Critical].map(|p| number(p, range));
        assert_eq!(of((0, -5)), [0, -2, -5]);
        assert_eq!(of((0, -1)), [0, 0, -1]);
        assert_eq!(of((0, 0)), [0, 0, 0], "a device without priorities");
    }

    #[test]
    fn ranges_are_checked_without_overflow() {
        assert!(fits("x", 2, 3, 5).is_ok());
        assert!(fits("x", 3, 3, 5).is_err());
        assert!(fits("x", usize::MAX, 2, 5).is_err());
    }
}
