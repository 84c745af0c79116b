//! A report over a run directory that says anything of itself. Parts: header, journal, trace,
//! recorder.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use parts::parts;

fuzz_target!(|data: &[u8]| {
    let [header, journal, trace, recorder] = parts(data);
    let folder = tempfile::tempdir().expect("a folder");
    let samples = folder.path().join("samples");
    fs::create_dir(&samples).expect("a folder");
    fs::write(folder.path().join("run.json"), header).expect("a file");
    fs::write(samples.join("jobs.csv"), journal).expect("a file");
    for (name, bytes) in [("trace.json", trace), ("recorder-lateness.json", recorder)] {
        if !bytes.is_empty() {
            fs::write(folder.path().join(name), bytes).expect("a file");
        }
    }
    let Ok(collection) = takt_report::collect(&[folder.path()]) else { return };
    let document = takt_report::build(&collection);
    assert!(!takt_report::markdown(&document).is_empty() && !takt_report::text(&document).is_empty());
    let page = takt_report::html(&document);
    assert!(!page.contains("<script"), "nothing that a file says becomes a script");
    let _ = takt_report::export::histogram(folder.path(), None, 1000);
    let _ = takt_report::export::csv(folder.path(), None, &mut std::io::sink());
});
