//! The metadata file: plain text, or text in packets as LTTng writes it.

use std::io::Read;
use std::path::Path;

use super::error::{Error, MetadataProblem};
use super::tsdl::{self, Metadata};

/// Larger files are no metadata: LTTng's have some ten to some hundred kilobytes.
const MAX_BYTES: u64 = 64 << 20;
/// Magic number of a metadata packet.
const MAGIC: u32 = 0x75d1_1d57;
/// Magic, UUID, checksum, two sizes, three schemes, two versions.
const HEADER_BYTES: usize = 37;

/// The bytes of the metadata of the trace in `folder`.
pub fn load(folder: &Path) -> Result<Vec<u8>, Error> {
    let path = folder.join("metadata");
    let io = |source| Error::Io { path: path.clone(), source };
    let mut bytes = Vec::new();
    takt_files::open(&path).map_err(io)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_BYTES {
        let problem = MetadataProblem::Large { bytes: bytes.len() as u64, most: MAX_BYTES };
        return Err(Error::MetadataFile { path, at: 0, problem });
    }
    Ok(bytes)
}

/// Parses `bytes`, the metadata of the trace in `folder`.
pub fn parse(folder: &Path, bytes: &[u8]) -> Result<Metadata, Error> {
    let path = folder.join("metadata");
    let text =
        text(bytes).map_err(|(at, problem)| Error::MetadataFile { path: path.clone(), at, problem })?;
    tsdl::read(&text).map_err(|source| Error::Tsdl { path, source })
}

pub fn text(bytes: &[u8]) -> Result<String, (u64, MetadataProblem)> {
    let magic = bytes.first_chunk::<4>().copied().unwrap_or_default();
    let text = if u32::from_le_bytes(magic) == MAGIC {
        unpack(bytes, u32::from_le_bytes)?
    } else if u32::from_be_bytes(magic) == MAGIC {
        unpack(bytes, u32::from_be_bytes)?
    } else if bytes.first() == Some(&0x1e) || bytes.first() == Some(&b'{') {
        return Err((0, MetadataProblem::Ctf2));
    } else if bytes.iter().take(8).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        bytes.to_vec()
    } else {
        return Err((0, MetadataProblem::Magic { found: bytes.iter().take(8).copied().collect() }));
    };
    String::from_utf8(text).map_err(|error| (error.utf8_error().valid_up_to() as u64, MetadataProblem::Text))
}

fn unpack(bytes: &[u8], number: fn([u8; 4]) -> u32) -> Result<Vec<u8>, (u64, MetadataProblem)> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let fail = |problem| Err((at as u64, problem));
        let field = |offset: usize| {
            rest.get(offset..offset + 4).and_then(|four| <[u8; 4]>::try_from(four).ok()).map_or(0, number)
        };
        let left_bytes = rest.len() as u64;
        let (content_bits, packet_bits) = (field(24), field(28));
        let size = MetadataProblem::Size { packet_bits, content_bits, left_bytes };
        if rest.len() < HEADER_BYTES {
            return fail(size);
        }
        if field(0) != MAGIC {
            return fail(MetadataProblem::Magic { found: rest.iter().take(8).copied().collect() });
        }
        if rest[32] != 0 || rest[33] != 0 {
            return fail(MetadataProblem::Encoded);
        }
        if (rest[35], rest[36]) != (1, 8) {
            return fail(MetadataProblem::Version { major: rest[35], minor: rest[36] });
        }
        let (content, packet) = ((content_bits / 8) as usize, (packet_bits / 8) as usize);
        if content < HEADER_BYTES || packet < content || packet > rest.len() {
            return fail(size);
        }
        text.extend_from_slice(&rest[HEADER_BYTES..content]);
        at += packet;
    }
    Ok(text)
}
