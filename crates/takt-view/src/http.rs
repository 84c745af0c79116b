//! One HTTP/1.1 connection without blocking: reads one GET request at a time, writes one answer at
//! a time.
//!
//! Everything a client controls is bounded: the size of a request head, the time to send it, the
//! time to take the answer, and the time to sit idle. Parsing is [`httparse`]'s.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// Longest request head, bytes.
pub(crate) const HEAD_LIMIT: usize = 8 * 1024;
const HEADERS: usize = 64;
/// Requests answered before other connections get their turn.
const ANSWERS_A_TURN: usize = 4;
/// Time to send a whole request head, from its first byte.
const REQUEST_NS: u64 = 5_000_000_000;
/// Time to take a whole answer.
const ANSWER_NS: u64 = 10_000_000_000;
/// Time between requests.
const IDLE_NS: u64 = 30_000_000_000;
/// Time for the client to notice that the connection ends, so that it can read a last answer.
const LINGER_NS: u64 = 1_000_000_000;

/// Answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub code: u16,
    /// Type of the body.
    pub content_type: &'static str,
    /// Lines for the head, each ending in CR LF.
    pub extra: String,
    /// Whether a page brings its style within itself.
    pub inline_style: bool,
    /// Content after the head.
    pub body: Body,
}

/// A body that need not be copied.
#[derive(Debug)]
pub enum Body {
    /// Part of the program.
    Fixed(&'static [u8]),
    /// Others have it, too.
    Shared(Arc<[u8]>),
    /// Made for this answer.
    Owned(Vec<u8>),
}

impl Body {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::Fixed(bytes) => bytes,
            Body::Shared(bytes) => bytes,
            Body::Owned(bytes) => bytes,
        }
    }
}

impl Answer {
    /// A plain-text answer, for everything that went wrong.
    pub fn text(code: u16, text: impl std::fmt::Display) -> Self {
        Self {
            code,
            content_type: "text/plain; charset=utf-8",
            extra: String::new(),
            inline_style: false,
            body: Body::Owned(format!("{text}\n").into_bytes()),
        }
    }

    fn head(&self, close: bool) -> String {
        let reason = match self.code {
            200 => "OK",
            204 => "No Content",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Error",
        };
        // A 204 has no body and must not state a length (RFC 9110, 8.6).
        let length = match self.code {
            204 => String::new(),
            _ => format!(
                "Content-Type: {}\r\nContent-Length: {}\r\n",
                self.content_type,
                self.body.bytes().len()
            ),
        };
        format!(
            "HTTP/1.1 {} {reason}\r\n{length}{}{}\
             Cache-Control: no-store\r\n\
             Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'{}; img-src 'self'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\
             Cross-Origin-Opener-Policy: same-origin\r\n\
             Referrer-Policy: no-referrer\r\n\
             X-Content-Type-Options: nosniff\r\n\
             X-Frame-Options: DENY\r\n\
             Connection: {}\r\n\r\n",
            self.code,
            self.extra,
            if self.code == 405 { "Allow: GET\r\n" } else { "" },
            if self.inline_style { " 'unsafe-inline'" } else { "" },
            if close { "close" } else { "keep-alive" },
        )
    }
}

/// The parts of a request that matter here.
pub struct Request<'a> {
    /// The requested path.
    pub path: &'a str,
    /// The part after the question mark.
    pub query: &'a str,
    /// `Sec-Fetch-Site`, which browsers send.
    pub fetch_site: Option<&'a str>,
}

enum Step {
    /// Waits for a request, since this time.
    Reading { since_ns: u64 },
    /// Writes an answer.
    Writing { head: String, body: Body, written: usize, since_ns: u64, close: bool },
    /// The last answer is written; waits for the client to close.
    Lingering { since_ns: u64 },
}

pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    step: Step,
    /// The last turn was cut short although there was more to do.
    cut_short: bool,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    Closed,
}

