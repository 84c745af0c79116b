//! The ring's protocol, writer against reader, in memory of this process; and the reader against
//! what no writer has written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use super::decode::{Content, Decoded};
use super::reader::{Reader, RingError, read_image};
use super::ring::{
    FLAG_CPU, FLAG_SET, MAX_TEXT, MIN_WORDS, PAGE, RingHeader, RingView, Writer, code, text_words,
};
use crate::event::Kind;

/// A ring in memory of its own.
struct Memory {
    words: Vec<AtomicU64>,
    ring: usize,
}

impl Memory {
    fn new(ring: usize) -> Self {
        Self { words: (0..PAGE / 8 + ring).map(|_| AtomicU64::new(0)).collect(), ring }
    }

    fn view(&self) -> RingView<'_> {
        // SAFETY: header and words lie in `words`, which is aligned to 8 bytes, lives as long as
        // `self`, and is used through atomics alone.
        unsafe { RingView::at(self.words.as_ptr().cast_mut().cast(), self.ring) }
    }
}

fn end(writer: &mut Writer<'_>, at_ns: u64, callback: u64) -> bool {
    let Some(mut record) = writer.begin(4, at_ns) else { return false };
    record.flag(FLAG_CPU);
    record.word(at_ns / 2);
    record.word(callback);
    record.end(code::CALLBACK_END);
    true
}

fn node(writer: &mut Writer<'_>, at_ns: u64, name: &[u8], namespace: &[u8]) -> bool {
    let words = 3 + text_words(name) + text_words(namespace);
    let Some(mut record) = writer.begin(words, at_ns) else { return false };
    record.word(at_ns);
    record.text(name);
    record.text(namespace);
    record.end(code::NODE);
    true
}

fn read(reader: &mut Reader, ring: RingView<'_>) -> Vec<Decoded> {
    let mut records = Vec::new();
    reader.read(ring, |record| records.push(record)).unwrap();
    records
}

fn lost(record: &Decoded) -> Option<u64> {
    match record.content {
        Content::Event(Kind::Lost { count }) => Some(count),
        _ => None,
    }
}

#[test]
fn a_full_ring_loses_counts_and_says_so_once_there_is_room() {
    let memory = Memory::new(MIN_WORDS);
    let (mut writer, mut reader) = (Writer::new(memory.view()), Reader::default());
    let written = (0..5000).filter(|&number| end(&mut writer, number, number)).count();
    assert_eq!(written, MIN_WORDS / 4);
    let records = read(&mut reader, memory.view());
    assert_eq!(records.len(), written);
    assert!(end(&mut writer, 6000, 1));
    let records = read(&mut reader, memory.view());
    assert_eq!(lost(&records[0]), Some(5000 - written as u64));
    assert_eq!(records.len(), 2);
    assert_eq!(memory.view().header.lost.load(Ordering::Relaxed), 5000 - written as u64);
}

#[test]
fn losses_that_a_writer_could_not_say_are_said_by_the_next_before_its_own() {
    let memory = Memory::new(MIN_WORDS);
    let (mut writer, mut reader) = (Writer::new(memory.view()), Reader::default());
    while end(&mut writer, 1, 1) {}
    writer.leave();
    read(&mut reader, memory.view());
    let mut next = Writer::new(memory.view());
    assert!(end(&mut next, 2, 2));
    let records = read(&mut reader, memory.view());
    assert_eq!((lost(&records[0]), records.len()), (Some(1), 2));
}

#[test]
fn every_record_arrives_whole_or_is_counted_while_both_run() {
    let rounds: u64 = if cfg!(miri) { 400 } else { 300_000 };
    let memory = Memory::new(MIN_WORDS);
    let done = AtomicBool::new(false);
    let (mut reader, mut seen, mut reported, mut next) = (Reader::default(), 0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = Writer::new(memory.view());
            let text = [b'x'; 2000];
            for number in 0..rounds {
                // Lengths that never fit the ring evenly, so that padding falls everywhere.
                let length = (number * 37 % 1300) as usize;
                if number % 3 == 0 {
                    node(&mut writer, number, &text[..length], b"/");
                } else {
                    end(&mut writer, number, !number);
                }
            }
            done.store(true, Ordering::Release);
        });
        loop {
            let last = done.load(Ordering::Acquire);
            for record in read(&mut reader, memory.view()) {
                if let Some(count) = lost(&record) {
                    reported += count;
                    continue;
                }
                let number = record.at_ns;
                assert!(number >= next);
                next = number + 1;
                seen += 1;
                let length = (number * 37 % 1300) as usize;
                let expected = match number % 3 {
                    0 => Kind::NodeInit {
                        node: number,
                        name: "x".repeat(length.min(MAX_TEXT)).into(),
                        namespace: "/".into(),
                    },
                    _ => Kind::CallbackEnd { callback: !number },
                };
                assert_eq!(record.content, Content::Event(expected));
                assert_eq!(record.cut, number % 3 == 0 && length > MAX_TEXT);
            }
            if last {
                break;
            }
        }
    });
    let lost = memory.view().header.lost.load(Ordering::Relaxed);
    assert_eq!(seen + lost, rounds);
    assert!(reported <= lost && seen > 0);
}

