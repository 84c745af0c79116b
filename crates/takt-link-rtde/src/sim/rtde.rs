//! One RTDE client of the simulated controller.

use std::io;
use std::net::TcpStream;

use super::CYCLE_HZ;
use super::connection::Connection;
use super::controller::Controller;
use super::variables::{self, Input, Output};
use crate::wire::{
    Answer, ControllerVersion, FrameBuffer, HEADER_BYTES, MAX_NAMES_BYTES, Message, PROTOCOL_VERSION, Packet,
    PacketType, PacketWriter, Reply, Request, WireError, names,
};

/// Largest packet that is taken from a client: a list of names is the longest that makes sense.
const MAX_REQUEST_BYTES: usize = MAX_NAMES_BYTES + 64;

/// Largest output packet; 200 vectors fit.
const MAX_OUTPUT_BYTES: usize = 10_000;

/// Input recipes of one client: identifiers are one byte, and 0 means none.
const MAX_RECIPES: usize = 255;

/// Bytes that wait for a client that does not read, before new packets are left out.
const MAX_WAITING_BYTES: usize = 4 * MAX_OUTPUT_BYTES;

/// Delivery of a packet, for fault injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Whole,
    /// First half now, second half in a later cycle.
    Split,
    /// First half only.
    Cut,
}

/// Outcome of this cycle's output packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    NotDue,
    Sent,
    /// Left out: the client does not read.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) connection: Connection,
    frames: FrameBuffer,
    negotiated: bool,
    started: bool,
    every: u32,
    outputs: Option<Vec<Output>>,
    inputs: Vec<Vec<Input>>,
}

