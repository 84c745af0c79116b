//! Kernels: source, loaded module, function, arguments.

use std::ffi::{CString, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::NoUninit;
use cudarc::driver::sys::{CUfunction, CUmodule};

use crate::cache;
use crate::error::GpuError;
use crate::gpu::{Device, Gpu};
use crate::memory::{Allocation, DeviceBuffer, Pinned};
use crate::nvrtc::Compiler;
use crate::prebuilt;
use crate::source::Source;

/// Most arguments of a kernel: its pointers stand on the stack.
pub(crate) const MAX_ARGS: usize = 32;

/// Longest argument passed by value, bytes.
const VALUE_BYTES: usize = 64;

/// Blocks and threads of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y and z.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Grid {
    /// One thread for each of `items`, in blocks of `threads`.
    pub fn over(items: usize, threads: u32) -> Self {
        let blocks = items.div_ceil(threads.max(1) as usize).clamp(1, i32::MAX as usize);
        Self { blocks: [blocks as u32, 1, 1], threads: [threads.max(1), 1, 1], shared_bytes: 0 }
    }
}

/// A module in the device's memory.
#[derive(Debug, Clone)]
pub struct Module {
    loaded: Arc<Loaded>,
}

#[derive(Debug)]
pub(crate) struct Loaded {
    device: Arc<Device>,
    raw: CUmodule,
    name: &'static str,
}

// SAFETY: a module's handle may be used from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; nothing changes after loading.
unsafe impl Sync for Loaded {}

/// A kernel that can be launched; keeps its module.
#[derive(Debug, Clone)]
pub struct Function {
    pub(crate) raw: CUfunction,
    pub(crate) module: Arc<Loaded>,
}

// SAFETY: as for its module.
unsafe impl Send for Function {}
// SAFETY: as for its module.
unsafe impl Sync for Function {}

impl Gpu {
    /// `source`, compiled for this device (or taken from the cache, `~/.cache/takt/gpu`) and
    /// loaded.
    ///
    /// # Errors
    /// [`GpuError::NvrtcMissing`], [`GpuError::Compile`], or what the driver refuses.
    pub fn module(&self, source: &Source) -> Result<Module, GpuError> {
        self.module_cached(source, cache::folder().as_deref())
    }

    /// As [`Gpu::module`], of what was compiled elsewhere and lies in the folder that
    /// [`prebuilt::VARIABLE`] names; what it is, too.
    ///
    /// # Errors
    /// [`GpuError::NvrtcMissing`] with why there is none for this device, or what the driver
    /// refuses.
    pub(crate) fn module_prebuilt(&self, source: &Source) -> Result<(Module, String), GpuError> {
        let (entry, compiled) = prebuilt::find_entry(source, self.info())
            .map_err(|why| GpuError::NvrtcMissing { looked: vec![why] })?;
        Ok((self.load(source.name, &compiled)?, entry.to_string()))
    }

    /// As [`Gpu::module`], with the cache in `folder`; `None`: without one.
    ///
    /// # Errors
    /// As [`Gpu::module`].
    pub fn module_cached(
        &self,
        source: &Source,
        folder: Option<&std::path::Path>,
    ) -> Result<Module, GpuError> {
        let compiler = match Compiler::for_driver(self.driver_version(), self.info().emulated) {
            Ok(compiler) => compiler,
            // Without a compiler: what one made elsewhere, where that was brought along.
            Err(GpuError::NvrtcMissing { mut looked }) => match prebuilt::find(source, self.info()) {
                Ok(compiled) => return self.load(source.name, &compiled),
                Err(why) => {
                    looked.push(why);
                    return Err(GpuError::NvrtcMissing { looked });
                }
            },
            Err(error) => return Err(error),
        };
        let compiled = cache::compiled(&compiler, source, self.info().compute_capability, folder)?;
        self.load(source.name, &compiled)
    }

    /// Loads `binary`, a cubin or PTX text, as module `name`.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn load(&self, name: &'static str, binary: &crate::Compiled) -> Result<Module, GpuError> {
        self.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: an image as the compiler made it (a cubin reports its own length, PTX ends with
        // NUL); the driver copies it.
        let code = unsafe { (self.0.api.module_load)(&raw mut raw, binary.bytes().as_ptr().cast()) };
        self.0.call("cuModuleLoadData", code)?;
        Ok(Module { loaded: Arc::new(Loaded { device: Arc::clone(&self.0), raw, name }) })
    }
}

