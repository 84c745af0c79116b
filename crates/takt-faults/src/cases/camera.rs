//! Faults in a camera's pictures and times: recordings in which something goes wrong.

use super::limits::{CONTENT_MS, FRAME_MS, FROZEN_MS};
use crate::case::{After, Case, CaseKind, Plant, Spoil, Stop};

const STALE_WORDS: &[&str] = &["stale", "ended", "camera"];
const FROZEN_WORDS: &[&str] = &["frozen", "does not change", "unchanged", "repeat"];
const DEPTH_WORDS: &[&str] = &["depth", "blind", "unseen", "near", "separation", "unexplained"];

const HIDDEN_WORDS: &[&str] = &["hides", "hidden", "depth", "unseen"];

fn camera(name: &str, what: Spoil) -> Case {
    Case::new(CaseKind::Camera, name, Plant::Recording(what, Vec::new()))
        .within_ms(CONTENT_MS)
        .is_near()
        .hold_ms(600)
}

/// The watched volume begins 1.2 m before the camera: whatever is nearer is before it.
fn before_the_volume(name: &str, what: Spoil) -> Case {
    camera(name, what).key("perception.occupancy.volume", "max_m", "[0.8, 2.0, 1.4]")
}

fn refused(name: &str, what: Spoil) -> Case {
    Case::new(CaseKind::Camera, name, Plant::UnreadableRecording(what))
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
        // Space that is not seen does not count as free.
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
    // An object with depth hides everything behind it.
    let hides = |name: &str, what| before_the_volume(name, what).named(HIDDEN_WORDS);
    cases.extend([
        hides("cloth-at-300-mm", Spoil::Cloth(100, 300)),
        hides("cloth-over-the-left-third-at-400-mm", Spoil::ClothBeside(34, 400)),
        hides("cloth-over-the-upper-half-at-400-mm", Spoil::Cloth(50, 400)),
        // Hidden is a wedge of 0.2 m below the top of the volume.
        hides("cloth-over-the-upper-third-at-400-mm", Spoil::Cloth(34, 400)),
        hides("strip-over-a-fifth-of-the-columns-at-400-mm", Spoil::Strip(20, 400)),
        hides("board-at-300-mm", Spoil::Near(100, 300)),
        hides("board-over-half-at-600-mm", Spoil::Near(50, 600)),
        hides("pallet-at-1-m", Spoil::Pallet(1_000)),
        hides("person-before-the-volume-at-1-m", Spoil::PersonAt(1_000)),
        before_the_volume("depth-a-tenth", Spoil::Scale(1, 10)).named(HIDDEN_WORDS),
        before_the_volume("depth-tenfold", Spoil::Scale(10, 1)).named(DEPTH_WORDS),
        before_the_volume("depth-in-inches", Spoil::Scale(254, 100)).named(DEPTH_WORDS),
        // These hide nothing of it.
        before_the_volume("bystander-behind-the-volume", Spoil::PersonAt(7_000))
            .expect(Stop::Never, After::Moves),
        before_the_volume("lamp-above-the-volume", Spoil::Above(1_000)).expect(Stop::Never, After::Moves),
        before_the_volume("nothing-before-the-volume", Spoil::Nothing).expect(Stop::Never, After::Moves),
    ]);
    // Numbers that no camera has.
    for (name, what) in [
        ("focal-length-of-1e300", Spoil::Focal(1e300)),
        ("focal-length-of-1e-300", Spoil::Focal(1e-300)),
        ("focal-length-of-1-pixel", Spoil::Focal(1.0)),
        ("principal-point-outside", Spoil::Centre(1e6)),
    ] {
        cases.push(
            Case::new(CaseKind::Camera, name, Plant::UnreadableRecording(what))
                .expect(Stop::FromStart, After::Free)
                .named(&["intrinsics"]),
        );
    }
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
