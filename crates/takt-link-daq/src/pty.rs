//! Through the tty layer and back: a pseudo-terminal in raw mode.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::{Errno, read, write};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, tcflush, tcgetattr, tcsetattr,
};

use crate::config::{PtyConfig, PtyEcho, Waiting};
use crate::echo::Echo;
use crate::error::LinkError;
use crate::far_end::{FarEndSetup, STOP_LATENCY_MS, Wire};
use crate::frame::{FRAME_BYTES, Frame, Parser, Wide};
use crate::udp::BLOCK;
use crate::{Link, LinkCounts, LinkFacts};

/// With the line's own echo, what was echoed also waits for a reader of the terminal, of which
/// there is none. It is thrown away before the 4096 bytes of the line discipline are full.
const FLUSH_AFTER_FRAMES: u32 = 256;

pub struct Pty {
    near: OwnedFd,
    /// Kept open: a terminal that nobody has open answers EIO.
    far: Arc<OwnedFd>,
    echo: Option<Echo>,
    waiting: Waiting,
    parser: Parser<Frame>,
    /// With a plant, frames are wide in both directions.
    wide_parser: Parser<Wide>,
    plant: bool,
    drive_v: f64,
    sensors_v: [f64; 2],
    sequence: u16,
    outstanding: bool,
    /// Whether a copy of the level has been sent.
    copied: bool,
    unread_frames: u32,
    level_v: f64,
    stale: u64,
    facts: LinkFacts,
}

fn system(doing: &'static str) -> impl FnOnce(Errno) -> LinkError {
    let fix =
        "mount devpts (`mount -t devpts devpts /dev/pts`) and check kernel.pty.max, or use kind = \"udp\"";
    move |errno| LinkError::System { link: "pty", doing, source: errno.into(), fix }
}

impl Pty {
    pub fn open(config: &PtyConfig, plant: Option<&FarEndSetup>) -> Result<Self, LinkError> {
        if plant.is_some() && config.echo_by == PtyEcho::Line {
            let reason = "the line's own echo (link.echo_by = \"line\") is not a plant that a controller can steer; use \"thread\"";
            return Err(LinkError::NoPlant { link: "pty", reason });
        }
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let near = openpt(flags).map_err(system("opening /dev/ptmx"))?;
        grantpt(&near).map_err(system("granting the terminal"))?;
        unlockpt(&near).map_err(system("unlocking the terminal"))?;
        let name = ptsname(&near, Vec::new()).map_err(system("asking for the terminal's name"))?;
        let far = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
            .map_err(system("opening the terminal"))?;
        let mut modes = tcgetattr(&far).map_err(system("reading the terminal's modes"))?;
        modes.make_raw();
        if config.echo_by == PtyEcho::Line {
            modes.local_modes |= LocalModes::ECHO;
            // Else control characters come back as ^A, ^B.
            modes.local_modes -= LocalModes::ECHOCTL;
        }
        // A read of the echo thread ends after a tenth of a second, to see whether it should end.
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = (STOP_LATENCY_MS / 100) as u8;
        tcsetattr(&far, OptionalActions::Now, &modes).map_err(system("setting raw mode"))?;
        fcntl_setfl(&near, OFlags::RDWR | OFlags::NONBLOCK)
            .map_err(system("making the near end non-blocking"))?;
        let far = Arc::new(far);
        let (echo, by) = match (config.echo_by, plant) {
            (_, Some(plant)) => (
                Some(Echo::process(plant, &config.echo, Wire::Stream, &[far.as_fd()])?),
                "a process's answer",
            ),
            (PtyEcho::Thread, None) => {
                let far = Arc::clone(&far);
                (Some(Echo::start(&config.echo, move |stop| send_back(&far, stop))?), "a thread's echo")
            }
            (PtyEcho::Line, None) => (None, "the line's own echo"),
        };
        let description = format!("pty {}, raw, {by}", name.to_string_lossy());
        let facts = LinkFacts { description, echo: echo.as_ref().and_then(Echo::facts) };
        Ok(Self {
            near,
            far,
            echo,
            waiting: config.waiting,
            parser: Parser::default(),
            wide_parser: Parser::default(),
            plant: plant.is_some(),
            drive_v: 0.0,
            sensors_v: [0.0; 2],
            sequence: 0,
            outstanding: false,
            copied: false,
            unread_frames: 0,
            level_v: 0.0,
            stale: 0,
            facts,
        })
    }

    /// Takes a byte of the line; None while a frame is not whole.
    fn take(&mut self, byte: u8) -> Option<(Frame, [f64; 2])> {
        if !self.plant {
            return Some((self.parser.push(byte)?, [0.0; 2]));
        }
        let Wide { sequence, level_v, values_v } = self.wide_parser.push(byte)?;
        Some((Frame { sequence, level_v }, values_v.map(f64::from)))
    }

    fn broken(&mut self, doing: &'static str, errno: Errno) -> LinkError {
        match self.echo.as_mut().and_then(Echo::gone) {
            Some(reason) => LinkError::FarEnd { link: "pty", reason },
            None => system(doing)(errno),
        }
    }
}

