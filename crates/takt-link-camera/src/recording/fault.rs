//! Fault that stops the reading of a file, before its name is added.

use std::io;
use std::path::Path;

use super::limits::MAX_DEFINITION_BYTES;
use crate::error::CameraError;

/// Reason why a file cannot be read further.
#[derive(Debug)]
pub(super) enum Fault {
    /// The system's answer.
    File(io::Error),
    /// The file contradicts itself or the format.
    Damaged(String),
    /// The file is as it should be, and demands more than is granted.
    Limit(Limit),
    /// A compression that replay does not know.
    Compression(String),
}

/// A limit that was met.
#[derive(Debug)]
pub(super) struct Limit {
    pub what: String,
    pub found: String,
    pub limit: String,
    pub advice: &'static str,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl Fault {
    pub(super) fn damaged(reason: impl Into<String>) -> Self {
        Self::Damaged(reason.into())
    }

    /// A length or a size in bytes beyond what is granted.
    pub(super) fn too_many_bytes(
        what: impl Into<String>,
        found: u64,
        limit: u64,
        advice: &'static str,
    ) -> Self {
        Self::Limit(Limit { what: what.into(), found: bytes(found), limit: bytes(limit), advice })
    }

    /// A number of things beyond what is granted.
    pub(super) fn too_many(what: &str, limit: usize, advice: &'static str) -> Self {
        Self::Limit(Limit { what: what.into(), found: "more".into(), limit: limit.to_string(), advice })
    }

    /// Names of schemas, channels and topics beyond what is granted.
    pub(super) fn too_many_definitions(found: usize) -> Self {
        Self::too_many_bytes(
            "names of schemas and topics",
            found as u64,
            MAX_DEFINITION_BYTES as u64,
            "keep only the needed topics: mcap filter --include-topic-regex …",
        )
    }

    pub(super) fn of(self, path: &Path) -> CameraError {
        let path = path.to_path_buf();
        match self {
            Self::File(source) => CameraError::File { path, source },
            Self::Damaged(reason) => CameraError::DamagedMcap { path, reason },
            Self::Limit(Limit { what, found, limit, advice }) => {
                CameraError::Limit { path, what, found, limit, advice }
            }
            Self::Compression(found) => CameraError::Compression { path, found },
        }
    }
}

/// A number of bytes as people write it.
fn bytes(count: u64) -> String {
    match count {
        0..0x10_0000 => format!("{count} bytes"),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", count as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", count as f64 / f64::from(1 << 30)),
    }
}
