//! The driver's functions that are used, by the names that CUDA 12.0 gives them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream, CUuuid,
};
use libloading::Library;

use crate::error::{CudaVersion, GpuError, sticky};

/// The oldest driver that has all of [`Api`] (R525).
pub(crate) const NEEDED: CudaVersion = CudaVersion(12000);

/// CUDA_ERROR_MPS_SERVER_NOT_READY.
const MPS_NOT_READY: u32 = 807;

/// Time in which its server may recover. Two calls may wait this long, and the starter of a program
/// waits 15 s for its first work.
const MPS_PATIENCE: Duration = Duration::from_secs(5);

const MPS_PAUSE: Duration = Duration::from_millis(50);

/// `CUgraphExecUpdateResultInfo`, with its enumeration as a number: newer drivers have more values.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct UpdateInfo {
    result: u32,
    nodes: [usize; 2],
}

macro_rules! driver_functions {
    ($($field:ident = $symbol:literal ($($type:ty),*);)*) => {
        /// The open driver.
        #[derive(Debug)]
        pub(crate) struct Api {
            pub(crate) version: CudaVersion,
            /// The library says of itself that it is the emulated device.
            pub(crate) emulated: bool,
            $(pub(crate) $field: unsafe extern "C" fn($($type),*) -> u32,)*
            // Behind the functions that are in it.
            _library: Library,
        }

        impl Api {
            pub(crate) fn resolve(library: Library, version: CudaVersion) -> Result<Self, GpuError> {
                $(
                    // SAFETY: the type is that of the driver's documentation for this name, which
                    // is versioned.
                    let $field = *unsafe {
                        library.get::<unsafe extern "C" fn($($type),*) -> u32>(concat!($symbol, "\0").as_bytes())
                    }
                    .map_err(|_| GpuError::DriverTooOld { has: version, needs: NEEDED, missing: Some($symbol) })?;
                )*
                // SAFETY: only looked for, never read.
                let emulated = unsafe { library.get::<*const c_void>(b"takt_emulated_device\0") }.is_ok();
                Ok(Self { version, emulated, $($field,)* _library: library })
            }
        }
    };
}

driver_functions! {
    init = "cuInit"(c_uint);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut CUdevice, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    device_uuid = "cuDeviceGetUuid_v2"(*mut CUuuid, CUdevice);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_uint, CUdevice);
    primary_retain = "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    primary_release = "cuDevicePrimaryCtxRelease_v2"(CUdevice);
    primary_flags = "cuDevicePrimaryCtxSetFlags_v2"(CUdevice, c_uint);
    context_set = "cuCtxSetCurrent"(CUcontext);
    context_priorities = "cuCtxGetStreamPriorityRange"(*mut c_int, *mut c_int);
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2"(*mut CUdeviceptr, usize);
    memory_free = "cuMemFree_v2"(CUdeviceptr);
    host_alloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost"(*mut c_void);
    host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    host_unregister = "cuMemHostUnregister"(*mut c_void);
    copy_to_device = "cuMemcpyHtoDAsync_v2"(CUdeviceptr, *const c_void, usize, CUstream);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, CUdeviceptr, usize, CUstream);
    copy_on_device = "cuMemcpyDtoDAsync_v2"(CUdeviceptr, CUdeviceptr, usize, CUstream);
    fill_bytes = "cuMemsetD8Async"(CUdeviceptr, u8, usize, CUstream);
    fill_words = "cuMemsetD32Async"(CUdeviceptr, c_uint, usize, CUstream);
    stream_create = "cuStreamCreateWithPriority"(*mut CUstream, c_uint, c_int);
    stream_destroy = "cuStreamDestroy_v2"(CUstream);
    stream_query = "cuStreamQuery"(CUstream);
    stream_wait_event = "cuStreamWaitEvent"(CUstream, CUevent, c_uint);
    stream_attribute = "cuStreamSetAttribute"(CUstream, c_uint, *const c_void);
    stream_priority = "cuStreamGetPriority"(CUstream, *mut c_int);
    event_create = "cuEventCreate"(*mut CUevent, c_uint);
    event_destroy = "cuEventDestroy_v2"(CUevent);
    event_record = "cuEventRecordWithFlags"(CUevent, CUstream, c_uint);
    event_query = "cuEventQuery"(CUevent);
    event_elapsed = "cuEventElapsedTime"(*mut f32, CUevent, CUevent);
    module_load = "cuModuleLoadData"(*mut CUmodule, *const c_void);
    module_unload = "cuModuleUnload"(CUmodule);
    module_function = "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
    launch = "cuLaunchKernel"(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
    capture_begin = "cuStreamBeginCapture_v2"(CUstream, c_uint);
    capture_end = "cuStreamEndCapture"(CUstream, *mut CUgraph);
    graph_instantiate = "cuGraphInstantiateWithFlags"(*mut CUgraphExec, CUgraph, u64);
    graph_update = "cuGraphExecUpdate_v2"(CUgraphExec, CUgraph, *mut UpdateInfo);
    graph_upload = "cuGraphUpload"(CUgraphExec, CUstream);
    graph_launch = "cuGraphLaunch"(CUgraphExec, CUstream);
    graph_exec_destroy = "cuGraphExecDestroy"(CUgraphExec);
    graph_destroy = "cuGraphDestroy"(CUgraph);
    error_text = "cuGetErrorString"(c_uint, *mut *const c_char);
}

impl Api {
    /// Calls again while MPS is not ready: its server takes no clients while it recovers from one
    /// that was killed at work.
    pub(crate) fn when_mps_is_ready(call: impl Fn() -> u32) -> u32 {
        let begin = Instant::now();
        loop {
            match call() {
                MPS_NOT_READY if begin.elapsed() < MPS_PATIENCE => std::thread::sleep(MPS_PAUSE),
                code => return code,
            }
        }
    }

    /// The error of a call that returned `code`.
    #[cold]
    pub(crate) fn refused(&self, name: &'static str, code: u32) -> GpuError {
        if let Some(text) = sticky(code) {
            return GpuError::Lost { code, text };
        }
        let mut text = std::ptr::null();
        // SAFETY: `text` is valid for writing; the driver points it at a constant.
        let known = unsafe { (self.error_text)(code, &raw mut text) } == 0 && !text.is_null();
        let text = if known {
            // SAFETY: the driver's texts are constants that end with NUL.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        } else {
            "an error code unknown to this driver".to_owned()
        };
        GpuError::Call { name, code, text }
    }
}
