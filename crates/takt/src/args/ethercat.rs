//! `takt ethercat`

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::{needs, positive_seconds, watched_period};

/// What is done with EtherCAT traffic.
#[derive(Debug, Subcommand)]
pub enum Ethercat {
    /// For each slow, late or missing frame of a capture: round trip, working counters, who is to
    /// blame
    Analyse(Analyse),
    /// Record the frames at an interface into a pcapng file, stamped by the kernel
    Capture(Capture),
}

/// `takt ethercat analyse`
#[derive(Debug, clap::Args)]
pub struct Analyse {
    /// Capture of any master by any program (pcapng or pcap, also packed by gzip; Ethernet)
    pub file: PathBuf,
    /// What the application itself says: run directory of the humanoid, or a CSV file with sent_ns
    /// and taken_ns (and planned_ns, wake_ns) of each cycle in CLOCK_MONOTONIC; reports the host's
    /// stack from the application
    #[arg(long, value_name = "DIR|CSV")]
    pub run: Option<PathBuf>,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC in nanoseconds, for captures that do not report (those
    /// of Takt do)
    #[arg(long, requires = "run", allow_negative_numbers = true)]
    pub clock_offset_ns: Option<i64>,
    /// The master's period, where it is known (1ms, 500us): sends are held against it; found
    /// otherwise
    #[arg(long, value_name = "TIME", value_parser = watched_period)]
    pub period: Option<Duration>,
    /// Round trips beyond this are slow, microseconds; half the master's period when absent
    #[arg(long)]
    pub slow_us: Option<u32>,
    /// What comes later than this after its time is late, microseconds; a quarter of the master's
    /// period when absent
    #[arg(long)]
    pub late_us: Option<u32>,
    /// Findings shown, the worst ones
    #[arg(long, default_value_t = 20)]
    pub findings: usize,
    /// Everything as JSON
    #[arg(long)]
    pub json: bool,
}

/// `takt ethercat capture`
#[derive(Debug, clap::Args)]
#[command(after_help = needs::CAPTURE)]
pub struct Capture {
    /// Interface of the master
    pub interface: String,
    /// File to be made
    pub file: PathBuf,
    /// Another interface on this host, at the devices' end of the wire
    #[arg(long, value_name = "INTERFACE")]
    pub segment: Option<String>,
    /// Stop after so many seconds; without, Ctrl-C stops
    #[arg(long, value_parser = positive_seconds)]
    pub seconds: Option<f64>,
}
