//! The simulator's one thread: once per cycle take inputs in, move, send outputs.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use takt_rt::clock::{monotonic_ns, sleep_until, thread_cpu_ns};
use takt_rt::policy::Policy;

use super::controller::Controller;
use super::dashboard::DashboardClient;
use super::log::Log;
use super::primary::Primary;
use super::rtde::{Client, Delivery, Turn};
use super::{CYCLE_HZ, ControllerState, Fault, SimConfig, SimProgram, SimState, lock};
use crate::RtdeError;

const CYCLE_NS: u64 = 1_000_000_000 / CYCLE_HZ as u64;

/// Cycles that are made up for after the thread was kept from running: 0.1 s. Cycles missed beyond
/// that are lost, as simulated time may be.
const MAX_CATCH_UP: u64 = 50;

/// Clients of each kind at a time; more are closed at once.
pub(super) const MAX_CLIENTS: usize = 32;

pub(super) struct Server {
    rtde: TcpListener,
    dashboard: TcpListener,
    primary: Primary,
    controller: Controller,
    log: Option<Log>,
    clients: Vec<Client>,
    dashboards: Vec<DashboardClient>,
    polled: Vec<libc::pollfd>,
    fifo_priority: u8,
    frozen: bool,
    refusing: bool,
    split_left: u32,
    cut: bool,
    refused: u64,
    dropped: u64,
}

fn bind(address: SocketAddr, key: &'static str) -> Result<TcpListener, RtdeError> {
    let refuse = |source| RtdeError::Bind { address, key, source };
    let listener = TcpListener::bind(address).map_err(refuse)?;
    listener.set_nonblocking(true).map_err(refuse)?;
    Ok(listener)
}

fn address(listener: &TcpListener) -> Result<SocketAddr, RtdeError> {
    listener.local_addr().map_err(RtdeError::io("asking for the port"))
}

impl Server {
    pub(super) fn bind(config: SimConfig) -> Result<Self, RtdeError> {
        let rtde = bind(SocketAddr::new(config.address, config.rtde_port), "rtde_port")?;
        let dashboard = bind(SocketAddr::new(config.address, config.dashboard_port), "dashboard_port")?;
        let primary = bind(SocketAddr::new(config.address, config.primary_port()), "primary_port")?;
        let servo = config.program == SimProgram::TaktServo;
        Ok(Self {
            rtde,
            dashboard,
            primary: Primary::new(primary, &config.arm()),
            fifo_priority: config.fifo_priority,
            log: config.log.as_deref().map(|path| Log::create(path, servo)).transpose()?,
            controller: Controller::new(config),
            clients: Vec::new(),
            dashboards: Vec::new(),
            polled: Vec::new(),
            frozen: false,
            refusing: false,
            split_left: 0,
            cut: false,
            refused: 0,
            dropped: 0,
        })
    }

    pub(super) fn rtde_address(&self) -> Result<SocketAddr, RtdeError> {
        address(&self.rtde)
    }

    pub(super) fn dashboard_address(&self) -> Result<SocketAddr, RtdeError> {
        address(&self.dashboard)
    }

    pub(super) fn primary_address(&self) -> Result<SocketAddr, RtdeError> {
        address(self.primary.listener())
    }

    pub(super) fn run(mut self, shared: &ControllerState) {
        shared.thread_id.store(takt_rt::thread::own_tid(), Ordering::Release);
        self.ask_for_priority();
        let mut next_ns = monotonic_ns();
        while !shared.stop.load(Ordering::Acquire) {
            next_ns += CYCLE_NS;
            sleep_until(next_ns);
            let now_ns = monotonic_ns();
            // The grid is absolute; cycles that were slept through are made up for.
            let late = now_ns.saturating_sub(next_ns) / CYCLE_NS;
            next_ns += late * CYCLE_NS;
            self.controller.cycles_lost += late.saturating_sub(MAX_CATCH_UP);
            self.cycle(shared, now_ns, 1 + late.min(MAX_CATCH_UP));
        }
    }

    fn ask_for_priority(&self) {
        if self.fifo_priority == 0 {
            return;
        }
        let asked = Policy::Fifo { priority: self.fifo_priority };
        if let Err(error) = asked.apply(0) {
            // Whether somebody receives it or not: nothing here may end for a closed stream.
            let _ = writeln!(
                io::stderr(),
                "ursim: SCHED_FIFO {} not granted; it runs without: {error}",
                self.fifo_priority
            );
        }
    }

    fn cycle(&mut self, shared: &ControllerState, now_ns: u64, steps: u64) {
        if shared.has_faults.swap(false, Ordering::AcqRel) {
            let faults = std::mem::take(&mut *lock(&shared.faults));
            for fault in faults {
                self.inject(fault);
            }
        }
        self.take_in(now_ns);
        for step in 0..steps {
            self.controller.step(now_ns, step > 0);
        }
        if let Some(log) = &mut self.log {
            log.note(&self.controller, now_ns, steps, self.clients.len());
        }
        self.send(steps);
        self.primary.cycle();
        self.clients.retain(|client| client.connection.open);
        self.dashboards.retain(|client| client.connection.open);
        let mut state = lock(&shared.state);
        *state = SimState {
            clients: self.clients.len(),
            packets_refused: self.refused,
            packets_dropped: self.dropped,
            ..SimState::default()
        };
        self.controller.fill(&mut state);
        drop(state);
        if self.controller.cycles.is_multiple_of(u64::from(CYCLE_HZ)) {
            shared.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
        }
    }

