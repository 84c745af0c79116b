//! Through the scheduler and back: two event counters, no layer between.
//!
//! A counter adds up what is written before it is read. So each write carries a one in its upper
//! half: the reader sees how many levels have come together, and when all that were sent have come,
//! the input shows the last one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::config::{EventfdConfig, Waiting};
use crate::echo::Echo;
use crate::error::LinkError;
use crate::far_end::{END, FarEndSetup, Wire};
use crate::frame::{WIDE_BYTES, Wide};
use crate::udp::BLOCK;
use crate::{Link, LinkFacts};

const ONE: u64 = 1 << 32;
/// Levels are whole steps of this, from -[`LIMIT_V`].
const STEP_V: f64 = 1e-6;
const LIMIT_V: f64 = 1000.0;

fn encode(level_v: f64) -> u64 {
    // `as` saturates and turns NaN into 0.
    ONE | ((level_v.clamp(-LIMIT_V, LIMIT_V) + LIMIT_V) / STEP_V).round() as u64
}

fn decode(word: u64) -> f64 {
    (word & (ONE - 1)) as f64 * STEP_V - LIMIT_V
}

pub struct Eventfd {
    out: Arc<OwnedFd>,
    back: Arc<OwnedFd>,
    echo: Echo,
    /// With a plant: what a counter cannot carry. The counter's wake-up stays what is measured.
    levels: Option<OwnedFd>,
    drive_v: f64,
    sensors_v: [f64; 2],
    waiting: Waiting,
    sent_v: f64,
    /// Levels sent whose echo has not come.
    outstanding: u64,
    /// Whether a copy of the level has been sent.
    copied: bool,
    level_v: f64,
    facts: LinkFacts,
}

fn system(doing: &'static str) -> impl FnOnce(Errno) -> LinkError {
    let fix = "raise the limit of open files (`ulimit -n`), or use kind = \"udp\"";
    move |errno| LinkError::System { link: "eventfd", doing, source: errno.into(), fix }
}

impl Eventfd {
    pub fn open(config: &EventfdConfig, plant: Option<&FarEndSetup>) -> Result<Self, LinkError> {
        let flags = EventfdFlags::CLOEXEC;
        let out = Arc::new(eventfd(0, flags).map_err(system("creating the outward counter"))?);
        let back =
            eventfd(0, flags | EventfdFlags::NONBLOCK).map_err(system("creating the homeward counter"))?;
        let back = Arc::new(back);
        let (echo, levels) = match plant {
            Some(plant) => {
                let (near, far) = socketpair(
                    AddressFamily::UNIX,
                    SocketType::DGRAM,
                    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                    None,
                )
                .map_err(system("making a socket pair"))?;
                let fds = [out.as_fd(), back.as_fd(), far.as_fd()];
                (Echo::process(plant, &config.echo, Wire::Counters, &fds)?, Some(near))
            }
            None => {
                let ends = (Arc::clone(&out), Arc::clone(&back));
                (Echo::start(&config.echo, move |stop| send_back(&ends.0, &ends.1, stop))?, None)
            }
        };
        let facts = LinkFacts { description: "eventfd out and back".to_owned(), echo: echo.facts() };
        Ok(Self {
            out,
            back,
            echo,
            levels,
            drive_v: 0.0,
            sensors_v: [0.0; 2],
            waiting: config.waiting,
            sent_v: 0.0,
            outstanding: 0,
            copied: false,
            level_v: 0.0,
            facts,
        })
    }

    fn broken(&mut self, doing: &'static str, errno: Errno) -> LinkError {
        match self.echo.gone() {
            Some(reason) => LinkError::FarEnd { link: "eventfd", reason },
            None => system(doing)(errno),
        }
    }
}

