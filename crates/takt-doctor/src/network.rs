//! Network interfaces of a field bus: what holds a frame back.

use std::ffi::c_char;
use std::io;

use crate::report::Check;
use crate::tree::Tree;

/// `ETHTOOL_GCOALESCE` (linux/ethtool.h).
const GET_COALESCE: u32 = 0x0e;
/// `ETHTOOL_GGRO`.
const GET_GRO: u32 = 0x2b;
/// `SIOCETHTOOL` (linux/sockios.h).
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// `struct ethtool_coalesce`: 23 numbers; 1 is rx-usecs, 5 is tx-usecs.
type Coalesce = [u32; 23];

/// What is known of an interface; `None` where its driver does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    name: String,
    /// Microseconds for which received and sent frames are held back.
    coalesce_us: Option<(u32, u32)>,
    /// Whether received frames are merged before the stack sees them.
    merges: Option<bool>,
}

/// Asks the driver of `name`.
fn ask<T>(socket: libc::c_int, name: &str, request: &mut T) -> io::Result<()> {
    // SAFETY: ifreq is plain data, for which zeros are a value.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0.
    let room = ifreq.ifr_name.len() - 1;
    for (to, from) in ifreq.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    ifreq.ifr_ifru.ifru_data = std::ptr::from_mut(request).cast();
    // SAFETY: the kernel reads and writes an ifreq, and behind its pointer the structure that the request's first
    // number names; both outlive the call.
    match unsafe { libc::ioctl(socket, SIOCETHTOOL as _, &raw mut ifreq) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn read(name: &str) -> io::Result<Interface> {
    // SAFETY: no pointers are involved.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut coalesce: Coalesce = [0; 23];
    coalesce[0] = GET_COALESCE;
    let coalesce_us = ask(socket, name, &mut coalesce).ok().map(|()| (coalesce[1], coalesce[5]));
    let mut gro = [GET_GRO, 0u32];
    let merges = ask(socket, name, &mut gro).ok().map(|()| gro[1] != 0);
    // SAFETY: the socket was opened above and is used by nobody else.
    unsafe { libc::close(socket) };
    Ok(Interface { name: name.to_owned(), coalesce_us, merges })
}

/// Whether interfaces with a device behind them hand every frame on at once.
pub(crate) fn coalescing(tree: &Tree) -> Check {
    let check = Check::new(
        "network",
        "Network interfaces",
        "an interface that waits for more frames before it interrupts adds that time to every cycle of a field bus; merging \
         of received frames is for streams",
    );
    let names = tree.names("/sys/class/net");
    let mut real: Vec<String> =
        names.into_iter().filter(|name| tree.exists(&format!("/sys/class/net/{name}/device"))).collect();
    real.sort();
    if real.is_empty() {
        return check.ok("no network interface with a device behind it");
    }
    if !tree.is_live() {
        return check
            .unknown(format!("{} in a copy: drivers can be asked on the machine itself", real.join(", ")));
    }
    judge(check, real.iter().filter_map(|name| read(name).ok()).collect())
}

fn judge(check: Check, interfaces: Vec<Interface>) -> Check {
    let words = |i: &Interface| {
        let coalesce = match i.coalesce_us {
            Some((rx, tx)) => format!("holds frames for {rx} us (received) and {tx} us (sent)"),
            None => "its driver tells nothing of coalescing".to_owned(),
        };
        let merges = match i.merges {
            Some(true) => ", merges received frames (GRO)",
            Some(false) => ", merges nothing",
            None => "",
        };
        format!("{} {coalesce}{merges}", i.name)
    };
    let evidence: Vec<String> = interfaces.iter().map(words).collect();
    if evidence.is_empty() {
        return check.unknown("no interface could be asked");
    }
    let held = |i: &&Interface| i.coalesce_us.is_some_and(|(rx, tx)| rx > 0 || tx > 0);
    let fixes: Vec<String> = interfaces
        .iter()
        .filter(held)
        .map(|i| {
            format!("sudo ethtool -C {} rx-usecs 0 tx-usecs 0 (for the interface of a field bus)", i.name)
        })
        .collect();
    let check = match interfaces.iter().filter_map(|i| i.coalesce_us).map(|(rx, tx)| rx.max(tx)).max() {
        Some(longest) => check.with_number("longest_hold_us", f64::from(longest)),
        None => check,
    };
    if fixes.is_empty() {
        return check.ok(evidence.join("; "));
    }
    check.warn(evidence.join("; "), fixes.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Status;
    use crate::tree::fake;

    fn interface(coalesce_us: Option<(u32, u32)>) -> Interface {
        Interface { name: "eth1".to_owned(), coalesce_us, merges: Some(true) }
    }

    fn judged(interfaces: Vec<Interface>) -> Check {
        judge(Check::new("network", "Network interfaces", "why"), interfaces)
    }

    #[test]
    fn frames_that_are_held_back_have_a_fix() {
        let held = judged(vec![interface(Some((3, 64)))]);
        assert_eq!((held.status, held.measured["longest_hold_us"]), (Status::Warn, 64.0));
        assert!(held.fix.unwrap().contains("ethtool -C eth1 rx-usecs 0 tx-usecs 0"));
        assert!(held.evidence.contains("64 us") && held.evidence.contains("GRO"), "{}", held.evidence);
        assert_eq!(judged(vec![interface(Some((0, 0)))]).status, Status::Ok);
        assert_eq!(judged(vec![interface(None)]).status, Status::Ok);
        assert_eq!(judged(Vec::new()).status, Status::Unknown);
    }

    #[test]
    fn a_copy_of_another_machine_is_not_asked() {
        let root = fake::tree(&[
            ("/sys/class/net/eth7/device/vendor", "0x8086"),
            ("/sys/class/net/lo/mtu", "65536"),
        ]);
        let check = coalescing(&Tree::new(root.path()));
        assert_eq!(check.status, Status::Unknown);
        assert!(check.evidence.contains("eth7") && !check.evidence.contains("lo"), "{}", check.evidence);
    }

    #[test]
    fn an_interface_that_is_none_tells_nothing() {
        let none = read("nonexistent0").unwrap();
        assert_eq!((none.coalesce_us, none.merges), (None, None));
    }
}