impl Connection {
    pub fn new(stream: TcpStream, now_ns: u64) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::new(), step: Step::Reading { since_ns: now_ns }, cut_short: false })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether to wait until the stream can be written, rather than read.
    pub(crate) fn wants_to_write(&self) -> bool {
        self.cut_short || matches!(self.step, Step::Writing { .. })
    }

    /// When the client runs out of time.
    pub fn deadline_ns(&self) -> u64 {
        match self.step {
            Step::Reading { since_ns } if self.received.is_empty() => since_ns + IDLE_NS,
            Step::Reading { since_ns } => since_ns + REQUEST_NS,
            Step::Writing { since_ns, .. } => since_ns + ANSWER_NS,
            Step::Lingering { since_ns } => since_ns + LINGER_NS,
        }
    }

    /// Does what can be done without waiting. `hosts` are the values of `Host` that are served.
    pub fn advance(
        &mut self,
        now_ns: u64,
        hosts: &[String],
        answer: &mut dyn FnMut(&Request<'_>) -> Answer,
    ) -> Fate {
        self.cut_short = false;
        let mut answered = 0;
        loop {
            match &mut self.step {
                Step::Reading { .. } => {
                    if answered == ANSWERS_A_TURN {
                        self.cut_short = true;
                        return Fate::Open;
                    }
                    if let Some((reply, close)) = parse(&mut self.received, hosts, answer) {
                        answered += 1;
                        let head = reply.head(close);
                        self.step =
                            Step::Writing { head, body: reply.body, written: 0, since_ns: now_ns, close };
                        continue;
                    }
                    let mut chunk = [0; 2048];
                    match self.stream.read(&mut chunk) {
                        Ok(0) => return Fate::Closed,
                        Ok(count) => {
                            if self.received.is_empty() {
                                self.step = Step::Reading { since_ns: now_ns };
                            }
                            self.received.extend_from_slice(&chunk[..count]);
                        }
                        Err(error) => return waiting(&error),
                    }
                }
                Step::Writing { head, body, written, close, .. } => {
                    let total = head.len() + body.bytes().len();
                    if *written == total {
                        self.step = match close {
                            false => Step::Reading { since_ns: now_ns },
                            true => {
                                // An error means that the client has gone; the next read says so,
                                // too.
                                let _ = self.stream.shutdown(Shutdown::Write);
                                Step::Lingering { since_ns: now_ns }
                            }
                        };
                        continue;
                    }
                    let rest = match written.checked_sub(head.len()) {
                        None => &head.as_bytes()[*written..],
                        Some(offset) => &body.bytes()[offset..],
                    };
                    match self.stream.write(rest) {
                        Ok(count) => *written += count,
                        Err(error) => return waiting(&error),
                    }
                }
                // Further input is discarded: closing with unread input would reset the connection,
                // and the client might lose the answer. A client that keeps sending is cut off by
                // the deadline, and gets one chunk a turn.
                Step::Lingering { .. } => match self.stream.read(&mut [0; 2048]) {
                    Ok(0) => return Fate::Closed,
                    Ok(_) => return Fate::Open,
                    Err(error) => return waiting(&error),
                },
            }
        }
    }
}

/// Takes one request off the input and answers it; `None` while it is incomplete. The flag says
/// whether the connection must close, which it does whenever it is unclear where the next request
/// begins.
fn parse(
    received: &mut Vec<u8>,
    hosts: &[String],
    answer: &mut dyn FnMut(&Request<'_>) -> Answer,
) -> Option<(Answer, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(received) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if received.len() < HEAD_LIMIT => return None,
        Ok(httparse::Status::Partial) => {
            return Some((Answer::text(431, format!("the request head exceeds {HEAD_LIMIT} bytes")), true));
        }
        Err(httparse::Error::TooManyHeaders) => {
            return Some((Answer::text(431, format!("more than {HEADERS} header fields")), true));
        }
        Err(error) => return Some((Answer::text(400, format!("not an HTTP request: {error}")), true)),
    };
    let (reply, close) = respond(&request, hosts, answer);
    received.drain(..length);
    Some((reply, close))
}

/// The heads of the answers to all that a client of `localhost` sends on one connection, each page
/// being empty. For tests and fuzzing.
pub fn answer_heads(sent: &[u8]) -> Vec<String> {
    let mut received = sent.to_vec();
    let hosts = ["localhost".to_owned()];
    let mut heads = Vec::new();
    while let Some((reply, close)) = parse(&mut received, &hosts, &mut |_| Answer::text(200, "")) {
        heads.push(reply.head(close));
        if close {
            break;
        }
    }
    heads
}

fn respond(
    request: &httparse::Request<'_, '_>,
    hosts: &[String],
    answer: &mut dyn FnMut(&Request<'_>) -> Answer,
) -> (Answer, bool) {
    let field = |name: &str| {
        let mut values = request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name));
        let first = values.next().map(|h| std::str::from_utf8(h.value).unwrap_or("?").trim());
        (first, values.next().is_some())
    };
    // Another name for this machine in `Host` means that a foreign page was led here (DNS
    // rebinding).
    match field("host") {
        (_, true) | (None, _) => return (Answer::text(400, "exactly one Host field is needed"), true),
        (Some(host), _) if !hosts.iter().any(|served| served.eq_ignore_ascii_case(host)) => {
            let text = format!("only requests for {} are answered", hosts.join(" and "));
            return (Answer::text(403, text), true);
        }
        _ => {}
    }
    if request.method != Some("GET") {
        return (Answer::text(405, "this server changes nothing: use GET"), true);
    }
    if field("transfer-encoding").0.is_some() || field("content-length").0.is_some_and(|n| n != "0") {
        return (Answer::text(400, "a GET request must not have a body"), true);
    }
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let reply = answer(&Request { path, query, fetch_site: field("sec-fetch-site").0 });
    let close = request.version == Some(0)
        || field("connection").0.is_some_and(|value| value.to_ascii_lowercase().contains("close"));
    (reply, close)
}

fn waiting(error: &std::io::Error) -> Fate {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Fate::Open,
        _ => Fate::Closed,
    }
}
