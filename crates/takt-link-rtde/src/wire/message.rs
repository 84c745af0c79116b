//! Messages between client and controller, as packets.

use super::{Fields, Packet, PacketType, PacketWriter, WireError};

/// Longest list of variable names that a controller takes in one set-up packet (RTDE guide).
pub const MAX_NAMES_BYTES: usize = 2048;

/// Version of the controller software.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerVersion {
    /// Major: 3 is CB-series, 5 and 10 are e-Series and UR20/UR30.
    pub major: u32,
    /// Minor.
    pub minor: u32,
    /// Bug fix.
    pub bugfix: u32,
    /// Build.
    pub build: u32,
}

impl std::fmt::Display for ControllerVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}.{}", self.major, self.minor, self.bugfix, self.build)
    }
}

/// A text for people, from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The text.
    pub text: &'a str,
    /// Part of the controller that sent it.
    pub source: &'a str,
    /// 0 exception, 1 error, 2 warning, 3 information.
    pub level: u8,
}

/// Message of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request<'a> {
    /// Ask for a protocol version.
    ProtocolVersion(u16),
    /// Ask for the controller's version.
    ControllerVersion,
    /// Set up the output recipe.
    SetupOutputs {
        /// Packets per second, 1 to 500 on e-Series.
        frequency_hz: f64,
        /// Comma-separated variable names.
        names: &'a str,
    },
    /// Set up an input recipe.
    SetupInputs {
        /// Comma-separated variable names.
        names: &'a str,
    },
    /// Start sending outputs.
    Start,
    /// Pause sending outputs.
    Pause,
    /// Input values.
    Data {
        /// Recipe that the controller gave.
        recipe: u8,
        /// The recipe's values, packed.
        values: &'a [u8],
    },
    /// A text for the controller's log.
    Text(Message<'a>),
}

/// Message of a controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply<'a> {
    /// Whether the protocol version is accepted.
    ProtocolVersion {
        /// The verdict.
        accepted: bool,
    },
    /// The controller's version.
    ControllerVersion(ControllerVersion),
    /// Types of the output variables asked for.
    SetupOutputs {
        /// Identifier of the recipe, 0 when a variable is missing.
        recipe: u8,
        /// Comma-separated types, or `NOT_FOUND`.
        types: &'a str,
    },
    /// Types of the input variables asked for.
    SetupInputs {
        /// Identifier of the recipe, 0 when a variable is missing or in use.
        recipe: u8,
        /// Comma-separated types, `NOT_FOUND` or `IN_USE`.
        types: &'a str,
    },
    /// Whether sending starts.
    Start {
        /// The verdict.
        accepted: bool,
    },
    /// Whether sending pauses.
    Pause {
        /// The verdict.
        accepted: bool,
    },
    /// Output values.
    Data {
        /// Recipe that they belong to.
        recipe: u8,
        /// The recipe's values, packed.
        values: &'a [u8],
    },
    /// A text for people.
    Text(Message<'a>),
}

fn text(bytes: &[u8]) -> Result<&str, WireError> {
    std::str::from_utf8(bytes).map_err(|_| WireError::NotText)
}

fn name_list(bytes: &[u8]) -> Result<&str, WireError> {
    if bytes.len() > MAX_NAMES_BYTES {
        return Err(WireError::NamesTooLong { received: bytes.len(), limit: MAX_NAMES_BYTES });
    }
    text(bytes)
}

fn check_names(names: &str) -> Result<&[u8], WireError> {
    name_list(names.as_bytes()).map(str::as_bytes)
}

impl<'a> Message<'a> {
    fn parse(fields: &mut Fields<'a>) -> Result<Self, WireError> {
        let length = usize::from(fields.u8()?);
        let message = text(fields.bytes(length)?)?;
        let length = usize::from(fields.u8()?);
        let source = text(fields.bytes(length)?)?;
        Ok(Self { text: message, source, level: fields.u8()? })
    }

    fn encode(&self, writer: &mut PacketWriter<'_>) {
        for part in [self.text, self.source] {
            // One length byte: cut at a character boundary rather than send a length that lies.
            let part = &part[..part.floor_char_boundary(usize::from(u8::MAX))];
            writer.u8(part.len() as u8).bytes(part.as_bytes());
        }
        writer.u8(self.level);
    }
}

