//! Load of other callbacks before a callback starts, while the searches of one analysis proceed.

use super::{Interference, Load, Served};

/// Number of steps skipped at once; it grows as long as that succeeds.
#[derive(Default)]
pub(super) struct Pace {
    pub more: usize,
    /// So often no more than the last time.
    hold: usize,
}

impl Pace {
    pub fn passed(&mut self) {
        match self.hold.checked_sub(1) {
            Some(hold) => self.hold = hold,
            None => self.more = 2 * self.more + 1,
        }
    }

    pub fn missed(&mut self) {
        (self.more, self.hold) = (self.more / 2, 2);
    }
}

/// Buffers that the analyses of one callback reuse from one to the next.
#[derive(Debug, Default)]
pub(in crate::analysis) struct Scratch {
    kinds: Vec<Interference>,
    at: At,
    kept: At,
    touched: Touched,
}

/// So many steps are taken one by one.
const FEW: usize = 16;

/// Callbacks with steps in some interval, and how many of each there are behind it.
#[derive(Debug, Default)]
struct Touched {
    which: Vec<usize>,
    /// 0: not among these.
    counts: Vec<u64>,
}

impl Touched {
    fn touch(&mut self, i: usize, count: u64) {
        if std::mem::replace(&mut self.counts[i], count) == 0 {
            self.which.push(i);
        }
    }

    fn drain(&mut self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let Self { which, counts } = self;
        which.drain(..).map(|i| (i, std::mem::take(&mut counts[i])))
    }
}

/// An offset and a start, and what counts there.
#[derive(Debug, Default)]
struct At {
    /// Steps up to the start,
    start: usize,
    /// and up to the offset.
    offset: usize,
    /// Activations of the callback itself up to the offset.
    activations: usize,
    arrived: Vec<u64>,
    /// Instances of a callback that count at most, of a polled one those that arrived before the
    /// offset among them.
    most: Vec<u64>,
    total: Load,
}

impl Scratch {
    /// For another callback, in whose eyes others count so.
    pub(super) fn begin(&mut self, kinds: impl Iterator<Item = Interference>) {
        self.kinds.clear();
        self.kinds.extend(kinds);
        self.touched.which.clear();
        self.touched.counts.clear();
        self.touched.counts.resize(self.kinds.len(), 0);
    }
}

/// Load of callbacks other than the one under analysis until it starts (RTSS'21, definition 5), as
/// its offset and the start grow, and the places where the latest start may change (Lemma 19).
pub(super) struct Others<'t, 'a> {
    served: &'t Served<'a>,
    own: usize,
    points: u64,
    /// Later offsets are not looked at.
    last_ns: u64,
    offset_ns: u64,
    scratch: &'t mut Scratch,
}

impl<'t, 'a> Others<'t, 'a> {
    pub fn new(
        served: &'t Served<'a>,
        own: usize,
        points: u64,
        last_ns: u64,
        scratch: &'t mut Scratch,
    ) -> Self {
        let Scratch { kinds, at, .. } = &mut *scratch;
        let At { start, offset, activations, arrived, most, total } = at;
        (*start, *offset, *activations, *total) = (0, 0, 0, Load::default());
        most.clear();
        most.extend(kinds.iter().map(|kind| match kind {
            Interference::Polled(more) => points.saturating_add(*more),
            // Of the one under analysis none count.
            Interference::Own => 0,
            Interference::All => u64::MAX,
        }));
        arrived.clear();
        arrived.resize(kinds.len(), 0);
        Self { served, own, points, last_ns, offset_ns: 0, scratch }
    }

