//! Stress profiles: which interference, how much of it.
//!
//! In configurations a profile is a name (`"uav"`, `"cpu+disk"`, `"noise:8"`) or a table:
//!
//! ```toml
//! name = "mine"
//! require_tools = true
//! [[component]]
//! kind = "matrix"
//! workers = 4
//! [[component]]
//! kind = "memory"
//! share = 0.5
//! ```

#![deny(missing_docs)]

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use takt_rt::config::SettingError;

use crate::error::LoadError;
use crate::gpu::{GpuLoadKind, Interference};

/// The names that [`Profile::named`] knows.
pub const NAMES: &[&str] = &[
    "off",
    "uav",
    "humanoid",
    "humanoid-limited",
    "humanoid-no-disk",
    "cpu",
    "memory",
    "switch",
    "disk",
    "network",
    "gpu.compute",
    "gpu.memory",
    "gpu.copies",
    "gpu",
    "noise:N (1 to 4096)",
];

/// Most workers of one component, and most noise threads: more only exhausts pids.
const MAX_WORKERS: usize = 4096;

/// Most that `ping -l` takes (iputils).
const MAX_PRELOAD: u32 = 65_536;

/// Bytes per MiB.
const MIB: u64 = 1 << 20;

/// One kind of interference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Component {
    /// `stress-ng --matrix`: saturates arithmetic units.
    Matrix {
        /// Processes. Default 4, the UAV paper's Table 2.
        #[serde(default = "four")]
        workers: usize,
    },
    /// `stress-ng --vm`: evicts caches and fills the memory bus.
    Memory {
        /// Processes. Default 2, the UAV paper's Table 2.
        #[serde(default = "two")]
        workers: usize,
        /// Share of the *available* memory, all workers together, 0.01 to 0.9. Default 0.75, the
        /// UAV paper's Table 2. A tenth of all memory, at least 512 MiB, stays free in any case.
        #[serde(default = "three_quarters")]
        share: f64,
        /// Most memory in MiB, all workers together. Default: none but the reserve.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cap_mib: Option<u64>,
        /// One way to work on the memory (`stress-ng --vm-method`, such as `write64`), over and
        /// over on memory that stays mapped. Default: none, stress-ng's own: all ways in turn, each
        /// on memory that is mapped anew. A turn takes minutes where a processor is emulated, so
        /// that no work is counted there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        method: Option<String>,
    },
    /// `stress-ng --switch`: pairs of processes that wake each other through a pipe.
    Switch {
        /// Pairs. Default 2: more pairs than CPUs switch no faster on small computers.
        #[serde(default = "two")]
        workers: usize,
    },
    /// `stress-ng --fork`: creates and ends processes.
    Fork {
        /// Processes that fork. Default 2, as for [`Component::Switch`].
        #[serde(default = "two")]
        workers: usize,
    },
    /// `hackbench`, over and over: groups of 20 senders and 20 receivers on sockets.
    Hackbench {
        /// Groups. Default 20, the 2009 paper's `hackbench 20`.
        #[serde(default = "twenty")]
        groups: usize,
        /// Messages per sender and run. Default 100, hackbench's own.
        #[serde(default = "hundred")]
        loops: usize,
        /// Kills it so often, seconds, 1 to 3600, and starts it anew: the 2009 paper's `killall
        /// hackbench; sleep 5`. Default: never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kill_every_s: Option<u64>,
    },
    /// `dd if=/dev/zero bs=1024000 count=BLOCKS`, over and over and as fast as the disk goes: the
    /// 2009 paper's. The file has no name, so that the kernel frees it however this process ends.
    /// It wears a disk; [`Component::Disk`] has a bound.
    Dd {
        /// Blocks of 1,024,000 bytes, as many as fit into a quarter of what is free in the scratch
        /// folder. Default 1024, the paper's.
        #[serde(default = "blocks")]
        blocks: u64,
    },
    /// `du -s FOLDER`, over and over.
    Du {
        /// The folder. Default `/`, the 2009 paper's.
        #[serde(default = "root")]
        folder: PathBuf,
    },
    /// `ping -f -l PRELOAD -s BYTES localhost`: a flood of echo requests. Needs root.
    Ping {
        /// Requests that are sent before the first answer, 1 to 65536. Default 65536: the 2009
        /// paper has 100000, which today's `ping` does not take.
        #[serde(default = "most_preload")]
        preload: u32,
        /// Payload in bytes, 0 to 65507. Default 10, the paper's.
        #[serde(default = "ten")]
        payload_bytes: usize,
    },
    /// Writes one file over and over, as `dd if=/dev/zero bs=1024000` does, at a bounded rate. The
    /// file has no name, so that the kernel frees it however this process ends.
    Disk {
        /// Size of the file in MiB, at most a quarter of what is free in the scratch folder.
        /// Default 1000, the 2009 paper's `count=1024` blocks of 1,024,000 bytes.
        #[serde(default = "thousand")]
        file_mib: u64,
        /// Most MiB written per second, 1 to 10000. Default 200: keeps a disk of the kind busy that
        /// robots have, and wears none out within a day.
        #[serde(default = "two_hundred")]
        mib_per_s: u64,
    },
    /// Looks at every file below a folder, as `du -s` does, over and over, without leaving its file
    /// system.
    Walk {
        /// The folder. Default `/`, the 2009 paper's.
        #[serde(default = "root")]
        folder: PathBuf,
    },
    /// Small datagrams to an echo on the loopback interface, in place of the 2009 paper's
    /// `ping -f -s 10 localhost` (which needs a privilege).
    Network {
        /// Datagrams sent per second, 1 to 1,000,000. Default 50000: what a flood of pings reaches
        /// on a small computer.
        #[serde(default = "fifty_thousand")]
        datagrams_per_s: u64,
        /// Payload in bytes, 1 to 65507. Default 10, the 2009 paper's.
        #[serde(default = "ten")]
        payload_bytes: usize,
    },
    /// Work on a GPU, the counterpart of the noise threads, by a process of its own: as another
    /// program's work would be, it takes turns with perception in the driver's time slices whatever
    /// the priorities are. There is no stand-in: without a GPU the load does not start.
    Gpu(GpuWork),
    /// The SentryRT paper's noise threads.
    Noise {
        /// Threads.
        threads: usize,
    },
}