impl<'a> Request<'a> {
    /// Parses what a client sent.
    ///
    /// # Errors
    /// A payload that is too short, too long or no text.
    pub fn parse(packet: Packet<'a>) -> Result<Self, WireError> {
        let mut fields = Fields::new(packet.payload);
        let request = match packet.kind {
            PacketType::ProtocolVersion => Self::ProtocolVersion(fields.u16()?),
            PacketType::ControllerVersion => Self::ControllerVersion,
            PacketType::SetupOutputs => {
                Self::SetupOutputs { frequency_hz: fields.f64()?, names: name_list(fields.rest())? }
            }
            PacketType::SetupInputs => Self::SetupInputs { names: name_list(fields.rest())? },
            PacketType::Start => Self::Start,
            PacketType::Pause => Self::Pause,
            PacketType::Data => Self::Data { recipe: fields.u8()?, values: fields.rest() },
            PacketType::Text => Self::Text(Message::parse(&mut fields)?),
        };
        fields.finish()?;
        Ok(request)
    }

    /// Packs it into `buffer` and returns its size.
    ///
    /// # Errors
    /// It does not fit, or the list of names is too long.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let start = PacketWriter::new;
        match self {
            Self::ProtocolVersion(version) => {
                start(buffer, PacketType::ProtocolVersion).u16(*version).finish()
            }
            Self::ControllerVersion => start(buffer, PacketType::ControllerVersion).finish(),
            Self::SetupOutputs { frequency_hz, names } => {
                start(buffer, PacketType::SetupOutputs).f64(*frequency_hz).bytes(check_names(names)?).finish()
            }
            Self::SetupInputs { names } => {
                start(buffer, PacketType::SetupInputs).bytes(check_names(names)?).finish()
            }
            Self::Start => start(buffer, PacketType::Start).finish(),
            Self::Pause => start(buffer, PacketType::Pause).finish(),
            Self::Data { recipe, values } => {
                start(buffer, PacketType::Data).u8(*recipe).bytes(values).finish()
            }
            Self::Text(message) => {
                let mut writer = start(buffer, PacketType::Text);
                message.encode(&mut writer);
                writer.finish()
            }
        }
    }
}

impl<'a> Reply<'a> {
    /// Parses what a controller sent.
    ///
    /// # Errors
    /// A payload that is too short, too long or no text.
    pub fn parse(packet: Packet<'a>) -> Result<Self, WireError> {
        let mut fields = Fields::new(packet.payload);
        let reply = match packet.kind {
            PacketType::ProtocolVersion => Self::ProtocolVersion { accepted: fields.u8()? != 0 },
            PacketType::ControllerVersion => Self::ControllerVersion(ControllerVersion {
                major: fields.u32()?,
                minor: fields.u32()?,
                bugfix: fields.u32()?,
                build: fields.u32()?,
            }),
            PacketType::SetupOutputs => {
                Self::SetupOutputs { recipe: fields.u8()?, types: text(fields.rest())? }
            }
            PacketType::SetupInputs => {
                Self::SetupInputs { recipe: fields.u8()?, types: text(fields.rest())? }
            }
            PacketType::Start => Self::Start { accepted: fields.u8()? != 0 },
            PacketType::Pause => Self::Pause { accepted: fields.u8()? != 0 },
            PacketType::Data => Self::Data { recipe: fields.u8()?, values: fields.rest() },
            PacketType::Text => Self::Text(Message::parse(&mut fields)?),
        };
        fields.finish()?;
        Ok(reply)
    }

    /// Packs it into `buffer` and returns its size.
    ///
    /// # Errors
    /// It does not fit.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let start = PacketWriter::new;
        match self {
            Self::ProtocolVersion { accepted } => {
                start(buffer, PacketType::ProtocolVersion).u8(u8::from(*accepted)).finish()
            }
            Self::ControllerVersion(version) => start(buffer, PacketType::ControllerVersion)
                .u32(version.major)
                .u32(version.minor)
                .u32(version.bugfix)
                .u32(version.build)
                .finish(),
            Self::SetupOutputs { recipe, types } => {
                start(buffer, PacketType::SetupOutputs).u8(*recipe).bytes(types.as_bytes()).finish()
            }
            Self::SetupInputs { recipe, types } => {
                start(buffer, PacketType::SetupInputs).u8(*recipe).bytes(types.as_bytes()).finish()
            }
            Self::Start { accepted } => start(buffer, PacketType::Start).u8(u8::from(*accepted)).finish(),
            Self::Pause { accepted } => start(buffer, PacketType::Pause).u8(u8::from(*accepted)).finish(),
            Self::Data { recipe, values } => {
                start(buffer, PacketType::Data).u8(*recipe).bytes(values).finish()
            }
            Self::Text(message) => {
                let mut writer = start(buffer, PacketType::Text);
                message.encode(&mut writer);
                writer.finish()
            }
        }
    }
}
