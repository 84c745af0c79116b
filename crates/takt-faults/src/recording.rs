//! Recordings in which something goes wrong at a known frame.
//!
//! A recording is replayed by its own time stamps, but when it began only the cell knows. So every
//! recording has a **mark**: a person far behind the robot, there for a few frames. The
//! controller's log shows when the robot was instructed to slow down for it, which no fault does,
//! and the fault's frame is due as much later as it lies behind the mark's. The reaction time of
//! the mark itself is thus added for the fault, too.

use std::path::Path;

use takt_link_camera::recording::{Recorder, RecorderOptions};
use takt_link_camera::{Frame, Intrinsics};

use takt_rt::random::SplitMix64;

use crate::FaultError;

/// Frames per second.
pub(crate) const FPS: u64 = 30;
/// First frame of the mark: the robot moves by then.
const MARK: u64 = 60;
const MARK_FRAMES: u64 = 8;
/// First frame of the fault: the robot moves again by then.
const FAULT: u64 = MARK + MARK_FRAMES + 37;
/// Frames after the fault: the robot moves again, and the run ends before the recording does.
const AFTER: u64 = 150;

const WIDTH: u32 = 160;
const HEIGHT: u32 = 120;
/// The camera of all recordings, as `cell` mounts it.
pub(crate) const INTRINSICS: Intrinsics =
    Intrinsics { width: WIDTH, height: HEIGHT, fx: 130.0, fy: 130.0, cx: 79.5, cy: 59.5 };

/// Depth of the wall, behind all that is watched, millimetres.
const WALL_MM: u16 = 8_000;
/// Depth of a person, near the arm, millimetres.
const PERSON_MM: u16 = 1_400;
/// Depth of the person that is the mark.
const MARK_MM: u16 = 6_000;
/// Columns and rows of a person.
const PERSON: (std::ops::Range<u32>, std::ops::Range<u32>) = (64..96, 20..110);

/// Fault of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spoil {
    Nothing,
    Person,
    /// The recording ends.
    Ended,
    /// Colour and depth repeat themselves.
    Frozen,
    /// Depth repeats itself, colour does not.
    FrozenDepth,
    /// The left half repeats itself.
    FrozenHalf,
    /// So many old frames in turn, as a driver shows them that goes round in buffers that nobody
    /// fills.
    Ring(u64),
    BlackColour,
    /// Depth is missing everywhere.
    NoDepth,
    /// Both: a covered lens.
    Covered,
    /// So many per cent of the pixels measure this depth, millimetres, in one piece.
    Near(u32, u16),
    /// So many per cent of the pixels measure nothing, in one piece.
    Hole(u32),
    /// So many per cent of the pixels measure nothing, here and there.
    Scattered(u32),
    /// Nothing is measured where a person is: black clothes, a mirror.
    BlackPerson,
    /// A cloth in folds about this depth, millimetres, hangs over so many per cent of the rows,
    /// from the top.
    Cloth(u32, u16),
    /// The same over so many per cent of the columns, from the left, from top to bottom.
    ClothBeside(u32, u16),
    /// A strip at this depth, millimetres, hangs over so many per cent of the columns in the
    /// middle.
    Strip(u32, u16),
    /// Something stands on the floor before the watched volume, at this depth, millimetres: over
    /// the middle half of the columns, from the second quarter of the rows down.
    Pallet(u16),
    /// A person at this depth, millimetres.
    PersonAt(u16),
    /// Something at this depth, millimetres, above the line of sight of everything that is watched.
    Above(u16),
    /// Every depth is multiplied by the first number and divided by the second.
    Scale(u32, u32),
    /// The calibration has this focal length, pixels, from the start.
    Focal(f64),
    /// The calibration has its middle here, pixels, from the start.
    Centre(f64),
    /// A third is dazzled: white, and without depth.
    Glare,
    RandomDepth,
    /// Every depth is the greatest number.
    GreatestDepth,
    /// Frames of another size.
    Resized,
    /// The frames come this many milliseconds later than they should, all of them.
    Pause(u64),
    /// One frame is dated this many milliseconds into the future.
    Future(u64),
    /// One frame is dated this many milliseconds back.
    Backwards(u64),
    /// Every frame is there twice.
    Twice,
    /// Numbers stand still.
    SameNumber,
    /// Numbers begin again at 1.
    NumbersRestart,
    /// The file breaks off.
    Truncated,
    /// The file has other bytes in its middle.
    Damaged,
    /// The file is no recording at all.
    Garbage,
    /// The file is empty.
    Empty,
}

