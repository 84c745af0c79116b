//! Boot image of a guest: an initramfs in memory, with programs, their libraries and kernel
//! modules.
//!
//! ```no_run
//! use takt_kernels::image::Initramfs;
//!
//! let mut image = Initramfs::new();
//! image.program("/proc/self/exe".as_ref(), "/init")?;
//! image.file("/etc/takt/order.json", 0o644, b"{}".to_vec())?;
//! image.write("/tmp/initramfs.cpio".as_ref())?;
//! # Ok::<(), takt_kernels::image::ImageError>(())
//! ```

mod cpio;
mod elf;
mod ld_cache;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;

pub use crate::image_error::{ElfError, ImageError};
use crate::packages::{Kernel, modules};
use cpio::{Mode, Writer};
pub use elf::read_program;

/// The list of modules in the image, in load order, one path a line: what the guest's first process
/// loads.
pub(crate) const MODULE_LIST: &str = "/etc/takt/modules";

/// Compression of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Packing {
    /// Not at all, the default: the virtual machine's memory gets the file as it is, and the guest
    /// has nothing to unpack. If every instruction is emulated, unpacking costs far more than
    /// reading a larger file.
    #[default]
    Plain,
    /// gzip, which every kernel reads: a tenth to a third of the size, for an image that is kept or
    /// sent.
    Gzip,
}

enum Content {
    Directory,
    Bytes(Vec<u8>),
    Host(PathBuf),
    Link(String),
    CharacterDevice(u32, u32),
}

struct Node {
    permissions: u32,
    content: Content,
}

/// An initramfs that is being put together. Paths are the guest's; folders on the way are made.
pub struct Initramfs {
    nodes: BTreeMap<String, Node>,
    modules: Vec<String>,
    packing: Packing,
}

impl Default for Initramfs {
    fn default() -> Self {
        Self::new()
    }
}

impl Initramfs {
    /// An image with `/dev/console` only, which the kernel opens for the first process before
    /// anything is mounted.
    pub fn new() -> Self {
        let mut image = Self { nodes: BTreeMap::new(), modules: Vec::new(), packing: Packing::default() };
        let folder = Node { permissions: 0o755, content: Content::Directory };
        image.nodes.insert("dev".into(), folder);
        let console = Node { permissions: 0o600, content: Content::CharacterDevice(5, 1) };
        image.nodes.insert("dev/console".into(), console);
        image
    }

    /// Sets the compression of the image.
    pub fn packing(&mut self, packing: Packing) -> &mut Self {
        self.packing = packing;
        self
    }

    /// An empty folder.
    pub fn dir(&mut self, path: &str) -> Result<&mut Self, ImageError> {
        self.insert(path, 0o755, Content::Directory)
    }

    pub fn file(&mut self, path: &str, permissions: u32, bytes: Vec<u8>) -> Result<&mut Self, ImageError> {
        self.insert(path, permissions, Content::Bytes(bytes))
    }

    /// A symbolic link at `path` to `target`.
    pub fn link(&mut self, path: &str, target: &str) -> Result<&mut Self, ImageError> {
        self.insert(path, 0o777, Content::Link(target.to_owned()))
    }

