//! Finds what makes a machine unfit for real time, with evidence and the fix.
