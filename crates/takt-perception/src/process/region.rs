//! The whole shared memory: a header, what the worker needs to know, and each camera's channel.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Device, PerceptionConfig};
use serde::{Deserialize, Serialize};
use takt_link_camera::Intrinsics;
use takt_rt::policy::Policy;
use takt_rt::settings::ThreadSettings;

use crate::process::channel::{Answerer, Asker, Channel};
use crate::process::memory::Memory;

/// "TAKTPERC" and the version of this layout.
const MAGIC: u64 = u64::from_be_bytes(*b"TAKTPERC");
const LAYOUT: u32 = 1;
const HEADER_BYTES: usize = 4096;

/// Setup that the worker process needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Judge of the frames: CUDA or TensorRT.
    pub device: Device,
    /// Settings of perception.
    pub perception: PerceptionConfig,
    pub cameras: Vec<Intrinsics>,
    /// Settings of the threads that judge, one a camera.
    pub threads: ThreadSettings,
    /// Policy of threads that libraries spawn.
    pub library_policy: Policy,
}

#[repr(C, align(64))]
struct Header {
    magic: AtomicU64,
    layout: AtomicU32,
    /// Process id of the cell.
    cell: AtomicU32,
    /// Number of the worker process that shall run on it.
    generation: AtomicU32,
    /// Set when the worker shall end.
    stop: AtomicU32,
    setup_bytes: AtomicU64,
}

/// A shared memory with its channels.
#[derive(Debug)]
pub(crate) struct Region {
    memory: Arc<Memory>,
    header: NonNull<Header>,
    /// Begin of each camera's channel. They are kept here because the shared memory may change
    /// while it is read.
    offsets: Vec<usize>,
    pub setup: Setup,
}

// SAFETY: the header is atomics in a mapping that `memory` keeps alive.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not shared memory of this program: {what}"))
}

/// Sizes decide what memory is touched, so none is believed before this.
fn check_sizes(setup: &Setup) -> Result<(), String> {
    match setup.cameras.iter().find(|camera| !camera.has_plausible_size()) {
        Some(camera) => {
            Err(format!("a camera of {}x{}: accepted are 1 to 7680*4320 pixels", camera.width, camera.height))
        }
        None => Ok(()),
    }
}

/// Begins of the cameras' channels, and the end of the last one. Sizes are plausible ones.
fn offsets(setup: &Setup, setup_bytes: usize) -> (Vec<usize>, usize) {
    let mut next = HEADER_BYTES + setup_bytes.next_multiple_of(4096);
    let offsets = setup.cameras.iter().map(|camera| {
        let at = next;
        next += Channel::bytes(camera.width, camera.height).next_multiple_of(4096);
        at
    });
    (offsets.collect(), next)
}

impl Region {
    /// A new memory for `setup`.
    pub fn create(setup: Setup) -> io::Result<Self> {
        check_sizes(&setup).map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        let text = serde_json::to_vec(&setup).map_err(io::Error::other)?;
        let (offsets, bytes) = offsets(&setup, text.len());
        let memory = Arc::new(Memory::create(bytes)?);
        let place = memory.at(HEADER_BYTES, text.len()).ok_or_else(|| invalid("too small"))?;
        // SAFETY: the range is inside the memory, and nobody else knows of it yet.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), place.as_ptr(), text.len()) };
        let header = memory.at(0, size_of::<Header>()).ok_or_else(|| invalid("too small"))?.cast();
        let region = Self { memory, header, offsets, setup };
        let header = region.header();
        header.setup_bytes.store(text.len() as u64, Ordering::Relaxed);
        header.cell.store(std::process::id(), Ordering::Relaxed);
        header.layout.store(LAYOUT, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(region)
    }

    /// The memory behind a descriptor that the cell handed down.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let memory = Arc::new(Memory::open(file)?);
        let header: NonNull<Header> = memory.at(0, HEADER_BYTES).ok_or_else(|| invalid("too small"))?.cast();
        // SAFETY: inside the mapping, aligned; atomics are valid for every bit pattern.
        let fields = unsafe { header.as_ref() };
        if fields.magic.load(Ordering::Acquire) != MAGIC || fields.layout.load(Ordering::Relaxed) != LAYOUT {
            return Err(invalid("another magic number or layout"));
        }
        let bytes = usize::try_from(fields.setup_bytes.load(Ordering::Relaxed)).map_err(io::Error::other)?;
        let place = memory.at(HEADER_BYTES, bytes).ok_or_else(|| invalid("the setup ends outside"))?;
        // SAFETY: inside the mapping; the cell wrote it before it started this process and never
        // writes it again.
        let text = unsafe { std::slice::from_raw_parts(place.as_ptr(), bytes) };
        let setup: Setup = serde_json::from_slice(text).map_err(|e| invalid(&e.to_string()))?;
        check_sizes(&setup).map_err(|what| invalid(&what))?;
        let (offsets, end) = offsets(&setup, bytes);
        if end > memory.bytes() {
            return Err(invalid("the cameras end outside"));
        }
        Ok(Self { memory, header, offsets, setup })
    }

    fn header(&self) -> &Header {
        // SAFETY: inside the mapping, aligned; atomics are valid for every bit pattern.
        unsafe { self.header.as_ref() }
    }

    /// The channel of each camera.
    pub fn channels(&self) -> io::Result<Vec<Channel>> {
        let cameras = self.setup.cameras.iter().zip(self.offsets.iter().copied());
        cameras
            .map(|(camera, offset)| {
                Channel::at(&self.memory, offset, camera.width, camera.height)
                    .ok_or_else(|| invalid("a camera ends outside"))
            })
            .collect()
    }

