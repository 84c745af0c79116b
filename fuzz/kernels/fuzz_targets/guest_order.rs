//! What the guest is instructed to do: any bytes are an order or a clear error, and an order
//! survives being written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_kernels::guest::Order;

fuzz_target!(|bytes: &[u8]| {
    match Order::read(bytes) {
        Ok(order) => {
            let written = serde_json::to_vec(&order).expect("what was read can be written");
            assert_eq!(Order::read(&written), Ok(order));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
