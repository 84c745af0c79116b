//! A proxy between the cell and the controller that knows RTDE: it learns the recipes that are
//! agreed on through it, and so can change any variable by its name.
//!
//! Two threads a connection, one a direction. They stand for the wire, so they ask for a real-time
//! priority; where that is not granted, what they wait too long is part of the time that the
//! witness sees.

mod disturbance;
mod packet;
mod pump;

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_rt::clock::monotonic_ns;
use takt_rt::policy::Policy;

pub use disturbance::{Direction, Disturbance, Which};
pub use packet::Value;

use crate::FaultError;
use disturbance::Plan;
use packet::Recipes;

/// Priority of the wire: above the cell's threads, below the simulated controller's.
const WIRE_PRIORITY: u8 = 55;

#[derive(Debug, Default)]
pub(crate) struct ProxyState {
    plan: Mutex<Arc<Plan>>,
    stop: AtomicBool,
    refuse: AtomicBool,
    links: Mutex<Vec<Arc<LinkState>>>,
}

/// State shared by both directions of a connection.
#[derive(Debug)]
pub(crate) struct LinkState {
    cell: TcpStream,
    controller: TcpStream,
    pub(crate) open: AtomicBool,
    /// Whether the connection is half open: nothing passes any more, nobody is informed.
    pub(crate) dead: AtomicBool,
    pub(crate) recipes: Mutex<Recipes>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves plain values behind, each of them valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LinkState {
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Release);
        // Fails where a peer was first; the connection is over either way.
        let _ = self.cell.shutdown(Shutdown::Both);
        let _ = self.controller.shutdown(Shutdown::Both);
    }

    /// Ends with a reset on the cell's side, as a rebooting controller looks.
    fn reset(&self) {
        use std::os::fd::AsRawFd;
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: the descriptor is open as long as `self` lives, and the pointer and its length
        // are those of a live `linger`.
        unsafe {
            libc::setsockopt(
                self.cell.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                std::ptr::from_ref(&linger).cast(),
                size_of::<libc::linger>() as libc::socklen_t,
            );
        }
        self.close();
    }
}

impl ProxyState {
    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&lock(&self.plan))
    }
}

/// The running proxy; dropping it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<ProxyState>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free loopback port and connects everyone to `controller`.
    ///
    /// # Errors
    /// No port, or no thread.
    pub fn start(controller: SocketAddr) -> Result<Self, FaultError> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(FaultError::io("the proxy's port"))?;
        listener.set_nonblocking(true).map_err(FaultError::io("the proxy's port"))?;
        let address = listener.local_addr().map_err(FaultError::io("the proxy's port"))?;
        let shared = Arc::new(ProxyState::default());
        let accepting = std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || accept(&listener, controller, &shared)
            })
            .map_err(FaultError::io("the proxy's thread"))?;
        Ok(Self { shared, address, accepting: Some(accepting) })
    }

    /// Address at which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Plants faults. Returns when (CLOCK_MONOTONIC) every later packet is under them.
    pub fn plant(&self, disturbances: &[Disturbance]) -> u64 {
        let now_ns = monotonic_ns();
        *lock(&self.shared.plan) = Arc::new(Plan::new(disturbances.to_vec(), now_ns));
        for disturbance in disturbances {
            match disturbance {
                Disturbance::Reset => self.links(LinkState::reset),
                Disturbance::Refuse => {
                    self.shared.refuse.store(true, Ordering::Release);
                    self.links(LinkState::reset);
                }
                Disturbance::HalfOpen => self.links(|link| link.dead.store(true, Ordering::Release)),
                _ => {}
            }
        }
        monotonic_ns()
    }

    /// Ends all faults; what was delayed is sent at once. Connections that were half open are
    /// reset, as they are once packets reach a peer that knows nothing of them.
    pub(crate) fn heal(&self) -> u64 {
        self.links(|link| {
            if link.dead.load(Ordering::Acquire) {
                link.reset();
            }
        });
        *lock(&self.shared.plan) = Arc::new(Plan::new(Vec::new(), monotonic_ns()));
        self.shared.refuse.store(false, Ordering::Release);
        monotonic_ns()
    }

    fn links(&self, act: impl Fn(&LinkState)) {
        lock(&self.shared.links).iter().for_each(|link| act(link));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.links(LinkState::close);
        if let Some(thread) = self.accepting.take() {
            // A panic of the thread has been reported on stderr by itself.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, controller: SocketAddr, shared: &Arc<ProxyState>) {
    let mut pumps: Vec<JoinHandle<()>> = Vec::new();
    while !shared.stop.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, _)) if !shared.refuse.load(Ordering::Acquire) => {
                match connect(stream, controller, shared) {
                    Ok(started) => pumps.extend(started),
                    Err(error) => eprintln!("proxy: a connection was not passed on: {error}"),
                }
            }
            // Dropped: closed at once.
            Ok(_) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
        lock(&shared.links).retain(|link| link.open.load(Ordering::Acquire));
    }
    for pump in pumps {
        // A panic of the thread has been reported on stderr by itself.
        let _ = pump.join();
    }
}

fn connect(
    cell: TcpStream,
    controller: SocketAddr,
    shared: &Arc<ProxyState>,
) -> std::io::Result<[JoinHandle<()>; 2]> {
    let controller = TcpStream::connect_timeout(&controller, Duration::from_secs(1))?;
    for stream in [&cell, &controller] {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    }
    let link = Arc::new(LinkState {
        cell,
        controller,
        open: AtomicBool::new(true),
        dead: AtomicBool::new(false),
        recipes: Mutex::default(),
    });
    lock(&shared.links).push(Arc::clone(&link));
    let start = |direction: Direction| {
        let (shared, link) = (Arc::clone(shared), Arc::clone(&link));
        std::thread::Builder::new().name("wire".to_owned()).spawn(move || {
            as_the_wire();
            let (from, to) = match direction {
                Direction::ToRobot => (&link.cell, &link.controller),
                Direction::ToCell => (&link.controller, &link.cell),
            };
            pump::Pump::new(&shared, &link, direction).run(from, to);
            link.close();
        })
    };
    Ok([start(Direction::ToRobot)?, start(Direction::ToCell)?])
}

/// Asks for a real-time priority, for the calling thread.
fn as_the_wire() {
    // A refusal leaves the thread as it was: the witness sees what it waits.
    let _ = Policy::Fifo { priority: WIRE_PRIORITY }.apply(0);
}
