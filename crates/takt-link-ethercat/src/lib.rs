//! EtherCAT: the control interface over a master ([`control`]), a simulated segment beside it
//! ([`segment`]), frames as bytes ([`frame`]), captures of them ([`capture`]), and what captures
//! report ([`analyse`]).

#![deny(missing_docs)]

pub mod analyse;
pub mod capture;
pub mod control;
pub mod frame;
pub mod segment;
