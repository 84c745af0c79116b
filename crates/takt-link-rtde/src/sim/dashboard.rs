//! The dashboard server of the simulated controller.
//!
//! Source: Universal Robots, "Dashboard Server e-Series" (commands and answers). Powering on and
//! releasing the brakes take no time here.

use std::io;
use std::net::TcpStream;

use super::RuntimeState;
use super::connection::Connection;
use super::controller::Controller;
use crate::{RobotMode, SafetyMode};

const PROGRAM: &str = "takt_cell.urp";

/// Longest line that is taken.
const MAX_LINE_BYTES: usize = 2048;

/// Bytes that wait for a client that does not read, before it is closed.
const MAX_WAITING_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct DashboardClient {
    pub(super) connection: Connection,
    line: Vec<u8>,
}

impl DashboardClient {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        let mut client = Self { connection: Connection::new(stream)?, line: Vec::new() };
        client.send("Connected: Universal Robots Dashboard Server");
        Ok(client)
    }

    pub(super) fn serve(&mut self, controller: &mut Controller) {
        let mut buffer = [0; MAX_LINE_BYTES];
        match self.connection.read(&mut buffer) {
            Ok(0) => self.connection.open = false,
            Ok(read) => {
                for byte in &buffer[..read] {
                    if *byte == b'\n' {
                        let line = std::mem::take(&mut self.line);
                        let answer = self.answer(String::from_utf8_lossy(&line).trim(), controller);
                        self.send(&answer);
                    } else if self.line.len() < MAX_LINE_BYTES {
                        self.line.push(*byte);
                    } else {
                        self.connection.open = false;
                        return;
                    }
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.connection.open = false,
        }
    }

    fn send(&mut self, line: &str) {
        self.connection.keep(line.as_bytes());
        self.connection.keep(b"\n");
        if self.connection.waiting_bytes() > MAX_WAITING_BYTES {
            self.connection.open = false;
        }
        self.connection.flush();
    }

    fn answer(&mut self, line: &str, controller: &mut Controller) -> String {
        let done = |done: bool, yes: &str| {
            if done { yes.to_owned() } else { format!("Failed to execute: {line}") }
        };
        // Two-word commands first; what follows a command is its argument.
        let lower = line.to_ascii_lowercase();
        let is = |command: &str| {
            lower.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        if is("play") {
            done(controller.play(), "Starting program")
        } else if is("pause") {
            done(controller.pause(), "Pausing program")
        } else if is("stop") {
            let running = controller.runtime != RuntimeState::Stopped;
            controller.stop();
            done(running, "Stopped")
        } else if is("running") {
            format!("Program running: {}", controller.runtime == RuntimeState::Playing)
        } else if is("robotmode") {
            format!("Robotmode: {}", mode_name(controller.robot_mode))
        } else if is("safetymode") {
            format!("Safetymode: {}", safety_name(controller.safety_mode))
        } else if is("safetystatus") {
            format!("Safetystatus: {}", safety_name(controller.safety_mode))
        } else if is("programstate") {
            let state = match controller.runtime {
                RuntimeState::Playing => "PLAYING",
                RuntimeState::Paused | RuntimeState::Pausing => "PAUSED",
                RuntimeState::Stopped | RuntimeState::Stopping => "STOPPED",
            };
            format!("{state} {PROGRAM}")
        } else if is("polyscopeversion") {
            let [major, minor, bugfix, build] = controller.version();
            format!("URSoftware {major}.{minor}.{bugfix}.{build} (simulated by Takt)")
        } else if is("version") {
            let [major, minor, bugfix, build] = controller.version();
            format!("{major}.{minor}.{bugfix}.{build}")
        } else if is("get serial number") {
            String::from("20200000000")
        } else if is("get robot model") {
            String::from("UR10")
        } else if is("is in remote control") {
            String::from("true")
        } else if is("get operational mode") {
            String::from("NONE")
        } else if is("get loaded program") {
            format!("Loaded program: /programs/{PROGRAM}")
        } else if is("isprogramsaved") {
            format!("true {PROGRAM}")
        } else if is("load") {
            let asked = line.get("load".len()..).unwrap_or_default().trim();
            if asked.trim_start_matches('/').trim_start_matches("programs/") == PROGRAM {
                format!("Loading program: /programs/{PROGRAM}")
            } else {
                format!("File not found: {asked}")
            }
        } else if is("power on") {
            controller.power_on();
            String::from("Powering on")
        } else if is("power off") {
            controller.power_off();
            String::from("Powering off")
        } else if is("brake release") {
            controller.release_brakes();
            String::from("Brake releasing")
        } else if is("unlock protective stop") {
            // A real controller wants five seconds to pass since the stop; nobody is hurt here.
            done(controller.unlock_protective_stop(), "Protective stop releasing")
        } else if is("restart safety") {
            String::from("Restarting safety")
        } else if is("close safety popup") {
            String::from("closing safety popup")
        } else if is("close popup") {
            String::from("closing popup")
        } else if is("popup") {
            String::from("showing popup")
        } else if is("addtolog") {
            String::from("Added log message")
        } else if is("quit") {
            self.connection.open = false;
            String::from("Disconnected")
        } else if is("shutdown") {
            String::from("Shutting down")
        } else {
            format!("could not understand: '{line}'")
        }
    }
}

const fn mode_name(mode: RobotMode) -> &'static str {
    match mode {
        RobotMode::NoController => "NO_CONTROLLER",
        RobotMode::Disconnected => "DISCONNECTED",
        RobotMode::ConfirmSafety => "CONFIRM_SAFETY",
        RobotMode::Booting => "BOOTING",
        RobotMode::PowerOff => "POWER_OFF",
        RobotMode::PowerOn => "POWER_ON",
        RobotMode::Idle => "IDLE",
        RobotMode::Backdrive => "BACKDRIVE",
        RobotMode::Running => "RUNNING",
        RobotMode::UpdatingFirmware => "UPDATING_FIRMWARE",
    }
}

const fn safety_name(mode: SafetyMode) -> &'static str {
    match mode {
        SafetyMode::Normal => "NORMAL",
        SafetyMode::Reduced => "REDUCED",
        SafetyMode::ProtectiveStop => "PROTECTIVE_STOP",
        SafetyMode::Recovery => "RECOVERY",
        SafetyMode::SafeguardStop => "SAFEGUARD_STOP",
        SafetyMode::SystemEmergencyStop => "SYSTEM_EMERGENCY_STOP",
        SafetyMode::RobotEmergencyStop => "ROBOT_EMERGENCY_STOP",
        SafetyMode::Violation => "VIOLATION",
        SafetyMode::Fault => "FAULT",
        SafetyMode::Unknown => "UNDEFINED_SAFETY_MODE",
    }
}
