//! Cycles and CPU time of the master's side, ethercrab against pysoem, over one cable.
//!
//! `cargo run -p takt-link-ethercat --example two_masters -- [SECONDS]` as root, with
//! `pip install pysoem==1.1.13`. The segment runs in a process of its own, so that the CPU time
//! reported is the master's alone: process time of the whole master, transport threads included.
//! Each master cycles as fast as it can, then at 1 kHz, then at 1 kHz with every drive's target
//! written and every input read each cycle. ethercrab runs twice: with its io_uring transport
//! thread, and with frames sent and received by the cycling thread itself.

use std::error::Error;
use std::future::Future;
use std::io::Write;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use ethercrab::{MainDevice, MainDeviceConfig, PduRx, PduStorage, PduTx, Timeouts};
use takt_link_ethercat::segment::raw::RawSocket;
use takt_link_ethercat::segment::veth::{VethPair, serve};
use takt_link_ethercat::segment::{Segment, SegmentConfig};
use takt_rt::clock;

use served::Served;

mod served;

static STORAGE: PduStorage<16, { PduStorage::element_size(1486) }> = PduStorage::new();

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, interface] = arguments.as_slice()
        && mode == "serve"
    {
        return run_segment(interface);
    }
    if let [mode, transport, interface, seconds] = arguments.as_slice()
        && mode == "ethercrab"
    {
        return run_ethercrab(interface, seconds.parse()?, transport == "own");
    }
    let seconds: f64 = arguments.first().map_or(Ok(5.0), |text| text.parse())?;
    let pair = VethPair::unique()?;
    let segment = Served::start(&pair)?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/pysoem_segment.py");
    println!("pysoem:");
    let status = Command::new("python3")
        .args([script, pair.master(), "59", "bench", &seconds.to_string()])
        .status()?;
    println!("pysoem ended: {status}");
    drop(segment);
    // Each in a process of its own: ethercrab's storage splits once, and process time is the
    // process's.
    for transport in ["thread", "own"] {
        let segment = Served::start(&pair)?;
        println!("ethercrab, transport {transport}:");
        let arguments = ["ethercrab", transport, pair.master(), &seconds.to_string()];
        let status = Command::new(std::env::current_exe()?).args(arguments).status()?;
        println!("ethercrab ended: {status}");
        drop(segment);
    }
    Ok(())
}

/// Of one LRW over all process data of the humanoid.
const WORKING_COUNTER: u16 = 157;

fn config() -> SegmentConfig {
    SegmentConfig { watchdog_ms: 5000, ..SegmentConfig::humanoid(59) }
}

/// The child: serves until its input ends.
fn run_segment(interface: &str) -> Result<(), Box<dyn Error>> {
    let segment = Segment::new(&config())?;
    let control = segment.control();
    let server = serve(interface, segment, "segment", &Default::default())?;
    println!("bound");
    std::io::stdout().flush()?;
    std::io::stdin().lines().for_each(drop);
    drop(server);
    let counts = control.counts();
    eprintln!("the segment has seen {} frames, {} with process data", counts.frames, counts.cyclic);
    Ok(())
}

/// Frames between ethercrab and the socket, in the thread that waits for them.
struct Pump {
    socket: RawSocket,
    tx: PduTx<'static>,
    rx: PduRx<'static>,
    buffer: [u8; 2048],
}

impl Pump {
    /// Sends what is to be sent, or else waits for a frame and hands it over.
    fn turn(&mut self) {
        let mut sent = false;
        while let Some(frame) = self.tx.next_sendable_frame() {
            let outcome = frame.send_blocking(|bytes| {
                self.socket.send(bytes).map(|()| bytes.len()).map_err(|_| ethercrab::error::Error::SendFrame)
            });
            sent |= outcome.is_ok();
        }
        if !sent {
            return;
        }
        if let Ok(Some(length)) = self.socket.receive(&mut self.buffer) {
            // A frame that nobody waits for any more is no error here.
            let _ = self.rx.receive_frame(&self.buffer[..length]);
        }
    }
}

