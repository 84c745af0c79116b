//! EtherCAT: the control interface over a master ([`control`]), and a simulated segment beside it ([`segment`]).

pub mod control;
pub mod segment;
