//! Files of any length made from a recorded one, for tests and benches.

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// A `perf.data` whose data section stands `times` times, each copy later than the one before.
pub(crate) fn repeated(file: &[u8], times: u64) -> Vec<u8> {
    let word = |at: usize| number(&file[at..at + 8]);
    let (offset, size) = (word(40) as usize, word(48) as usize);
    let added = size as u64 * (times - 1);
    let mut out = file[..offset].to_vec();
    out[48..56].copy_from_slice(&(size as u64 * times).to_le_bytes());
    for copy in 0..times {
        let start = out.len();
        out.extend(&file[offset..offset + size]);
        let mut at = start;
        while at < out.len() {
            let kind = number(&out[at..at + 4]);
            let length = number(&out[at + 6..at + 8]) as usize;
            if kind == 9 {
                // Header, IDENTIFIER, IP, TID, TIME.
                let time = &mut out[at + 32..at + 40];
                let later = number(time) + copy * 1_000_000_000;
                time.copy_from_slice(&later.to_le_bytes());
            }
            at += length;
        }
    }
    // The table of features, whose offsets move too.
    let table = offset + size;
    let features: u32 = file[72..104].iter().map(|byte| byte.count_ones()).sum();
    for row in 0..features as usize {
        out.extend((word(table + row * 16) + added).to_le_bytes());
        out.extend(&file[table + row * 16 + 8..table + row * 16 + 16]);
    }
    out.extend(&file[table + features as usize * 16..]);
    out
}