/// Time from the mark's frame to the fault's first frame, nanoseconds.
pub(crate) const FAULT_AFTER_MARK_NS: u64 = (FAULT - MARK) * 1_000_000_000 / FPS;

/// Duration of a recording's fault of `hold_ms`, nanoseconds.
pub(crate) const fn fault_ns(hold_ms: u64) -> u64 {
    hold_ms * FPS / 1000 * 1_000_000_000 / FPS
}

/// A frame of the empty cell, or with a person in it.
fn draw(frame: &mut Frame, number: u64, person_mm: Option<u16>) {
    let mut noise = SplitMix64::new(number);
    for (at, depth) in frame.depth_mm.iter_mut().enumerate() {
        let (u, v) = (at as u32 % WIDTH, at as u32 / WIDTH);
        let person_mm = person_mm.filter(|_| PERSON.0.contains(&u) && PERSON.1.contains(&v));
        let there = person_mm.is_some();
        let random = noise.bits();
        let (base, spread) = person_mm.map_or((WALL_MM, 61), |person_mm| (person_mm, 9));
        *depth = base + (random % spread) as u16;
        let grey = if there { 200 } else { 60 + ((u / 8 + v / 8) % 2 * 80) as u8 };
        frame.rgb[3 * at..3 * at + 3].fill(grey + (random >> 32) as u8 % 16);
    }
}

fn spoil(what: Spoil, frame: &mut Frame, first: &Frame, number: u64) {
    let pixels = frame.depth_mm.len();
    let share = |per_cent: u32| pixels * per_cent as usize / 100;
    match what {
        Spoil::Person => draw(frame, number, Some(PERSON_MM)),
        Spoil::Frozen => {
            frame.rgb.clone_from(&first.rgb);
            frame.depth_mm.clone_from(&first.depth_mm);
        }
        Spoil::FrozenDepth => frame.depth_mm.clone_from(&first.depth_mm),
        Spoil::FrozenHalf => {
            for at in (0..pixels).filter(|at| (at % WIDTH as usize) < WIDTH as usize / 2) {
                frame.depth_mm[at] = first.depth_mm[at];
                frame.rgb[3 * at..3 * at + 3].copy_from_slice(&first.rgb[3 * at..3 * at + 3]);
            }
        }
        Spoil::BlackColour => frame.rgb.fill(0),
        Spoil::NoDepth => frame.depth_mm.fill(0),
        Spoil::Covered => {
            frame.rgb.fill(0);
            frame.depth_mm.fill(0);
        }
        Spoil::Near(per_cent, depth_mm) => frame.depth_mm[..share(per_cent)].fill(depth_mm),
        Spoil::Cloth(per_cent, depth_mm) => hang(frame, number, [WIDTH, HEIGHT * per_cent / 100], depth_mm),
        Spoil::ClothBeside(per_cent, depth_mm) => {
            hang(frame, number, [WIDTH * per_cent / 100, HEIGHT], depth_mm)
        }
        Spoil::Strip(per_cent, depth_mm) => {
            let half = WIDTH * per_cent / 200;
            stand(frame, number, [WIDTH / 2 - half, 0, WIDTH / 2 + half, HEIGHT], depth_mm)
        }
        Spoil::Pallet(depth_mm) => {
            stand(frame, number, [WIDTH / 4, HEIGHT / 4, WIDTH * 3 / 4, HEIGHT], depth_mm)
        }
        Spoil::PersonAt(depth_mm) => draw(frame, number, Some(depth_mm)),
        Spoil::Above(depth_mm) => stand(frame, number, [0, 0, WIDTH, 10], depth_mm),
        Spoil::Scale(times, over) => {
            let scaled = |depth: u16| (u32::from(depth) * times / over).min(u32::from(u16::MAX)) as u16;
            frame.depth_mm.iter_mut().for_each(|depth| *depth = scaled(*depth));
        }
        Spoil::Hole(per_cent) => frame.depth_mm[..share(per_cent)].fill(0),
        Spoil::Scattered(per_cent) => {
            let mut noise = SplitMix64::new(number ^ 0xabcd);
            let holes = frame.depth_mm.iter_mut().filter(|_| noise.bits() % 100 < u64::from(per_cent));
            holes.for_each(|depth| *depth = 0);
        }
        Spoil::BlackPerson => {
            for at in 0..pixels {
                let (u, v) = (at as u32 % WIDTH, at as u32 / WIDTH);
                if PERSON.0.contains(&u) && PERSON.1.contains(&v) {
                    frame.depth_mm[at] = 0;
                    frame.rgb[3 * at..3 * at + 3].fill(8);
                }
            }
        }
        Spoil::Glare => {
            for at in (0..pixels).filter(|at| (at % WIDTH as usize) < WIDTH as usize / 3) {
                frame.depth_mm[at] = 0;
                frame.rgb[3 * at..3 * at + 3].fill(255);
            }
        }
        Spoil::RandomDepth => {
            let mut noise = SplitMix64::new(number ^ 0x1234);
            frame.depth_mm.iter_mut().for_each(|depth| *depth = noise.bits() as u16);
        }
        Spoil::GreatestDepth => frame.depth_mm.fill(u16::MAX),
        _ => {}
    }
}

