//! The programs that follow watched threads in the kernel: from each wake-up to the next sleep, one
//! record.
//!
//! They are built as instructions when a watch begins, because the places of fields in tracepoints'
//! records are those that this very kernel reports (tracefs), and so that neither a compiler for
//! this machine nor an object file of unknown origin is needed. Everything that they call is open
//! to programs of any licence.

use takt_rt::bpf::{Asm, FP, Helper, If, Instruction, Label, R0, R1, R2, R3, R4, R6, R7, R8, R9, Reg};

/// Present state of a thread ([`state::NOW`]); 0 is unknown.
pub(super) mod now {
    pub(in super::super) const ASLEEP: i32 = 1;
    pub(in super::super) const READY: i32 = 2;
    pub(in super::super) const RUNNING: i32 = 3;
}

/// Waker of a thread ([`state::SOURCE`]); 0 is unknown.
pub(super) mod source {
    pub(in super::super) const TIMER: i32 = 1;
    pub(in super::super) const THREAD: i32 = 2;
    pub(in super::super) const INTERRUPT: i32 = 3;
    pub(in super::super) const SOFTIRQ: i32 = 4;
    pub(in super::super) const OTHER: i32 = 5;
}

/// Places in what is known of a thread, in bytes. The first [`state::RECORD_BYTES`] are the record
/// that is handed out.
pub(super) mod state {
    pub(in super::super) const TID: i16 = 0;
    /// CPU that it left at the end.
    pub(in super::super) const CPU: i16 = 8;
    pub(in super::super) const END: i16 = 16;
    /// Reason why it left the CPU, as the tracepoint shows it.
    pub(in super::super) const STATE: i16 = 24;
    pub(in super::super) const AWAKE: i16 = 32;
    pub(in super::super) const CPU_NS: i16 = 40;
    pub(in super::super) const SOURCE: i16 = 48;
    /// Timer, thread, interrupt.
    pub(in super::super) const SOURCE_ID: i16 = 56;
    /// The timer's function.
    pub(in super::super) const SOURCE_FUNCTION: i16 = 64;
    pub(in super::super) const PLANNED: i16 = 72;
    /// The timer that it set before it slept, and that one's function; 0 for none.
    pub(in super::super) const SLEPT_ON: i16 = 80;
    pub(in super::super) const SLEPT_FUNCTION: i16 = 88;
    pub(in super::super) const PREEMPTED: i16 = 96;
    /// The thread that had the CPU before it got it, in the longest of its waits.
    pub(in super::super) const KEPT_BY: i16 = 104;
    pub(in super::super) const KEPT_NS: i16 = 112;
    pub(in super::super) const RECORD_BYTES: usize = 120;

    pub(in super::super) const NOW: i16 = 120;
    pub(in super::super) const READY_SINCE: i16 = 128;
    pub(in super::super) const RUNNING_SINCE: i16 = 136;
    /// Its pending wakers, in the order of the record's four.
    pub(in super::super) const PENDING: i16 = 144;
    pub(in super::super) const PENDING_ID: i16 = 152;
    pub(in super::super) const PENDING_FUNCTION: i16 = 160;
    pub(in super::super) const PENDING_PLANNED: i16 = 168;
    /// Not 0: it is awake, and the record's first part is filled.
    pub(in super::super) const AWAKE_NOW: i16 = 176;
    /// The timer that it set last.
    pub(in super::super) const ARMED: i16 = 184;
    pub(in super::super) const ARMED_FUNCTION: i16 = 192;
    pub(in super::super) const ARMED_EXPIRES: i16 = 200;
    /// The timer was due already.
    pub(in super::super) const ARMED_OVERDUE: i16 = 208;
    /// Expiry of the timer on which it slept.
    pub(in super::super) const SLEPT_EXPIRES: i16 = 216;
    pub(in super::super) const BYTES: usize = 224;
}

