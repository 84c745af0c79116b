//! Reads an arm's calibrated kinematics from its controller.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use super::{KinematicsInfo, StateBuffer};
use crate::RtdeError;
use crate::session::connect;

/// Port of the primary client interface, fixed on a real robot.
pub const PRIMARY_PORT: u16 = 30001;

/// Reads the calibrated kinematics: connects, reads until a robot state has brought them, closes.
/// Blocks for `timeout` at most (a controller sends them within a tenth of a second); nothing is
/// written.
///
/// # Errors
/// No connection, nothing that is the client interface's, or no kinematics within the time: an old
/// controller.
pub fn read_kinematics(host: &str, port: u16, timeout: Duration) -> Result<KinematicsInfo, RtdeError> {
    let doing = "reading the arm's kinematics";
    let deadline = Instant::now() + timeout;
    let mut stream = connect(host, port, timeout)?;
    let mut buffer = StateBuffer::default();
    let mut free = [0; 4096];
    loop {
        let timed_out = || RtdeError::TimedOut { doing, waited_ms: timeout.as_millis() as u64 };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out());
        }
        stream.set_read_timeout(Some(left)).map_err(RtdeError::io(doing))?;
        match stream.read(&mut free) {
            Ok(0) => return Err(RtdeError::Closed { doing }),
            Ok(size) => {
                if let Some(info) = buffer.take(&free[..size])? {
                    return Ok(info);
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(timed_out()),
                _ => return Err(RtdeError::Io { doing, source: error }),
            },
        }
    }
}
