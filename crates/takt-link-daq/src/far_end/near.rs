//! The near end's hold on the far end's process.

use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use takt_rt::settings::Granted;

use super::{Answer, FarEndSetup, Hello, Wire, program};
use crate::config::EchoConfig;
use crate::error::LinkError;

/// Time in which a process must be ready: loading and locking a large binary on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Time in which it must end before it is killed.
const END_WITHIN: Duration = Duration::from_secs(3);
/// Lag of a process's end behind that of its sockets.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Largest answer that is read.
const ANSWER_BYTES: u64 = 1 << 20;

/// A far end that runs. Dropping it ends it; it also ends by itself when this process does, however
/// that comes.
pub struct FarProcess {
    child: Child,
    stream: BufReader<UnixStream>,
    granted: Option<Granted>,
}

impl FarProcess {
    /// Starts the program and hands it its end of the wire.
    pub fn start(
        setup: &FarEndSetup,
        echo: &EchoConfig,
        wire: Wire,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Self, LinkError> {
        let failed = |doing: &'static str| {
            move |error: io::Error| LinkError::Plant { reason: format!("{doing}: {error}") }
        };
        let program = program().map_err(failed("finding this program's own path"))?;
        let (own, theirs) = UnixStream::pair().map_err(failed("making a socket pair"))?;
        own.set_read_timeout(Some(READY_WITHIN)).map_err(failed("setting a timeout"))?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .envs(program.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| LinkError::Plant {
                reason: format!("starting {}: {error}", program.path.display()),
            })?;
        let hello = Hello { wire, settings: setup.settings(echo), description: setup.description.clone() };
        // From here on dropping ends the child.
        let mut process = Self { child, stream: BufReader::new(own), granted: None };
        process.send(&hello, fds).map_err(failed("telling it what it is"))?;
        match process.answer() {
            Ok(Answer::Ready(granted)) => process.granted = Some(*granted),
            Ok(Answer::Refused(reason)) => return Err(LinkError::Plant { reason }),
            Ok(Answer::Report(_)) => {
                return Err(LinkError::Plant { reason: "it ended before it started".to_owned() });
            }
            Err(error) => {
                let path = program.path.display();
                let reason = format!("{path} does not answer as a far end: {error}");
                return Err(LinkError::Plant { reason });
            }
        }
        Ok(process)
    }

    fn send(&mut self, hello: &Hello, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("more file descriptors than fit"));
        }
        let stream = self.stream.get_mut();
        sendmsg(&*stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        let mut text = serde_json::to_vec(hello)?;
        text.push(b'\n');
        stream.write_all(&text)
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut line = String::new();
        let mut limited = io::Read::take(&mut self.stream, ANSWER_BYTES);
        if limited.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Settings that its serving thread was granted.
    pub fn granted(&self) -> Option<&Granted> {
        self.granted.as_ref()
    }

    /// The unrequested end of the process; None while it runs.
    pub fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => {
                Some(format!("the far end's process {} has ended: {status}", self.child.id()))
            }
            Err(error) => Some(format!("the far end's process {}: {error}", self.child.id())),
        }
    }

    /// As [`ended`](Self::ended), for who has found the wire broken: sockets close a moment before
    /// their process has ended.
    pub fn gone(&mut self) -> Option<String> {
        let until = Instant::now() + GONE_WITHIN;
        loop {
            let ended = self.ended();
            if ended.is_some() || Instant::now() >= until {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks it to end and returns its report.
    pub fn finish(&mut self) -> Option<serde_json::Value> {
        let stream = self.stream.get_ref();
        // Refused where it has ended already.
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.set_read_timeout(Some(END_WITHIN));
        let report = match self.answer() {
            Ok(Answer::Report(report)) => Some(report),
            _ => None,
        };
        self.reap();
        report
    }

    fn reap(&mut self) {
        let until = Instant::now() + END_WITHIN;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // It may just have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for FarProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.finish();
        }
    }
}
