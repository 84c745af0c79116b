//! Arrivals of all callbacks of an executor on one time line.
//!
//! The searches of one executor's analysis ask again and again what arrives in nearly the same
//! intervals. So each keeps the place where it looked last, from which it looks for the next one,
//! and every step has the sum of all loads up to it, so that no search adds them up. The time line
//! is made once for all callbacks of the executor, and no further than it is asked for.

use std::cell::{Ref, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::rc::Rc;

use super::Load;
use crate::curves::{Flows, Rising};
use crate::workload::Activity;

/// One more arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Of which callback, by its place.
    pub demand: usize,
    /// Their number.
    pub count: u64,
    /// Load of the last of them.
    pub more: Load,
}

/// Arrivals of one callback.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    /// The shortest interval that has so many.
    pub at_ns: u64,
    pub count: u64,
    /// Their load.
    pub load: Load,
}

/// Arrivals in an executor.
#[derive(Debug)]
pub(super) struct TimeLine<'a> {
    callbacks: Vec<(&'a Activity, Rc<Flows>)>,
    /// Steps at most.
    most: usize,
    made: RefCell<Made>,
}

/// Steps of all callbacks as they come, each in three parts, since searches look at where they are
/// far more often than at the rest.
#[derive(Debug, Default)]
pub(super) struct Made {
    at_ns: Vec<u64>,
    steps: Vec<Step>,
    /// Load of all callbacks up to each step.
    all: Vec<Load>,
    /// The steps of each callback.
    of: Vec<Vec<Own>>,
    rising: Vec<Rising>,
    /// Each callback's next step, and their number at that point.
    queue: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// All steps up to here are there.
    to_ns: u64,
}

impl<'a> TimeLine<'a> {
    /// Of these callbacks; searches that need more than `most` steps are given up. In the memory of
    /// one that is not needed any more.
    pub fn new(callbacks: Vec<(&'a Activity, Rc<Flows>)>, most: usize, old: Option<Self>) -> Self {
        let mut made = old.map(|old| old.made.into_inner()).unwrap_or_default();
        made.clear(callbacks.len());
        let Made { rising, queue, .. } = &mut made;
        for (demand, (rising, (_, flows))) in rising.iter_mut().zip(&callbacks).enumerate() {
            queue.extend(rising.next(flows).map(|(at_ns, count)| Reverse((at_ns, demand, count))));
        }
        Self { callbacks, most, made: RefCell::new(made) }
    }

    /// Makes all steps up to there; `None`: too many.
    pub fn make(&self, to_ns: u64) -> Option<()> {
        if self.made.borrow().to_ns >= to_ns {
            return Some(());
        }
        let made = &mut *self.made.borrow_mut();
        while let Some(mut next) = made.queue.peek_mut()
            && next.0.0 <= to_ns
        {
            if made.at_ns.len() >= self.most {
                return None;
            }
            let Reverse((at_ns, demand, count)) = *next;
            let (activity, flows) = &self.callbacks[demand];
            match made.rising[demand].next(flows) {
                Some((at_ns, count)) => *next = Reverse((at_ns, demand, count)),
                None => {
                    PeekMut::pop(next);
                }
            }
            let load = activity.load(count);
            let of = &mut made.of[demand];
            let more = of.last().map_or(load, |last| load.without(last.load));
            of.push(Own { at_ns, count, load });
            let all = made.all.last().map_or(more, |all| *all + more);
            made.at_ns.push(at_ns);
            made.steps.push(Step { demand, count, more });
            made.all.push(all);
        }
        made.to_ns = made.to_ns.max(to_ns);
        Some(())
    }

    /// Number of a callback's steps up to and including intervals of this length; `None`: too many.
    pub fn steps_of(&self, demand: usize, to_ns: u64) -> Option<usize> {
        self.make(to_ns)?;
        Some(self.made.borrow().of[demand].partition_point(|step| step.at_ns <= to_ns))
    }

    /// One of them, in their order.
    pub fn step_of(&self, demand: usize, number: usize) -> Own {
        self.made.borrow().of[demand][number]
    }

    /// Positions of the steps, up to and including intervals of this length.
    pub fn moments(&self, to_ns: u64) -> Option<Vec<u64>> {
        self.make(to_ns)?;
        let made = self.made.borrow();
        let mut moments: Vec<u64> = made.at_ns.iter().copied().take_while(|at_ns| *at_ns <= to_ns).collect();
        moments.dedup();
        Some(moments)
    }

    /// The steps with all up to intervals of this length; `None`: too many.
    pub fn up_to(&self, to_ns: u64) -> Option<Ref<'_, Made>> {
        self.make(to_ns)?;
        Some(self.made.borrow())
    }

    /// The sum of all callbacks' loads, but for one's.
    pub fn sum(&self, but: Option<usize>) -> Sum<'_, 'a> {
        Sum { line: self, but, passed: 0, own: 0 }
    }
}

impl Made {
    /// For so many callbacks, without a step.
    fn clear(&mut self, callbacks: usize) {
        self.at_ns.clear();
        self.steps.clear();
        self.all.clear();
        self.of.resize_with(callbacks, Vec::new);
        self.of.iter_mut().for_each(Vec::clear);
        self.rising.resize_with(callbacks, Rising::default);
        self.rising.iter_mut().for_each(Rising::clear);
        self.queue.clear();
        self.to_ns = 0;
    }

