//! The one source of randomness: seeded, so that the same data gives the same report.

use rand::SeedableRng;

/// PCG with 128 bits of state and a 64-bit output: fast, and its stream is fixed by its definition.
pub(crate) type Pcg = rand_pcg::Pcg64Mcg;

/// A generator from a seed.
pub(crate) fn generator(seed: u64) -> Pcg {
    Pcg::seed_from_u64(seed)
}
