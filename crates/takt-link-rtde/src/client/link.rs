//! Receives the robot's state in a thread of its own, and sets the connection up anew when it is
//! lost.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_rt::clock::monotonic_ns;
use takt_rt::exchange::{self, Reader, Writer};

use super::mailbox::{CommandSocket, Mailbox};
use super::{ClockFollower, Commander, Content, RtdeConfig, StateHistory, recipe};
use crate::recipe::{have_same_values, inputs, outputs};
use crate::session::RtdeSession;
use crate::wire::{ControllerVersion, PacketType, Reply, WireError};
use crate::{RobotState, RtdeError, socket};

/// Send buffer asked of the kernel. Small, so that a controller that takes in one packet per cycle
/// after a pause is not fed with the past for long; large enough (some tens of small packets, each
/// of which costs the kernel about a kilobyte) to ride out a pause of some tens of milliseconds
/// without refusing the newest.
const SEND_BUFFER_BYTES: i32 = 16 * 1024;

/// A packet older than this by its content is no live state.
const AGED_NS: u64 = 100_000_000;

/// When only such packets came for so long, the link is set up anew: a queue that does not drain
/// ends with its connection, and a clock that has lost time is followed afresh. The robot stands
/// meanwhile, and the round trip of the heartbeat judges the new connection.
const AGED_FOR_NS: u64 = 5_000_000_000;

/// Events that are kept until someone asks for them; older ones go first.
const MAX_EVENTS: usize = 256;

/// Something rare on the link, for logs and reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// Connected and set up.
    Connected {
        /// When, CLOCK_MONOTONIC nanoseconds.
        at_ns: u64,
        /// Version of the controller software.
        version: ControllerVersion,
    },
    /// The link is lost.
    Lost {
        /// When, CLOCK_MONOTONIC nanoseconds.
        at_ns: u64,
        /// The reason.
        reason: String,
    },
    /// Connecting again failed; it goes on.
    Retry {
        /// When, CLOCK_MONOTONIC nanoseconds.
        at_ns: u64,
        /// Reason of its failure.
        reason: String,
    },
    /// The controller says something to people.
    Message {
        /// When, CLOCK_MONOTONIC nanoseconds.
        at_ns: u64,
        /// Source and text.
        text: String,
    },
}

#[derive(Debug, Default)]
struct Control {
    stop: bool,
    /// Duplicate of the socket in use, so that a stop can end a receive that waits.
    stream: Option<TcpStream>,
    events: VecDeque<LinkEvent>,
    version: Option<ControllerVersion>,
    connections: u64,
}

/// State shared by the receiver and the owner of the link. Locked on connect, loss and messages
/// only, never per packet, and never by the commander.
#[derive(Debug, Default)]
struct LinkState {
    control: Mutex<Control>,
    stopped: Condvar,
}

impl LinkState {
    fn lock(&self) -> MutexGuard<'_, Control> {
        // A panic elsewhere leaves plain values behind, each of them valid.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, event: LinkEvent) {
        let mut control = self.lock();
        if control.events.len() == MAX_EVENTS {
            control.events.pop_front();
        }
        control.events.push_back(event);
    }
}

/// Result of [`Link::open`].
#[derive(Debug)]
pub struct Opened {
    /// Keeps the connection.
    pub link: Link,
    /// Sends the safety job's commands.
    pub commander: Commander,
    /// Readers of the newest state, as many as asked.
    pub states: Vec<Reader<RobotState>>,
    /// Readers of the recent states, as many as asked.
    pub histories: Vec<Reader<StateHistory>>,
}

/// The connection to the robot; dropping it closes the connection and ends the receiver thread.
#[derive(Debug)]
pub struct Link {
    shared: Arc<LinkState>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Connects, sets the recipes up and starts the receiver thread `rtde-recv`.
    ///
    /// `states` and `histories` are how many readers of the robot's newest state and of its recent
    /// states are handed out. Blocks for a few connect time-outs at most. From the first state on,
    /// the link reconnects by itself.
    ///
    /// # Errors
    /// A setting out of range, no connection, a controller that refuses, is too old, lacks a
    /// variable (`NOT_FOUND`) or has given an input to someone else (`IN_USE`).
    pub fn open(config: &RtdeConfig, states: usize, histories: usize) -> Result<Opened, RtdeError> {
        config.check()?;
        let mailbox = Arc::new(Mailbox::default());
        let shared = Arc::new(LinkState::default());
        let (writer, states) = exchange::latest(states, RobotState::default);
        let (history_writer, histories) = exchange::latest(histories, StateHistory::default);
        let mut receiver = Receiver {
            config: config.clone(),
            shared: Arc::clone(&shared),
            mailbox: Arc::clone(&mailbox),
            writer,
            history_writer,
            state: RobotState::default(),
            history: StateHistory::default(),
            clock: ClockFollower::default(),
            aged_since_ns: None,
        };
        let first = receiver.connect()?;
        let thread = std::thread::Builder::new()
            .name("rtde-recv".to_owned())
            .spawn(move || receiver.run(first))
            .map_err(RtdeError::io("starting the thread rtde-recv"))?;
        let link = Self { shared, thread: Some(thread) };
        Ok(Opened { link, commander: Commander::new(mailbox), states, histories })
    }