impl Module {
    /// The function called `name`.
    ///
    /// # Errors
    /// [`GpuError::NoFunction`], or what the driver refuses.
    pub fn function(&self, name: &str) -> Result<Function, GpuError> {
        let device = &self.loaded.device;
        device.bind()?;
        let none = || GpuError::NoFunction { kernel: self.loaded.name.to_owned(), function: name.to_owned() };
        let text = CString::new(name).map_err(|_| none())?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a valid place for the answer and a name that ends with NUL; the module is loaded.
        match unsafe { (device.api.module_function)(&raw mut raw, self.loaded.raw, text.as_ptr()) } {
            0 => Ok(Function { raw, module: Arc::clone(&self.loaded) }),
            500 => Err(none()),
            code => Err(device.fail("cuModuleGetFunction", code)),
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: loaded once; functions and graphs keep it, so nothing of it is launched any
            // more. The driver waits for what runs.
            unsafe { (self.device.api.module_unload)(self.raw) };
        }
    }
}

/// One argument of a launch.
#[derive(Clone, Copy)]
pub struct Arg<'a> {
    value: Value,
    /// With whether the kernel may write there.
    memory: Option<(&'a Arc<Allocation>, bool)>,
    lifetime: PhantomData<&'a ()>,
}

#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Value([u8; VALUE_BYTES]);

impl fmt::Debug for Arg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arg").field("memory", &self.memory.is_some()).finish_non_exhaustive()
    }
}

impl<'a> Arg<'a> {
    /// `value` itself: a number, or a struct of plain ones laid out as in C, of at most 64 bytes.
    pub fn value<T: NoUninit>(value: T) -> Self {
        const { assert!(size_of::<T>() <= VALUE_BYTES && align_of::<T>() <= 16) };
        let mut bytes = [0; VALUE_BYTES];
        bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        Self { value: Value(bytes), memory: None, lifetime: PhantomData }
    }

    /// A pointer to the start of `buffer`.
    pub fn buffer<T>(buffer: &'a DeviceBuffer<T>) -> Self {
        Self { memory: Some((&buffer.allocation, true)), ..Self::value(buffer.address) }
    }

    /// A pointer to element `at` of `buffer`; one past the end at most.
    pub fn buffer_at<T>(buffer: &'a DeviceBuffer<T>, at: usize) -> Self {
        let offset = at.min(buffer.len()) * size_of::<T>();
        Self { memory: Some((&buffer.allocation, true)), ..Self::value(buffer.address + offset as u64) }
    }

    /// A pointer to host memory that the device reads and writes over the bus: for small results,
    /// and for copies that must not queue behind those of others.
    pub fn pinned<T>(memory: &'a Pinned<T>) -> Self {
        Self::pinned_at(memory, 0)
    }

    /// A pointer to element `at` of host memory; one past the end at most.
    pub fn pinned_at<T>(memory: &'a Pinned<T>, at: usize) -> Self {
        let start = memory.as_ptr().wrapping_add(at.min(memory.len()));
        Self { memory: Some((&memory.allocation, true)), ..Self::value(start as u64) }
    }

    /// The same, of memory that the kernel only reads, which is for the caller of
    /// [`launch`](crate::Stream::launch) to see to: the host may read it meanwhile.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { memory: self.memory.map(|(memory, _)| (memory, false)), ..self }
    }

    /// A device pointer from elsewhere (a library's tensor).
    pub fn address(address: u64) -> Self {
        Self::value(address)
    }

    pub(crate) fn allocation(&self) -> Option<(&Arc<Allocation>, bool)> {
        self.memory
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        (&raw const self.value.0).cast_mut().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_cover_every_item() {
        assert_eq!(Grid::over(1000, 256).blocks, [4, 1, 1]);
        assert_eq!(Grid::over(0, 0), Grid { blocks: [1, 1, 1], threads: [1, 1, 1], shared_bytes: 0 });
    }

    #[test]
    fn values_are_passed_as_they_lie_in_memory() {
        let arg = Arg::value([1.5f32, -2.0]);
        // SAFETY: `arg` holds 64 bytes, aligned to 16.
        assert_eq!(unsafe { arg.pointer().cast::<[f32; 2]>().read() }, [1.5, -2.0]);
    }
}