/// Hangs a cloth in folds about one depth over the first columns and rows.
fn hang(frame: &mut Frame, number: u64, [columns, rows]: [u32; 2], depth_mm: u16) {
    let mut noise = SplitMix64::new(number ^ 0x55aa);
    for (u, v) in (0..rows).flat_map(|v| (0..columns).map(move |u| (u, v))) {
        let fold_mm = (u % 16).abs_diff(8) * 5;
        frame.depth_mm[(v * WIDTH + u) as usize] = depth_mm + fold_mm as u16 + (noise.bits() % 3) as u16;
    }
}

/// Puts something of one depth, with noise, into a part of the picture: left, top, right, bottom.
fn stand(frame: &mut Frame, number: u64, [left, top, right, bottom]: [u32; 4], depth_mm: u16) {
    let mut noise = SplitMix64::new(number ^ 0x9a9a);
    for (u, v) in (top..bottom).flat_map(|v| (left..right).map(move |u| (u, v))) {
        let at = (v * WIDTH + u) as usize;
        let random = noise.bits();
        frame.depth_mm[at] = depth_mm + (random % 7) as u16;
        frame.rgb[3 * at..3 * at + 3].fill(150 + (random >> 32) as u8 % 16);
    }
}

/// Stamp and number of a frame, and how often it is written.
fn order(what: Spoil, number: u64, faulty: Option<u64>, faulty_frames: u64, behind: bool) -> (u64, u64, u32) {
    let stamp_ns = 1_000_000_000 + number * 1_000_000_000 / FPS;
    let sequence = number + 1;
    match (what, faulty) {
        (Spoil::Pause(ms), Some(_)) => (stamp_ns + ms * 1_000_000, sequence, 1),
        (Spoil::Pause(ms), None) if behind => (stamp_ns + ms * 1_000_000, sequence, 1),
        (Spoil::Future(ms), Some(0)) => (stamp_ns + ms * 1_000_000, sequence, 1),
        (Spoil::Backwards(ms), Some(0)) => (stamp_ns.saturating_sub(ms * 1_000_000), sequence, 1),
        (Spoil::Twice, Some(_)) => (stamp_ns, sequence, 2),
        (Spoil::SameNumber, Some(nth)) => (stamp_ns, sequence - nth, 1),
        (Spoil::NumbersRestart, Some(nth)) => (stamp_ns, nth + 1, 1),
        (Spoil::NumbersRestart, None) if behind => (stamp_ns, number - FAULT - faulty_frames + 1, 1),
        _ => (stamp_ns, sequence, 1),
    }
}

