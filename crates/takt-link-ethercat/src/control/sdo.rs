//! SDO transfers of any length (ETG.1000.6, 5.6.2): expedited, normal and segmented, through a
//! device's mailboxes.
//!
//! The master's own transfers end at four bytes when they write. Requests carry the mailbox counter
//! 0, which no device takes for a repetition of the master's last one (IgH's master sends nothing
//! else).

use ethercrab::error::Error;
use ethercrab::{Command, MainDevice};

use crate::frame::MAX_DATA;

/// Sync managers 0 (requests) and 1 (responses): start, length; their status is five bytes on.
const REQUESTS: u16 = 0x0800;
const RESPONSES: u16 = 0x0808;
const STATUS: u16 = 5;
/// Of a sync manager's status: the mailbox is full.
const FULL: u8 = 1 << 3;
/// Mailbox header.
const HEADER: usize = 6;
/// CoE header and the beginning of an SDO: command, index, sub-index, size or data.
const START: usize = 10;
/// The least mailbox that carries a request.
const MIN_MAILBOX: usize = HEADER + START;
/// A segment's data are at least so many bytes, padded.
const MIN_SEGMENT: usize = 7;
const COE: u8 = 3;
const EMERGENCY: u16 = 1;
const REQUEST: u16 = 2;
const RESPONSE: u16 = 3;
/// Responses to something else (emergencies, answers to an earlier request) that are read over
/// before one gives up.
const MAX_FOREIGN: usize = 16;
/// Longest object, bytes: a device that reports no end must have one.
pub(super) const MAX_OBJECT: usize = 1 << 20;

/// Reason why a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SdoError {
    /// The device refuses (ETG.1000.6, table 41).
    #[error("SDO abort {code:#010x}, {}", abort_text(*code))]
    Abort {
        /// The code.
        code: u32,
    },
    /// The device has no mailboxes, or too small ones.
    #[error(
        "its mailboxes hold {requests} and {responses} bytes, but a transfer needs {MIN_MAILBOX} to {MAX_DATA}: it does not support CoE in \
         this state"
    )]
    NoMailbox {
        /// Bytes of the mailbox for requests.
        requests: u16,
        /// Bytes of the mailbox for responses.
        responses: u16,
    },
    /// The device's answer is none to what was asked.
    #[error("unexpected response: {what}")]
    Unexpected {
        /// Its content, and the expected one.
        what: String,
    },
}

fn abort_text(code: u32) -> &'static str {
    match code {
        0x0503_0000 => "toggle bit not changed",
        0x0504_0000 => "time-out of the protocol",
        0x0504_0001 => "command not known",
        0x0504_0005 => "out of memory",
        0x0601_0000 => "access not supported",
        0x0601_0001 => "write only",
        0x0601_0002 => "read only",
        0x0602_0000 => "no such object",
        0x0604_0041 => "cannot be mapped",
        0x0607_0010 => "data type or length does not match",
        0x0607_0012 => "data are too long",
        0x0607_0013 => "data are too short",
        0x0609_0011 => "no such sub-index",
        0x0609_0030 => "value out of range",
        0x0800_0020 | 0x0800_0021 => "cannot be stored now",
        0x0800_0022 => "not allowed in the device's present state",
        _ => "a device-specific code",
    }
}

/// A device's mailboxes, as its sync managers hold them.
#[derive(Debug, Clone, Copy)]
struct Mailboxes {
    address: u16,
    /// Start and bytes.
    requests: (u16, usize),
    responses: (u16, usize),
}

/// Outcome of a transfer: the master's trouble with frames outside, the device's answer inside.
type Transfer<T> = Result<Result<T, SdoError>, Error>;

/// `?` for the inner one of two results.
macro_rules! answer {
    ($outcome:expr) => {
        match $outcome {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        }
    };
}

impl Mailboxes {
    async fn find(device: &MainDevice<'static>, address: u16) -> Transfer<Self> {
        let mut found = [(0, 0); 2];
        for (at, manager) in [REQUESTS, RESPONSES].into_iter().enumerate() {
            let bytes = Command::fprd(address, manager).receive::<[u8; 4]>(device).await?;
            let start = u16::from_le_bytes([bytes[0], bytes[1]]);
            found[at] = (start, usize::from(u16::from_le_bytes([bytes[2], bytes[3]])));
        }
        let [requests, responses] = found;
        let usable = MIN_MAILBOX..=MAX_DATA;
        if !usable.contains(&requests.1) || !usable.contains(&responses.1) {
            let (requests, responses) = (requests.1 as u16, responses.1 as u16);
            return Ok(Err(SdoError::NoMailbox { requests, responses }));
        }
        Ok(Ok(Self { address, requests, responses }))
    }

