//! One exchange of process data per cycle, for the motion controller alone.

use std::ops::Range;

use takt_rt::ring::Producer;

use super::answer_time::AnswerTime;
use super::cache::{Publisher, Snapshot};
use super::clock::{ClockLock, ClockTotals, Phase};
use super::config::ExchangeMode;
use super::cyclic::{Came, Cyclic};
use super::event::{EventKind, LinkEvent};
use super::master::{Carried, Master};
use super::stats::{Timing, TimingWriter};

/// Place of a device's data in the process image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImagePlace {
    /// From the device.
    pub inputs: Range<usize>,
    /// To the device.
    pub outputs: Range<usize>,
}

/// Result of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchanged {
    /// Exchanges so far, from 1.
    pub cycle: u64,
    /// Whether inputs are new: all process data of the frame waited for came back.
    pub fresh: bool,
    /// Frames of process data that have not come back within 16 cycles: they count as lost from now
    /// on, until they come ([`found`](Self::found)).
    pub lost: u32,
    /// Frames of process data that came now, cycles after they should have.
    pub late: u32,
    /// Those of them that counted as lost: they were late, and are taken back.
    pub found: u32,
    /// Whether any frame of process data came, of this cycle or late.
    pub answered: bool,
    /// Cycles by which the inputs in use are older than fresh ones; 0 when they are fresh.
    pub stale: u32,
    /// Cycles in a row in which no newer inputs came, in time or late; of several frames a cycle,
    /// of the one that brought none for longest. Frames that all come late are old, and not
    /// missing.
    pub missing: u32,
    /// Phase of the cycle against the reference clock; `None` without one, or before it is known.
    pub phase: Option<Phase>,
    /// By how much the next release is to be moved so that the cycle keeps its phase to the
    /// reference clock.
    pub shift_ns: i64,
    /// Working counter of the newest answers, over all frames of process data; 0 when none came.
    pub working_counter: u16,
    /// The expected value.
    pub expected_counter: u16,
    /// Whether an answer that this exchange took reports a device that did not take part. An
    /// older one that does may still be the newest there is (`working_counter`); it has been
    /// reported before.
    pub counter_wrong: bool,
    /// Whether every device that was brought up answers and is in OP. Holds its last value when the
    /// frame was lost.
    pub all_op: bool,
    /// Devices that answered the status request last.
    pub devices: u16,
    /// Time for fetching, nanoseconds: waiting for late frames included.
    pub fetch_ns: u64,
    /// Time for sending.
    pub send_ns: u64,
    /// When the exchange began, in CLOCK_MONOTONIC: a pipelined one waits from then on for the
    /// frames of the cycle before.
    pub begun_at_ns: u64,
    /// When this cycle's frames were about to be handed to the wire, likewise.
    pub sent_at_ns: u64,
    /// When the last of them had been handed over.
    pub handed_at_ns: u64,
    /// When the answer that this exchange fetched had been taken: of the cycle before in a
    /// pipelined exchange, of this one in a waiting one. 0 when it was not there.
    pub taken_at_ns: u64,
    /// Time waited for a reader of the cache.
    pub lock_wait_ns: u64,
    /// Whether readers see this cycle: not when one held the cache for too long.
    pub published: bool,
}

impl Exchanged {
    /// Whether the working counter says that all took part.
    pub fn complete(&self) -> bool {
        self.fresh && self.working_counter == self.expected_counter
    }

    /// Whether a frame came, on time or late, that reports a device that did not take part.
    pub fn incomplete(&self) -> bool {
        self.answered && (self.counter_wrong || !self.all_op)
    }
}

