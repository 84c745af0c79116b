//! Kernel stacks at the wake-ups of traced threads: a wake-up by an interrupt shows what that
//! interrupt interrupted, and so where in the kernel interrupts or preemption had been off.
//!
//! They come from events of their own, filtered to the traced threads, and go into small rings of
//! their own: unwinding costs a microsecond or two, which nobody else's wake-ups must pay.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use takt_rt::perf_ring::PerfRing;

use super::open;
use crate::event::{Kind, Trace, WakeStack};
use crate::format::Decoder;

/// Ring of one CPU: a thousand stacks, a second of a loop of 1 kHz.
const RING_BYTES: usize = 256 << 10;
/// Wake-ups whose stack is remembered: a quarter of an hour of a loop of 1 kHz.
const MAX_SAMPLES: usize = 1 << 20;
/// Different stacks that are kept: few hundred are usual.
const MAX_STACKS: usize = 20_000;
/// Frames of one stack: beyond the interrupt's own dozen, enough to report the system call.
const MAX_FRAMES: u16 = 48;

/// The open event of one CPU.
#[derive(Debug)]
struct Source {
    cpu: u16,
    ring: PerfRing,
    _event: OwnedFd,
}

/// All stacks so far.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// The number of `sched:sched_waking`; 0 where the kernel does not give it out.
    id: u16,
    sources: Vec<Source>,
    known: HashMap<Box<[u64]>, u32>,
    samples: VecDeque<WakeStack>,
    /// The interrupted functions of each stack that was handed out.
    words: HashMap<u32, Vec<String>>,
    /// Read when they are needed first: megabytes. Some(None) where the kernel hides them.
    symbols: Option<Option<Symbols>>,
}

impl Stacks {
    pub(super) fn new(id: u16) -> Self {
        Self { id, ..Self::default() }
    }

    /// The kernel's symbols stay: they are megabytes. Stacks go, of which no more than
    /// [`MAX_STACKS`] are kept.
    pub(super) fn enable(&mut self, id: u16) {
        self.id = id;
        self.known.clear();
        self.words.clear();
        self.samples.clear();
    }

    /// From here on those wake-ups are recorded that `filter` (on the woken thread, `pid`) lets
    /// through.
    pub(super) fn filter(&mut self, cpus: &[u16], filter: &CString) -> io::Result<()> {
        if self.id == 0 {
            return Ok(());
        }
        let opened: io::Result<Vec<Source>> = cpus.iter().map(|&cpu| self.open(cpu, filter)).collect();
        // The new ones run already: a wake-up in between is in both, and found once.
        self.sources = opened?;
        Ok(())
    }

    fn open(&self, cpu: u16, filter: &CString) -> io::Result<Source> {
        let mut attr = open::attributes(self.id, RING_BYTES);
        attr.sample_type = u64::from(b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_CALLCHAIN | b::PERF_SAMPLE_RAW);
        attr.set_exclude_callchain_user(1);
        attr.sample_max_stack = MAX_FRAMES;
        let event = open::open(&mut attr, cpu)?;
        let ring = PerfRing::map(event.as_fd(), RING_BYTES)?;
        // SAFETY: the text is whole, and the kernel copies it; the descriptor is open.
        let refused = unsafe {
            perf::ioctls::SET_FILTER(event.as_raw_fd(), filter.as_ptr().cast_mut()) < 0
                || perf::ioctls::ENABLE(event.as_raw_fd(), 0) < 0
        };
        if refused { Err(io::Error::last_os_error()) } else { Ok(Source { cpu, ring, _event: event }) }
    }

    /// Takes what waits in the rings.
    pub(super) fn drain(&mut self, decoder: &Decoder) {
        let mut sources = std::mem::take(&mut self.sources);
        let mut data = Vec::new();
        for source in &mut sources {
            data.clear();
            source.ring.drain(&mut data);
            self.take(decoder, source.cpu, &data);
        }
        self.sources = sources;
    }

