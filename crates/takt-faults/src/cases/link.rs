//! The connection, and what becomes of commands on it.

use super::limits::{CLOCK_MS, DISOBEDIENCE_MS, ECHO_MS, SILENCE_MS, STATE_MS};
use crate::case::{After, Case, CaseKind, Plant, RECOVER_AFTER_MS, Spoil, Stop};
use crate::proxy::Direction::{ToCell, ToRobot};
use crate::proxy::Disturbance::{
    Add, Creep, Cut, Delay, Drop, Duplicate, Flip, Freeze, Garbage, HalfOpen, Map, Refuse, Replay, Reset,
    Set, Stall, Swap,
};
use crate::proxy::{Direction, Disturbance, Value, Which};

const LINK_WORDS: &[&str] = &["link", "connection"];
const AGE_WORDS: &[&str] = &["link", "stale", "old", "age", "late", "delay"];
const OBEY_WORDS: &[&str] = &["obey", "obedience", "disobe", "still moves", "command", "speed", "follow"];
const BEAT_WORDS: &[&str] = &["heartbeat", "watchdog", "echo", "acknowledg", "program", "command"];

/// Longer than the recovery time, so that a stop that is withdrawn while the fault lasts is seen.
const LONG_MS: u64 = 4 * RECOVER_AFTER_MS;

fn link(name: impl AsRef<str>, faults: Vec<Disturbance>) -> Case {
    Case::new(CaseKind::Link, name, Plant::Wire(faults))
}

fn command(name: impl AsRef<str>, faults: Vec<Disturbance>) -> Case {
    Case::new(CaseKind::Command, name, Plant::Wire(faults))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = losses();
    cases.extend(delays());
    cases.extend(damage());
    cases.extend(commands());
    cases
}

fn losses() -> Vec<Case> {
    let drop = |direction, which, one_in| Drop(direction, which, one_in);
    vec![
        link("states-lost", vec![drop(ToCell, Which::Safety, 1)])
            .within_ms(STATE_MS)
            .named(LINK_WORDS)
            .fails(),
        link("commands-lost", vec![drop(ToRobot, Which::Safety, 1)])
            .within_ms(SILENCE_MS)
            .named(BEAT_WORDS)
            .fails(),
        link("all-lost", vec![drop(ToRobot, Which::All, 1), drop(ToCell, Which::All, 1)])
            .within_ms(SILENCE_MS)
            .named(LINK_WORDS)
            .fails(),
        // Within the limits: half of the packets are enough.
        link("every-second-state-lost", vec![drop(ToCell, Which::Safety, 2)])
            .expect(Stop::Never, After::Moves),
        link("every-second-command-lost", vec![drop(ToRobot, Which::Safety, 2)])
            .expect(Stop::Never, After::Moves),
        // The mission is no safety function: its loss stops nothing, and hides nothing.
        link("mission-lost", vec![drop(ToRobot, Which::Mission, 1), drop(ToCell, Which::Mission, 1)])
            .expect(Stop::Free, After::Moves),
        link("states-stalled", vec![Stall(ToCell)]).within_ms(STATE_MS).named(LINK_WORDS).fails(),
        link("commands-stalled", vec![Stall(ToRobot)]).within_ms(SILENCE_MS).named(BEAT_WORDS).fails(),
        link("both-stalled", vec![Stall(ToRobot), Stall(ToCell)])
            .within_ms(SILENCE_MS)
            .named(LINK_WORDS)
            .fails(),
        link("half-open", vec![HalfOpen]).within_ms(SILENCE_MS).named(LINK_WORDS).fails().hold_ms(1500),
        link("reset", vec![Reset]).within_ms(SILENCE_MS).named(LINK_WORDS).fails().hold_ms(120),
        link("refused", vec![Refuse]).within_ms(SILENCE_MS).named(LINK_WORDS).fails(),
        Case::new(CaseKind::Link, "refused-and-a-person-plays", Plant::WireAndPlay(vec![Refuse]))
            .within_ms(SILENCE_MS)
            .person_plays()
            .expect(Stop::Within(SILENCE_MS), After::Free)
            .hold_ms(1400)
            .fails(),
        Case::new(
            CaseKind::Link,
            "commands-lost-and-a-person-plays",
            Plant::WireAndPlay(vec![drop(ToRobot, Which::All, 1)]),
        )
        .person_plays()
        .expect(Stop::Within(SILENCE_MS), After::Free)
        .hold_ms(1400)
        .fails(),
        link("cut-in-a-state", vec![Cut(ToCell)])
            .within_ms(SILENCE_MS)
            .named(LINK_WORDS)
            .fails()
            .hold_ms(150),
        link("cut-in-a-command", vec![Cut(ToRobot)])
            .within_ms(SILENCE_MS)
            .named(LINK_WORDS)
            .fails()
            .hold_ms(150),
    ]
}

