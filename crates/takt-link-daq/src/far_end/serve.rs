//! The far end's process: one thread that waits for the near end's words, one that serves the wire.

use std::io::{self, BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, read, write};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send};
use takt_rt::clock::monotonic_ns;
use takt_rt::thread::spawn;

use super::{Answer, END, FarEnd, Hello, STOP_LATENCY_MS, Wire};
use crate::frame::{Parser, WIDE_BYTES, Wide};

/// Largest description that is read.
const HELLO_BYTES: u64 = 1 << 20;

/// Builds what stands at a far end from its description, or says why it cannot.
pub type Make = dyn Fn(&serde_json::Value) -> Result<Box<dyn FarEnd>, Box<dyn std::error::Error>>;

/// Is the far end of a link: what the hidden subcommand [`FAR_END_COMMAND`](super::FAR_END_COMMAND)
/// does. Standard input is the near end's socket, which sends the description. Ends when the near
/// end asks, or is gone.
pub fn serve(make: &Make) -> ExitCode {
    match serve_wire(make) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("far end: {error}");
            ExitCode::FAILURE
        }
    }
}

fn respond(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_vec(answer)?;
    text.push(b'\n');
    stream.write_all(&text)
}

fn serve_wire(make: &Make) -> io::Result<()> {
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let fds = receive_fds(&stream)?;
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    (&mut reader).take(HELLO_BYTES).read_line(&mut line)?;
    let hello: Hello = serde_json::from_str(&line)?;
    let mut end = match make(&hello.description) {
        Ok(end) => end,
        Err(reason) => return respond(&mut stream, &Answer::Refused(reason.to_string())),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let (wire, waker) = (hello.wire, stream.try_clone()?);
    let counter =
        if wire == Wire::Counters { fds.first().map(OwnedFd::try_clone).transpose()? } else { None };
    let started = spawn("daq-far-end", &hello.settings, move || {
        let outcome = run(wire, &fds, end.as_mut(), &flag);
        // The other thread then stops waiting for the near end, too.
        let _ = waker.shutdown(Shutdown::Read);
        outcome.map(|()| end)
    });
    let handle = match started {
        Ok(handle) => handle,
        Err(error) => return respond(&mut stream, &Answer::Refused(error.to_string())),
    };
    respond(&mut stream, &Answer::Ready(Box::new(handle.granted().clone())))?;
    // Nothing more is said; the end of the stream is the near end's end.
    let mut rest = [0; 64];
    while matches!(reader.read(&mut rest), Ok(bytes) if bytes > 0) {}
    stop.store(true, Ordering::Release);
    if let Some(counter) = counter {
        // It waits in the kernel for as long as no level comes.
        let _ = write(&counter, &END.to_ne_bytes());
    }
    let end = handle.join().map_err(|error| io::Error::other(error.to_string()))??;
    // A near end that is gone reads nothing.
    let _ = respond(&mut stream, &Answer::Report(end.report()));
    Ok(())
}

fn receive_fds(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(fds)
}

fn run(wire: Wire, fds: &[OwnedFd], end: &mut dyn FarEnd, stop: &AtomicBool) -> io::Result<()> {
    match (wire, fds) {
        (Wire::Datagrams { drop_every }, [socket]) => datagrams(socket, u64::from(drop_every), end, stop),
        (Wire::Stream, [line]) => stream(line, end, stop),
        (Wire::Counters, [out, back, levels]) => counters(out, back, levels, end, stop),
        _ => Err(io::Error::other(format!("{wire:?} with {} file descriptors", fds.len()))),
    }
}

/// The answer to a frame: its pulse level goes back as it is.
fn answer(frame: Wide, end: &mut dyn FarEnd) -> Wide {
    let [a_v, b_v] = end.exchange(monotonic_ns(), f64::from(frame.values_v[0]));
    Wide { values_v: [a_v as f32, b_v as f32], ..frame }
}

fn datagrams(socket: &OwnedFd, drop_every: u64, end: &mut dyn FarEnd, stop: &AtomicBool) -> io::Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(Duration::from_millis(STOP_LATENCY_MS)))?;
    // One more than a frame, so that longer datagrams show.
    let mut buffer = [0; WIDE_BYTES + 1];
    let mut arrived: u64 = 0;
    while !stop.load(Ordering::Acquire) {
        match recv(socket, &mut buffer, RecvFlags::empty()) {
            Ok((bytes, _)) => {
                let Some(frame) = Wide::decode(&buffer[..bytes]) else { continue };
                arrived += 1;
                let frame = answer(frame, end);
                if drop_every > 0 && arrived.is_multiple_of(drop_every) {
                    continue;
                }
                match send(socket, &frame.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    // A lost answer is the near end's to notice.
                    Ok(_) | Err(Errno::NOBUFS | Errno::AGAIN | Errno::CONNREFUSED | Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn stream(line: &OwnedFd, end: &mut dyn FarEnd, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = [0; 8 * WIDE_BYTES];
    let mut parser = Parser::<Wide>::default();
    while !stop.load(Ordering::Acquire) {
        let bytes = match read(line, &mut buffer) {
            Ok(bytes) => bytes,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for &byte in &buffer[..bytes] {
            let Some(frame) = parser.push(byte) else { continue };
            let reply = answer(frame, end).encode();
            let mut sent = 0;
            while sent < reply.len() {
                match write(line, &reply[sent..]) {
                    Ok(count) => sent += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
    }
    Ok(())
}

/// The counter shows that a level has come; the levels themselves lie in the socket then.
fn counters(
    out: &OwnedFd,
    back: &OwnedFd,
    levels: &OwnedFd,
    end: &mut dyn FarEnd,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut word = [0; 8];
    let mut buffer = [0; WIDE_BYTES + 1];
    while !stop.load(Ordering::Acquire) {
        match read(out, &mut word) {
            Ok(_) if u64::from_ne_bytes(word) >= END => break,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        loop {
            match recv(levels, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((bytes, _)) => {
                    let Some(frame) = Wide::decode(&buffer[..bytes]) else { continue };
                    // A full socket: the near end has not looked for long, and gets the next ones.
                    let _ =
                        send(levels, &answer(frame, end).encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        write(back, &word)?;
    }
    Ok(())
}
