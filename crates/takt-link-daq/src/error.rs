//! Errors of a link, and the way out.

use std::io;
use std::path::PathBuf;

/// Errors of a link. Each says what was found and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A key whose value cannot work.
    #[error("link.{key} = {given}: {accepted}")]
    Config {
        /// The key.
        key: String,
        /// Its value.
        given: String,
        /// The accepted values, and the reason.
        accepted: String,
    },
    /// The system refused a call.
    #[error("{link} link: {doing}: {source}. Fix: {fix}")]
    System {
        /// The kind of link.
        link: &'static str,
        /// The attempt.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
        /// The way out.
        fix: &'static str,
    },
    /// The echo thread could not be started as asked.
    #[error("echo thread: {0}")]
    Echo(#[from] takt_rt::Error),
    /// The echo thread has ended.
    #[error("{link} link: the far end has ended: {reason}")]
    FarEnd {
        /// The kind of link.
        link: &'static str,
        /// The reason.
        reason: String,
    },
    /// The plant's process could not be had.
    #[error("the plant at the far end of the link: {reason}")]
    Plant {
        /// The attempts and the answers.
        reason: String,
    },
    /// The link has nothing at its far end that a controller could steer.
    #[error("{link} link: {reason}")]
    NoPlant {
        /// The kind of link.
        link: &'static str,
        /// The reason, with the way out.
        reason: &'static str,
    },
    /// The comedi library could not be loaded.
    #[error(
        "comedi link: cannot load {library}: {reason}. Fix: install it (`sudo apt install libcomedi0t64` or `libcomedi0`), or name the \
         file with link.library; without a board, use kind = \"simulated\", \"udp\", \"pty\" or \"eventfd\""
    )]
    Library {
        /// The library as asked.
        library: PathBuf,
        /// The loader's answer.
        reason: String,
    },
    /// The board could not be opened.
    #[error("comedi link: cannot open {device}: {reason}. Fix: {fix}")]
    Device {
        /// The device file.
        device: PathBuf,
        /// The library's words.
        reason: String,
        /// The way out.
        fix: String,
    },
    /// The board has no such subdevice, channel or range.
    #[error("comedi link: {device}: link.{key} = {given}: expected {expected}, found {found}")]
    Channel {
        /// The device file.
        device: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        given: u32,
        /// The required value.
        expected: String,
        /// The board's value, with the alternatives.
        found: String,
    },
    /// No such converter in the Industrial I/O subsystem.
    #[error("iio link: {reason}. Fix: {fix}")]
    Iio {
        /// The missing thing, and the existing ones.
        reason: String,
        /// The way out.
        fix: &'static str,
    },
    /// A conversion of an Industrial I/O converter failed.
    #[error(
        "iio link: {path}: {source}. Fix: check the kernel's log (`dmesg | tail`) and the converter's range"
    )]
    IioConversion {
        /// The attribute.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A conversion failed.
    #[error(
        "comedi link: {device}: {doing}: {reason}. Fix: check the kernel's log (`dmesg | tail`) and the board's cable"
    )]
    Conversion {
        /// The device file.
        device: PathBuf,
        /// The step.
        doing: &'static str,
        /// The library's words.
        reason: String,
    },
}

impl LinkError {
    pub(crate) fn config(key: impl Into<String>, given: impl ToString, accepted: impl Into<String>) -> Self {
        Self::Config { key: key.into(), given: given.to_string(), accepted: accepted.into() }
    }
}
