//! CPU time of a plan by what it was spent on, as the paper's Table III has it: preparing the
//! timing model, timing analysis, and the rest, which is budget selection.
//!
//! The search for budgets calls the analysis thousands of times, through several objects that live
//! for one attempt each. So what is spent is summed up by thread: a plan is made by one.

use std::cell::Cell;

use takt_rt::clock::thread_cpu_ns;

/// Purpose of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bringing a snapshot to the form of the analysis.
    Model,
    /// Response times and demands.
    Timing,
}

/// CPU time since [`reset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Spent {
    pub model_ns: u64,
    pub timing_ns: u64,
}

thread_local! {
    static SPENT: Cell<Spent> = const { Cell::new(Spent { model_ns: 0, timing_ns: 0 }) };
    /// Something is being measured.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Forgets what this thread has spent.
pub(crate) fn reset() {
    SPENT.set(Spent::default());
}

/// CPU time of this thread since the last [`reset`].
pub(crate) fn spent() -> Spent {
    SPENT.get()
}

/// Until this is dropped, CPU time counts as spent on its part. Within another one it counts
/// nothing: what is spent inside belongs to the outer part.
#[derive(Debug)]
pub(crate) struct On {
    part: Part,
    began_ns: Option<u64>,
}

/// Begins.
pub(crate) fn on(part: Part) -> On {
    let began_ns = (!RUNS.replace(true)).then(thread_cpu_ns);
    On { part, began_ns }
}

impl Drop for On {
    fn drop(&mut self) {
        let Some(began_ns) = self.began_ns else { return };
        let ns = thread_cpu_ns().saturating_sub(began_ns);
        let mut spent = SPENT.get();
        match self.part {
            Part::Model => spent.model_ns += ns,
            Part::Timing => spent.timing_ns += ns,
        }
        SPENT.set(spent);
        RUNS.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn(ns: u64) {
        let until_ns = thread_cpu_ns() + ns;
        while thread_cpu_ns() < until_ns {}
    }

    #[test]
    fn what_is_nested_counts_once_and_for_the_outer_part() {
        reset();
        {
            let _outer = on(Part::Timing);
            burn(200_000);
            {
                let _inner = on(Part::Model);
                burn(200_000);
            }
            burn(200_000);
        }
        burn(200_000);
        let Spent { model_ns, timing_ns } = spent();
        assert_eq!(model_ns, 0);
        assert!(timing_ns >= 600_000, "{timing_ns}");
        {
            let _model = on(Part::Model);
            burn(200_000);
        }
        assert!(spent().model_ns >= 200_000);
        assert_eq!(spent().timing_ns, timing_ns, "what is outside counts for no part");
        reset();
        assert_eq!(spent(), Spent::default());
    }
}
