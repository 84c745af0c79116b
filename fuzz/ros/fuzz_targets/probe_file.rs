//! The file of an observed process, whatever that process writes into it: events, or the process is
//! given up with a reason.
//!
//! Parts: the file's header; then for each ring the beginning of its header, its positions (head,
//! lost, tail), its words. Flags in the first byte: the beginning of the header is made right.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use parts::parts;
use takt_ros::Source;
use takt_ros::preload::Probe;

const PAGE: u64 = 4096;
const WORDS: u64 = 4096;

fuzz_target!(|data: &[u8]| {
    let Some((&flags, rest)) = data.split_first() else { return };
    let [header, begin0, positions0, words0, begin1, positions1, words1] = parts(rest);
    let folder = tempfile::tempdir().expect("a folder");
    let file = File::create_new(folder.path().join("1-1.ring")).expect("a file");
    let rings = u64::from(flags >> 1 & 3);
    file.set_len(PAGE + rings * (PAGE + WORDS * 8) + u64::from(flags >> 3 & 1)).expect("its length");
    let write = |at: u64, bytes: &[u8], most: u64| {
        let most = bytes.len().min(most as usize);
        file.write_all_at(&bytes[..most], at).expect("a file that can be written");
    };
    write(0, header, PAGE);
    if flags & 1 == 1 {
        write(0, b"TAKTPRB\x01\x01\0\0\0", PAGE);
        write(32, &[0, 0x10, 0, 0, flags >> 4 & 3, 0, 0, 0], PAGE);
    }
    for (ring, [begin, positions, words]) in
        (0..rings).zip([[begin0, positions0, words0], [begin1, positions1, words1]])
    {
        let base = PAGE + ring * (PAGE + WORDS * 8);
        write(base, begin, 128);
        if flags & 1 == 1 {
            write(base, &[1, 0, 0, 0], 4);
        }
        write(base + 128, positions, 136);
        write(base + PAGE, words, WORDS * 8);
    }
    let mut probe = Probe::open(folder.path()).expect("the folder can be read");
    for _ in 0..2 {
        probe.poll(&mut |_| {}).expect("one bad process ends nothing");
    }
    probe.take_broken().iter().for_each(|broken| assert!(!broken.to_string().is_empty()));
    probe.finish();
    probe.poll(&mut |_| {}).expect("one bad process ends nothing");
});
