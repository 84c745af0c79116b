//! The loop as a whole: link, two tasks, rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use takt_link_daq::{LinkCounts, LinkFacts};
use takt_rt::ring::{Consumer, ring};
use takt_rt::settings::Granted;
use takt_rt::thread::{Handle, spawn};

use crate::acquisition::{Acquisition, Left, Steering};
use crate::error::DaqError;
use crate::error_meter::ErrorMeter;
use crate::file::DaqConfig;
use crate::plant::Wiring;
use crate::record::{EdgeRecord, Ended, SteadyState, Totals, Tracking};
use crate::saving::{Discard, EdgeSink, Saved, save};

/// A running loop. Dropping it stops it.
///
/// ```
/// # use takt_robot_daqloop::{DaqConfig, DaqLoop};
/// let config: DaqConfig = toml::from_str(
///     "link = { kind = 'simulated' }\nacquisition.policy = 'other'\nacquisition.lock_memory = 'off'\nstop.edges = 100",
/// )?;
/// let mut daq = DaqLoop::start(&config)?;
/// let mut records = daq.take_records().expect("nobody has taken them");
/// let outcome = daq.wait()?;
/// let mut edges = Vec::new();
/// records.take_into(&mut edges, 1000);
/// assert_eq!((outcome.totals.edges, edges.len()), (100, 100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DaqLoop {
    acquisition: Option<Handle<Left>>,
    saving: Option<Handle<Saved>>,
    stop: Arc<AtomicBool>,
    records: Option<Consumer<EdgeRecord>>,
    facts: LinkFacts,
    granted: Vec<(String, Granted)>,
}

/// Ends a loop from anywhere.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// The loop ends before its next edge.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Result of a loop.
#[derive(Clone, Debug, Serialize)]
pub struct DaqOutcome {
    /// Reason of its end.
    pub ended: Ended,
    /// When, CLOCK_MONOTONIC nanoseconds; of no use once the run is over.
    #[serde(skip)]
    pub ended_ns: u64,
    /// Counts and extremes, complete even where records were lost.
    pub totals: Totals,
    /// Records that the reader of [`DaqLoop::take_records`] was too slow for; 0 where nobody took
    /// that end.
    pub records_lost: u64,
    /// Result of the saving task; absent if it was off.
    pub saved: Option<Saved>,
    /// Quality of the control; absent without a controller.
    pub tracking: Option<Tracking>,
    /// Forbidden events of the acquisition task; absent for less than a hundred edges.
    pub steady: Option<SteadyState>,
    /// Irregularities of the link.
    pub link: LinkCounts,
}

impl DaqLoop {
    /// Opens the link and starts both tasks. The saving task, where it is on, keeps nothing. The
    /// loop ends as its configuration says: after `seconds`, or after `stop.edges`, lost ones
    /// included.
    ///
    /// # Errors
    /// [`DaqError`]; nothing is left running then.
    pub fn start(config: &DaqConfig) -> Result<Self, DaqError> {
        Self::start_saving(config, Box::new(Discard))
    }

