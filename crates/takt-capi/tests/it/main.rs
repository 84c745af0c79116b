//! The C and C++ faces from an installed prefix, with the compilers that are here.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod faces;
mod prefix;