/// Writes the recording `path` with a fault that lasts `hold_ms`; the camera is `/cam`.
pub(crate) fn write(path: &Path, what: Spoil, hold_ms: u64) -> Result<(), FaultError> {
    let faulty_frames = hold_ms * FPS / 1000;
    let frames = FAULT + faulty_frames + AFTER;
    let options = RecorderOptions { jpeg_quality: 80, frames_per_chunk: 3 };
    let half = Intrinsics { width: WIDTH / 2, height: HEIGHT / 2, ..INTRINSICS };
    let intrinsics = match what {
        Spoil::Focal(pixels) => Intrinsics { fx: pixels, fy: pixels, ..INTRINSICS },
        Spoil::Centre(pixels) => Intrinsics { cx: pixels, cy: pixels, ..INTRINSICS },
        _ => INTRINSICS,
    };
    let mut recorder = Recorder::create(path, &[("/cam", intrinsics)], options)?;
    let mut frame = Frame::new(WIDTH, HEIGHT);
    let mut first = frame.clone();
    for number in 0..frames {
        let faulty = (FAULT..FAULT + faulty_frames).contains(&number).then(|| number - FAULT);
        if what == Spoil::Ended && faulty.is_some() {
            break;
        }
        draw(&mut frame, number, (MARK..MARK + MARK_FRAMES).contains(&number).then_some(MARK_MM));
        if number + 1 == FAULT {
            first.clone_from(&frame);
        }
        if let (Spoil::Ring(buffers), Some(nth)) = (what, faulty) {
            draw(&mut frame, FAULT - buffers + nth % buffers, None);
        }
        if faulty.is_some() {
            spoil(what, &mut frame, &first, number);
        }
        let behind = number >= FAULT + faulty_frames;
        let (stamp_ns, sequence, times) = order(what, number, faulty, faulty_frames, behind);
        (frame.capture_ns, frame.arrival_ns, frame.sequence) = (stamp_ns, stamp_ns, sequence);
        for _ in 0..times {
            recorder.write(0, &frame)?;
        }
    }
    recorder.finish()?;
    match what {
        Spoil::Resized => resize(path, half, faulty_frames),
        Spoil::Truncated => {
            let whole = std::fs::read(path).map_err(FaultError::io("a recording"))?;
            let end = whole.len() * (FAULT as usize) / (frames as usize);
            std::fs::write(path, &whole[..end]).map_err(FaultError::io("a recording"))
        }
        Spoil::Damaged => {
            let mut whole = std::fs::read(path).map_err(FaultError::io("a recording"))?;
            let start = whole.len() * (FAULT as usize) / (frames as usize);
            whole.iter_mut().skip(start).step_by(64).take(4_000).for_each(|byte| *byte ^= 0x55);
            std::fs::write(path, whole).map_err(FaultError::io("a recording"))
        }
        Spoil::Garbage => {
            let mut noise = SplitMix64::new(7);
            let bytes: Vec<u8> = (0..65_536).map(|_| noise.bits() as u8).collect();
            std::fs::write(path, bytes).map_err(FaultError::io("a recording"))
        }
        Spoil::Empty => std::fs::write(path, []).map_err(FaultError::io("a recording")),
        _ => Ok(()),
    }
}

