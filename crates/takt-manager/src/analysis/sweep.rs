//! Arrivals of all callbacks of an executor on one time line.
//!
//! The searches of one executor's analysis ask what arrives in intervals that only grow: from one
//! trial of a fixed point to the next, and from one activation under analysis to the next. So each
//! keeps a place on the time line, from which it looks for the next one, and every step has the sum
//! of all loads up to it, so that no search adds them up. The time line is made once for all
//! callbacks of the executor, and no further than it is asked for.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use super::Load;
use crate::curves::{Flows, Stretch};
use crate::workload::Activity;

/// One more arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// The shortest interval that has so many.
    pub at_ns: u64,
    /// Of which callback, by its place.
    pub demand: usize,
    /// How many of it there are.
    pub count: u64,
    /// What these ask for.
    pub load: Load,
    /// What the last of them adds.
    pub more: Load,
    /// What all callbacks ask for up to here.
    all: Load,
}

/// Arrivals of one callback.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    /// The shortest interval that has so many.
    pub at_ns: u64,
    pub count: u64,
    /// What these ask for.
    pub load: Load,
}

/// What arrives in an executor.
#[derive(Debug)]
pub(super) struct TimeLine<'a> {
    callbacks: Vec<(&'a Activity, Rc<Flows>)>,
    /// Steps at most.
    most: usize,
    made: RefCell<Made>,
}

#[derive(Debug)]
struct Made {
    steps: Vec<Step>,
    /// Of each step where it is: looked through far more often than the rest of it.
    at_ns: Vec<u64>,
    /// Places in `steps`, by callback.
    of: Vec<Vec<usize>>,
    /// Where each callback's next step is, and the count from there on.
    next: Vec<Stretch>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    /// All steps up to here are there.
    to_ns: u64,
}

impl<'a> TimeLine<'a> {
    /// Of these callbacks; searches that need more than `most` steps are given up.
    pub fn new(callbacks: Vec<(&'a Activity, Rc<Flows>)>, most: usize) -> Self {
        let nothing = Stretch { above_ns: 0, to_ns: 0, count: 0 };
        let mut queue = BinaryHeap::with_capacity(callbacks.len());
        let mut next = vec![nothing; callbacks.len()];
        for (demand, (_, flows)) in callbacks.iter().enumerate() {
            if let Some((at_ns, stretch)) = flows.risen(nothing) {
                next[demand] = stretch;
                queue.push(Reverse((at_ns, demand)));
            }
        }
        let made = Made {
            steps: Vec::new(),
            at_ns: Vec::new(),
            of: vec![Vec::new(); callbacks.len()],
            next,
            queue,
            to_ns: 0,
        };
        Self { callbacks, most, made: RefCell::new(made) }
    }

    /// Makes all steps up to there; `None`: too many.
    pub fn make(&self, to_ns: u64) -> Option<()> {
        if self.made.borrow().to_ns >= to_ns {
            return Some(());
        }
        let made = &mut *self.made.borrow_mut();
        while let Some(&Reverse((at_ns, demand))) = made.queue.peek()
            && at_ns <= to_ns
        {
            if made.steps.len() >= self.most {
                return None;
            }
            made.queue.pop();
            let (activity, flows) = &self.callbacks[demand];
            let stretch = made.next[demand];
            let load = activity.load(stretch.count);
            let more = load.without(made.loaded(demand, made.of[demand].len()));
            let all = made.all(made.steps.len()) + more;
            made.of[demand].push(made.steps.len());
            made.at_ns.push(at_ns);
            made.steps.push(Step { at_ns, demand, count: stretch.count, load, more, all });
            if let Some((at_ns, stretch)) = flows.risen(stretch) {
                made.next[demand] = stretch;
                made.queue.push(Reverse((at_ns, demand)));
            }
        }
        made.to_ns = made.to_ns.max(to_ns);
        Some(())
    }

    /// Steps of one callback up to and with intervals of this length.
    pub fn of(&self, demand: usize, to_ns: u64) -> Option<Vec<Own>> {
        self.make(to_ns)?;
        let made = self.made.borrow();
        let steps = made.of[demand].iter().map(|place| &made.steps[*place]);
        let own = |&Step { at_ns, count, load, .. }: &Step| Own { at_ns, count, load };
        Some(steps.take_while(|step| step.at_ns <= to_ns).map(own).collect())
    }

    /// Every step up to and with intervals of this length, in their order.
    pub fn each(&self, to_ns: u64, seen: impl FnMut(&Step)) -> Option<()> {
        self.make(to_ns)?;
        let made = self.made.borrow();
        made.steps.iter().take_while(|step| step.at_ns <= to_ns).for_each(seen);
        Some(())
    }

    /// What comes at one moment, from this step on, if that is within intervals of this length.
    pub fn moment(&self, from: usize, to_ns: u64, mut seen: impl FnMut(&Step)) -> Option<Moment> {
        self.make(to_ns)?;
        let made = self.made.borrow();
        let at_ns = made.at_ns.get(from).copied().filter(|at_ns| *at_ns <= to_ns)?;
        let all = made.steps[from..].iter();
        let steps = all.take_while(|step| step.at_ns == at_ns).inspect(|step| seen(step)).count();
        Some(Moment { at_ns, behind: from + steps })
    }

    /// A place on the time line, at its beginning.
    pub fn place(&self) -> Place<'_, 'a> {
        Place { line: self, passed: 0, at_ns: 0 }
    }

    /// The sum of all callbacks' loads, but for one's.
    pub fn sum(&self, but: Option<usize>) -> Sum<'_, 'a> {
        Sum { line: self, but, passed: 0, own: 0 }
    }
}

impl Made {
    /// What one callback asks for with so many of its steps.
    fn loaded(&self, demand: usize, steps: usize) -> Load {
        steps.checked_sub(1).map_or_else(Load::default, |last| self.steps[self.of[demand][last]].load)
    }

