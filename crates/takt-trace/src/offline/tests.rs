use super::*;
#[test]
fn smoke() {
    for f in ["/tmp/off-rec/p1.data", "/tmp/off-rec/t6.dat", "/tmp/off-rec/t7.dat"] {
        match read(Path::new(f)) {
            Ok(t) => eprintln!("{f} {} events, {:?} lost {} notes {:?} threads {:?}", t.events.len(), t.clock, t.lost_events, t.notes, t.threads.len()),
            Err(e) => eprintln!("{f} {e}"),
        }
    }
}
