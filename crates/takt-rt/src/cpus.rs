//! The CPUs of the machine, and which of them a real-time thread should have.
//!
//! The affinity mask that a process inherits leaves out the CPUs of `isolcpus=`: the kernel starts
//! everything on the others, and only a thread that names an isolated CPU comes there. So the CPUs
//! to choose from are the machine's (`/sys/devices/system/cpu/{online,isolated,nohz_full}`), as far
//! as the process's cpuset permits them.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::placement::{self, CpuSet};

const CPUS: &str = "/sys/devices/system/cpu";

/// The CPUs of the machine, and those that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCpus {
    /// Online.
    pub online: CpuSet,
    /// Taken out of load balancing (`isolcpus=`, isolated partitions of cpusets).
    pub isolated: CpuSet,
    /// Without a tick while one task runs (`nohz_full=`).
    pub nohz_full: CpuSet,
    /// CPUs that this process may use: those that it inherited, and the isolated ones that its
    /// cpuset permits.
    pub usable: CpuSet,
}

/// CPUs of the most critical loop and of its companions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// One CPU, for the most critical loop alone.
    pub own: CpuSet,
    /// For the robot's other tasks.
    pub rest: CpuSet,
}

impl MachineCpus {
    /// Reads the machine's lists and asks the kernel what this process may use.
    ///
    /// # Errors
    /// When the kernel does not report which CPUs are online.
    pub fn read() -> Result<Self, Error> {
        let online = placement::online()?;
        let inherited = placement::affinity(0)?;
        let permitted = permitted().unwrap_or(inherited);
        Ok(Self::of(online, list("isolated"), list("nohz_full"), inherited, permitted))
    }

    /// From the lists, the affinity that the process inherited, and what its cpuset permits.
    ///
    /// An affinity that names an isolated CPU was chosen by somebody who knew of the isolation, and
    /// holds as it is.
    pub fn of(
        online: CpuSet,
        isolated: CpuSet,
        nohz_full: CpuSet,
        inherited: CpuSet,
        permitted: CpuSet,
    ) -> Self {
        let isolated = isolated.both(&online);
        let chosen = !inherited.both(&isolated).is_empty();
        let usable = match chosen {
            true => inherited,
            false => inherited.or(&isolated.both(&permitted)),
        };
        Self { online, isolated, nohz_full: nohz_full.both(&online), usable: usable.both(&online) }
    }

    /// The isolated CPUs that this process may use.
    pub fn isolated_usable(&self) -> CpuSet {
        self.isolated.both(&self.usable)
    }

    /// A CPU for the most critical loop alone, and those for the robot's other tasks; `None` where
    /// there is only one to use.
    ///
    /// Isolated CPUs first, those without a tick before the others. With two or more of them the
    /// other tasks get what is left of them, as in *PREEMPT_RT for UAVs* (isolcpus=2,3: attitude
    /// loop on 2, everything else of the flight on 3); with one they stay on the CPUs of all.
    /// Without isolation the loop gets the highest CPU, which the firmware and most interrupts
    /// leave alone.
    pub fn divide(&self) -> Option<Division> {
        if self.usable.len() < 2 {
            return None;
        }
        let isolated = self.isolated_usable();
        let tickless = self.nohz_full.both(&self.usable);
        let first = |set: CpuSet| set.iter().next();
        let own = first(isolated.both(&tickless))
            .or_else(|| first(isolated))
            .or_else(|| tickless.iter().last())
            .or_else(|| self.usable.iter().last())?;
        let own = CpuSet::from_cpus([own])?;
        let rest = match isolated.without(&own) {
            CpuSet::EMPTY => self.usable.without(&own),
            others => others,
        };
        Some(Division { own, rest })
    }
}

/// A list of `/sys/devices/system/cpu`; empty where the kernel has none (`nohz_full` reads `(null)`
/// then).
fn list(name: &str) -> CpuSet {
    let text = fs::read_to_string(Path::new(CPUS).join(name)).unwrap_or_default();
    text.trim().parse().unwrap_or(CpuSet::EMPTY)
}