    /// What all ask for with so many steps.
    fn all(&self, steps: usize) -> Load {
        steps.checked_sub(1).map_or_else(Load::default, |last| self.steps[last].all)
    }
}

/// How many of these are no greater, of which so many are known to be near that: searches go on in
/// small steps, and now and then in great ones.
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

/// Where several callbacks may arrive at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// The shortest interval that has these.
    pub at_ns: u64,
    /// The step that comes next.
    pub behind: usize,
}

/// How far a search has come.
#[derive(Debug)]
pub(super) struct Place<'t, 'a> {
    line: &'t TimeLine<'a>,
    /// Steps behind it.
    passed: usize,
    at_ns: u64,
}

impl Place<'_, '_> {
    /// The interval's length here.
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Goes on to intervals of this length; `None`: too many steps.
    pub fn advance(&mut self, to_ns: u64, mut passed: impl FnMut(&Step)) -> Option<()> {
        if self.line.made.borrow().to_ns < to_ns {
            self.line.make(to_ns)?;
        }
        let made = self.line.made.borrow();
        for step in &made.steps[self.passed..] {
            if step.at_ns > to_ns {
                break;
            }
            self.passed += 1;
            passed(step);
        }
        self.at_ns = to_ns;
        Some(())
    }
}

/// A sum of loads that grows with the interval.
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
    /// What arrives in an interval of this length; `None`: too much to be counted.
    pub fn load(&mut self, delta_ns: u64) -> Option<Load> {
        if self.line.made.borrow().to_ns < delta_ns {
            self.line.make(delta_ns)?;
        }
        let made = self.line.made.borrow();
        self.passed = up_to(&made.at_ns, self.passed, |at_ns| *at_ns <= delta_ns);
        let all = made.all(self.passed);
        let Some(of) = self.but.and_then(|but| Some((but, made.of.get(but)?))) else { return Some(all) };
        self.own = up_to(of.1, self.own, |place| *place < self.passed);
        Some(all.without(made.loaded(of.0, self.own)))
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
            let line = TimeLine::new(callbacks.iter().map(|(a, f)| (a, f.clone())).collect(), 1_000_000);
            let mut sum = line.sum(Some(but));
            for delta in asked {
                let expected: Load = callbacks.iter().enumerate().filter(|(i, _)| *i != but)
                    .map(|(_, (activity, flows))| activity.load(flows.count(delta))).sum();
                prop_assert_eq!(sum.load(delta), Some(expected), "in {} ns", delta);
            }
            for (i, (_, flows)) in callbacks.iter().enumerate() {
                let listed: Vec<u64> = line.of(i, 300).unwrap().iter().map(|step| step.at_ns).collect();
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
        let line = TimeLine::new(vec![(&work, Rc::new(flows))], 5);
        assert_eq!(line.sum(None).load(31).map(|load| load.work_ns), Some(4));
        assert_eq!(line.sum(None).load(1000), None);
        assert_eq!(line.sum(None).load(31).map(|load| load.work_ns), Some(4), "what was made stays");
    }
}
