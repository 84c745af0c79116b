//! Network interfaces of a field bus: what holds a frame back.

use takt_rt::net::{self, EthtoolRequest};

use crate::doctor::report::Check;
use crate::doctor::tree::Tree;

/// `ETHTOOL_GCOALESCE` (linux/ethtool.h).
const GET_COALESCE: u32 = 0x0e;
/// `ETHTOOL_GGRO`.
const GET_GRO: u32 = 0x2b;

/// `struct ethtool_coalesce`: 23 numbers; 1 is rx-usecs, 5 is tx-usecs.
type Coalesce = [u32; 23];

/// Properties of an interface; `None` if its driver does not report them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    name: String,
    /// Microseconds for which received and sent frames are held back.
    coalesce_us: Option<(u32, u32)>,
    /// Whether received frames are merged before the stack sees them.
    merges: Option<bool>,
}

#[repr(C)]
struct Coalescing(Coalesce);

// SAFETY: as long as struct ethtool_coalesce of linux/ethtool.h, and plain numbers.
unsafe impl EthtoolRequest for Coalescing {}

/// `struct ethtool_value`.
#[repr(C)]
struct Value([u32; 2]);

// SAFETY: as struct ethtool_value of linux/ethtool.h.
unsafe impl EthtoolRequest for Value {}

fn read(name: &str) -> Interface {
    let mut coalesce = Coalescing([0; 23]);
    coalesce.0[0] = GET_COALESCE;
    let coalesce_us = net::ethtool(name, &mut coalesce).ok().map(|()| (coalesce.0[1], coalesce.0[5]));
    let mut gro = Value([GET_GRO, 0]);
    let merges = net::ethtool(name, &mut gro).ok().map(|()| gro.0[1] != 0);
    Interface { name: name.to_owned(), coalesce_us, merges }
}

/// Names of the interfaces with a device behind them.
///
/// On the running system the sockets are asked, and `/sys` is believed only of an interface that
/// has the same number there: it may show another network namespace than this program's.
fn with_device(tree: &Tree) -> Vec<String> {
    let in_sys = |name: &str| tree.exists(&format!("/sys/class/net/{name}/device"));
    if !tree.is_live() {
        return tree.names("/sys/class/net").into_iter().filter(|name| in_sys(name)).collect();
    }
    let same = |name: &str| {
        let number = tree.number(&format!("/sys/class/net/{name}/ifindex"));
        net::interface(name).is_ok_and(|interface| number == Some(interface.index.into()))
    };
    let has_device =
        |name: &String| net::bus_address(name).ok().flatten().is_some() || (same(name) && in_sys(name));
    net::names().into_iter().filter(has_device).collect()
}

/// Whether interfaces with a device behind them hand every frame on at once.
pub(crate) fn coalescing(tree: &Tree) -> Check {
    let check = Check::new(
        "network",
        "Network interfaces",
        "an interface that waits for more frames before it interrupts adds that time to every cycle of a field bus; merging received \
         frames helps only streams",
    );
    let mut real = with_device(tree);
    real.sort();
    if real.is_empty() {
        return check.ok("no network interface with a device behind it");
    }
    if !tree.is_live() {
        return check.unknown(format!(
            "{} in a copy: drivers can be queried only on the machine itself",
            real.join(", ")
        ));
    }
    judge(check, real.iter().map(|name| read(name)).collect())
}

fn judge(check: Check, interfaces: Vec<Interface>) -> Check {
    let words = |i: &Interface| {
        let coalesce = match i.coalesce_us {
            Some((rx, tx)) => format!("holds frames for {rx} us (received) and {tx} us (sent)"),
            None => "its driver does not report coalescing".to_owned(),
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
        return check.unknown("no interface could be queried");
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
    use crate::doctor::report::Status;
    use crate::doctor::tree::fake;

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
    fn another_namespaces_devices_are_not_reported() {
        let namespace = match net::Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => return takt_witness::skip!("no network namespace: {error}"),
        };
        // /sys still shows the devices of the machine there.
        let shown = namespace.run(|| with_device(&Tree::new(std::path::Path::new("/")))).unwrap();
        assert_eq!(shown, Vec::<String>::new());
    }

    #[test]
    fn an_interface_that_is_none_reports_nothing() {
        let none = read("nonexistent0");
        assert_eq!((none.coalesce_us, none.merges), (None, None));
    }
}
