use super::*;
use proptest::prelude::*;

fn places(devices: usize, inputs: usize, outputs: usize) -> Vec<ImagePlace> {
    (0..devices)
        .map(|at| ImagePlace {
            inputs: at * inputs..(at + 1) * inputs,
            outputs: devices * inputs + at * outputs..devices * inputs + (at + 1) * outputs,
        })
        .collect()
}

fn sent(cyclic: &mut Cyclic, image: &[u8], one: Option<u16>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    cyclic.launch(0, image, true, one, |frame| frames.push(frame.to_vec()));
    frames
}

#[test]
fn one_frame_a_cycle_where_it_fits() {
    for commands in [ProcessCommands::Lrw, ProcessCommands::LrdLwr] {
        let mut cyclic = Cyclic::new(cut(&places(59, 6, 6), 708, commands));
        let frames = sent(&mut cyclic, &[7; 708], Some(0x1003));
        assert_eq!((frames.len(), cyclic.waited_for), (1, 1), "{commands:?}");
        assert_eq!(cyclic.expected(), if commands == ProcessCommands::Lrw { 177 } else { 118 });
        let datagrams = frame::datagrams(&frames[0]).count();
        assert_eq!(datagrams, if commands == ProcessCommands::Lrw { 4 } else { 5 });
        let mut inputs = 0;
        assert_eq!(cyclic.take(&frames[0], |_, data| inputs += data.len()), Came::Current);
        assert_eq!((cyclic.missing(), cyclic.waited_for), (0, 0));
        assert_eq!(inputs, if commands == ProcessCommands::Lrw { 708 } else { 354 });
    }
}

#[test]
fn a_full_frame_of_process_data_leaves_the_status_to_another() {
    let image = vec![1; 2 * MAX_PIECE];
    let places = places(2, MAX_PIECE / 2, MAX_PIECE / 2);
    let mut cyclic = Cyclic::new(cut(&places, image.len(), ProcessCommands::Lrw));
    let frames = sent(&mut cyclic, &image, None);
    assert_eq!((frames.len(), cyclic.under_way, cyclic.waited_for), (3, 3, 2));
    assert!(frames.iter().all(|frame| frame.len() <= frame::MAX_FRAME));
    for frame in frames.iter().rev() {
        assert_eq!(cyclic.take(frame, |_, _| {}), Came::Current);
    }
    assert_eq!((cyclic.missing(), cyclic.under_way, cyclic.waited_for), (0, 0, 0));
    // For a second time.
    assert_eq!(cyclic.take(&frames[0], |_, _| panic!("taken twice")), Came::Twice);
}

#[test]
fn answers_report_their_cycle() {
    let mut cyclic = Cyclic::new(cut(&places(1, 4, 4), 8, ProcessCommands::Lrw));
    let old = sent(&mut cyclic, &[0; 8], None);
    let mut new = Vec::new();
    cyclic.launch(0, &[0; 8], false, None, |frame| new.push(frame.to_vec()));
    let mut inputs = 0;
    assert_eq!(cyclic.take(&old[0], |_, data| inputs += data.len()), Came::Late(1));
    assert_eq!((inputs, cyclic.behind(), cyclic.missing()), (8, 1, 1));
    assert_eq!(cyclic.take(&new[0], |_, _| {}), Came::Current);
    assert_eq!((cyclic.behind(), cyclic.missing()), (0, 0));
    assert_eq!(cyclic.take(&old[0], |_, _| panic!("taken twice")), Came::Twice);
    // A frame that arrives after a newer answer is counted but not used.
    let mut newer = Vec::new();
    for _ in 0..2 {
        cyclic.launch(0, &[0; 8], false, None, |frame| newer.push(frame.to_vec()));
    }
    assert_eq!(cyclic.take(&newer[1], |_, _| {}), Came::Current);
    assert_eq!(cyclic.take(&newer[0], |_, _| panic!("older than what is there")), Came::Late(1));
    assert_eq!(cyclic.take(&new[0], |_, _| panic!("taken twice")), Came::Twice);
    assert!(!is_cyclic(&[0x10; 60]) && is_cyclic(&new[0]));
    new[0][6] |= 2;
    assert!(is_cyclic(&new[0]));
}

