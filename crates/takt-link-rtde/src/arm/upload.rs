//! The URScript programs that come with Takt, and sending one to a controller.

use std::io::Write;
use std::time::Duration;

use crate::{RtdeError, session};

/// Takt's watchdog, `urscript/takt_watchdog.script`, to be included in any program that Takt is to
/// supervise.
pub const WATCHDOG: &str = include_str!("../../urscript/takt_watchdog.script");

/// The program for the robot: [`WATCHDOG`], then `urscript/takt_cell.script`.
pub const PROGRAM: &str = concat!(
    include_str!("../../urscript/takt_watchdog.script"),
    include_str!("../../urscript/takt_cell.script")
);

/// Sends a URScript program to the controller, which starts it at once; returns how many bytes were
/// sent.
///
/// `port` is 30002 (secondary client interface) on a robot; e-Series must be in remote control. The
/// controller does not answer here: read `runtime_state`, or the program's messages, over RTDE.
/// Starting a program makes the arm ready to move; it moves once a mission asks.
///
/// # Errors
/// No connection, or it breaks.
pub fn upload_program(host: &str, port: u16, script: &str, timeout: Duration) -> Result<usize, RtdeError> {
    let mut stream = session::connect(host, port, timeout)?;
    stream.set_write_timeout(Some(timeout)).map_err(RtdeError::io("setting the send time-out"))?;
    // The secondary interface runs one definition as the program; wrapped into one, a script with
    // definitions and a call behaves as it does in a script node of a program.
    let mut program = String::from("def takt_program():\n");
    for line in script.lines() {
        program.push_str("  ");
        program.push_str(line);
        program.push('\n');
    }
    program.push_str("end\n");
    stream.write_all(program.as_bytes()).map_err(RtdeError::io("sending the program"))?;
    stream.flush().map_err(RtdeError::io("sending the program"))?;
    Ok(program.len())
}
