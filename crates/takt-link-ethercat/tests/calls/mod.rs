//! System calls of a cycle: each method of a network interface's wire is one system call, and calls
//! of a wire in simulated time are the same in every run.

use std::io;

use super::*;

#[derive(Default)]
struct Calls {
    send: AtomicU64,
    receive: AtomicU64,
    wait: AtomicU64,
    stamp: AtomicU64,
    sleep: AtomicU64,
}

/// A wire whose calls are counted.
struct Counted(Box<dyn Wire>, Arc<Calls>);

impl Wire for Counted {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.1.send.fetch_add(1, Ordering::Relaxed);
        self.0.send(frame)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.1.receive.fetch_add(1, Ordering::Relaxed);
        self.0.receive(buffer)
    }

    fn wait(&mut self, deadline_ns: u64) {
        self.1.wait.fetch_add(1, Ordering::Relaxed);
        self.0.wait(deadline_ns);
    }

    fn arrived_ns(&self) -> Option<u64> {
        self.1.stamp.fetch_add(1, Ordering::Relaxed);
        self.0.arrived_ns()
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn sleep_until(&mut self, at_ns: u64) {
        self.1.sleep.fetch_add(1, Ordering::Relaxed);
        self.0.sleep_until(at_ns);
    }
}

impl Calls {
    /// Sent, received, waited, asked for a stamp, slept; from now on they begin at 0.
    fn taken(&self) -> [u64; 5] {
        [&self.send, &self.receive, &self.wait, &self.stamp, &self.sleep]
            .map(|calls| calls.swap(0, Ordering::Relaxed))
    }
}

#[test]
fn a_cycle_makes_two_system_calls_pipelined_and_three_waiting_and_a_lost_frame_costs_its_timeout() {
    const CYCLES: u64 = 2000;
    for mode in [ExchangeMode::Pipelined, ExchangeMode::Waiting] {
        let config = ControlConfig { mode, bring_up_ms: 20_000, ..Default::default() };
        let calls = Arc::new(Calls::default());
        let counted = Arc::clone(&calls);
        let mut bench =
            Bench::over(&SegmentConfig::humanoid(59), &config, |wire| Box::new(Counted(wire, counted)));
        // The way of a frame varies by 20 us from cycle to cycle.
        let way_us = |cycle: u64| cycle * 7919 % 21;
        for cycle in 0..1000 {
            assert!(bench.cycle(0, way_us(cycle)).fresh || cycle == 0, "{mode:?}, cycle {cycle}");
        }
        calls.taken();
        let mut longest_us = 0;
        for cycle in 0..CYCLES {
            let exchanged = bench.cycle(0, way_us(cycle));
            assert!(exchanged.complete(), "{mode:?}, cycle {cycle}: {exchanged:?}");
            longest_us = longest_us.max(exchanged.fetch_ns / 1000);
        }
        let [send, receive, wait, stamp, sleep] = calls.taken();
        assert_eq!(send, CYCLES, "{mode:?}");
        assert!(stamp <= CYCLES / 64 + 1, "{mode:?}: {stamp}");
        if mode == ExchangeMode::Pipelined {
            assert_eq!((receive, wait, sleep), (CYCLES, 0, 0));
            continue;
        }
        // One answer of 20 comes after the sleep, and is waited for.
        assert!(sleep == CYCLES && wait <= CYCLES * 6 / 100, "slept {sleep}, waited {wait} times");
        assert_eq!(receive, CYCLES + wait);
        assert!((60..=90).contains(&longest_us), "{longest_us} us");
        // The time of a frame that never comes is kept to the nanosecond, whatever was slept
        // before.
        let begun_ns = bench.next_ns;
        assert!(!bench.cycle(0, NEVER).fresh);
        assert_eq!(bench.time.now_ns(), begun_ns + u64::from(config.timeout_us) * 1000);
        assert!(bench.cycle(0, 0).complete());
    }
}
