//! Setting a connection up: resolve, connect, negotiate, ask for recipes. It blocks, bounded by
//! time-outs, and it allocates: it runs before the data path and on reconnects, never on the safety
//! job's thread.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::RtdeError;
use crate::wire::{
    Answer, ControllerVersion, DataType, Fields, FrameBuffer, HEADER_BYTES, MAX_NAMES_BYTES,
    MAX_PACKET_BYTES, PROTOCOL_VERSION, Packet, PacketType, Reply, Request, names,
};

/// A variable of a recipe and the type that Takt expects it to have.
pub(crate) type Variable = (&'static str, DataType);

/// Texts of the controller that are kept from one set-up; a controller says a handful.
const MAX_TEXTS: usize = 32;

/// A negotiated connection.
#[derive(Debug)]
pub(crate) struct RtdeSession {
    pub(crate) stream: TcpStream,
    pub(crate) frames: FrameBuffer,
    pub(crate) version: ControllerVersion,
    /// Messages of the controller in the meantime.
    pub(crate) texts: Vec<String>,
    timeout: Duration,
}

/// Connects to the first address of `host` that answers.
pub(crate) fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, RtdeError> {
    let unresolved = |source| RtdeError::Resolve { host: host.to_owned(), source };
    let mut failure = None;
    for address in (host, port).to_socket_addrs().map_err(unresolved)? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                // Nagle would hold a command back until the one before it is acknowledged.
                stream.set_nodelay(true).map_err(RtdeError::io("setting TCP_NODELAY"))?;
                return Ok(stream);
            }
            Err(source) => failure = Some(RtdeError::Connect { address, source }),
        }
    }
    Err(failure.unwrap_or_else(|| unresolved(io::Error::new(io::ErrorKind::NotFound, "no address"))))
}

impl RtdeSession {
    /// Connects, negotiates protocol version 2 and reads the controller's version.
    pub(crate) fn open(host: &str, port: u16, timeout: Duration) -> Result<Self, RtdeError> {
        let stream = connect(host, port, timeout)?;
        stream.set_write_timeout(Some(timeout)).map_err(RtdeError::io("setting the send time-out"))?;
        let mut session = Self {
            stream,
            frames: FrameBuffer::new(MAX_PACKET_BYTES),
            version: ControllerVersion { major: 0, minor: 0, bugfix: 0, build: 0 },
            texts: Vec::new(),
            timeout,
        };
        let doing = "negotiating the protocol version";
        let payload =
            session.ask(&Request::ProtocolVersion(PROTOCOL_VERSION), PacketType::ProtocolVersion, doing)?;
        match Reply::parse(Packet { kind: PacketType::ProtocolVersion, payload: &payload })? {
            Reply::ProtocolVersion { accepted: true } => {}
            _ => return Err(RtdeError::ProtocolRefused),
        }
        let doing = "asking for the controller version";
        let payload = session.ask(&Request::ControllerVersion, PacketType::ControllerVersion, doing)?;
        if let Reply::ControllerVersion(version) =
            Reply::parse(Packet { kind: PacketType::ControllerVersion, payload: &payload })?
        {
            session.version = version;
        }
        Ok(session)
    }

    /// Refuses controllers without the registers 24 to 47, which belong to external clients.
    ///
    /// RTDE guide: general purpose registers 24..47 exist from 3.9.0 (CB-series) and 5.3.0
    /// (e-Series) on.
    pub(crate) fn require_upper_registers(&self) -> Result<(), RtdeError> {
        let (major, minor) = (self.version.major, self.version.minor);
        let required = match major {
            0..=3 => (3, 9),
            _ => (5, 3),
        };
        if (major, minor) < required {
            let required = format!("{}.{}", required.0, required.1);
            return Err(RtdeError::ControllerTooOld { received: self.version, required });
        }
        Ok(())
    }

