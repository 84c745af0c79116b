use super::*;

#[test]
fn states_read_like_the_kernel_prints_them() {
    for (raw, letter) in [
        (0, 'R'),
        (0x100, 'R'),
        (1, 'S'),
        (2, 'D'),
        (4, 'T'),
        (8, 't'),
        (0x10, 'X'),
        (0x20, 'X'),
        (0x40, 'I'),
        (0x80, 'I'),
        (0x82, 'I'),
    ] {
        assert_eq!(State::from_raw(raw).letter(), letter, "{raw:#x}");
    }
}

#[test]
fn priorities_are_reported_as_users_set_them() {
    for (prio, text) in
        [(-1, "deadline"), (0, "rt 99"), (19, "rt 80"), (98, "rt 1"), (120, "nice 0"), (101, "nice -19")]
    {
        assert_eq!(Priority(prio).to_string(), text);
    }
}

#[test]
fn an_event_is_small() {
    assert_eq!(size_of::<Event>(), 48);
}

#[test]
fn only_whole_spans_cover() {
    let span = |from_ns, to_ns| Span { from_ns, to_ns };
    let trace = Trace { spans: vec![span(10, 20), span(30, 40)], ..Trace::default() };
    for (from_ns, to_ns, covered) in
        [(10, 20, true), (30, 35, true), (9, 12, false), (15, 32, false), (22, 25, false), (40, 41, false)]
    {
        assert_eq!(trace.covers(from_ns, to_ns), covered, "{from_ns} to {to_ns}");
    }
}

#[test]
fn windows_are_found() {
    let at = |time_ns| Event { time_ns, tid: 0, cpu: 0, kind: Kind::Lost { count: 1 } };
    let mut trace = Trace { events: vec![at(30), at(10), at(20), at(20)], ..Trace::default() };
    trace.sort();
    assert_eq!(trace.between(11, 20).len(), 2);
    assert_eq!(trace.between(31, 5).len(), 0);
}
