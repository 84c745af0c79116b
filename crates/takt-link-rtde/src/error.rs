//! Errors of the link to a robot, its simulator or its mission.

use std::io;
use std::net::SocketAddr;
use thiserror::Error;

use crate::wire::{ControllerVersion, WireError};

use takt_rt::config::SettingError;

/// Error of the link to the robot, its simulator or its mission.
#[derive(Debug, Error)]
pub enum RtdeError {
    /// The host name does not resolve.
    #[error("robot host '{host}' does not resolve ({source}); set `host` to the robot's address")]
    Resolve {
        /// As configured.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// No connection.
    #[error(
        "no connection to {address}: {source}; is the robot (or the simulator) on, and RTDE enabled under \
         Settings > Security > Services?"
    )]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// A socket call failed.
    #[error("{doing}: {source}")]
    Io {
        /// The step.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The peer closed the connection.
    #[error("the controller closed the connection while {doing}")]
    Closed {
        /// The step.
        doing: &'static str,
    },
    /// No answer in time.
    #[error("no answer from the controller within {waited_ms} ms while {doing}")]
    TimedOut {
        /// The step.
        doing: &'static str,
        /// The time waited.
        waited_ms: u64,
    },
    /// Nothing but old states came.
    #[error(
        "the controller's states have been older than 100 ms by their own timestamps for {seconds} s; a network or a proxy in between \
         queues them, or the controller's clock has stopped: reconnecting"
    )]
    Aged {
        /// For how long.
        seconds: u64,
    },
    /// The peer sent what RTDE does not allow.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer sent what the client interface does not send.
    #[error(transparent)]
    Primary(#[from] crate::primary::PrimaryError),
    /// The peer speaks RTDE, but answers another question.
    #[error("expected the controller's answer to '{expected}', received '{received}'")]
    UnexpectedReply {
        /// Packet type expected.
        expected: char,
        /// Packet type received.
        received: char,
    },
    /// Protocol version 2 is refused.
    #[error(
        "the controller refuses RTDE protocol version 2; update the controller software (3.10/5.4 or newer)"
    )]
    ProtocolRefused,
    /// The controller is too old.
    #[error(
        "controller software {received} is older than {required}, the version that Takt needs; update the controller"
    )]
    ControllerTooOld {
        /// The controller's version.
        received: ControllerVersion,
        /// Oldest version that works.
        required: String,
    },
    /// The controller lacks a variable.
    #[error(
        "controller software {version} has no RTDE {direction} variable '{name}' (NOT_FOUND); \
         update the controller, or use one that has it"
    )]
    NotFound {
        /// "output" or "input".
        direction: &'static str,
        /// The variable.
        name: String,
        /// The controller's version.
        version: ControllerVersion,
    },
    /// Another client owns an input.
    #[error(
        "RTDE input '{name}' is in use (IN_USE): one client owns it at a time; stop the other owner: a fieldbus \
         (EtherNet/IP, PROFINET, Modbus), another RTDE client such as ur_rtde or a ROS driver, or another Takt"
    )]
    InUse {
        /// The variable.
        name: String,
    },
    /// A variable has another type than Takt expects.
    #[error(
        "RTDE variable '{name}' has type {received}, expected {expected}: does this controller speak UR's RTDE?"
    )]
    WrongType {
        /// The variable.
        name: String,
        /// Type expected.
        expected: &'static str,
        /// Type received.
        received: &'static str,
    },
    /// The number of answers differs from the number of variables.
    #[error("requested {expected} RTDE variables, but the controller answered for {received}")]
    AnswerCount {
        /// Variables asked for.
        expected: usize,
        /// Answers received.
        received: usize,
    },
    /// The controller refuses to start sending.
    #[error("the controller refuses to start sending RTDE outputs")]
    StartRefused,
    /// A port cannot be bound.
    #[error(
        "cannot listen on {address}: {source}; stop the program that uses the port, or set `{key}` to another one (0 = any)"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Configuration key of the port.
        key: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A setting is out of its range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A mission cannot be executed.
    #[error("mission step {step}: {problem}")]
    Mission {
        /// Counted from 1.
        step: usize,
        /// The mistake and the accepted values.
        problem: String,
    },
    /// The mission file is not what it should be; the text names line and column.
    #[error("mission: {0}")]
    MissionSyntax(#[from] toml::de::Error),
    /// The dashboard server refuses or answers otherwise than expected.
    #[error("dashboard command '{command}' answered '{received}'")]
    Dashboard {
        /// The command.
        command: String,
        /// The answer.
        received: String,
    },
}

impl RtdeError {
    pub(crate) const fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
