//! The kernel's admission test, which plain affinity needs to be off ([`Mode::AdmissionOff`]) and
//! any other program may switch on: `sysctl --system`, a profile of `tuned`, somebody's script.
//! From then on the kernel keeps the reservations that are there, and refuses each new one to a
//! thread that may not run everywhere.

use std::collections::VecDeque;
use std::path::Path;

use takt_host::reserve::ADMISSION_FILE;

use super::{Difference, Enacted, Enactor, Error, Mode};
use crate::system::Kernel;

/// So often within [`WITHIN_NS`] it is switched off again. Whoever switches it on once more means
/// it, and the machine's settings are not to change to and fro for ever.
const MOST: usize = 3;
const WITHIN_NS: u64 = 60_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Admission {
    /// When it was switched off again.
    again_ns: VecDeque<u64>,
    /// Who switched it on, where that is known.
    who: Option<String>,
    /// The value that was reported last.
    reported: String,
    /// Why it stays on, for people.
    stays_on: Option<String>,
    notes: Vec<String>,
}

impl<K: Kernel> Enactor<K> {
    /// Switches the admission test off again where another program has switched it on; true: it
    /// was. What that program set comes back at the end, for it is the newer will.
    ///
    /// # Errors
    ///
    /// The state file cannot be written; nothing was changed then.
    pub fn keep_admission_off(&mut self, now_ns: u64) -> Result<bool, Error> {
        let path = Path::new(ADMISSION_FILE);
        let Ok(now) = self.kernel.read(path) else { return Ok(false) };
        let now = now.trim();
        if self.mode() != Mode::AdmissionOff || now == "-1" {
            (self.admission.who, self.admission.stays_on) = (None, None);
            return Ok(false);
        }
        if self.admission.stays_on.is_some() {
            return Ok(false);
        }
        if let Some(who) = self.kernel.last_writer() {
            self.admission.who = Some(who);
        }
        let who = self.admission.who.as_deref().unwrap_or("another program");
        let what = format!("{who} has switched admission control on (kernel.sched_rt_runtime_us = {now})");
        let recent = |at_ns: &u64| now_ns.saturating_sub(*at_ns) < WITHIN_NS;
        self.admission.again_ns.retain(recent);
        let times = self.admission.again_ns.len();
        if times >= MOST {
            self.stay_without(format!(
                "another program keeps switching admission control on: {what}, after it was switched off {times} times within a minute, and \
                 it stays on"
            ));
            return Ok(false);
        }
        self.journal.supersede(path, now)?;
        match self.patiently(|enactor| enactor.kernel.write(path, "-1")) {
            Ok(()) => {}
            // Reservations that have just ended still weigh more than the CPUs have: at the next
            // look.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(false),
            Err(error) => {
                self.stay_without(format!("{what}, and it cannot be switched off again: {error}"));
                return Ok(false);
            }
        }
        self.admission.again_ns.push_back(now_ns);
        if self.admission.reported != now {
            now.clone_into(&mut self.admission.reported);
            self.admission.notes.push(format!(
                "{what}, with which new reservations of pinned threads are refused. It is off again, and {now} comes back at the end"
            ));
        }
        Ok(true)
    }

    fn stay_without(&mut self, why: String) {
        let fix = "New reservations are refused. Fix: end what sets it (`sysctl --system`, tuned, another manager in a container of its own), \
                   then `sudo sysctl kernel.sched_rt_runtime_us=-1`; or goals with options.ways = [\"partition-roots\"]";
        let words = format!("{why}. {fix}");
        self.admission.notes.push(words.clone());
        self.admission.stays_on = Some(words);
    }

    /// What is to be reported of it, once.
    pub fn admission_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.admission.notes)
    }

    pub(super) fn report_admission(&self, report: &mut Enacted) {
        report.differences.extend(self.admission.stays_on.as_ref().map(|why| Difference {
            tid: 0,
            name: "kernel.sched_rt_runtime_us".to_owned(),
            asked: "-1".to_owned(),
            has: why.clone(),
            reservation: true,
        }));
    }
}
