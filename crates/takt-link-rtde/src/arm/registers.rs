//! The general purpose registers through which Takt and the program on the robot talk.
//!
//! Registers 24 to 47 belong to external RTDE clients (RTDE guide); 0 to 23 belong to fieldbuses.
//! Every input has one owner: the safety job's connection owns the heartbeat, the mission's
//! connection owns the rest.
//!
//! | register | who writes | what |
//! |---|---|---|
//! | `input_int_register_24` | safety job | heartbeat, watched by `rtde_set_watchdog` |
//! | `input_int_register_25` | mission | move number; a new number is a new step |
//! | `input_int_register_26` | mission | kind of step |
//! | `input_double_register_24` to `29` | mission | target joint angles, rad |
//! | `input_double_register_30`, `31` | mission | speed rad/s and acceleration rad/s² of the leading joint |
//! | `input_int_register_27` | safety job | challenge, 1 to 1000000 |
//! | `output_int_register_24` | program | number of the newest finished step, 0 after a start |
//! | `output_int_register_25` | program | number of the newest step taken in, 0 after a start |
//! | `output_int_register_26` | program's watchdog | newest heartbeat that it has read |
//! | `output_int_register_27` | program's watchdog | answer to the challenge: three times it, and seven |
//! | `output_int_register_28` | program's watchdog | ten times its version, and 1 while it is armed |
//!
//! **What stays after a client has gone.** The maker's RTDE guide promises no clearing: input
//! registers, the speed slider and the outputs keep what was written last. So the program on the
//! robot never takes an old number for a new one, and does not move before it has seen a heartbeat
//! change and a challenge after its own start.

/// Input integer register of the heartbeat.
pub const HEARTBEAT: usize = 24;
/// Input integer register of the move number.
pub const MOVE_NUMBER: usize = 25;
/// Input integer register of the kind of step.
pub const MOVE_KIND: usize = 26;
/// First input double register of the joint angles.
pub const JOINTS: usize = 24;
/// Input double register of the speed.
pub const SPEED: usize = 30;
/// Input double register of the acceleration.
pub const ACCELERATION: usize = 31;
/// Input integer register of the challenge.
pub const CHALLENGE: usize = 27;
/// Output integer register of the heartbeat that the program's watchdog has read.
pub const SCRIPT_ECHO: usize = 26;
/// Output integer register of the answer to the challenge.
pub const ANSWER: usize = 27;
/// Output integer register of the watchdog's version and state.
pub const GUARD: usize = 28;
/// Version of the watchdog's side of this agreement.
pub const GUARD_VERSION: i32 = 2;
/// [`GUARD`]: the watchdog waits for the heartbeat.
pub const GUARD_WAITING: i32 = 10 * GUARD_VERSION;
/// [`GUARD`]: the watchdog is armed.
pub const GUARD_ARMED: i32 = GUARD_WAITING + 1;
/// Greatest challenge: three times it fits a register.
pub const MAX_CHALLENGE: i32 = 1_000_000;

/// The watchdog's answer to a challenge.
pub const fn answer(challenge: i32) -> i32 {
    challenge.wrapping_mul(3).wrapping_add(7)
}

/// Output integer register of the newest finished step.
pub const FINISHED: usize = 24;
/// Output integer register of the newest step taken in.
pub const TAKEN: usize = 25;

/// Kind: move the joints.
pub const KIND_MOVE_JOINTS: i32 = 1;
/// Kind: suction gripper on.
pub const KIND_SUCTION_ON: i32 = 2;
/// Kind: suction gripper off.
pub const KIND_SUCTION_OFF: i32 = 3;