    fn take(&mut self, decoder: &Decoder, cpu: u16, data: &[u8]) {
        let mut rest = data;
        let mut nobody = Trace::default();
        while rest.len() >= 8 {
            let kind = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]);
            let size = usize::from(u16::from_ne_bytes([rest[6], rest[7]]));
            let Some(record) = rest.get(8..size) else { return };
            rest = &rest[size..];
            if kind == b::PERF_RECORD_SAMPLE
                && let Some((time_ns, frames, raw)) = sample(record)
                && let Some((_, Kind::Waking { tid, .. })) =
                    decoder.decode_named(raw, &mut nobody, &mut |_, _, _| {})
            {
                self.note(WakeStack { time_ns, cpu, tid, stack: 0 }, frames);
            }
        }
    }

    fn note(&mut self, sample: WakeStack, frames: Vec<u64>) {
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let stack = match self.known.get(frames.as_slice()) {
            Some(&stack) => stack,
            None if self.known.len() >= MAX_STACKS => return,
            None => *self.known.entry(frames.into_boxed_slice()).or_insert(next),
        };
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(WakeStack { stack, ..sample });
    }

    /// Puts the stacks since the last time into the trace, in words.
    pub(super) fn hand_out(&mut self, trace: &mut Trace) {
        if self.samples.is_empty() {
            return;
        }
        let symbols = self.symbols.get_or_insert_with(Symbols::read).as_ref();
        if symbols.is_none() {
            trace.notes.push(
                "stacks of wake-ups are addresses: /proc/kallsyms reports no symbols here (kernel.kptr_restrict, or \
                 no CAP_SYSLOG)"
                    .to_owned(),
            );
        }
        // Words are made once for each stack, and only for those of this part.
        let mut places: HashMap<u32, u32> = HashMap::new();
        let mut wanted: Vec<u32> = Vec::new();
        trace.wake_stacks = self
            .samples
            .drain(..)
            .map(|sample| {
                let next = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
                let place = *places.entry(sample.stack).or_insert_with(|| {
                    wanted.push(sample.stack);
                    next
                });
                WakeStack { stack: place, ..sample }
            })
            .collect();
        for (frames, stack) in &self.known {
            if places.contains_key(stack) && !self.words.contains_key(stack) {
                self.words.insert(*stack, interrupted(symbols, frames));
            }
        }
        trace.stacks =
            wanted.iter().map(|stack| self.words.get(stack).cloned().unwrap_or_default()).collect();
        trace.wake_stacks.sort_by_key(|sample| sample.time_ns);
    }
}

/// Time, frames and raw record of a sample of [`Stacks`].
fn sample(record: &[u8]) -> Option<(u64, Vec<u64>, &[u8])> {
    let word = |at: usize| record.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes);
    let time_ns = word(0)?;
    let count = usize::try_from(word(8)?).ok().filter(|&count| count <= usize::from(u16::MAX))?;
    // Markers (PERF_CONTEXT_KERNEL …) are no addresses.
    let frames = (0..count).map(|index| word(16 + index * 8)).collect::<Option<Vec<u64>>>()?;
    let frames = frames.into_iter().filter(|&frame| frame < u64::MAX - 4095).collect();
    let at = 16 + count * 8;
    let size = u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?) as usize;
    Some((time_ns, frames, record.get(at + 4..(at + 4).checked_add(size)?)?))
}

/// Frames named for people.
const MAX_NAMED: usize = 5;

/// Frames of the interrupted code: those below the interrupt's entry, innermost first; none if it
/// was user mode, or no interrupt. Without symbols, these are the outermost addresses.
fn interrupted(symbols: Option<&Symbols>, frames: &[u64]) -> Vec<String> {
    let Some(symbols) = symbols else {
        let reported: Vec<String> = frames.iter().map(|frame| format!("{frame:#x}")).collect();
        return reported[reported.len().saturating_sub(MAX_NAMED)..].to_vec();
    };
    let named: Vec<&str> = frames.iter().map(|&frame| symbols.name(frame)).collect();
    let entry = named.iter().position(|name| is_entry(name));
    let below = entry.map_or(&[][..], |entry| &named[entry + 1..]);
    below.iter().take(MAX_NAMED).map(|name| (*name).to_owned()).collect()
}

