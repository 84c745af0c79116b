//! A recording as a camera.

use std::fs::File;
use std::io::{Read, Seek};

use takt_rt::clock;

use super::bag;
use super::config::{PAIRING_MS, ReplayConfig};
use super::source::FrameSource;
use crate::camera::Camera;
use crate::error::CameraError;
use crate::pacing::Pacer;
use crate::unpaired::Unpaired;
use crate::{Frame, Intrinsics};

/// A pause in a recording is replayed shortened to this, so that a replay can be stopped soon and a
/// wrong time stamp cannot halt it.
const LONGEST_GAP_NS: u64 = 1_000_000_000;

/// Periods in a row that frames without a partner take at a set rate.
const LONGEST_LOSS: u64 = 30;

/// Frames of one camera in a recording, one after the other without pacing: for tools and tests,
/// and the part of the replay that reads untrusted bytes.
pub struct FrameReader<R> {
    source: FrameSource<R>,
    intrinsics: Intrinsics,
    start_offset_ns: u64,
    looped: bool,
    /// Time stamp of the first frame in the file, once known.
    first_ns: Option<u64>,
    /// Whether frames before the start offset are still to be skipped.
    seeking: bool,
    /// Time of the frame found last since the first one, over all rounds, and its distance to the
    /// one before.
    offset_ns: u64,
    interval_ns: u64,
    /// Frames found so far, over all rounds.
    frames: u64,
    /// Frames that were none for want of a partner when the last frame was found.
    lost: u64,
    /// Of these, how many take their time in a replay at a set rate.
    lost_periods: u64,
    stamp_ns: u64,
    log_time_ns: u64,
}

impl FrameReader<File> {
    /// Opens the recording that the configuration names.
    ///
    /// # Errors
    /// When the file is foreign, truncated or lacks the camera, or a value of the configuration is
    /// impossible.
    pub fn open(config: &ReplayConfig) -> Result<Self, CameraError> {
        check(config)?;
        let files = bag::files_of(&config.path)?;
        Self::of(FrameSource::of_files(files, takt_files::open, config)?, config)
    }
}

impl<R: Read + Seek> FrameReader<R> {
    /// Reads from `input`; `config.path` serves for error messages alone.
    ///
    /// # Errors
    /// As [`FrameReader::open`].
    pub fn new(input: R, config: &ReplayConfig) -> Result<Self, CameraError> {
        check(config)?;
        Self::of(FrameSource::open(input, config)?, config)
    }

    fn of(
        (source, intrinsics): (FrameSource<R>, Intrinsics),
        config: &ReplayConfig,
    ) -> Result<Self, CameraError> {
        let mut reader = Self {
            source,
            intrinsics,
            start_offset_ns: (config.start_offset_s * 1e9) as u64,
            looped: config.looped,
            first_ns: None,
            seeking: true,
            offset_ns: 0,
            interval_ns: 0,
            frames: 0,
            lost: 0,
            lost_periods: 0,
            stamp_ns: 0,
            log_time_ns: 0,
        };
        // One frame is decoded now, so that a recording that cannot be replayed is refused at the
        // start.
        let mut probe = Frame::new(0, 0);
        match reader.advance() {
            Ok(true) => reader.decode(&mut probe)?,
            Ok(false) if reader.first_ns.is_none() => return Err(reader.source.no_frames()),
            Ok(false) => {
                return Err(CameraError::BadConfig {
                    key: "start_offset_s",
                    value: config.start_offset_s.to_string(),
                    expected: "expected less than the recording's length",
                });
            }
            Err(error) => return Err(error),
        }
        reader.source.restart();
        reader.seeking = true;
        reader.first_ns = None;
        (reader.frames, reader.offset_ns, reader.interval_ns) = (0, 0, 0);
        (reader.lost, reader.lost_periods) = (0, 0);
        Ok(reader)
    }

    /// Intrinsics of all frames.
    pub fn intrinsics(&self) -> Intrinsics {
        self.intrinsics
    }

    /// Images without a partner so far.
    pub fn unpaired(&self) -> Unpaired {
        self.source.unpaired()
    }

    /// The next frame, decoded; `false` at the end. Sequence numbers count from 1, with a gap where
    /// images had no partner; the three times are the recording's.
    ///
    /// # Errors
    /// When the recording is damaged or a message cannot be decoded.
    pub fn read(&mut self, frame: &mut Frame) -> Result<bool, CameraError> {
        if !self.advance()? {
            return Ok(false);
        }
        self.decode(frame)?;
        Ok(true)
    }

    /// Finds the next frame, starting again at the end of a loop; `false` at the end.
    fn advance(&mut self) -> Result<bool, CameraError> {
        let mut restarted = false;
        loop {
            let Some(stamp_ns) = self.source.next_pair()? else {
                // A round without any frame would turn for ever.
                if !self.looped || restarted || self.frames == 0 {
                    return Ok(false);
                }
                self.source.rewind();
                restarted = true;
                continue;
            };
            let first_ns = *self.first_ns.get_or_insert(stamp_ns);
            if self.seeking && stamp_ns.saturating_sub(first_ns) < self.start_offset_ns {
                continue;
            }
            self.seeking = false;
            if self.frames > 0 {
                // The first frame of a round follows the last one at the distance that frames had.
                // Where stamps step backwards, log times give the distance; due times never do so.
                if !restarted {
                    let interval_ns = match stamp_ns.checked_sub(self.stamp_ns) {
                        Some(interval_ns) => interval_ns,
                        None => self.source.log_time_ns().saturating_sub(self.log_time_ns),
                    };
                    self.interval_ns = interval_ns.min(LONGEST_GAP_NS);
                }
                self.offset_ns = self.offset_ns.saturating_add(self.interval_ns.max(1));
            }
            self.stamp_ns = stamp_ns;
            self.log_time_ns = self.source.log_time_ns();
            self.frames += 1;
            let lost = self.source.lost();
            // A set rate has no stamps: a frame that is none takes its period, up to a pause of
            // stamps that is replayed.
            self.lost_periods += (lost - self.lost).min(LONGEST_LOSS);
            self.lost = lost;
            return Ok(true);
        }
    }