fn delays() -> Vec<Case> {
    let mut cases = Vec::new();
    for ms in [5, 20, 60, 100, 200, 500] {
        let states = link(format!("states-{ms}-ms-late"), vec![Delay(ToCell, Which::Safety, ms)]);
        let commands = link(format!("commands-{ms}-ms-late"), vec![Delay(ToRobot, Which::Safety, ms)]);
        let both = link(
            format!("both-{ms}-ms-late"),
            vec![Delay(ToCell, Which::Safety, ms), Delay(ToRobot, Which::Safety, ms)],
        );
        cases.extend(match ms {
            0..=10 => [states, commands, both].map(|case| case.expect(Stop::Never, After::Moves)),
            // Between: a configuration may tolerate it or not.
            11..=STATE_MS => [states, commands, both].map(|case| case.expect(Stop::Free, After::Moves)),
            _ => [
                states.within_ms(STATE_MS).named(AGE_WORDS).hold_ms(LONG_MS),
                // A late command is known by its late echo, and the stop for it is late, too.
                commands.within_ms(ECHO_MS + ms).hold_ms(LONG_MS + ms),
                both.within_ms(ECHO_MS + ms).hold_ms(LONG_MS + ms),
            ],
        });
    }
    // 250 ms a second: the limit of the state's age is passed after 160 ms, with the filter's
    // tolerance after 400.
    cases.push(
        link("states-creep-to-500-ms", vec![Creep(ToCell, 250, 500)])
            .within_ms(1000 * CLOCK_MS / 250)
            .named(AGE_WORDS)
            .hold_ms(2400),
    );
    cases.push(
        link("commands-creep-to-500-ms", vec![Creep(ToRobot, 250, 500)])
            .within_ms(1000 * 2 * ECHO_MS / 250 + 500)
            .hold_ms(2400),
    );
    let from_start = |name: &str, faults| {
        Case::new(CaseKind::Command, name, Plant::WireFromStart(faults)).expect(Stop::FromStart, After::Free)
    };
    cases.push(from_start("500-ms-late-from-the-start", vec![Delay(ToRobot, Which::Safety, 500)]));
    cases.push(from_start("lost-from-the-start", vec![Drop(ToRobot, Which::Safety, 1)]));
    cases.push(from_start("heartbeat-unheard-from-the-start", vec![Freeze(ToCell, "input_int_register_24")]));
    cases.push(from_start("states-500-ms-late-from-the-start", vec![Delay(ToCell, Which::Safety, 500)]));
    cases
}

