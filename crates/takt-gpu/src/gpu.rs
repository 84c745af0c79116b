//! A device, opened.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute_enum as Attribute, CUuuid};
use serde::{Deserialize, Serialize};

use crate::api::Api;
use crate::error::{CudaVersion, GpuError, sticky};
use crate::library;
use crate::memory::Deferred;
use crate::timeline::Timelines;
use crate::wait::Wait;

/// Description of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// Its number, from 0.
    pub ordinal: u32,
    /// Its name; the emulated device says that it is one.
    pub name: String,
    /// Its identity, as `nvidia-smi -L` prints it.
    pub uuid: String,
    /// Compute capability, `(9, 0)` for sm_90; `(0, 0)` for the emulated device.
    pub compute_capability: (u32, u32),
    pub multiprocessors: u32,
    /// CUDA version of the driver, 12040 for 12.4.
    pub driver_version: i32,
    /// All its memory, bytes.
    pub total_bytes: u64,
    /// Least and greatest stream priority; equal where the device has no priorities. Lower numbers
    /// are more urgent.
    pub priorities: (i32, i32),
    /// It is the emulated device of the tests: nothing measured on it says anything about a GPU.
    pub emulated: bool,
}

/// Attributes worth a line for later readers of figures.
const ATTRIBUTES: &[(&str, Attribute)] = &[
    ("clock_khz", Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
    ("memory_clock_khz", Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
    ("memory_bus_bits", Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    ("l2_bytes", Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    ("threads_of_a_multiprocessor", Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
    ("copy_engines", Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT),
    ("concurrent_kernels", Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS),
    ("stream_priorities", Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED),
    ("compute_preemption", Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED),
    ("compute_mode", Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE),
    ("kernel_timeout", Attribute::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT),
    ("ecc", Attribute::CU_DEVICE_ATTRIBUTE_ECC_ENABLED),
    ("integrated", Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED),
    ("pci_domain", Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
    ("pci_bus", Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
    ("pci_device", Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    ("unified_addressing", Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
    ("can_map_host_memory", Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY),
    (
        "can_use_host_pointer_for_registered_mem",
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    ),
];

/// Memory of a device at one moment, of all programs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// An open device. Cloning is cheap; the device's context lives as long as anything made from it.
#[derive(Debug, Clone)]
pub struct Gpu(pub(crate) Arc<Device>);

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) api: &'static Api,
    device: CUdevice,
    context: CUcontext,
    pub(crate) info: Info,
    /// The number of the error that ended it all, 0 before.
    lost: AtomicU32,
    pub(crate) timelines: Timelines,
    /// Memory that was dropped while work was under way there.
    deferred: Mutex<Vec<Deferred>>,
}

// SAFETY: the driver's functions may be called from any thread; a context may be current in several
// at a time.
unsafe impl Send for Device {}
// SAFETY: as above; the fields that change are atomic or locked.
unsafe impl Sync for Device {}

thread_local! {
    /// The context that is current in this thread as far as this crate made it so.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

impl Gpu {
    /// Opens device `ordinal`. The way in which calls wait *inside the driver* stays unchanged.
    ///
    /// # Errors
    /// [`GpuError::NoDriver`], [`GpuError::DriverTooOld`], [`GpuError::NoDevice`], or what the
    /// driver refuses.
    pub fn open(ordinal: u32) -> Result<Self, GpuError> {
        Self::open_with(ordinal, None)
    }

    /// As [`Gpu::open`]; `wait` says how calls that wait *inside the driver* do so from now on. It
    /// is a property of the context, which the whole process shares, and so reaches inference
    /// libraries. Waiting of this crate's own takes its way with each call.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open_waiting(ordinal: u32, wait: Wait) -> Result<Self, GpuError> {
        Self::open_with(ordinal, Some(wait))
    }

    fn open_with(ordinal: u32, wait: Option<Wait>) -> Result<Self, GpuError> {
        let api = library::driver().map_err(|error| match error {
            GpuError::NoDevice { count, .. } => GpuError::NoDevice { ordinal, count },
            error => error,
        })?;
        let call = |name, code| if code == 0 { Ok(()) } else { Err(api.refused(name, code)) };
        let mut count = 0;
        // SAFETY: a valid place for the answer, as in all calls below.
        call("cuDeviceGetCount", unsafe { (api.device_count)(&raw mut count) })?;
        let count = u32::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(GpuError::NoDevice { ordinal, count });
        }
        let mut device = 0;
        // SAFETY: as above; `ordinal` is below a count that is an i32.
        call("cuDeviceGet", unsafe { (api.device_get)(&raw mut device, ordinal as i32) })?;
        if let Some(wait) = wait {
            let flags = match wait {
                Wait::Spin => 1,
                Wait::Yield => 2,
                Wait::Block => 4,
            };
            // SAFETY: a valid device and documented flags. 708: somebody has made the context
            // already, and its flags stay.
            match unsafe { (api.primary_flags)(device, flags) } {
                0 | 708 => {}
                code => return Err(api.refused("cuDevicePrimaryCtxSetFlags", code)),
            }
        }
        let context = Cell::new(std::ptr::null_mut());
        // SAFETY: as above. The primary context is the one that inference libraries use.
        let retained = Api::when_mps_is_ready(|| unsafe { (api.primary_retain)(context.as_ptr(), device) });
        call("cuDevicePrimaryCtxRetain", retained)?;
        let context = context.get();
        let mut opened = Device {
            api,
            device,
            context,
            info: Info {
                ordinal,
                name: String::new(),
                uuid: String::new(),
                compute_capability: (0, 0),
                multiprocessors: 0,
                driver_version: api.version.0,
                total_bytes: 0,
                priorities: (0, 0),
                emulated: api.emulated,
            },
            lost: AtomicU32::new(0),
            timelines: Timelines::new(),
            deferred: Mutex::default(),
        };
        opened.look()?;
        Ok(Self(Arc::new(opened)))
    }

    /// Description of the device.
    pub fn info(&self) -> &Info {
        &self.0.info
    }

    pub fn driver_version(&self) -> CudaVersion {
        self.0.api.version
    }

    /// Its memory now.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn memory(&self) -> Result<Memory, GpuError> {
        self.0.memory()
    }

    /// The driver's attributes of the device beyond [`Info`], by name; unknown ones are left out.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn attributes(&self) -> Result<BTreeMap<&'static str, i32>, GpuError> {
        self.bind()?;
        let mut reported = BTreeMap::new();
        for (name, which) in ATTRIBUTES {
            let mut value = 0;
            // SAFETY: a valid place for the answer.
            let code = unsafe { (self.0.api.device_attribute)(&raw mut value, *which as u32, self.0.device) };
            match code {
                0 => drop(reported.insert(*name, value)),
                code if sticky(code).is_some() => return Err(self.0.fail("cuDeviceGetAttribute", code)),
                _ => {}
            }
        }
        Ok(reported)
    }

    /// Whether the device is lost, as far as a call has shown; free of calls.
    ///
    /// # Errors
    /// [`GpuError::Lost`].
    pub fn check(&self) -> Result<(), GpuError> {
        self.0.alive()
    }

    /// Makes the device's context current in the calling thread, for libraries that expect it.
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn bind(&self) -> Result<(), GpuError> {
        self.0.bind()
    }

    /// Pieces of memory that were dropped while work was under way there and are not freed yet.
    pub fn waiting_to_be_freed(&self) -> usize {
        self.0.free_or_defer(None);
        self.0.deferred.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Device {
    fn look(&mut self) -> Result<(), GpuError> {
        let api = self.api;
        let mut name = [0 as c_char; 256];
        // SAFETY: the place is as long as is said.
        self.call("cuDeviceGetName", unsafe { (api.device_name)(name.as_mut_ptr(), 255, self.device) })?;
        // SAFETY: zeroed, at most 255 bytes were written.
        self.info.name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: a valid place for the answer, as in all calls below.
        self.call("cuDeviceGetUuid", unsafe { (api.device_uuid)(&raw mut uuid, self.device) })?;
        let hex: String = uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
        self.info.uuid =
            format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        let attribute = |which: Attribute| {
            let mut value = 0;
            // SAFETY: as above.
            self.call("cuDeviceGetAttribute", unsafe {
                (api.device_attribute)(&raw mut value, which as u32, self.device)
            })?;
            Ok::<_, GpuError>(u32::try_from(value).unwrap_or(0))
        };
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        self.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: as above, with the context current.
        self.call("cuCtxGetStreamPriorityRange", unsafe {
            (api.context_priorities)(&raw mut least, &raw mut greatest)
        })?;
        let total_bytes = self.memory()?.total_bytes;
        let info = &mut self.info;
        (info.compute_capability, info.multiprocessors) = (capability, multiprocessors);
        (info.total_bytes, info.priorities) = (total_bytes, (least, greatest));
        Ok(())
    }

    pub(crate) fn memory(&self) -> Result<Memory, GpuError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid places for the answers, with the context current.
        self.call("cuMemGetInfo", unsafe { (self.api.memory_info)(&raw mut free, &raw mut total) })?;
        Ok(Memory { free_bytes: free as u64, total_bytes: total as u64 })
    }

    pub(crate) fn alive(&self) -> Result<(), GpuError> {
        match self.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(GpuError::Lost { code, text: sticky(code).unwrap_or("lost") }),
        }
    }

    /// The outcome of a driver call. An error that poisons the context is remembered: the driver is
    /// not called any more, since a lost device can make any call hang.
    #[inline]
    pub(crate) fn call(&self, name: &'static str, code: u32) -> Result<(), GpuError> {
        if code == 0 { Ok(()) } else { Err(self.fail(name, code)) }
    }

    #[cold]
    pub(crate) fn fail(&self, name: &'static str, code: u32) -> GpuError {
        let error = self.api.refused(name, code);
        if error.is_lost() {
            let _ = self.lost.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        }
        error
    }

    /// The context becomes current in this thread; free when it is so already.
    #[inline]
    pub(crate) fn bind(&self) -> Result<(), GpuError> {
        self.alive()?;
        if CURRENT.get() == self.context as usize {
            return Ok(());
        }
        // SAFETY: the context is retained as long as this is alive.
        self.call("cuCtxSetCurrent", unsafe { (self.api.context_set)(self.context) })?;
        CURRENT.set(self.context as usize);
        Ok(())
    }

    /// Asks the streams in `slots` whether they have become idle.
    pub(crate) fn refresh(&self, slots: impl Iterator<Item = usize>) {
        if self.bind().is_err() {
            return;
        }
        for slot in slots {
            let timeline = self.timelines.of(slot);
            let stream = timeline.stream();
            if *stream == 0 {
                continue;
            }
            let handed = timeline.handed();
            // SAFETY: not destroyed while it is locked.
            if unsafe { (self.api.stream_query)(*stream as _) } == 0 {
                timeline.complete(handed);
            }
        }
    }

    /// Frees what can be freed of what was dropped, after adding `new` to it.
    pub(crate) fn free_or_defer(&self, new: Option<Deferred>) {
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        deferred.extend(new);
        deferred.retain(|piece| !piece.free(self));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.free_or_defer(None);
        // A lost or hung device may keep this call for ever; the process is about to end then
        // anyway.
        let hung = !self.deferred.get_mut().unwrap_or_else(PoisonError::into_inner).is_empty();
        if self.alive().is_ok() && !hung {
            // SAFETY: retained once at opening.
            unsafe { (self.api.primary_release)(self.device) };
        }
        if CURRENT.get() == self.context as usize {
            CURRENT.set(0);
        }
    }
}
