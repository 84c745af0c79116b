//! The general purpose registers through which Takt and the program on the robot talk.
//!
//! Registers 24 to 47 belong to external RTDE clients (RTDE guide); 0 to 23 belong to fieldbuses. Every input
//! has one owner: the safety job's connection owns the heartbeat, the mission's connection owns the rest.
//!
//! | register | who writes | what |
//! |---|---|---|
//! | `input_int_register_24` | safety job | heartbeat, watched by `rtde_set_watchdog` |
//! | `input_int_register_25` | mission | move number; a new number is a new step |
//! | `input_int_register_26` | mission | kind of step |
//! | `input_double_register_24` to `29` | mission | target joint angles, rad |
//! | `input_double_register_30`, `31` | mission | speed rad/s and acceleration rad/s² of the leading joint |
//! | `output_int_register_24` | program | number of the newest finished step, 0 after a start |
//! | `output_int_register_25` | program | number of the newest step taken in, 0 after a start |

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
