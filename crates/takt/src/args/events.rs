//! `takt events`, `takt runs`

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Subcommand;
use takt_service::{Kind, Since, SinceError, parse_since};

/// `takt events`
#[derive(Debug, clap::Args)]
#[command(after_help = super::needs::EVENTS)]
pub struct Events {
    /// Only events since a time of day (14:00), a date ("2026-11-29 14:00", local time;
    /// 2026-11-29T14:00:00Z), or for so long (15min, 2h, 3d)
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Since>,
    /// Only events before that time, written likewise
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub until: Option<Since>,
    /// Only this robot, goals file or watched target
    #[arg(long, value_name = "NAME")]
    pub robot: Option<String>,
    /// Only these kinds, such as stop,fault,killed
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = kind)]
    pub kind: Vec<Kind>,
    /// Only the newest N events
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
    /// Go on with events as they come, until Ctrl-C
    #[arg(long, conflicts_with = "until")]
    pub follow: bool,
    /// Print each event as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// Tell that this unit has ended, as systemd's variables have it: for ExecStopPost
    #[arg(long, hide = true, value_name = "UNIT", conflicts_with_all = ["since", "until", "robot", "kind", "last", "follow", "json"])]
    pub unit_ended: Option<String>,
}

fn since(text: &str) -> Result<Since, SinceError> {
    parse_since(text, SystemTime::now())
}

fn kind(text: &str) -> Result<Kind, String> {
    let known = Kind::ALL.into_iter().find(|kind| kind.name() == text.trim());
    known.ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// `takt runs`
#[derive(Debug, Subcommand)]
pub enum Runs {
    /// Delete old run directories. Runs that go on, and pinned ones, stay
    Prune {
        /// Folder of run directories
        #[arg(default_value = "takt-runs")]
        folder: PathBuf,
        /// Keep the runs of this many days
        #[arg(long, value_name = "DAYS", value_parser = days)]
        keep_days: Option<f64>,
        /// Keep the newest runs that fit into so many bytes, such as 500M or 20G
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        keep_bytes: Option<u64>,
        /// List what would be deleted, and exit
        #[arg(long)]
        dry_run: bool,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep run directories for ever: `prune` passes over them
    Pin {
        /// Run directories
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
    /// Let `prune` delete run directories again
    Unpin {
        /// Run directories
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
}

fn days(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(days) if (0.0..=36_500.0).contains(&days) => Ok(days),
        _ => Err("expected a number of days, 0 to 36500".to_owned()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let expected =
        || "expected a number of bytes, such as 500M or 20G (K, M, G, T: powers of 1024)".to_owned();
    let text = text.trim();
    let plain = text.trim_end_matches(['B', 'b']).trim_end_matches('i');
    let split = plain.find(|c: char| !c.is_ascii_digit()).unwrap_or(plain.len());
    let (number, unit) = plain.split_at(split);
    let shift = match unit.trim() {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(expected()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_kinds_are_read_as_people_write_them() {
        for (text, expected) in [
            ("0", 0),
            ("1000", 1000),
            ("500M", 500 << 20),
            ("20G", 20 << 30),
            ("1 T", 1 << 40),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "20X", "99999999999T"] {
            assert!(bytes(text).unwrap_err().contains("20G"), "{text}");
        }
        assert_eq!(kind("guarantee-lost"), Ok(Kind::GuaranteeLost));
        assert!(kind("halt").unwrap_err().contains("stop, fault"));
        assert!(days("-1").is_err() && days("nan").is_err() && days("0.5") == Ok(0.5));
    }
}
