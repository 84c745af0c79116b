//! A part of the last cache for one loop alone, by the kernel's resctrl file system
//! (Documentation/filesystems/resctrl.rst; Intel CAT, AMD QoS): the loop's thread goes into a group
//! whose ways nobody else fills.
//!
//! Taking it back needs no memory of threads: a group that is removed gives its threads to the
//! default group, from where they came.

use std::fs;
use std::io;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Mount point of the file system.
pub(crate) const ROOT: &str = "/sys/fs/resctrl";
/// Our group.
const GROUP: &str = "takt";
/// Fewer ways than this cannot be divided: each side gets some, and one way alone thrashes.
const MIN_WAYS: u32 = 4;

/// Operations on resctrl; a trait so that a test has a kernel of its own. Paths are below the file
/// system's root.
pub(crate) trait Tree {
    fn is_mounted(&self) -> bool;
    fn mount(&mut self) -> io::Result<()>;
    fn unmount(&mut self) -> io::Result<()>;
    fn read(&self, path: &str) -> io::Result<String>;
    /// Never creates a file: it is the kernel's, or it is nothing.
    fn write(&mut self, path: &str, text: &str) -> io::Result<()>;
    fn has(&self, path: &str) -> bool;
    fn make_group(&mut self, name: &str) -> io::Result<()>;
    fn remove_group(&mut self, name: &str) -> io::Result<()>;
}

/// This machine's.
#[derive(Debug)]
pub(crate) struct Resctrl;

impl Tree for Resctrl {
    fn is_mounted(&self) -> bool {
        self.has("schemata")
    }