#[test]
fn an_answer_that_is_256_cycles_late_is_not_new() {
    let mut cyclic = Cyclic::new(cut(&places(1, 4, 4), 8, ProcessCommands::Lrw));
    let old = sent(&mut cyclic, &[0; 8], None);
    for beyond in [256, 512, 65_536] {
        // The frame's own cycle is forgotten.
        while cyclic.cycle < 1 + beyond {
            cyclic.launch(0, &[0; 8], false, None, |_| {});
        }
        assert_eq!(cyclic.take(&old[0], |_, _| panic!("of {beyond} cycles ago")), Came::AfterLost);
        assert_eq!(cyclic.missing(), 1);
    }
    // Frames that do not say which cycle they are of, or contradict themselves.
    let now = sent(&mut cyclic, &[0; 8], None).remove(0);
    let mark_at = now.windows(4).rposition(|four| four == (cyclic.cycle as u32).to_le_bytes()).unwrap();
    for (at, flip) in [(mark_at, 1), (mark_at - 10, command::LRW), (FRAME_HEADERS_INDEX, 1)] {
        let mut changed = now.clone();
        changed[at] ^= flip;
        assert_eq!(cyclic.take(&changed, |_, _| panic!("taken")), Came::Broken);
    }
    assert_eq!(cyclic.take(&now, |_, _| {}), Came::Current);
}

/// Offset of the first datagram's index.
const FRAME_HEADERS_INDEX: usize = frame::FRAME_HEADERS + 1;

#[test]
fn a_wrong_counter_is_reported_once() {
    let places = places(2, MAX_PIECE / 2, MAX_PIECE / 2);
    let mut cyclic = Cyclic::new(cut(&places, 2 * MAX_PIECE, ProcessCommands::Lrw));
    let image = vec![0; 2 * MAX_PIECE];
    let answer = |mut frame: Vec<u8>, counter: u16| {
        let at = frame::FRAME_HEADERS + 10 + MAX_PIECE;
        frame[at..at + 2].copy_from_slice(&counter.to_le_bytes());
        frame
    };
    let right: Vec<u16> = cyclic.pieces.iter().map(|piece| piece.expected).collect();
    // Both answer, the second wrongly; then the second is missing; then it answers rightly.
    for (second, reported, stands) in
        [(Some(0), true, true), (None, false, true), (Some(right[1]), false, false)]
    {
        let frames = sent(&mut cyclic, &image, None);
        let _ = cyclic.take(&answer(frames[0].clone(), right[0]), |_, _| {});
        if let Some(counter) = second {
            let _ = cyclic.take(&answer(frames[1].clone(), counter), |_, _| {});
        }
        assert_eq!((cyclic.counter_wrong(), cyclic.stands_wrong()), (reported, stands), "{second:?}");
    }
}

#[test]
fn a_late_wrong_counter_is_reported_though_a_right_one_follows() {
    let mut cyclic = Cyclic::new(cut(&places(1, 4, 4), 8, ProcessCommands::Lrw));
    let answer = |mut frame: Vec<u8>, counter: u16| {
        let at = frame::FRAME_HEADERS + 10 + 8;
        frame[at..at + 2].copy_from_slice(&counter.to_le_bytes());
        frame
    };
    let right = cyclic.expected();
    let old = sent(&mut cyclic, &[0; 8], None).remove(0);
    let new = sent(&mut cyclic, &[0; 8], None).remove(0);
    assert_eq!(cyclic.take(&answer(old, 0), |_, _| {}), Came::Late(1));
    assert_eq!(cyclic.take(&answer(new, right), |_, _| {}), Came::Current);
    assert_eq!((cyclic.counter_wrong(), cyclic.stands_wrong()), (true, false));
    let next = sent(&mut cyclic, &[0; 8], None).remove(0);
    assert_eq!(cyclic.take(&answer(next, right), |_, _| {}), Came::Current);
    assert!(!cyclic.counter_wrong());
}

proptest! {
    #[test]
    fn no_answer_is_taken_beyond_its_end(cut_at in 0_usize..80, flip in 0_usize..80, bit in 0_u8..8) {
        let mut cyclic = Cyclic::new(cut(&places(3, 6, 6), 36, ProcessCommands::LrdLwr));
        let frames = sent(&mut cyclic, &[0; 36], Some(1));
        let mut frame = frames[0].clone();
        if let Some(byte) = frame.get_mut(flip) {
            *byte ^= 1 << bit;
        }
        frame.truncate(cut_at.max(20));
        let _ = cyclic.take(&frame, |range, data| assert_eq!(range.len(), data.len()));
    }
}