#[test]
fn the_writer_keeps_to_its_ring_whatever_the_reader_says() {
    let memory = Memory::new(MIN_WORDS);
    let mut writer = Writer::new(memory.view());
    for tail in [0, 1, u64::MAX, 1 << 63, 12345] {
        memory.view().header.tail.store(tail, Ordering::Relaxed);
        (0..3000).for_each(|number| {
            end(&mut writer, number, number);
        });
    }
    // Whatever was written lies inside: the memory has not one word more.
    assert_eq!(memory.words.len(), PAGE / 8 + MIN_WORDS);
}

#[test]
fn torn_counters_are_an_error() {
    let memory = Memory::new(MIN_WORDS);
    memory.view().header.head.store(MIN_WORDS as u64 + 1, Ordering::Relaxed);
    let error = Reader::default().read(memory.view(), |_| ()).unwrap_err();
    assert_eq!(error, RingError::Counters { waiting: MIN_WORDS as u64 + 1, words: MIN_WORDS });
}

/// A test's write: a code's words, or texts.
#[derive(Debug, Clone)]
enum Step {
    End(u64),
    Node(Vec<u8>, Vec<u8>),
    Take(u64, bool),
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = || proptest::collection::vec(any::<u8>(), 0..1500);
    let step = prop_oneof![
        4 => any::<u64>().prop_map(Step::End),
        2 => (text(), text()).prop_map(|(name, namespace)| Step::Node(name, namespace)),
        2 => (any::<u64>(), any::<bool>()).prop_map(|(source, taken)| Step::Take(source, taken)),
        1 => Just(Step::Read),
    ];
    proptest::collection::vec(step, 0..200)
}

fn shown(text: &[u8]) -> std::sync::Arc<str> {
    String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]).into()
}

proptest! {
    #[test]
    fn what_is_written_is_read(steps in steps()) {
        let memory = Memory::new(MIN_WORDS);
        let (mut writer, mut reader) = (Writer::new(memory.view()), Reader::default());
        let (mut expected, mut found, mut failed) = (Vec::new(), Vec::new(), 0u64);
        for (at_ns, step) in (0..).zip(&steps) {
            let (fits, kind) = match step {
                Step::Read => {
                    found.extend(read(&mut reader, memory.view()));
                    continue;
                }
                Step::End(callback) => (end(&mut writer, at_ns, *callback), Kind::CallbackEnd { callback: *callback }),
                Step::Node(name, namespace) => (
                    node(&mut writer, at_ns, name, namespace),
                    Kind::NodeInit { node: at_ns, name: shown(name), namespace: shown(namespace) },
                ),
                Step::Take(source, taken) => {
                    let record = writer.begin(5, at_ns);
                    let fits = record.is_some();
                    if let Some(mut record) = record {
                        record.word(1);
                        record.word(2);
                        record.word(*source);
                        if *taken {
                            record.flag(FLAG_SET);
                        }
                        record.end(code::RMW_TAKE);
                    }
                    let source_ns = source.cast_signed();
                    (fits, Kind::RmwTake { rmw_subscription: 1, message: 2, source_ns, taken: *taken })
                }
            };
            match fits {
                true => expected.push(kind),
                false => failed += 1,
            }
        }
        found.extend(read(&mut reader, memory.view()));
        prop_assert!(found.is_sorted_by_key(|record| record.at_ns));
        let reported: u64 = found.iter().filter_map(lost).sum();
        let kinds = found.into_iter().filter(|record| lost(record).is_none()).map(|record| match record.content {
            Content::Event(kind) => kind,
            other => panic!("{other:?}"),
        });
        prop_assert_eq!(kinds.collect::<Vec<_>>(), expected);
        prop_assert_eq!(memory.view().header.lost.load(Ordering::Relaxed), failed);
        prop_assert!(reported <= failed);
    }

    #[test]
    fn garbage_is_an_error_and_never_more(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
        let _ = read_image(&bytes);
    }

    /// A whole ring with a few words changed: what is read is at most what was written, and the
    /// rest an error.
    #[test]
    fn a_changed_word_is_an_error_or_another_value(changes in proptest::collection::vec((0usize..400, any::<u64>()), 1..4)) {
        let memory = Memory::new(MIN_WORDS);
        let mut writer = Writer::new(memory.view());
        (0..40).for_each(|number| {
            node(&mut writer, number, b"name", b"/space");
        });
        for (place, value) in changes {
            memory.view().words[place].store(value, Ordering::Relaxed);
        }
        let mut count = 0;
        let result = Reader::default().read(memory.view(), |_| count += 1);
        prop_assert!(result.is_ok() == (count == 40) || count < 40);
    }
}

#[test]
fn headers_are_where_both_sides_expect_them() {
    assert_eq!(std::mem::offset_of!(RingHeader, head), 128);
    assert_eq!(std::mem::offset_of!(RingHeader, tail), 256);
}
