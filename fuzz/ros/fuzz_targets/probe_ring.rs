//! A ring that another process has written, byte by byte and as records with plausible beginnings:
//! events or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_ros::preload::read_image;

fuzz_target!(|bytes: &[u8]| {
    let _ = read_image(bytes);
    // Records whose first words are right: code, flags and length are the input's, as is all that
    // follows.
    let mut words: Vec<u64> = Vec::new();
    let mut rest = bytes;
    while let Some((&[code, flags, length], left)) = rest.split_first_chunk::<3>() {
        let length = usize::from(length) + 1;
        let mut record = vec![
            length as u64
                | u64::from(code % 40) << 16
                | u64::from(flags % 8) << 24
                | (words.len() as u64) << 32,
        ];
        let mut body = left.chunks(8);
        record.extend(body.by_ref().take(length - 1).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
        record.resize(length, 0);
        words.extend(record);
        rest = left.get((length - 1) * 8..).unwrap_or(&[]);
    }
    let mut image: Vec<u8> = (words.len() as u64).to_le_bytes().to_vec();
    image.extend(0u64.to_le_bytes());
    words.iter().for_each(|word| image.extend(word.to_le_bytes()));
    if let Ok(records) = read_image(&image) {
        assert!(records.len() <= words.len() / 2);
    }
});
