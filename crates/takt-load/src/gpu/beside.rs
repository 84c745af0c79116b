//! Environment of GPU interference processes: the driver learns the way of sharing from it, and
//! only when a program starts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tool::Variables;

/// Of this process, since a device is shared in one way at a time.
static BESIDE: Mutex<Variables> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Variables> {
    BESIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// GPU interference that starts while this lives has the variables in its environment.
#[derive(Debug)]
pub struct Beside(());

impl Beside {
    /// In place of what was set before.
    pub fn set(variables: Variables) -> Self {
        *lock() = variables;
        Self(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        lock().clear();
    }
}

/// The present variables.
pub(super) fn variables() -> Variables {
    lock().clone()
}
