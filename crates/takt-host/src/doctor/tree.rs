//! Reading `/proc` and `/sys`, or a copy of them in another folder.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use takt_rt::placement::CpuSet;

/// Longest file that is looked at: the kernel's own are far shorter.
const MAX_BYTES: u64 = 4 << 20;

/// A tree with `/proc` and `/sys` below its root.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Real place of `path`, which is given as on a whole system.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether this is the running system, so that measurements concern it.
    pub(crate) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    pub(crate) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(self.at(path)).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    /// The whole of a short file, trimmed; `None` when it is empty.
    pub(crate) fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub(crate) fn number(&self, path: &str) -> Option<i64> {
        self.line(path)?.parse().ok()
    }

    /// A set of CPUs; an empty file is the empty set.
    pub(crate) fn cpus(&self, path: &str) -> Option<CpuSet> {
        let text = self.text(path)?;
        let text = text.trim();
        if text.is_empty() || text == "(null)" { Some(CpuSet::EMPTY) } else { text.parse().ok() }
    }

    /// The word in force in a file that lists all: `always [madvise] never`, `none (full)`.
    pub(crate) fn choice(&self, path: &str) -> Option<String> {
        chosen(&self.text(path)?)
    }

    /// Names in a folder, sorted.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    pub(crate) fn online(&self) -> CpuSet {
        self.cpus("/sys/devices/system/cpu/online").unwrap_or(CpuSet::EMPTY)
    }

    /// An option of the kernel's configuration: `y`, `m`, a value, or `n` when it is said to be
    /// unset or is not there; `None` when the configuration cannot be read.
    pub(crate) fn config(&self, option: &str) -> Option<String> {
        let text = self.config_text()?;
        let value = text.lines().find_map(|line| line.strip_prefix(option)?.strip_prefix('='));
        Some(value.unwrap_or("n").trim().to_owned())
    }

    fn config_text(&self) -> Option<String> {
        if let Some(packed) = self.bytes("/proc/config.gz") {
            let mut text = Vec::new();
            let unpacked = flate2::read::GzDecoder::new(&packed[..]).take(MAX_BYTES).read_to_end(&mut text);
            if unpacked.is_ok() {
                return Some(String::from_utf8_lossy(&text).into_owned());
            }
        }
        let release = self.line("/proc/sys/kernel/osrelease")?;
        let name_is_plain = !release.contains('/') && !release.contains('\0');
        if name_is_plain { self.text(&format!("/boot/config-{release}")) } else { None }
    }
}

/// The word in brackets; the whole text, trimmed, when there is none.
pub(crate) fn chosen(text: &str) -> Option<String> {
    let text = text.trim();
    for (open, close) in [('[', ']'), ('(', ')')] {
        if let Some((word, _)) = text.split_once(open).and_then(|(_, rest)| rest.split_once(close)) {
            return Some(word.to_owned());
        }
    }
    (!text.is_empty()).then(|| text.to_owned())
}

/// A fake tree for tests.
#[cfg(test)]
pub(crate) mod fake {
    use super::*;

    pub(crate) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            write(root.path(), path, text.as_bytes());
        }
        root
    }

    pub(crate) fn write(root: &Path, path: &str, bytes: &[u8]) {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_what_the_kernel_writes() {
        let root = fake::tree(&[
            ("/a", " always [madvise] never\n"),
            ("/b", "none voluntary (full)\n"),
            ("/c", "performance\n"),
            ("/d", "0-2,4\n"),
            ("/e", "\n"),
            ("/f", "-1\n"),
        ]);
        let tree = Tree::new(root.path());
        let choices: Vec<_> = ["/a", "/b", "/c", "/e", "/x"].iter().map(|path| tree.choice(path)).collect();
        assert_eq!(
            choices,
            [Some("madvise".into()), Some("full".into()), Some("performance".into()), None, None]
        );
        assert_eq!(tree.cpus("/d").unwrap().to_string(), "0-2,4");
        assert_eq!(tree.cpus("/e"), Some(CpuSet::EMPTY));
        assert_eq!(tree.cpus("/c"), None);
        assert_eq!(tree.number("/f"), Some(-1));
        assert!(!tree.is_live() && Tree::new(Path::new("/")).is_live());
    }

    #[test]
    fn the_configuration_is_packed_or_plain() {
        let text = "# CONFIG_B is not set\nCONFIG_A=y\nCONFIG_AB=250\n";
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        let root =
            fake::tree(&[("/proc/sys/kernel/osrelease", "6.1.0\n"), ("/boot/config-6.1.0", "CONFIG_A=m\n")]);
        let tree = Tree::new(root.path());
        assert_eq!(tree.config("CONFIG_A").as_deref(), Some("m"));
        fake::write(root.path(), "/proc/config.gz", &packed.finish().unwrap());
        assert_eq!(tree.config("CONFIG_A").as_deref(), Some("y"));
        assert_eq!(tree.config("CONFIG_AB").as_deref(), Some("250"));
        assert_eq!(tree.config("CONFIG_B").as_deref(), Some("n"));
        fake::write(root.path(), "/proc/config.gz", b"no gzip");
        assert_eq!(tree.config("CONFIG_A").as_deref(), Some("m"));
        assert_eq!(Tree::new(fake::tree(&[]).path()).config("CONFIG_A"), None);
    }
}