    /// The activation under analysis comes so late in the busy window; not earlier than the one
    /// before.
    pub fn offset(&mut self, offset_ns: u64) {
        let Some(made) = self.served.line.up_to(offset_ns + 1) else { return };
        self.offset_ns = offset_ns;
        let Scratch { kinds, at, touched, .. } = &mut *self.scratch;
        let passed = made.passed(at.offset, offset_ns).max(at.offset);
        // Of each callback only its last step matters.
        for step in made.between(at.offset, passed) {
            touched.touch(step.demand, step.count);
        }
        at.offset = passed;
        for (i, count) in touched.drain() {
            let Interference::Polled(more) = kinds[i] else { continue };
            let before = at.most[i];
            at.most[i] = count.saturating_add(self.points).saturating_add(more);
            if at.arrived[i] > before {
                let activity = self.served.demands[i].activity;
                let counts = activity.load(at.arrived[i].min(at.most[i]));
                at.total = at.total + counts.without(activity.load(before));
            }
        }
    }

    /// Activations of the callback itself up to and with the one under analysis.
    pub fn activations(&mut self) -> u64 {
        let Some(made) = self.served.line.up_to(self.offset_ns + 1) else { return 0 };
        let own = made.of(self.own, &mut self.scratch.at.activations, self.offset_ns + 1);
        own.map_or(0, |step| step.count)
    }

    /// All that counts if it starts then; not earlier than asked before.
    pub fn until(&mut self, start_ns: u64) -> Option<Load> {
        let made = self.served.line.up_to(start_ns)?;
        let Scratch { at: At { start, arrived, most, total, .. }, touched, .. } = &mut *self.scratch;
        let passed = made.passed(*start, start_ns).max(*start);
        if passed - *start > FEW {
            for step in made.between(*start, passed) {
                touched.touch(step.demand, step.count);
            }
            for (i, count) in touched.drain() {
                let before = std::mem::replace(&mut arrived[i], count);
                if before < most[i] {
                    let activity = self.served.demands[i].activity;
                    let more = activity.load(count.min(most[i])).without(activity.load(before));
                    *total = *total + more;
                }
            }
        } else {
            for step in made.between(*start, passed) {
                let i = step.demand;
                let before = std::mem::replace(&mut arrived[i], step.count);
                if before >= most[i] {
                    continue;
                }
                let more = match step.count <= most[i] {
                    true => step.more,
                    false => {
                        let activity = self.served.demands[i].activity;
                        activity.load(most[i]).without(activity.load(before))
                    }
                };
                *total = *total + more;
            }
        }
        *start = passed;
        Some(*total)
    }

    /// The next offset; `None`: there is none to be looked at.
    pub fn behind(&self) -> Option<u64> {
        let made = self.served.line.up_to(self.offset_ns)?;
        let mut polled = None;
        for (at_ns, step) in made.steps(self.scratch.at.offset) {
            // At one moment the callback itself is the earlier one.
            if polled.is_some_and(|polled| at_ns > polled) || at_ns > self.last_ns {
                break;
            }
            match self.scratch.kinds[step.demand] {
                Interference::Own if at_ns - 1 > self.offset_ns => return Some(at_ns - 1),
                Interference::Polled(_) => polled = Some(at_ns),
                Interference::Own | Interference::All => {}
            }
        }
        polled
    }

    /// An offset so many steps behind this one, or this one.
    pub fn further(&self, offset_ns: u64, steps: usize) -> u64 {
        if steps == 0 {
            return offset_ns;
        }
        let Some(made) = self.served.line.up_to(offset_ns) else { return offset_ns };
        let here = made.passed(self.scratch.at.offset, offset_ns);
        made.at_ns(here + steps - 1).min(self.last_ns - 1).max(offset_ns)
    }

    /// Saves the position, to return to it.
    pub fn keep(&mut self) {
        let Scratch { at, kept, .. } = &mut *self.scratch;
        let (arrived, most) = (std::mem::take(&mut kept.arrived), std::mem::take(&mut kept.most));
        *kept = At { arrived, most, ..*at };
        kept.arrived.clone_from(&at.arrived);
        kept.most.clone_from(&at.most);
    }

    pub fn go_back(&mut self) {
        let Scratch { at, kept, .. } = &mut *self.scratch;
        std::mem::swap(at, kept);
    }
}