    fn mount(&mut self) -> io::Result<()> {
        let (kind, at) = (c"resctrl".as_ptr(), c"/sys/fs/resctrl".as_ptr());
        // SAFETY: three strings with a NUL that live longer than the call; no data.
        match unsafe { libc::mount(kind, at, kind, 0, std::ptr::null()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn unmount(&mut self) -> io::Result<()> {
        // SAFETY: a string with a NUL that lives longer than the call.
        match unsafe { libc::umount2(c"/sys/fs/resctrl".as_ptr(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(Path::new(ROOT).join(path))
    }

    fn write(&mut self, path: &str, text: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).open(Path::new(ROOT).join(path))?;
        // The kernel takes what one call writes.
        file.write_all(text.as_bytes())
    }

    fn has(&self, path: &str) -> bool {
        Path::new(ROOT).join(path).exists()
    }

    fn make_group(&mut self, name: &str) -> io::Result<()> {
        fs::create_dir(Path::new(ROOT).join(name))
    }

    fn remove_group(&mut self, name: &str) -> io::Result<()> {
        fs::remove_dir(Path::new(ROOT).join(name))
    }
}

/// Earlier state, which [`give_back`] needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedCache {
    /// Whether the file system was there already.
    pub(crate) mounted: bool,
    /// The default group's lines of the divided cache, as it had them.
    pub(crate) schemata: Vec<String>,
}

/// The last cache as resctrl divides it.
#[derive(Debug, PartialEq, Eq)]
struct Ways {
    /// `L3`, or `L2` where that is the one that can be divided; with code and data apart, `L3DATA`
    /// and `L3CODE`.
    resources: Vec<String>,
    /// Caches of that level.
    domains: Vec<String>,
    /// All ways.
    full: u64,
    /// Ways that devices fill as well.
    shared: u64,
    least: u32,
}

fn refusal(error: io::Error, what: &str) -> String {
    format!("{ROOT}/{what}: {error}")
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim(), 16).ok()
}

/// Lines of a `schemata` file for these resources: name, and domains with their masks.
fn lines(schemata: &str) -> impl Iterator<Item = (&str, Vec<(&str, u64)>)> {
    schemata.lines().filter_map(|line| {
        let (name, domains) = line.trim().split_once(':')?;
        let domains: Option<Vec<(&str, u64)>> = domains
            .split(';')
            .map(|domain| {
                let (id, mask) = domain.split_once('=')?;
                Some((id.trim(), hex(mask)?))
            })
            .collect();
        Some((name.trim(), domains?))
    })
}

impl Ways {
    /// Reads the features of a mounted tree.
    fn read(tree: &dyn Tree) -> Result<Self, String> {
        let level =
            ["L3", "L3DATA", "L2", "L2DATA"].into_iter().find(|level| tree.has(&format!("info/{level}")));
        let Some(level) = level else {
            return Err(
                "this processor's caches cannot be partitioned (no info/L3 or info/L2 in resctrl)".to_owned()
            );
        };
        let file = |name: &str| {
            let path = format!("info/{level}/{name}");
            tree.read(&path).map_err(|error| refusal(error, &path))
        };
        let number = |name: &str| {
            let text = file(name)?;
            let wrong = || format!("{ROOT}/info/{level}/{name}: {:?} is not a number", text.trim());
            let value = if name == "num_closids" || name == "min_cbm_bits" {
                text.trim().parse().ok()
            } else {
                hex(&text)
            };
            value.ok_or_else(wrong)
        };
        let full = number("cbm_mask")?;
        // Since 4.15; without, no way is known to be shared.
        let shared = number("shareable_bits").unwrap_or(0);
        let least = number("min_cbm_bits").unwrap_or(1).clamp(1, 64) as u32;
        let groups = number("num_closids")?;
        if groups < 2 {
            return Err(format!("{level} has {groups} class of service, so no group can be added"));
        }
        let schemata = tree.read("schemata").map_err(|error| refusal(error, "schemata"))?;
        let base = level.trim_end_matches("DATA");
        let wanted = |name: &str| name == level || (level != base && name == format!("{base}CODE"));
        let (mut resources, mut domains) = (Vec::new(), Vec::new());
        for (name, masks) in lines(&schemata).filter(|(name, _)| wanted(name)) {
            if let Some((id, mask)) = masks.iter().find(|(_, mask)| *mask != full) {
                return Err(format!(
                    "{name}:{id}={mask:x} of the default group is not the whole cache ({full:x}): another program already partitions it"
                ));
            }
            resources.push(name.to_owned());
            domains = masks.iter().map(|(id, _)| (*id).to_owned()).collect();
        }
        if resources.is_empty() || domains.is_empty() {
            return Err(format!("{ROOT}/schemata has no line for {level}"));
        }
        Ok(Self { resources, domains, full, shared, least })
    }

    /// Masks for the loop and for everybody else: a quarter of the ways for the loop, at the low
    /// end, where devices do not write. Both in one piece, as Intel's processors want it.
    fn split(&self) -> Result<(u64, u64), String> {
        let all = self.full.count_ones();
        if all < MIN_WAYS || self.full.leading_zeros() + all != 64 {
            return Err(format!("the cache has {all} ways ({:x}): too few to partition", self.full));
        }
        let own = (all / 4).max(self.least).max(2);
        if all - own < self.least {
            return Err(format!(
                "the cache has {all} ways, and a group needs {}: too few to partition",
                self.least
            ));
        }
        let own = (1_u64 << own) - 1;
        if own & self.shared != 0 && self.shared != self.full {
            return Err(format!("devices use the ways that the loop would get ({:x})", own & self.shared));
        }
        Ok((own, self.full & !own))
    }

    /// The lines that give a group these ways, one for each resource.
    fn lines(&self, mask: u64) -> Vec<String> {
        let domains: Vec<String> = self.domains.iter().map(|id| format!("{id}={mask:x}")).collect();
        self.resources.iter().map(|name| format!("{name}:{}", domains.join(";"))).collect()
    }
}

/// Whether the cache can be divided here: what would be kept, to take it back by. Leaves the
/// machine as it was, also where the file system had to be mounted for the look.
pub(crate) fn probe(tree: &mut dyn Tree) -> Result<SavedCache, String> {
    let mounted = tree.is_mounted();
    if !mounted {
        tree.mount().map_err(|error| no_mount(&error))?;
    }
    let looked = look(tree, mounted);
    if !mounted {
        tree.unmount().map_err(|error| format!("{ROOT} cannot be unmounted again: {error}"))?;
    }
    looked
}

fn no_mount(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENODEV) => "this kernel has no resctrl (CONFIG_X86_CPU_RESCTRL, CONFIG_ARM64_MPAM)",
        Some(libc::ENOENT) => "this kernel has no resctrl, or the processor cannot partition its caches",
        Some(libc::EOPNOTSUPP | libc::EINVAL) => "the processor cannot partition its caches",
        Some(libc::EPERM | libc::EACCES) => "only root may",
        _ => return format!("{ROOT} cannot be mounted: {error}"),
    };
    format!("{ROOT} cannot be mounted: {why} ({error})")
}

fn look(tree: &dyn Tree, mounted: bool) -> Result<SavedCache, String> {
    if tree.has(GROUP) {
        return Err(format!(
            "{ROOT}/{GROUP} already exists. Fix: rmdir {ROOT}/{GROUP}, if no other takt is running"
        ));
    }
    let ways = Ways::read(tree)?;
    ways.split()?;
    Ok(SavedCache { mounted, schemata: ways.lines(ways.full) })
}

/// Gives the thread ways of its own. To be called after [`probe`], whose result was kept.
pub(crate) fn give(tree: &mut dyn Tree, tid: u32) -> Result<(), String> {
    if !tree.is_mounted() {
        tree.mount().map_err(|error| no_mount(&error))?;
    }
    if tree.has(GROUP) {
        // It was set before and not taken back: the ways are as they should be.
        let path = format!("{GROUP}/tasks");
        return tree.write(&path, &tid.to_string()).map_err(|error| refusal(error, &path));
    }
    let ways = Ways::read(tree)?;
    let (own, rest) = ways.split()?;
    // Others leave the ways first: the new group must not share them for a moment.
    for line in ways.lines(rest) {
        write(tree, "schemata", &line)?;
    }
    tree.make_group(GROUP).map_err(|error| refusal(error, GROUP))?;
    for line in ways.lines(own) {
        write(tree, &format!("{GROUP}/schemata"), &line)?;
    }
    write(tree, &format!("{GROUP}/tasks"), &tid.to_string())
}

/// Writes, and adds what the kernel says of a refusal.
fn write(tree: &mut dyn Tree, path: &str, text: &str) -> Result<(), String> {
    tree.write(path, &format!("{text}\n")).map_err(|error| {
        let status = tree.read("info/last_cmd_status").unwrap_or_default();
        match status.trim() {
            "" | "ok" => refusal(error, path),
            status => format!("{} ({status})", refusal(error, path)),
        }
    })
}

/// Reason why the last cache cannot be partitioned on this machine.
#[derive(Debug, thiserror::Error)]
pub enum CacheWaysError {
    /// The processor has no such ability, the kernel none for it, or it refuses; a sentence.
    #[error("{0}")]
    NotOffered(String),
}

/// Whether the last cache can be divided on this machine. Nothing is left changed.
///
/// # Errors
/// [`CacheWaysError::NotOffered`].
pub fn offered() -> Result<(), CacheWaysError> {
    probe(&mut Resctrl).map(|_| ()).map_err(CacheWaysError::NotOffered)
}

/// Whether there is something to take back.
pub(crate) fn is_divided(tree: &dyn Tree, saved: &SavedCache) -> bool {
    let now = tree.read("schemata").unwrap_or_default();
    let whole = |line: &String| now.lines().any(|now| now.trim() == line);
    tree.is_mounted() && (!saved.mounted || tree.has(GROUP) || !saved.schemata.iter().all(whole))
}

/// Whether the thread has ways of its own now.
pub(crate) fn is_given(tree: &dyn Tree, tid: u32) -> bool {
    let tasks = tree.read(&format!("{GROUP}/tasks")).unwrap_or_default();
    tasks.lines().any(|line| line.trim().parse() == Ok(tid))
}

/// Takes everything back. Settings that already have the old value are left: a second call changes
/// nothing.
///
/// # Errors
/// The kernel's refusals; the rest is tried nevertheless.
pub(crate) fn give_back(tree: &mut dyn Tree, saved: &SavedCache) -> Result<(), String> {
    if !tree.is_mounted() {
        return Ok(());
    }
    let mut refused = Vec::new();
    if tree.has(GROUP) {
        refused.extend(tree.remove_group(GROUP).err().map(|error| refusal(error, GROUP)));
    }
    for line in &saved.schemata {
        refused.extend(write(tree, "schemata", line).err());
    }
    if !saved.mounted {
        refused.extend(tree.unmount().err().map(|error| format!("{ROOT} cannot be unmounted: {error}")));
    }
    if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) }
}

/// Whether a state file's lines are such as this program writes: `L3:0=ff;1=ff`.
pub(crate) fn permitted(saved: &SavedCache) -> Result<(), String> {
    let plain = |line: &String| {
        line.len() < 1024
            && lines(line).any(|(name, _)| name.starts_with("L3") || name.starts_with("L2"))
            && line.chars().all(|c| c.is_ascii_alphanumeric() || ":;=".contains(c))
    };
    match saved.schemata.iter().find(|line| !plain(line)) {
        Some(line) => Err(format!("{line:?} is not a line of a resctrl schemata file")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
