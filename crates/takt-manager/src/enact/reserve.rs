//! Reservations given, changed, moved and ended, one thread at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::order::{self, Held, Step};
use super::{Difference, Enacted, Enactor, Kept, Wanted};
use crate::restore::ThreadBefore;
use crate::system::{self, Attributes, Identity, Kernel};
use takt_host::reserve::partition;

impl<K: Kernel> Enactor<K> {
    pub(super) fn reservations(&mut self, wanted: &BTreeMap<u32, (Identity, &Wanted)>, report: &mut Enacted) {
        let now: BTreeMap<u32, Held> = self.kept.iter().map(|(&tid, kept)| (tid, kept.held)).collect();
        let then: BTreeMap<u32, Held> = wanted.iter().map(|(&tid, (_, one))| (tid, one.held)).collect();
        let capacity = (self.platform.max_bandwidth.clamp(0.0, 1.0) * f64::from(1 << 20)) as u64;
        for step in order::steps(&now, &then, capacity) {
            let outcome = match step {
                Step::Release { tid } => self.release(tid, true),
                Step::Lift { tid } => self.release(tid, false),
                Step::Resize { tid, to } => self.reserve(wanted, tid, to),
                Step::Move { tid, to } => self.relocate(wanted, tid, to),
                Step::Reserve { tid, to } => self.place_and_reserve(wanted, tid, to),
            };
            match outcome {
                Ok(()) => report.changes += 1,
                Err(error) if partition::gone(&error) => {}
                Err(error) => {
                    let (Step::Release { tid }
                    | Step::Lift { tid }
                    | Step::Resize { tid, .. }
                    | Step::Move { tid, .. }
                    | Step::Reserve { tid, .. }) = step;
                    let name = wanted.get(&tid).map(|(_, one)| one.name.clone()).unwrap_or_default();
                    let asked = format!("{step:?}");
                    let has = error.to_string();
                    report.differences.push(Difference { tid, name, asked, has, reservation: true });
                }
            }
        }
    }

    /// Ends a reservation: back to how the thread was, and, with `home`, to where.
    pub(super) fn release(&mut self, tid: u32, home: bool) -> std::io::Result<()> {
        let Some(kept) = self.kept.remove(&tid) else { return Ok(()) };
        let before = self.journal.before(kept.thread.pid, tid).cloned();
        self.end_reservation(tid, before.as_ref())?;
        match before {
            Some(before) if home => self.partition.displace(&mut self.kernel, &before),
            _ => Ok(()),
        }
    }

    /// Back to how the thread was, but for reservations of its own. The kernel's account is right
    /// at once ([`Kernel::set_attributes`]).
    pub(super) fn end_reservation(&mut self, tid: u32, before: Option<&ThreadBefore>) -> std::io::Result<()> {
        let mut was = before.map_or(Attributes::other(0), |before| before.attributes);
        if was.is_deadline() {
            was = Attributes::other(0);
        }
        self.kernel.set_attributes(tid, &was)
    }

    pub(super) fn reserve(
        &mut self,
        wanted: &BTreeMap<u32, (Identity, &Wanted)>,
        tid: u32,
        to: Held,
    ) -> std::io::Result<()> {
        let Some((thread, one)) = wanted.get(&tid) else { return Ok(()) };
        let attributes = self.attributes_of(&to);
        let outcome = self.patiently(|enactor| enactor.kernel.set_attributes(tid, &attributes));
        match outcome {
            // It moved in its sleep and has not woken on its new core yet: anew, then, which
            // disturbs no sleeper.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                self.release(tid, false)?;
                self.place_and_reserve(wanted, tid, to)
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.kept.insert(tid, Kept::new(*thread, one, to));
                Ok(())
            }
        }
    }

    pub(super) fn attributes_of(&self, held: &Held) -> Attributes {
        Attributes::reservation(held.budget_ns, held.period_ns, self.reclaims())
    }

    /// Others may be ending reservations too: their bandwidth comes free within a period.
    pub(super) fn patiently(
        &mut self,
        attempt: impl Fn(&mut Self) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        for _ in 0..30 {
            match attempt(self) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                outcome => return outcome,
            }
        }
        attempt(self)
    }

    pub(super) fn place_and_reserve(
        &mut self,
        wanted: &BTreeMap<u32, (Identity, &Wanted)>,
        tid: u32,
        to: Held,
    ) -> std::io::Result<()> {
        let Some((thread, one)) = wanted.get(&tid) else { return Ok(()) };
        // A reservation of the application's own gives way; it comes back at the end.
        if self.kernel.attributes(tid)?.is_deadline() {
            self.kernel.set_attributes(tid, &Attributes::other(0))?;
        }
        let attributes = self.attributes_of(&to);
        let pid = thread.pid;
        let outcome = self.patiently(|enactor| {
            enactor.partition.reserve(&mut enactor.kernel, pid, tid, to.core, &attributes)
        });
        if outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN)) {
            self.asleep.insert(tid, Kept::new(*thread, one, to));
            return outcome;
        }
        if outcome.is_err()
            && let Some(before) = self.journal.before(thread.pid, tid).cloned()
        {
            // Without its reservation it must not be shut in on a reserved core.
            let _ = self.kernel.set_attributes(tid, &Attributes::other(0));
            let _ = self.partition.displace(&mut self.kernel, &before);
        }
        outcome?;
        self.kept.insert(tid, Kept::new(*thread, one, to));
        Ok(())
    }

    pub(super) fn relocate(
        &mut self,
        wanted: &BTreeMap<u32, (Identity, &Wanted)>,
        tid: u32,
        to: Held,
    ) -> std::io::Result<()> {
        let Some((thread, _)) = wanted.get(&tid) else { return Ok(()) };
        if self.partition.place(&mut self.kernel, thread.pid, tid, to.core).is_ok() {
            return self.reserve(wanted, tid, to);
        }
        // Not as a whole: then without reservation for the moment.
        self.release(tid, false)?;
        self.place_and_reserve(wanted, tid, to)
    }

    pub(super) fn wake(&mut self) {
        for (tid, sleeper) in std::mem::take(&mut self.asleep) {
            if !system::is_alive(&self.kernel, &sleeper.thread) {
                continue;
            }
            let attributes = self.attributes_of(&sleeper.held);
            let (pid, core) = (sleeper.thread.pid, sleeper.held.core);
            if self.kernel.last_cpu(pid, tid).is_ok_and(|last| last == core)
                && self.kernel.set_attributes(tid, &attributes).is_ok()
            {
                self.kept.insert(tid, sleeper);
            } else {
                self.asleep.insert(tid, sleeper);
            }
        }
    }
}
