//! Stream files that are not there.
//!
//! LTTng has a stream file for each CPU in each channel, whether something ran there or not, and an
//! index of it in the folder `index`. A recording of which one file was not copied looks whole
//! otherwise, and what ran on that CPU looks as if it had never run. A file that was copied in part
//! and ends with a packet looks whole as well; its index lists the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::tsdl::Metadata;

/// Indexes that are looked at: as many as stream files are read.
const MAX_INDEXES: usize = 1 << 20;

/// The name of a stream file that LTTng must have written to `folder` and that is not among the
/// `names` there.
pub(super) fn stream(folder: &Path, names: &BTreeSet<String>, metadata: &Metadata) -> Option<String> {
    let tracer = metadata.env_text("tracer_name")?;
    if !tracer.starts_with("lttng") {
        return None;
    }
    by_index(folder, names).or_else(|| {
        // Of the kernel's, CPUs that were offline have no stream.
        (tracer == "lttng-ust").then(|| by_number(names))?
    })
}

fn by_index(folder: &Path, names: &BTreeSet<String>) -> Option<String> {
    let indexes = std::fs::read_dir(folder.join("index")).ok()?;
    let indexed = indexes.take(MAX_INDEXES).filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_suffix(".idx").map(str::to_owned)
    });
    indexed.filter(|name| !names.contains(name)).min()
}

/// Magic number of an index.
const INDEX_MAGIC: u32 = 0xc1f1_dcc1;
/// Bytes of an index's header, and the least of an entry (version 1.0).
const INDEX_HEADER: usize = 16;
const LEAST_ENTRY: usize = 56;
/// Larger indexes are not read: a million packets.
const MAX_INDEX_BYTES: u64 = 128 << 20;

/// Whether the index of this stream file, which has `length` bytes, lists packets behind its end.
/// An index that contradicts itself says nothing.
pub(super) fn packets_behind(file: &Path, length: u64) -> bool {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return false };
    let mut name = name.to_owned();
    name.push(".idx");
    let index = takt_files::read(&folder.join("index").join(name), MAX_INDEX_BYTES);
    index.is_ok_and(|index| listed_bytes(&index).is_some_and(|listed| listed > length))
}

/// Bytes of the file that an index is of, by its packets, which follow each other without a hole.
fn listed_bytes(index: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u32::from_be_bytes(*index.get(at..)?.first_chunk()?));
    let entry_bytes = usize::try_from(word(12)?).ok()?;
    if word(0)? != INDEX_MAGIC || word(4)? != 1 || entry_bytes < LEAST_ENTRY {
        return None;
    }
    let mut behind = 0_u64;
    for entry in index.get(INDEX_HEADER..)?.chunks_exact(entry_bytes) {
        let field = |number: usize| Some(u64::from_be_bytes(*entry.get(8 * number..)?.first_chunk()?));
        let (offset, packet_bits) = (field(0)?, field(1)?);
        if offset != behind || packet_bits % 8 != 0 {
            return None;
        }
        behind = behind.checked_add(packet_bits / 8)?;
    }
    Some(behind)
}

/// `channel_0` to `channel_N` for each channel, with the same N.
fn by_number(names: &BTreeSet<String>) -> Option<String> {
    let mut channels: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (channel, number) in names.iter().filter_map(|name| numbered(name)) {
        channels.entry(channel).or_default().insert(number);
    }
    // With `--tracefile-size`, the files of a CPU are numbered, and CPUs have different numbers of
    // them.
    let in_pieces = channels.keys().any(|channel| numbered(channel).is_some());
    let most = channels.values().filter_map(BTreeSet::last).max().copied()?;
    channels.iter().find_map(|(channel, numbers)| {
        let last = if in_pieces { *numbers.last()? } else { most };
        // The first number that is not the one in its place; a file cannot name more than there
        // are.
        let absent = (0..).zip(numbers).find(|(place, number)| place != *number).map(|(place, _)| place);
        let behind = u32::try_from(numbers.len()).ok().filter(|count| *count <= last);
        absent.or(behind).map(|number| format!("{channel}_{number}"))
    })
}

fn numbered(name: &str) -> Option<(&str, u32)> {
    let (channel, number) = name.rsplit_once('_')?;
    Some((channel, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(names: &[&str]) -> Option<String> {
        by_number(&names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn every_channel_has_a_file_for_each_cpu() {
        assert_eq!(missing(&["ch_0", "ch_1", "ch_2"]), None);
        assert_eq!(missing(&["ch_0", "ch_2"]).as_deref(), Some("ch_1"));
        assert_eq!(missing(&["ch_1"]).as_deref(), Some("ch_0"));
        assert_eq!(missing(&["a_0", "a_1", "b_0"]).as_deref(), Some("b_1"));
        // Files in pieces: `--tracefile-size`.
        assert_eq!(missing(&["ch_0_0", "ch_0_1", "ch_0_2", "ch_1_0"]), None);
        assert_eq!(missing(&["ch_0_0", "ch_0_2", "ch_1_0"]).as_deref(), Some("ch_0_1"));
        assert_eq!(missing(&["stream", "x_y", "ch_4294967295"]).as_deref(), Some("ch_0"));
        assert_eq!(missing(&[]), None);
    }
}
