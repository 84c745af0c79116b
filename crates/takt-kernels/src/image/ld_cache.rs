//! The dynamic linker's cache, `/etc/ld.so.cache`: where libraries outside the standard folders
//! are.

use std::collections::BTreeMap;
use std::path::PathBuf;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
/// `FLAG_ELF_LIBC6 | FLAG_X8664_LIB64` of glibc.
const X86_64: u32 = 0x0303;

/// The plain libraries of x86-64: name and path. Variants for newer processors are left out, since
/// the guest's processor is not the host's. A damaged cache gives what can be read of it.
pub(super) fn parse(bytes: &[u8]) -> BTreeMap<String, PathBuf> {
    let mut libraries = BTreeMap::new();
    // An old format may stand before the present one.
    let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else { return libraries };
    let cache = &bytes[start..];
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(cache.get(at..at.checked_add(4)?)?.try_into().ok()?))
    };
    let text = |at: u32| -> Option<String> {
        let rest = cache.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().take(4096).position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    };
    let count = word(MAGIC.len()).unwrap_or(0) as usize;
    for entry in 0..count {
        let at = HEADER_BYTES + entry * ENTRY_BYTES;
        let (Some(flags), Some(key), Some(value)) = (word(at), word(at + 4), word(at + 8)) else { break };
        let plain = word(at + 16) == Some(0) && word(at + 20) == Some(0);
        if flags != X86_64 || !plain {
            continue;
        }
        if let (Some(name), Some(path)) = (text(key), text(value)) {
            libraries.entry(name).or_insert_with(|| PathBuf::from(path));
        }
    }
    libraries
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cache(entries: &[(u32, u64, &str, &str)]) -> Vec<u8> {
        let strings_at = HEADER_BYTES + entries.len() * ENTRY_BYTES;
        let (mut table, mut strings) = (Vec::new(), Vec::new());
        for (flags, hwcap, name, path) in entries {
            let key = strings_at + strings.len();
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
            let value = strings_at + strings.len();
            strings.extend_from_slice(path.as_bytes());
            strings.push(0);
            for field in [*flags, key as u32, value as u32, 0] {
                table.extend_from_slice(&field.to_le_bytes());
            }
            table.extend_from_slice(&hwcap.to_le_bytes());
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(table);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn plain_libraries_of_this_processor_are_read() {
        let bytes = cache(&[
            (X86_64, 1 << 62, "libz.so.1", "/lib/glibc-hwcaps/x86-64-v3/libz.so.1"),
            (X86_64, 0, "libz.so.1", "/lib/libz.so.1"),
            (0x0003, 0, "libz.so.1", "/lib32/libz.so.1"),
        ]);
        let expected = BTreeMap::from([("libz.so.1".to_owned(), PathBuf::from("/lib/libz.so.1"))]);
        assert_eq!(parse(&bytes), expected);
        let behind_the_old_format = [b"ld.so-1.7.0\0\0\0\0\0".as_slice(), &bytes].concat();
        assert_eq!(parse(&behind_the_old_format), expected);
    }

    proptest! {
        #[test]
        fn a_damaged_cache_never_panics(cut in 0usize..200, at in 0usize..160, value: u8) {
            let mut bytes = cache(&[(X86_64, 0, "a.so", "/lib/a.so"), (X86_64, 0, "b.so", "/lib/b.so")]);
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            bytes.truncate(cut);
            let _ = parse(&bytes);
        }
    }
}