/// Places in what is known of a CPU, in bytes.
pub(super) mod cpu {
    /// Number of the interrupt and 1; 0 outside.
    pub(in super::super) const INTERRUPT: i16 = 0;
    /// Number of the software interrupt and 1; 0 outside.
    pub(in super::super) const SOFTIRQ: i16 = 8;
    /// In an interrupt of the CPU's own.
    pub(in super::super) const VECTOR: i16 = 16;
    /// The timer whose function runs; 0 for none.
    pub(in super::super) const EXPIRING: i16 = 24;
    pub(in super::super) const EXPIRING_FUNCTION: i16 = 32;
    pub(in super::super) const EXPIRING_DUE: i16 = 40;
    /// Records that the ring had no room for.
    pub(in super::super) const DROPPED: i16 = 48;
    pub(in super::super) const BYTES: usize = 56;
}

/// Function and expiry, as kept by a timer's address.
pub(super) const TIMER_BYTES: usize = 16;

/// An expiry further from its event than this is of another clock.
const SAME_CLOCK_NS: u64 = 60_000_000_000;

/// The maps' descriptors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maps {
    pub(super) threads: i32,
    pub(super) timers: i32,
    pub(super) cpus: i32,
    pub(super) records: i32,
}

/// Place and size of a field in a tracepoint's record.
pub(super) type Place = (i16, usize);

/// Builds the programs.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) maps: Maps,
}

// Places on the stack.
const KEY: i16 = -8;
const TIMER_KEY: i16 = -16;
const TIMER_FUNCTION: i16 = -32;
const TIMER_EXPIRES: i16 = -24;

impl Builder {
    /// R0 becomes the entry of `map` with the key at `FP + key`.
    fn lookup(asm: &mut Asm, map: i32, key: i16) {
        asm.set_map(R1, map);
        asm.mov(R2, FP);
        asm.add(R2, i32::from(key));
        asm.call(Helper::MapLookup);
    }

    /// R9 becomes what is known of this CPU; to `otherwise` where the kernel has nothing, which it
    /// never says.
    fn this_cpu(&self, asm: &mut Asm, otherwise: Label) {
        asm.store_value(FP, KEY, 0);
        Self::lookup(asm, self.maps.cpus, KEY);
        asm.jump_if(R0, If::Equal, 0, otherwise);
        asm.mov(R9, R0);
    }

    /// R7 becomes what is known of the thread whose id is in R1; to `otherwise` where it is not
    /// watched.
    fn thread(&self, asm: &mut Asm, otherwise: Label) {
        // The idle thread is nobody's.
        asm.jump_if(R1, If::Equal, 0, otherwise);
        asm.store_half(FP, KEY, R1);
        Self::lookup(asm, self.maps.threads, KEY);
        asm.jump_if(R0, If::Equal, 0, otherwise);
        asm.mov(R7, R0);
    }

    fn clock(asm: &mut Asm, to: Reg) {
        asm.call(Helper::KtimeGetNs);
        asm.mov(to, R0);
    }

    /// Hands the thread R7's record out, which ends at R8.
    fn hand_out(&self, asm: &mut Asm) {
        asm.store(R7, state::END, R8);
        asm.call(Helper::SmpProcessorId);
        asm.store(R7, state::CPU, R0);
        asm.set_map(R1, self.maps.records);
        asm.mov(R2, R7);
        asm.set(R3, state::RECORD_BYTES as i32);
        // BPF_RB_NO_WAKEUP: the reader comes by the clock.
        asm.set(R4, 1);
        asm.call(Helper::RingbufOutput);
        let kept = asm.label();
        asm.jump_if(R0, If::Equal, 0, kept);
        asm.load(R1, R9, cpu::DROPPED);
        asm.add(R1, 1);
        asm.store(R9, cpu::DROPPED, R1);
        asm.here(kept);
        for place in [state::PREEMPTED, state::KEPT_BY, state::KEPT_NS] {
            asm.store_value(R7, place, 0);
        }
    }

    /// CPU time of the thread R7 up to R8, from when it ran last.
    fn charge(asm: &mut Asm) {
        asm.mov(R1, R8);
        asm.load(R2, R7, state::RUNNING_SINCE);
        asm.sub_reg(R1, R2);
        asm.load(R2, R7, state::CPU_NS);
        asm.add_reg(R2, R1);
        asm.store(R7, state::CPU_NS, R2);
    }

