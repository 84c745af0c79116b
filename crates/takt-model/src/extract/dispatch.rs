//! What an executor's looks for work cost: collecting what is ready, asking the middleware, taking.
//!
//! One look goes from the end of an activation, or from a wait that found nothing, to the start of
//! the next activation, or to the next wait. Its CPU time is what the thread's clock says at these
//! events. Sources without that clock report nothing.

use super::state::ThreadState;

impl ThreadState {
    /// It begins to wait for work.
    pub(super) fn looks(&mut self, at_ns: u64, cpu_ns: u64, horizon_ns: Option<u64>) {
        match self.look.replace((cpu_ns, true)) {
            // The one before found nothing.
            Some((from, true)) => {
                let took_ns = self.look_ns.saturating_add(cpu_ns.saturating_sub(from));
                self.dispatch.record(at_ns, took_ns, horizon_ns);
                self.look_ns = 0;
            }
            Some((from, false)) => self.look_ns = cpu_ns.saturating_sub(from),
            None => self.look_ns = 0,
        }
    }

    /// It has found an activation, which starts.
    pub(super) fn finds(&mut self, at_ns: u64, cpu_ns: u64, horizon_ns: Option<u64>) {
        if let Some((from, _)) = self.look.take() {
            let took_ns = self.look_ns.saturating_add(cpu_ns.saturating_sub(from));
            self.dispatch.record(at_ns, took_ns, horizon_ns);
        }
        self.look_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_distinguished() {
        let mut thread = ThreadState::new(1, 1);
        // Attached in the middle: nothing is known of the first.
        thread.finds(0, 500, None);
        assert_eq!(thread.dispatch.most(), 0);
        // From an end at 1000 over a wait at 1100 to a start at 1300.
        thread.look = Some((1000, false));
        thread.looks(1, 1100, None);
        thread.finds(2, 1300, None);
        assert_eq!(thread.dispatch.most(), 300);
        // Two waits that found nothing belong to two looks: 250 (50 before the wait) and 400.
        thread.look = Some((2000, false));
        thread.looks(3, 2050, None);
        thread.looks(4, 2250, None);
        assert_eq!(thread.dispatch.most(), 300);
        thread.looks(5, 2650, None);
        thread.finds(6, 2700, None);
        assert_eq!(thread.dispatch.most(), 400);
    }
}
