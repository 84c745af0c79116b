//! The kernel's admission test, which plain affinity needs to be off ([`Mode::AdmissionOff`]) and
//! any other program may switch on: `sysctl --system`, a profile of `tuned`, somebody's script.
//! From then on the kernel keeps the reservations that are there, and refuses each new one to a
//! thread that may not run everywhere.

use std::collections::VecDeque;
use std::path::Path;

use takt_host::reserve::ADMISSION_FILE;

use super::{Difference, Enacted, Enactor, Error, Mode};
use crate::system::Kernel;

/// So often within [`WITHIN_NS`] it is switched off again. A program that switches it on once more
/// does so deliberately, and the machine's settings must not alternate forever.
const MOST: usize = 3;
const WITHIN_NS: u64 = 60_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Admission {
    /// When it was switched off again.
    again_ns: VecDeque<u64>,
    /// The program that switched it on, if known.
    who: Option<String>,
    /// The value that was reported last.
    reported: String,
    /// Reason why it stays on, for people.
    stays_on: Option<String>,
    notes: Vec<String>,
}

impl<K: Kernel> Enactor<K> {
    /// Switches the admission test off again where another program has switched it on; true: it
    /// was. That program's value is restored at the end, because it is the newer one.
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
                "{what}, which makes the kernel refuse new reservations of pinned threads. It is off again, and {now} will be restored at \
                 the end"
            ));
        }
        Ok(true)
    }

    fn stay_without(&mut self, why: String) {
        let fix = "New reservations are refused. Fix: stop the program that sets it (`sysctl --system`, tuned, another manager in its own \
             container), then `sudo sysctl kernel.sched_rt_runtime_us=-1`; or use goals with options.ways = [\"partition-roots\"]";
        let words = format!("{why}. {fix}");
        self.admission.notes.push(words.clone());
        self.admission.stays_on = Some(words);
    }

    /// Notes to report, once.
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
