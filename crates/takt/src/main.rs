//! The takt command line: parses, wires, prints.

fn main() {}
