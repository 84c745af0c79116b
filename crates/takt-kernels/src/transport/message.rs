//! Messages: what frames mean.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::frame::{FrameError, FrameKind, FrameReader, FrameWriter};

/// The guest is up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`; names PREEMPT_RT or PREEMPT_DYNAMIC.
    pub version: String,
    /// `/sys/kernel/realtime`, where the kernel has it.
    pub realtime: Option<bool>,
    /// `/sys/kernel/debug/sched/preempt`, where the kernel has it: the models, the one in force in
    /// brackets.
    pub preempt: Option<String>,
    /// `/proc/cmdline`.
    pub command_line: String,
    /// CPUs online.
    pub cpus: usize,
    pub memory_kib: u64,
    /// The clock source in force.
    pub clock_source: Option<String>,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
}

/// The preemption model of a kernel as `uname -v` and the scheduler's file report it.
impl Hello {
    /// `PREEMPT_RT`, `PREEMPT_DYNAMIC (voluntary)`, `PREEMPT`, or `voluntary or none` where the
    /// kernel does not say.
    #[must_use]
    pub fn preemption(&self) -> String {
        let word = self
            .version
            .split_whitespace()
            .find(|word| word.starts_with("PREEMPT"))
            .unwrap_or(if self.realtime == Some(true) { "PREEMPT_RT" } else { "voluntary or none" });
        let chosen = self.preempt.as_deref().and_then(|models| {
            let (_, rest) = models.split_once('(')?;
            Some(rest.split_once(')')?.0)
        });
        match chosen {
            Some(chosen) if word == "PREEMPT_DYNAMIC" => format!("{word} ({chosen})"),
            _ => word.to_owned(),
        }
    }
}

/// A job has been started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStart {
    /// Its name in the order.
    pub name: String,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobEnding {
    /// By itself.
    Exited {
        /// Exit status.
        code: i32,
    },
    /// By a signal that was not ours.
    Signalled { signal: i32 },
    /// It had its time and was ended.
    Limit {
        /// Guest time that it had, seconds.
        limit_s: u64,
    },
    /// It ran beside the others and was ended with them.
    Stopped,
    /// It could not be started.
    NotStarted { why: String },
}

impl std::fmt::Display for JobEnding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exit status {code}"),
            Self::Signalled { signal } => write!(f, "ended by signal {signal}"),
            Self::Limit { limit_s } => write!(f, "stopped at its limit of {limit_s} s of guest time"),
            Self::Stopped => write!(f, "stopped with the others"),
            Self::NotStarted { why } => write!(f, "not started: {why}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnd {
    /// Its name in the order.
    pub name: String,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    pub ending: JobEnding,
}

/// The archive is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveEnd {
    pub bytes: u64,
    /// SHA-256 of them, hexadecimal.
    pub sha256: String,
}

/// Nothing follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
}

/// One message. Archive pieces are handed on as they come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The guest is up.
    Hello(Hello),
    /// A line about what goes on.
    Progress(String),
    /// A job has been started.
    JobStart(JobStart),
    JobEnd(JobEnd),
    /// A piece of the archive.
    Archive(Vec<u8>),
    /// The archive is complete, and its bytes are the ones that were sent.
    ArchiveEnd(ArchiveEnd),
    /// Something went wrong in the guest.
    Failure(String),
    /// Nothing follows.
    Done(Done),
}

/// Reason why a stream is not the guest's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not even frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame's text is not what its kind asks for.
    #[error("a frame of kind {kind:?} cannot be read: {why}. Guest and host have different versions")]
    Text { kind: FrameKind, why: String },
    /// The archive lost or gained something on its way.
    #[error(
        "the archive has {found_bytes} bytes with SHA-256 {found}, the guest sent {expected_bytes} with {expected}"
    )]
    Archive {
        expected_bytes: u64,
        /// SHA-256 of what was sent.
        expected: String,
        found_bytes: u64,
        /// SHA-256 of what was received.
        found: String,
    },
}