/// One kind of work on a GPU. Missing keys are as in [`Interference`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuWork {
    /// `compute`, `memory` or `copies`.
    pub work: GpuLoadKind,
    /// Number of the GPU.
    pub ordinal: u32,
    /// Streams, 1 to 32.
    pub streams: Option<u32>,
    /// Share of the multiprocessors that a kernel fills, 0.01 to 4.
    pub share: Option<f64>,
    /// Length of a compute kernel, microseconds, 10 to 1,000,000.
    pub kernel_us: Option<u64>,
    /// MiB that a memory kernel or a copy of one stream moves, 1 to 16384.
    pub mib: Option<u64>,
    /// Share of the time that the GPU is kept at work, 0.01 to 1.
    pub duty: Option<f64>,
}

impl GpuWork {
    fn of(work: GpuLoadKind) -> Self {
        Self { work, ..Self::default() }
    }

    /// With all that was left out.
    pub fn interference(&self) -> Interference {
        let usual = Interference::default();
        Interference {
            kind: self.work,
            ordinal: self.ordinal,
            streams: self.streams.unwrap_or(usual.streams),
            share: self.share.unwrap_or(usual.share),
            kernel_us: self.kernel_us.unwrap_or(usual.kernel_us),
            mib: self.mib.unwrap_or(usual.mib),
            duty: self.duty.unwrap_or(usual.duty),
            priority: usual.priority,
        }
    }
}

fn four() -> usize {
    4
}
fn two() -> usize {
    2
}
fn twenty() -> usize {
    20
}
fn hundred() -> usize {
    100
}
fn ten() -> usize {
    10
}
fn thousand() -> u64 {
    1000
}
fn two_hundred() -> u64 {
    200
}
fn fifty_thousand() -> u64 {
    50_000
}
fn three_quarters() -> f64 {
    0.75
}
fn blocks() -> u64 {
    1024
}
fn most_preload() -> u32 {
    MAX_PRELOAD
}
fn root() -> PathBuf {
    "/".into()
}