/// Sums since the bring-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Totals {
    /// Exchanges.
    pub cycles: u64,
    /// Frames of process data that have not come back: not within 16 cycles, and not after them.
    pub lost_frames: u64,
    /// Frames of process data that came back after the cycle that waited for them; their data were
    /// used.
    pub late_frames: u64,
    /// Exchanges that went on with inputs of an earlier cycle.
    pub stale_cycles: u64,
    /// Exchanges whose frames came back with another working counter than expected.
    pub working_counter_errors: u64,
    /// Frames that came back and were waited for by nobody; the sum of `strays`.
    pub stray_frames: u64,
    /// Kinds of stray frames.
    pub strays: Strays,
    /// Frames that the interface refused.
    pub send_errors: u64,
    /// Cycles that found a reader in the cache.
    pub contended: u64,
    /// Cycles not published because a reader stayed in the cache.
    pub unpublished: u64,
    /// Longest wait for a reader.
    pub longest_lock_wait_ns: u64,
    /// Entries of readers put off by delayed locking.
    pub delayed_readers: u64,
    /// Events lost because nobody took them.
    pub events_lost: u64,
    /// The cycle against the reference clock.
    pub clock: ClockTotals,
}

/// Frames that came back and were waited for by nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Strays {
    /// Of our cycles, for a second time: something on the wire doubles frames.
    pub twice: u64,
    /// Of our cycles, 256 cycles after them or later: each is one of the lost ones that came after
    /// all.
    pub after_lost: u64,
    /// Of our cycles, changed on the way.
    pub broken: u64,
    /// EtherCAT frames of nobody here: answers to requests that were given up, or another master on
    /// the wire.
    pub foreign: u64,
}

impl Strays {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.twice + self.after_lost + self.broken + self.foreign
    }
}

/// A frame of process data whose answer came after the exchange that waited for it; of every 64th
/// cycle one that came in time, too, to know what is usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct LateAnswer {
    /// When its cycle's frames were about to be handed to the wire: [`Exchanged::sent_at_ns`] of
    /// that exchange.
    pub sent_ns: u64,
    /// Cycles by which it came late; 0: in time.
    pub cycles: u8,
    /// The low 32 bits of the number of its cycle, which the frame carries.
    pub cycle: u32,
    /// Address of its first process data in the logical address space, which distinguishes frames
    /// of one cycle.
    pub address: u32,
    /// When it came to this host, as far as the wire can say.
    pub arrived_ns: Option<u64>,
    /// When it was taken.
    pub taken_ns: u64,
}

/// Frames that came late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LateOnes {
    late: u32,
    /// Those that counted as lost.
    found: u32,
}

impl LateOnes {
    fn add(&mut self, other: Self) {
        self.late += other.late;
        self.found += other.found;
    }
}

/// A stamp of an answer's arrival, if it lies between sending and taking.
fn possible(arrived_ns: Option<u64>, sent_ns: u64, taken_ns: u64) -> Option<u64> {
    arrived_ns.filter(|arrived_ns| (sent_ns..=taken_ns).contains(arrived_ns))
}

/// Cycles from one whose answers in time are reported to the next: the question for the kernel's
/// stamp is a system call.
const SAMPLE_CYCLES: u64 = 64;
/// Lost exchanges in a row that make the link count as lost.
const LINK_LOST_AFTER: u32 = 3;
/// Most by which the grace for a frame grows with our own lateness: more than this, and control is
/// late itself.
const MAX_GRACE_NS: u64 = 500_000;

/// The motion controller's end of the control interface.
///
/// After the bring-up nothing here allocates, takes a lock other than the cache's, or blocks, but
/// for the wire's own system calls and the waits that the configuration allows (see
/// `tests/it/control.rs`, which counts both).
pub struct Port {
    cyclic: Cyclic,
    status_cycles: u64,
    places: Vec<ImagePlace>,
    addresses: Vec<u16>,
    mode: ExchangeMode,
    wait_ns: u64,
    answer_time: AnswerTime,
    clock: Option<ClockLock>,
    /// When this cycle was announced to come; 0 when unknown.
    announced_ns: u64,
    /// Lateness of the previous cycle's send.
    late_ns: u64,
    /// Inputs as fetched and outputs as last sent; goes to readers.
    current: Snapshot,
    /// Content of the next frame.
    next: Vec<u8>,
    input_bytes: usize,
    publisher: Publisher,
    events: Producer<LinkEvent>,
    late: Producer<LateAnswer>,
    timing: Timing,
    timing_out: TimingWriter,
    watch: Watch,
    totals: Totals,
    master: Master,
}

