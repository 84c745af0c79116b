//! The segment of an example, served by the example's own program in another process.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use takt_link_ethercat::segment::veth::VethPair;

/// The segment in a process of its own.
pub struct Served(Child);

impl Served {
    /// Starts this program anew with `serve` and the segment's end of `pair`; it has said `bound`
    /// by then.
    pub fn start(pair: &VethPair) -> Result<Self, Box<dyn Error>> {
        let program = std::env::current_exe()?;
        let start = || {
            let mut serve = Command::new(program);
            serve.args(["serve", pair.segment()]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        };
        let mut child = pair.within(start)??;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line.trim() == "bound" { Ok(Self(child)) } else { Err("the segment did not start".into()) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends with its input; nothing else is to be done when waiting fails.
        let _ = self.0.wait();
    }
}
