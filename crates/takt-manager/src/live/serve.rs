//! HTTP for metrics: one thread, an event loop, and no client that another one waits for.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time for a whole request and its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes of a request's head: a scraper's has some hundred.
const HEAD_LIMIT: usize = 8192;
const FIELDS: usize = 64;
/// Most connections at once. When one more comes, the one that is nearest to its time limit is closed: whoever opens
/// connections and is silent loses them, and a scrape takes less than a millisecond.
const CONNECTIONS: usize = 32;
/// Pause after connections could not be accepted (no file descriptors left): poll would report them again at once.
const PAUSE: Duration = Duration::from_millis(50);

/// What is answered.
pub(super) struct Reply {
    pub(super) code: &'static str,
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn text(code: &'static str, body: impl Into<String>) -> Self {
        Self { code, kind: "text/plain; charset=utf-8", body: body.into() + "\n" }
    }

    fn bytes(self) -> Vec<u8> {
        let Self { code, kind, body } = self;
        let length = body.len();
        format!(
            "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nX-Content-Type-Options: nosniff\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// Serves `answer` (from a path) until the other end of `stop` is closed.
pub(super) fn serve(listener: &TcpListener, stop: &UnixStream, mut answer: impl FnMut(&str) -> Reply) {
    let hosts = listener.local_addr().map(hosts).unwrap_or_default();
    let mut clients: Vec<Client> = Vec::new();
    let mut accept_after = Instant::now();
    loop {
        let now = Instant::now();
        clients.retain(|client| client.until > now);
        let accepting = now >= accept_after;
        let mut fds = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(listener, if accepting { PollFlags::IN } else { PollFlags::empty() }),
        ];
        fds.extend(clients.iter().map(|client| PollFd::new(&client.stream, client.waits_for())));
        let paused = (!accepting).then_some(accept_after);
        let next = clients.iter().map(|client| client.until).chain(paused).min();
        let timeout = next.and_then(|next| Timespec::try_from(next.saturating_duration_since(now)).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        if !fds[0].revents().is_empty() {
            return;
        }
        let came = !fds[1].revents().is_empty();
        let ready: Vec<bool> = fds[2..].iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        clients.retain_mut(|client| {
            // A client that breaks off is its own affair.
            !ready.next().unwrap_or(false) || client.turn(&hosts, &mut answer).unwrap_or(false)
        });
        if came {
            match accept(listener, &mut clients) {
                Ok(()) => {}
                Err(_) => accept_after = Instant::now() + PAUSE,
            }
        }
    }
}

fn accept(listener: &TcpListener, clients: &mut Vec<Client>) -> io::Result<()> {
    // No more than a round at once: those who are there have their turn, too.
    for _ in 0..CONNECTIONS {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        if clients.len() >= CONNECTIONS
            && let Some(oldest) = (0..clients.len()).min_by_key(|&index| clients[index].until)
        {
            clients.swap_remove(oldest);
        }
        let until = Instant::now() + PATIENCE;
        clients.push(Client { stream, received: Vec::new(), reply: Vec::new(), written: 0, until });
    }
    Ok(())
}

struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    /// Empty while the request is read.
    reply: Vec<u8>,
    written: usize,
    until: Instant,
}

impl Client {
    fn waits_for(&self) -> PollFlags {
        if self.written < self.reply.len() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Does what can be done without waiting; whether the connection goes on.
    fn turn(&mut self, hosts: &[String], answer: &mut dyn FnMut(&str) -> Reply) -> io::Result<bool> {
        let done = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(true),
            _ => Err(error),
        };
        if self.reply.is_empty() {
            let mut buffer = [0; 2048];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) => return done(error),
            }
            match request(&self.received, hosts, answer) {
                None => return Ok(true),
                Some(reply) => self.reply = reply.bytes(),
            }
        }
        while self.written < self.reply.len() {
            match self.stream.write(&self.reply[self.written..]) {
                Ok(0) => return Ok(false),
                Ok(count) => self.written += count,
                Err(error) => return done(error),
            }
            if self.written == self.reply.len() {
                self.stream.shutdown(Shutdown::Write)?;
            }
        }
        // What still comes is thrown away until the client closes: closing first would reset the connection, and the answer
        // might be lost.
        match self.stream.read(&mut [0; 2048]) {
            Ok(0) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) => done(error),
        }
    }
}

/// The answer to a request, once its head is whole.
fn request(received: &[u8], hosts: &[String], answer: &mut dyn FnMut(&str) -> Reply) -> Option<Reply> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(received) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if received.len() < HEAD_LIMIT => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(Reply::text(
                "431 Request Header Fields Too Large",
                "the request's head is too long",
            ));
        }
        Err(error) => return Some(Reply::text("400 Bad Request", format!("not an HTTP request: {error}"))),
    }
    let mut named = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let (Some(host), None) = (named.next(), named.next()) else {
        return Some(Reply::text("400 Bad Request", "exactly one Host field is needed"));
    };
    // Another name for this machine means that a foreign page was led here by its name server (DNS rebinding).
    let host = String::from_utf8_lossy(host.value);
    if !hosts.iter().any(|served| served.eq_ignore_ascii_case(host.trim())) {
        let told = format!("only requests for {} are answered", hosts.join(" and "));
        return Some(Reply::text("403 Forbidden", told));
    }
    if request.method != Some("GET") {
        return Some(Reply::text("405 Method Not Allowed", "only GET"));
    }
    let target = request.path.unwrap_or_default();
    Some(answer(target.split_once('?').map_or(target, |(path, _)| path)))
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
