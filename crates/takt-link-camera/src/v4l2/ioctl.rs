//! The part of the kernel's `videodev2.h` that streaming needs, with safe functions around it.
//!
//! Layouts are those of 64-bit Linux; a test compares the request numbers, which contain the sizes.

use std::ffi::{CString, c_int, c_ulong, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

const CAPTURE: u32 = 1; // V4L2_BUF_TYPE_VIDEO_CAPTURE
const MEMORY_MMAP: u32 = 1;
const CAP_VIDEO_CAPTURE: u32 = 0x0000_0001;
const CAP_STREAMING: u32 = 0x0400_0000;
const CAP_DEVICE_CAPS: u32 = 0x8000_0000;
const CAP_TIMEPERFRAME: u32 = 0x1000;
const FLAG_ERROR: u32 = 0x0040;
const FLAG_TIMESTAMP_MASK: u32 = 0xe000;
const FLAG_TIMESTAMP_MONOTONIC: u32 = 0x2000;
const FLAG_TIMESTAMP_SOURCE_MASK: u32 = 0x0007_0000;
const FLAG_TIMESTAMP_START_OF_EXPOSURE: u32 = 0x0001_0000;

/// YUV 4:2:2.
pub const YUYV: u32 = u32::from_le_bytes(*b"YUYV");
/// Motion JPEG.
pub const MJPG: u32 = u32::from_le_bytes(*b"MJPG");

/// A format code as text.
pub fn fourcc(code: u32) -> String {
    code.to_le_bytes().iter().map(|&b| if b.is_ascii_graphic() { char::from(b) } else { '?' }).collect()
}

#[repr(C)]
struct Capability {
    driver: [u8; 16],
    card: [u8; 32],
    bus_info: [u8; 32],
    version: u32,
    capabilities: u32,
    device_caps: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct FormatDescription {
    index: u32,
    kind: u32,
    flags: u32,
    description: [u8; 32],
    pixelformat: u32,
    mbus_code: u32,
    reserved: [u32; 3],
}

/// `struct v4l2_pix_format`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PixFormat {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Format code.
    pub pixelformat: u32,
    field: u32,
    /// Bytes from one row to the next.
    pub bytesperline: u32,
    sizeimage: u32,
    colorspace: u32,
    private: u32,
    flags: u32,
    ycbcr_enc: u32,
    quantization: u32,
    xfer_func: u32,
}

#[repr(C, align(8))]
struct Format {
    kind: u32,
    pad: u32,
    pix: PixFormat,
    rest: [u8; 200 - mem::size_of::<PixFormat>()],
}

#[repr(C)]
struct StreamParameters {
    kind: u32,
    capability: u32,
    capture_mode: u32,
    numerator: u32,
    denominator: u32,
    rest: [u8; 184],
}

#[repr(C)]
struct RequestBuffers {
    count: u32,
    kind: u32,
    memory: u32,
    capabilities: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawBuffer {
    index: u32,
    kind: u32,
    bytesused: u32,
    flags: u32,
    field: u32,
    timestamp: libc::timeval,
    timecode: [u32; 4],
    sequence: u32,
    memory: u32,
    offset: u64,
    length: u32,
    reserved2: u32,
    request_fd: i32,
}

const fn request(direction: c_ulong, number: c_ulong, size: usize) -> c_ulong {
    (direction << 30) | ((size as c_ulong) << 16) | ((b'V' as c_ulong) << 8) | number
}
const WRITE: c_ulong = 1;
const READ: c_ulong = 2;
const BOTH: c_ulong = 3;
const QUERYCAP: c_ulong = request(READ, 0, mem::size_of::<Capability>());
const ENUM_FMT: c_ulong = request(BOTH, 2, mem::size_of::<FormatDescription>());
const S_FMT: c_ulong = request(BOTH, 5, mem::size_of::<Format>());
const REQBUFS: c_ulong = request(BOTH, 8, mem::size_of::<RequestBuffers>());
const QUERYBUF: c_ulong = request(BOTH, 9, mem::size_of::<RawBuffer>());
const QBUF: c_ulong = request(BOTH, 15, mem::size_of::<RawBuffer>());
const DQBUF: c_ulong = request(BOTH, 17, mem::size_of::<RawBuffer>());
const STREAMON: c_ulong = request(WRITE, 18, mem::size_of::<c_int>());
const STREAMOFF: c_ulong = request(WRITE, 19, mem::size_of::<c_int>());
const S_PARM: c_ulong = request(BOTH, 22, mem::size_of::<StreamParameters>());

/// An all-zero value.
fn zeroed<T: PlainData>() -> T {
    // SAFETY: `PlainData` types are made of integers, for which all bits zero is a value.
    unsafe { mem::zeroed() }
}

/// Argument types of the requests used here.
///
/// # Safety
/// Made of integers (and arrays of them), with the layout that the kernel expects.
unsafe trait PlainData {}
// SAFETY: all of these are `repr(C)` structures of integers, or an integer.
unsafe impl PlainData for Capability {}
// SAFETY: as above.
unsafe impl PlainData for FormatDescription {}
// SAFETY: as above.
unsafe impl PlainData for Format {}
// SAFETY: as above.
unsafe impl PlainData for StreamParameters {}
// SAFETY: as above.
unsafe impl PlainData for RequestBuffers {}
// SAFETY: as above; `timeval` is two integers.
unsafe impl PlainData for RawBuffer {}
// SAFETY: as above.
unsafe impl PlainData for c_int {}

/// An open device node.
pub struct Device {
    fd: OwnedFd,
}

impl Device {
    /// Opens the node without blocking.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| io::Error::from_raw_os_error(libc::ENOENT))?;
        // SAFETY: `path` is a C string that outlives the call.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    fn call<T: PlainData>(&self, request: c_ulong, argument: &mut T) -> io::Result<()> {
        debug_assert_eq!(((request >> 16) & 0x3fff) as usize, mem::size_of::<T>());
        loop {
            // SAFETY: the request number encodes the size of its argument, which is T's (asserted above for the
            // constants of this file), and the kernel writes no more than that into `argument`. Pointers
            // inside the arguments are not used by these requests.
            let rc = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, argument as *mut T) };
            if rc >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Whether the node captures video by streaming.
    pub fn can_stream_video(&self) -> io::Result<bool> {
        let mut caps: Capability = zeroed();
        self.call(QUERYCAP, &mut caps)?;
        let of_node =
            if caps.capabilities & CAP_DEVICE_CAPS != 0 { caps.device_caps } else { caps.capabilities };
        Ok(of_node & CAP_VIDEO_CAPTURE != 0 && of_node & CAP_STREAMING != 0)
    }

    /// Codes of the formats offered.
    pub fn formats(&self) -> Vec<String> {
        let mut found = Vec::new();
        for index in 0..64 {
            let mut description: FormatDescription = zeroed();
            (description.index, description.kind) = (index, CAPTURE);
            if self.call(ENUM_FMT, &mut description).is_err() {
                break;
            }
            found.push(fourcc(description.pixelformat));
        }
        found
    }

    /// Asks for a format; returns what the driver made of it.
    pub fn set_format(&self, width: u32, height: u32, pixelformat: u32) -> io::Result<PixFormat> {
        let mut format: Format = zeroed();
        format.kind = CAPTURE;
        format.pix = PixFormat { width, height, pixelformat, field: 1, ..PixFormat::default() };
        self.call(S_FMT, &mut format)?;
        Ok(format.pix)
    }

    /// Asks for a frame rate; returns what the driver made of it, `None` where it has no such setting.
    pub fn set_rate(&self, fps: u32) -> io::Result<Option<f64>> {
        let mut parameters: StreamParameters = zeroed();
        (parameters.kind, parameters.numerator, parameters.denominator) = (CAPTURE, 1, fps);
        match self.call(S_PARM, &mut parameters) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Ok(None),
            Err(e) => Err(e),
            Ok(()) if parameters.capability & CAP_TIMEPERFRAME == 0 || parameters.numerator == 0 => Ok(None),
            Ok(()) => Ok(Some(f64::from(parameters.denominator) / f64::from(parameters.numerator))),
        }
    }
}