impl Component {
    /// The kind as written in configurations.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Matrix { .. } => "matrix",
            Self::Memory { .. } => "memory",
            Self::Switch { .. } => "switch",
            Self::Fork { .. } => "fork",
            Self::Hackbench { .. } => "hackbench",
            Self::Disk { .. } => "disk",
            Self::Walk { .. } => "walk",
            Self::Dd { .. } => "dd",
            Self::Du { .. } => "du",
            Self::Ping { .. } => "ping",
            Self::Network { .. } => "network",
            Self::Gpu(work) => match work.work {
                GpuLoadKind::Compute => "gpu.compute",
                GpuLoadKind::Memory => "gpu.memory",
                GpuLoadKind::Copies => "gpu.copies",
            },
            Self::Noise { .. } => "noise",
        }
    }

    fn validate(&self, profile: &str) -> Result<(), LoadError> {
        let component = self.kind();
        let error = |field: &str, given: String, expected: String| {
            let (profile, field) = (profile.to_owned(), field.to_owned());
            Err(LoadError::Invalid { profile, component, field, given, expected })
        };
        let within = |field, given: u64, least: u64, most: u64| {
            if (least..=most).contains(&given) {
                return Ok(());
            }
            error(field, given.to_string(), format!("{least}..={most}"))
        };
        match *self {
            Self::Matrix { workers } | Self::Switch { workers } | Self::Fork { workers } => {
                within("workers", workers as u64, 1, MAX_WORKERS as u64)
            }
            Self::Memory { workers, share, cap_mib, ref method } => {
                within("workers", workers as u64, 1, MAX_WORKERS as u64)?;
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
                if let Some(method) = method.as_ref().filter(|m| m.is_empty() || !m.chars().all(plain)) {
                    return error("method", format!("{method:?}"), "a method of stress-ng's --vm".into());
                }
                within("cap_mib", cap_mib.unwrap_or(1), 1, u64::MAX / MIB)?;
                // Also refuses NaN.
                if !(0.01..=0.9).contains(&share) {
                    return error("share", share.to_string(), "0.01..=0.9".into());
                }
                Ok(())
            }
            Self::Hackbench { groups, loops, kill_every_s } => {
                // 40 processes and file descriptors a group.
                within("groups", groups as u64, 1, 100)?;
                within("kill_every_s", kill_every_s.unwrap_or(1), 1, 3600)?;
                within("loops", loops as u64, 1, 1_000_000)
            }
            Self::Dd { blocks } => within("blocks", blocks, 1, 1 << 20),
            Self::Ping { preload, payload_bytes } => {
                within("preload", preload.into(), 1, MAX_PRELOAD.into())?;
                within("payload_bytes", payload_bytes as u64, 0, 65_507)
            }
            Self::Disk { file_mib, mib_per_s } => {
                within("file_mib", file_mib, 1, 1 << 20)?;
                within("mib_per_s", mib_per_s, 1, 10_000)
            }
            Self::Network { datagrams_per_s, payload_bytes } => {
                within("datagrams_per_s", datagrams_per_s, 1, 1_000_000)?;
                within("payload_bytes", payload_bytes as u64, 1, 65_507)
            }
            Self::Walk { .. } | Self::Du { .. } => Ok(()),
            Self::Gpu(ref work) => match work.interference().validate() {
                Ok(()) => Ok(()),
                Err(SettingError::Range { key, received, low, high }) => {
                    error(&key, received.to_string(), format!("{low}..={high}"))
                }
                Err(other) => error("work", other.to_string(), "other values".to_owned()),
            },
            Self::Noise { threads } => within("threads", threads as u64, 1, MAX_WORKERS as u64),
        }
    }
}

/// A named set of components that run together.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Profile {
    /// Name in the run directory.
    pub name: String,
    /// Whether a missing tool is an error; else built-in threads stand in where they can, and the
    /// report says so.
    pub require_tools: bool,
    /// The components.
    #[serde(rename = "component")]
    pub components: Vec<Component>,
}