    /// `timer:hrtimer_start`: what a watched thread sets, and what is set anew of those timers.
    pub(super) fn timer_start(
        &self,
        timer: Place,
        function: Place,
        expires: Place,
    ) -> Option<Vec<Instruction>> {
        let mut asm = Asm::default();
        let (store, known, done) = (asm.label(), asm.label(), asm.label());
        asm.mov(R6, R1);
        for (place, to) in [(timer, TIMER_KEY), (function, TIMER_FUNCTION), (expires, TIMER_EXPIRES)] {
            asm.load_sized(R1, R6, place.0, place.1);
            asm.store(FP, to, R1);
        }
        asm.call(Helper::CurrentPidTgid);
        // The lower half is the thread.
        asm.store_half(FP, KEY, R0);
        asm.load_sized(R1, FP, KEY, 4);
        self.thread(&mut asm, known);
        self.this_cpu(&mut asm, known);
        // An interrupt sets it, not the thread that it interrupted.
        asm.load(R1, R9, cpu::INTERRUPT);
        for place in [cpu::SOFTIRQ, cpu::VECTOR, cpu::EXPIRING] {
            asm.load(R2, R9, place);
            asm.or_reg(R1, R2);
        }
        asm.jump_if(R1, If::NotEqual, 0, known);
        Self::clock(&mut asm, R8);
        let not_due = asm.label();
        asm.store_value(R7, state::ARMED_OVERDUE, 0);
        asm.load(R1, FP, TIMER_EXPIRES);
        asm.store(R7, state::ARMED_EXPIRES, R1);
        asm.jump_if_reg(R1, If::Greater, R8, not_due);
        asm.sub_reg(R8, R1);
        asm.set_wide(R2, SAME_CLOCK_NS);
        asm.jump_if_reg(R8, If::GreaterEqual, R2, not_due);
        asm.store_value(R7, state::ARMED_OVERDUE, 1);
        asm.here(not_due);
        asm.load(R1, FP, TIMER_KEY);
        asm.store(R7, state::ARMED, R1);
        asm.load(R1, FP, TIMER_FUNCTION);
        asm.store(R7, state::ARMED_FUNCTION, R1);
        // BPF_ANY.
        asm.set(R4, 0);
        asm.jump(store);
        asm.here(known);
        // Others' timers are none of ours. Looking first is cheaper than being refused an update.
        Self::lookup(&mut asm, self.maps.timers, TIMER_KEY);
        asm.jump_if(R0, If::Equal, 0, done);
        asm.load(R1, FP, TIMER_FUNCTION);
        asm.store(R0, 0, R1);
        asm.load(R1, FP, TIMER_EXPIRES);
        asm.store(R0, 8, R1);
        asm.jump(done);
        asm.here(store);
        asm.set_map(R1, self.maps.timers);
        asm.mov(R2, FP);
        asm.add(R2, i32::from(TIMER_KEY));
        asm.mov(R3, FP);
        asm.add(R3, i32::from(TIMER_FUNCTION));
        asm.call(Helper::MapUpdate);
        asm.here(done);
        // 1: perf's own events of this tracepoint go on.
        asm.exit(1);
        asm.finish()
    }