    /// Periods of a set rate before the frame found last.
    fn periods(&self) -> u64 {
        (self.frames - 1).saturating_add(self.lost_periods)
    }

    fn decode(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        self.source.decode(&self.intrinsics, frame)?;
        frame.sequence = self.frames.saturating_add(self.lost);
        frame.source_ns = self.stamp_ns;
        frame.capture_ns = self.stamp_ns;
        frame.arrival_ns = self.stamp_ns;
        frame.camera_in_base = None;
        frame.streams = None;
        Ok(())
    }
}

pub(crate) fn check(config: &ReplayConfig) -> Result<(), CameraError> {
    let bad = |key, value: String, expected| Err(CameraError::BadConfig { key, value, expected });
    if let Some(rate) = config.rate_fps
        && !(1.0..=1000.0).contains(&rate)
    {
        return bad("rate_fps", rate.to_string(), "expected 1 to 1000");
    }
    if !(0.0..=1e6).contains(&config.start_offset_s) {
        return bad("start_offset_s", config.start_offset_s.to_string(), "expected 0 to 1000000");
    }
    if !PAIRING_MS.contains(&config.pairing_ms) {
        return bad("pairing_ms", config.pairing_ms.to_string(), "expected 0 to 1000");
    }
    if let Some(intrinsics) = config.intrinsics
        && !intrinsics.has_plausible_size()
    {
        let size = format!("{}x{}", intrinsics.width, intrinsics.height);
        return bad("intrinsics", size, "expected a size of 1x1 to 7680x4320");
    }
    Ok(())
}

/// Most frames skipped before one is delivered nevertheless, when even skipping is slower than the
/// rate.
const MAX_SKIPPED: u32 = 100;

/// A recording that is delivered at its own pace or at a set rate.
pub struct ReplayCamera {
    reader: FrameReader<File>,
    pacer: Pacer,
    /// Periods of a set rate in which nothing was delivered.
    missed: u64,
    has_depth: bool,
}

impl ReplayCamera {
    /// Opens the recording that the configuration names.
    ///
    /// # Errors
    /// As [`FrameReader::open`].
    pub fn open(config: &ReplayConfig) -> Result<Self, CameraError> {
        let reader = FrameReader::open(config)?;
        Ok(Self { reader, pacer: Pacer::new(config.rate_fps), missed: 0, has_depth: !config.color_only })
    }
}

impl Camera for ReplayCamera {
    fn intrinsics(&self) -> Intrinsics {
        self.reader.intrinsics
    }

    fn has_depth(&self) -> bool {
        self.has_depth
    }

    fn unpaired(&self) -> Option<Unpaired> {
        Some(self.reader.unpaired())
    }

    fn start_at(&mut self, origin_ns: u64, phase_ns: u64) {
        self.pacer.start_at(origin_ns.saturating_add(phase_ns));
    }

    fn next_frame(&mut self, frame: &mut Frame) -> Result<(), CameraError> {
        if self.pacer.has_rate() {
            self.miss_periods()?
        } else {
            self.skip_frames()?
        }
        self.reader.decode(frame)?;
        if !self.pacer.started() {
            self.pacer.start_at(clock::monotonic_ns());
        }
        let due_ns = self.pacer.due_ns(self.reader.periods() + self.missed, self.reader.offset_ns);
        clock::sleep_until(due_ns);
        frame.sequence += self.missed;
        frame.capture_ns = due_ns;
        // A camera would have handed it over then, however late this thread wakes up.
        frame.arrival_ns = due_ns;
        Ok(())
    }
}

impl ReplayCamera {
    /// Goes to the next frame of a replay at a set rate, in which the content has no time of its
    /// own: a camera that is late misses periods (a gap in `sequence`) and goes on in the recording
    /// where it was. Reading its way through the frames of missed periods would make a starving
    /// driver thread later and later.
    fn miss_periods(&mut self) -> Result<(), CameraError> {
        if !self.reader.advance()? {
            return Err(CameraError::Ended);
        }
        let now_ns = clock::monotonic_ns();
        let due_ns = |missed| self.pacer.due_ns(self.reader.periods() + missed, 0);
        if self.pacer.is_stale(now_ns, due_ns(self.missed + 1)) {
            let period_ns = due_ns(self.missed + 1).saturating_sub(due_ns(self.missed)).max(1);
            self.missed += now_ns.saturating_sub(due_ns(self.missed)) / period_ns;
        }
        Ok(())
    }

    /// Goes to the frame that is due now by the recorded time stamps, so that the views of one
    /// recording stay together.
    fn skip_frames(&mut self) -> Result<(), CameraError> {
        let mut skipped = 0;
        loop {
            if !self.reader.advance()? {
                // The last frame is overdue and the newest there is. Delivered, it shows how many
                // were skipped before it.
                return if skipped > 0 { Ok(()) } else { Err(CameraError::Ended) };
            }
            let FrameReader { frames, offset_ns, interval_ns, .. } = self.reader;
            let next_due_ns = self.pacer.due_ns(frames, offset_ns.saturating_add(interval_ns.max(1)));
            if skipped >= MAX_SKIPPED || !self.pacer.is_stale(clock::monotonic_ns(), next_due_ns) {
                return Ok(());
            }
            skipped += 1;
        }
    }
}