    async fn is_full(&self, device: &MainDevice<'static>, manager: u16) -> Result<bool, Error> {
        let status = Command::fprd(self.address, manager + STATUS).receive::<u8>(device).await?;
        Ok(status & FULL != 0)
    }

    async fn fetch(&self, device: &MainDevice<'static>) -> Result<Vec<u8>, Error> {
        let read = Command::fprd(self.address, self.responses.0);
        Ok(read.receive_slice(device, self.responses.1 as u16).await?.to_vec())
    }

    /// Sends an SDO, from its command byte on; the SDO that answers it.
    async fn ask(&self, device: &MainDevice<'static>, sdo: &[u8]) -> Transfer<Vec<u8>> {
        // Remains of an earlier request would be mistaken for the answer.
        if self.is_full(device, RESPONSES).await? {
            self.fetch(device).await?;
        }
        while self.is_full(device, REQUESTS).await? {}
        // Whole: the last byte of the mailbox is what hands it over.
        let mut mailbox = vec![0; self.requests.1];
        mailbox[..2].copy_from_slice(&(2 + sdo.len() as u16).to_le_bytes());
        mailbox[5] = COE;
        mailbox[HEADER..HEADER + 2].copy_from_slice(&(REQUEST << 12).to_le_bytes());
        mailbox[HEADER + 2..HEADER + 2 + sdo.len()].copy_from_slice(sdo);
        Command::fpwr(self.address, self.requests.0).send(device, mailbox.as_slice()).await?;
        for _ in 0..MAX_FOREIGN {
            while !self.is_full(device, RESPONSES).await? {}
            let response = self.fetch(device).await?;
            let length = usize::from(u16::from_le_bytes([response[0], response[1]]));
            let Some(body) = response.get(HEADER..HEADER + length).filter(|body| body.len() >= 3) else {
                let what = format!("a length of {length} in a mailbox of {} bytes", self.responses.1);
                return Ok(Err(SdoError::Unexpected { what }));
            };
            let service = u16::from_le_bytes([body[0], body[1]]) >> 12;
            match (response[5] & 0x0F, service) {
                (COE, EMERGENCY) => {}
                // An abort is a request by number.
                (COE, RESPONSE | REQUEST) => return Ok(checked(&body[2..])),
                (COE, _) => {
                    let what = format!("CoE service {service}, expected {RESPONSE}");
                    return Ok(Err(SdoError::Unexpected { what }));
                }
                (0, _) => {
                    let what = format!("mailbox error {:#06x}", u16::from_le_bytes([body[2], 0]));
                    return Ok(Err(SdoError::Unexpected { what }));
                }
                // Another protocol's message (EoE, FoE) that the device had to say.
                _ => {}
            }
        }
        let what = format!("{MAX_FOREIGN} messages, none of which answers");
        Ok(Err(SdoError::Unexpected { what }))
    }
}

/// The SDO, unless it is an abort.
fn checked(sdo: &[u8]) -> Result<Vec<u8>, SdoError> {
    match sdo {
        [0x80, _, _, _, code @ ..] if code.len() >= 4 => {
            Err(SdoError::Abort { code: u32::from_le_bytes([code[0], code[1], code[2], code[3]]) })
        }
        [] | [0x80, ..] => Err(SdoError::Unexpected { what: "an abort without a code".to_owned() }),
        _ => Ok(sdo.to_vec()),
    }
}

/// Whether a transfer's first response is that of `kind` to this object.
fn begun(sdo: &[u8], kind: u8, index: u16, sub: u8) -> Result<(), SdoError> {
    let [low, high] = index.to_le_bytes();
    match sdo {
        [command, a, b, c, ..] if command >> 5 == kind && (*a, *b, *c) == (low, high, sub) => Ok(()),
        _ => {
            let head = &sdo[..sdo.len().min(4)];
            let what = format!("{head:02x?} to object {index:#06x}:{sub:02x}, expected kind {kind}");
            Err(SdoError::Unexpected { what })
        }
    }
}

