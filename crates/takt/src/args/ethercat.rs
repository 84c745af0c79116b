//! `takt ethercat`

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::{needs, positive_seconds, watched_period};

/// Commands on EtherCAT traffic.
#[derive(Debug, Subcommand)]
pub enum Ethercat {
    /// Find the cause of each slow, late or missing frame of a capture
    Analyse(Analyse),
    /// Record the frames of an interface in a pcapng file, with the kernel's timestamps
    Capture(Capture),
}

/// `takt ethercat analyse`
#[derive(Debug, clap::Args)]
pub struct Analyse {
    /// Capture file (pcapng or pcap, also gzipped), of any master and by any program
    pub file: PathBuf,
    /// The application's own times, which separate its delays from those of the host's network
    /// stack: a run directory of the humanoid, or a CSV file with sent_ns and taken_ns (and
    /// planned_ns, wake_ns) of each cycle, in CLOCK_MONOTONIC
    #[arg(long, value_name = "DIR|CSV")]
    pub run: Option<PathBuf>,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds, for captures without it (those of Takt
    /// have it)
    #[arg(long, requires = "run", allow_negative_numbers = true)]
    pub clock_offset_ns: Option<i64>,
    /// Period of the master, such as 1ms, to which its sends are compared [default: found in the
    /// capture]
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub period: Option<Duration>,
    /// A longer round trip is slow, in microseconds [default: half the period]
    #[arg(long)]
    pub slow_us: Option<u32>,
    /// A frame this many microseconds after its time is late [default: a quarter of the period]
    #[arg(long)]
    pub late_us: Option<u32>,
    /// Number of findings to show, the worst first
    #[arg(long, default_value_t = 20)]
    pub findings: usize,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt ethercat capture`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::CAPTURE)]
pub struct Capture {
    /// Interface of the master
    pub interface: String,
    /// New file (pcapng)
    pub file: PathBuf,
    /// Another interface of this host, at the devices' end of the wire
    #[arg(long, value_name = "INTERFACE")]
    pub segment: Option<String>,
    /// Stop after this many seconds [default: at Ctrl-C]
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}