impl Link for Eventfd {
    fn write_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        if let Some(levels) = &self.levels {
            let frame = Wide { sequence: 0, level_v: level_v as f32, values_v: [self.drive_v as f32, 0.0] };
            // A full socket: the far end has not run for long, and keeps the drive that it has.
            let _ = send(levels, &frame.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        loop {
            match write(&self.out, &encode(level_v).to_ne_bytes()) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.broken("writing", errno)),
            }
        }
        self.sent_v = level_v;
        self.outstanding += 1;
        self.copied = false;
        Ok(())
    }

    fn again_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        if self.outstanding == 0 || self.copied {
            return Ok(());
        }
        self.write_v(level_v)?;
        self.copied = true;
        Ok(())
    }

    fn read_v(&mut self) -> Result<f64, LinkError> {
        if self.waiting == Waiting::Block && self.outstanding > 0 {
            let mut fds = [PollFd::new(&*self.back, PollFlags::IN)];
            // Interrupted or timed out: the next read waits on.
            let _ = poll(&mut fds, Some(&BLOCK));
        }
        let mut word = [0; 8];
        match read(&self.back, &mut word) {
            Ok(_) => {
                let word = u64::from_ne_bytes(word);
                let arrived = word / ONE;
                self.outstanding = self.outstanding.saturating_sub(arrived);
                if self.outstanding == 0 {
                    self.level_v = self.sent_v;
                } else if arrived == 1 {
                    self.level_v = decode(word);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(self.broken("reading", errno)),
        }
        Ok(self.level_v)
    }

    fn drive_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        self.drive_v = level_v;
        if self.levels.is_some() { Ok(()) } else { Err(self.no_plant()) }
    }

    fn sense_v(&mut self) -> Result<[f64; 2], LinkError> {
        let Some(levels) = &self.levels else { return Err(self.no_plant()) };
        if let Some(sensors_v) = latest(levels) {
            self.sensors_v = sensors_v;
        }
        Ok(self.sensors_v)
    }

    fn end_plant(&mut self) -> Option<serde_json::Value> {
        self.echo.report()
    }

    fn facts(&self) -> &LinkFacts {
        &self.facts
    }
}

/// The newest sensors that lie in a plant's socket; None where nothing has come.
pub(crate) fn latest(levels: &OwnedFd) -> Option<[f64; 2]> {
    let mut buffer = [0; WIDE_BYTES + 1];
    let mut newest = None;
    while let Ok((bytes, _)) = recv(levels, &mut buffer, RecvFlags::DONTWAIT) {
        newest = Wide::decode(&buffer[..bytes]).map(|wide| wide.values_v.map(f64::from)).or(newest);
    }
    newest
}

impl Drop for Eventfd {
    fn drop(&mut self) {
        let out = &self.out;
        self.echo.stop(|| {
            let _ = write(out, &END.to_ne_bytes());
        });
    }
}

/// The far end.
fn send_back(out: &OwnedFd, back: &OwnedFd, stop: &AtomicBool) -> io::Result<()> {
    let mut word = [0; 8];
    while !stop.load(Ordering::Acquire) {
        match read(out, &mut word) {
            Ok(_) if u64::from_ne_bytes(word) >= END => break,
            Ok(_) => {
                write(back, &word)?;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{edges, edges_written_each_turn, polite};
    use proptest::prelude::*;

    #[test]
    fn edges_go_round_polling_and_blocking() {
        for waiting in [Waiting::Poll, Waiting::Block] {
            let mut link = Eventfd::open(&EventfdConfig { waiting, echo: polite() }, None).unwrap();
            assert_eq!(edges(&mut link, 200), 200);
            assert_eq!(edges_written_each_turn(&mut link, 200), 200);
        }
    }

    #[test]
    fn levels_that_come_together_show_the_last() {
        let mut link =
            Eventfd::open(&EventfdConfig { waiting: Waiting::Block, echo: polite() }, None).unwrap();
        for level_v in [5.0, 0.0, 2.5] {
            link.write_v(level_v).unwrap();
        }
        while link.outstanding > 0 {
            link.read_v().unwrap();
        }
        assert_eq!(link.read_v().unwrap(), 2.5);
    }

    proptest! {
        #[test]
        fn levels_survive_the_counter(level_v in -1000.0f64..1000.0) {
            let word = encode(level_v);
            prop_assert_eq!(word / ONE, 1);
            prop_assert!((decode(word) - level_v).abs() <= STEP_V);
        }
    }
}