fn run_ethercrab(interface: &str, seconds: f64, own: bool) -> Result<(), Box<dyn Error>> {
    let (tx, rx, pdu_loop) = STORAGE.try_split().map_err(|()| "the storage is in use")?;
    // Patient with a busy machine.
    let long = Duration::from_secs(2);
    let timeouts = Timeouts {
        pdu: long,
        eeprom: long,
        mailbox_echo: long,
        mailbox_response: long,
        state_transition: 5 * long,
        ..Timeouts::default()
    };
    let settings = MainDeviceConfig { dc_static_sync_iterations: 1000, ..MainDeviceConfig::default() };
    let main_device = MainDevice::new(pdu_loop, timeouts, settings);
    let mut pump = None;
    if own {
        let socket = RawSocket::open(interface, Duration::from_millis(100))?;
        pump = Some(Pump { socket, tx, rx, buffer: [0; 2048] });
    } else {
        let name = interface.to_owned();
        std::thread::spawn(move || {
            if let Err(error) = ethercrab::std::tx_rx_task_io_uring(&name, tx, rx) {
                eprintln!("io_uring: {error}");
            }
        });
    }
    let begin = clock::monotonic_ns();
    let group = block_on(main_device.init_single_group::<64, 1024>(ethercrab::std::ethercat_now), &mut pump)
        .and_then(|group| block_on(group.into_op(&main_device), &mut pump))
        .map_err(|error| format!("bring-up: {error}"))?;
    println!("{} devices in OP after {:.2} s", group.len(), (clock::monotonic_ns() - begin) as f64 * 1e-9);
    let mut sum = 0_u64;
    for (what, period_ns, data) in
        [("free", 0, false), ("paced", 1_000_000, false), ("with data", 1_000_000, true)]
    {
        let (begin, cpu) = (clock::monotonic_ns(), clock::process_cpu_ns());
        let (mut cycles, mut wrong, mut due) = (0_u64, 0_u64, begin);
        while ((clock::monotonic_ns() - begin) as f64) < seconds * 1e9 {
            match block_on(group.tx_rx(&main_device), &mut pump) {
                Ok(response) if response.working_counter == WORKING_COUNTER && response.all_op() => {}
                _ => wrong += 1,
            }
            if data {
                for device in group.iter(&main_device) {
                    sum += device.inputs_raw().iter().map(|byte| u64::from(*byte)).sum::<u64>();
                    let mut outputs = device.outputs_raw_mut();
                    if outputs.len() == 6 {
                        outputs[..2].copy_from_slice(&6_u16.to_le_bytes());
                        outputs[2..].copy_from_slice(&(cycles as i32).to_le_bytes());
                    }
                }
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
    if let Some(pump) = &mut pump {
        report_floor(pump, seconds);
    }
    println!("inputs read (sum of bytes): {sum}");
    report_threads();
    // The transport thread waits in the kernel; the process ends with it.
    std::process::exit(0)
}

/// What no master can go below: a frame of 656 bytes, sent and received at 1 kHz, and nothing else.
fn report_floor(pump: &mut Pump, seconds: f64) {
    let mut frame = [0; 14 + 2 + 12 + 644];
    frame[6] = 0x10;
    frame[12..16].copy_from_slice(&[0x88, 0xA4, 0x90, 0x12]);
    // One NOP of 644 bytes: it passes all devices and moves nothing.
    frame[22..24].copy_from_slice(&644_u16.to_le_bytes());
    let (begin, cpu) = (clock::monotonic_ns(), clock::process_cpu_ns());
    let (mut cycles, mut back, mut due) = (0_u64, 0_u64, begin);
    while ((clock::monotonic_ns() - begin) as f64) < seconds * 1e9 {
        let sent = pump.socket.send(&frame).is_ok();
        back += u64::from(sent && matches!(pump.socket.receive(&mut pump.buffer), Ok(Some(_))));
        cycles += 1;
        due += 1_000_000;
        clock::sleep_until(due);
    }
    let cpu_us = (clock::process_cpu_ns() - cpu) as f64 / 1000.0 / cycles as f64;
    println!("socket alone, paced: {back} of {cycles} back, {cpu_us:.2} us of CPU a cycle");
}

/// CPU time of each thread so far, bring-up included.
fn report_threads() {
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let cpu_ns: u64 = read("schedstat").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        println!("thread {}: {:.3} s of CPU", read("comm").trim(), cpu_ns as f64 * 1e-9);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs the future on this thread, which also carries its frames when there is a pump.
fn block_on<T>(future: impl Future<Output = T>, pump: &mut Option<Pump>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match (future.as_mut().poll(&mut context), &mut *pump) {
            (Poll::Ready(value), _) => return value,
            (Poll::Pending, Some(pump)) => pump.turn(),
            (Poll::Pending, None) => std::thread::park(),
        }
    }
}