    /// One `poll(2)` that does not wait finds what has come.
    fn take_in(&mut self, now_ns: u64) {
        self.polled.clear();
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.polled.push(entry(self.rtde.as_raw_fd()));
        self.polled.push(entry(self.dashboard.as_raw_fd()));
        self.polled.extend(self.clients.iter().map(|client| entry(client.connection.fd())));
        self.polled.extend(self.dashboards.iter().map(|client| entry(client.connection.fd())));
        // SAFETY: pointer and length are those of a live vector of pollfd; the call only writes
        // `revents`.
        let ready = unsafe { libc::poll(self.polled.as_mut_ptr(), self.polled.len() as libc::nfds_t, 0) };
        if ready <= 0 {
            return;
        }
        let is_ready = |index: usize| self.polled[index].revents != 0;
        let clients = self.clients.len();
        if !self.frozen {
            for index in 0..clients {
                if is_ready(2 + index) {
                    self.refused += serve(&mut self.clients, index, &mut self.controller, now_ns);
                }
            }
        }
        for (index, client) in self.dashboards.iter_mut().enumerate() {
            if is_ready(2 + clients + index) {
                client.serve(&mut self.controller);
            }
        }
        let (new_rtde, new_dashboard) = (is_ready(0), is_ready(1));
        if new_rtde {
            self.accept_rtde();
        }
        if new_dashboard {
            self.accept_dashboard();
        }
    }

    fn accept_rtde(&mut self) {
        while let Some((stream, peer)) = accept(&self.rtde) {
            if self.refusing || self.clients.len() >= MAX_CLIENTS {
                continue;
            }
            match Client::new(stream) {
                Ok(client) => self.clients.push(client),
                Err(error) => {
                    let _ = writeln!(io::stderr(), "ursim: RTDE client {peer} not accepted: {error}");
                }
            }
        }
    }

    fn accept_dashboard(&mut self) {
        while let Some((stream, peer)) = accept(&self.dashboard) {
            if self.dashboards.len() >= MAX_CLIENTS {
                continue;
            }
            match DashboardClient::new(stream) {
                Ok(client) => self.dashboards.push(client),
                Err(error) => {
                    let _ = writeln!(io::stderr(), "ursim: dashboard client {peer} not accepted: {error}");
                }
            }
        }
    }

    fn send(&mut self, steps: u64) {
        for client in &mut self.dashboards {
            client.connection.flush();
        }
        let texts = std::mem::take(&mut self.controller.texts);
        if self.frozen {
            return;
        }
        let delivery = if self.cut {
            Delivery::Cut
        } else if self.split_left > 0 {
            Delivery::Split
        } else {
            Delivery::Whole
        };
        let mut split_sent = false;
        for client in &mut self.clients {
            client.connection.flush();
            for text in &texts {
                client.text(text, 2);
            }
            // After several steps at once only the newest state is sent, if one of them was due.
            let cycle = self.controller.cycles;
            for cycle in (cycle + 1).saturating_sub(steps)..=cycle {
                match client.send_outputs(&self.controller, cycle, delivery) {
                    Turn::NotDue => continue,
                    Turn::Sent => split_sent = true,
                    Turn::Dropped if delivery == Delivery::Whole => self.dropped += 1,
                    Turn::Dropped => {}
                }
                break;
            }
        }
        self.cut = false;
        if split_sent {
            self.split_left = self.split_left.saturating_sub(1);
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::DropLinks => self.clients.drain(..).for_each(|mut client| client.connection.reset()),
            Fault::RefuseLinks(refuse) => self.refusing = refuse,
            Fault::Freeze(freeze) => self.frozen = freeze,
            Fault::ProtectiveStop => self.controller.protective_stop(),
            Fault::EmergencyStop(pressed) => self.controller.emergency_stop(pressed),
            Fault::PowerOff => self.controller.power_off(),
            Fault::PowerOn => self.controller.release_brakes(),
            Fault::Play => {
                self.controller.play();
            }
            Fault::Pause => {
                self.controller.pause();
            }
            Fault::Stop => self.controller.stop(),
            Fault::SplitPackets(count) => self.split_left = count,
            Fault::CutPacket => self.cut = true,
            Fault::IgnoreSlider(ignore) => self.controller.slider_ignored = ignore,
            Fault::HangWatchdog(hang) => self.controller.program.hung = hang,
            Fault::RawBytes(bytes) => {
                for client in &mut self.clients {
                    client.queue(&bytes);
                }
            }
        }
    }
}

/// Serves client `index`; the others say which inputs they own.
fn serve(clients: &mut [Client], index: usize, controller: &mut Controller, now_ns: u64) -> u64 {
    let (before, rest) = clients.split_at_mut(index);
    let Some((client, after)) = rest.split_first_mut() else { return 0 };
    let others =
        |input| before.iter().chain(after.iter()).any(|other| other.connection.open && other.owns(input));
    client.serve(controller, now_ns, others)
}

pub(super) fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    // Anything but a connection waits for the next cycle: nobody there, or out of descriptors.
    listener.accept().ok()
}