/// The outermost function of an interrupt: x86 (from 5.8 on and before), arm64, arm, RISC-V.
fn is_entry(name: &str) -> bool {
    name.starts_with("asm_sysvec_")
        || [
            "asm_common_interrupt",
            "apic_timer_interrupt",
            "ret_from_intr",
            "el1h_64_irq",
            "el1_irq",
            "__irq_svc",
            "handle_exception",
        ]
        .contains(&name)
}

/// The kernel's functions by address.
#[derive(Debug)]
struct Symbols {
    /// All names, one after the other.
    names: String,
    /// Address, and where its name begins; a name ends where the next one begins.
    places: Vec<(u64, u32)>,
    /// The places in the order of addresses.
    by_address: Vec<u32>,
}

impl Symbols {
    /// None where the kernel hides its addresses.
    fn read() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/kallsyms").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut names = String::new();
        let mut places = Vec::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some("t" | "T" | "w" | "W"), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).ok().filter(|&address| address > 0);
            if let (Some(address), Ok(place)) = (address, u32::try_from(names.len())) {
                places.push((address, place));
                names.push_str(name);
            }
        }
        let mut by_address: Vec<u32> = (0..u32::try_from(places.len()).ok()?).collect();
        by_address.sort_by_key(|&at| places[at as usize].0);
        (!places.is_empty()).then_some(Self { names, places, by_address })
    }

    fn name(&self, address: u64) -> &str {
        // A return address may be the first byte of the function behind: the call is before it.
        let behind = self.by_address.partition_point(|&at| self.places[at as usize].0 < address);
        let Some(&at) = behind.checked_sub(1).and_then(|last| self.by_address.get(last)) else { return "?" };
        let begin = self.places[at as usize].1 as usize;
        let end = self.places.get(at as usize + 1).map_or(self.names.len(), |next| next.1 as usize);
        self.names.get(begin..end).unwrap_or("?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 t hrtimer_wakeup
ffffffff81000200 T asm_sysvec_apic_timer_interrupt
ffffffff81000300 t _raw_spin_unlock_irqrestore
ffffffff81000400 t slow_device_write\t[slow]
ffffffff81000500 T ksys_write
ffffffff81000600 D some_data
";

    #[test]
    fn what_was_interrupted_is_below_the_entry() {
        let symbols = Symbols::parse(KALLSYMS);
        let at = |offset: u64| 0xffff_ffff_8100_0000 + offset;
        let frames = [at(0x110), at(0x210), at(0x310), at(0x410), at(0x510)];
        assert_eq!(
            interrupted(symbols.as_ref(), &frames),
            ["_raw_spin_unlock_irqrestore", "slow_device_write", "ksys_write"]
        );
        // User mode was interrupted; or no interrupt woke it.
        assert!(interrupted(symbols.as_ref(), &frames[..2]).is_empty());
        assert!(interrupted(symbols.as_ref(), &frames[3..]).is_empty());
        // A call that is the last instruction of its function returns to the next one.
        assert_eq!(symbols.as_ref().unwrap().name(at(0x500)), "slow_device_write");
        assert_eq!(symbols.as_ref().unwrap().name(1), "?");
        // Addresses that are hidden: all are zero.
        assert!(Symbols::parse("0000000000000000 T _stext\n").is_none());
        assert_eq!(interrupted(None, &[0x10, 0x20]), ["0x10", "0x20"]);
    }

    #[test]
    fn samples_of_any_bytes_are_answered() {
        let mut record = 7u64.to_ne_bytes().to_vec();
        record.extend(3u64.to_ne_bytes());
        for frame in [u64::MAX - 127, 0x10, 0x20] {
            record.extend(frame.to_ne_bytes());
        }
        record.extend(4u32.to_ne_bytes());
        record.extend([1, 2, 3, 4]);
        assert_eq!(sample(&record), Some((7, vec![0x10, 0x20], &[1, 2, 3, 4][..])));
        for length in 0..record.len() {
            assert_eq!(sample(&record[..length]), None);
        }
        record[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(sample(&record), None);
    }
}