    /// `timer:hrtimer_expire_entry`: what runs now, and when it was due.
    pub(super) fn timer_expire(
        &self,
        timer: Place,
        function: Place,
        of_timer: Place,
    ) -> Option<Vec<Instruction>> {
        let mut asm = Asm::default();
        let (in_time, done) = (asm.label(), asm.label());
        asm.mov(R6, R1);
        self.this_cpu(&mut asm, done);
        Self::clock(&mut asm, R8);
        asm.load_sized(R1, R6, timer.0, timer.1);
        asm.store(FP, TIMER_KEY, R1);
        asm.store(R9, cpu::EXPIRING, R1);
        asm.load_sized(R1, R6, function.0, function.1);
        asm.store(R9, cpu::EXPIRING_FUNCTION, R1);
        asm.store(R9, cpu::EXPIRING_DUE, R8);
        Self::lookup(&mut asm, self.maps.timers, TIMER_KEY);
        asm.jump_if(R0, If::Equal, 0, done);
        let other_clock = asm.label();
        asm.load(R2, R0, 8);
        asm.jump_if_reg(R2, If::Greater, R8, other_clock);
        asm.mov(R3, R8);
        asm.sub_reg(R3, R2);
        asm.set_wide(R4, SAME_CLOCK_NS);
        asm.jump_if_reg(R3, If::GreaterEqual, R4, other_clock);
        asm.store(R9, cpu::EXPIRING_DUE, R2);
        asm.jump(in_time);
        asm.here(other_clock);
        // Set on another clock than ours: how late it is there holds here as well.
        asm.load_sized(R1, R6, of_timer.0, of_timer.1);
        asm.jump_if_reg(R2, If::Greater, R1, in_time);
        asm.sub_reg(R1, R2);
        asm.set_wide(R2, SAME_CLOCK_NS);
        asm.jump_if_reg(R1, If::GreaterEqual, R2, in_time);
        asm.mov(R2, R8);
        asm.sub_reg(R2, R1);
        asm.store(R9, cpu::EXPIRING_DUE, R2);
        asm.here(in_time);
        // A thread that asked to sleep until a past time continues without sleeping: the end of a
        // cycle and the begin of the next.
        asm.call(Helper::CurrentPidTgid);
        asm.store_half(FP, KEY, R0);
        asm.load_sized(R1, FP, KEY, 4);
        self.thread(&mut asm, done);
        asm.load(R1, R7, state::NOW);
        asm.jump_if(R1, If::NotEqual, now::RUNNING, done);
        asm.load(R1, R7, state::ARMED_OVERDUE);
        asm.jump_if(R1, If::Equal, 0, done);
        asm.load(R1, R7, state::ARMED);
        asm.load(R2, FP, TIMER_KEY);
        asm.jump_if_reg(R1, If::Greater, R2, done);
        asm.jump_if_reg(R2, If::Greater, R1, done);
        let begin = asm.label();
        asm.load(R1, R7, state::AWAKE_NOW);
        asm.jump_if(R1, If::Equal, 0, begin);
        Self::charge(&mut asm);
        // It asked to sleep (TASK_INTERRUPTIBLE).
        asm.store_value(R7, state::STATE, 1);
        asm.load(R1, R7, state::ARMED);
        asm.store(R7, state::SLEPT_ON, R1);
        asm.load(R1, R7, state::ARMED_FUNCTION);
        asm.store(R7, state::SLEPT_FUNCTION, R1);
        self.hand_out(&mut asm);
        asm.here(begin);
        asm.store(R7, state::RUNNING_SINCE, R8);
        asm.store_value(R7, state::SOURCE, source::TIMER);
        asm.load(R1, R7, state::ARMED);
        asm.store(R7, state::SOURCE_ID, R1);
        asm.load(R1, R7, state::ARMED_FUNCTION);
        asm.store(R7, state::SOURCE_FUNCTION, R1);
        asm.load(R1, R9, cpu::EXPIRING_DUE);
        asm.store(R7, state::PLANNED, R1);
        asm.store(R7, state::AWAKE, R8);
        asm.store_value(R7, state::CPU_NS, 0);
        asm.store_value(R7, state::AWAKE_NOW, 1);
        asm.store_value(R7, state::ARMED, 0);
        asm.store_value(R7, state::ARMED_OVERDUE, 0);
        asm.here(done);
        asm.exit(1);
        asm.finish()
    }