    /// As [`start`](Self::start), and the saving task hands everything to `sink`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_saving(config: &DaqConfig, sink: Box<dyn EdgeSink>) -> Result<Self, DaqError> {
        let duration = Duration::try_from_secs_f64(config.seconds).unwrap_or(Duration::MAX);
        Self::begin(config, sink, Some(duration), config.stop.edges)
    }

    /// As [`start_saving`](Self::start_saving), and the loop goes on until it is asked to end.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn start_endless(config: &DaqConfig, sink: Box<dyn EdgeSink>) -> Result<Self, DaqError> {
        Self::begin(config, sink, None, None)
    }

    fn begin(
        config: &DaqConfig,
        sink: Box<dyn EdgeSink>,
        duration: Option<Duration>,
        edges: Option<u64>,
    ) -> Result<Self, DaqError> {
        config.validate()?;
        let controller = config.controller.build(&config.plant, &config.reference)?;
        let steering = controller.map(|controller| Steering {
            controller,
            wiring: Wiring::of(&config.plant),
            reference: config.reference,
            period_s: config.plant.period_s(),
            error: ErrorMeter::default(),
            times_ns: None,
        });
        let link = match &steering {
            Some(_) => takt_link_daq::open_with_plant(&config.link, &config.far_end()?)?,
            None => takt_link_daq::open(&config.link)?,
        };
        let facts = link.facts().clone();
        let mut granted: Vec<(String, Granted)> = facts.echo.clone().into_iter().collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (producer, consumer) = ring(config.acquisition.ring);
        let (mut to_saving, mut saving) = (None, None);
        if config.saving.enabled {
            let (producer, consumer) = ring(config.saving.ring);
            to_saving = Some(producer);
            let saving_config = config.saving.clone();
            let handle =
                spawn("daq-save", &config.saving.settings(), move || save(&saving_config, consumer, sink))?;
            granted.push(("daq-save".to_owned(), handle.granted().clone()));
            saving = Some(handle);
        }
        let acquisition = Acquisition {
            link,
            pulse: config.pulse.clone(),
            steering,
            records: producer,
            saving: to_saving,
            stop: Arc::clone(&stop),
            duration_ns: duration.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            edges,
            totals: Totals::default(),
            begun: None,
        };
        // If this fails, the saving task sees its ring abandoned and ends by itself.
        let handle = spawn("daq-acquire", &config.acquisition.settings(), move || acquisition.run())?;
        granted.insert(0, ("daq-acquire".to_owned(), handle.granted().clone()));
        Ok(Self { acquisition: Some(handle), saving, stop, records: Some(consumer), facts, granted })
    }

    /// The reading end of the record ring; there is one. Records are lost, and counted, while
    /// nobody reads.
    pub fn take_records(&mut self) -> Option<Consumer<EdgeRecord>> {
        self.records.take()
    }

    /// Facts about the link.
    pub fn link(&self) -> &LinkFacts {
        &self.facts
    }

    /// Every thread of the loop with what the kernel granted it: acquisition, echo or plant,
    /// saving.
    pub fn granted(&self) -> &[(String, Granted)] {
        &self.granted
    }

    /// Settings that were asked for and not granted, a sentence each.
    pub fn not_granted(&self) -> Vec<String> {
        let sentences = |(name, granted): &(String, Granted)| {
            let name = name.clone();
            granted
                .differences
                .iter()
                .map(move |difference| format!("{name}: {difference}"))
                .collect::<Vec<_>>()
        };
        self.granted.iter().flat_map(sentences).collect()
    }

    /// Whether acquisition has ended.
    pub fn is_finished(&self) -> bool {
        self.acquisition.as_ref().is_none_or(Handle::is_finished)
    }

    /// A way to end the loop from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Ends the loop.
    ///
    /// # Errors
    /// [`DaqError::RealTime`] when a task panicked.
    pub fn stop(self) -> Result<DaqOutcome, DaqError> {
        self.stopper().stop();
        self.wait()
    }

    /// Waits until the loop ends by itself, or by its [`Stopper`].
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub fn wait(mut self) -> Result<DaqOutcome, DaqError> {
        let left = self.acquisition.take().map(Handle::join);
        let saved = self.saving.take().map(Handle::join).transpose();
        let mut left = match left {
            Some(left) => left?,
            // Taken nowhere else.
            None => return Err(DaqError::config("daq", "ended", "a loop can be waited for only once")),
        };
        let reader = self.records.is_none();
        // The plant knows its own error better than sensors between two late turns.
        let plant = left.link.end_plant();
        let tracking = plant.and_then(|report| serde_json::from_value(report).ok()).or(left.tracking);
        Ok(DaqOutcome {
            ended: left.ended,
            ended_ns: left.ended_ns,
            totals: left.totals,
            records_lost: if reader { left.records_lost } else { 0 },
            saved: saved?,
            tracking,
            steady: left.steady,
            link: left.link.counts(),
        })
    }
}

impl Drop for DaqLoop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for ended in
            [self.acquisition.take().map(|h| h.join().err()), self.saving.take().map(|h| h.join().err())]
        {
            // Nobody is left to report.
            let _ = ended;
        }
    }
}