fn hex(sha: Sha256) -> String {
    sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The guest's side. As a [`Write`], it takes the archive.
#[derive(Debug)]
pub struct Sender<W: Write> {
    frames: FrameWriter<W>,
    archive: Sha256,
    archive_bytes: u64,
}

impl<W: Write> Sender<W> {
    /// Sends into this.
    pub fn new(sink: W) -> Self {
        Self { frames: FrameWriter::new(sink), archive: Sha256::new(), archive_bytes: 0 }
    }

    fn json(&mut self, kind: FrameKind, value: &impl Serialize) -> io::Result<()> {
        self.frames.frame(kind, &serde_json::to_vec(value)?)
    }

    /// The guest is up.
    ///
    /// # Errors
    /// The sink's, here and below.
    pub fn hello(&mut self, hello: &Hello) -> io::Result<()> {
        self.json(FrameKind::Hello, hello)
    }

    /// A line about what goes on.
    ///
    /// # Errors
    /// See [`Sender::hello`].
    pub fn progress(&mut self, line: &str) -> io::Result<()> {
        self.frames.frame(FrameKind::Progress, line.as_bytes())
    }

    /// A job has been started.
    ///
    /// # Errors
    /// See [`Sender::hello`].
    pub(crate) fn job_start(&mut self, start: &JobStart) -> io::Result<()> {
        self.json(FrameKind::JobStart, start)
    }

    /// A job has ended.
    ///
    /// # Errors
    /// See [`Sender::hello`].
    pub(crate) fn job_end(&mut self, end: &JobEnd) -> io::Result<()> {
        self.json(FrameKind::JobEnd, end)
    }

    /// Something went wrong.
    ///
    /// # Errors
    /// See [`Sender::hello`].
    pub fn failure(&mut self, why: &str) -> io::Result<()> {
        self.frames.frame(FrameKind::Failure, why.as_bytes())
    }

    /// The archive that was written is complete; a new one may follow.
    ///
    /// # Errors
    /// See [`Sender::hello`].
    pub(crate) fn archive_end(&mut self) -> io::Result<()> {
        let end = ArchiveEnd {
            bytes: std::mem::take(&mut self.archive_bytes),
            sha256: hex(std::mem::take(&mut self.archive)),
        };
        self.json(FrameKind::ArchiveEnd, &end)
    }

    /// Nothing follows.
    ///
    /// # Errors
    /// See [`Sender::hello`].
    pub fn done(&mut self, at_ns: u64) -> io::Result<()> {
        self.json(FrameKind::Done, &Done { at_ns })?;
        self.frames.flush()
    }
}

impl<W: Write> Write for Sender<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.frames.frame(FrameKind::Archive, bytes)?;
        self.archive.update(bytes);
        self.archive_bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.frames.flush()
    }
}

/// The host's side.
#[derive(Debug, Default)]
pub struct Receiver {
    frames: FrameReader,
    archive: Sha256,
    archive_bytes: u64,
}

impl Receiver {
    /// The next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.frames.push(bytes);
    }

    /// The next message; `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`MessageError`]; the stream cannot be trusted after that.
    pub fn message(&mut self) -> Result<Option<Message>, MessageError> {
        let Some((kind, payload)) = self.frames.next_frame()? else { return Ok(None) };
        let text = || String::from_utf8_lossy(payload).into_owned();
        Ok(Some(match kind {
            FrameKind::Hello => Message::Hello(json(kind, payload)?),
            FrameKind::Progress => Message::Progress(text()),
            FrameKind::JobStart => Message::JobStart(json(kind, payload)?),
            FrameKind::JobEnd => Message::JobEnd(json(kind, payload)?),
            FrameKind::Failure => Message::Failure(text()),
            FrameKind::Done => Message::Done(json(kind, payload)?),
            FrameKind::Archive => {
                self.archive.update(payload);
                self.archive_bytes += payload.len() as u64;
                Message::Archive(payload.to_vec())
            }
            FrameKind::ArchiveEnd => {
                let end: ArchiveEnd = json(kind, payload)?;
                let found_bytes = std::mem::take(&mut self.archive_bytes);
                let found = hex(std::mem::take(&mut self.archive));
                if (end.bytes, &end.sha256) != (found_bytes, &found) {
                    return Err(MessageError::Archive {
                        expected_bytes: end.bytes,
                        expected: end.sha256,
                        found_bytes,
                        found,
                    });
                }
                Message::ArchiveEnd(end)
            }
        }))
    }

    /// Whether the stream may end here.
    ///
    /// # Errors
    /// [`FrameError::Torn`] inside a frame.
    pub fn finish(&self) -> Result<(), MessageError> {
        Ok(self.frames.finish()?)
    }
}