impl Profile {
    /// A profile by its name: one of [`NAMES`], or several joined by `+`.
    ///
    /// # Errors
    /// [`LoadError::UnknownProfile`] lists the names.
    pub fn named(name: &str) -> Result<Self, LoadError> {
        let unknown = || LoadError::UnknownProfile { given: name.to_owned() };
        let mut components = Vec::new();
        let gpu = |kind| Component::Gpu(GpuWork::of(kind));
        for part in name.split('+') {
            let (switch, fork) = (Component::Switch { workers: two() }, Component::Fork { workers: two() });
            let memory =
                Component::Memory { workers: two(), share: three_quarters(), cap_mib: None, method: None };
            let disk = Component::Disk { file_mib: thousand(), mib_per_s: two_hundred() };
            let network = Component::Network { datagrams_per_s: fifty_thousand(), payload_bytes: ten() };
            match part {
                "off" => {}
                "uav" => components.extend([Component::Matrix { workers: four() }, memory, switch, fork]),
                // The paper's Figure 5, line by line.
                "humanoid" => components.extend([
                    Component::Dd { blocks: blocks() },
                    Component::Hackbench { groups: twenty(), loops: hundred(), kill_every_s: Some(5) },
                    Component::Ping { preload: most_preload(), payload_bytes: ten() },
                    Component::Du { folder: root() },
                ]),
                // The same of bounded rates, by threads of this process but for hackbench.
                "humanoid-limited" => components.extend([
                    disk,
                    Component::Hackbench { groups: twenty(), loops: hundred(), kill_every_s: None },
                    network,
                    Component::Walk { folder: root() },
                ]),
                // For a guest, whose file system lies in its memory.
                "humanoid-no-disk" => components.extend([
                    Component::Hackbench { groups: twenty(), loops: hundred(), kill_every_s: Some(5) },
                    Component::Ping { preload: most_preload(), payload_bytes: ten() },
                    Component::Du { folder: root() },
                ]),
                "cpu" => components.push(Component::Matrix { workers: four() }),
                "memory" => components.push(memory),
                "switch" => components.extend([switch, fork]),
                "disk" => components.extend([disk, Component::Walk { folder: root() }]),
                "network" => components.push(network),
                "gpu.compute" => components.push(gpu(GpuLoadKind::Compute)),
                "gpu.memory" => components.push(gpu(GpuLoadKind::Memory)),
                "gpu.copies" => components.push(gpu(GpuLoadKind::Copies)),
                "gpu" => {
                    components
                        .extend([GpuLoadKind::Compute, GpuLoadKind::Memory, GpuLoadKind::Copies].map(gpu));
                }
                _ => {
                    let threads = part.strip_prefix("noise:").and_then(|count| count.parse().ok());
                    components.push(Component::Noise { threads: threads.ok_or_else(unknown)? });
                }
            }
        }
        let profile = Self { name: name.to_owned(), require_tools: false, components };
        profile.validate()?;
        Ok(profile)
    }

    /// Whether there is nothing to run.
    pub fn is_off(&self) -> bool {
        self.components.is_empty()
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the field, the value and the bounds.
    pub fn validate(&self) -> Result<(), LoadError> {
        self.components.iter().try_for_each(|component| component.validate(&self.name))
    }
}

impl FromStr for Profile {
    type Err = LoadError;

