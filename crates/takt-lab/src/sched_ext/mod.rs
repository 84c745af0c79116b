//! A scheduler for ordinary threads, from outside the kernel (sched_ext,
//! Documentation/scheduler/sched-ext.rst): the smallest one, which consists of a name. All that it
//! leaves out the kernel does by its defaults: one queue for all CPUs, first come first served, a
//! slice of 20 ms. The kernel's own tests have the same one (`minimal.bpf.c`).
//!
//! Threads with a real-time policy or a reservation are not concerned.

mod btf;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use btf::Btf;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const BTF_LOAD: libc::c_int = 18;
const LINK_CREATE: libc::c_int = 28;
/// `BPF_MAP_TYPE_STRUCT_OPS`.
const STRUCT_OPS_MAP: u32 = 26;
/// `BPF_STRUCT_OPS` of `enum bpf_attach_type`.
const AT_STRUCT_OPS: u32 = 44;
/// `BPF_F_LINK`: in force as long as a link to it is open.
const BY_LINK: u32 = 1 << 13;

/// The kernel's types of it: the table of a scheduler, and the map's value around it.
const OPERATIONS: &str = "sched_ext_ops";
const VALUE: &str = "bpf_struct_ops_sched_ext_ops";

const STATE: &str = "/sys/kernel/sched_ext/state";
/// Name of the scheduler in the kernel and its tools.
const NAME: &str = "takt_fifo";

/// The scheduler in force; dropping it brings the kernel's own back.
#[derive(Debug)]
pub struct SchedExt {
    _link: OwnedFd,
    _map: OwnedFd,
}

/// Reason why it is not available.
#[derive(Debug, thiserror::Error)]
pub enum SchedExtError {
    /// The kernel was built without it, or is too old.
    #[error("this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT, since 6.12): {missing} is missing")]
    Missing { missing: String },
    /// Another scheduler is in force.
    #[error("a sched_ext scheduler is already running ({name}). Fix: stop it")]
    InForce { name: String },
    /// The kernel refused.
    #[error("sched_ext: {step}: {source}")]
    Refused { step: &'static str, source: io::Error },
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
    interface: u32,
    btf: u32,
    btf_key: u32,
    btf_value: u32,
    kernel_value: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    data: u64,
    log: u64,
    bytes: u32,
    log_bytes: u32,
    log_level: u32,
}

#[repr(C)]
struct LinkCreate {
    map: u32,
    target: u32,
    attach: u32,
    flags: u32,
}

/// Calls bpf(2).
///
/// # Safety
/// The pointers in `attributes` are valid for what `command` does with them.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the attributes are whole and writable, and their size is given; the kernel takes what
    // lies behind it for zero.
    let rc = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>() as libc::c_uint)
    };
    match libc::c_int::try_from(rc) {
        Ok(rc) if rc >= 0 => Ok(rc),
        _ => Err(io::Error::last_os_error()),
    }
}

fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The least description of types that the kernel takes: one int. Maps with types of the kernel
/// must come with one, whatever it says.
fn least_btf() -> Vec<u8> {
    let strings = b"\0int\0";
    let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&[1, 0]);
    // Header's length; place and length of types and of strings; an int: name, kind, size, signed
    // and 32 bits wide.
    let words = [24, 0, 16, 16, strings.len() as u32, 1, 1 << 24, 4, 1 << 24 | 32];
    words.iter().for_each(|word: &u32| bytes.extend_from_slice(&word.to_ne_bytes()));
    bytes.extend_from_slice(strings);
    bytes
}

/// The map's value: zeros but for the name. With the number of its type.
fn value(btf: &Btf<'_>) -> Result<(u32, Vec<u8>), SchedExtError> {
    let missing = |what: &str| SchedExtError::Missing { missing: format!("struct {what}") };
    let (whole, operations) = (btf.structure(VALUE), btf.structure(OPERATIONS));
    let (whole, operations) =
        (whole.ok_or_else(|| missing(VALUE))?, operations.ok_or_else(|| missing(OPERATIONS))?);
    let place = whole.offset("data").zip(operations.offset("name")).map(|(data, name)| data + name);
    let mut bytes = vec![0; whole.bytes];
    let to = place.and_then(|at| bytes.get_mut(at..at + NAME.len())).ok_or_else(|| missing(OPERATIONS))?;
    to.copy_from_slice(NAME.as_bytes());
    Ok((whole.id, bytes))
}