/// Last state reported through events.
struct Watch {
    counter_wrong: bool,
    stale: u32,
    late: bool,
    link_lost: bool,
    devices: u16,
    all_op: bool,
    errno: i32,
    send_errors: u64,
    /// AL status of each device as last reported.
    states: Vec<u8>,
    /// The device looked at, while not all are well.
    scanned: usize,
}

pub(super) struct Parts {
    pub cyclic: Cyclic,
    pub status_cycles: u32,
    pub master: Master,
    pub places: Vec<ImagePlace>,
    pub addresses: Vec<u16>,
    pub image_bytes: usize,
    pub mode: ExchangeMode,
    pub wait_ns: u64,
    pub clock: Option<ClockLock>,
    pub publisher: Publisher,
    pub events: Producer<LinkEvent>,
    pub late: Producer<LateAnswer>,
    pub timing_out: TimingWriter,
}

impl Port {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts {
            cyclic,
            status_cycles,
            master,
            places,
            addresses,
            image_bytes,
            mode,
            wait_ns,
            clock,
            publisher,
            events,
            late,
            timing_out,
        } = parts;
        let mut current = Snapshot::empty(image_bytes);
        current.expected_counter = cyclic.expected();
        let watch = Watch {
            counter_wrong: false,
            stale: 0,
            late: false,
            link_lost: false,
            devices: addresses.len() as u16,
            all_op: true,
            errno: 0,
            send_errors: 0,
            states: vec![OP; addresses.len()],
            scanned: 0,
        };
        Self {
            cyclic,
            status_cycles: status_cycles.max(1).into(),
            input_bytes: places.iter().map(|place| place.inputs.end).max().unwrap_or(0),
            places,
            addresses,
            mode,
            wait_ns,
            answer_time: AnswerTime::default(),
            clock,
            announced_ns: 0,
            late_ns: 0,
            current,
            next: vec![0; image_bytes],
            publisher,
            events,
            late,
            timing: Timing::default(),
            timing_out,
            watch,
            totals: Totals::default(),
            master,
        }
    }

    /// Place of each device's data, in the order of the wire.
    pub fn places(&self) -> &[ImagePlace] {
        &self.places
    }

    /// Unit of [`Exchanged::lost`] and [`Exchanged::late`]: the number of frames with process data
    /// in each cycle.
    pub fn frames_per_cycle(&self) -> usize {
        self.cyclic.frames()
    }

    /// Length of the process image.
    pub fn image_bytes(&self) -> usize {
        self.next.len()
    }

    /// Data from device `device` as fetched last; empty when there is no such device.
    pub fn inputs(&self, device: usize) -> &[u8] {
        self.places.get(device).and_then(|place| self.current.image.get(place.inputs.clone())).unwrap_or(&[])
    }

    /// Data for device `device`, sent with the next exchange; empty when there is no such device.
    pub fn outputs_mut(&mut self, device: usize) -> &mut [u8] {
        match self.places.get(device).cloned() {
            Some(place) => self.next.get_mut(place.outputs).unwrap_or_default(),
            None => &mut [],
        }
    }

    /// Sums so far.
    pub fn totals(&self) -> Totals {
        Totals {
            delayed_readers: self.publisher.delayed(),
            events_lost: self.events.lost(),
            clock: self.clock.as_ref().map(ClockLock::totals).unwrap_or_default(),
            ..self.totals
        }
    }

    /// Timing so far.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The cycle's one read-write request: fetches what the devices said, sends what
    /// [`outputs_mut`](Self::outputs_mut) holds, and then lets readers see it. `next_release_ns` is
    /// when the next exchange will come, as far as is known; delayed locking keeps readers away
    /// from it.
    pub fn exchange(&mut self, next_release_ns: u64) -> Exchanged {
        let begun_ns = self.master.now_ns();
        let late_ns = if self.announced_ns > 0 { begun_ns.saturating_sub(self.announced_ns) } else { 0 };
        let first = self.cyclic.cycle == 0;
        self.totals.cycles += 1;
        let (between_ns, handed_ns);
        // When the last look for answers was over; judging them comes after it.
        let mut looked_ns = 0;
        let mut result;
        match self.mode {
            ExchangeMode::Pipelined => {
                result = if first {
                    // Nothing is under way yet.
                    let (devices, all_op) = (self.watch.devices, self.watch.all_op);
                    Exchanged { devices, all_op, ..Exchanged::default() }
                } else {
                    // A delayed thread was not alone: the previous frame was sent late, or its
                    // return was delayed together with this thread.
                    let grown_ns = self.late_ns.max(late_ns).min(MAX_GRACE_NS);
                    let came = self.collect(begun_ns + self.wait_ns + grown_ns);
                    self.judge(begun_ns, came)
                };
                between_ns = self.master.now_ns();
                result.lost = self.launch(between_ns);
                handed_ns = self.master.now_ns();
            }
            ExchangeMode::Waiting => {
                between_ns = self.master.now_ns();
                let lost = self.launch(between_ns);
                handed_ns = self.master.now_ns();
                let came = self.await_answers(between_ns);
                looked_ns = self.master.now_ns();
                result = self.judge(begun_ns, came);
                result.lost = lost;
            }
        }
        self.keep_phase(between_ns, next_release_ns, &mut result);
        self.late_ns = late_ns;
        self.announced_ns = next_release_ns.saturating_add_signed(result.shift_ns);
        let now_ns = self.master.now_ns();
        result.cycle = self.totals.cycles;
        result.expected_counter = self.current.expected_counter;
        (result.fetch_ns, result.send_ns) = match self.mode {
            ExchangeMode::Pipelined => (between_ns - begun_ns, now_ns - between_ns),
            ExchangeMode::Waiting => (looked_ns - handed_ns, handed_ns - begun_ns),
        };
        let taken_ns = if self.mode == ExchangeMode::Pipelined { between_ns } else { looked_ns };
        (result.sent_at_ns, result.taken_at_ns) = (between_ns, if result.fresh { taken_ns } else { 0 });
        (result.begun_at_ns, result.handed_at_ns) = (begun_ns, handed_ns);
        let announced_ns = self.announced_ns;
        self.publish(&mut result, now_ns, announced_ns);
        self.timing.add(begun_ns, &result, &self.totals);
        self.timing_out.write(&self.timing);
        result
    }

    /// The first release at or after `from_ns` that is in phase with the reference clock; `from_ns`
    /// without one.
    pub fn align(&self, from_ns: u64) -> u64 {
        self.clock.as_ref().map_or(from_ns, |clock| clock.align(from_ns))
    }

    /// The wire's time: CLOCK_MONOTONIC, but for a simulation.
    pub fn now_ns(&self) -> u64 {
        self.master.now_ns()
    }

    /// Sleeps in the wire's time.
    pub fn sleep_until(&mut self, at_ns: u64) {
        self.master.sleep_until(at_ns);
    }

    /// Reports the lock what came of the reference clock, and asks it for the next release.
    fn keep_phase(&mut self, sent_ns: u64, next_release_ns: u64, result: &mut Exchanged) {
        let Some(clock) = &mut self.clock else { return };
        if self.announced_ns > 0 {
            clock.sent(sent_ns.saturating_sub(self.announced_ns));
        }
        if let Some(shown) = self.cyclic.shown.take() {
            clock.answer(shown.sent_ns, shown.time_ns);
        }
        if next_release_ns > 0 {
            result.shift_ns = clock.shift(next_release_ns);
        }
        result.phase = clock.phase();
        self.timing.phase(result.phase);
    }

    /// Sends all frames of a cycle.
    fn launch(&mut self, now_ns: u64) -> u32 {
        let mut one = None;
        if !self.watch.all_op && !self.addresses.is_empty() {
            self.watch.scanned = (self.watch.scanned + 1) % self.addresses.len();
            one = Some(self.addresses[self.watch.scanned]);
        }
        let all = !self.watch.all_op || self.totals.cycles.is_multiple_of(self.status_cycles);
        let master = &mut self.master;
        let lost = self.cyclic.launch(now_ns, &self.next, all, one, |frame| master.send(frame));
        self.totals.lost_frames += u64::from(lost);
        // Outputs as sent belong to what readers see.
        let outputs = self.input_bytes..self.next.len();
        self.current.image[outputs.clone()].copy_from_slice(&self.next[outputs]);
        lost
    }

    /// Takes the answers to frames that were sent at `sent_ns`, all of them or what has come within
    /// the waiting time. Nothing comes back before somebody has carried it: the first look is after
    /// a wait, and not before it.
    fn await_answers(&mut self, sent_ns: u64) -> LateOnes {
        let deadline_ns = sent_ns + self.wait_ns;
        let mut late = LateOnes::default();
        if let Some(sleep_ns) = self.answer_time.sleep_ns().filter(|&sleep_ns| sleep_ns < self.wait_ns) {
            self.master.sleep_until(sent_ns + sleep_ns);
            late = self.receive().1;
            if self.cyclic.waited_for == 0 {
                self.answer_time.was_there();
            }
        }
        if self.cyclic.waited_for > 0 {
            self.master.wait(deadline_ns);
            late.add(self.collect(deadline_ns));
            if self.cyclic.waited_for == 0 {
                self.answer_time.came(self.master.now_ns().saturating_sub(sent_ns));
            }
        } else {
            self.look_at_status();
        }
        late
    }

    /// Takes the answers of the frames under way, waiting for them until `deadline_ns`. Once
    /// everything expected has come the wire is not asked again. Returns how many came late.
    fn collect(&mut self, deadline_ns: u64) -> LateOnes {
        let mut late = LateOnes::default();
        loop {
            late.add(self.receive().1);
            if self.cyclic.waited_for == 0 || self.master.now_ns() >= deadline_ns {
                break;
            }
            self.master.wait(deadline_ns);
        }
        self.look_at_status();
        late
    }

    /// Reads the devices' states from the arrived frames.
    fn look_at_status(&mut self) {
        if let Some((devices, states)) = self.cyclic.status {
            self.status(devices, states);
        }
        if let Some((answered, state, code)) = self.cyclic.device {
            let (state, code) = if answered { (state, code) } else { (0, 0) };
            self.device_state(self.watch.scanned, state, code);
        }
    }

    /// Takes what is there of answers; whether anything was, and how many frames of process data
    /// came late.
    pub(super) fn receive(&mut self) -> (bool, LateOnes) {
        let Self { cyclic, current, next, totals, input_bytes, master, late: late_answers, .. } = self;
        let mut late = LateOnes::default();
        let came = {
            master.receive(|frame, times| {
                let came = cyclic.take(frame, |range, data| {
                    // Inputs lie first. Those of devices that did not take part come back as they
                    // were sent: as before.
                    let length = range.end.min(*input_bytes).saturating_sub(range.start);
                    if let Some(data) = data.get(..length) {
                        current.image[range.start..range.start + length].copy_from_slice(data);
                        next[range.start..range.start + length].copy_from_slice(data);
                    }
                });
                let ago = match came {
                    Came::Late(ago) | Came::Found(ago) => Some(ago),
                    Came::Current if cyclic.cycle.is_multiple_of(SAMPLE_CYCLES) => Some(0),
                    _ => None,
                };
                if let Some(ago) = ago {
                    let (arrived_ns, taken_ns) = times();
                    let sent_ns = cyclic.sent_ns(ago).unwrap_or(0);
                    // The kernel's stamp is of CLOCK_REALTIME: one that a step of it moved says
                    // nothing.
                    let arrived_ns = possible(arrived_ns, sent_ns, taken_ns);
                    late_answers.push(LateAnswer {
                        sent_ns,
                        cycles: ago.min(u8::MAX.into()) as u8,
                        cycle: cyclic.cycle.wrapping_sub(ago) as u32,
                        // Only frames of process data are reported.
                        address: crate::frame::logical_address(frame).unwrap_or(0),
                        arrived_ns,
                        taken_ns,
                    });
                }
                match came {
                    Came::Late(_) => late.add(LateOnes { late: 1, found: 0 }),
                    Came::Found(_) => late.add(LateOnes { late: 1, found: 1 }),
                    Came::Twice => totals.strays.twice += 1,
                    Came::AfterLost => totals.strays.after_lost += 1,
                    Came::Broken => totals.strays.broken += 1,
                    Came::Current | Came::OldStatus => {}
                }
                cyclic.under_way == 0
            })
        };
        totals.late_frames += u64::from(late.late);
        totals.lost_frames = totals.lost_frames.saturating_sub(late.found.into());
        (came, late)
    }

    /// The status of all devices.
    fn status(&mut self, devices: u16, states: u8) {
        let before = self.watch.devices;
        self.watch.devices = devices;
        // States are ORed on the way: OP alone means that every device is in OP.
        self.watch.all_op = states == OP && usize::from(devices) == self.addresses.len();
        if before != devices {
            let expected = self.addresses.len() as u16;
            self.note(EventKind::DeviceCount { expected, got: devices });
        }
        if self.watch.all_op {
            self.all_well();
        }
    }

    /// All devices are in OP: reports those that were not.
    fn all_well(&mut self) {
        for device in 0..self.watch.states.len() {
            self.device_state(device, OP, 0);
        }
    }

    fn device_state(&mut self, device: usize, state: u8, code: u16) {
        if self.watch.states[device] != state {
            self.watch.states[device] = state;
            self.note(EventKind::DeviceState { device: device as u16, state, code });
        }
    }

    /// Judges a fetch in which frames came late, and counts.
    fn judge(&mut self, at_ns: u64, LateOnes { late, found }: LateOnes) -> Exchanged {
        let fresh = self.cyclic.missing() == 0;
        let stale = self.cyclic.behind().min(u64::from(u32::MAX)) as u32;
        let missing = self.cyclic.silent().min(u64::from(u32::MAX)) as u32;
        let answered_one = self.cyclic.pieces.iter().any(|piece| piece.answer.is_some());
        let answered = answered_one || late > 0;
        let counter = if answered { self.cyclic.newest_counter() } else { 0 };
        let counter_wrong = answered && self.cyclic.counter_wrong();
        self.totals.stale_cycles += u64::from(!fresh);
        let Carried { send_errors, last_errno, .. } = self.master.carried;
        self.totals.send_errors = send_errors;
        self.totals.strays.foreign += std::mem::take(&mut self.master.carried.strays);
        self.totals.stray_frames = self.totals.strays.sum();
        if send_errors > self.watch.send_errors && last_errno != self.watch.errno {
            self.watch.errno = last_errno;
            self.note(EventKind::SendFailed { errno: last_errno });
        }
        self.watch.send_errors = send_errors;
        if answered {
            let expected = self.current.expected_counter;
            let wrong = self.cyclic.stands_wrong();
            self.totals.working_counter_errors += u64::from(counter_wrong);
            if wrong && !self.watch.counter_wrong {
                self.note(EventKind::WorkingCounter { expected, got: counter });
            } else if !wrong && self.watch.counter_wrong {
                self.note(EventKind::WorkingCounterRight);
            }
            self.watch.counter_wrong = wrong;
        }
        if late > 0 && !self.watch.late {
            self.note(EventKind::FrameLate { cycles: stale.max(1) });
        }
        self.watch.late = late > 0;
        if missing == 0 && self.watch.link_lost {
            self.watch.link_lost = false;
            self.watch.errno = 0;
            self.note(EventKind::LinkBack);
        }
        if fresh {
            self.current.at_ns = at_ns;
            self.watch.stale = 0;
        } else {
            if self.watch.stale == 0 {
                self.note(EventKind::FrameLost);
            }
            self.watch.stale = stale.max(1);
            if missing >= LINK_LOST_AFTER && !self.watch.link_lost {
                self.watch.link_lost = true;
                self.note(EventKind::LinkLost);
            }
        }
        self.current.cycle = self.totals.cycles;
        self.current.working_counter = counter;
        self.current.all_op = self.watch.all_op;
        Exchanged {
            fresh,
            late,
            found,
            answered,
            stale,
            missing,
            working_counter: counter,
            counter_wrong,
            all_op: self.watch.all_op,
            devices: self.watch.devices,
            ..Exchanged::default()
        }
    }

    /// Readers come last: the wire does not wait for them.
    fn publish(&mut self, result: &mut Exchanged, now_ns: u64, next_release_ns: u64) {
        self.publisher.announce(next_release_ns);
        let published = self.publisher.publish(&self.current);
        result.published = published.stored;
        result.lock_wait_ns = published.wait_ns;
        self.totals.contended += u64::from(published.contended);
        self.totals.longest_lock_wait_ns = self.totals.longest_lock_wait_ns.max(published.wait_ns);
        if !published.stored {
            self.totals.unpublished += 1;
            let waited_us = (published.wait_ns / 1000).min(u64::from(u32::MAX)) as u32;
            let cycle = self.totals.cycles;
            self.events.push(LinkEvent { cycle, at_ns: now_ns, kind: EventKind::ReaderHeld { waited_us } });
        }
    }

    fn note(&mut self, kind: EventKind) {
        self.events.push(LinkEvent { cycle: self.totals.cycles, at_ns: self.master.now_ns(), kind });
    }

    /// Whether all devices answer and are in OP, and the devices that are not, as far as they have
    /// been looked at.
    pub(super) fn not_in_op(&self) -> (bool, Vec<(usize, u8)>) {
        let behind = self.watch.states.iter().enumerate().filter(|&(_, &state)| state != OP);
        (self.watch.all_op, behind.map(|(device, &state)| (device, state)).collect())
    }

    /// Sets the states as before the change to OP, so that the bring-up looks at every device.
    pub(super) fn expect_changes(&mut self) {
        self.watch.all_op = false;
        self.watch.counter_wrong = true;
        self.watch.states.fill(SAFE_OP);
    }

    /// Forgets what the bring-up counted.
    pub(super) fn begin_counting(&mut self) {
        self.totals = Totals::default();
        self.timing = Timing::default();
        self.master.carried = Carried::default();
        self.watch.send_errors = 0;
        // Frames still under way belong to the next exchange; abandoned frames are nobody's loss.
        self.cyclic.settle();
        if let Some(clock) = &mut self.clock {
            clock.begin_counting();
        }
    }

    /// For requests of the master beside the cycles.
    pub(super) fn master(&mut self) -> &mut Master {
        &mut self.master
    }

    /// Stations of the devices, in the order of the wire.
    pub(super) fn addresses(&self) -> &[u16] {
        &self.addresses
    }
}

const OP: u8 = 8;
const SAFE_OP: u8 = 4;
