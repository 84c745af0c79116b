//! Any text is a system of nodes or a clear error; one that is accepted survives being written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_ros_workload::System;

fuzz_target!(|text: &str| {
    match System::parse(text) {
        Ok(system) => {
            let _ = system.topics();
            assert!(system.node.iter().all(|node| system.node(&node.name).is_some()));
            system.validate().expect("accepted once");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
