//! Files and environment variables that another user may have planted.
//!
//! Takt often runs as root, or with capabilities, in folders that others may write to. So whatever
//! it reads is a regular file of bounded size ([`open`], [`read`], [`read_to_string`]: a FIFO would
//! block for ever, `/dev/zero` has no end); whatever it writes is a new file that then takes the
//! name's place ([`Folder`], [`write()`]: a symbolic link that was planted there is replaced and
//! not followed); what it acts upon as root is root's own ([`read_own`]); and a program that has
//! capabilities from its file does not load what the caller's environment names ([`environment`]).

pub mod data;
pub mod environment;
mod hints;
mod mapped;
mod named;
mod near;
mod read;
mod renamed;
pub mod rights;
mod text;
mod units;
mod walk;
mod write;

pub use mapped::Mapped;
pub use named::{named, read_configuration};
pub use near::{closest, did_you_mean, meant};
pub use read::{
    append, create_output, open, open_for_change, open_lock, open_own, open_shared, read, read_own,
    read_to_string,
};
pub use renamed::{parse_configuration, present_key, present_path, use_present_keys};
pub use text::{MAX_QUOTED_CHARS, quoted, shortened};
pub use units::{in_other_unit, unit_of};
pub use write::{Draft, Folder, check_folder, make_folder, private_folder, state_folder, write};

/// Most bytes of a file of `/proc` about a process: 65,530 mappings (`vm.max_map_count`) with names
/// of 500 bytes. A process that has more of longer ones is passed over.
pub const PROCESS_BYTES: u64 = 32 << 20;

/// Most bytes of a library of another process that are looked at: header, sections, symbols.
pub const LIBRARY_BYTES: u64 = 64 << 20;

/// Most bytes of a configuration: a hundred times the longest that is shipped.
pub const CONFIGURATION_BYTES: u64 = 1 << 20;

/// Most bytes of a file with authorities of certificates (PEM): a distribution's has a few hundred
/// thousand.
pub const AUTHORITIES_BYTES: u64 = 16 << 20;

/// Most bytes of a file of figures (`summary.json`, `trace.json`, a model of the timing).
pub const FIGURES_BYTES: u64 = 256 << 20;

/// Most bytes of a model or of a sample file that is read into memory whole: four million rows of
/// 500 bytes.
pub const SAMPLES_BYTES: u64 = 2 << 30;

/// Most bytes of a recorded trace that is read into memory whole.
pub const TRACE_BYTES: u64 = 16 << 30;
