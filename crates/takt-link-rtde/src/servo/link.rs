//! The connection of a stream of joint targets.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

use takt_rt::clock::monotonic_ns;

use super::recipe::{self, COMMAND_BYTES};
use super::registers::STOP;
use super::{ServoCommand, ServoState};
use crate::client::{RtdeConfig, SendOutcome};
use crate::final_stop::{self, FinalStop};
use crate::outgoing::Outgoing;
use crate::recipe::{inputs, outputs};
use crate::session::RtdeSession;
use crate::wire::{ControllerVersion, FrameBuffer, PacketType, WireError};
use crate::{RtdeError, socket};

/// Send buffer asked of the kernel: some tens of commands. More would feed a controller that hangs
/// with the past.
const SEND_BUFFER_BYTES: i32 = 16 * 1024;

/// The connection of one stream, used by one thread.
///
/// After [`open`](Self::open) no call allocates, locks, or waits longer than asked.
#[derive(Debug)]
pub struct ServoLink {
    /// First, so that it is disarmed before the connection closes.
    final_stop: FinalStop,
    stream: TcpStream,
    frames: FrameBuffer,
    version: ControllerVersion,
    output_recipe: u8,
    input_recipe: u8,
    state: ServoState,
    texts: u64,
    outgoing: Outgoing<COMMAND_BYTES>,
}

/// The count of the last command. The program looks at what is asked where the count is another
/// than before; counts go up from a time, and are this one for 1 of 2^32 commands.
const LAST_COUNT: i32 = i32::MIN;

impl ServoLink {
    /// Connects, sets the recipes up, starts the controller's packets. Blocks for a few connect
    /// time-outs at most.
    ///
    /// # Errors
    /// A setting out of range, no connection, a controller that refuses protocol version 2, is too
    /// old, lacks a variable, or has given an input register to another client (`IN_USE`).
    pub fn open(config: &RtdeConfig) -> Result<Self, RtdeError> {
        config.check()?;
        let mut session = RtdeSession::open(&config.host, config.port, config.connect_timeout())?;
        session.require_upper_registers()?;
        let output_recipe = session.setup_outputs(config.frequency_hz, &outputs(&recipe::OUTPUTS))?;
        let input_recipe = session.setup_inputs(&inputs(&recipe::INPUTS))?;
        socket::set_send_buffer(&session.stream, SEND_BUFFER_BYTES)
            .map_err(RtdeError::io("setting the send buffer"))?;
        let silence_ms = u32::try_from(config.silence_timeout_ms).unwrap_or(u32::MAX);
        socket::set_user_timeout(&session.stream, silence_ms)
            .map_err(RtdeError::io("setting TCP_USER_TIMEOUT"))?;
        session.start()?;
        // The session's buffer goes on: packets may wait in it behind the last answer.
        let RtdeSession { stream, frames, version, .. } = session;
        Ok(Self {
            final_stop: FinalStop::new(),
            stream,
            frames,
            version,
            output_recipe,
            input_recipe,
            state: ServoState::default(),
            texts: 0,
            outgoing: Outgoing::new(),
        })
    }

    /// Sets the last command for the program on the robot if this process dies of a signal:
    /// `command`, a stop, sent by [`send_final_stop`](crate::client::send_final_stop).
    pub fn at_death(&mut self, command: &ServoCommand) {
        let mut packet = [0; COMMAND_BYTES];
        let command = ServoCommand { count: LAST_COUNT, asked: STOP, ..*command };
        recipe::encode(&command, self.input_recipe, &mut packet);
        self.final_stop.arm(&self.stream, &packet);
    }

    /// Version of the controller.
    pub const fn controller_version(&self) -> ControllerVersion {
        self.version
    }

    /// The newest packet's content.
    pub const fn state(&self) -> &ServoState {
        &self.state
    }

    /// Texts that the controller has sent to people so far.
    pub const fn texts(&self) -> u64 {
        self.texts
    }

    /// Takes what has come; where no packet has, waits for one until `deadline_ns`
    /// (CLOCK_MONOTONIC; 0: does not wait). Returns how many packets came; [`state`](Self::state)
    /// is the newest.
    ///
    /// # Errors
    /// The connection is gone, or its peer sends what RTDE does not allow.
    pub fn receive(&mut self, deadline_ns: u64) -> Result<u32, RtdeError> {
        let mut packets = 0;
        loop {
            let read = self.frames.fill(|free| socket::receive_now(self.stream.as_fd(), free));
            let received_ns = monotonic_ns();
            match read {
                Ok(0) => return Err(RtdeError::Closed { doing: "streaming" }),
                Ok(_) => {
                    packets += self.take(received_ns)?;
                    // Texts and halves of packets do not keep anybody beyond the deadline.
                    if packets == 0 && received_ns < deadline_ns {
                        continue;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(source) => return Err(RtdeError::Io { doing: "receiving the state", source }),
            }
            if packets > 0 || received_ns >= deadline_ns {
                return Ok(packets);
            }
            let readable = socket::wait_readable(self.stream.as_fd(), deadline_ns)
                .map_err(RtdeError::io("waiting for the state"))?;
            if !readable {
                return Ok(0);
            }
        }
    }

    fn take(&mut self, received_ns: u64) -> Result<u32, RtdeError> {
        let mut packets = 0;
        while let Some(packet) = self.frames.next_packet()? {
            match packet.kind {
                PacketType::Data => match packet.payload.split_first() {
                    Some((recipe, values)) if *recipe == self.output_recipe => {
                        let sequence = self.state.sequence + 1;
                        self.state = ServoState { sequence, received_ns, ..recipe::decode(values)? };
                        packets += 1;
                    }
                    _ => return Err(WireError::Trailing { left: packet.payload.len() }.into()),
                },
                PacketType::Text => self.texts += 1,
                // An answer to nothing that was asked changes nothing.
                _ => {}
            }
        }
        Ok(packets)
    }

    /// Sends a command: at most one `send(2)` that does not wait. A packet that was begun is
    /// finished first.
    pub fn send(&mut self, command: &ServoCommand) -> SendOutcome {
        if final_stop::is_over() {
            return SendOutcome::Disconnected;
        }
        let mut packet = [0; COMMAND_BYTES];
        recipe::encode(command, self.input_recipe, &mut packet);
        self.outgoing.send(self.stream.as_fd(), &packet)
    }
}