fn json<'a, T: Deserialize<'a>>(kind: FrameKind, payload: &'a [u8]) -> Result<T, MessageError> {
    serde_json::from_slice(payload).map_err(|error| MessageError::Text { kind, why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Message>, MessageError> {
        let mut receiver = Receiver::default();
        receiver.push(bytes);
        let mut messages = Vec::new();
        while let Some(message) = receiver.message()? {
            messages.push(message);
        }
        receiver.finish()?;
        Ok(messages)
    }

    fn sent() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut sender = Sender::new(&mut bytes);
        sender.hello(&Hello { release: "6.1".into(), ..Hello::default() }).unwrap();
        sender
            .job_end(&JobEnd { name: "a".into(), at_ns: 5, ending: JobEnding::Signalled { signal: 9 } })
            .unwrap();
        sender.write_all(b"abc").unwrap();
        sender.write_all(b"def").unwrap();
        sender.archive_end().unwrap();
        sender.done(7).unwrap();
        bytes
    }

    #[test]
    fn what_is_sent_is_received() {
        let messages = all(&sent()).unwrap();
        assert_eq!(messages.len(), 6);
        assert_eq!(messages[2], Message::Archive(b"abc".to_vec()));
        let Message::ArchiveEnd(end) = &messages[4] else { panic!("{messages:?}") };
        assert_eq!(end.bytes, 6);
        // printf abcdef | sha256sum
        assert_eq!(end.sha256, "bef57ec7f53a6d40beb640a780a639c83bc29ac8a9816f1fc6c5c6dcd93c4721");
        assert_eq!(messages[5], Message::Done(Done { at_ns: 7 }));
    }

    #[test]
    fn a_lost_piece_of_the_archive_is_found() {
        let bytes = sent();
        let lost = bytes.windows(3).position(|window| window == b"abc").unwrap();
        let without: Vec<u8> = [&bytes[..lost - 16], &bytes[lost + 3..]].concat();
        assert!(matches!(
            all(&without),
            Err(MessageError::Archive { expected_bytes: 6, found_bytes: 3, .. })
        ));
    }

    #[test]
    fn text_of_another_version_is_reported() {
        let mut bytes = Vec::new();
        FrameWriter::new(&mut bytes).frame(FrameKind::Done, b"{}").unwrap();
        assert!(matches!(all(&bytes), Err(MessageError::Text { kind: FrameKind::Done, .. })));
    }

    #[test]
    fn models_are_reported_as_the_kernel_names_them() {
        let hello = |version: &str, realtime, preempt: Option<&str>| {
            let hello = Hello {
                version: version.into(),
                realtime,
                preempt: preempt.map(str::to_owned),
                ..Hello::default()
            };
            hello.preemption()
        };
        assert_eq!(hello("#1 SMP PREEMPT_RT Debian 6.1", Some(true), None), "PREEMPT_RT");
        assert_eq!(
            hello("#1 SMP PREEMPT_DYNAMIC Debian", None, Some("none (voluntary) full")),
            "PREEMPT_DYNAMIC (voluntary)"
        );
        assert_eq!(hello("#1 SMP Debian", None, None), "voluntary or none");
    }
}
