//! Any text as a list of modules: a load order that holds each file once, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use takt_kernels::packages::modules::Index;

fuzz_target!(|text: &str| {
    let index = Index::parse(text);
    let names: Vec<&str> =
        text.split([':', '/', ' ', '\n']).filter_map(|word| word.strip_suffix(".ko")).collect();
    if let Ok(order) = index.closure("6.1", &names) {
        let once: std::collections::BTreeSet<&String> = order.iter().collect();
        assert_eq!(once.len(), order.len());
    }
});
