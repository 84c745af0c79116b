//! Prints a recording as `babeltrace2 --no-delta --clock-cycles` does (`records`), or what Takt
//! reads from it (`events`).
//!
//! `cargo run -p takt-ros --example ctf_dump -- records|events|seen FOLDER`

use std::io::{BufWriter, Write};

use takt_ros::Source;
use takt_ros::ctf::{Recording, Records};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: ctf_dump records|events|seen FOLDER".into());
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    if what == "records" {
        let mut records = Records::open(&folder)?;
        for record in &mut records {
            writeln!(out, "[{:020}] {record}", record.at_ns)?;
        }
        for damage in records.damages() {
            eprintln!("{damage:?}");
        }
        return Ok(());
    }
    let mut recording = Recording::open(&folder)?;
    let mut events = 0;
    while !recording.ended() {
        events += recording.poll(&mut |event| {
            if what == "events" {
                let _ = writeln!(out, "{event:?}");
            }
        })?;
    }
    if what == "seen" {
        for seen in recording.seen() {
            writeln!(out, "{:>10} {} {}", seen.count, if seen.used { "+" } else { "-" }, seen.name)?;
        }
        writeln!(out, "{events:>10} events")?;
    }
    for damage in recording.damages() {
        eprintln!("{damage:?}");
    }
    Ok(())
}
