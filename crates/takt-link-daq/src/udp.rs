//! Through the network stack and back: two connected sockets on the loopback interface.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use takt_rt::clock::monotonic_ns;

use crate::config::{UdpConfig, Waiting};
use crate::echo::Echo;
use crate::error::LinkError;
use crate::far_end::{FarEndSetup, STOP_LATENCY_MS, Wire};
use crate::frame::{FRAME_BYTES, Frame, WIDE_BYTES, Wide};
use crate::{Link, LinkCounts, LinkFacts};

/// Longest sleep of a blocking read.
pub(crate) const BLOCK: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

pub struct Udp {
    socket: UdpSocket,
    echo: Echo,
    waiting: Waiting,
    resend_after_ns: u64,
    sequence: u16,
    /// When the level was last sent; None when its answer is there.
    sent_ns: Option<u64>,
    /// Whether a copy of it has been sent.
    copied: bool,
    /// The level's datagram: wide with a plant.
    frame: [u8; WIDE_BYTES],
    frame_bytes: usize,
    level_v: f64,
    drive_v: f64,
    sensors_v: [f64; 2],
    counts: LinkCounts,
    facts: LinkFacts,
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> LinkError {
    let fix = "allow sockets of the loopback interface (`ip link set lo up`), or use kind = \"eventfd\"";
    move |source| LinkError::System { link: "udp", doing, source, fix }
}

impl Udp {
    pub fn open(config: &UdpConfig, plant: Option<&FarEndSetup>) -> Result<Self, LinkError> {
        let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("binding the near socket"))?;
        let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("binding the far socket"))?;
        let near_at = near.local_addr().map_err(system("asking for the near address"))?;
        let far_at = far.local_addr().map_err(system("asking for the far address"))?;
        near.connect(far_at).map_err(system("connecting the near socket"))?;
        far.connect(near_at).map_err(system("connecting the far socket"))?;
        near.set_nonblocking(true).map_err(system("making the near socket non-blocking"))?;
        let timeout = Some(Duration::from_millis(STOP_LATENCY_MS));
        far.set_read_timeout(timeout).map_err(system("setting the far socket's timeout"))?;
        let echo = match plant {
            Some(plant) => {
                let wire = Wire::Datagrams { drop_every: config.drop_every };
                Echo::process(plant, &config.echo, wire, &[far.as_fd()])?
            }
            None => {
                let drop_every = u64::from(config.drop_every);
                Echo::start(&config.echo, move |stop| send_back(&far, drop_every, stop))?
            }
        };
        let description = format!("UDP {near_at} -> {far_at} and back");
        let facts = LinkFacts { description, echo: echo.facts() };
        Ok(Self {
            socket: near,
            echo,
            waiting: config.waiting,
            resend_after_ns: u64::try_from(config.resend_after.as_nanos()).unwrap_or(u64::MAX),
            sequence: 0,
            sent_ns: None,
            copied: false,
            frame: [0; WIDE_BYTES],
            frame_bytes: FRAME_BYTES,
            level_v: 0.0,
            drive_v: 0.0,
            sensors_v: [0.0; 2],
            counts: LinkCounts::default(),
            facts,
        })
    }

    /// A full buffer loses the datagram, as a full queue on the way would; it is sent again later.
    fn send(&mut self) -> Result<(), LinkError> {
        self.sent_ns = Some(monotonic_ns());
        self.pass_on()
    }

    fn pass_on(&mut self) -> Result<(), LinkError> {
        match self.socket.send(&self.frame[..self.frame_bytes]) {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(error) => Err(self.broken("sending", error)),
        }
    }

    fn broken(&mut self, doing: &'static str, error: io::Error) -> LinkError {
        match self.echo.gone() {
            Some(reason) => LinkError::FarEnd { link: "udp", reason },
            None => system(doing)(error),
        }
    }

    fn take(&mut self, datagram: &[u8]) {
        let (frame, sensors_v) = if self.echo.has_plant() {
            let wide = Wide::decode(datagram);
            (
                wide.map(|wide| Frame { sequence: wide.sequence, level_v: wide.level_v }),
                wide.map(|wide| wide.values_v),
            )
        } else {
            (Frame::decode(datagram), None)
        };
        match frame {
            Some(frame) if frame.sequence == self.sequence && self.sent_ns.is_some() => {
                self.level_v = f64::from(frame.level_v);
                self.sensors_v = sensors_v.unwrap_or_default().map(f64::from);
                self.sent_ns = None;
            }
            Some(_) => self.counts.stale += 1,
            None => self.counts.rejected += 1,
        }
    }
}

