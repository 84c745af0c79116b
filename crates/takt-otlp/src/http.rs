//! A request over HTTP/1.1, on a connection of its own, within a time limit, with an answer of
//! limited length. No redirects, no proxies.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::tls::Tls;

/// What is read of an answer, head and body each.
const MOST_HEAD: usize = 16 << 10;
const MOST_BODY: usize = 64 << 10;

/// Header lines of an answer at most.
const MOST_LINES: usize = 64;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    /// What it wants to be waited for.
    pub retry_after: Option<Duration>,
    /// Its beginning; empty where it came in pieces.
    pub body: Vec<u8>,
}

/// Time that is left; an error where there is none.
fn left(until: Instant) -> std::io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(std::io::Error::new(ErrorKind::TimedOut, "no answer in time"));
    }
    Ok(left)
}

/// A connection that is over at a moment, whatever part of the work it is at: the other side may
/// send a byte a second, in a handshake too.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            self.stream.set_read_timeout(Some(left(self.until)?))?;
            match self.stream.read(into) {
                Err(error) if is_timeout(&error) => {}
                other => return other,
            }
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        loop {
            self.stream.set_write_timeout(Some(left(self.until)?))?;
            match self.stream.write(bytes) {
                Err(error) if is_timeout(&error) => {}
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Sends `body` to `url`, which begins with `http://` or `https://`.
pub(crate) fn post(
    url: &str,
    tls: &Tls,
    headers: &[(String, String)],
    body: &[u8],
    patience: Duration,
) -> Result<Reply, String> {
    let until = Instant::now() + patience;
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let port = if scheme == "https" { 443 } else { 80 };
    let plain = Timed { stream: connect(authority, port, until)?, until };
    if scheme == "https" {
        return tls.over(authority, plain, |stream| exchange(stream, [authority, path], headers, body));
    }
    exchange(&mut { plain }, [authority, path], headers, body)
}

fn exchange(
    stream: &mut (impl Read + Write),
    [authority, path]: [&str; 2],
    headers: &[(String, String)],
    body: &[u8],
) -> Result<Reply, String> {
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: takt/{}\r\nconnection: close\r\n\
         content-type: application/x-protobuf\r\ncontent-length: {}\r\n",
        env!("CARGO_PKG_VERSION"),
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    for bytes in [head.as_bytes(), body] {
        stream.write_all(bytes).map_err(|error| error.to_string())?;
    }
    stream.flush().map_err(|error| error.to_string())?;
    answer(stream)
}

fn connect(authority: &str, port: u16, until: Instant) -> Result<TcpStream, String> {
    let has_port = authority.rsplit(']').next().is_some_and(|last| last.contains(':'));
    let address = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let mut why = format!("{authority} has no address");
    for address in address.to_socket_addrs().map_err(|error| format!("{authority}: {error}"))? {
        match TcpStream::connect_timeout(&address, left(until).map_err(|error| error.to_string())?) {
            Ok(stream) => {
                // Its absence costs milliseconds and nothing else.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// Reads more; whether there is more to come.
fn receive(stream: &mut impl Read, into: &mut Vec<u8>) -> Result<bool, String> {
    let mut part = [0; 4096];
    match stream.read(&mut part) {
        // Over TLS, too: an end that nobody signed cuts off no more than one that somebody did.
        Ok(0) => Ok(false),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Ok(length) => {
            into.extend_from_slice(&part[..length]);
            Ok(true)
        }
        Err(error) => Err(error.to_string()),
    }
}

fn answer(stream: &mut impl Read) -> Result<Reply, String> {
    let mut bytes = Vec::new();
    loop {
        let more = receive(stream, &mut bytes)?;
        let mut lines = [httparse::EMPTY_HEADER; MOST_LINES];
        let mut head = httparse::Response::new(&mut lines);
        match head.parse(&bytes) {
            Ok(httparse::Status::Complete(length)) => {
                let value = |name: &str| {
                    let found = head.headers.iter().find(|line| line.name.eq_ignore_ascii_case(name))?;
                    std::str::from_utf8(found.value).ok().map(str::trim)
                };
                let retry_after = value("retry-after").and_then(|seconds| seconds.parse().ok());
                let body_bytes = value("content-length").and_then(|length| length.parse::<usize>().ok());
                let mut reply = Reply {
                    status: head.code.unwrap_or(0),
                    retry_after: retry_after.map(Duration::from_secs),
                    body: bytes[length..].to_vec(),
                };
                // Enough was said; how a body ends matters to nobody.
                let most = body_bytes.unwrap_or(0).min(MOST_BODY);
                while reply.body.len() < most && receive(stream, &mut reply.body).unwrap_or(false) {}
                reply.body.truncate(most);
                return Ok(reply);
            }
            Ok(httparse::Status::Partial) if bytes.len() >= MOST_HEAD => {
                return Err("its answer has no end".to_owned());
            }
            Ok(httparse::Status::Partial) if !more => return Err("it closed the connection".to_owned()),
            Ok(httparse::Status::Partial) => {}
            Err(error) => return Err(format!("what it answers is no HTTP: {error}")),
        }
    }
}