    /// Steps from this one on, and where they are.
    pub fn steps(&self, from: usize) -> impl Iterator<Item = (u64, &Step)> + '_ {
        self.at_ns[from..].iter().copied().zip(&self.steps[from..])
    }

    /// Steps from one on and up to another.
    pub fn between(&self, from: usize, to: usize) -> &[Step] {
        self.steps.get(from..to).unwrap_or_default()
    }

    /// Steps in intervals of this length, of which there were `near` when it was asked last.
    pub fn passed(&self, near: usize, delta_ns: u64) -> usize {
        up_to(&self.at_ns, near, |at_ns| *at_ns <= delta_ns)
    }

    /// Position of this step, or of the last one.
    pub fn at_ns(&self, step: usize) -> u64 {
        self.at_ns.get(step).or(self.at_ns.last()).copied().unwrap_or(0)
    }

    /// Load of one callback in intervals of this length; `near` is the number of its steps at the
    /// previous call.
    pub fn of(&self, demand: usize, near: &mut usize, delta_ns: u64) -> Option<&Own> {
        let steps = &self.of[demand];
        *near = up_to(steps, *near, |step| step.at_ns <= delta_ns);
        near.checked_sub(1).map(|last| &steps[last])
    }
}

/// Number of values that are no greater, near a known number: searches advance in small steps, and
/// now and then in large ones.
fn up_to<T>(all: &[T], near: usize, is_passed: impl Fn(&T) -> bool) -> usize {
    let (mut low, mut width) = (near, 1);
    if near == 0 || all.get(near - 1).is_some_and(&is_passed) {
        while all.get(low + width - 1).is_some_and(&is_passed) {
            low += width;
            width *= 2;
        }
        let high = (low + width - 1).min(all.len());
        return low + all[low..high].partition_point(is_passed);
    }
    all[..near.min(all.len())].partition_point(is_passed)
}

/// A sum of loads.
#[derive(Debug)]
pub(super) struct Sum<'t, 'a> {
    line: &'t TimeLine<'a>,
    but: Option<usize>,
    /// Steps up to the last interval.
    passed: usize,
    /// Those of the callback that is left out.
    own: usize,
}

impl Sum<'_, '_> {
    /// Load that arrives in an interval of this length; `None`: too much to be counted.
    pub fn load(&mut self, delta_ns: u64) -> Option<Load> {
        let made = self.line.up_to(delta_ns)?;
        self.passed = made.passed(self.passed, delta_ns);
        let all = self.passed.checked_sub(1).map_or_else(Load::default, |last| made.all[last]);
        let own = self.but.filter(|but| *but < made.of.len());
        let own = own.and_then(|but| made.of(but, &mut self.own, delta_ns));
        Some(own.map_or(all, |own| all.without(own.load)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use takt_model::ArrivalCurve;

    use super::*;
    use crate::curves::{Cost, Counts, Spans};

    fn activity(costs: &[u64]) -> Activity {
        Activity {
            name: String::new(),
            server: 0,
            timer: false,
            cost: Arc::new(Cost::new(costs, 0.0)),
            suspension: None,
            delivery_ns: None,
            own_delivery_ns: None,
            undelivered: false,
            arrived: false,
            root: None,
            inputs: Vec::new(),
            trouble: None,
        }
    }

    proptest! {
        /// Whatever is asked in whatever order: what arrives is what each callback's own arrivals
        /// say.
        #[test]
        fn a_sum_is_that_of_the_callbacks(
            curves in prop::collection::vec((prop::collection::vec(0_u64..60, 1..6), prop::collection::vec(1_u64..9, 1..4)), 1..5),
            jitters in prop::collection::vec(0_u64..90, 1..3),
            counts in prop::collection::vec(0_u64..4, 1..4),
            asked in prop::collection::vec(0_u64..300, 1..60),
            but in 0_usize..6,
        ) {
            let counts = Arc::new(Counts::measured(&counts, 3));
            let mut callbacks = Vec::new();
            for (root, (mut ns, costs)) in curves.into_iter().enumerate() {
                ns.sort_unstable();
                prop_assume!(ns.last() != Some(&0));
                let curve = ArrivalCurve { seen: ns.len() as u64 + 1, least_span_ns: ns, observed_ns: 1000 };
                let root = Flows::root(root, Arc::new(Spans::measured(&curve, 0.0).unwrap()));
                let mut flows = Flows::none();
                jitters.iter().for_each(|jitter| flows.add(&root, *jitter, &counts));
                callbacks.push((activity(&costs), Rc::new(flows)));
            }
            let line = TimeLine::new(callbacks.iter().map(|(a, f)| (a, f.clone())).collect(), 1_000_000, None);
            let mut sum = line.sum(Some(but));
            for delta in asked {
                let expected: Load = callbacks.iter().enumerate().filter(|(i, _)| *i != but)
                    .map(|(_, (activity, flows))| activity.load(flows.count(delta))).sum();
                prop_assert_eq!(sum.load(delta), Some(expected), "in {} ns", delta);
            }
            for (i, (_, flows)) in callbacks.iter().enumerate() {
                let steps = line.steps_of(i, 300).unwrap();
                let listed: Vec<u64> = (0..steps).map(|step| line.step_of(i, step).at_ns).collect();
                let mut risen: Vec<u64> = (1..=300).filter(|d| flows.count(d - 1) < flows.count(*d)).collect();
                risen.dedup();
                prop_assert_eq!(listed, risen);
            }
        }
    }

    #[test]
    fn more_steps_than_allowed_are_no_sum() {
        let curve = ArrivalCurve { seen: 9, least_span_ns: vec![10], observed_ns: 1000 };
        let flows = Flows::root(0, Arc::new(Spans::measured(&curve, 0.0).unwrap()));
        let work = activity(&[1]);
        let line = TimeLine::new(vec![(&work, Rc::new(flows))], 5, None);
        assert_eq!(line.sum(None).load(31).map(|load| load.work_ns), Some(4));
        assert_eq!(line.sum(None).load(1000), None);
        assert_eq!(line.sum(None).load(31).map(|load| load.work_ns), Some(4), "what was made stays");
    }
}
