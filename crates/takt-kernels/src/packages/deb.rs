//! Unpacks what a virtual machine needs of a kernel package, without the package manager: a `.deb`
//! is an `ar` archive that holds a packed `tar`.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use super::modules::unpacker;

/// Limits that a kernel package is far below; more is a broken or hostile file.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// All that the package unpacks to.
    pub unpacked_bytes: u64,
    /// One file that is kept.
    pub file_bytes: u64,
    /// Entries looked at.
    pub entries: usize,
}

impl Default for Limits {
    /// Ten times the largest kernel package of Debian 12 (400 MB, 4,300 files).
    fn default() -> Self {
        Self { unpacked_bytes: 4 << 30, file_bytes: 512 << 20, entries: 100_000 }
    }
}

/// The modules that are kept, below `kernel/`: virtual devices and what tests of real-time code
/// use. All 4,000 of a distribution would be 400 MB for each kernel.
const KEPT: &[&str] = &[
    "drivers/virtio/",
    "drivers/char/virtio_console",
    "drivers/char/hw_random/",
    "drivers/block/virtio_blk",
    "drivers/block/loop",
    "drivers/firmware/qemu_fw_cfg",
    "drivers/net/virtio_net",
    "drivers/net/net_failover",
    "drivers/net/veth",
    "drivers/net/dummy",
    "drivers/comedi/",
    "drivers/cpuidle/",
    "net/core/failover",
    "net/packet/",
    "net/9p/",
    "net/sched/",
    "fs/9p/",
    "fs/netfs/",
    "fs/fscache/",
    "lib/",
    "crypto/",
    "arch/x86/crypto/",
];

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// The kernel, below the folder.
    pub vmlinuz: Option<PathBuf>,
    pub config: Option<PathBuf>,
    /// `lib/modules/RELEASE`.
    pub modules: Option<PathBuf>,
}

/// Fault of a package's file.
#[derive(Debug, thiserror::Error)]
pub enum DebError {
    /// It ends early, or cannot be read.
    #[error("it is not a Debian package, or is truncated: {0}")]
    Cut(io::Error),
    /// It is another kind of file.
    #[error("it is not a Debian package: it does not begin with !<arch>")]
    NoMark,
    /// The files are not in it.
    #[error("it has no data.tar: it is not a Debian package, or is truncated")]
    NoData,
    /// The head of a part is not one.
    #[error("it is not a Debian package: its part {part:?} has a broken header")]
    BrokenHead {
        /// The name that stands there.
        part: String,
    },
    /// More parts than a package has.
    #[error("it has more than {most} parts, expected 3")]
    TooManyParts {
        /// As many are looked at.
        most: usize,
    },
    /// Its files are packed in a way that is not known.
    #[error("its content is packed as {received:?}, expected xz, zst, gz or none")]
    Packing { received: String },
    /// Its files do not unpack.
    #[error("its content cannot be unpacked: {0}")]
    Content(io::Error),
    /// More files than a kernel has.
    #[error("it has more than {most} files")]
    TooManyFiles { most: usize },
    /// A file larger than any of a kernel.
    #[error("{file} has {received} bytes, expected at most {most}", file = file.display())]
    FileTooLarge {
        /// The file, as the package names it.
        file: PathBuf,
        received: u64,
        /// The largest that is unpacked.
        most: u64,
    },
    /// A file could not be written.
    #[error("{file}: {source}", file = file.display())]
    Write { file: PathBuf, source: io::Error },
}

/// Begin of the outer archive, and the length of the header of each of its parts.
const AR_MARK: &[u8; 8] = b"!<arch>\n";
const AR_HEAD_BYTES: usize = 60;
/// A package has three.
const MAX_PARTS: usize = 16;

/// Destination of a package's file, below the folder of the kernel; none for files that are not
/// kept.
enum Place {
    Vmlinuz,
    Config,
    /// `lib/modules/RELEASE/...`
    Module(PathBuf),
}

fn place(path: &Path) -> Option<Place> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::CurDir | Component::RootDir => {}
            _ => return None,
        }
    }
    // Newer packages have all below /usr.
    if parts.first() == Some(&"usr") {
        parts.remove(0);
    }
    match parts.as_slice() {
        ["boot", name] if name.starts_with("vmlinuz-") => Some(Place::Vmlinuz),
        ["lib", "modules", _, "vmlinuz"] => Some(Place::Vmlinuz),
        ["boot", name] if name.starts_with("config-") => Some(Place::Config),
        ["lib", "modules", _, "config"] => Some(Place::Config),
        ["lib", "modules", _, "modules.builtin"] => Some(Place::Module(parts.iter().collect())),
        ["lib", "modules", _, "kernel", rest @ ..] => {
            let file = rest.join("/");
            let kept = KEPT.iter().any(|kept| file.starts_with(kept)) && file.contains(".ko");
            kept.then(|| Place::Module(parts.iter().collect()))
        }
        _ => None,
    }
}

