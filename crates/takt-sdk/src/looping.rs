//! A loop: its releases, its jobs, its records.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::Error;
use crate::layout::{MAX_NAME, MAX_PERIOD_NS, MAX_STAGE_NAME, MAX_STAGES, RECORD_JOB, RECORD_STAGE, Record};
use crate::region::{Declaration, Place, declare, is_text, refuse_period, write_text};
use crate::system::{now_ns, own_tid, sleep_until};

/// One release of a loop. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Number of the job, from 0.
    pub job: u64,
    /// When the job was released.
    pub release_ns: u64,
    /// When the job began; 0 for a driven job that began without a session.
    pub begin_ns: u64,
    /// Releases that were passed over before this one, because the job before overran them.
    pub skipped: u64,
}

impl Release {
    /// How late the job began.
    pub fn lateness(&self) -> Duration {
        Duration::from_nanos(self.begin_ns.saturating_sub(self.release_ns))
    }
}

/// A loop that is yet to be opened.
#[derive(Clone, Debug)]
#[must_use = "`open` declares the loop"]
pub struct Builder<'a> {
    name: &'a str,
    period_ns: Option<u64>,
    deadline_ns: Option<u64>,
    spin_ns: u64,
}

impl Builder<'_> {
    /// How long after its release a job may end. Default: the period; of a driven loop, none.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline_ns = Some(nanoseconds(deadline));
        self
    }

    /// How long before its release the loop stops sleeping and spins. Default: 0.
    pub fn spin_margin(mut self, margin: Duration) -> Self {
        self.spin_ns = nanoseconds(margin);
        self
    }

    /// Declares the loop.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Period`], [`Error::DeclaredTwice`], [`Error::TooManyLoops`],
    /// [`Error::Memory`].
    pub fn open(self) -> Result<Loop, Error> {
        let name = self.name;
        if !is_name(name, MAX_NAME) {
            return Err(Error::Name { received: name.chars().take(2 * MAX_NAME).collect() });
        }
        let deadline_ns = self.deadline_ns.filter(|&ns| ns > 0).or(self.period_ns).unwrap_or(0);
        let declaration = Declaration { name, period_ns: self.period_ns, deadline_ns, tid: own_tid() };
        if let Some(received_ns) = self.period_ns.filter(|ns| !(1..=MAX_PERIOD_NS).contains(ns)) {
            refuse_period(&declaration)?;
            return Err(Error::Period { received_ns });
        }
        let place = declare(&declaration)?;
        let mut opened = Loop {
            place,
            period_ns: self.period_ns,
            spin_ns: 0,
            has_begun: false,
            next_ns: 0,
            planned: None,
            open: None,
            jobs: 0,
            skipped: 0,
            not_sync: PhantomData,
        };
        opened.set_spin_margin(Duration::from_nanos(self.spin_ns));
        Ok(opened)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn is_name(name: &str, most: usize) -> bool {
    (1..=most).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// A job under way.
#[derive(Clone, Copy, Debug)]
struct Job {
    release: Release,
    input: u64,
    value: f64,
    /// Number of the stage under way and when it began.
    stage: Option<(u8, u64)>,
}

/// A loop that this process has declared. One thread uses it at a time.
///
/// ```
/// use std::time::Duration;
/// use takt_sdk::Loop;
///
/// let mut control = Loop::periodic("control", Duration::from_millis(1)).open()?;
/// for _ in 0..3 {
///     let release = control.wait()?; // sleeps until the release, begins the job
///     // read sensors, compute, write motors
///     assert!(release.begin_ns >= release.release_ns);
///     control.value(0.25)?; // the control error, say
///     control.end()?; // the next `wait` would end it, too
/// }
/// # Ok::<(), takt_sdk::Error>(())
/// ```
#[derive(Debug)]
pub struct Loop {
    place: Place,
    /// `None`: driven.
    period_ns: Option<u64>,
    spin_ns: u64,
    /// Its thread is known, and its grid.
    has_begun: bool,
    /// The next release of the grid.
    next_ns: u64,
    /// The release that was decided on, and how many were passed over before it.
    planned: Option<(u64, u64)>,
    open: Option<Job>,
    jobs: u64,
    skipped: u64,
    not_sync: PhantomData<std::cell::Cell<()>>,
}

impl Loop {
    /// A loop that is released by time.
    pub fn periodic(name: &str, period: Duration) -> Builder<'_> {
        Builder { name, period_ns: Some(nanoseconds(period)), deadline_ns: None, spin_ns: 0 }
    }

    /// A loop that an input releases: a message, an interrupt, a callback.
    pub fn driven(name: &str) -> Builder<'_> {
        Builder { name, period_ns: None, deadline_ns: None, spin_ns: 0 }
    }

    /// Changes how long before its release the loop stops sleeping and spins; at most its period.
    pub fn set_spin_margin(&mut self, margin: Duration) {
        self.spin_ns = nanoseconds(margin).min(self.period_ns.unwrap_or(0));
        self.place.slot().spin_ns.store(self.spin_ns, Ordering::Relaxed);
    }

    /// Real-time: ends an open job, sleeps until the next release of the grid, and begins its job.
    ///
    /// The first release is one period after the first call. An overrun keeps the phase: the newest
    /// release that has passed is returned at once, late; those before it are passed over and
    /// counted. A signal does not end the sleep.
    ///
    /// # Errors
    /// [`Error::WrongKind`] for a driven loop.
    pub fn wait(&mut self) -> Result<Release, Error> {
        let release_ns = self.next_release()?;
        let wake_ns = release_ns.saturating_sub(self.spin_ns);
        // One that has passed already costs no system call.
        if now_ns() < wake_ns {
            sleep_until(wake_ns);
        }
        while now_ns() < release_ns {
            std::hint::spin_loop();
        }
        self.begin()
    }

    /// Real-time: the first half of [`wait`](Self::wait), for those who sleep in their own way:
    /// ends an open job and decides on the next release. Returns its time. Sleep until then, and
    /// call [`begin`](Self::begin).
    ///
    /// # Errors
    /// [`Error::WrongKind`] for a driven loop.
    pub fn next_release(&mut self) -> Result<u64, Error> {
        let Some(period_ns) = self.period_ns else { return Err(Error::WrongKind { is_driven: true }) };
        let at_ns = now_ns();
        self.finish(at_ns);
        if !self.has_begun {
            self.note_thread();
            self.next_ns = at_ns.saturating_add(period_ns);
        }
        // Asked twice without a job in between: the same one, as long as it is not overrun.
        let (due_ns, before) = self.planned.unwrap_or((self.next_ns, 0));
        let passed = at_ns.saturating_sub(due_ns) / period_ns;
        let release_ns = due_ns.saturating_add(passed.saturating_mul(period_ns));
        self.planned = Some((release_ns, before.saturating_add(passed)));
        Ok(release_ns)
    }

    /// How many releases the one that [`next_release`](Self::next_release) decided on has passed
    /// over.
    pub fn passed_over(&self) -> u64 {
        self.planned.map_or(0, |(_, skipped)| skipped)
    }

    /// Real-time: the second half of [`wait`](Self::wait): begins the job of the release that
    /// [`next_release`](Self::next_release) decided on.
    ///
    /// # Errors
    /// [`Error::NoJob`] where none was decided on, [`Error::WrongKind`] for a driven loop.
    pub fn begin(&mut self) -> Result<Release, Error> {
        let Some(period_ns) = self.period_ns else { return Err(Error::WrongKind { is_driven: true }) };
        let (release_ns, skipped) = self.planned.take().ok_or(Error::NoJob)?;
        self.next_ns = release_ns.saturating_add(period_ns);
        Ok(self.begun(release_ns, now_ns(), skipped))
    }

    /// Real-time: of a driven loop: ends an open job, and begins one that was released at `at_ns`,
    /// such as the time stamp of its input; 0 is now.
    ///
    /// # Errors
    /// [`Error::WrongKind`] for a periodic loop.
    pub fn release(&mut self, at_ns: u64) -> Result<Release, Error> {
        if self.period_ns.is_some() {
            return Err(Error::WrongKind { is_driven: false });
        }
        if !self.has_begun {
            self.note_thread();
        }
        let is_attached = self.is_attached();
        let time_ns = if is_attached || at_ns == 0 { now_ns() } else { 0 };
        self.finish(time_ns);
        let release_ns = if at_ns == 0 { time_ns } else { at_ns };
        Ok(self.begun(release_ns, if is_attached { time_ns } else { 0 }, 0))
    }

    fn begun(&mut self, release_ns: u64, begin_ns: u64, skipped: u64) -> Release {
        let release = Release { job: self.jobs, release_ns, begin_ns, skipped };
        self.jobs = self.jobs.wrapping_add(1);
        self.skipped = self.skipped.saturating_add(skipped);
        self.open = Some(Job { release, input: 0, value: f64::NAN, stage: None });
        release
    }

    /// Once, before the first job: the thread that opens a loop is not always the one that runs it.
    #[cold]
    fn note_thread(&mut self) {
        self.has_begun = true;
        self.place.slot().tid.store(own_tid(), Ordering::Relaxed);
    }

    fn job(&mut self) -> Result<&mut Job, Error> {
        self.open.as_mut().ok_or(Error::NoJob)
    }

    /// Real-time: the sequence number of the input that this job consumes; 0 is none.
    ///
    /// # Errors
    /// [`Error::NoJob`].
    #[inline]
    pub fn input(&mut self, sequence: u64) -> Result<(), Error> {
        self.job()?.input = sequence;
        Ok(())
    }

    /// Real-time: a value of interest of this job, such as the control error.
    ///
    /// # Errors
    /// [`Error::NoJob`].
    #[inline]
    pub fn value(&mut self, value: f64) -> Result<(), Error> {
        self.job()?.value = value;
        Ok(())
    }

    /// Real-time: a named stage of the job begins; it ends with the next one, or with the job.
    ///
    /// # Errors
    /// [`Error::NoJob`], [`Error::StageName`], [`Error::TooManyStages`].
    #[inline]
    pub fn stage(&mut self, name: &str) -> Result<(), Error> {
        if self.open.is_none() {
            return Err(Error::NoJob);
        }
        if self.is_attached() { self.stage_at(name, now_ns()) } else { Ok(()) }
    }

    fn stage_at(&mut self, name: &str, at_ns: u64) -> Result<(), Error> {
        let slot = self.place.slot();
        let known = (slot.stages.load(Ordering::Relaxed) as usize).min(MAX_STAGES);
        let number = match slot.stage_names[..known].iter().position(|one| is_text(one, name)) {
            Some(number) => number,
            None if known >= MAX_STAGES => return Err(Error::TooManyStages),
            None if !is_name(name, MAX_STAGE_NAME) => return Err(Error::StageName),
            None => {
                write_text(&slot.stage_names[known], name);
                slot.stages.store(known as u32 + 1, Ordering::Release);
                known
            }
        };
        self.finish_stage(at_ns);
        if let Some(job) = &mut self.open {
            // At most 8 of them.
            job.stage = Some((number as u8, at_ns));
        }
        Ok(())
    }

    fn finish_stage(&mut self, at_ns: u64) {
        let Some(job) = &mut self.open else { return };
        let Some((stage, begin_ns)) = job.stage.take() else { return };
        let job = *job;
        self.push(&job, RECORD_STAGE, stage, [begin_ns, at_ns]);
    }

    fn push(&self, job: &Job, kind: u8, stage: u8, [begin_ns, end_ns]: [u64; 2]) {
        let Release { job: number, release_ns, skipped, .. } = job.release;
        let record = Record {
            kind,
            stage,
            slot: self.place.number,
            skipped: u32::try_from(skipped).unwrap_or(u32::MAX),
            job: number,
            release_ns,
            begin_ns,
            end_ns,
            input: job.input,
            value: job.value,
        };
        if let Some(ring) = self.place.ring() {
            ring.push(record.to_words(), end_ns);
        }
    }

    /// Real-time: the job is done. What follows until the next release is none of it.
    ///
    /// # Errors
    /// [`Error::NoJob`].
    #[inline]
    pub fn end(&mut self) -> Result<(), Error> {
        if self.open.is_none() {
            return Err(Error::NoJob);
        }
        if self.is_attached() {
            self.finish(now_ns());
        } else {
            self.open = None;
        }
        Ok(())
    }

    /// Ends the job under way, where there is one.
    fn finish(&mut self, at_ns: u64) {
        if self.open.is_none() {
            return;
        }
        if self.is_attached() {
            self.finish_stage(at_ns);
            // One that began unseen has no beginning.
            if let Some(job) = self.open.filter(|job| job.release.begin_ns > 0) {
                self.push(&job, RECORD_JOB, 0, [job.release.begin_ns, at_ns]);
            }
        }
        self.open = None;
    }

    /// Real-time: whether a session of Takt takes the records now.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.place.slot().counters.attached.load(Ordering::Acquire) != 0
    }

    /// The release of the job under way.
    pub fn current(&self) -> Option<Release> {
        self.open.map(|job| job.release)
    }

    /// Releases that were passed over so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The period; `None` for a driven loop.
    pub fn period(&self) -> Option<Duration> {
        self.period_ns.map(Duration::from_nanos)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if self.open.is_some() {
            self.finish(now_ns());
        }
        self.place.close();
    }
}
