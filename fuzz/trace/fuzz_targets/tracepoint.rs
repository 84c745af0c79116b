//! The kernel's description of a tracepoint, and a record of it: the first byte says which
//! tracepoint it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parts::parts;
use takt_trace::{Decoder, Format, Trace};

fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else { return };
    let names: Vec<&str> = Decoder::known().collect();
    let name = names[usize::from(which) % names.len()];
    let [text, raw] = parts(rest);
    let Ok(text) = std::str::from_utf8(text) else { return };
    match Format::parse(name, text) {
        Ok(format) => {
            let (mut decoder, mut trace) = (Decoder::default(), Trace::default());
            if decoder.add(&format).is_ok_and(|added| added) {
                let _ = decoder.decode(raw, &mut trace);
            }
        }
        Err(error) => assert!(error.to_string().contains(name)),
    }
});
