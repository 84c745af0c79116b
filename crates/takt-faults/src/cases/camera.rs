//! What a camera shows, and when: recordings in which something goes wrong.

use super::limits::{CONTENT_MS, FRAME_MS, FROZEN_MS};
use crate::case::{After, Case, Kind, Plant, Spoil, Stop};

const STALE_WORDS: &[&str] = &["stale", "ended", "camera"];
const FROZEN_WORDS: &[&str] = &["frozen", "does not change", "unchanged", "repeat"];
const DEPTH_WORDS: &[&str] = &["depth", "blind", "unseen", "near", "separation", "unexplained"];

fn camera(name: &str, what: Spoil) -> Case {
    Case::new(Kind::Camera, name, Plant::Recording(what, Vec::new()))
        .within_ms(CONTENT_MS)
        .is_near()
        .hold_ms(600)
}

fn refused(name: &str, what: Spoil) -> Case {
    Case::new(Kind::Camera, name, Plant::UnreadableRecording(what))
        .expect(Stop::FromStart, After::Free)
        .named(&["mcap", "recording", "truncated", "file"])
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        camera("ended", Spoil::Ended)
            .within_ms(FRAME_MS)
            .expect(Stop::Within(FRAME_MS), After::Stands)
            .named(STALE_WORDS)
            .fails(),
        camera("damaged", Spoil::Damaged)
            .expect(Stop::Within(FRAME_MS), After::Stands)
            .named(STALE_WORDS)
            .fails(),
        camera("resized", Spoil::Resized)
            .expect(Stop::Within(FRAME_MS), After::Free)
            .named(&["size", "stale", "ended", "camera"])
            .fails(),
        refused("truncated", Spoil::Truncated),
        refused("garbage", Spoil::Garbage),
        refused("empty", Spoil::Empty),
        // Nothing of the content changes any more.
        camera("frozen", Spoil::Frozen).within_ms(FROZEN_MS).hold_ms(1200).named(FROZEN_WORDS).fails(),
        camera("depth-frozen", Spoil::FrozenDepth)
            .within_ms(FROZEN_MS)
            .hold_ms(1200)
            .named(FROZEN_WORDS)
            .fails(),
        camera("half-frozen", Spoil::FrozenHalf)
            .within_ms(FROZEN_MS)
            .hold_ms(1200)
            .named(FROZEN_WORDS)
            .fails(),
        camera("old-frames-in-turn", Spoil::Ring(4))
            .within_ms(FROZEN_MS)
            .hold_ms(1200)
            .named(FROZEN_WORDS)
            .fails(),
        // What is not seen is not free.
        camera("colour-black", Spoil::BlackColour).named(&["colour", "blind"]),
        camera("depth-missing", Spoil::NoDepth).named(DEPTH_WORDS),
        camera("covered", Spoil::Covered).named(&["depth", "colour", "blind", "covered"]),
        camera("hole-of-69-per-cent", Spoil::Hole(69)).named(DEPTH_WORDS),
        camera("hole-of-30-per-cent", Spoil::Hole(30)).named(DEPTH_WORDS),
        camera("hole-in-the-shape-of-a-person", Spoil::BlackPerson).named(DEPTH_WORDS),
        camera("glare-over-a-third", Spoil::Glare).named(DEPTH_WORDS),
        camera("5-per-cent-of-holes", Spoil::Scattered(5)).expect(Stop::Never, After::Moves),
        camera("depth-at-random", Spoil::RandomDepth),
        camera("depth-of-65-m", Spoil::GreatestDepth).named(DEPTH_WORDS),
    ];
    for depth_mm in [1, 100, 150, 194, 200, 250, 600] {
        let name = format!("45-per-cent-at-{depth_mm}-mm");
        cases.push(camera(&name, Spoil::Near(45, depth_mm)));
    }
    cases.push(camera("8-per-cent-at-150-mm", Spoil::Near(8, 150)));
    // Time and number: a fault or not, the robot must not be locked out afterwards.
    cases.extend([
        camera("pause-of-300-ms", Spoil::Pause(300))
            .within_ms(FRAME_MS)
            .hold_ms(270)
            .expect(Stop::Within(FRAME_MS), After::Free)
            .named(STALE_WORDS)
            .fails(),
        camera("one-frame-1-s-into-the-future", Spoil::Future(1_000)).expect(Stop::Free, After::Moves),
        camera("one-frame-an-hour-into-the-future", Spoil::Future(3_600_000))
            .expect(Stop::Free, After::Moves),
        camera("one-frame-1-s-back", Spoil::Backwards(1_000)).expect(Stop::Free, After::Moves),
        camera("every-frame-twice", Spoil::Twice).expect(Stop::Free, After::Moves),
        camera("numbers-stand-still", Spoil::SameNumber).expect(Stop::Free, After::Moves),
        camera("numbers-begin-again", Spoil::NumbersRestart).expect(Stop::Free, After::Moves),
    ]);
    cases
}
