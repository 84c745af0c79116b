//! Errors of metadata.

/// Error of the metadata, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct TsdlError {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// The error there.
    pub problem: TsdlProblem,
}

impl TsdlError {
    /// The problem at byte `at` of `text`.
    pub(super) fn at(text: &str, at: usize, problem: TsdlProblem) -> Self {
        let before = &text.as_bytes()[..at.min(text.len())];
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|&&b| b != b'\n').count() + 1;
        Self { line, column, problem }
    }
}

/// Error of metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TsdlProblem {
    /// A comment never ends.
    #[error("a comment that never ends: the metadata is cut off; copy the recording again")]
    OpenComment,
    /// A text in quotes never ends.
    #[error("a text in quotes that never ends: the metadata is cut off; copy the recording again")]
    OpenQuote,
    /// No such number.
    #[error("{found} is not a number of at most 64 bits")]
    Number { found: String },
    /// A letter that TSDL does not know.
    #[error(
        "{found:?} does not belong in metadata: the file is damaged or not CTF 1.8; copy the recording again"
    )]
    Letter { found: char },
    /// Something else was expected.
    #[error("expected {expected}, found {found}")]
    Unexpected { expected: &'static str, found: String },
    /// A type that was never declared.
    #[error("no type is named {name}")]
    NoType { name: String },
    /// A size, alignment or count beyond what can be read.
    #[error("{what} of {found}: {allowed}")]
    Range { what: &'static str, found: i128, allowed: &'static str },
    /// The length of a sequence or tag of a variant is not there.
    #[error("{path} does not name an earlier integer")]
    NoReference { path: String },
    /// A variant has no tag, or one that is no enumeration.
    #[error("a variant needs an enumeration as its tag (`variant <tag>`), but {found} is not one")]
    NoTag { found: String },
    /// Types within types within types.
    #[error("types nested more than {most} deep")]
    Depth { most: usize },
    /// Types that repeat each other into the millions.
    #[error("more than {most} fields and types in all")]
    Size { most: usize },
    /// Not CTF 1.8.
    #[error(
        "CTF {major}.{minor}: only 1.8 can be read; LTTng writes it with `lttng create --trace-format=ctf-1.8`"
    )]
    Version { major: u64, minor: u64 },
    /// The trace block is missing or says too little.
    #[error("no {what}: the metadata is cut off or has another format; copy the recording again")]
    Missing { what: &'static str },
    /// Two streams or two events of one stream have the same number.
    #[error("{what} {id} is declared twice")]
    Twice { what: &'static str, id: u64 },
    /// An event belongs to a stream that is not declared.
    #[error("event {name} belongs to stream {stream_id}, which is not declared")]
    NoStream { name: String, stream_id: u64 },
}