    /// Version of the controller of the newest connection.
    pub fn controller_version(&self) -> Option<ControllerVersion> {
        self.shared.lock().version
    }

    /// Number of connections so far, the first included.
    pub fn connections(&self) -> u64 {
        self.shared.lock().connections
    }

    /// Takes what has happened since the last call, oldest first.
    pub fn events(&self) -> Vec<LinkEvent> {
        self.shared.lock().events.drain(..).collect()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        {
            let mut control = self.shared.lock();
            control.stop = true;
            if let Some(stream) = &control.stream {
                // Fails when the link is down already; then nothing waits in a receive.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the receiver has been reported on stderr by itself.
            let _ = thread.join();
        }
    }
}

/// A connection that is set up and delivers.
struct Active {
    session: RtdeSession,
    output_recipe: u8,
}

struct Receiver {
    config: RtdeConfig,
    shared: Arc<LinkState>,
    mailbox: Arc<Mailbox>,
    writer: Writer<RobotState>,
    history_writer: Writer<StateHistory>,
    state: RobotState,
    history: StateHistory,
    clock: ClockFollower,
    /// Since when all packets have been older than [`AGED_NS`] by their content.
    aged_since_ns: Option<u64>,
}

impl Receiver {
    fn connect(&mut self) -> Result<Active, RtdeError> {
        let config = &self.config;
        let mut session = RtdeSession::open(&config.host, config.port, config.connect_timeout())?;
        session.require_upper_registers()?;
        let output_recipe = session.setup_outputs(config.frequency_hz, &outputs(&recipe::OUTPUTS))?;
        let input_recipe = session.setup_inputs(&inputs(&recipe::INPUTS))?;
        let silence_ms = config.silence_timeout_ms;
        socket::set_send_buffer(&session.stream, SEND_BUFFER_BYTES)
            .map_err(RtdeError::io("setting the send buffer"))?;
        socket::set_user_timeout(&session.stream, silence_ms as u32)
            .map_err(RtdeError::io("setting TCP_USER_TIMEOUT"))?;
        session.start()?;
        session
            .stream
            .set_read_timeout(Some(Duration::from_millis(silence_ms)))
            .map_err(RtdeError::io("setting the receive time-out"))?;
        let duplicate = || session.stream.try_clone().map_err(RtdeError::io("duplicating the socket"));
        let (for_commander, for_stop) = (duplicate()?, duplicate()?);
        {
            let mut control = self.shared.lock();
            if control.stop {
                return Err(RtdeError::Closed { doing: "stopping" });
            }
            control.stream = Some(for_stop);
            control.version = Some(session.version);
            control.connections += 1;
        }
        // A controller that was started again counts from 0 again.
        self.clock = ClockFollower::default();
        self.aged_since_ns = None;
        self.shared.record(LinkEvent::Connected { at_ns: monotonic_ns(), version: session.version });
        for text in session.texts.drain(..) {
            self.shared.record(LinkEvent::Message { at_ns: monotonic_ns(), text });
        }
        self.mailbox.offer(CommandSocket { socket: for_commander.into(), recipe: input_recipe });
        Ok(Active { session, output_recipe })
    }

    fn run(mut self, first: Active) {
        let mut active = Some(first);
        let mut pause = Duration::from_millis(self.config.reconnect_min_ms);
        loop {
            if let Some(mut connection) = active.take() {
                let packets_before = self.state.sequence;
                let reason = self.receive(&mut connection);
                self.lose(&connection, &reason);
                if self.state.sequence > packets_before {
                    pause = Duration::from_millis(self.config.reconnect_min_ms);
                }
            }
            if self.wait(pause) {
                return;
            }
            match self.connect() {
                Ok(connection) => active = Some(connection),
                Err(error) => {
                    self.shared.record(LinkEvent::Retry { at_ns: monotonic_ns(), reason: error.to_string() });
                }
            }
            // Also after a connection that delivers nothing: else that would be tried without
            // pause.
            pause = (pause * 2).min(Duration::from_millis(self.config.reconnect_max_ms));
        }
    }

