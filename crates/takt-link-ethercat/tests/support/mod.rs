//! Common parts of the tests with a real master.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a failed unwrap is a failed test; not every test uses all"
)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use ethercrab::{MainDevice, MainDeviceConfig, PduRx, PduStorage, PduTx, RetryBehaviour, Timeouts};
use takt_link_ethercat::segment::SegmentConfig;

/// Frames in flight at most.
pub const FRAMES: usize = 16;
/// Room for one full Ethernet frame.
pub const DATA: usize = PduStorage::element_size(1486);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A master of its own for every test, and its two ends.
pub fn master(pdu: Duration) -> (MainDevice<'static>, PduTx<'static>, PduRx<'static>) {
    master_with(pdu, RetryBehaviour::None)
}

/// The same, with its own way of sending again what got no answer, or not.
pub fn master_with(
    pdu: Duration,
    retry_behaviour: RetryBehaviour,
) -> (MainDevice<'static>, PduTx<'static>, PduRx<'static>) {
    let storage: &'static PduStorage<FRAMES, DATA> = Box::leak(Box::new(PduStorage::new()));
    let (tx, rx, pdu_loop) = storage.try_split().unwrap();
    // Patient with a busy test machine.
    let long = Duration::from_secs(10);
    let timeouts = Timeouts {
        pdu,
        state_transition: long,
        eeprom: long,
        mailbox_echo: long,
        mailbox_response: long,
        ..Timeouts::default()
    };
    let config = MainDeviceConfig { dc_static_sync_iterations: 100, retry_behaviour };
    (MainDevice::new(pdu_loop, timeouts, config), tx, rx)
}

/// The humanoid, patient with a busy test machine.
pub fn patient_humanoid() -> SegmentConfig {
    SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(59) }
}
