use super::*;
use crate::Detections;
use proptest::prelude::*;

use crate::process::frame_judge::StageSpans;
use crate::process::wire::Outcome;

const WIDTH: u32 = 16;
const HEIGHT: u32 = 8;

fn ends(generation: u32) -> (Asker, Answerer) {
    let memory = Arc::new(Memory::create(aligned(Channel::bytes(WIDTH, HEIGHT))).unwrap());
    let channel = Channel::at(&memory, 0, WIDTH, HEIGHT).unwrap();
    (Asker::new(channel.again()), Answerer::new(channel, generation))
}

/// A frame whose every pixel shows its number.
fn frame(sequence: u64) -> Frame {
    let mut frame = Frame::new(WIDTH, HEIGHT);
    frame.sequence = sequence;
    frame.rgb.fill(sequence as u8);
    frame.depth_mm.fill(sequence as u16);
    frame
}

fn question(frame: &Frame) -> Question {
    Question {
        ticket: 0,
        deadline_ns: u64::MAX,
        start_ns: 0,
        sequence: frame.sequence,
        capture_ns: 0,
        arrival_ns: 0,
        pose: None,
    }
}

fn is_whole(taken: &Taken<'_>) -> bool {
    let frame = taken.seen().view;
    frame.rgb.iter().all(|&v| v == frame.sequence as u8)
        && frame.depth_mm.iter().all(|&v| v == frame.sequence as u16)
}

/// Takes a frame, looks at it, gives it back: what was asked, and whether the frame was whole.
fn take(answerer: &Answerer) -> Option<(Question, bool)> {
    answerer.take().map(|taken| (taken.question, is_whole(&taken)))
}

fn reply(question: &Question) -> Answer {
    let mut detections = Detections::default();
    detections.frame_sequence = question.sequence;
    Answer::new(question.ticket, 0, 0, Ok(StageSpans::default()), &detections)
}

#[test]
fn a_memory_too_small_is_refused() {
    let memory = Arc::new(Memory::create(Channel::bytes(WIDTH, HEIGHT) - 64).unwrap());
    assert!(Channel::at(&memory, 0, WIDTH, HEIGHT).is_none());
    assert!(Channel::at(&memory, usize::MAX - 127, WIDTH, HEIGHT).is_none());
}

#[test]
fn frames_of_another_size_are_not_posted() {
    let (mut asker, _) = ends(1);
    let other = Frame::new(WIDTH + 1, HEIGHT);
    assert_eq!(asker.post(1, &other, &mut question(&other)), None);
}

#[test]
fn the_answer_of_a_predecessor_that_died_while_writing_is_never_read() {
    let (mut asker, answerer) = ends(1);
    let first = frame(1);
    let asked = asker.post(1, &first, &mut question(&first)).unwrap();
    let (taken, _) = take(&answerer).unwrap();
    answerer.answer(&reply(&taken));
    // As a writer that was killed after its first store.
    answerer.channel.control().version.fetch_add(1, Ordering::SeqCst);
    assert!(matches!(asker.wait(asked, 0, || true, |_, _| ()), Waited::TimeUp));

    let heir = Answerer::new(answerer.channel.again(), 2);
    let second = frame(2);
    let asked = asker.post(2, &second, &mut question(&second)).unwrap();
    let (taken, _) = take(&heir).unwrap();
    heir.answer(&reply(&taken));
    assert!(matches!(asker.wait(asked, 0, || true, |_, _| ()), Waited::Answer(a) if a.ticket == asked));
}

