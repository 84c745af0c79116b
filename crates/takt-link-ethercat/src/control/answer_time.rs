//! When the answer of a cycle usually is there: a waiting exchange sleeps until then and looks
//! once.
//!
//! A thread that blocks in the kernel until a frame arrives sets a timer for the case that none
//! does, and cancels it: two writes to the timer's hardware, which cost two exits in a virtual
//! machine. A sleep that ends on its own costs one. So the time by which [`IN_TIME`] of all answers
//! have arrived is estimated, cycle by cycle, by stochastic approximation of a quantile (Robbins
//! and Monro, Ann. Math. Statist. 22, 1951): a step down with each answer that is there,
//! [`IN_TIME`] times as many up with each that is not.

/// So many answers are to be there when the sleep ends for one that is not, and is blocked for.
const IN_TIME: u64 = 19;
/// A step down. Follows a bus that became 50 us faster within 500 cycles, and holds the estimate
/// within 2 us.
const STEP_NS: u64 = 100;
/// Shortest sleep worth the call.
const MIN_NS: u64 = 5_000;

/// The estimate, in nanoseconds after sending.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AnswerTime {
    usual_ns: u64,
}

impl AnswerTime {
    /// Time to sleep after sending; `None` while it is unknown, or not worth it.
    pub fn sleep_ns(self) -> Option<u64> {
        (self.usual_ns >= MIN_NS).then_some(self.usual_ns)
    }

    /// Everything expected was there after the sleep.
    pub(crate) fn was_there(&mut self) {
        self.usual_ns = self.usual_ns.saturating_sub(STEP_NS);
    }

    /// Everything expected had come after `after_ns`, and it was blocked for. A frame that never
    /// came says nothing.
    pub fn came(&mut self, after_ns: u64) {
        if after_ns < self.usual_ns {
            // Nobody slept: the estimate was beyond the waiting time.
            return self.was_there();
        }
        // However much later it came: one cycle in which the segment was held up says little of the
        // next.
        self.usual_ns += IN_TIME * STEP_NS;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One cycle with an answer after `answer_ns`, for a sleep that ends `late_ns` late; whether it
    /// was there.
    fn cycle(estimate: &mut AnswerTime, answer_ns: u64, late_ns: u64) -> bool {
        let there = estimate.sleep_ns().is_some_and(|sleep_ns| sleep_ns + late_ns >= answer_ns);
        if there {
            estimate.was_there()
        } else {
            estimate.came(answer_ns)
        }
        there
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The share that is there is the quantile, whatever the bus and however late sleeps end,
        /// and it follows a change.
        #[test]
        fn nineteen_of_twenty_answers_are_there_after_the_sleep(
            seed in any::<u64>(),
            base_ns in 20_000..300_000_u64,
            spread_ns in 1..60_000_u64,
            late_ns in 0..10_000_u64,
            changed_ns in 20_000..300_000_u64,
        ) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            };
            let mut estimate = AnswerTime::default();
            for base_ns in [base_ns, changed_ns] {
                let mut there = 0;
                for at in 0..10_000 {
                    let answer_ns = base_ns + next() % spread_ns;
                    there += u32::from(cycle(&mut estimate, answer_ns, late_ns) && at >= 5_000);
                }
                prop_assert!((4_600..=4_900).contains(&there), "{there} of 5000 at {estimate:?}");
            }
        }
    }

    #[test]
    fn one_answer_that_was_held_up_moves_the_estimate_by_one_step() {
        let mut estimate = AnswerTime::default();
        (0..1000)
            .for_each(|_| assert!(cycle(&mut estimate, 50_000, 0) || estimate.sleep_ns() < Some(52_000)));
        let before_ns = estimate.sleep_ns().unwrap();
        estimate.came(1_000_000_000);
        assert!(estimate.sleep_ns().unwrap() - before_ns <= 2_000);
        estimate.came(u64::MAX);
        estimate.came(0);
        assert!(estimate.sleep_ns().unwrap() - before_ns <= 4_000);
    }

    #[test]
    fn an_estimate_beyond_the_waiting_time_comes_back() {
        let mut estimate = AnswerTime::default();
        (0..1000).for_each(|_| estimate.came(900_000));
        (0..10_000).for_each(|_| estimate.came(40_000));
        assert!(estimate.sleep_ns().unwrap() <= 42_000, "{estimate:?}");
    }

    #[test]
    fn answers_that_are_there_at_once_are_not_slept_for() {
        let mut estimate = AnswerTime::default();
        (0..2).for_each(|_| estimate.came(1_000));
        assert_eq!(estimate.sleep_ns(), None);
        (0..100).for_each(|_| estimate.was_there());
        assert_eq!(estimate.sleep_ns(), None);
    }
}