    fn from_str(name: &str) -> Result<Self, LoadError> {
        Self::named(name)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    #[serde(default)]
    require_tools: bool,
    #[serde(default, rename = "component")]
    components: Vec<Component>,
}

impl<'de> Deserialize<'de> for Profile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Profile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a stress profile: one of {}, or a table", NAMES.join(", "))
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Profile, E> {
                Profile::named(name).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Profile, A::Error> {
                let Table { name, require_tools, components } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                let profile = Profile { name, require_tools, components };
                profile.validate().map_err(serde::de::Error::custom)?;
                Ok(profile)
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        load: Profile,
    }

    fn read(text: &str) -> Result<Profile, String> {
        toml::from_str::<Holder>(text).map(|holder| holder.load).map_err(|error| error.to_string())
    }

    #[test]
    fn the_papers_profile_is_its_table() {
        let kinds = |name| Profile::named(name).unwrap().components;
        let uav = kinds("uav");
        assert_eq!(uav[0], Component::Matrix { workers: 4 });
        assert_eq!(uav[1], Component::Memory { workers: 2, share: 0.75, cap_mib: None, method: None });
        assert_eq!(
            uav.iter().map(Component::kind).collect::<Vec<_>>(),
            ["matrix", "memory", "switch", "fork"]
        );
        let kinds_of = |name| kinds(name).iter().map(Component::kind).collect::<Vec<_>>();
        assert_eq!(kinds_of("humanoid"), ["dd", "hackbench", "ping", "du"]);
        let hackbench = Component::Hackbench { groups: 20, loops: 100, kill_every_s: Some(5) };
        assert_eq!(kinds("humanoid")[1], hackbench, "`killall hackbench; sleep 5`");
        assert_eq!(kinds_of("humanoid-limited"), ["disk", "hackbench", "network", "walk"]);
        assert_eq!(kinds_of("humanoid-no-disk"), ["hackbench", "ping", "du"]);
        assert!(Profile::named("off").unwrap().is_off());
        let gpu: Vec<_> = kinds("gpu+noise:1").iter().map(Component::kind).collect();
        assert_eq!(gpu, ["gpu.compute", "gpu.memory", "gpu.copies", "noise"]);
        assert_eq!(kinds("noise:3+cpu").len(), 2);
        for name in ["", "ux", "noise:", "noise:-1", "noise:0", "noise:5000", "cpu+", "uav "] {
            assert!(Profile::named(name).is_err(), "{name}");
        }
        let message = Profile::named("heavy").unwrap_err().to_string();
        assert!(message.contains("`heavy`") && message.contains("humanoid"), "{message}");
    }

    #[test]
    fn reads_names_and_tables_and_says_what_is_wrong() {
        assert_eq!(read("load = 'uav'").unwrap(), Profile::named("uav").unwrap());
        let mine = read(
            "load = { name = 'mine', component = [{ kind = 'memory', cap_mib = 64, method = 'write64' }] }",
        );
        let method = Some("write64".to_owned());
        assert_eq!(
            mine.unwrap().components,
            [Component::Memory { workers: 2, share: 0.75, cap_mib: Some(64), method }]
        );
        for (text, word) in [
            ("load = 'uavv'", "humanoid"),
            ("load = { name = 'x', components = [] }", "components"),
            ("load = { name = 'x', component = [{ kind = 'matrix', wrokers = 2 }] }", "wrokers"),
            ("load = { name = 'x', component = [{ kind = 'matrix', workers = 0 }] }", "1..=4096"),
            ("load = { name = 'x', component = [{ kind = 'memory', share = nan }] }", "0.01..=0.9"),
            ("load = { name = 'x', component = [{ kind = 'memory', share = 75 }] }", "0.01..=0.9"),
            ("load = { name = 'x', component = [{ kind = 'memory', method = 'a b' }] }", "a b"),
            ("load = { name = 'x', component = [{ kind = 'gpu', work = 'copies', duty = 2 }] }", "0.01..=1"),
            ("load = { name = 'x', component = [{ kind = 'ping', preload = 100000 }] }", "65536"),
            ("load = { name = 'x', component = [{ kind = 'dd', blocks = 0 }] }", "1..=1048576"),
            ("load = { name = 'x', component = [{ kind = 'hackbench', kill_every_s = 0 }] }", "1..=3600"),
            ("load = { name = 'x', component = [{ kind = 'gpu', wrok = 'copies' }] }", "wrok"),
            (
                "load = { name = 'x', component = [{ kind = 'network', datagrams_per_s = 9999999 }] }",
                "1000000",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(which in 0usize..15, n in 1usize..100) {
            let name = [NAMES[..14].to_vec(), vec!["uav+noise:9"]].concat()[which];
            let mut profile = Profile::named(name).unwrap();
            profile.components.push(Component::Noise { threads: n });
            let text = toml::to_string(&Holder { load: profile.clone() }).unwrap();
            prop_assert_eq!(read(&text).unwrap(), profile);
        }

        #[test]
        fn any_name_is_answered(name in "\\PC{0,20}") {
            let _ = Profile::named(&name);
        }
    }
}
