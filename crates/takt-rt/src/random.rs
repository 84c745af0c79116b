//! Numbers that are the same for the same seed: noise of simulated devices, costs of simulated
//! nodes, random test cases.

/// SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014):
/// eight bytes of state, any seed is as good as another. Not for secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        mix(self.0)
    }

    /// From 0 up to, without, 1.
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `from` to `to`, both included.
    pub const fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.bits() % (to - from + 1)
    }

    /// One time in so many.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.bits().is_multiple_of(times)
    }
}

/// The generator's finaliser: 64 well mixed bits of 64 bits, one to one.
#[must_use]
pub const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        // Of seed 1234567, by Vigna's reference implementation (prng.di.unimi.it/splitmix64.c).
        let mut random = SplitMix64::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| random.bits()), expected);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
        assert!((0..1000).all(|_| (3..=5).contains(&random.within(3, 5))));
    }
}
