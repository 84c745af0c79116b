//! What a client of the view sends: answers with a head each, and never one to a foreign name of
//! this machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_view::answer_heads;

fuzz_target!(|sent: &[u8]| {
    for head in answer_heads(sent) {
        assert!(head.starts_with("HTTP/1.1 ") && head.ends_with("\r\n\r\n"));
        assert_eq!(head.matches("\r\n\r\n").count(), 1, "nothing that was sent gets into the head");
        if head.starts_with("HTTP/1.1 200") {
            assert!(sent.windows(9).any(|name| name.eq_ignore_ascii_case(b"localhost")));
        }
    }
});