    /// `sched:sched_waking`: who wakes it, by what this CPU does.
    pub(super) fn waking(&self, tid: Place) -> Option<Vec<Instruction>> {
        let mut asm = Asm::default();
        let (done, set) = (asm.label(), asm.label());
        asm.load_sized(R1, R1, tid.0, tid.1);
        self.thread(&mut asm, done);
        asm.load(R1, R7, state::NOW);
        asm.jump_if(R1, If::Equal, now::READY, done);
        asm.jump_if(R1, If::Equal, now::RUNNING, done);
        self.this_cpu(&mut asm, done);
        Self::clock(&mut asm, R8);
        asm.store_value(R7, state::PENDING_FUNCTION, 0);
        asm.store(R7, state::PENDING_PLANNED, R8);
        let no_timer = asm.label();
        asm.load(R1, R9, cpu::EXPIRING);
        asm.jump_if(R1, If::Equal, 0, no_timer);
        asm.store(R7, state::PENDING_ID, R1);
        asm.load(R1, R9, cpu::EXPIRING_FUNCTION);
        asm.store(R7, state::PENDING_FUNCTION, R1);
        asm.load(R1, R9, cpu::EXPIRING_DUE);
        asm.store(R7, state::PENDING_PLANNED, R1);
        asm.set(R2, source::TIMER);
        asm.jump(set);
        asm.here(no_timer);
        for (place, kind) in [(cpu::INTERRUPT, source::INTERRUPT), (cpu::SOFTIRQ, source::SOFTIRQ)] {
            let none = asm.label();
            asm.load(R1, R9, place);
            asm.jump_if(R1, If::Equal, 0, none);
            asm.add(R1, -1);
            asm.store(R7, state::PENDING_ID, R1);
            asm.set(R2, kind);
            asm.jump(set);
            asm.here(none);
        }
        let other = asm.label();
        asm.load(R1, R9, cpu::VECTOR);
        asm.jump_if(R1, If::NotEqual, 0, other);
        asm.call(Helper::CurrentPidTgid);
        asm.store_half(FP, KEY, R0);
        asm.load_sized(R1, FP, KEY, 4);
        asm.jump_if(R1, If::Equal, 0, other);
        asm.store(R7, state::PENDING_ID, R1);
        asm.set(R2, source::THREAD);
        asm.jump(set);
        asm.here(other);
        asm.store_value(R7, state::PENDING_ID, 0);
        asm.set(R2, source::OTHER);
        asm.here(set);
        asm.store(R7, state::PENDING, R2);
        asm.store(R7, state::READY_SINCE, R8);
        asm.store_value(R7, state::NOW, now::READY);
        asm.here(done);
        asm.exit(1);
        asm.finish()
    }

    /// `sched:sched_switch`: it goes, it comes.
    pub(super) fn switch(&self, prev: Place, why: Place, next: Place) -> Option<Vec<Instruction>> {
        let mut asm = Asm::default();
        let (comes, done) = (asm.label(), asm.label());
        asm.mov(R6, R1);
        self.this_cpu(&mut asm, done);
        // Interrupts do not switch; some kernels leave out their end.
        for place in [cpu::INTERRUPT, cpu::SOFTIRQ, cpu::VECTOR, cpu::EXPIRING] {
            asm.store_value(R9, place, 0);
        }
        asm.load_sized(R1, R6, prev.0, prev.1);
        self.thread(&mut asm, comes);
        Self::clock(&mut asm, R8);
        self.goes(&mut asm, why, comes);
        asm.here(comes);
        asm.load_sized(R1, R6, next.0, next.1);
        self.thread(&mut asm, done);
        Self::clock(&mut asm, R8);
        Self::comes(&mut asm, prev, done);
        asm.here(done);
        asm.exit(1);
        asm.finish()
    }

    fn goes(&self, asm: &mut Asm, why: Place, done: Label) {
        let (was_unknown, sleeps) = (asm.label(), asm.label());
        asm.load(R1, R7, state::NOW);
        asm.jump_if(R1, If::NotEqual, now::RUNNING, was_unknown);
        Self::charge(asm);
        asm.here(was_unknown);
        asm.load_sized(R3, R6, why.0, why.1);
        asm.mov(R1, R3);
        // TASK_REPORT; beyond it is the bit of preemption (include/linux/sched.h).
        asm.and(R1, 0xff);
        asm.jump_if(R1, If::NotEqual, 0, sleeps);
        asm.store_value(R7, state::NOW, now::READY);
        asm.store(R7, state::READY_SINCE, R8);
        asm.load(R1, R7, state::PREEMPTED);
        asm.add(R1, 1);
        asm.store(R7, state::PREEMPTED, R1);
        asm.jump(done);
        asm.here(sleeps);
        asm.store(R7, state::STATE, R1);
        asm.store_value(R7, state::NOW, now::ASLEEP);
        asm.store_value(R7, state::PENDING, 0);
        for (from, to) in [
            (state::ARMED, state::SLEPT_ON),
            (state::ARMED_FUNCTION, state::SLEPT_FUNCTION),
            (state::ARMED_EXPIRES, state::SLEPT_EXPIRES),
        ] {
            asm.load(R1, R7, from);
            asm.store(R7, to, R1);
        }
        asm.store_value(R7, state::ARMED, 0);
        asm.load(R1, R7, state::AWAKE_NOW);
        asm.jump_if(R1, If::Equal, 0, done);
        asm.store_value(R7, state::AWAKE_NOW, 0);
        self.hand_out(asm);
    }

