//! A request over HTTP/1.1, on a connection of its own, within a time limit, with an answer of
//! limited length. No redirects, no proxies.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::tls::Tls;

/// Bytes read of an answer, head and body each.
const MAX_HEAD: usize = 16 << 10;
const MAX_BODY: usize = 64 << 10;

/// Header lines of an answer at most.
const MAX_LINES: usize = 64;

/// Answer of a server.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    /// Requested time before a retry.
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
    let path = if path.is_empty() { "/" } else { path };
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
        let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
        let mut head = httparse::Response::new(&mut lines);
        match head.parse(&bytes) {
            Ok(httparse::Status::Complete(length)) => {
                let value = |name: &str| {
                    let found = head.headers.iter().find(|line| line.name.eq_ignore_ascii_case(name))?;
                    std::str::from_utf8(found.value).ok().map(str::trim)
                };
                // By the server's own clock, where it says what that is.
                let now = value("date").and_then(unix_s).unwrap_or_else(|| {
                    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
                });
                let retry_after = value("retry-after")
                    .and_then(|at| at.parse().ok().or_else(|| Some(unix_s(at)?.saturating_sub(now))));
                let body_bytes = value("content-length").and_then(|length| length.parse::<usize>().ok());
                let mut reply = Reply {
                    status: head.code.unwrap_or(0),
                    retry_after: retry_after.map(Duration::from_secs),
                    body: bytes[length..].to_vec(),
                };
                // Enough was said; how a body ends matters to nobody.
                let most = body_bytes.unwrap_or(0).min(MAX_BODY);
                while reply.body.len() < most && receive(stream, &mut reply.body).unwrap_or(false) {}
                reply.body.truncate(most);
                return Ok(reply);
            }
            Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => {
                return Err("its answer does not end".to_owned());
            }
            Ok(httparse::Status::Partial) if !more => return Err("it closed the connection".to_owned()),
            Ok(httparse::Status::Partial) => {}
            Err(error) => return Err(format!("its answer is not HTTP: {error}")),
        }
    }
}

/// Seconds since 1970 of a date as RFC 9110 (5.6.7) has it: `Sun, 06 Nov 1994 08:49:37 GMT`. The
/// two forms that it calls obsolete are not read.
fn unix_s(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, rest) = date.split_once(", ")?;
    let [day, month, year, time, "GMT"] = rest.split(' ').collect::<Vec<_>>()[..] else { return None };
    let number = |text: &str, most: i64| text.parse::<i64>().ok().filter(|found| (0..=most).contains(found));
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>()[..] else { return None };
    let (day, year) = (number(day, 31)?, number(year, 9999)?);
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    // Days of the Gregorian calendar, with years that begin in March: the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1;
    let since_1970 = days - 719_468;
    let seconds = number(hour, 23)? * 3600 + number(minute, 59)? * 60 + number(second, 60)?;
    u64::try_from(since_1970 * 86_400 + seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection with what the other side says, and what is sent to it.
    struct Both<'a>(&'a [u8], Vec<u8>);

    impl Read for Both<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Both<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_date_is_waited_for_and_a_request_has_a_path() {
        assert_eq!(unix_s("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(unix_s("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        assert_eq!(unix_s("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        for bad in
            ["", "120", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 XXX 1994 08:49:37 GMT", "x, 1 Jan 1 1 GMT"]
        {
            assert_eq!(unix_s(bad), None, "{bad}");
        }
        let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        for (lines, seconds) in [
            ("retry-after: 7\r\n", Some(7)),
            (&*format!("{date}Retry-After: Sun, 06 Nov 1994 08:50:07 GMT\r\n"), Some(30)),
            (&*format!("Retry-After: Sun, 06 Nov 1994 08:50:07 GMT\r\n{date}"), Some(30)),
            ("retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", Some(0)),
            ("retry-after: soon\r\n", None),
            ("", None),
        ] {
            let message = format!("HTTP/1.1 503 Later\r\n{lines}content-length: 0\r\n\r\n");
            let mut both = Both(message.as_bytes(), Vec::new());
            let reply = exchange(&mut both, ["logs:9428", ""], &[], b"body").unwrap();
            assert_eq!((reply.status, reply.retry_after), (503, seconds.map(Duration::from_secs)), "{lines}");
            let asked = String::from_utf8(both.1).unwrap();
            assert!(asked.starts_with("POST / HTTP/1.1\r\nhost: logs:9428\r\n"), "{asked}");
        }
    }
}