    /// Sets the output recipe up; returns its identifier.
    pub(crate) fn setup_outputs(
        &mut self,
        frequency_hz: f64,
        variables: &[Variable],
    ) -> Result<u8, RtdeError> {
        let names = list(variables);
        let request = Request::SetupOutputs { frequency_hz, names: &names };
        self.setup(&request, PacketType::SetupOutputs, "output", variables)
    }

    /// Sets an input recipe up; returns its identifier.
    pub(crate) fn setup_inputs(&mut self, variables: &[Variable]) -> Result<u8, RtdeError> {
        let names = list(variables);
        let request = Request::SetupInputs { names: &names };
        self.setup(&request, PacketType::SetupInputs, "input", variables)
    }

    fn setup(
        &mut self,
        request: &Request<'_>,
        kind: PacketType,
        direction: &'static str,
        variables: &[Variable],
    ) -> Result<u8, RtdeError> {
        let payload = self.ask(request, kind, "setting a recipe up")?;
        let mut fields = Fields::new(&payload);
        let recipe = fields.u8()?;
        let types = std::str::from_utf8(fields.rest()).map_err(|_| crate::wire::WireError::NotText)?;
        let answers = names(types).map(Answer::parse).collect::<Result<Vec<_>, _>>()?;
        if answers.len() != variables.len() {
            return Err(RtdeError::AnswerCount { expected: variables.len(), received: answers.len() });
        }
        for (&(name, expected), answer) in variables.iter().zip(answers) {
            let name = name.to_owned();
            match answer {
                Answer::NotFound => {
                    return Err(RtdeError::NotFound { direction, name, version: self.version });
                }
                Answer::InUse => return Err(RtdeError::InUse { name }),
                Answer::Type(kind) if kind != expected => {
                    let (expected, received) = (expected.name(), kind.name());
                    return Err(RtdeError::WrongType { name, expected, received });
                }
                Answer::Type(_) => {}
            }
        }
        Ok(recipe)
    }

    /// Asks the controller to send outputs.
    pub(crate) fn start(&mut self) -> Result<(), RtdeError> {
        let payload = self.ask(&Request::Start, PacketType::Start, "starting the outputs")?;
        if payload.first().is_some_and(|accepted| *accepted != 0) {
            Ok(())
        } else {
            Err(RtdeError::StartRefused)
        }
    }

    /// Sends a request and waits for the answer of that kind; texts and data that come before it
    /// are no answer.
    fn ask(
        &mut self,
        request: &Request<'_>,
        expected: PacketType,
        doing: &'static str,
    ) -> Result<Vec<u8>, RtdeError> {
        let mut buffer = [0; MAX_NAMES_BYTES + HEADER_BYTES + size_of::<f64>()];
        let size = request.encode(&mut buffer)?;
        self.stream.write_all(&buffer[..size]).map_err(RtdeError::io(doing))?;
        let deadline = Instant::now() + self.timeout;
        loop {
            while let Some(packet) = self.frames.next_packet()? {
                if packet.kind == expected {
                    return Ok(packet.payload.to_vec());
                }
                match packet.kind {
                    PacketType::Data => {}
                    PacketType::Text => {
                        if let (Reply::Text(message), true) =
                            (Reply::parse(packet)?, self.texts.len() < MAX_TEXTS)
                        {
                            self.texts.push(format!("{}: {}", message.source, message.text));
                        }
                    }
                    other => {
                        return Err(RtdeError::UnexpectedReply {
                            expected: char::from(expected as u8),
                            received: char::from(other as u8),
                        });
                    }
                }
            }
            let timed_out = RtdeError::TimedOut { doing, waited_ms: self.timeout.as_millis() as u64 };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out);
            }
            self.stream
                .set_read_timeout(Some(left))
                .map_err(RtdeError::io("setting the receive time-out"))?;
            match self.frames.fill(|free| self.stream.read(free)) {
                Ok(0) => return Err(RtdeError::Closed { doing }),
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(timed_out),
                    _ => return Err(RtdeError::Io { doing, source: error }),
                },
            }
        }
    }
}

fn list(variables: &[Variable]) -> String {
    variables.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",")
}