/// A buffer mapped into this process.
struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `length` are those of a successful mmap, unmapped only here.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// A device that streams into mapped buffers.
pub struct Stream {
    // Order of the fields: buffers are unmapped before the device is closed.
    mappings: Vec<Mapping>,
    device: Device,
    format: PixFormat,
}

// SAFETY: the mappings belong to this value alone and have no tie to a thread.
unsafe impl Send for Stream {}

/// A filled buffer that the driver has handed over; it must be given back.
pub struct Filled(RawBuffer);

impl Filled {
    /// Whether the driver marks the data as broken.
    pub fn is_broken(&self) -> bool {
        self.0.flags & FLAG_ERROR != 0 || self.0.bytesused == 0
    }

    /// The driver's count of frames, from 1; dropped frames leave gaps.
    pub fn sequence(&self) -> u64 {
        u64::from(self.0.sequence) + 1
    }

    /// Time of capture in nanoseconds of CLOCK_MONOTONIC, where the driver stamps with that clock.
    pub fn capture_ns(&self) -> Option<u64> {
        if self.0.flags & FLAG_TIMESTAMP_MASK != FLAG_TIMESTAMP_MONOTONIC {
            return None;
        }
        let seconds = u64::try_from(self.0.timestamp.tv_sec).ok()?;
        let micros = u64::try_from(self.0.timestamp.tv_usec).ok()?;
        Some(seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000)))
    }

    /// Whether the stamp is that of the exposure's start (webcams), and not of the last byte (the kernel's default).
    pub fn is_stamped_at_exposure(&self) -> bool {
        self.0.flags & FLAG_TIMESTAMP_SOURCE_MASK == FLAG_TIMESTAMP_START_OF_EXPOSURE
    }
}

fn buffer(index: u32) -> RawBuffer {
    let mut buffer: RawBuffer = zeroed();
    (buffer.index, buffer.kind, buffer.memory) = (index, CAPTURE, MEMORY_MMAP);
    buffer
}

