//! Client of the controller's dashboard server (port 29999): one text line asks, one answers.
//!
//! Source: Universal Robots, "Dashboard Server e-Series". Commands that start motion (`play`,
//! `power on`, `brake release`, `unlock protective stop`) work only in remote control. None of them
//! is a safety function.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::{RtdeError, session};

/// Longest line that is accepted: a peer without line ends is no dashboard server.
const MAX_LINE_BYTES: u64 = 4096;

/// A connection to the dashboard server.
#[derive(Debug)]
pub struct Dashboard {
    lines: BufReader<TcpStream>,
}

impl Dashboard {
    /// Connects and reads the greeting.
    ///
    /// # Errors
    /// No connection, no answer within `timeout`, or another greeting than a dashboard server's.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, RtdeError> {
        let stream = session::connect(host, port, timeout)?;
        let doing = "setting the time-outs of the dashboard connection";
        stream.set_read_timeout(Some(timeout)).map_err(RtdeError::io(doing))?;
        stream.set_write_timeout(Some(timeout)).map_err(RtdeError::io(doing))?;
        let mut dashboard = Self { lines: BufReader::new(stream) };
        let greeting = dashboard.read_line()?;
        if !greeting.starts_with("Connected:") {
            return Err(RtdeError::Dashboard { command: String::from("(greeting)"), received: greeting });
        }
        Ok(dashboard)
    }

    /// Sends a command and returns the answer, without its line end.
    ///
    /// # Errors
    /// The connection fails, or no answer comes in time.
    pub fn command(&mut self, command: &str) -> Result<String, RtdeError> {
        let line = format!("{}\n", command.trim_end());
        self.lines
            .get_mut()
            .write_all(line.as_bytes())
            .map_err(RtdeError::io("sending a dashboard command"))?;
        self.read_line()
    }

    /// Starts or resumes the loaded program.
    ///
    /// # Errors
    /// Refused (no remote control, robot not running, protective stop), or the connection fails.
    pub fn play(&mut self) -> Result<(), RtdeError> {
        self.expect("play", "Starting program")
    }

    /// Pauses the program.
    ///
    /// # Errors
    /// Refused (no program runs), or the connection fails.
    pub fn pause(&mut self) -> Result<(), RtdeError> {
        self.expect("pause", "Pausing program")
    }

    /// Stops the program.
    ///
    /// # Errors
    /// Refused, or the connection fails.
    pub fn stop(&mut self) -> Result<(), RtdeError> {
        self.expect("stop", "Stopped")
    }

    /// Version of the controller's user interface, as it answers.
    ///
    /// # Errors
    /// The connection fails.
    pub fn polyscope_version(&mut self) -> Result<String, RtdeError> {
        self.command("PolyscopeVersion")
    }

    fn expect(&mut self, command: &str, answer: &str) -> Result<(), RtdeError> {
        let received = self.command(command)?;
        if received.starts_with(answer) {
            return Ok(());
        }
        Err(RtdeError::Dashboard { command: command.to_owned(), received })
    }

    fn read_line(&mut self) -> Result<String, RtdeError> {
        let doing = "waiting for the dashboard server";
        let mut line = String::new();
        let read =
            self.lines.by_ref().take(MAX_LINE_BYTES).read_line(&mut line).map_err(RtdeError::io(doing))?;
        if read == 0 {
            return Err(RtdeError::Closed { doing });
        }
        Ok(line.trim_end().to_owned())
    }
}
