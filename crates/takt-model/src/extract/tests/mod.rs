//! Scripted streams, one for each thing that the extractor must see.

mod faults;
mod features;
mod script;
mod simulation;