/// Possible steps, in any order.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The cell posts its next frame.
    Post,
    /// The cell looks for the answer to its newest question.
    Look,
    /// The worker takes a frame.
    Take,
    /// The worker answers what it took, if anything.
    Answer,
    /// The worker dies wherever it is; a new generation begins.
    Restart,
    /// The dead predecessor's last store comes to light: it answers what it had taken.
    Ghost,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Post),
        3 => Just(Step::Look),
        4 => Just(Step::Take),
        4 => Just(Step::Answer),
        1 => Just(Step::Restart),
        1 => Just(Step::Ghost),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    /// In any interleaving: what the worker takes is whole and newer than what it took before; an
    /// answer that counts is the one to the newest question, of the living generation; and there is
    /// always room for the next question.
    #[test]
    fn only_the_answer_to_the_newest_question_counts(steps in proptest::collection::vec(step(), 1..200)) {
        let (mut asker, answerer) = ends(1);
        // Leaked, so that a frame can be held across steps and a dead worker can leave it held.
        let mut answerer: &'static Answerer = Box::leak(Box::new(answerer));
        let mut generation = 1;
        let mut sequence = 0;
        let mut newest: Option<u64> = None;
        let mut working: Option<Taken<'static>> = None;
        let mut ghost: Option<Question> = None;
        let mut last_taken = 0;
        for step in steps {
            match step {
                Step::Post => {
                    sequence += 1;
                    let posted = frame(sequence);
                    newest = asker.post(generation, &posted, &mut question(&posted));
                    prop_assert!(newest.is_some(), "no room");
                    prop_assert!(working.as_ref().is_none_or(is_whole), "the held frame was overwritten");
                }
                Step::Look => {
                    let Some(ticket) = newest else { continue };
                    match asker.wait(ticket, 0, || true, |late, _| assert_ne!(late, ticket)) {
                        Waited::Answer(answer) => {
                            prop_assert_eq!(answer.ticket, ticket);
                            prop_assert_eq!(answer.detections.frame_sequence, sequence);
                            prop_assert_eq!(answer.outcome, Outcome::Judged);
                            prop_assert_eq!(ticket >> 32, u64::from(generation));
                            newest = None;
                        }
                        Waited::TimeUp => {}
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Take => {
                    if working.is_none() && let Some(taken) = answerer.take() {
                        prop_assert!(is_whole(&taken), "torn frame");
                        prop_assert!(taken.question.sequence > last_taken, "an older frame came back");
                        prop_assert_eq!(taken.question.ticket >> 32, u64::from(generation));
                        last_taken = taken.question.sequence;
                        working = Some(taken);
                    }
                }
                Step::Answer => {
                    if let Some(taken) = working.take() {
                        prop_assert!(is_whole(&taken), "overwritten while it was held");
                        let question = taken.question;
                        drop(taken);
                        answerer.answer(&reply(&question));
                    }
                }
                Step::Restart => {
                    ghost = working.as_ref().map(|taken| taken.question);
                    std::mem::forget(working.take());
                    generation += 1;
                    answerer = Box::leak(Box::new(Answerer::new(answerer.channel.again(), generation)));
                    newest = None;
                }
                Step::Ghost => {
                    if let Some(question) = ghost.take() {
                        answerer.answer(&reply(&question));
                    }
                }
            }
        }
        // Whatever happened, the next question is answered.
        let posted = frame(sequence + 1);
        let ticket = asker.post(generation, &posted, &mut question(&posted));
        prop_assert!(ticket.is_some());
        drop(working);
        let taken = answerer.take();
        prop_assert!(taken.is_some_and(|t| Some(t.question.ticket) == ticket && is_whole(&t)));
    }
}

#[test]
fn two_threads_never_see_a_torn_frame_or_lose_a_wake_up() {
    const FRAMES: u64 = if cfg!(miri) { 50 } else { 30_000 };
    let (mut asker, answerer) = ends(1);
    let worker = std::thread::spawn(move || {
        let mut last = 0;
        while last < FRAMES {
            // No deadline: a lost wake-up would hang the test.
            let Some(taken) = answerer.next(u64::MAX) else { continue };
            let question = taken.question;
            assert!(is_whole(&taken), "torn frame {}", question.sequence);
            assert!(question.sequence > last);
            last = question.sequence;
            drop(taken);
            answerer.answer(&reply(&question));
        }
    });
    let mut abandoned = 0;
    let mut late = 0;
    for sequence in 1..=FRAMES {
        let posted = frame(sequence);
        let asked = asker.post(1, &posted, &mut question(&posted)).expect("room");
        // Every third question is given up at once, so that frames are replaced and answers come
        // late.
        let deadline_ns = if sequence % 3 == 0 && sequence < FRAMES { 0 } else { u64::MAX };
        match asker.wait(asked, deadline_ns, || true, |_, answer| late += u32::from(answer.is_some())) {
            Waited::Answer(answer) => {
                assert_eq!((answer.ticket, answer.detections.frame_sequence), (asked, sequence));
            }
            Waited::TimeUp => abandoned += 1,
            other => panic!("{other:?}"),
        }
    }
    worker.join().unwrap();
    println!("{abandoned} given up, {late} answered late");
    assert!(abandoned > 0);
}
