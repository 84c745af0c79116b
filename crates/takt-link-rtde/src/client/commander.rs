//! Sends the safety job's commands, without waiting.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::mailbox::{CommandSocket, Mailbox};
use super::recipe::{self, COMMAND_BYTES};
use crate::Command;
use crate::final_stop::{self, FinalStop};
use crate::outgoing::{Outgoing, SendOutcome};

/// Sends the safety job's commands; owned by the safety thread.
#[derive(Debug)]
pub struct Commander {
    /// First, so that it is dropped before the descriptor that it names.
    final_stop: FinalStop,
    at_end: Option<Command>,
    mailbox: Arc<Mailbox>,
    current: Option<CommandSocket>,
    broken: bool,
    outgoing: Outgoing<COMMAND_BYTES>,
}

impl Commander {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self {
            final_stop: FinalStop::new(),
            at_end: None,
            mailbox,
            current: None,
            broken: false,
            outgoing: Outgoing::new(),
        }
    }

    /// Sets the robot's last command, a stop: sent when this is dropped, when its thread panics,
    /// and by [`send_final_stop`](super::send_final_stop). Without it the last command stays in
    /// force until the robot's own watchdog ends it.
    pub fn at_end(&mut self, command: Command) {
        self.at_end = Some(command);
        self.arm();
    }

    /// Puts the last command where it can be sent without this.
    fn arm(&self) {
        let (Some(command), Some(current)) = (&self.at_end, &self.current) else { return };
        let mut packet = [0; COMMAND_BYTES];
        recipe::encode(command, current.recipe, &mut packet);
        self.final_stop.arm(&current.socket, &packet);
    }

    /// Sends a command: at most one `send(2)` with `MSG_DONTWAIT`, no lock, no allocation, no
    /// close.
    ///
    /// A speed fraction that is no number is sent as 0 (stop); others are cut to 0 to 1. The stream
    /// stays whole whatever the kernel takes: a packet that was begun is finished first.
    pub fn send(&mut self, command: &Command) -> SendOutcome {
        if final_stop::is_over() {
            return SendOutcome::Disconnected;
        }
        if self.mailbox.renew(&mut self.current) {
            self.arm();
            self.outgoing.clear();
            self.broken = false;
        }
        let Some(current) = self.current.as_ref().filter(|_| !self.broken) else {
            return SendOutcome::Disconnected;
        };
        let mut packet = [0; COMMAND_BYTES];
        recipe::encode(command, current.recipe, &mut packet);
        let outcome = self.outgoing.send(current.socket.as_fd(), &packet);
        self.broken = matches!(outcome, SendOutcome::Disconnected | SendOutcome::Failed { .. });
        outcome
    }
}

/// Number of attempts to send the last command.
const LAST_TRIES: u32 = 20;

/// Pause for a full socket between two attempts to send the last command.
const LAST_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

impl Drop for Commander {
    fn drop(&mut self) {
        if let Some(stop) = self.at_end.take() {
            // Best effort: without a connection the robot's watchdog stops it. A full socket takes
            // it a moment later.
            for _ in 0..LAST_TRIES {
                match self.send(&stop) {
                    SendOutcome::WouldBlock | SendOutcome::Partial => std::thread::sleep(LAST_PAUSE),
                    _ => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket;
    use crate::wire::{FrameBuffer, PacketType};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    fn commander() -> (Commander, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket::set_send_buffer(&near, 4096).unwrap();
        let (far, _) = listener.accept().unwrap();
        let mailbox = Arc::new(Mailbox::default());
        mailbox.offer(CommandSocket { socket: near.into(), recipe: 3 });
        (Commander::new(mailbox), far)
    }

    fn command(heartbeat: i32) -> Command {
        Command { speed_fraction: 1.0, digital_outputs: 0, digital_outputs_mask: 0, heartbeat, challenge: 0 }
    }

    #[test]
    fn without_a_connection_it_says_so() {
        let mut commander = Commander::new(Arc::default());
        assert_eq!(commander.send(&command(1)), SendOutcome::Disconnected);
    }

    #[test]
    fn a_peer_that_does_not_read_never_blocks_and_never_corrupts_the_stream() {
        let (mut commander, mut far) = commander();
        let mut sent = Vec::new();
        let mut refused = 0;
        for heartbeat in 0..2_000_000 {
            match commander.send(&command(heartbeat)) {
                SendOutcome::Sent | SendOutcome::Partial => sent.push(heartbeat),
                SendOutcome::WouldBlock => refused += 1,
                outcome => panic!("{outcome:?}"),
            }
            if refused == 1000 {
                break;
            }
        }
        assert_eq!(refused, 1000, "the buffers never filled");
        far.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut frames = FrameBuffer::new(4096);
        let mut received = Vec::new();
        let mut drain = |received: &mut Vec<i32>| {
            while let Ok(1..) = frames.fill(|free| far.read(free)) {
                while let Some(packet) = frames.next_packet().unwrap() {
                    assert_eq!(packet.kind, PacketType::Data);
                    let (_, tail) = packet.payload.split_last_chunk::<8>().unwrap();
                    received.push(i32::from_be_bytes(*tail.first_chunk().unwrap()));
                }
            }
        };
        drain(&mut received);
        assert_eq!(commander.send(&command(i32::MAX)), SendOutcome::Sent);
        sent.push(i32::MAX);
        drain(&mut received);
        assert_eq!(received, sent, "every packet that was begun arrives whole, in order");
    }

    #[test]
    fn the_last_command_is_the_stop_however_the_commander_ends() {
        let stop = Command {
            speed_fraction: 0.0,
            digital_outputs: 4,
            digital_outputs_mask: 7,
            heartbeat: -1,
            challenge: 1,
        };
        let last_of = |mut far: TcpStream| {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            bytes[bytes.len() - COMMAND_BYTES..].to_vec()
        };
        let mut expected = [0; COMMAND_BYTES];
        recipe::encode(&stop, 3, &mut expected);
        for panics in [false, true] {
            let (mut commander, far) = commander();
            commander.at_end(stop);
            let thread = std::thread::spawn(move || {
                for heartbeat in 0..5 {
                    assert_eq!(commander.send(&command(heartbeat)), SendOutcome::Sent);
                }
                assert!(!panics, "a job that panics");
            });
            assert_eq!(thread.join().is_err(), panics);
            assert_eq!(last_of(far), expected);
        }
    }

    #[test]
    fn a_closed_link_is_an_outcome() {
        let (mut commander, far) = commander();
        drop(far);
        // The first send after the close may still be taken by the kernel; the reset it provokes is
        // not.
        let outcomes: Vec<_> = (0..10_000).map(|beat| commander.send(&command(beat))).collect();
        assert_eq!(outcomes.last(), Some(&SendOutcome::Disconnected));
    }
}
