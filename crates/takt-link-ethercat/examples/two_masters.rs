//! Cycles and CPU time of the master's side, ethercrab against pysoem, over one cable.
//!
//! `cargo run -p takt-link-ethercat --example two_masters -- [SECONDS]` as root, with `pip install pysoem==1.1.13`. The
//! segment runs in a process of its own, so that the CPU time told is the master's alone: process time of the whole
//! master, transport threads included. Each master cycles as fast as it can, then at 1 kHz.

use std::error::Error;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use ethercrab::{MainDevice, MainDeviceConfig, PduStorage, Timeouts};
use takt_link_ethercat::segment::veth::{VethPair, serve};
use takt_link_ethercat::segment::{Segment, SegmentConfig};
use takt_rt::clock;

static STORAGE: PduStorage<16, { PduStorage::element_size(1486) }> = PduStorage::new();

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, interface] = arguments.as_slice()
        && mode == "serve"
    {
        return run_segment(interface);
    }
    let seconds: f64 = arguments.first().map_or(Ok(5.0), |text| text.parse())?;
    let pair = VethPair::unique()?;
    let segment = Served::start(pair.segment())?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/pysoem_segment.py");
    println!("pysoem:");
    let status = Command::new("python3")
        .args([script, pair.master(), "59", "bench", &seconds.to_string()])
        .status()?;
    println!("pysoem ended: {status}");
    drop(segment);
    let _segment = Served::start(pair.segment())?;
    println!("ethercrab:");
    run_ethercrab(pair.master(), seconds)
}

fn config() -> SegmentConfig {
    SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(59) }
}

/// The child: serves until its input ends.
fn run_segment(interface: &str) -> Result<(), Box<dyn Error>> {
    let server = serve(interface, Segment::new(&config())?, "segment", &Default::default())?;
    println!("bound");
    std::io::stdout().flush()?;
    std::io::stdin().lines().for_each(drop);
    drop(server);
    Ok(())
}

/// The segment in a process of its own.
struct Served(Child);

impl Served {
    fn start(interface: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", interface])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line.trim() == "bound" { Ok(Self(child)) } else { Err("the segment did not start".into()) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends with its input; nothing else is to be done when waiting fails.
        let _ = self.0.wait();
    }
}

fn run_ethercrab(interface: &str, seconds: f64) -> Result<(), Box<dyn Error>> {
    let (tx, rx, pdu_loop) = STORAGE.try_split().map_err(|()| "the storage is in use")?;
    let timeouts = Timeouts { pdu: Duration::from_millis(100), ..Timeouts::default() };
    let settings = MainDeviceConfig { dc_static_sync_iterations: 1000, ..MainDeviceConfig::default() };
    let main_device = MainDevice::new(pdu_loop, timeouts, settings);
    let name = interface.to_owned();
    std::thread::spawn(move || {
        if let Err(error) = ethercrab::std::tx_rx_task_io_uring(&name, tx, rx) {
            eprintln!("io_uring: {error}");
        }
    });
    let begin = clock::monotonic_ns();
    let group = block_on(main_device.init_single_group::<64, 1024>(ethercrab::std::ethercat_now))
        .and_then(|group| block_on(group.into_op(&main_device)))
        .map_err(|error| format!("bring-up: {error}"))?;
    println!("{} devices in OP after {:.2} s", group.len(), (clock::monotonic_ns() - begin) as f64 * 1e-9);
    for (what, period_ns) in [("free", 0), ("paced", 1_000_000)] {
        let (begin, cpu) = (clock::monotonic_ns(), clock::process_cpu_ns());
        let (mut cycles, mut wrong, mut due) = (0_u64, 0_u64, begin);
        while ((clock::monotonic_ns() - begin) as f64) < seconds * 1e9 {
            match block_on(group.tx_rx(&main_device)) {
                Ok(response)
                    if response.working_counter == config().working_counter() && response.all_op() => {}
                _ => wrong += 1,
            }
            cycles += 1;
            if period_ns > 0 {
                due += period_ns;
                clock::sleep_until(due);
            }
        }
        let elapsed_s = (clock::monotonic_ns() - begin) as f64 * 1e-9;
        let cpu_us = (clock::process_cpu_ns() - cpu) as f64 / 1000.0 / cycles as f64;
        println!(
            "{what}: {cycles} cycles, {:.0} cycles/s, {wrong} wrong, {cpu_us:.2} us of CPU a cycle",
            cycles as f64 / elapsed_s
        );
    }
    // The transport thread waits in the kernel; the process ends with it.
    Ok(())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
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