/// Reads a package from `source` and writes what is kept of it below `folder`.
///
/// # Errors
/// The fault, or the file that could not be written.
pub fn unpack(source: impl Read, folder: &Path, limits: Limits) -> Result<Unpacked, DebError> {
    let mut archive = BufReader::with_capacity(1 << 16, source);
    let mut mark = [0; AR_MARK.len()];
    archive.read_exact(&mut mark).map_err(DebError::Cut)?;
    if mark != *AR_MARK {
        return Err(DebError::NoMark);
    }
    for _ in 0..MAX_PARTS {
        let mut head = [0; AR_HEAD_BYTES];
        match archive.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(DebError::NoData);
            }
            outcome => outcome.map_err(DebError::Cut)?,
        }
        let (name, size) = part(&head)?;
        let mut member = archive.by_ref().take(size);
        if !name.starts_with("data.tar") {
            // Parts begin at even places.
            io::copy(&mut member, &mut io::sink()).map_err(DebError::Cut)?;
            io::copy(&mut archive.by_ref().take(size % 2), &mut io::sink()).map_err(DebError::Cut)?;
            continue;
        }
        let packed = name.trim_start_matches("data.tar").trim_start_matches('.').to_owned();
        if !matches!(packed.as_str(), "" | "xz" | "gz" | "zst") {
            return Err(DebError::Packing { received: packed });
        }
        let plain = unpacker(member, &name).map_err(DebError::Content)?;
        return unpack_tar(plain, folder, limits);
    }
    Err(DebError::TooManyParts { most: MAX_PARTS })
}

/// Name and length of a part, from its head (deb(5): the common archive format, with names that fit
/// in the head). The crate for such archives believes what a head says of names and lengths
/// elsewhere.
fn part(head: &[u8; AR_HEAD_BYTES]) -> Result<(String, u64), DebError> {
    let text = |from: usize, to: usize| String::from_utf8_lossy(&head[from..to]).trim_end().to_owned();
    let (name, size) = (text(0, 16), text(48, 58));
    match size.parse() {
        Ok(size) if head.ends_with(b"`\n") => Ok((name.trim_end_matches('/').to_owned(), size)),
        _ => Err(DebError::BrokenHead { part: name }),
    }
}

fn unpack_tar(plain: impl Read, folder: &Path, limits: Limits) -> Result<Unpacked, DebError> {
    // One byte more than allowed shows that there is more.
    let mut counted = Counted { inner: plain, left: limits.unpacked_bytes };
    let mut tar = tar::Archive::new(&mut counted);
    let mut unpacked = Unpacked::default();
    for (index, entry) in tar.entries().map_err(DebError::Content)?.enumerate() {
        if index >= limits.entries {
            return Err(DebError::TooManyFiles { most: limits.entries });
        }
        let entry = entry.map_err(DebError::Content)?;
        let path = entry.path().map_err(DebError::Content)?.into_owned();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some(place) = place(&path) else { continue };
        if entry.size() > limits.file_bytes {
            let (received, most) = (entry.size(), limits.file_bytes);
            return Err(DebError::FileTooLarge { file: path, received, most });
        }
        let relative = match place {
            Place::Vmlinuz => PathBuf::from("vmlinuz"),
            Place::Config => PathBuf::from("config"),
            Place::Module(relative) => relative,
        };
        let target = folder.join(&relative);
        write(entry, &target).map_err(|source| DebError::Write { file: target.clone(), source })?;
        match relative.to_str() {
            Some("vmlinuz") => unpacked.vmlinuz = Some(target),
            Some("config") => unpacked.config = Some(target),
            _ => unpacked.modules = Some(folder.join(relative.components().take(3).collect::<PathBuf>())),
        }
    }
    Ok(unpacked)
}

fn write(mut entry: impl Read, target: &Path) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    io::copy(&mut entry, &mut File::create(target)?)?;
    Ok(())
}

