//! journald's native protocol: one datagram for an entry, a field a line. A field whose value has a
//! line break is its name, a line break, the length as 64 bits (little-endian), the value, a line
//! break (systemd's "Native Journal Protocol").

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::event::Event;

/// Where journald listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// Entries that wait for a full socket. journald takes some thousand a second.
const MAX_WAITING: usize = 1000;

fn field(datagram: &mut Vec<u8>, name: &str, value: &str) {
    datagram.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        datagram.push(b'\n');
        datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        datagram.push(b'=');
    }
    datagram.extend_from_slice(value.as_bytes());
    datagram.push(b'\n');
}

/// An event as journald's datagram.
pub(crate) fn datagram(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    field(&mut bytes, "MESSAGE", &event.message());
    field(&mut bytes, "PRIORITY", &event.event.priority().to_string());
    field(&mut bytes, "SYSLOG_IDENTIFIER", "takt");
    field(&mut bytes, "TAKT_EVENT", event.event.name());
    field(&mut bytes, "TAKT_ROBOT", &event.robot);
    field(&mut bytes, "TAKT_CAUSE", &event.cause);
    field(&mut bytes, "TAKT_COMMAND", &event.command);
    field(&mut bytes, "TAKT_AT_NS", &event.at_ns.to_string());
    if let Some(measure) = &event.measure {
        field(&mut bytes, "TAKT_MEASURE", measure);
    }
    if let Some(count) = event.count {
        field(&mut bytes, "TAKT_COUNT", &count.to_string());
    }
    if let Some(worst_ns) = event.worst_ns {
        field(&mut bytes, "TAKT_WORST_NS", &worst_ns.to_string());
    }
    if let Some(dir) = &event.run_dir {
        field(&mut bytes, "TAKT_RUN_DIR", &dir.display().to_string());
    }
    if let Some(moment_s) = event.moment_s {
        field(&mut bytes, "TAKT_MOMENT_S", &format!("{moment_s:.6}"));
    }
    bytes
}

/// Sends entries, and keeps those that a full socket did not take.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    waiting: VecDeque<Vec<u8>>,
    /// Entries that were given up.
    pub(crate) given_up: u64,
}

impl Journal {
    pub(crate) fn new(path: &Path) -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self { path: path.to_owned(), socket: socket.ok(), waiting: VecDeque::new(), given_up: 0 }
    }

    /// Sends an event after those that wait.
    pub(crate) fn send(&mut self, event: &Event) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.given_up += 1;
        }
        self.waiting.push_back(datagram(event));
        self.retry();
    }

    /// Sends what waits, until the socket is full again.
    pub(crate) fn retry(&mut self) {
        let Some(socket) = &self.socket else {
            self.waiting.clear();
            return;
        };
        while let Some(entry) = self.waiting.front() {
            match sent(socket, entry, &self.path) {
                Sent::Taken => {}
                Sent::Full => return,
                // The file has them; a machine without journald is none that lost anything.
                Sent::Nobody => {
                    self.waiting.clear();
                    return;
                }
                Sent::Refused => self.given_up += 1,
            }
            self.waiting.pop_front();
        }
    }

    /// Entries that a full socket has not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

enum Sent {
    Taken,
    Full,
    Nobody,
    Refused,
}

fn sent(socket: &UnixDatagram, entry: &[u8], path: &Path) -> Sent {
    let Err(error) = socket.send_to(entry, path) else { return Sent::Taken };
    match error.kind() {
        // What a full queue of the receiver answers, and a full memory of the kernel's.
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory | ErrorKind::Interrupted => Sent::Full,
        _ if error.raw_os_error() == Some(libc::ENOBUFS) => Sent::Full,
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Sent::Nobody,
        _ => Sent::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Kind, tests::event};

    #[test]
    fn a_value_of_several_lines_has_its_length() {
        let mut bytes = Vec::new();
        field(&mut bytes, "A", "b=c");
        field(&mut bytes, "D", "e\nf");
        assert_eq!(bytes, b"A=b=c\nD\n\x03\0\0\0\0\0\0\0e\nf\n");
    }

    #[test]
    fn a_full_socket_delays_nobody_and_loses_nothing_that_fits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut journal = Journal::new(&path);
        let begun = std::time::Instant::now();
        for number in 0..MAX_WAITING + 700 {
            journal.send(&event(Kind::Stop, &number.to_string()));
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "it waited");
        assert!(journal.waiting() > 0, "the queue of a datagram socket has an end");
        // All are read in order, but those that were given up.
        receiver.set_nonblocking(true).unwrap();
        let mut causes = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match receiver.recv(&mut buffer) {
                Ok(length) => {
                    let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
                    let cause = text.lines().find_map(|line| line.strip_prefix("TAKT_CAUSE=")).unwrap();
                    causes.push(cause.parse::<u64>().unwrap());
                }
                Err(_) if journal.waiting() > 0 => journal.retry(),
                Err(_) => break,
            }
        }
        assert!(causes.is_sorted());
        assert_eq!(causes.len() as u64 + journal.given_up, MAX_WAITING as u64 + 700);
    }

    #[test]
    fn without_a_socket_nothing_waits() {
        let mut journal = Journal::new(Path::new("/nonexistent/socket"));
        journal.send(&event(Kind::Stop, "x"));
        assert_eq!((journal.waiting(), journal.given_up), (0, 0));
    }
}
