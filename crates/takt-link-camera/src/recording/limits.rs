//! Limits on the resources that a recording may demand of its reader. Everything in a recording is
//! foreign: each length, count and size below is checked before it is believed.
//!
//! | of | bounded by |
//! |---|---|
//! | memory for images | [`MAX_MESSAGE_BYTES`] for each, two of colour and two of depth, and [`MAX_STASH_BYTES`] of images that were passed on the way to another one |
//! | memory for the index | [`MAX_CHUNKS`], [`MAX_INDEX_ENTRIES`], [`MAX_DEFINITION_BYTES`] |
//! | files | [`MAX_FILES`] of a folder; those that hold the next images are open, two at most |
//! | depth | 128 levels of JSON (serde_json, which passes over unknown fields without recursion) and 100 of protobuf (prost); CDR has none |
//! | time | [`work_limit`]: bytes that are read or decompressed until the next frame |
//! | one image | the size that the calibration says, compared before a pixel is decoded; 100 scans of a progressive JPEG, 64 MiB beside the pixels of a PNG |
//!
//! Attachments, metadata, foreign records and topics that are not asked for have no limit: they are
//! skipped without being read into memory.

/// Longest message accepted: a raw 8K colour image is 100 MB.
pub(super) const MAX_MESSAGE_BYTES: u64 = 128 << 20;

/// Longest record of an index, a schema or a channel accepted.
pub(super) const MAX_INDEX_RECORD_BYTES: u64 = 64 << 20;

/// Most chunks: two million of 4 MB are 8 TB.
pub(super) const MAX_CHUNKS: usize = 2 << 20;

/// Most images that are known by their place and not read yet, over all topics. A topic of 30
/// images a second reaches it after 38 hours where nothing orders them, and never where chunks
/// follow each other in time.
pub(super) const MAX_INDEX_ENTRIES: usize = 4 << 20;

/// Most bytes of names of schemas, channels and topics.
pub(super) const MAX_DEFINITION_BYTES: usize = 16 << 20;

/// Most bytes of images that are kept because another one that lies behind them was needed first.
pub(super) const MAX_STASH_BYTES: usize = 256 << 20;

/// Decoders that stand at different places of one chunk: a chunk that was written topic by topic
/// is read at two.
pub(super) const MAX_DECODERS_PER_CHUNK: usize = 3;

/// Chunks that are being read at the same time. The one used longest ago gives way.
pub(super) const MAX_OPEN_CHUNKS: usize = 64;

/// Longest name of a compression.
pub(super) const MAX_COMPRESSION_NAME_BYTES: usize = 80;

/// Most files of a folder that are looked at, and most parts of a recording.
pub(super) const MAX_FILES: usize = 10_000;

/// Most bytes of rosbag2's `metadata.yaml`, which lists each topic with its qualities of service.
pub(super) const MAX_BAG_METADATA_BYTES: u64 = 16 << 20;

/// Most topics that an error lists.
pub(super) const MAX_SHOWN_TOPICS: usize = 40;

/// Images of one topic in a row that find no partner before the search for the first frame ends.
/// At 30 a second these are 5 minutes.
pub(super) const MAX_UNPAIRED_AT_START: u64 = 10_000;

/// Images at the beginning and at the end of a recording that have no partner and are not counted:
/// recorders do not begin and end both topics with the same image.
pub(super) const MAX_EDGE_IMAGES: u64 = 5;

/// Minimum work counted for each record: a chunk of empty records is long, too.
pub(super) const RECORD_WORK_BYTES: u64 = 64;

/// Bytes that may be decompressed until the next frame is found, for a file of `file_bytes`.
///
/// An honest recording is compressed by less than 200: colour does not compress further, whatever
/// depth does. The first GiB is free, because a short recording of a dark room is honest, too. It
/// takes about a second.
pub(super) fn work_limit(file_bytes: u64) -> u64 {
    (1u64 << 30).saturating_add(file_bytes.saturating_mul(200))
}
