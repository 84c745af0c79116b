//! Records of the kernel's ring buffer (perf_event_open(2)), as far as they are asked for here.

use perf_event_open_sys::bindings as b;

/// Registers that a sample carries: those of the first five arguments.
pub const ARGUMENTS: usize = 5;

/// Registers requested from the kernel (`asm/perf_regs.h`), and the place of each argument among
/// them: the kernel writes them in the order of their numbers.
#[cfg(target_arch = "x86_64")]
pub const REGISTERS: (u64, [usize; ARGUMENTS]) =
    // CX 2, DX 3, SI 4, DI 5, R8 16; the arguments are in DI, SI, DX, CX, R8.
    (1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 16, [3, 2, 1, 0, 4]);
#[cfg(target_arch = "aarch64")]
pub const REGISTERS: (u64, [usize; ARGUMENTS]) = (0b11111, [0, 1, 2, 3, 4]);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "uprobes need the registers of a function's arguments, which are known for x86-64 and aarch64: omit the feature `ros`, as in \
     `--no-default-features --features uav`"
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// Process; of a switch, the one that goes or comes.
    pub pid: u32,
    pub tid: u32,
    pub what: What,
}

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A function was entered: the event's number, and the first arguments.
    Hit {
        /// The kernel's number of the event.
        id: u64,
        /// Registers.
        arguments: [u64; ARGUMENTS],
    },
    /// The thread got the CPU.
    SwitchIn,
    /// The thread lost the CPU.
    SwitchOut {
        /// It was still ready to run. Kernels before 4.17 never say so.
        preempted: bool,
    },
    /// The thread, or its process, was named anew.
    Renamed {
        /// The name, zero-padded.
        name: [u8; 16],
    },
    /// The thread ended.
    Ended,
    /// So many records found the buffer full.
    Lost { count: u64 },
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }
}

/// Splits whole records off `bytes` and hands those that mean something to `sink`; returns how many
/// bytes could not be read as records.
pub fn parse(mut bytes: &[u8], mut sink: impl FnMut(Record)) -> usize {
    while let Some((header, _)) = bytes.split_first_chunk::<8>() {
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let misc = u32::from(u16::from_ne_bytes([header[4], header[5]]));
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size >= 8) else { break };
        if let Some(record) = one(kind, misc, &record[8..]) {
            sink(record);
        }
        bytes = rest;
    }
    bytes.len()
}

/// The end of every record that is not a sample: thread, time, identifier (`sample_id_all`).
const TRAILER: usize = 24;

fn one(kind: u32, misc: u32, body: &[u8]) -> Option<Record> {
    if kind == b::PERF_RECORD_SAMPLE {
        let mut body = Bytes(body);
        let (id, pid, tid, at_ns, abi) = (body.u64()?, body.u32()?, body.u32()?, body.u64()?, body.u64()?);
        if abi == u64::from(b::PERF_SAMPLE_REGS_ABI_NONE) {
            return None;
        }
        let mut registers = [0; ARGUMENTS];
        for register in &mut registers {
            *register = body.u64()?;
        }
        let arguments = REGISTERS.1.map(|place| registers[place]);
        return Some(Record { at_ns, pid, tid, what: What::Hit { id, arguments } });
    }
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let (mut body, mut trailer) = (Bytes(body), Bytes(trailer));
    let (mut pid, mut tid, at_ns) = (trailer.u32()?, trailer.u32()?, trailer.u64()?);
    let what = match kind {
        b::PERF_RECORD_SWITCH_CPU_WIDE | b::PERF_RECORD_SWITCH => {
            match misc & b::PERF_RECORD_MISC_SWITCH_OUT != 0 {
                true => What::SwitchOut { preempted: misc & b::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0 },
                false => What::SwitchIn,
            }
        }
        b::PERF_RECORD_COMM => {
            (pid, tid) = (body.u32()?, body.u32()?);
            let mut name = [0; 16];
            name.iter_mut().zip(body.0).for_each(|(to, from)| *to = *from);
            What::Renamed { name }
        }
        b::PERF_RECORD_EXIT => {
            let (of, _, thread, _) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            (pid, tid) = (of, thread);
            What::Ended
        }
        b::PERF_RECORD_LOST => {
            body.u64()?;
            What::Lost { count: body.u64()? }
        }
        _ => return None,
    };
    Some(Record { at_ns, pid, tid, what })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend((8 + words.len() as u16 * 8).to_ne_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    fn pair(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    fn read(bytes: &[u8]) -> (Vec<Record>, usize) {
        let mut records = Vec::new();
        let left = parse(bytes, |record| records.push(record));
        (records, left)
    }

    #[test]
    fn records_are_read_and_what_follows_a_torn_one_is_not() {
        let trailer = [pair(3, 4), 77, 9];
        let mut bytes = record(b::PERF_RECORD_SAMPLE, 0, &[5, pair(1, 2), 66, 2, 10, 11, 12, 13, 14]);
        bytes.extend(record(
            b::PERF_RECORD_SWITCH_CPU_WIDE,
            1 << 13,
            &[&[pair(8, 8)][..], &trailer].concat(),
        ));
        bytes.extend(record(b::PERF_RECORD_EXIT, 0, &[&[pair(1, 1), pair(2, 2), 70][..], &trailer].concat()));
        bytes.extend(record(b::PERF_RECORD_LOST, 0, &[&[9, 42][..], &trailer].concat()));
        bytes.extend(record(b::PERF_RECORD_MMAP, 0, &trailer));
        bytes.extend([1, 2, 3]);
        let (records, left) = read(&bytes);
        assert_eq!(left, 3);
        #[cfg(target_arch = "x86_64")]
        let arguments = [13, 12, 11, 10, 14];
        #[cfg(target_arch = "aarch64")]
        let arguments = [10, 11, 12, 13, 14];
        let expected = [
            Record { at_ns: 66, pid: 1, tid: 2, what: What::Hit { id: 5, arguments } },
            Record { at_ns: 77, pid: 3, tid: 4, what: What::SwitchOut { preempted: false } },
            Record { at_ns: 77, pid: 1, tid: 2, what: What::Ended },
            Record { at_ns: 77, pid: 3, tid: 4, what: What::Lost { count: 42 } },
        ];
        assert_eq!(records, expected);
    }

    proptest! {
        #[test]
        fn garbage_is_never_more_than_what_was_there(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let (records, left) = read(&bytes);
            prop_assert!(left <= bytes.len() && records.len() <= bytes.len() / 8);
        }
    }
}
