//! The archive format that kernels unpack at start: "newc" cpio.
//!
//! Nothing of the host gets in: times are 0, owners are root, inode numbers count up, names are in
//! order. So the same content is the same image, bit by bit, and a guest's run does not depend on
//! when its image was made.

use std::io::{self, Read, Write};

/// The kind of an entry and its permissions, as in `st_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode(pub u32);

impl Mode {
    pub const DIRECTORY: u32 = 0o040_000;
    pub const FILE: u32 = 0o100_000;
    pub(crate) const LINK: u32 = 0o120_000;
    pub(crate) const CHARACTER_DEVICE: u32 = 0o020_000;
}

/// Writes entries one after the other.
pub(super) struct Writer<W> {
    out: W,
    written: u64,
    inode: u32,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Self {
        Self { out, written: 0, inode: 0 }
    }

    /// One entry. `name` has no leading slash; `content` gives exactly `size` bytes. `device` is
    /// the number of a device node.
    pub fn entry(
        &mut self,
        name: &str,
        mode: Mode,
        device: (u32, u32),
        size: u32,
        content: &mut dyn Read,
    ) -> io::Result<()> {
        self.inode += 1;
        let links = if mode.0 & 0o170_000 == Mode::DIRECTORY { 2 } else { 1 };
        self.head(self.inode, mode.0, links, device, name, size)?;
        let copied = io::copy(&mut content.take(u64::from(size)), &mut self.out)?;
        self.written += copied;
        if copied != u64::from(size) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{name} became shorter while it was read: expected {size} bytes, received {copied}"),
            ));
        }
        self.pad(4)
    }

    /// The closing entry. The archive is padded to 512 bytes, as other writers do.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.head(0, 0, 1, (0, 0), "TRAILER!!!", 0)?;
        self.pad(512)?;
        self.out.flush()?;
        Ok((self.out, self.written))
    }

    fn head(
        &mut self,
        inode: u32,
        mode: u32,
        links: u32,
        device: (u32, u32),
        name: &str,
        size: u32,
    ) -> io::Result<()> {
        let name_size = u32::try_from(name.len() + 1).map_err(|_| io::ErrorKind::InvalidInput)?;
        let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let mut head = String::from("070701");
        for field in fields {
            head.push_str(&format!("{field:08x}"));
        }
        head.push_str(name);
        head.push('\0');
        self.out.write_all(head.as_bytes())?;
        self.written += head.len() as u64;
        self.pad(4)
    }

    fn pad(&mut self, to: u64) -> io::Result<()> {
        let missing = self.written.next_multiple_of(to) - self.written;
        io::copy(&mut io::repeat(0).take(missing), &mut self.out)?;
        self.written += missing;
        Ok(())
    }
}
