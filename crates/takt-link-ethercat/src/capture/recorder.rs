//! A best-effort thread that writes what taps see.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use takt_rt::thread::{self, Handle};

use super::error::CaptureError;
use super::file::{Side, Writer};
use super::tap::{Sighted, Tap};
use crate::frame;

/// Period at which taps are emptied. Not woken per frame, which would disturb what is measured; the
/// taps hold far more.
const PAUSE: Duration = Duration::from_millis(5);
/// Written out at least so often, so that a kill leaves a readable file.
const FLUSH_EVERY: u32 = 100;

/// Records until it is stopped or dropped.
#[derive(Debug)]
pub struct Recorder {
    stop: Arc<AtomicBool>,
    thread: Option<Handle<Result<u64, CaptureError>>>,
}

impl Recorder {
    /// Opens taps on `interfaces` and records into `path`. On return all that follows is seen.
    ///
    /// # Errors
    /// [`CaptureError`]: no such interface, no right, the file cannot be written.
    pub fn start(path: &Path, interfaces: &[(&str, Side)]) -> Result<Self, CaptureError> {
        let taps: Vec<Tap> = interfaces.iter().map(|(name, _)| Tap::open(name)).collect::<Result<_, _>>()?;
        let writer = Writer::create(path, interfaces)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, path) = (Arc::clone(&stop), path.to_owned());
        let thread = thread::spawn_exempt("capture", "writes a capture file", move || {
            record(&stopping, &taps, writer, path)
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops and completes the file; frames recorded.
    ///
    /// # Errors
    /// When the file could not be written.
    pub fn stop(mut self) -> Result<u64, CaptureError> {
        self.end()
    }

    fn end(&mut self) -> Result<u64, CaptureError> {
        self.stop.store(true, Ordering::Release);
        match self.thread.take() {
            Some(thread) => thread.join()?,
            None => Ok(0),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Nobody is left to be informed.
        let _ = self.end();
    }
}

fn record(
    stop: &AtomicBool,
    taps: &[Tap],
    mut writer: Writer<std::io::BufWriter<std::fs::File>>,
    path: PathBuf,
) -> Result<u64, CaptureError> {
    let failed = |error: CaptureError| error.in_file(&path);
    let mut batch: Vec<(usize, Sighted)> = Vec::new();
    let (mut frames, mut rounds) = (0, 0_u32);
    loop {
        // Looked at first: what was there when the stop came is still written.
        let last = stop.load(Ordering::Acquire);
        for (interface, tap) in taps.iter().enumerate() {
            // An interface that goes down says so once and may come up again.
            while let Ok(Some(sighted)) = tap.take() {
                if frame::is_ethercat(&sighted.frame) {
                    batch.push((interface, sighted));
                }
            }
        }
        batch.sort_by_key(|(_, sighted)| sighted.time_ns);
        frames += batch.len() as u64;
        for (interface, sighted) in batch.drain(..) {
            writer
                .packet(interface, sighted.time_ns, Some(sighted.outgoing), &sighted.frame)
                .map_err(failed)?;
        }
        rounds += 1;
        if last {
            for (interface, tap) in taps.iter().enumerate() {
                writer.statistics(interface, tap.dropped()).map_err(failed)?;
            }
            writer.flush().map_err(failed)?;
            return Ok(frames);
        }
        if rounds.is_multiple_of(FLUSH_EVERY) {
            writer.flush().map_err(failed)?;
        }
        std::thread::sleep(PAUSE);
    }
}
