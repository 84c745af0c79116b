//! Interference: noise threads and stress profiles.