impl Client {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        Ok(Self {
            connection: Connection::new(stream)?,
            frames: FrameBuffer::new(MAX_REQUEST_BYTES),
            negotiated: false,
            started: false,
            every: 1,
            outputs: None,
            inputs: Vec::new(),
        })
    }

    pub(super) fn owns(&self, input: Input) -> bool {
        self.inputs.iter().flatten().any(|owned| *owned == input)
    }

    /// Reads and answers all that has come. `taken` shows whether another client owns an input.
    /// Returns how many packets were refused.
    pub(super) fn serve(
        &mut self,
        controller: &mut Controller,
        now_ns: u64,
        taken: impl Fn(Input) -> bool,
    ) -> u64 {
        let mut refused = 0;
        // Bounded: a client that sends faster than we read must not stop the cycle.
        for _ in 0..16 {
            let read = match self.frames.fill(|free| self.connection.read(free)) {
                Ok(0) => {
                    self.connection.open = false;
                    break;
                }
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    self.connection.open = false;
                    break;
                }
            };
            // Taken out while packets borrow from it, so that answers can borrow the rest of the
            // client.
            let mut frames = std::mem::replace(&mut self.frames, FrameBuffer::new(HEADER_BYTES));
            loop {
                match frames.next_packet() {
                    Ok(None) => break,
                    Ok(Some(packet)) => {
                        if let Err(error) = self.answer(packet, controller, now_ns, &taken) {
                            refused += 1;
                            self.text(&error.to_string(), 1);
                        }
                    }
                    Err(error) => {
                        refused += 1;
                        self.text(&error.to_string(), 0);
                        self.connection.open = false;
                        break;
                    }
                }
            }
            self.frames = frames;
            // A short read has emptied the socket; a full one may have left something.
            if !self.connection.open || read < MAX_REQUEST_BYTES / 2 {
                break;
            }
        }
        refused
    }

    fn answer(
        &mut self,
        packet: Packet<'_>,
        controller: &mut Controller,
        now_ns: u64,
        taken: &impl Fn(Input) -> bool,
    ) -> Result<(), WireError> {
        let request = Request::parse(packet)?;
        if !self.negotiated && !matches!(request, Request::ProtocolVersion(_)) {
            self.text("protocol version 2 has to be negotiated first: version 1 is not simulated", 0);
            self.connection.open = false;
            return Ok(());
        }
        match request {
            Request::ProtocolVersion(version) => {
                let accepted = version == PROTOCOL_VERSION;
                self.negotiated |= accepted;
                self.reply(&Reply::ProtocolVersion { accepted });
            }
            Request::ControllerVersion => {
                let [major, minor, bugfix, build] = controller.version();
                self.reply(&Reply::ControllerVersion(ControllerVersion { major, minor, bugfix, build }));
            }
            Request::SetupOutputs { frequency_hz, names } => {
                self.setup_outputs(frequency_hz, names, controller);
            }
            Request::SetupInputs { names } => self.setup_inputs(names, controller, taken),
            Request::Start => {
                self.started = self.outputs.is_some();
                // A client that only writes may start too, as `ur_rtde` does not, but others do.
                let accepted = self.started || !self.inputs.is_empty();
                self.reply(&Reply::Start { accepted });
            }
            Request::Pause => {
                self.started = false;
                self.reply(&Reply::Pause { accepted: true });
            }
            Request::Data { recipe, values } => {
                let index = usize::from(recipe).checked_sub(1);
                match index.and_then(|index| self.inputs.get(index)) {
                    Some(inputs) => variables::apply(inputs, values, controller, now_ns)?,
                    None => return Err(WireError::Trailing { left: values.len() }),
                }
            }
            Request::Text(_) => {}
        }
        Ok(())
    }

    fn setup_outputs(&mut self, frequency_hz: f64, list: &str, controller: &Controller) {
        let found: Vec<_> =
            names(list).map(|name| Output::find(name).filter(|_| !controller.lacks(name))).collect();
        let types: Vec<_> = found
            .iter()
            .map(|output| match output {
                Some(output) => Answer::Type(output.value(controller).kind()).name(),
                None => Answer::NotFound.name(),
            })
            .collect();
        let outputs: Option<Vec<_>> = found.into_iter().collect();
        let outputs = outputs.filter(|outputs| !outputs.is_empty());
        self.every = if frequency_hz > 0.0 {
            (f64::from(CYCLE_HZ) / frequency_hz).round().clamp(1.0, f64::from(CYCLE_HZ)) as u32
        } else {
            1
        };
        self.started = false;
        self.reply(&Reply::SetupOutputs { recipe: u8::from(outputs.is_some()), types: &types.join(",") });
        self.outputs = outputs;
    }

    fn setup_inputs(&mut self, list: &str, controller: &Controller, taken: &impl Fn(Input) -> bool) {
        let mut inputs = Vec::new();
        let mut usable = self.inputs.len() < MAX_RECIPES;
        let types: Vec<_> = names(list)
            .map(|name| match Input::find(name).filter(|_| !controller.lacks(name)) {
                Some(input) if taken(input) => {
                    usable = false;
                    Answer::InUse.name()
                }
                Some(input) => {
                    inputs.push(input);
                    Answer::Type(input.kind()).name()
                }
                None => {
                    usable = false;
                    Answer::NotFound.name()
                }
            })
            .collect();
        let mut recipe = 0;
        if usable && !inputs.is_empty() {
            self.inputs.push(inputs);
            recipe = u8::try_from(self.inputs.len()).unwrap_or(0);
        }
        self.reply(&Reply::SetupInputs { recipe, types: &types.join(",") });
    }

    fn reply(&mut self, reply: &Reply<'_>) {
        let mut buffer = [0; MAX_OUTPUT_BYTES];
        match reply.encode(&mut buffer) {
            Ok(size) => self.queue(&buffer[..size]),
            Err(_) => self.connection.open = false,
        }
    }

    /// Says something to the people behind the client.
    pub(super) fn text(&mut self, text: &str, level: u8) {
        self.reply(&Reply::Text(Message { text, source: "ursim", level }));
    }

    /// Sends bytes as they are.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        if self.connection.waiting_bytes() + bytes.len() > MAX_WAITING_BYTES {
            // Answers and texts are never left out silently: such a client is gone.
            self.connection.open = false;
            return;
        }
        self.connection.keep(bytes);
        self.connection.flush();
    }

    /// Sends this cycle's outputs, if they are due.
    pub(super) fn send_outputs(&mut self, controller: &Controller, cycle: u64, delivery: Delivery) -> Turn {
        let Some(outputs) = self.outputs.as_ref().filter(|_| self.started) else { return Turn::NotDue };
        if !cycle.is_multiple_of(u64::from(self.every)) {
            return Turn::NotDue;
        }
        if self.connection.waiting_bytes() > 0 {
            // Old values have no worth; new ones wait for a client that reads.
            return Turn::Dropped;
        }
        let mut buffer = [0; MAX_OUTPUT_BYTES];
        let mut writer = PacketWriter::new(&mut buffer, PacketType::Data);
        writer.u8(1);
        for output in outputs {
            output.value(controller).write(&mut writer);
        }
        let Ok(size) = writer.finish() else {
            self.connection.open = false;
            return Turn::Dropped;
        };
        match delivery {
            Delivery::Whole => self.queue(&buffer[..size]),
            Delivery::Split => {
                self.queue(&buffer[..size / 2]);
                self.connection.keep(&buffer[size / 2..size]);
            }
            Delivery::Cut => {
                self.queue(&buffer[..size / 2]);
                self.connection.open = false;
            }
        }
        Turn::Sent
    }
}