impl Pty {
    /// Sends the level under the present number.
    fn send(&mut self, level_v: f64) -> Result<(), LinkError> {
        if self.echo.is_none() {
            self.unread_frames += 1;
            if self.unread_frames == FLUSH_AFTER_FRAMES {
                self.unread_frames = 0;
                tcflush(&*self.far, QueueSelector::IFlush).map_err(system("emptying the terminal"))?;
            }
        }
        let (sequence, level_v) = (self.sequence, level_v as f32);
        let (narrow, wide);
        let frame: &[u8] = if self.plant {
            wide = Wide { sequence, level_v, values_v: [self.drive_v as f32, 0.0] }.encode();
            &wide
        } else {
            narrow = Frame { sequence, level_v }.encode();
            &narrow
        };
        let mut written = 0;
        // The buffer is far larger than what is ever under way, so this writes once.
        while written < frame.len() {
            match write(&self.near, &frame[written..]) {
                Ok(bytes) => written += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.broken("writing", errno)),
            }
        }
        Ok(())
    }
}

impl Link for Pty {
    fn write_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.copied = false;
        self.send(level_v)?;
        self.outstanding = true;
        Ok(())
    }

    fn again_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        if !self.outstanding || std::mem::replace(&mut self.copied, true) {
            return Ok(());
        }
        self.send(level_v)
    }

    fn read_v(&mut self) -> Result<f64, LinkError> {
        if self.waiting == Waiting::Block && self.outstanding {
            let mut fds = [PollFd::new(&self.near, PollFlags::IN)];
            // Interrupted or timed out: the next read waits on.
            let _ = poll(&mut fds, Some(&BLOCK));
        }
        let mut buffer = [0; 8 * FRAME_BYTES];
        match read(&self.near, &mut buffer) {
            Ok(0) => return Err(self.broken("reading", Errno::IO)),
            Ok(bytes) => {
                for &byte in &buffer[..bytes] {
                    match self.take(byte) {
                        Some((frame, sensors_v)) if frame.sequence == self.sequence => {
                            self.level_v = f64::from(frame.level_v);
                            self.sensors_v = sensors_v;
                            self.outstanding = false;
                        }
                        Some(_) => self.stale += 1,
                        None => {}
                    }
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(self.broken("reading", errno)),
        }
        Ok(self.level_v)
    }

    fn drive_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        self.drive_v = level_v;
        if self.plant { Ok(()) } else { Err(self.no_plant()) }
    }

    fn sense_v(&mut self) -> Result<[f64; 2], LinkError> {
        if self.plant { Ok(self.sensors_v) } else { Err(self.no_plant()) }
    }

    fn end_plant(&mut self) -> Option<serde_json::Value> {
        self.echo.as_mut()?.report()
    }

    fn counts(&self) -> LinkCounts {
        let rejected = self.parser.rejected + self.wide_parser.rejected;
        LinkCounts { resent: 0, stale: self.stale, rejected }
    }

    fn facts(&self) -> &LinkFacts {
        &self.facts
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        if let Some(echo) = &mut self.echo {
            // A byte ends the echo thread's wait.
            let near = &self.near;
            echo.stop(|| {
                let _ = write(near, &[0]);
            });
        }
    }
}

/// The far end.
fn send_back(line: &OwnedFd, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = [0; 8 * FRAME_BYTES];
    while !stop.load(Ordering::Acquire) {
        let bytes = match read(line, &mut buffer) {
            Ok(bytes) => bytes,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut sent = 0;
        while sent < bytes {
            match write(line, &buffer[sent..bytes]) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{edges, edges_written_each_turn, polite};

    #[test]
    fn edges_go_round_with_every_echo_and_wait() {
        for waiting in [Waiting::Poll, Waiting::Block] {
            for echo_by in [PtyEcho::Thread, PtyEcho::Line] {
                let mut link = Pty::open(&PtyConfig { waiting, echo_by, echo: polite() }, None).unwrap();
                // More than the line discipline holds unread.
                assert_eq!(edges(&mut link, 1200), 1200, "{waiting:?} {echo_by:?}");
                assert_eq!(link.counts(), LinkCounts::default());
                assert_eq!(edges_written_each_turn(&mut link, 600), 600, "{waiting:?} {echo_by:?}");
                assert_eq!(link.facts().echo.is_some(), echo_by == PtyEcho::Thread);
            }
        }
    }

    #[test]
    fn every_byte_passes_raw() {
        // Levels whose frames hold control characters, XON, XOFF, interrupts, 0xFF, carriage
        // returns.
        for echo_by in [PtyEcho::Thread, PtyEcho::Line] {
            let config = PtyConfig { waiting: Waiting::Block, echo_by, echo: polite() };
            let mut link = Pty::open(&config, None).unwrap();
            for byte in 0..=255u8 {
                let level_v = f64::from(f32::from_le_bytes([byte, byte, byte, 0x3F]));
                link.write_v(level_v).unwrap();
                let mut reads = 0;
                while link.read_v().unwrap() != level_v {
                    reads += 1;
                    assert!(reads < 5000, "byte {byte:#x} did not come back by {echo_by:?}");
                }
            }
            assert_eq!(link.counts(), LinkCounts::default());
        }
    }
}
