//! Programs for the kernel's virtual machine (BPF): an assembler for them, and the system call that
//! loads and attaches them. The programs that follow threads in the kernel (`takt-trace`) and take
//! frames off an interface (`takt-link-ethercat`) are written with it.

mod asm;
mod sys;

pub use asm::{Asm, FP, Helper, If, Instruction, Label, R0, R1, R2, R3, R4, R6, R7, R8, R9, Reg};
pub use sys::{Map, MapKind, Program, ProgramKind, Ring, XdpMode};
