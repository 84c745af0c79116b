//! Reservations on CPUs of their own.

use serde::Serialize;
use takt_host::reserve::pin::{self, PinMethod, PinOptions, Pinned, Wanted};
use takt_rt::ran_on;
use takt_rt::settings::Difference;

use super::Flight;
use crate::error::UavError;
use crate::tasks;

/// Method that combined SCHED_DEADLINE with placement.
#[derive(Debug, Serialize)]
pub struct Placed {
    /// The way that held; absent when none did, and the threads are not pinned.
    pub way: Option<PinMethod>,
    /// The same in words.
    #[serde(rename = "says")]
    pub description: String,
    /// The ways that were tried and did not hold, and why.
    pub closed: Vec<String>,
    /// State that lasts as long as the threads.
    #[serde(skip)]
    _pinned: Option<Pinned>,
}

impl Flight {
    /// Gives the threads that wait for it their reservation on their CPUs, or the reservation alone
    /// where no way holds.
    ///
    /// # Errors
    /// In strict mode, what was not granted.
    pub(super) fn place_reservations(&mut self) -> Result<(), UavError> {
        let waiting = |requested: &takt_rt::settings::ThreadSettings| {
            tasks::needs_a_way(&requested.policy, requested.cpus, &self.machine)
        };
        let wanted: Vec<Wanted> = self
            .reports
            .iter()
            .map(|report| &report.granted)
            .filter(|granted| waiting(&granted.requested))
            .filter_map(|granted| {
                let (tid, policy) = (granted.effective.tid, granted.requested.policy);
                granted.requested.cpus.map(|cpus| Wanted { tid, cpus, policy })
            })
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let outcome = pin::pin(&wanted, &PinOptions::default());
        let closed = match &outcome {
            Ok(pinned) => &pinned.closed,
            Err(closed) => closed,
        };
        let closed: Vec<String> = closed.iter().map(ToString::to_string).collect();
        let (way, description) = match &outcome {
            Ok(pinned) => (Some(pinned.way), format!("pinned: {}", pinned.way)),
            Err(_) => (None, "not pinned: no method works here".to_owned()),
        };
        for report in &mut self.reports {
            let granted = &mut report.granted;
            let Some(one) = wanted.iter().find(|one| one.tid == granted.effective.tid) else { continue };
            let refused = match &outcome {
                Ok(_) => None,
                Err(_) => one.policy.apply(one.tid).err().map(|error| error.to_string()),
            };
            granted.reread();
            for difference in &mut granted.differences {
                explain(difference, &closed, refused.as_deref());
            }
            ran_on::placed(granted);
            granted.check(&report.name)?;
        }
        self.placed = Some(Placed { way, description, closed, _pinned: outcome.ok() });
        Ok(())
    }
}

/// Explains a different setting by the kernel, instead of the plain value read back.
fn explain(difference: &mut Difference, closed: &[String], refused: Option<&str>) {
    match (difference.setting.as_str(), refused) {
        ("cpus", _) => {
            difference.reason = format!(
                "the kernel refuses SCHED_DEADLINE to a thread that may not run on all CPUs of its root domain, so it was not \
                 pinned; tried: {}",
                closed.join("; ")
            );
            difference.fix = "boot with isolcpus= and only that CPU, start the program in an exclusive cpuset with it, run as root, or set \
                 tasks.isolate = false"
                .to_owned();
        }
        ("policy", Some(refused)) => difference.reason = refused.to_owned(),
        _ => {}
    }
}