fn damage() -> Vec<Case> {
    let flips: [(&str, Direction, usize, u8); 6] = [
        ("size-of-states", ToCell, 0, 0x80),
        ("type-of-states", ToCell, 2, 0x01),
        ("recipe-of-states", ToCell, 3, 0x04),
        ("size-of-commands", ToRobot, 1, 0x02),
        ("type-of-commands", ToRobot, 2, 0x20),
        ("recipe-of-commands", ToRobot, 3, 0x40),
    ];
    let mut cases: Vec<Case> = flips
        .into_iter()
        .map(|(name, direction, byte, mask)| {
            link(format!("bit-flipped-in-the-{name}"), vec![Flip(direction, byte, mask)])
                .within_ms(SILENCE_MS)
                .fails()
        })
        .collect();
    // The highest bit of the exponent of the controller's time, of an angle, of the commanded
    // fraction.
    cases.push(link("bit-flipped-in-the-controller-time", vec![Flip(ToCell, 4, 0x40)]).within_ms(CLOCK_MS));
    cases.push(
        link("bit-flipped-in-the-commanded-speed", vec![Flip(ToRobot, 8, 0x40)])
            .expect(Stop::Free, After::Moves),
    );
    for (name, direction) in [("states", ToCell), ("commands", ToRobot)] {
        let twice = |times| link(format!("{name}-{times}-times"), vec![Duplicate(direction, times)]);
        cases.push(twice(2).expect(Stop::Free, After::Moves));
        cases.push(twice(20).expect(Stop::Free, After::Moves));
        cases.push(
            link(format!("{name}-in-swapped-pairs"), vec![Swap(direction)]).expect(Stop::Free, After::Moves),
        );
        cases.push(
            link(format!("garbage-among-{name}"), vec![Garbage(direction)])
                .within_ms(SILENCE_MS)
                .hold_ms(150)
                .fails(),
        );
    }
    cases.push(
        link("same-state-at-500-hz", vec![Replay(ToCell)]).within_ms(CLOCK_MS).hold_ms(LONG_MS).named(&[
            "clock",
            "time",
            "stale",
            "old",
            "age",
            "echo",
            "heartbeat",
            "frozen",
            "acknowledg",
            "repeats itself",
        ]),
    );
    // No stop gets through. The echo stays away for 40 ms, that lasts for 100 ms, and the
    // dashboard's stop takes a round trip.
    cases.push(
        link("same-command-at-500-hz", vec![Replay(ToRobot)]).within_ms(40 + 100 + 20).hold_ms(LONG_MS),
    );
    cases
}

/// The robot does not do what it is instructed. The stop that it is sent comes from a person in the
/// recording.
fn commands() -> Vec<Case> {
    let slider = "speed_slider_fraction";
    let disobeys = |name: &str, faults| {
        Case::new(CaseKind::Command, name, Plant::Recording(Spoil::Person, faults))
            .within_ms(DISOBEDIENCE_MS)
            .named(OBEY_WORDS)
            .hold_ms(1300)
            .is_near()
            .fails()
    };
    let beat = "input_int_register_24";
    vec![
        disobeys("stop-turned-into-full-speed", vec![Map(ToRobot, slider, 0.0, 1.0)]),
        disobeys("stop-turned-into-half-speed", vec![Map(ToRobot, slider, 0.0, 0.5)]),
        disobeys("slider-always-at-1", vec![Set(ToRobot, slider, Value::Number(1.0))]),
        disobeys("slider-mask-cleared", vec![Set(ToRobot, "speed_slider_mask", Value::Number(0.0))]),
        disobeys("slider-frozen", vec![Freeze(ToRobot, slider)]),
        disobeys("slider-is-no-number", vec![Set(ToRobot, slider, Value::Number(f64::NAN))]),
        // The controller says that it obeys, the tool says that it moves.
        disobeys(
            "stop-turned-into-full-speed-and-the-fraction-lies",
            vec![Map(ToRobot, slider, 0.0, 1.0), Set(ToCell, "target_speed_fraction", Value::Number(0.0))],
        ),
        command("heartbeat-frozen", vec![Freeze(ToRobot, beat)]).within_ms(ECHO_MS).named(BEAT_WORDS),
        command("heartbeat-echo-frozen", vec![Freeze(ToCell, beat)])
            .within_ms(ECHO_MS)
            .named(BEAT_WORDS)
            .hold_ms(LONG_MS),
        command("heartbeat-echo-is-another", vec![Add(ToCell, beat, 5_000.0)])
            .within_ms(ECHO_MS)
            .named(BEAT_WORDS)
            .hold_ms(LONG_MS),
        command("heartbeat-echo-runs-behind", vec![Add(ToCell, beat, -300.0)])
            .within_ms(ECHO_MS)
            .named(BEAT_WORDS)
            .hold_ms(LONG_MS),
        command("outputs-cleared", vec![Set(ToRobot, "standard_digital_output_mask", Value::Number(0.0))])
            .expect(Stop::Free, After::Moves),
    ]
}
