//! Memory of the device, and memory of the host that the device can reach.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use bytemuck::{AnyBitPattern, NoUninit};
use cudarc::driver::sys::CUdeviceptr;

use crate::error::GpuError;
use crate::gpu::{Device, Gpu};
use crate::timeline::Ticket;

/// Host memory: portable to every context, mapped into the device's addresses.
const HOST_FLAGS: u32 = 1 | 2;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Device(CUdeviceptr),
    Host(usize),
    /// Somebody else's memory, made known to the device.
    Registered(usize),
}

/// One piece of memory, shared by its owner and by the graphs that use it.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) device: Arc<Device>,
    pub(crate) kind: Kind,
    pub(crate) ticket: Arc<Ticket>,
    /// Readers on the host; -1 while there is a writer.
    host: AtomicI32,
}

/// Memory whose owner is gone while the device may still use it.
#[derive(Debug)]
pub(crate) struct Deferred {
    kind: Kind,
    ticket: Arc<Ticket>,
}

impl Deferred {
    /// Whether it is gone, or never will be.
    pub(crate) fn free(&self, device: &Device) -> bool {
        if device.bind().is_err() {
            // A lost device: the memory ends with the process.
            return true;
        }
        if !device.timelines.is_over(&self.ticket) {
            device.refresh(device.timelines.pending(&self.ticket));
        }
        if !device.timelines.is_over(&self.ticket) {
            return false;
        }
        // SAFETY: allocated or registered by this crate once, its owner is gone, and no work uses
        // it.
        let code = unsafe {
            match self.kind {
                Kind::Device(address) => (device.api.memory_free)(address),
                Kind::Host(address) => (device.api.host_free)(address as *mut c_void),
                Kind::Registered(address) => (device.api.host_unregister)(address as *mut c_void),
            }
        };
        // A refusal here is an earlier failure that shows only now; the next call reports it.
        if code != 0 {
            device.fail("freeing memory", code);
        }
        true
    }
}

impl Allocation {
    fn new(gpu: &Gpu, kind: Kind) -> Arc<Self> {
        let (ticket, host) = (Arc::new(Ticket::default()), AtomicI32::new(0));
        Arc::new(Self { device: Arc::clone(&gpu.0), kind, ticket, host })
    }

    /// Work `number` of the stream in `slot` uses this memory from now on; `writes` where it writes
    /// there.
    pub(crate) fn mark(&self, slot: usize, number: u64, writes: bool) -> Result<(), GpuError> {
        // First the mark, then the look, as the host does it the other way round: one of the two
        // sees the other.
        self.device.timelines.mark(&self.ticket, slot, number);
        self.check_host(writes)
    }

    pub(crate) fn check_host(&self, writes: bool) -> Result<(), GpuError> {
        match self.host.load(Ordering::SeqCst) {
            0 => Ok(()),
            1.. if !writes => Ok(()),
            _ => Err(GpuError::InFlight { what: "host memory", by: "a reader or writer on the host" }),
        }
    }

    fn borrow(&self, writes: bool) -> Result<(), GpuError> {
        let taken = GpuError::InFlight { what: "host memory", by: "a reader or writer on the host" };
        let next = |readers: i32| match (readers, writes) {
            (0, true) => Some(-1),
            (0.., false) => readers.checked_add(1),
            _ => None,
        };
        self.host.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).map_err(|_| taken)?;
        if self.device.timelines.is_over(&self.ticket) {
            return Ok(());
        }
        self.give_back(writes);
        Err(GpuError::InFlight { what: "host memory", by: "work on the device" })
    }

    fn give_back(&self, writes: bool) {
        if writes {
            self.host.store(0, Ordering::SeqCst);
        } else {
            self.host.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.device.free_or_defer(Some(Deferred { kind: self.kind, ticket: Arc::clone(&self.ticket) }));
    }
}

fn bytes_of<T>(len: usize) -> Result<usize, GpuError> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0 && bytes <= isize::MAX as usize);
    bytes.ok_or_else(|| GpuError::Invalid {
        what: "buffer length",
        expected: "1 or more elements that fit into memory".to_owned(),
        received: len.to_string(),
    })
}

/// Memory on the device for `len` elements. Allocating and freeing may wait for the whole device:
/// do both at the start and the end, never per frame.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    pub(crate) allocation: Arc<Allocation>,
    /// A place of its own, since a launch passes its address.
    pub(crate) address: CUdeviceptr,
    len: usize,
    elements: PhantomData<T>,
}

// SAFETY: elements are never touched on the host, and the allocation may be used from any thread.
unsafe impl<T> Send for DeviceBuffer<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for DeviceBuffer<T> {}

impl<T> DeviceBuffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none: never, an empty buffer is refused.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The device's address, for libraries that work on it. A caller that passes it on keeps the
    /// buffer until that work has ended.
    pub fn device_ptr(&self) -> u64 {
        self.address
    }
}

/// Memory of the host that stays in place and that the device copies from and to by itself. It is
/// reached only while the device does not use it: [`Pinned::read`], [`Pinned::write`].
#[derive(Debug)]
pub struct Pinned<T> {
    pub(crate) allocation: Arc<Allocation>,
    start: *mut T,
    len: usize,
}

// SAFETY: the memory is as mobile as a boxed slice, and all reaching it goes through checked
// guards.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: as above; `read` gives shared access, `write` needs `&mut self`.
unsafe impl<T: Sync> Sync for Pinned<T> {}

