//! Faults of the cell's process, resources that the machine denies it, and the destination of its
//! output.

use super::limits::SILENCE_MS;
use crate::case::{Act, After, Case, CaseKind, Denial, Plant, Stop, Words};

/// Time in which an orderly end must command the stop: main threads look at their flags twenty
/// times a second.
const POLITE_MS: u64 = 200;

fn process(name: impl AsRef<str>, act: Act) -> Case {
    Case::new(CaseKind::Process, name, Plant::Process(act)).within_ms(SILENCE_MS)
}

fn resource(name: &str, denial: Denial) -> Case {
    Case::new(CaseKind::Resource, name, Plant::Machine(denial))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ms in [300, 500, 1000, 1500] {
        cases.push(
            process(format!("stopped-for-{ms}-ms"), Act::Pause)
                .hold_ms(ms)
                .fails()
                .named(&["skipped", "stale", "released", "link", "watchdog", "program"]),
        );
    }
    cases.push(
        process("stopped-and-nobody-plays", Act::Pause)
            .person_plays()
            .expect(Stop::Within(SILENCE_MS), After::Stands)
            .fails(),
    );
    for (stopped_ms, running_ms) in [(200, 5), (60, 10)] {
        let case = process(
            format!("starved-{stopped_ms}-of-{}-ms", stopped_ms + running_ms),
            Act::Stutter(stopped_ms, running_ms),
        )
        .hold_ms(1000);
        // Sixty milliseconds are less than the watchdog's time, and a frame's.
        cases.push(if stopped_ms > SILENCE_MS { case } else { case.expect(Stop::Free, After::Moves) });
    }
    cases.push(
        process("starved-by-fifo-threads", Act::Starve)
            .expect(Stop::Within(SILENCE_MS), After::Moves)
            .alone(),
    );
    let stands = |case: Case, limit_ms| case.expect(Stop::Within(limit_ms), After::Stands);
    cases.push(stands(process("killed", Act::Signal(libc::SIGKILL)), SILENCE_MS));
    cases.push(
        stands(process("killed-and-a-person-plays", Act::KillAndPlay), SILENCE_MS)
            .person_plays()
            .hold_ms(1400),
    );
    for (name, signal) in [
        ("interrupted", libc::SIGINT),
        ("terminated", libc::SIGTERM),
        ("hung-up", libc::SIGHUP),
        ("quit", libc::SIGQUIT),
    ] {
        cases.push(stands(process(name, Act::Signal(signal)), POLITE_MS).by_ordinary_threads());
    }
    for (name, signal) in [("aborted", libc::SIGABRT), ("illegal-instruction", libc::SIGILL)] {
        cases.push(stands(process(name, Act::Signal(signal)), SILENCE_MS));
    }
    // Requirement: the robot moves under supervision, or it stands.
    cases.extend([
        resource("files-may-not-grow", Denial::FileSize)
            .expect(Stop::Free, After::Free)
            .hold_ms(1500)
            .fails(),
        resource("no-memory", Denial::Memory).expect(Stop::Free, After::Free).hold_ms(1000),
        resource("no-descriptors", Denial::Descriptors)
            .expect(Stop::Within(SILENCE_MS), After::Free)
            .named(&["link", "connection", "open files"]),
        resource("disk-full", Denial::Disk)
            .expect(Stop::Free, After::Free)
            .hold_ms(2500)
            .fails()
            .named(&["space", "disk", "writ", "record"])
            .reports(),
    ]);
    // No safety function writes files: the robot goes on, and what was measured is reported.
    for (name, denial) in [
        ("disk-filled-by-others", Denial::Filled),
        ("no-inodes", Denial::Inodes),
        ("run-directory-removed", Denial::Removed),
        ("no-descriptors-to-the-end", Denial::DescriptorsToTheEnd),
    ] {
        let case = resource(name, denial).expect(Stop::Never, After::Moves).hold_ms(2500);
        cases.push(case.fails().named(&["space", "writ", "such file", "open files"]).reports());
    }
    for (name, words) in [("full", Words::Full), ("broken-pipe", Words::Broken), ("closed", Words::Closed)] {
        cases.push(
            Case::new(CaseKind::Output, name, Plant::Output(words))
                .expect(Stop::Never, After::Moves)
                .hold_ms(800),
        );
    }
    cases
}