impl SchedExt {
    /// Puts it in force for all ordinary threads of the machine.
    ///
    /// # Errors
    /// [`SchedExtError`]; nothing has changed then.
    pub fn start() -> Result<Self, SchedExtError> {
        let state =
            fs::read_to_string(STATE).map_err(|_| SchedExtError::Missing { missing: STATE.to_owned() })?;
        if state.trim() != "disabled" {
            let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or(state);
            return Err(SchedExtError::InForce { name: name.trim().to_owned() });
        }
        const TYPES: &str = "/sys/kernel/btf/vmlinux";
        let types = fs::read(TYPES).map_err(|_| SchedExtError::Missing { missing: TYPES.to_owned() })?;
        let btf = Btf::parse(&types).ok_or_else(|| SchedExtError::Missing { missing: TYPES.to_owned() })?;
        let (kernel_value, bytes) = value(&btf)?;
        let refused = |step| move |source| SchedExtError::Refused { step, source };
        let least = least_btf();
        let mut load =
            BtfLoad { data: least.as_ptr() as u64, bytes: least.len() as u32, ..BtfLoad::default() };
        // SAFETY: the description is whole, and the kernel copies it.
        let described = unsafe { bpf(BTF_LOAD, &mut load).map(owned) }.map_err(refused("types"))?;
        let mut create = MapCreate {
            kind: STRUCT_OPS_MAP,
            key_bytes: 4,
            value_bytes: bytes.len() as u32,
            entries: 1,
            flags: BY_LINK,
            btf: described.as_raw_fd() as u32,
            kernel_value,
            ..MapCreate::default()
        };
        create.name[..NAME.len()].copy_from_slice(NAME.as_bytes());
        // SAFETY: the attributes hold no pointer.
        let map = unsafe { bpf(MAP_CREATE, &mut create).map(owned) }.map_err(refused("map"))?;
        let key = 0_u32;
        let mut element = MapElement {
            fd: map.as_raw_fd() as u32,
            key: (&raw const key) as u64,
            value: bytes.as_ptr() as u64,
            ..MapElement::default()
        };
        // SAFETY: key and value have the map's sizes, and the kernel only reads them.
        unsafe { bpf(MAP_UPDATE, &mut element) }.map_err(refused("value"))?;
        let mut create =
            LinkCreate { map: map.as_raw_fd() as u32, target: 0, attach: AT_STRUCT_OPS, flags: 0 };
        // SAFETY: the attributes hold no pointer.
        let link = unsafe { bpf(LINK_CREATE, &mut create).map(owned) }.map_err(refused("link"))?;
        Ok(Self { _link: link, _map: map })
    }

    /// The scheduler that the kernel shows in force: the name of ours while it lives.
    #[must_use]
    pub fn in_force() -> Option<String> {
        let state = fs::read_to_string(STATE).ok()?;
        let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").ok()?;
        (state.trim() == "enabled").then(|| name.trim().to_owned())
    }

    /// Whether it is ours that is in force: the kernel throws a scheduler out that starves threads.
    #[must_use]
    pub fn holds(&self) -> bool {
        Self::in_force().is_some_and(|name| name.starts_with(NAME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_description_is_one() {
        let bytes = least_btf();
        assert!(Btf::parse(&bytes).unwrap().structure("int").is_none());
        assert_eq!(bytes.len(), 24 + 16 + 5);
    }

    #[test]
    fn a_kernel_without_it_is_refused_with_what_is_missing() {
        let bytes = least_btf();
        let error = value(&Btf::parse(&bytes).unwrap()).unwrap_err();
        assert!(error.to_string().contains(VALUE) && error.to_string().contains("CONFIG_SCHED_CLASS_EXT"));
        if !std::path::Path::new(STATE).exists() {
            assert!(matches!(SchedExt::start(), Err(SchedExtError::Missing { .. })));
            assert_eq!(SchedExt::in_force(), None);
        }
    }
}