/// Shared access to host memory while the device does not write there.
#[derive(Debug)]
pub struct HostRef<'a, T>(&'a Pinned<T>);

/// Sole access to host memory while the device does not use it.
#[derive(Debug)]
pub struct HostMut<'a, T>(&'a mut Pinned<T>);

impl<T: AnyBitPattern + NoUninit> Pinned<T> {
    /// The elements, to read.
    ///
    /// # Errors
    /// [`GpuError::InFlight`] while work that uses them has not ended *as far as is known*: wait
    /// for an event behind it.
    pub fn read(&self) -> Result<HostRef<'_, T>, GpuError> {
        self.allocation.borrow(false)?;
        Ok(HostRef(self))
    }

    /// The elements, to write.
    ///
    /// # Errors
    /// As [`Pinned::read`].
    pub fn write(&mut self) -> Result<HostMut<'_, T>, GpuError> {
        self.allocation.borrow(true)?;
        Ok(HostMut(self))
    }
}

impl<T> Pinned<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none: never, an empty buffer is refused.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the device may be using it; costs no call to the driver.
    pub fn is_in_flight(&self) -> bool {
        !self.allocation.device.timelines.is_over(&self.allocation.ticket)
    }

    /// The address, as the host has it; the device has the same.
    pub fn as_ptr(&self) -> *const T {
        self.start
    }

    pub(crate) fn address(&self) -> *mut T {
        self.start
    }
}

impl<T> Deref for HostRef<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements of any bit pattern; no work writes there and no writer exists
        // while this guard is counted.
        unsafe { std::slice::from_raw_parts(self.0.start, self.0.len) }
    }
}

impl<T> Drop for HostRef<'_, T> {
    fn drop(&mut self) {
        self.0.allocation.give_back(false);
    }
}

impl<T> Deref for HostMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as in `deref_mut`.
        unsafe { std::slice::from_raw_parts(self.0.start, self.0.len) }
    }
}

impl<T> DerefMut for HostMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` elements of any bit pattern; this guard is the only one and keeps work
        // away.
        unsafe { std::slice::from_raw_parts_mut(self.0.start, self.0.len) }
    }
}

impl<T> Drop for HostMut<'_, T> {
    fn drop(&mut self) {
        self.0.allocation.give_back(true);
    }
}

impl Gpu {
    /// Memory on the device for `len` elements, with what was there before.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Invalid`], or what the driver refuses.
    pub fn buffer<T: AnyBitPattern + NoUninit>(&self, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        let bytes = bytes_of::<T>(len)?;
        self.0.free_or_defer(None);
        self.bind()?;
        let mut address = 0;
        // SAFETY: a valid place for the answer, with the context current.
        let code = unsafe { (self.0.api.memory_alloc)(&raw mut address, bytes) };
        self.allocated("cuMemAlloc", code, bytes)?;
        Ok(DeviceBuffer {
            allocation: Allocation::new(self, Kind::Device(address)),
            address,
            len,
            elements: PhantomData,
        })
    }

    /// Memory on the host for `len` elements, zeroed, which the device reaches by itself.
    ///
    /// # Errors
    /// As [`Gpu::buffer`].
    pub fn pinned<T: AnyBitPattern + NoUninit>(&self, len: usize) -> Result<Pinned<T>, GpuError> {
        let bytes = bytes_of::<T>(len)?;
        self.0.free_or_defer(None);
        self.bind()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: a valid place for the answer, with the context current.
        let code = unsafe { (self.0.api.host_alloc)(&raw mut start, bytes, HOST_FLAGS) };
        self.allocated("cuMemHostAlloc", code, bytes)?;
        // SAFETY: `bytes` bytes were given, to nobody else yet. Pages are of more than any
        // alignment.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        let allocation = Allocation::new(self, Kind::Host(start as usize));
        Ok(Pinned { allocation, start: start.cast(), len })
    }

    /// Makes `len` elements from `start`, memory that is there already (shared with another
    /// process, say), known to the device.
    ///
    /// # Errors
    /// As [`Gpu::buffer`].
    ///
    /// # Safety
    /// The memory is valid, aligned, and stays mapped until the [`Pinned`] and every graph that
    /// uses it are gone and work on it has ended ([`Gpu::waiting_to_be_freed`] is 0). Other writers
    /// must stay away while this process or the device reads.
    pub unsafe fn register<T: AnyBitPattern + NoUninit>(
        &self,
        start: *mut T,
        len: usize,
    ) -> Result<Pinned<T>, GpuError> {
        let bytes = bytes_of::<T>(len)?;
        self.bind()?;
        // SAFETY: the caller says that the memory is there.
        let code = unsafe { (self.0.api.host_register)(start.cast(), bytes, HOST_FLAGS) };
        self.allocated("cuMemHostRegister", code, bytes)?;
        Ok(Pinned { allocation: Allocation::new(self, Kind::Registered(start as usize)), start, len })
    }

    fn allocated(&self, name: &'static str, code: u32, bytes: usize) -> Result<(), GpuError> {
        if code == 2 {
            let free = self.memory().map_or(0, |memory| memory.free_bytes);
            return Err(GpuError::OutOfMemory { asked: bytes as u64, free });
        }
        self.0.call(name, code)
    }
}