    /// A file of the host, or a folder with all that is in it. Links are followed; permissions are
    /// kept.
    pub fn copy(&mut self, host: &Path, path: &str) -> Result<&mut Self, ImageError> {
        let read = |source| ImageError::Read { path: host.to_path_buf(), source };
        let facts = fs::metadata(host).map_err(read)?;
        if !facts.is_dir() {
            return self.host_file(host, path, &facts);
        }
        self.dir(path)?;
        let mut entries = fs::read_dir(host).map_err(read)?.collect::<Result<Vec<_>, _>>().map_err(read)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            self.copy(&entry.path(), &format!("{}/{}", path.trim_end_matches('/'), name.to_string_lossy()))?;
        }
        Ok(self)
    }

    /// A program of the host, with its interpreter and all shared libraries it needs, which keep
    /// their own paths.
    pub fn program(&mut self, host: &Path, path: &str) -> Result<&mut Self, ImageError> {
        let read = |source| ImageError::Read { path: host.to_path_buf(), source };
        // `/proc/self/exe` and the like: what is read later must still be this file.
        let host = host.canonicalize().map_err(read)?;
        for (guest, file) in elf::closure(&host)? {
            self.copy(&file, &guest.to_string_lossy())?;
        }
        self.insert(path, 0o755, Content::Host(host))
    }

    /// Modules of a kernel with all they need, uncompressed, and their place in [`MODULE_LIST`].
    /// Built-in parts need no file; a kernel given without modules is assumed to have everything
    /// built in.
    pub(crate) fn kernel_modules(
        &mut self,
        kernel: &Kernel,
        names: &[&str],
    ) -> Result<&mut Self, ImageError> {
        let Some(folder) = &kernel.modules else { return self.module_list() };
        let index = modules::Index::read(folder)?;
        for relative in index.closure(&kernel.release, names)? {
            let file = folder.join(&relative);
            let plain = modules::uncompressed_name(&relative);
            let path = format!("/lib/modules/{}/{plain}", kernel.release);
            if self.modules.contains(&path) {
                continue;
            }
            if plain == relative {
                self.copy(&file, &path)?;
            } else {
                self.file(&path, 0o644, modules::read_uncompressed(&file)?)?;
            }
            self.modules.push(path);
        }
        self.module_list()
    }

    /// Writes the image; says its size in bytes.
    pub fn write(&self, path: &Path) -> Result<u64, ImageError> {
        let failed = |source| ImageError::Write { path: path.to_path_buf(), source };
        let file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
        match self.packing {
            Packing::Plain => drop(self.archive(file, path)?),
            Packing::Gzip => {
                // The header's time stamp stays 0.
                let packed = self.archive(GzEncoder::new(file, flate2::Compression::fast()), path)?;
                packed.finish().and_then(|mut file| file.flush()).map_err(failed)?;
            }
        }
        Ok(fs::metadata(path).map_err(failed)?.len())
    }

    fn archive<W: Write>(&self, out: W, path: &Path) -> Result<W, ImageError> {
        let mut writer = Writer::new(out);
        for (name, node) in &self.nodes {
            let permissions = node.permissions & 0o7777;
            let written = match &node.content {
                Content::Directory => {
                    writer.entry(name, Mode(Mode::DIRECTORY | permissions), (0, 0), 0, &mut std::io::empty())
                }
                Content::CharacterDevice(major, minor) => {
                    let mode = Mode(Mode::CHARACTER_DEVICE | permissions);
                    writer.entry(name, mode, (*major, *minor), 0, &mut std::io::empty())
                }
                Content::Link(target) => {
                    let size = size_of_entry(target.len() as u64, path)?;
                    writer.entry(name, Mode(Mode::LINK | permissions), (0, 0), size, &mut target.as_bytes())
                }
                Content::Bytes(bytes) => {
                    let size = size_of_entry(bytes.len() as u64, path)?;
                    writer.entry(name, Mode(Mode::FILE | permissions), (0, 0), size, &mut bytes.as_slice())
                }
                Content::Host(host) => {
                    let read = |source| ImageError::Read { path: host.clone(), source };
                    let file = File::open(host).map_err(read)?;
                    let size = size_of_entry(file.metadata().map_err(read)?.len(), host)?;
                    let mut file = BufReader::with_capacity(1 << 20, file);
                    writer.entry(
                        name,
                        Mode(Mode::FILE | permissions),
                        (0, 0),
                        size,
                        &mut file as &mut dyn Read,
                    )
                }
            };
            written.map_err(|source| ImageError::Write { path: path.to_path_buf(), source })?;
        }
        let (out, _) =
            writer.finish().map_err(|source| ImageError::Write { path: path.to_path_buf(), source })?;
        Ok(out)
    }

    fn host_file(&mut self, host: &Path, path: &str, facts: &fs::Metadata) -> Result<&mut Self, ImageError> {
        use std::os::unix::fs::PermissionsExt;
        size_of_entry(facts.len(), host)?;
        self.insert(path, facts.permissions().mode() & 0o777, Content::Host(host.to_path_buf()))
    }

    fn module_list(&mut self) -> Result<&mut Self, ImageError> {
        let list: String = self.modules.iter().map(|path| format!("{path}\n")).collect();
        self.file(MODULE_LIST, 0o644, list.into_bytes())
    }

    fn insert(&mut self, path: &str, permissions: u32, content: Content) -> Result<&mut Self, ImageError> {
        let name = guest_name(path)?;
        let mut parent = name.as_str();
        while let Some((folder, _)) = parent.rsplit_once('/') {
            let made = self.nodes.entry(folder.to_owned());
            let node = made.or_insert(Node { permissions: 0o755, content: Content::Directory });
            if !matches!(node.content, Content::Directory) {
                return Err(ImageError::Clash { path: format!("/{folder}") });
            }
            parent = folder;
        }
        let is_folder = matches!(content, Content::Directory);
        if let Some(there) = self.nodes.get(&name)
            && matches!(there.content, Content::Directory) != is_folder
        {
            return Err(ImageError::Clash { path: format!("/{name}") });
        }
        self.nodes.insert(name, Node { permissions, content });
        Ok(self)
    }
}

/// A guest's path as the archive names it: without the leading slash, every part an ordinary name.
fn guest_name(path: &str) -> Result<String, ImageError> {
    let refused = || ImageError::GuestPath { given: path.to_owned() };
    let relative = path.strip_prefix('/').ok_or_else(refused)?;
    let parts: Vec<&str> = relative.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty()
        || parts.iter().any(|part| *part == ".." || part.contains('\0'))
        || relative.len() > 4000
    {
        return Err(refused());
    }
    Ok(parts.join("/"))
}

fn size_of_entry(bytes: u64, path: &Path) -> Result<u32, ImageError> {
    u32::try_from(bytes).map_err(|_| ImageError::TooLarge { path: path.to_path_buf(), bytes })
}

#[cfg(test)]
mod tests;
