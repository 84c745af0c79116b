//! Errors of a recording.

use std::io;
use std::path::PathBuf;

use super::tsdl::TsdlError;

/// Reason why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: there is no file `metadata` here or below: name the folder that `ros2 trace` or `lttng create --output=` wrote", path.display())]
    NoTrace { path: PathBuf },
    /// The folder holds several recordings, of different machines or boots.
    #[error(
        "{} and {} were recorded by different clocks ({first_clock} and {second_clock}): open them one by one",
        first.display(), second.display()
    )]
    SeveralClocks { first: PathBuf, second: PathBuf, first_clock: String, second_clock: String },
    /// A stream of LTTng's is not there.
    #[error(
        "{}: the stream file `{name}` is missing, so threads on its CPU would seem never to run; copy the complete recording again",
        path.display()
    )]
    MissingStream { path: PathBuf, name: String },
    /// Its clock cannot be brought to another's.
    #[error("{}: the trace does not state when its clock was zero, so it cannot be read together with traces of other hosts: open it alone", path.display())]
    UnrelatedClock { path: PathBuf },
    /// The metadata file is no metadata, or damaged.
    #[error("{}: byte {at}: {problem}", path.display())]
    MetadataFile { path: PathBuf, at: u64, problem: MetadataProblem },
    /// The metadata says what cannot be.
    #[error("{}: {source}", path.display())]
    Tsdl { path: PathBuf, source: TsdlError },
    /// The metadata can be read, but not its events, or they could not be distinguished by thread.
    #[error("{}: {problem}", path.display())]
    Unusable { path: PathBuf, problem: Unusable },
    /// A stream file is damaged from its first packet on, or belongs to another trace.
    #[error("{}: packet at byte {at}: {problem}", path.display())]
    Stream { path: PathBuf, at: u64, problem: PacketProblem },
}

/// Fault of a metadata file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataProblem {
    /// Neither text nor packets.
    #[error("{found:02x?} begins neither CTF 1.8 text nor a metadata packet: this is not a CTF trace")]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// CTF 2 writes its metadata as JSON.
    #[error(
        "this is CTF 2: only 1.8 can be read. LTTng 2.14 writes it with `lttng create --trace-format=ctf-1.8`; this recording can be converted with \
         Babeltrace 2.1 or newer: babeltrace2 convert IN --component=sink.ctf.fs --params='path=\"OUT\",ctf-version=\"1\"'"
    )]
    Ctf2,
    /// A packet of another major or minor version.
    #[error("a packet of CTF {major}.{minor}; only 1.8 can be read")]
    Version { major: u8, minor: u8 },
    /// Compressed, encrypted.
    #[error(
        "a compressed or encrypted packet: no tracer writes these; the file is damaged, copy the recording again"
    )]
    Encoded,
    /// A packet goes beyond the file, or its content beyond the packet.
    #[error(
        "a packet of {packet_bits} bits with {content_bits} of content, but {left_bytes} bytes are left: the file is cut off or damaged; \
         copy the recording again (after `lttng stop`)"
    )]
    Size { packet_bits: u32, content_bits: u32, left_bytes: u64 },
    /// Larger than metadata can be.
    #[error("{bytes} bytes; metadata of more than {most} is not read")]
    Large { bytes: u64, most: u64 },
    #[error("the metadata is not text: the file is damaged; copy the recording again")]
    Text,
}

/// Reason why well-formed metadata does not allow reading events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Streams without time stamps.
    #[error("stream {stream_id} has no event header with a time stamp: events could not be put in order")]
    NoTime { stream_id: u64 },
    /// No thread in the context.
    #[error(
        "stream {stream_id} does not record which {missing} an event belongs to: record with `lttng add-context --userspace \
         --type={context}` (`ros2 trace` does so automatically)"
    )]
    NoContext {
        stream_id: u64,
        missing: &'static str,
        /// LTTng's name of the context.
        context: &'static str,
    },
}

/// Fault of a packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketProblem {
    /// Not the magic number.
    #[error("magic number {found:#010x}, expected 0xc1fc1fc1: not a stream of a CTF trace, or overwritten")]
    Magic { found: u64 },
    /// Of another trace.
    #[error(
        "it belongs to another trace ({found:02x?}, but the metadata belongs to {expected:02x?}): use the files of one trace"
    )]
    Uuid { found: [u8; 16], expected: [u8; 16] },
    /// A stream that the metadata does not know.
    #[error("stream {id} is not in the metadata: the metadata is older than the stream, copy it again")]
    StreamId { id: u64 },
    /// An event that the metadata does not know.
    #[error(
        "event {id} at bit {at_bit} is not in the metadata: the metadata is older than the stream, copy it again"
    )]
    EventId { id: u64, at_bit: u64 },
    /// Sizes that contradict each other or the file.
    #[error(
        "a packet of {packet_bits} bits with {content_bits} of content, but {left_bytes} bytes of the file are left: the file is cut off \
         or damaged"
    )]
    Size { packet_bits: u64, content_bits: u64, left_bytes: u64 },
    /// The header or the context of the packet is cut off.
    #[error("the packet's header is cut off after {left_bytes} bytes")]
    Header { left_bytes: u64 },
    /// An event goes beyond its packet.
    #[error("the event at bit {at_bit} extends beyond the packet's content")]
    Event { at_bit: u64 },
    /// An event's time is far from its packet's, and what follows it cannot be read either.
    #[error("the event at bit {at_bit} is stamped outside its packet's time: the packet is damaged")]
    Time { at_bit: u64 },
    /// A variant's tag chooses nothing.
    #[error("the event at bit {at_bit} has a variant whose tag, {tag}, selects none of its options")]
    Tag { at_bit: u64, tag: u64 },
    /// The file could not be read.
    #[error("reading failed: {why}")]
    Read { why: String },
}