fn start(command: u8, index: u16, sub: u8, rest: [u8; 4]) -> Vec<u8> {
    let mut sdo = vec![command];
    sdo.extend(index.to_le_bytes());
    sdo.push(sub);
    sdo.extend(rest);
    sdo
}

/// Writes an object of any length.
pub(super) async fn download(
    device: &MainDevice<'static>,
    address: u16,
    index: u16,
    sub: u8,
    data: &[u8],
) -> Transfer<()> {
    let mailboxes = answer!(Mailboxes::find(device, address).await?);
    if (1..=4).contains(&data.len()) {
        let mut padded = [0; 4];
        padded[..data.len()].copy_from_slice(data);
        let command = 0x23 | (4 - data.len() as u8) << 2;
        let sdo = answer!(mailboxes.ask(device, &start(command, index, sub, padded)).await?);
        return Ok(begun(&sdo, 3, index, sub));
    }
    let mut sdo = start(0x21, index, sub, (data.len() as u32).to_le_bytes());
    let (first, mut rest) = data.split_at(data.len().min(mailboxes.requests.1 - MIN_MAILBOX));
    sdo.extend(first);
    let sdo = answer!(mailboxes.ask(device, &sdo).await?);
    answer!(begun(&sdo, 3, index, sub));
    let mut toggle = 0;
    while !rest.is_empty() {
        let (now, then) = rest.split_at(rest.len().min(mailboxes.requests.1 - HEADER - 3));
        let unused = MIN_SEGMENT.saturating_sub(now.len());
        let mut sdo = vec![toggle | (unused as u8) << 1 | u8::from(then.is_empty())];
        sdo.extend(now);
        sdo.resize(1 + now.len() + unused, 0);
        let answered = answer!(mailboxes.ask(device, &sdo).await?);
        if answered[0] & 0xF0 != 0x20 | toggle {
            let what = format!("{:#04x} to a segment, expected {:#04x}", answered[0], 0x20 | toggle);
            return Ok(Err(SdoError::Unexpected { what }));
        }
        (rest, toggle) = (then, toggle ^ 0x10);
    }
    Ok(Ok(()))
}

/// Reads an object of any length, to 1 MiB.
pub(super) async fn upload(
    device: &MainDevice<'static>,
    address: u16,
    index: u16,
    sub: u8,
) -> Transfer<Vec<u8>> {
    let mailboxes = answer!(Mailboxes::find(device, address).await?);
    let sdo = answer!(mailboxes.ask(device, &start(0x40, index, sub, [0; 4])).await?);
    answer!(begun(&sdo, 2, index, sub));
    let short =
        || SdoError::Unexpected { what: format!("{} bytes, which is not a complete response", sdo.len()) };
    let Some(rest) = sdo.get(4..8) else { return Ok(Err(short())) };
    if sdo[0] & 2 != 0 {
        let unused = if sdo[0] & 1 != 0 { usize::from(sdo[0] >> 2 & 3) } else { 0 };
        return Ok(Ok(rest[..4 - unused].to_vec()));
    }
    let length = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
    if length > MAX_OBJECT {
        let what = format!("an object of {length} bytes; at most {MAX_OBJECT} are accepted");
        return Ok(Err(SdoError::Unexpected { what }));
    }
    let mut data = sdo[8..].to_vec();
    if data.len() > length {
        let what = format!("{} bytes of an object of {length}", data.len());
        return Ok(Err(SdoError::Unexpected { what }));
    }
    let mut toggle = 0;
    let mut last = data.len() == length;
    while !last {
        let segment = answer!(mailboxes.ask(device, &[&[0x60 | toggle][..], &[0; 7]].concat()).await?);
        if segment[0] & 0xF0 != toggle {
            let what = format!("{:#04x} as a segment, expected {toggle:#04x}", segment[0]);
            return Ok(Err(SdoError::Unexpected { what }));
        }
        let mut now = segment.len() - 1;
        if now <= MIN_SEGMENT {
            now = now.saturating_sub(usize::from(segment[0] >> 1 & 7));
        }
        data.extend(&segment[1..1 + now]);
        last = segment[0] & 1 != 0;
        if data.len() > length || last != (data.len() == length) {
            let what = format!("{} bytes of an object of {length}, last segment: {last}", data.len());
            return Ok(Err(SdoError::Unexpected { what }));
        }
        toggle ^= 0x10;
    }
    Ok(Ok(data))
}
