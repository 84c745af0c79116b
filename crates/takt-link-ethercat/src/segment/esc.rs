//! The EtherCAT sub-device controller: registers and memory with their side effects, sync managers,
//! FMMUs.

use super::fmmu::{Fmmu, copy_bits};
use super::registers::{
    AL_CONTROL, DC_ACTIVATION, DC_END, DC_OFFSET, DC_RECEIVE, DC_SPEED_START, DC_SYSTEM_TIME, FMMU, FMMU_END,
    FMMUS, MEMORY, RAM, SII_CONTROL, STATION, SYNC_MANAGER, SYNC_MANAGER_END, SYNC_MANAGERS, WATCHDOG_STATUS,
    is_sync_manager_status, is_writable,
};
use super::wire::u16_at;

/// Events set off by an access, for the device's micro-controller or the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Events(u16);

impl Events {
    pub(super) const AL_CONTROL: Self = Self(1);
    pub(super) const SII: Self = Self(1 << 1);
    /// FMMUs or sync managers have changed.
    pub(super) const ROUTING: Self = Self(1 << 2);
    pub(super) const MAILBOX_WRITTEN: Self = Self(1 << 3);
    pub(super) const MAILBOX_READ: Self = Self(1 << 4);
    pub(super) const OUTPUTS: Self = Self(1 << 5);
    pub(super) const INPUTS: Self = Self(1 << 6);
    pub(super) const LATCH: Self = Self(1 << 7);
    pub(super) const STATION: Self = Self(1 << 8);
    pub(super) const SYSTEM_TIME: Self = Self(1 << 9);
    pub(super) const REPEAT: Self = Self(1 << 10);
    /// Offset or speed counter of the clock written: its control loop starts afresh.
    pub(super) const CLOCK_RESET: Self = Self(1 << 11);
    /// The cyclic unit (Sync0) switched.
    pub(super) const ACTIVATION: Self = Self(1 << 12);

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A sync manager as its register block sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SyncManager {
    pub(super) start: u16,
    pub(super) length: u16,
    pub(super) mailbox: bool,
    /// The master writes (outputs, requests); else it reads.
    pub(super) master_writes: bool,
    pub(super) watchdog: bool,
    pub(super) enabled: bool,
}

impl SyncManager {
    fn decode(block: &[u8]) -> Self {
        let control = block.get(4).copied().unwrap_or(0);
        let length = u16_at(block, 2);
        Self {
            start: u16_at(block, 0),
            length,
            mailbox: control & 3 == 2,
            master_writes: control & 0x0C == 0x04,
            watchdog: control & 0x40 != 0,
            enabled: block.get(6).is_some_and(|byte| byte & 1 != 0) && length > 0,
        }
    }

    fn overlaps(&self, address: u16, length: usize) -> bool {
        let (start, end) = (usize::from(self.start), usize::from(self.start) + usize::from(self.length));
        usize::from(address) < end && usize::from(address) + length > start
    }

    fn has_last_byte(&self, address: u16, length: usize) -> bool {
        let last = usize::from(self.start) + usize::from(self.length) - 1;
        (usize::from(address)..usize::from(address) + length).contains(&last)
    }
}

/// Flag "mailbox full" in a sync manager's status byte.
const FULL: u8 = 0x08;

/// Registers and memory of one device.
#[derive(Debug)]
pub(super) struct Esc {
    pub(super) memory: Box<[u8]>,
    pub(super) sync_managers: [SyncManager; SYNC_MANAGERS],
    pub(super) fmmus: [Fmmu; FMMUS],
    /// Whether the micro-controller has opened the process data's sync managers (SAFEOP and OP).
    pub(super) process_data: bool,
    /// Whether registers 0x0900 to 0x09FF exist.
    pub(super) clocks: bool,
}

impl Esc {
    pub(super) fn new(clocks: bool) -> Self {
        let mut memory = vec![0; MEMORY].into_boxed_slice();
        // ET1100, revision 0, build 2; 8 FMMUs, 8 sync managers, 8 KiB; all four ports MII.
        memory[..8].copy_from_slice(&[0x11, 0, 2, 0, FMMUS as u8, SYNC_MANAGERS as u8, 8, 0xFF]);
        // FMMU in bytes and bits; distributed clocks: bit 2, 64 bits wide: bit 3; enhanced DC SYNC:
        // bit 8.
        memory[8..10].copy_from_slice(&if clocks { 0x010C_u16 } else { 0 }.to_le_bytes());
        let fmmus = [Fmmu::default(); FMMUS];
        Self { memory, sync_managers: Default::default(), fmmus, process_data: false, clocks }
    }