/// A reader that fails instead of giving more than its share.
struct Counted<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "it unpacks to more than any kernel package")
        })?;
        Ok(read)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A package with these files, packed with gzip.
    pub fn sample(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar =
            tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (path, content) in files {
            let mut header = tar::Header::new_ustar();
            // `set_path` refuses what a hostile package would have.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            tar.append(&header, *content).unwrap();
        }
        let data = tar.into_inner().unwrap().finish().unwrap();
        let mut deb = ar::Builder::new(Vec::new());
        for (name, content) in [("debian-binary", b"2.0\n".as_slice()), ("data.tar.gz", &data)] {
            deb.append(&ar::Header::new(name.as_bytes().to_vec(), content.len() as u64), content).unwrap();
        }
        deb.into_inner().unwrap()
    }

    #[test]
    fn only_what_is_needed_is_kept() {
        let deb = sample(&[
            ("./boot/vmlinuz-6.1", b"kernel"),
            ("./boot/config-6.1", b"CONFIG_SMP=y"),
            ("./usr/lib/modules/6.1/kernel/drivers/virtio/virtio.ko", b"module"),
            ("./lib/modules/6.1/kernel/drivers/gpu/large.ko", b"large"),
            ("./lib/modules/6.1/modules.builtin", b""),
            ("./lib/modules/6.1/kernel/lib/../../../../../escaped.ko", b"bad"),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        let unpacked = unpack(deb.as_slice(), &inner, Limits::default()).unwrap();
        assert_eq!(fs::read(unpacked.vmlinuz.unwrap()).unwrap(), b"kernel");
        let modules = unpacked.modules.unwrap();
        assert_eq!(modules, inner.join("lib/modules/6.1"));
        assert!(
            modules.join("kernel/drivers/virtio/virtio.ko").is_file()
                && modules.join("modules.builtin").is_file()
        );
        assert!(!modules.join("kernel/drivers/gpu").exists() && !folder.path().join("escaped.ko").exists());
    }

    #[test]
    fn a_package_that_unpacks_to_too_much_is_refused() {
        let deb = sample(&[("./boot/vmlinuz-6.1", &[0; 100_000])]);
        let folder = tempfile::tempdir().unwrap();
        let small = Limits { unpacked_bytes: 50_000, ..Limits::default() };
        assert!(
            unpack(deb.as_slice(), folder.path(), small)
                .unwrap_err()
                .to_string()
                .contains("more than any kernel")
        );
        let small = Limits { file_bytes: 50_000, ..Limits::default() };
        assert!(
            unpack(deb.as_slice(), folder.path(), small).unwrap_err().to_string().contains("at most 50000")
        );
    }

    /// Found by fuzzing: a part whose name stands in a table of names that is not there.
    #[test]
    fn heads_of_parts_are_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |head: &str| {
            let deb = format!("!<arch>\n{head:60}");
            unpack(deb.as_bytes(), folder.path(), Limits::default()).unwrap_err().to_string()
        };
        let head =
            |name: &str, size: &str| format!("{name:16}{:12}{:6}{:6}{:8}{size:10}`\n", 0, 0, 0, 100644);
        assert!(refused(&head("/400", "4")).contains("no data.tar"));
        assert!(refused(&head("//", "9999999999")).contains("no data.tar"));
        assert!(refused(&head("debian-binary", "4x")).contains("broken head"));
        assert!(refused("data.tar").contains("broken head"));
        let many = format!("!<arch>\n{}", head("debian-binary", "0").repeat(17));
        let error = unpack(many.as_bytes(), folder.path(), Limits::default()).unwrap_err().to_string();
        assert!(error.contains("more than 16 parts"), "{error}");
    }

    #[test]
    fn what_is_no_package_is_said_to_be_none() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [b"".as_slice(), b"<html>404</html>", b"!<arch>\n"] {
            assert!(
                unpack(bytes, folder.path(), Limits::default())
                    .unwrap_err()
                    .to_string()
                    .contains("not a Debian package")
            );
        }
    }

    proptest! {
        #[test]
        fn a_torn_or_damaged_package_never_panics(cut in 0usize..700, at in 0usize..700, value: u8) {
            let mut deb = sample(&[("./boot/vmlinuz-6.1", b"kernel"), ("./boot/config-6.1", b"CONFIG_SMP=y")]);
            if let Some(byte) = deb.get_mut(at) { *byte = value; }
            deb.truncate(cut);
            let folder = tempfile::tempdir().unwrap();
            let _ = unpack(deb.as_slice(), folder.path(), Limits::default());
        }
    }
}