impl Link for Udp {
    fn write_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.copied = false;
        if self.echo.has_plant() {
            let values_v = [self.drive_v as f32, 0.0];
            self.frame = Wide { sequence: self.sequence, level_v: level_v as f32, values_v }.encode();
            self.frame_bytes = WIDE_BYTES;
        } else {
            let frame = Frame { sequence: self.sequence, level_v: level_v as f32 }.encode();
            self.frame[..FRAME_BYTES].copy_from_slice(&frame);
        }
        self.send()
    }

    fn again_v(&mut self, _level_v: f64) -> Result<(), LinkError> {
        if self.sent_ns.is_none() || std::mem::replace(&mut self.copied, true) {
            return Ok(());
        }
        self.pass_on()
    }

    fn drive_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        self.drive_v = level_v;
        if self.echo.has_plant() { Ok(()) } else { Err(self.no_plant()) }
    }

    fn sense_v(&mut self) -> Result<[f64; 2], LinkError> {
        if self.echo.has_plant() { Ok(self.sensors_v) } else { Err(self.no_plant()) }
    }

    fn end_plant(&mut self) -> Option<serde_json::Value> {
        self.echo.report()
    }

    fn read_v(&mut self) -> Result<f64, LinkError> {
        if self.waiting == Waiting::Block && self.sent_ns.is_some() {
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            // Interrupted or timed out: the next read waits on.
            let _ = poll(&mut fds, Some(&BLOCK));
        }
        // One more than a frame, so that longer datagrams show.
        let mut buffer = [0; WIDE_BYTES + 1];
        while self.sent_ns.is_some() {
            match self.socket.recv(&mut buffer) {
                Ok(bytes) => self.take(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken("receiving", error)),
            }
        }
        if let Some(sent_ns) = self.sent_ns
            && monotonic_ns().saturating_sub(sent_ns) >= self.resend_after_ns
        {
            if let Some(reason) = self.echo.ended() {
                return Err(LinkError::FarEnd { link: "udp", reason });
            }
            self.counts.resent += 1;
            self.send()?;
        }
        Ok(self.level_v)
    }

    fn counts(&self) -> LinkCounts {
        self.counts
    }

    fn facts(&self) -> &LinkFacts {
        &self.facts
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        // An empty datagram ends the echo thread's wait.
        let socket = &self.socket;
        self.echo.stop(|| {
            let _ = socket.send(&[]);
        });
    }
}

/// The far end.
fn send_back(socket: &UdpSocket, drop_every: u64, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = [0; FRAME_BYTES + 1];
    let mut arrived: u64 = 0;
    while !stop.load(Ordering::Acquire) {
        match socket.recv(&mut buffer) {
            Ok(bytes) => {
                arrived += 1;
                if drop_every > 0 && arrived.is_multiple_of(drop_every) {
                    continue;
                }
                match socket.send(&buffer[..bytes]) {
                    // A lost answer is the near end's to notice.
                    Ok(_) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                    Err(error)
                        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock
                        | ErrorKind::TimedOut
                        | ErrorKind::Interrupted
                        | ErrorKind::ConnectionRefused
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EchoConfig;
    use crate::testing::{edges, edges_written_each_turn, polite};
    use proptest::prelude::*;

    #[test]
    fn edges_go_round_polling_and_blocking() {
        for waiting in [Waiting::Poll, Waiting::Block] {
            let config = UdpConfig { waiting, echo: polite(), ..UdpConfig::default() };
            let mut link = Udp::open(&config, None).unwrap();
            assert_eq!(edges(&mut link, 200), 200);
            assert_eq!(edges_written_each_turn(&mut link, 200), 200);
            assert_eq!(link.counts().rejected, 0);
            assert_eq!(link.facts().echo.as_ref().unwrap().0, "daq-echo");
        }
    }

    #[test]
    fn lost_datagrams_are_sent_again_and_counted() {
        let config = UdpConfig {
            waiting: Waiting::Block,
            echo: EchoConfig { ..polite() },
            resend_after: Duration::from_micros(500),
            drop_every: 5,
        };
        let mut link = Udp::open(&config, None).unwrap();
        assert_eq!(edges(&mut link, 100), 100);
        // 100 answers need at least 124 datagrams when every fifth is dropped; a slow machine
        // resends more.
        assert!(link.counts().resent >= 24, "{:?}", link.counts());
    }

    #[test]
    fn an_answer_to_an_older_level_does_not_count() {
        let mut link = Udp::open(&UdpConfig { echo: polite(), ..UdpConfig::default() }, None).unwrap();
        link.write_v(5.0).unwrap();
        let old = link.frame[..FRAME_BYTES].to_vec();
        while link.read_v().unwrap() != 5.0 {}
        link.sequence = link.sequence.wrapping_add(1);
        link.sent_ns = Some(monotonic_ns());
        link.take(&old);
        assert_eq!((link.counts().stale, link.sent_ns.is_some()), (1, true));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn foreign_datagrams_change_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            prop_assume!(Frame::decode(&bytes).is_none());
            let mut link = Udp::open(&UdpConfig { echo: polite(), ..UdpConfig::default() }, None).unwrap();
            link.sent_ns = Some(monotonic_ns());
            link.take(&bytes);
            prop_assert_eq!(link.counts().rejected, 1);
            prop_assert_eq!(link.level_v, 0.0);
        }
    }
}