    /// Publishes packets until the link is lost; says why.
    fn receive(&mut self, connection: &mut Active) -> RtdeError {
        let Active { session, output_recipe } = connection;
        loop {
            match session.frames.next_packet() {
                Ok(Some(packet)) if packet.kind == PacketType::Data => {
                    let published = match packet.payload.split_first() {
                        Some((recipe, values)) if recipe == output_recipe => self.publish(values),
                        _ => Err(WireError::Trailing { left: packet.payload.len() }),
                    };
                    if let Err(error) = published {
                        return error.into();
                    }
                    let aged_ns = self.aged_since_ns.map_or(0, |since| self.state.received_ns - since);
                    if aged_ns > AGED_FOR_NS {
                        return RtdeError::Aged { seconds: aged_ns / 1_000_000_000 };
                    }
                }
                Ok(Some(packet)) => match Reply::parse(packet) {
                    Ok(Reply::Text(message)) => {
                        let text = format!("{}: {}", message.source, message.text);
                        self.shared.record(LinkEvent::Message { at_ns: monotonic_ns(), text });
                    }
                    // An answer to nothing that was asked changes nothing.
                    Ok(_) => {}
                    Err(error) => return error.into(),
                },
                Ok(None) => {
                    self.mailbox.close_retired();
                    match session.frames.fill(|free| session.stream.read(free)) {
                        Ok(0) => return RtdeError::Closed { doing: "sending its state" },
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            let waited_ms = self.config.silence_timeout_ms;
                            return RtdeError::TimedOut { doing: "waiting for its state", waited_ms };
                        }
                        Err(error) => return RtdeError::Io { doing: "receiving the state", source: error },
                    }
                }
                Err(error) => return error.into(),
            }
        }
    }

    fn publish(&mut self, values: &[u8]) -> Result<(), WireError> {
        let before = self.state;
        self.state.received_ns = monotonic_ns();
        self.state.connected = true;
        recipe::decode(values, &mut self.state)?;
        let same = before.connected && have_same_values(&recipe::OUTPUTS, &before, &self.state);
        let followed = self.clock.follow(self.state.controller_s, self.state.received_ns, same);
        self.state.content = followed.content;
        self.state.measured_ns = followed.measured_ns;
        self.state.age_error_ns = followed.error_ns;
        if matches!(followed.content, Content::ClockBackwards | Content::ClockLeapt) {
            // Counted, because who looks at the newest state only may miss the packet itself.
            self.state.clock_faults = self.state.clock_faults.wrapping_add(1);
            self.state.clock_fault = followed.content;
        }
        // Here every packet is seen; who reads the newest one only would date an echo too late.
        if self.state.heartbeat_echo != before.heartbeat_echo {
            self.state.heartbeat_echo_ns = self.state.received_ns;
        }
        if self.state.script_echo != before.script_echo {
            self.state.script_echo_ns = self.state.received_ns;
        }
        let age_ns = self.state.received_ns - self.state.measured_ns;
        self.aged_since_ns = (age_ns > AGED_NS).then(|| self.aged_since_ns.unwrap_or(self.state.received_ns));
        self.state.sequence += 1;
        // The history first: who sees a state finds it in the history as well.
        if self.history.push(&self.state) {
            let history = &self.history;
            self.history_writer.write(self.state.received_ns, |slot| slot.clone_from(history));
        }
        self.writer.publish(self.state.received_ns, self.state);
        Ok(())
    }

    /// Says first that the link is down, then breaks the connection for the commander too.
    fn lose(&mut self, connection: &Active, reason: &RtdeError) {
        self.state.connected = false;
        self.writer.publish(monotonic_ns(), self.state);
        // Fails when the peer was first; the socket is unusable either way.
        let _ = connection.session.stream.shutdown(Shutdown::Both);
        self.mailbox.withdraw();
        self.mailbox.close_retired();
        self.shared.lock().stream = None;
        self.shared.record(LinkEvent::Lost { at_ns: monotonic_ns(), reason: reason.to_string() });
    }

    /// Waits before connecting again; true when the link is to end.
    fn wait(&self, pause: Duration) -> bool {
        let control = self.shared.lock();
        let (control, _) = self
            .shared
            .stopped
            .wait_timeout_while(control, pause, |control| !control.stop)
            .unwrap_or_else(PoisonError::into_inner);
        control.stop
    }
}
