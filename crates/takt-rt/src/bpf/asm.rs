//! A small assembler for the kernel's virtual machine
//! (Documentation/bpf/standardization/instruction-set.rst): what the programs here need of it, with
//! labels.

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(u8);

/// Result of a call.
pub const R0: Reg = Reg(0);
/// First argument of a call; the context at the begin.
pub const R1: Reg = Reg(1);
/// Second argument of a call.
pub const R2: Reg = Reg(2);
/// Third argument of a call.
pub const R3: Reg = Reg(3);
/// Fourth argument of a call.
pub const R4: Reg = Reg(4);
/// R6 to R9 keep their values over calls.
pub const R6: Reg = Reg(6);
/// See [`R6`].
pub const R7: Reg = Reg(7);
/// See [`R6`].
pub const R8: Reg = Reg(8);
/// See [`R6`].
pub const R9: Reg = Reg(9);
/// The end of the stack of 512 bytes; read only.
pub const FP: Reg = Reg(10);

/// Helper functions of the kernel, by their numbers in `include/uapi/linux/bpf.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// `bpf_map_lookup_elem`.
    MapLookup = 1,
    /// `bpf_map_update_elem`.
    MapUpdate = 2,
    /// CLOCK_MONOTONIC.
    KtimeGetNs = 5,
    /// Number of this CPU.
    SmpProcessorId = 8,
    /// Thread id in the lower half.
    CurrentPidTgid = 14,
    /// The frame goes to the socket of its queue.
    RedirectMap = 51,
    /// Makes room before a frame.
    XdpAdjustMeta = 54,
    /// A record into a ring.
    RingbufOutput = 130,
}

/// A comparison without signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum If {
    /// `==`.
    Equal = 0x10,
    /// `>`.
    Greater = 0x20,
    /// `>=`.
    GreaterEqual = 0x30,
    /// `!=`.
    NotEqual = 0x50,
}

/// A place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// An instruction, or half of a long one (`struct bpf_insn` of linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    opcode: u8,
    /// Destination in the low half, source in the high one, on little-endian machines; the other
    /// way round on big-endian ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// A program under way.
#[derive(Debug, Default)]
pub struct Asm {
    code: Vec<Instruction>,
    /// Jumps, and where they lead.
    jumps: Vec<(usize, Label)>,
    places: Vec<Option<usize>>,
}

const LDX_MEM: u8 = 0x61;
const ST_MEM: u8 = 0x62;
const STX_MEM: u8 = 0x63;
const LD_IMM64: u8 = 0x18;
const JMP: u8 = 0x05;
const ALU64: u8 = 0x07;
const FROM_REG: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The bits of a size in an opcode of memory.
const DOUBLE: u8 = 0x18;
/// The immediate value is the descriptor of a map.
const PSEUDO_MAP_FD: Reg = Reg(1);

impl Asm {
    fn push(&mut self, opcode: u8, dst: Reg, src: Reg, offset: i16, imm: i32) {
        let registers = if cfg!(target_endian = "little") { dst.0 | src.0 << 4 } else { dst.0 << 4 | src.0 };
        self.code.push(Instruction { opcode, registers, offset, immediate: imm });
    }

