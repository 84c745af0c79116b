//! Scripted streams, one for each thing that the extractor must see.

mod bursts;
mod deliveries;
mod faults;
mod features;
mod guards;
mod passed_over;
mod script;
mod simulation;
mod suspensions;
