//! The part of the Python module `takt` that is compiled: loops of `takt-sdk`, a timer for asyncio,
//! and settings of a thread. What a user sees is in `takt/*.py`.

mod timer;

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use takt_sdk::{LockMemory, ThreadSettings};

create_exception!(
    takt,
    Error,
    PyException,
    "What the library of loops refuses, in one sentence with the way out."
);

/// A wait that is longer than this looks for signals in between: the sleep of a loop ends with its
/// release alone, and Ctrl-C must not take an hour.
const LONG_WAIT: Duration = Duration::from_millis(200);

fn refused(error: takt_sdk::Error) -> PyErr {
    Error::new_err(error.to_string())
}

/// A release of a loop, whose job has begun.
#[pyclass(frozen, get_all, module = "takt")]
struct Release {
    /// Number of the job, from 0.
    job: u64,
    /// When the job was released.
    release_ns: u64,
    /// When it began; 0 for a driven job that began without a session.
    begin_ns: u64,
    /// Releases that were passed over because the job before overran them.
    skipped: u64,
}

impl From<takt_sdk::Release> for Release {
    fn from(release: takt_sdk::Release) -> Self {
        let takt_sdk::Release { job, release_ns, begin_ns, skipped, .. } = release;
        Self { job, release_ns, begin_ns, skipped }
    }
}

#[pymethods]
impl Release {
    fn __repr__(&self) -> String {
        let Self { job, release_ns, begin_ns, skipped } = self;
        format!("<takt.Release job={job} release_ns={release_ns} begin_ns={begin_ns} skipped={skipped}>")
    }
}

/// A loop: one thread uses it at a time. `None` once it is closed.
#[pyclass(frozen, subclass, module = "takt._core")]
struct Loop {
    name: String,
    own: Mutex<Option<takt_sdk::Loop>>,
}

impl Loop {
    /// Never waits: whoever holds it may be asleep until the next release.
    fn lock(&self) -> PyResult<MutexGuard<'_, Option<takt_sdk::Loop>>> {
        match self.own.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(guard)) => Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::new_err(format!(
                "the loop {:?} is in use by another thread at this moment: a loop belongs to one thread at a time",
                self.name
            ))),
        }
    }

    fn closed(&self) -> PyErr {
        Error::new_err(format!("the loop {:?} is closed: declare it again", self.name))
    }

    fn with<T>(&self, call: impl FnOnce(&mut takt_sdk::Loop) -> Result<T, takt_sdk::Error>) -> PyResult<T> {
        let mut guard = self.lock()?;
        let own = guard.as_mut().ok_or_else(|| self.closed())?;
        call(own).map_err(refused)
    }
}

#[pymethods]
impl Loop {
    #[new]
    fn open(name: String, period_ns: Option<u64>, deadline_ns: u64) -> PyResult<Self> {
        let builder = match period_ns {
            Some(ns) => takt_sdk::Loop::periodic(&name, Duration::from_nanos(ns)),
            None => takt_sdk::Loop::driven(&name),
        };
        let own = builder.deadline(Duration::from_nanos(deadline_ns)).open().map_err(refused)?;
        Ok(Self { own: Mutex::new(Some(own)), name })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn attached(&self) -> PyResult<bool> {
        self.with(|own| Ok(own.is_attached()))
    }

    #[getter]
    fn skipped(&self) -> PyResult<u64> {
        self.with(|own| Ok(own.skipped()))
    }

    #[getter]
    #[pyo3(name = "closed")]
    fn is_closed(&self) -> PyResult<bool> {
        Ok(self.lock()?.is_none())
    }

    fn wait(&self, py: Python<'_>) -> PyResult<Release> {
        let mut guard = self.lock()?;
        let own = guard.as_mut().ok_or_else(|| self.closed())?;
        if own.period().is_some_and(|period| period > LONG_WAIT) {
            let release_ns = own.next_release().map_err(refused)?;
            while release_ns.saturating_sub(takt_sdk::now_ns()) > LONG_WAIT.as_nanos() as u64 {
                py.detach(|| std::thread::sleep(LONG_WAIT / 2));
                py.check_signals()?;
            }
        }
        py.detach(|| own.wait()).map(Release::from).map_err(refused)
    }

    fn next_release(&self) -> PyResult<u64> {
        self.with(takt_sdk::Loop::next_release)
    }

    fn begin(&self) -> PyResult<Release> {
        self.with(takt_sdk::Loop::begin).map(Release::from)
    }

    #[pyo3(signature = (at_ns = None))]
    fn release(&self, at_ns: Option<u64>) -> PyResult<Release> {
        if at_ns == Some(0) {
            return Err(PyValueError::new_err(
                "at_ns: received 0; accepted: a time of now_ns(), or None for now",
            ));
        }
        self.with(|own| own.release(at_ns.unwrap_or(0))).map(Release::from)
    }

    fn input(&self, sequence: u64) -> PyResult<()> {
        self.with(|own| own.input(sequence))
    }

    fn stage(&self, name: &str) -> PyResult<()> {
        self.with(|own| own.stage(name))
    }

    fn value(&self, value: f64) -> PyResult<()> {
        self.with(|own| own.value(value))
    }

    fn end(&self) -> PyResult<()> {
        self.with(takt_sdk::Loop::end)
    }

    fn spin_margin(&self, ns: u64) -> PyResult<()> {
        self.with(|own| {
            own.set_spin_margin(Duration::from_nanos(ns));
            Ok(())
        })
    }

    fn close(&self) -> PyResult<()> {
        *self.lock()? = None;
        Ok(())
    }

    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Release> {
        self.wait(py)
    }

    fn __repr__(&self) -> String {
        format!("<takt.Loop {:?}>", self.name)
    }
}

/// CLOCK_MONOTONIC, nanoseconds.
#[pyfunction]
fn now_ns() -> u64 {
    takt_sdk::now_ns()
}

/// Identifier, policy, CPUs and locked bytes of the calling thread, and what is not as asked.
type Granted = (i32, Option<String>, Option<String>, u64, Vec<String>);

/// Gives the calling thread these settings and reads back what it has.
#[pyfunction]
fn thread_apply(
    py: Python<'_>,
    policy: Option<&str>,
    cpus: Option<&str>,
    lock_memory: bool,
    prefault_stack_bytes: usize,
    prefault_heap_bytes: usize,
) -> PyResult<Granted> {
    let settings = ThreadSettings {
        policy: policy.map(str::parse).transpose().map_err(refused)?,
        cpus: cpus.map(str::parse).transpose().map_err(refused)?,
        lock_memory: if lock_memory { LockMemory::All } else { LockMemory::default() },
        prefault_stack_bytes,
        prefault_heap_bytes,
    };
    // Locking and touching memory takes milliseconds.
    let granted = py.detach(|| settings.apply()).map_err(refused)?;
    let why = granted.differences.into_iter().map(|difference| difference.to_string()).collect();
    let policy = granted.policy.map(|policy| policy.to_string());
    Ok((granted.tid, policy, granted.cpus.map(|cpus| cpus.to_string()), granted.locked_bytes, why))
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<Release>()?;
    module.add_class::<Loop>()?;
    module.add_class::<timer::Timer>()?;
    module.add_function(wrap_pyfunction!(now_ns, module)?)?;
    module.add_function(wrap_pyfunction!(thread_apply, module)?)
}
