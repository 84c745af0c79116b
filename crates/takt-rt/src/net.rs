//! Network interfaces as the sockets of this thread see them, and network namespaces that die with
//! their process.
//!
//! `/sys/class/net` shows the network namespace of whoever mounted it, not that of the thread that
//! reads it (sysfs(5)): in a namespace of its own a thread finds interfaces there that it has not,
//! and misses those that it has. A socket's answer is right.

use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

/// The kernel's description of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// Number within the namespace.
    pub index: u32,
    /// `IFF_` flags.
    pub flags: u32,
    /// `ARPHRD_` type of the link; 1: Ethernet.
    pub link_type: u16,
}

impl Interface {
    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }
}

/// Names of the interfaces of this thread's network namespace, sorted.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: returns null, or an array that ends with an entry of index 0 and no name, to be freed
    // once.
    unsafe {
        let array = libc::if_nameindex();
        if array.is_null() {
            return names;
        }
        let mut entry = array;
        while (*entry).if_index != 0 && !(*entry).if_name.is_null() {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        libc::if_freenameindex(array);
    }
    names.sort();
    names
}

/// Describes interface `name` in this thread's network namespace.
///
/// # Errors
/// `NotFound` where there is none of this name; what the system says.
pub fn interface(name: &str) -> io::Result<Interface> {
    let none = || io::Error::from(io::ErrorKind::NotFound);
    let c_name = CString::new(name).map_err(|_| none())?;
    // SAFETY: the name ends with NUL.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    if index == 0 {
        return Err(none());
    }
    let socket = any_socket()?;
    let mut request = request(name);
    ioctl(&socket, SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has filled in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags } as u16;
    ioctl(&socket, SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel has filled in the hardware address, whose family is the type of the link.
    let link_type = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
    Ok(Interface { index, flags: flags.into(), link_type })
}

/// Bus address (`0000:02:00.0`) of the device of interface `name`, as its driver reports it. `None`
/// for interfaces without a device behind them (veth, bridges, loopback) and drivers that do not
/// report.
///
/// # Errors
/// The system's error.
pub fn bus_address(name: &str) -> io::Result<Option<String>> {
    let mut info = DriverInfo { command: GET_DRIVER_INFO, text: [0; DRIVER_INFO_TEXT] };
    ethtool(name, &mut info)?;
    let bus = &info.text[BUS_AT..BUS_AT + BUS_LENGTH];
    let bus = bus.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let bus = String::from_utf8_lossy(bus).into_owned();
    Ok((!bus.is_empty() && bus != "N/A").then_some(bus))
}

/// Asks the driver of interface `name` (SIOCETHTOOL): `request` is one of the structures of
/// linux/ethtool.h, whose first number names it.
///
/// # Errors
/// The system's error.
pub fn ethtool<T: EthtoolRequest>(name: &str, asked: &mut T) -> io::Result<()> {
    let socket = any_socket()?;
    let mut request = request(name);
    request.ifr_ifru.ifru_data = std::ptr::from_mut(asked).cast::<c_char>();
    ioctl(&socket, SIOCETHTOOL, &mut request)
}

/// A structure of linux/ethtool.h.
///
/// # Safety
/// It is plain data, begins with the command's number, and is as long as the kernel's structure of
/// that command.
pub unsafe trait EthtoolRequest {}

const SIOCGIFFLAGS: libc::c_ulong = 0x8913;
const SIOCGIFHWADDR: libc::c_ulong = 0x8927;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// `ETHTOOL_GDRVINFO`.
const GET_DRIVER_INFO: u32 = 3;
/// `struct ethtool_drvinfo` behind its command: driver, version, firmware, bus (32 bytes each), and
/// 64 more.
const DRIVER_INFO_TEXT: usize = 192;
const BUS_AT: usize = 96;
const BUS_LENGTH: usize = 32;

#[repr(C)]
struct DriverInfo {
    command: u32,
    text: [u8; DRIVER_INFO_TEXT],
}

// SAFETY: 196 bytes, as struct ethtool_drvinfo of linux/ethtool.h, and plain data.
unsafe impl EthtoolRequest for DriverInfo {}

fn any_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are involved.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0.
    let longest = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..longest].iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    request
}

fn ioctl(socket: &OwnedFd, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the kernel reads and writes an ifreq, and behind its pointer what the caller put
    // there for this request.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what as _, std::ptr::from_mut(request)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A network namespace that nothing but this value holds: it goes, with every interface in it, when
/// the value is dropped or the process ends in any way, SIGKILL included. Threads and sockets made
/// in it hold it too, for as long as they live.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// Makes an empty one.
    ///
    /// # Errors
    /// The system's error; without CAP_SYS_ADMIN, `PermissionDenied`.
    pub fn new() -> io::Result<Self> {
        // A thread of its own: the caller's namespace stays.
        let made = std::thread::Builder::new().name("takt-netns".into()).spawn(|| {
            // SAFETY: takes no pointers, and concerns this thread alone.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => File::open("/proc/thread-self/ns/net"),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        let file = made.join().map_err(|_| io::Error::other("the thread that creates it panicked"))??;
        Ok(Self { file })
    }

    /// Runs `body` in a thread within the namespace: sockets that it opens and programs that it
    /// starts belong there.
    ///
    /// # Errors
    /// The system's error.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let inside = std::thread::Builder::new().name("takt-netns".into()).spawn_scoped(scope, || {
                // SAFETY: the descriptor is open; concerns this thread alone.
                match unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) } {
                    0 => Ok(body()),
                    _ => Err(io::Error::last_os_error()),
                }
            })?;
            inside.join().unwrap_or_else(|_| Err(io::Error::other("panicked within the network namespace")))
        })
    }

    /// A path by which a program that this process starts can name the namespace
    /// (`ip link set DEV netns PATH`).
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_known_and_a_name_that_no_interface_has_is_not() {
        assert!(names().contains(&"lo".to_owned()));
        let lo = interface("lo").unwrap();
        assert!(lo.index > 0 && lo.link_type == libc::ARPHRD_LOOPBACK);
        assert_eq!(bus_address("lo").ok().flatten(), None);
        for name in ["takt-none", "", "a\0b", "a name that is longer than any"] {
            assert_eq!(interface(name).unwrap_err().kind(), io::ErrorKind::NotFound, "{name:?}");
        }
    }

    #[test]
    fn in_a_namespace_the_socket_knows_what_sysfs_does_not() {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => return takt_witness::skip!("no network namespace: {error}"),
        };
        let (seen, lo) = namespace.run(|| (names(), interface("lo").unwrap())).unwrap();
        assert_eq!(seen, ["lo"], "nothing of the host's");
        assert!(!lo.is_up(), "a new namespace's loopback is down, whatever the host's is");
        assert!(namespace.run(|| panic!("inside")).is_err());
        assert!(namespace.path().exists());
    }
}