    pub(super) fn u16(&self, address: u16) -> u16 {
        u16_at(&self.memory, usize::from(address))
    }

    pub(super) fn u64(&self, address: u16) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.memory[usize::from(address)..usize::from(address) + 8]);
        u64::from_le_bytes(bytes)
    }

    /// The device's own write: no access rule holds.
    pub(super) fn set(&mut self, address: u16, value: &[u8]) {
        super::wire::put(&mut self.memory, usize::from(address), value);
    }

    pub(super) fn is_full(&self, index: usize) -> bool {
        self.memory[usize::from(SYNC_MANAGER) + 8 * index + 5] & FULL != 0
    }

    pub(super) fn set_full(&mut self, index: usize, full: bool) {
        let status = &mut self.memory[usize::from(SYNC_MANAGER) + 8 * index + 5];
        *status = if full { *status | FULL } else { *status & !FULL };
    }

    /// Whether the whole access lies inside memory that this device has.
    fn exists(&self, address: u16, length: usize) -> bool {
        let end = usize::from(address) + length;
        let clocks = usize::from(address) < usize::from(DC_END) && end > usize::from(DC_RECEIVE);
        length > 0 && end <= MEMORY && (self.clocks || !clocks)
    }

    /// The master reads into `data`. `None`: no access, the working counter does not move.
    pub(super) fn read(&mut self, address: u16, data: &mut [u8]) -> Option<Events> {
        let events = self.open(address, data.len(), false)?;
        data.copy_from_slice(&self.memory[usize::from(address)..usize::from(address) + data.len()]);
        Some(events)
    }

    /// As [`read`](Self::read), OR-ing into `data`: broadcast reads.
    pub(super) fn read_or(&mut self, address: u16, data: &mut [u8]) -> Option<Events> {
        let events = self.open(address, data.len(), false)?;
        let own = &self.memory[usize::from(address)..usize::from(address) + data.len()];
        data.iter_mut().zip(own).for_each(|(byte, own)| *byte |= own);
        Some(events)
    }

    /// The master writes `data`.
    pub(super) fn write(&mut self, address: u16, data: &[u8]) -> Option<Events> {
        let mut events = self.open(address, data.len(), true)?;
        if address >= RAM {
            self.memory[usize::from(address)..usize::from(address) + data.len()].copy_from_slice(data);
        } else {
            self.write_registers(address, data, &mut events);
        }
        Some(events)
    }

    /// Reads through FMMU `unit`: `offset` bytes into it.
    pub(super) fn read_mapped(&mut self, unit: &Fmmu, offset: usize, data: &mut [u8]) -> Option<Events> {
        if unit.is_byte_wise() {
            return self.read(mapped_address(unit, offset)?, data);
        }
        let (from, to, count, address, bytes) = bit_span(unit, offset, data.len())?;
        let events = self.open(address, bytes, false)?;
        let own = &self.memory[usize::from(address)..usize::from(address) + bytes];
        copy_bits(own, from, data, to, count);
        Some(events)
    }

    /// Writes through FMMU `unit`: `offset` bytes into it.
    pub(super) fn write_mapped(&mut self, unit: &Fmmu, offset: usize, data: &[u8]) -> Option<Events> {
        if unit.is_byte_wise() {
            return self.write(mapped_address(unit, offset)?, data);
        }
        let (to, from, count, address, bytes) = bit_span(unit, offset, data.len())?;
        // Registers are not mapped bit by bit.
        if address < RAM {
            return None;
        }
        let events = self.open(address, bytes, true)?;
        let own = &mut self.memory[usize::from(address)..usize::from(address) + bytes];
        copy_bits(data, from, own, to, count);
        Some(events)
    }

    /// Applies the sync managers' rules to an access.
    fn open(&mut self, address: u16, length: usize, writes: bool) -> Option<Events> {
        if !self.exists(address, length) {
            return None;
        }
        let mut events = Events::default();
        if address < RAM && usize::from(address) + length <= usize::from(RAM) {
            return Some(events);
        }
        for index in 0..SYNC_MANAGERS {
            let manager = self.sync_managers[index];
            if !manager.enabled || !manager.overlaps(address, length) {
                continue;
            }
            if manager.master_writes != writes {
                return None;
            }
            let last = manager.has_last_byte(address, length);
            if manager.mailbox {
                // A full mailbox takes nothing, an empty one gives nothing.
                if self.is_full(index) == writes {
                    return None;
                }
                if last {
                    self.set_full(index, writes);
                    events.add(if writes { Events::MAILBOX_WRITTEN } else { Events::MAILBOX_READ });
                }
            } else {
                if !self.process_data {
                    return None;
                }
                if last {
                    events.add(if writes { Events::OUTPUTS } else { Events::INPUTS });
                }
            }
        }
        Some(events)
    }

    fn write_registers(&mut self, address: u16, data: &[u8], events: &mut Events) {
        let repeat = self.repeat_requests();
        for (byte, at) in data.iter().zip(address..) {
            if at >= RAM || (is_writable(at) && !is_sync_manager_status(at)) {
                // The first write to 0x0440's neighbour clears the counters of expired watchdogs.
                self.memory[usize::from(at)] = if at == WATCHDOG_STATUS + 2 { 0 } else { *byte };
            }
        }
        let end = address.saturating_add(data.len() as u16);
        let hits = |from: u16, to: u16| address < to && end > from;
        if hits(AL_CONTROL, AL_CONTROL + 1) {
            events.add(Events::AL_CONTROL);
        }
        if hits(STATION, STATION + 2) {
            events.add(Events::STATION);
        }
        if hits(SII_CONTROL + 1, SII_CONTROL + 2) {
            events.add(Events::SII);
        }
        if hits(FMMU, FMMU_END) {
            self.decode_fmmus();
            events.add(Events::ROUTING);
        }
        if hits(SYNC_MANAGER, SYNC_MANAGER_END) {
            self.decode_sync_managers();
            events.add(Events::ROUTING);
            if repeat != self.repeat_requests() {
                events.add(Events::REPEAT);
            }
        }
        if hits(DC_RECEIVE, DC_RECEIVE + 4) {
            events.add(Events::LATCH);
        }
        if hits(DC_SYSTEM_TIME, DC_SYSTEM_TIME + 4) {
            events.add(Events::SYSTEM_TIME);
        }
        if hits(DC_ACTIVATION, DC_ACTIVATION + 1) {
            events.add(Events::ACTIVATION);
        }
        if hits(DC_OFFSET, DC_OFFSET + 8) || hits(DC_SPEED_START, DC_SPEED_START + 2) {
            events.add(Events::CLOCK_RESET);
        }
    }

    /// Bit 1 of every sync manager's activation byte.
    fn repeat_requests(&self) -> u8 {
        (0..SYNC_MANAGERS).fold(0, |bits, index| {
            let byte = self.memory[usize::from(SYNC_MANAGER) + 8 * index + 6];
            bits | (byte >> 1 & 1) << index
        })
    }

    fn decode_fmmus(&mut self) {
        for (index, unit) in self.fmmus.iter_mut().enumerate() {
            let at = usize::from(FMMU) + 16 * index;
            *unit = Fmmu::decode(&self.memory[at..at + 16]);
        }
    }

    fn decode_sync_managers(&mut self) {
        for index in 0..SYNC_MANAGERS {
            let at = usize::from(SYNC_MANAGER) + 8 * index;
            let new = SyncManager::decode(&self.memory[at..at + 8]);
            if new.enabled != self.sync_managers[index].enabled {
                self.set_full(index, false);
            }
            self.sync_managers[index] = new;
        }
    }
}

fn mapped_address(unit: &Fmmu, offset: usize) -> Option<u16> {
    u16::try_from(usize::from(unit.physical) + offset).ok()
}

/// Of a bit-wise unit, for datagram bytes `offset..offset + length` of its logical range: first bit
/// in the device's memory (from the byte address returned), first bit in the datagram's part,
/// number of bits, byte address, bytes.
fn bit_span(unit: &Fmmu, offset: usize, length: usize) -> Option<(u32, u32, u32, u16, usize)> {
    let part = (offset as u32 * 8)..((offset + length) as u32 * 8);
    let mapped = unit.bits();
    let (start, end) = (part.start.max(mapped.start), part.end.min(mapped.end));
    if start >= end {
        return None;
    }
    let physical = u32::from(unit.physical_bit) + (start - mapped.start);
    let address = mapped_address(unit, (physical / 8) as usize)?;
    let bit = physical % 8;
    let bytes = ((bit + (end - start)).div_ceil(8)) as usize;
    Some((bit, start - part.start, end - start, address, bytes))
}
