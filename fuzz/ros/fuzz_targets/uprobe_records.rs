//! Records of the kernel's ring buffer with calls of `ros_trace` functions, and the memory that
//! their arguments point into.
#![no_main]

use libfuzzer_sys::fuzz_target;
use parts::parts;
use takt_ros::uprobes::read_image;

fuzz_target!(|data: &[u8]| {
    let [memory, records] = parts(data);
    let events = read_image(records, memory);
    // Whatever is filled in for what was not seen, it does not grow without end.
    assert!(events.len() <= 64 * (1 + records.len() / 8));
});