/// CPUs that the cpuset of this process permits. The kernel reduces an affinity to them, so a
/// separate thread asks for every CPU and reads back the rest. No file reports this in every
/// container.
fn permitted() -> Option<CpuSet> {
    let ask = || {
        placement::ask_for_all_cpus().ok()?;
        placement::affinity(0).ok()
    };
    std::thread::Builder::new().name("takt-cpus".into()).spawn(ask).ok()?.join().ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        if text.is_empty() { CpuSet::EMPTY } else { text.parse().unwrap() }
    }

    fn cpus(online: &str, isolated: &str, nohz_full: &str, inherited: &str, permitted: &str) -> MachineCpus {
        MachineCpus::of(set(online), set(isolated), set(nohz_full), set(inherited), set(permitted))
    }

    fn divided(machine: &MachineCpus) -> (String, String) {
        let division = machine.divide().unwrap();
        (division.own.to_string(), division.rest.to_string())
    }

    #[test]
    fn isolated_cpus_are_usable_although_no_process_inherits_them() {
        let machine = cpus("0-1", "1", "", "0", "0-1");
        assert_eq!(machine.usable, set("0-1"));
        assert_eq!(divided(&machine), ("1".into(), "0".into()));
        // A container's cpuset without the isolated CPU.
        assert_eq!(cpus("0-1", "1", "", "0", "0").usable, set("0"));
        // Somebody placed the process on an isolated CPU (taskset): that was meant.
        assert_eq!(cpus("0-3", "2-3", "", "2", "0-3").usable, set("2"));
        // A smaller affinity without isolated CPUs is kept to, but for the isolated ones.
        assert_eq!(cpus("0-3", "3", "", "0", "0-3").usable, set("0,3"));
    }

    #[test]
    fn the_uav_papers_layout() {
        assert_eq!(divided(&cpus("0-3", "2-3", "", "0-1", "0-3")), ("2".into(), "3".into()));
        assert_eq!(divided(&cpus("0-3", "2-3", "3", "0-1", "0-3")), ("3".into(), "2".into()));
    }

    #[test]
    fn without_isolation_the_highest_cpu_is_the_loops() {
        assert_eq!(divided(&cpus("0-3", "", "", "0-3", "0-3")), ("3".into(), "0-2".into()));
        assert_eq!(divided(&cpus("0-3", "", "1", "0-3", "0-3")), ("1".into(), "0,2-3".into()));
        assert!(cpus("0-3", "", "", "2", "0-3").divide().is_none(), "nothing to divide");
        assert!(cpus("0", "", "", "0", "0").divide().is_none());
    }

    #[test]
    fn this_machine_is_read() {
        let machine = MachineCpus::read().unwrap();
        assert!(!machine.usable.is_empty() && machine.usable.without(&machine.online).is_empty());
        // The usable CPUs are those that a thread really gets.
        for cpu in machine.usable.iter() {
            let one = CpuSet::single(cpu).unwrap();
            let given = std::thread::spawn(move || {
                placement::set_affinity(0, &one).map(|()| placement::affinity(0).unwrap())
            });
            assert_eq!(given.join().unwrap().unwrap(), one);
        }
    }

    proptest! {
        #[test]
        fn a_division_is_disjoint_and_within_the_usable(
            online in 1u32..256, isolated in 0u32..256, tickless in 0u32..256, inherited in 1u32..256, permitted in 1u32..256,
        ) {
            let set = |bits: u32| CpuSet::from_cpus((0..8).filter(|cpu| bits >> cpu & 1 == 1)).unwrap();
            let machine = MachineCpus::of(set(online), set(isolated), set(tickless), set(inherited), set(permitted));
            prop_assert!(machine.usable.without(&machine.online).is_empty());
            if let Some(Division { own, rest }) = machine.divide() {
                prop_assert_eq!(own.len(), 1);
                prop_assert!(!rest.is_empty() && own.both(&rest).is_empty());
                prop_assert!(own.or(&rest).without(&machine.usable).is_empty());
                prop_assert!(machine.isolated_usable().is_empty() || machine.isolated.both(&own) == own);
            }
        }
    }
}
