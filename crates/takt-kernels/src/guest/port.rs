//! The ways out of the guest: the virtio port, or a second serial line for kernels without its
//! driver.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::system::now_ns;

pub const PORT_NAME: &str = "takt.results";

/// The serial line that is used where there is no such port.
const LINE: &str = "/dev/ttyS1";

/// Guest time that the driver gets to find its ports: it does so in the background.
const PORT_WAIT_NS: u64 = 2_000_000_000;

/// No way out.
#[derive(Debug, thiserror::Error)]
#[error(
    "no connection to the host: no virtio port {PORT_NAME:?} (is virtio_console in the kernel or in the image?) and {LINE}: {source}"
)]
pub struct NoPort {
    source: io::Error,
}

/// An open way out.
#[derive(Debug)]
pub struct Port(File);

impl Port {
    /// Opens the port when its driver has found it, else the serial line.
    pub fn open() -> Result<Self, NoPort> {
        let begin = now_ns();
        while fs::exists("/sys/class/virtio-ports").unwrap_or(false) && now_ns() - begin < PORT_WAIT_NS {
            if let Some(file) = find().and_then(|path| OpenOptions::new().write(true).open(path).ok()) {
                return Ok(Self(file));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let line =
            OpenOptions::new().read(true).write(true).open(LINE).map_err(|source| NoPort { source })?;
        raw(&line).map_err(|source| NoPort { source })?;
        Ok(Self(line))
    }
}

/// A terminal would turn newlines in the archive into two bytes.
fn raw(line: &File) -> io::Result<()> {
    let mut settings = rustix::termios::tcgetattr(line)?;
    settings.make_raw();
    rustix::termios::tcsetattr(line, rustix::termios::OptionalActions::Now, &settings)?;
    Ok(())
}

fn find() -> Option<PathBuf> {
    fs::read_dir("/sys/class/virtio-ports").ok()?.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        (name.trim() == PORT_NAME).then(|| PathBuf::from("/dev").join(entry.file_name()))
    })
}

impl Write for Port {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A serial line is written behind the caller's back; switching off would cut it.
        match rustix::termios::tcdrain(&self.0) {
            Ok(()) | Err(rustix::io::Errno::NOTTY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Standard streams to the console.
pub fn console() -> io::Result<()> {
    let console = OpenOptions::new().read(true).write(true).open("/dev/console")?;
    rustix::stdio::dup2_stdin(&console)?;
    rustix::stdio::dup2_stdout(&console)?;
    rustix::stdio::dup2_stderr(&console)?;
    Ok(())
}