/// Puts frames of another size in place of the fault's: messages of a second recording with the
/// same stamps.
fn resize(path: &Path, size: Intrinsics, faulty_frames: u64) -> Result<(), FaultError> {
    let other = path.with_extension("other.mcap");
    let options = RecorderOptions { jpeg_quality: 80, frames_per_chunk: 3 };
    let mut recorder = Recorder::create(&other, &[("/cam", size)], options)?;
    let mut frame = Frame::new(size.width, size.height);
    let mut noise = SplitMix64::new(3);
    let mut stamps = Vec::new();
    for number in FAULT..FAULT + faulty_frames {
        frame.depth_mm.iter_mut().for_each(|depth| *depth = WALL_MM + (noise.bits() % 60) as u16);
        frame.rgb.iter_mut().for_each(|byte| *byte = noise.bits() as u8);
        let (stamp_ns, sequence, _) = order(Spoil::Resized, number, None, faulty_frames, false);
        (frame.capture_ns, frame.arrival_ns, frame.sequence) = (stamp_ns, stamp_ns, sequence);
        recorder.write(0, &frame)?;
        stamps.push(stamp_ns);
    }
    recorder.finish()?;
    let read = |path: &Path| std::fs::read(path).map_err(FaultError::io("a recording"));
    let (whole, others) = (read(path)?, read(&other)?);
    let joined = path.with_extension("joined.mcap");
    let io = |error: mcap::McapError| FaultError::io("a recording")(std::io::Error::other(error));
    let file = std::fs::File::create(&joined).map_err(FaultError::io("a recording"))?;
    let mut writer = mcap::Writer::new(std::io::BufWriter::new(file)).map_err(io)?;
    let (Some(&from_ns), Some(&to_ns)) = (stamps.first(), stamps.last()) else { return Ok(()) };
    let faulty = |log_time: u64| (from_ns..=to_ns).contains(&log_time);
    for message in mcap::MessageStream::new(&whole).map_err(io)? {
        let message = message.map_err(io)?;
        if !faulty(message.log_time) {
            writer.write(&message).map_err(io)?;
        } else if message.log_time == from_ns && message.channel.topic.ends_with("/color") {
            for other in mcap::MessageStream::new(&others).map_err(io)? {
                let other = other.map_err(io)?;
                if !other.channel.topic.ends_with("/calibration") {
                    writer.write(&other).map_err(io)?;
                }
            }
        }
    }
    writer.finish().map_err(io)?;
    std::fs::rename(joined, path).map_err(FaultError::io("a recording"))
}

#[cfg(test)]
mod tests {
    use takt_link_camera::ReplayConfig;
    use takt_link_camera::recording::FrameReader;

    use super::*;

    fn frames(what: Spoil) -> Vec<Frame> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cam.mcap");
        write(&path, what, 200).unwrap();
        let mut reader = FrameReader::open(&ReplayConfig::new(&path, "/cam")).unwrap();
        let (mut all, mut frame) = (Vec::new(), Frame::new(0, 0));
        while matches!(reader.read(&mut frame), Ok(true)) {
            all.push(frame.clone());
        }
        all
    }

    #[test]
    fn only_the_frames_of_the_fault_are_spoilt() {
        let (good, bad) = (frames(Spoil::Nothing), frames(Spoil::NoDepth));
        assert_eq!(good.len(), bad.len());
        for (number, (good, bad)) in good.iter().zip(&bad).enumerate() {
            let faulty = (FAULT..FAULT + 6).contains(&(number as u64));
            assert_eq!(good.depth_mm != bad.depth_mm, faulty, "frame {number}");
            assert_eq!(faulty, bad.depth_mm.iter().all(|&depth| depth == 0), "frame {number}");
        }
    }

    #[test]
    fn frozen_frames_repeat_the_last_good_one_and_good_ones_never_do() {
        let frozen = frames(Spoil::Frozen);
        let at = FAULT as usize;
        assert!(frozen[at - 1..at + 6].windows(2).all(|two| two[0].depth_mm == two[1].depth_mm));
        assert!(frozen[at - 1..at + 6].windows(2).all(|two| two[0].rgb == two[1].rgb));
        assert!(frozen[..at].windows(2).all(|two| two[0].depth_mm != two[1].depth_mm));
        let half = frames(Spoil::FrozenHalf);
        assert!(half[at - 1..at + 6].windows(2).all(|two| two[0].depth_mm != two[1].depth_mm));
    }

    #[test]
    fn a_recording_with_an_end_or_another_size_stops_being_read_at_the_fault() {
        for what in [Spoil::Ended, Spoil::Resized] {
            assert_eq!(frames(what).len() as u64, FAULT, "{what:?}");
        }
    }
}