    fn comes(asm: &mut Asm, prev: Place, done: Label) {
        let (no_wait, nobody, begin) = (asm.label(), asm.label(), asm.label());
        asm.load(R3, R7, state::NOW);
        asm.jump_if(R3, If::NotEqual, now::READY, no_wait);
        asm.mov(R1, R8);
        asm.load(R2, R7, state::READY_SINCE);
        asm.sub_reg(R1, R2);
        asm.load(R2, R7, state::KEPT_NS);
        asm.jump_if_reg(R2, If::GreaterEqual, R1, no_wait);
        asm.store(R7, state::KEPT_NS, R1);
        asm.load_sized(R1, R6, prev.0, prev.1);
        asm.store(R7, state::KEPT_BY, R1);
        asm.here(no_wait);
        asm.store_value(R7, state::NOW, now::RUNNING);
        asm.store(R7, state::RUNNING_SINCE, R8);
        asm.store_value(R7, state::ARMED, 0);
        asm.load(R1, R7, state::AWAKE_NOW);
        asm.jump_if(R1, If::NotEqual, 0, done);
        asm.load(R1, R7, state::PENDING);
        asm.jump_if(R1, If::Equal, 0, nobody);
        for (from, to) in [
            (state::PENDING, state::SOURCE),
            (state::PENDING_ID, state::SOURCE_ID),
            (state::PENDING_FUNCTION, state::SOURCE_FUNCTION),
            (state::PENDING_PLANNED, state::PLANNED),
        ] {
            asm.load(R1, R7, from);
            asm.store(R7, to, R1);
        }
        asm.store_value(R7, state::PENDING, 0);
        asm.jump(begin);
        asm.here(nobody);
        // It may have run for long: its begin was not seen.
        asm.jump_if(R3, If::NotEqual, now::ASLEEP, done);
        asm.store_value(R7, state::SOURCE, source::OTHER);
        asm.store_value(R7, state::SOURCE_ID, 0);
        asm.store_value(R7, state::SOURCE_FUNCTION, 0);
        asm.store(R7, state::PLANNED, R8);
        // Nobody reported the wake-up. The timer that it slept on was due, so it was that.
        asm.load(R1, R7, state::SLEPT_ON);
        asm.jump_if(R1, If::Equal, 0, begin);
        asm.load(R2, R7, state::SLEPT_EXPIRES);
        asm.jump_if_reg(R2, If::Greater, R8, begin);
        asm.mov(R3, R8);
        asm.sub_reg(R3, R2);
        asm.set_wide(R4, SAME_CLOCK_NS);
        asm.jump_if_reg(R3, If::GreaterEqual, R4, begin);
        asm.store_value(R7, state::SOURCE, source::TIMER);
        asm.store(R7, state::SOURCE_ID, R1);
        asm.load(R1, R7, state::SLEPT_FUNCTION);
        asm.store(R7, state::SOURCE_FUNCTION, R1);
        asm.store(R7, state::PLANNED, R2);
        asm.here(begin);
        asm.store(R7, state::AWAKE, R8);
        asm.store_value(R7, state::CPU_NS, 0);
        asm.store_value(R7, state::AWAKE_NOW, 1);
    }

    /// A raw tracepoint whose first argument, and 1, is stored at `place` of the CPU.
    pub(super) fn enter(&self, place: i16) -> Option<Vec<Instruction>> {
        let mut asm = Asm::default();
        let done = asm.label();
        asm.load(R6, R1, 0);
        self.this_cpu(&mut asm, done);
        // Arguments narrower than 64 bits leave anything above.
        asm.store_half(FP, KEY, R6);
        asm.load_sized(R6, FP, KEY, 4);
        asm.add(R6, 1);
        asm.store(R9, place, R6);
        asm.here(done);
        asm.exit(0);
        asm.finish()
    }

    /// A raw tracepoint that ends what is at `place` of the CPU.
    pub(super) fn leave(&self, place: i16) -> Option<Vec<Instruction>> {
        let mut asm = Asm::default();
        let done = asm.label();
        self.this_cpu(&mut asm, done);
        asm.store_value(R9, place, 0);
        asm.here(done);
        asm.exit(0);
        asm.finish()
    }
}
