//! Prints the examination of this machine; an argument gives the seconds to measure.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(3.0), |text| text.parse())?;
    let report = takt_host::doctor::examine(&takt_host::doctor::Options { seconds, ..Default::default() })?;
    print!("{}", report.to_text());
    Ok(())
}
