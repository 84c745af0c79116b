//! What a guest sends: any bytes, in pieces of any size, are messages or an error, and the pieces
//! make no difference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_kernels::transport::{Message, MessageError, Receiver};

fn read(pieces: &[&[u8]]) -> (Vec<Message>, Option<MessageError>) {
    let (mut receiver, mut messages) = (Receiver::default(), Vec::new());
    for piece in pieces {
        receiver.push(piece);
        loop {
            match receiver.message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    let end = receiver.finish().err();
    (messages, end)
}

fuzz_target!(|input: (Vec<u8>, u16)| {
    let (bytes, cut) = input;
    let (begin, end) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let (whole, cut) = (read(&[&bytes]), read(&[begin, end]));
    assert_eq!(whole.0, cut.0);
    // A wrong mark is reported with as much of it as was there.
    assert_eq!(whole.1.is_some(), cut.1.is_some());
});
