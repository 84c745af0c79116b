//! HTTP on a loopback address: one thread with an event loop that owns all connections and what
//! they ask for.
//!
//! `axum` (0.8) was run against the same clients: `axum::serve` closes none that is silent, and
//! with hyper's limits and 32 connections at most, silent clients keep everybody else out for as
//! long as they may be silent. Here the connection nearest to its limit makes room, and who takes
//! no answer is closed, too.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use takt_rt::clock::monotonic_ns;
use takt_rt::thread::Handle;

use crate::error::Error;
use crate::http::{Answer, Connection, Fate, Request};
use crate::urgency::{self, Urgency};

/// Most connections at once; when one more comes, the one nearest to its time limit is closed.
const CONNECTIONS: usize = 32;

/// Served pages. The server's thread owns it; nothing here may wait.
pub trait Pages: Send + 'static {
    /// The answer to a request, at this CLOCK_MONOTONIC time.
    fn answer(&mut self, request: &Request<'_>, now_ns: u64) -> Answer;

    /// When [`turn`](Self::turn) is due though nobody asks.
    fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let _ = now_ns;
        None
    }

    /// Called before requests are answered, and when it is due.
    fn turn(&mut self, now_ns: u64) {
        let _ = now_ns;
    }
}

/// A running server. Dropping it closes all connections and ends the thread.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// Closing this end ends the event loop.
    stop: Option<UnixStream>,
    thread: Option<Handle>,
}

impl Server {
    /// Listens on a loopback address and starts the thread `name`. Port 0 takes any free port.
    ///
    /// # Errors
    /// An address that is not loopback or cannot be listened on; a thread that cannot be made or
    /// cannot be given its urgency.
    pub fn start(name: &str, bind: SocketAddr, urgency: Urgency, pages: impl Pages) -> Result<Self, Error> {
        if !bind.ip().is_loopback() {
            return Err(Error::NotLoopback { received: bind });
        }
        let listen = |source| Error::Listen { address: bind, source };
        let listener = TcpListener::bind(bind).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = UnixStream::pair().map_err(Error::Channel)?;
        let hosts = hosts(address);
        let server =
            EventLoop { listener, stopped, hosts, pages, connections: Vec::new(), accept_after_ns: 0 };
        let thread = urgency::spawn(name, urgency, move || server.run())?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address of its first page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The address listened on, with the port that was found free.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A view that died must not take with it whoever it looks at.
            let _ = thread.join();
        }
    }
}

/// The values of `Host` that are served.
fn hosts(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let mut hosts = vec![address.to_string(), format!("localhost:{port}")];
    if port == 80 {
        hosts.extend([address.ip().to_string(), "localhost".to_owned()]);
    }
    hosts
}

struct EventLoop<P> {
    listener: TcpListener,
    stopped: UnixStream,
    hosts: Vec<String>,
    pages: P,
    connections: Vec<Connection>,
    /// No connection is accepted before this time.
    accept_after_ns: u64,
}

impl<P: Pages> EventLoop<P> {
    fn run(mut self) {
        loop {
            let now_ns = monotonic_ns();
            let timeout = self.due_ns(now_ns).map(|due| {
                let wait = due.saturating_sub(now_ns);
                Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as _ }
            });
            let accept = if now_ns < self.accept_after_ns { PollFlags::empty() } else { PollFlags::IN };
            let mut watched = vec![
                PollFd::from_borrowed_fd(self.stopped.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.listener.as_fd(), accept),
            ];
            watched.extend(self.connections.iter().map(|connection| {
                let events = if connection.wants_to_write() { PollFlags::OUT } else { PollFlags::IN };
                PollFd::from_borrowed_fd(connection.stream().as_fd(), events)
            }));
            if let Err(error) = poll(&mut watched, timeout.as_ref())
                && error != rustix::io::Errno::INTR
            {
                return; // No descriptor can be waited for: nothing can be served any more.
            }
            let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                return;
            }
            self.turn(ready[1], &ready[2..]);
        }
    }

    /// When something is due besides what descriptors report.
    fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let pages = self.pages.due_ns(now_ns);
        let accept = (self.accept_after_ns > now_ns).then_some(self.accept_after_ns);
        self.connections.iter().map(Connection::deadline_ns).chain(pages).chain(accept).min()
    }

    fn turn(&mut self, incoming: bool, ready: &[bool]) {
        let now_ns = monotonic_ns();
        let Self { hosts, pages, connections, listener, .. } = self;
        pages.turn(now_ns);
        let mut ready = ready.iter().copied();
        connections.retain_mut(|connection| {
            let alive = !ready.next().unwrap_or(false)
                || connection.advance(now_ns, hosts, &mut |request| pages.answer(request, now_ns))
                    == Fate::Open;
            alive && now_ns < connection.deadline_ns()
        });
        // One a turn, so that a flood of connections cannot starve those that are served.
        if !incoming {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                if connections.len() >= CONNECTIONS {
                    let next_to_end = (0..connections.len()).min_by_key(|&i| connections[i].deadline_ns());
                    connections.swap_remove(next_to_end.unwrap_or(0));
                }
                connections.extend(Connection::new(stream, now_ns));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Out of descriptors, say: the listener stays ready, and trying at once again would
            // spin.
            Err(_) => self.accept_after_ns = now_ns + 1_000_000_000,
        }
    }
}