impl Stream {
    /// Maps buffers, hands them to the driver and starts.
    pub fn start(device: Device, format: PixFormat, buffers: u32) -> io::Result<Self> {
        let mut request: RequestBuffers = zeroed();
        (request.count, request.kind, request.memory) = (buffers, CAPTURE, MEMORY_MMAP);
        device.call(REQBUFS, &mut request)?;
        let mut stream = Self { mappings: Vec::new(), device, format };
        for index in 0..request.count {
            let mut buffer = buffer(index);
            stream.device.call(QUERYBUF, &mut buffer)?;
            let length = buffer.length as usize;
            // The kernel sets the 32-bit member of the union.
            let offset = (buffer.offset & 0xffff_ffff) as libc::off_t;
            // SAFETY: a fresh mapping at an address of the kernel's choice; the result is checked.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    length,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    stream.device.fd.as_raw_fd(),
                    offset,
                )
            };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            stream.mappings.push(Mapping { start, length });
            stream.device.call(QBUF, &mut buffer)?;
        }
        stream.device.call(STREAMON, &mut (CAPTURE as c_int))?;
        Ok(stream)
    }

    /// The format in use.
    pub fn format(&self) -> &PixFormat {
        &self.format
    }

    /// Waits for a frame and takes the newest there is, giving older ones back; `None` after the time-out.
    pub fn newest(&mut self, timeout: Duration) -> io::Result<Option<Filled>> {
        let mut poll = libc::pollfd { fd: self.device.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout_ms = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        loop {
            // SAFETY: one valid pollfd.
            let rc = unsafe { libc::poll(&mut poll, 1, timeout_ms) };
            if rc == 0 {
                return Ok(None);
            }
            if rc > 0 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if poll.revents & libc::POLLIN == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let mut newest: Option<Filled> = None;
        loop {
            let mut next = buffer(0);
            match self.device.call(DQBUF, &mut next) {
                Ok(()) => {
                    if let Some(older) = newest.replace(Filled(next)) {
                        self.give_back(older)?;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(newest),
                Err(e) => return Err(e),
            }
        }
    }

    /// The bytes of a filled buffer.
    pub fn data(&self, filled: &Filled) -> &[u8] {
        let Some(mapping) = self.mappings.get(filled.0.index as usize) else { return &[] };
        let length = (filled.0.bytesused as usize).min(mapping.length);
        // SAFETY: the mapping is readable over `mapping.length` bytes and lives as long as `self`; the driver
        // does not write to a buffer between handing it over and getting it back.
        unsafe { std::slice::from_raw_parts(mapping.start.cast::<u8>(), length) }
    }

    /// Returns a buffer to the driver.
    pub fn give_back(&mut self, filled: Filled) -> io::Result<()> {
        self.device.call(QBUF, &mut buffer(filled.0.index))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Fails when the camera is gone already.
        let _ = self.device.call(STREAMOFF, &mut (CAPTURE as c_int));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of videodev2.h, compiled on x86-64; they contain the sizes of the structures.
    #[test]
    fn request_numbers_are_the_kernels() {
        for (ours, kernel) in [
            (QUERYCAP, 0x8068_5600),
            (ENUM_FMT, 0xc040_5602),
            (S_FMT, 0xc0d0_5605),
            (REQBUFS, 0xc014_5608),
            (QUERYBUF, 0xc058_5609),
            (QBUF, 0xc058_560f),
            (DQBUF, 0xc058_5611),
            (STREAMON, 0x4004_5612),
            (STREAMOFF, 0x4004_5613),
            (S_PARM, 0xc0cc_5616),
        ] {
            assert_eq!(ours, kernel, "{ours:#x}");
        }
        assert_eq!(mem::offset_of!(RawBuffer, timestamp), 24);
        assert_eq!(mem::offset_of!(RawBuffer, sequence), 56);
        assert_eq!(mem::offset_of!(RawBuffer, offset), 64);
        assert_eq!(mem::offset_of!(Format, pix), 8);
    }

    #[test]
    fn time_stamps_of_other_clocks_are_not_used() {
        let mut raw = buffer(0);
        raw.timestamp = libc::timeval { tv_sec: 2, tv_usec: 5 };
        assert_eq!(Filled(raw).capture_ns(), None);
        raw.flags = FLAG_TIMESTAMP_MONOTONIC;
        assert_eq!(Filled(raw).capture_ns(), Some(2_000_005_000));
        assert!(!Filled(raw).is_stamped_at_exposure(), "the end of the frame is the kernel's default");
        raw.flags |= FLAG_TIMESTAMP_START_OF_EXPOSURE;
        assert!(Filled(raw).is_stamped_at_exposure());
        assert_eq!(Filled(raw).capture_ns(), Some(2_000_005_000));
        raw.timestamp.tv_sec = -1;
        assert_eq!(Filled(raw).capture_ns(), None);
        assert_eq!(fourcc(MJPG), "MJPG");
    }
}
