//! Runs a stress profile: `load uav 5` or `load profile.toml 5`. Prints what it has proven.

use std::path::Path;
use std::time::{Duration, Instant};

use takt_load::{Load, Profile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "noise:1".into());
    let seconds = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let profile = match Path::new(&name).exists() {
        true => toml::from_str(&std::fs::read_to_string(&name)?)?,
        false => Profile::named(&name)?,
    };
    let scratch = tempfile::tempdir()?;
    let begin = Instant::now();
    let load = Load::start(&profile, scratch.path())?;
    println!("all of it ran after {:?}", begin.elapsed());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    load.check()?;
    let end = Instant::now();
    println!("{:#?}", load.stop());
    println!("nothing was left after {:?}", end.elapsed());
    Ok(())
}
