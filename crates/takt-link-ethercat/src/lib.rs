//! EtherCAT: the control interface over a master ([`control`]), a simulated segment beside it ([`segment`]), and frames as bytes
//! ([`frame`]).

pub mod control;
pub mod frame;
pub mod segment;