    /// A place that is not known yet.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub fn here(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    /// `dst = src`.
    pub fn mov(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | 0xb0 | FROM_REG, dst, src, 0, 0);
    }

    /// `dst = value`, with its sign.
    pub fn set(&mut self, dst: Reg, value: i32) {
        self.push(ALU64 | 0xb0, dst, R0, 0, value);
    }

    /// `dst = value`, of 64 bits.
    pub fn set_wide(&mut self, dst: Reg, value: u64) {
        self.push(LD_IMM64, dst, R0, 0, value as u32 as i32);
        self.push(0, R0, R0, 0, (value >> 32) as u32 as i32);
    }

    /// `dst` is the map of this descriptor.
    pub fn set_map(&mut self, dst: Reg, fd: i32) {
        self.push(LD_IMM64, dst, PSEUDO_MAP_FD, 0, fd);
        self.push(0, R0, R0, 0, 0);
    }

    /// `dst += value`.
    pub fn add(&mut self, dst: Reg, value: i32) {
        self.push(ALU64, dst, R0, 0, value);
    }

    /// `dst += src`.
    pub fn add_reg(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | FROM_REG, dst, src, 0, 0);
    }

    /// `dst -= src`.
    pub fn sub_reg(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | 0x10 | FROM_REG, dst, src, 0, 0);
    }

    /// `dst |= src`.
    pub fn or_reg(&mut self, dst: Reg, src: Reg) {
        self.push(ALU64 | 0x40 | FROM_REG, dst, src, 0, 0);
    }

    /// `dst &= value`.
    pub fn and(&mut self, dst: Reg, value: i32) {
        self.push(ALU64 | 0x50, dst, R0, 0, value);
    }

    /// Loads 8 bytes.
    pub fn load(&mut self, dst: Reg, base: Reg, offset: i16) {
        self.push(LDX_MEM | DOUBLE, dst, base, offset, 0);
    }

    /// Loads 1, 2, 4 or 8 bytes.
    pub fn load_sized(&mut self, dst: Reg, base: Reg, offset: i16, bytes: usize) {
        let size = match bytes {
            1 => 0x10,
            2 => 0x08,
            4 => 0x00,
            _ => DOUBLE,
        };
        self.push(LDX_MEM | size, dst, base, offset, 0);
    }

    /// Stores 8 bytes.
    pub fn store(&mut self, base: Reg, offset: i16, src: Reg) {
        self.push(STX_MEM | DOUBLE, base, src, offset, 0);
    }

    /// Stores 4 bytes.
    pub fn store_half(&mut self, base: Reg, offset: i16, src: Reg) {
        self.push(STX_MEM, base, src, offset, 0);
    }

    /// Stores 8 bytes.
    pub fn store_value(&mut self, base: Reg, offset: i16, value: i32) {
        self.push(ST_MEM | DOUBLE, base, R0, offset, value);
    }

    /// On at `to`.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP, R0, R0, 0, 0);
    }

    /// On at `to`, if.
    pub fn jump_if(&mut self, left: Reg, relation: If, right: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP | relation as u8, left, R0, 0, right);
    }

    /// On at `to`, if.
    pub fn jump_if_reg(&mut self, left: Reg, relation: If, right: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JMP | relation as u8 | FROM_REG, left, right, 0, 0);
    }

    /// Calls it with R1 and on; the result is in R0, and R1 to R5 are gone.
    pub fn call(&mut self, helper: Helper) {
        self.push(CALL, R0, R0, 0, helper as i32);
    }

    /// Ends with this result.
    pub fn exit(&mut self, result: i32) {
        self.set(R0, result);
        self.end();
    }

    /// Ends with what R0 holds.
    pub fn end(&mut self) {
        self.push(EXIT, R0, R0, 0, 0);
    }

    /// The instructions; None where a label was never placed or lies too far away.
    pub fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, label) in self.jumps {
            self.code[at].offset = i16::try_from(self.places[label.0]? as i64 - at as i64 - 1).ok()?;
        }
        Some(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings as `llvm-mc -triple bpfel -show-encoding` prints them.
    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_encoded_as_llvm_does() {
        let mut asm = Asm::default();
        let end = asm.label();
        asm.mov(R6, R1);
        asm.load_sized(R1, R6, 24, 4);
        asm.store_half(FP, -4, R1);
        asm.store_value(FP, -16, 7);
        asm.set_wide(R2, 0x1_0000_0002);
        asm.jump_if(R0, If::Equal, 0, end);
        asm.jump_if_reg(R1, If::Greater, R2, end);
        asm.sub_reg(R1, R2);
        asm.call(Helper::KtimeGetNs);
        asm.here(end);
        asm.exit(1);
        let bytes = |one: &Instruction| {
            let ([a, b], [c, d, e, f]) = (one.offset.to_le_bytes(), one.immediate.to_le_bytes());
            [one.opcode, one.registers, a, b, c, d, e, f]
        };
        let bytes: Vec<[u8; 8]> = asm.finish().unwrap().iter().map(bytes).collect();
        assert_eq!(
            bytes,
            [
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
                [0x61, 0x61, 0x18, 0, 0, 0, 0, 0],
                [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0],
                [0x7a, 0x0a, 0xf0, 0xff, 7, 0, 0, 0],
                [0x18, 0x02, 0, 0, 2, 0, 0, 0],
                [0, 0, 0, 0, 1, 0, 0, 0],
                [0x15, 0x00, 3, 0, 0, 0, 0, 0],
                [0x2d, 0x21, 2, 0, 0, 0, 0, 0],
                [0x1f, 0x21, 0, 0, 0, 0, 0, 0],
                [0x85, 0, 0, 0, 5, 0, 0, 0],
                [0xb7, 0, 0, 0, 1, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn a_label_that_is_nowhere_is_no_program() {
        let mut asm = Asm::default();
        let nowhere = asm.label();
        asm.jump(nowhere);
        assert_eq!(asm.finish(), None);
    }
}