    /// A descriptor for a child.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memory.descriptor()
    }

    /// Process id of the cell.
    pub fn cell(&self) -> u32 {
        self.header().cell.load(Ordering::Acquire)
    }

    pub fn generation(&self) -> u32 {
        self.header().generation.load(Ordering::Acquire)
    }

    /// Before a worker process is started.
    pub(crate) fn set_generation(&self, generation: u32) {
        self.header().generation.store(generation, Ordering::Release);
    }

    pub(crate) fn shall_stop(&self) -> bool {
        self.header().stop.load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_stop(&self, stop: bool) {
        self.header().stop.store(u32::from(stop), Ordering::Release);
    }
}

/// Opens a memory of these bytes as the worker does, and reads what is in each camera's channel as
/// the cell does: whole frames and answers that either are one or say why they are none. Returns
/// how many of each. For tests and fuzzing.
///
/// # Errors
/// The bytes are no shared memory of this program.
pub fn read_image(bytes: &[u8]) -> io::Result<(usize, usize)> {
    let memory = Memory::create(bytes.len().max(HEADER_BYTES))?;
    let place = memory.at(0, bytes.len()).ok_or_else(|| invalid("too small"))?;
    // SAFETY: the range is inside the memory, and nobody else knows of it yet.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
    let region = Region::open(memory.descriptor()?)?;
    let generation = region.generation();
    let (mut frames, mut answers) = (0, 0);
    for channel in region.channels()? {
        let (mut asker, answerer) = (Asker::new(channel.again()), Answerer::new(channel, generation));
        while let Some(taken) = answerer.take() {
            let view = taken.seen().view;
            frames += usize::from(view.rgb.len() == view.depth_mm.len() * 3);
        }
        // No answer bears the ticket of a question that was never asked, so that each is a late
        // one.
        asker.wait(0, 0, || true, |_, answer| answers += usize::from(answer.is_some()));
    }
    Ok((frames, answers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        let camera = |width| Intrinsics { width, height: 9, fx: 10.5, fy: 11.25, cx: 8.0, cy: 4.5 };
        let rr = Policy::RoundRobin { priority: 50 };
        let runtime = std::time::Duration::from_millis(5);
        Setup {
            device: Device::Tensorrt,
            perception: PerceptionConfig::default(),
            cameras: vec![camera(16), camera(31)],
            threads: ThreadSettings {
                policy: Policy::Deadline {
                    runtime,
                    deadline: runtime * 6,
                    period: runtime * 6,
                    reclaim: true,
                },
                ..ThreadSettings::default()
            },
            library_policy: rr,
        }
    }

    #[test]
    fn the_child_reads_what_the_cell_wrote() {
        let region = Region::create(setup()).unwrap();
        region.set_generation(3);
        let child = Region::open(region.descriptor().unwrap()).unwrap();
        assert_eq!(child.setup, setup());
        assert_eq!((child.cell(), child.generation()), (std::process::id(), 3));
        assert_eq!(child.channels().unwrap().len(), 2);
        region.set_stop(true);
        assert!(child.shall_stop());
    }

    #[test]
    fn another_memory_is_refused_with_a_reason() {
        let other = Memory::create(8192).unwrap();
        let message = Region::open(other.descriptor().unwrap()).unwrap_err().to_string();
        assert!(message.contains("magic"), "{message}");
        let mut absurd = setup();
        absurd.cameras[0].width = u32::MAX;
        assert!(Region::create(absurd).unwrap_err().to_string().contains("accepted"));
    }

    /// A memory whose setup is this text.
    fn memory_of(text: &[u8], reported: u64) -> Memory {
        let memory = Memory::create(1 << 16).unwrap();
        let header: NonNull<Header> = memory.at(0, HEADER_BYTES).unwrap().cast();
        // SAFETY: inside the mapping and aligned; atomics are valid for every bit pattern.
        let header = unsafe { header.as_ref() };
        header.magic.store(MAGIC, Ordering::Relaxed);
        header.layout.store(LAYOUT, Ordering::Relaxed);
        header.setup_bytes.store(reported, Ordering::Relaxed);
        let place = memory.at(HEADER_BYTES, text.len()).unwrap();
        // SAFETY: inside the mapping, and this test alone knows of it.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), place.as_ptr(), text.len()) };
        memory
    }

    #[test]
    fn sizes_that_the_memory_reports_are_checked_like_those_of_the_configuration() {
        let opened = |setup: &Setup, more: u64| {
            let text = serde_json::to_vec(setup).unwrap();
            Region::open(memory_of(&text, text.len() as u64 + more).descriptor().unwrap())
        };
        assert_eq!(opened(&setup(), 0).unwrap().channels().unwrap().len(), 2);
        // The product of such sizes is a small number where it overflows.
        let mut absurd = setup();
        (absurd.cameras[0].width, absurd.cameras[0].height) = (u32::MAX, u32::MAX);
        assert!(opened(&absurd, 0).unwrap_err().to_string().contains("accepted"));
        for more in [1 << 16, u64::MAX >> 1] {
            assert!(opened(&setup(), more).unwrap_err().to_string().contains("outside"));
        }
    }

    #[test]
    fn what_changes_in_the_memory_later_moves_no_channel() {
        let region = Region::create(setup()).unwrap();
        region.header().setup_bytes.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(region.channels().unwrap().len(), 2);
    }
}
