//! The cache of kernels. A kernel is in it whole or not at all: it is put together in a folder of
//! its own and renamed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::apt::{Apt, Source, Stanza};
use super::{
    Kernel, Listed, Model, Package, PackageDefect, PackageError, Preemption, deb, modules, names, version,
};

const FACTS_FILE: &str = "kernel.json";
const PART_PREFIX: &str = ".part-";
/// A folder that another process left half done is removed when nobody can still be at work on it.
const PART_AGE: Duration = Duration::from_secs(24 * 3600);

/// Whether something is missing of what was unpacked.
type IsMissing = fn(&deb::Unpacked) -> bool;

/// Packages that a kernel's own depends on, with whether what they hold is missing.
const BESIDE: [(&str, IsMissing); 3] = [
    ("linux-modules-", |unpacked| unpacked.modules.is_none()),
    ("linux-binary-", |unpacked| unpacked.vmlinuz.is_none()),
    ("linux-base-", |unpacked| unpacked.config.is_none()),
];

/// Facts that the cache stores with a kernel.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    package: Package,
    /// Names that meant this kernel when it was fetched, so that they can be used without the
    /// lists.
    asked_as: Vec<String>,
    /// SHA-256 of `vmlinuz`.
    sha256: String,
}

/// Source and cache of kernels.
pub struct Store {
    folder: PathBuf,
    source: Box<dyn Source>,
}

impl Store {
    /// The cache in `folder`, or in `takt/kernels` of the user's cache folder. It is made when
    /// something is fetched.
    pub fn open(folder: Option<&Path>) -> Result<Self, PackageError> {
        let folder = match folder {
            Some(folder) => folder.to_path_buf(),
            None => {
                let absolute =
                    |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
                let cache =
                    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
                cache.ok_or(PackageError::NoCache)?.join("takt/kernels")
            }
        };
        Ok(Self { folder, source: Box::new(Apt::default()) })
    }

    /// The folder of the cache.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Offered and cached kernels, newest first. Without a package manager, these are the cached
    /// ones; the error then gives the reason.
    pub fn list(&self) -> Result<(Vec<Listed>, Option<PackageError>), PackageError> {
        let (offered, error) = match names::offered(self.source.as_ref()) {
            Ok(offered) => (offered, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let mut cached = self.cached()?;
        let mut listed: Vec<Listed> = Vec::new();
        for (stanza, aliases) in offered {
            let at = cached.iter().position(|(_, facts)| is_of(facts, &stanza));
            let kernel = at.map(|at| cached.swap_remove(at).0);
            let has_rt = stanza.description.contains("PREEMPT_RT");
            let by_text = has_rt.then_some(Preemption { model: Model::Rt, dynamic: false });
            listed.push(Listed {
                name: names::short(&stanza.package),
                aliases,
                size_bytes: stanza.size_bytes,
                offered: true,
                preemption: kernel.as_ref().map_or(by_text, |kernel| kernel.preemption),
                cached: kernel,
                package: stanza.package,
                version: stanza.version,
            });
        }
        listed.extend(cached.into_iter().map(|(kernel, facts)| Listed {
            name: names::short(&facts.package.name),
            aliases: Vec::new(),
            package: facts.package.name,
            version: facts.package.version,
            size_bytes: None,
            offered: false,
            preemption: kernel.preemption,
            cached: Some(kernel),
        }));
        listed
            .sort_by(|a, b| version::compare(&b.version, &a.version).then_with(|| a.package.cmp(&b.package)));
        Ok((listed, error))
    }

    /// Whether a kernel of that name is offered or in the cache. It fetches nothing; names of
    /// another suite (`generic@sid`), whose lists would have to be fetched, pass.
    ///
    /// # Errors
    /// [`PackageError::NotOffered`]; [`PackageError::NoImage`] for a path that does not exist.
    pub fn check(&self, name: &str) -> Result<(), PackageError> {
        if name.contains('/') {
            let path = Path::new(name).to_owned();
            return match path.exists() {
                true => Ok(()),
                false => Err(PackageError::NoImage { path }),
            };
        }
        if name.contains('@') {
            return Ok(());
        }
        match names::resolve(self.source.as_ref(), name) {
            Err(error @ PackageError::NotOffered { .. }) if self.by_name(name)?.is_none() => Err(error),
            // Without lists or network, runs on it fail, and say so.
            _ => Ok(()),
        }
    }

    /// The kernel of that name, from the cache or fetched: a path (anything with a slash), a short
    /// name or a package, each also with `@SUITE` for another suite of the distribution
    /// (`generic@sid`).
    pub fn get(&self, name: &str, progress: &mut dyn FnMut(&str)) -> Result<Kernel, PackageError> {
        if name.contains('/') {
            let kernel = Kernel::from_path(Path::new(name), None)?;
            return Ok(Kernel { name: name.to_owned(), ..kernel });
        }
        let fetched = match name.split_once('@') {
            None => {
                let source = self.source.as_ref();
                names::resolve(source, name).and_then(|stanza| self.fetch(name, &stanza, source, progress))
            }
            Some((plain, suite)) => Apt::of_suite(suite, &self.folder).and_then(|source| {
                let stanza = names::resolve(&source, plain)?;
                self.fetch(name, &stanza, &source, progress)
            }),
        };
        fetched.or_else(|error| match error {
            // Without lists or network, what was fetched under this name does.
            PackageError::NoApt { .. } | PackageError::Apt { .. } | PackageError::NotOffered { .. } => {
                let kernel = self.by_name(name)?.ok_or_else(|| error.to_string());
                match kernel {
                    Ok(kernel) => {
                        progress(&format!("{name}: {error}; the cached {} is used", kernel.release));
                        Ok(kernel)
                    }
                    Err(_) => Err(error),
                }
            }
            error => Err(error),
        })
    }

    /// The newest kernel in the cache that was fetched as `name`, or whose package or short name it
    /// is.
    fn by_name(&self, name: &str) -> Result<Option<Kernel>, PackageError> {
        let mut matching = self.cached()?;
        matching.retain(|(_, facts)| {
            let package = &facts.package.name;
            package == name
                || names::short(package) == name
                || facts.asked_as.iter().any(|asked| asked == name)
        });
        matching.sort_by(|(_, a), (_, b)| version::compare(&a.package.version, &b.package.version));
        Ok(matching.pop().map(|(kernel, _)| Kernel { name: name.to_owned(), ..kernel }))
    }

    /// All whole kernels of the cache. Unreadable ones are skipped, because they are fetched again
    /// on request.
    fn cached(&self) -> Result<Vec<(Kernel, Facts)>, PackageError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(PackageError::Io { path: self.folder.clone(), source }),
        };
        let folders = entries.flatten().map(|entry| entry.path());
        let whole = folders
            .filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
        Ok(whole.filter_map(|folder| load(&folder).ok()).collect())
    }

    fn fetch(
        &self,
        name: &str,
        stanza: &Stanza,
        source: &dyn Source,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Kernel, PackageError> {
        let folder = self.folder.join(format!("{}_{}", stanza.package, stanza.version));
        if let Ok((kernel, mut facts)) = load(&folder)
            && is_of(&facts, stanza)
        {
            if !facts.asked_as.iter().any(|asked| asked == name) {
                facts.asked_as.push(name.to_owned());
                // For the day without lists only: not to be able to note it is no harm.
                let _ = write_facts(&folder, &facts);
            }
            return Ok(Kernel { name: name.to_owned(), ..kernel });
        }
        let io = |path: &Path, source| PackageError::Io { path: path.to_path_buf(), source };
        fs::create_dir_all(&self.folder).map_err(|source| io(&self.folder, source))?;
        self.remove_remains();
        let part = tempfile::Builder::new()
            .prefix(PART_PREFIX)
            .tempdir_in(&self.folder)
            .map_err(|source| io(&self.folder, source))?;
        let whole = part.path().join("kernel");
        let sha256 = self.download(stanza, (source, part.path()), &whole, progress)?;
        let kernel = Kernel::from_path(&whole.join("vmlinuz"), None).map_err(|error| match error {
            PackageError::Io { .. } => {
                PackageError::NoKernelInside { package: stanza.package.clone(), wanted: "boot/vmlinuz-..." }
            }
            error => error,
        })?;
        let package = Package { name: stanza.package.clone(), version: stanza.version.clone(), sha256 };
        let facts = Facts { package, asked_as: vec![name.to_owned()], sha256: kernel.sha256 };
        write_facts(&whole, &facts).map_err(|source| io(&whole, source))?;
        if folder.exists() {
            // Either the existing folder was unreadable, or another process was faster: one of the
            // two is complete, and this one certainly is.
            let aside = part.path().join("aside");
            fs::rename(&folder, &aside).map_err(|source| io(&folder, source))?;
        }
        fs::rename(&whole, &folder).map_err(|source| io(&folder, source))?;
        let (kernel, _) = load(&folder)?;
        Ok(Kernel { name: name.to_owned(), ..kernel })
    }

    /// Downloads and unpacks into `whole`; says the package's SHA-256.
    fn download(
        &self,
        stanza: &Stanza,
        (source, part): (&dyn Source, &Path),
        whole: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<String, PackageError> {
        let io = |path: &Path, source| PackageError::Io { path: path.to_path_buf(), source };
        let (mut unpacked, sha256) = self.download_one(stanza, (source, part), whole, progress)?;
        // Some distributions have parts of a kernel in packages beside: Ubuntu the modules, Debian
        // since 7.0 each part.
        for (beside, part_of) in BESIDE {
            if (part_of)(&unpacked)
                && let Some(beside) = stanza.dependency(beside)
                && let Some(beside) = source.show(&[beside])?.into_iter().next()
            {
                let (more, _) = self.download_one(&beside, (source, part), whole, progress)?;
                unpacked.modules = unpacked.modules.or(more.modules);
                unpacked.config = unpacked.config.or(more.config);
                unpacked.vmlinuz = unpacked.vmlinuz.or(more.vmlinuz);
            }
        }
        if unpacked.vmlinuz.is_none() {
            return Err(PackageError::NoKernelInside {
                package: stanza.package.clone(),
                wanted: "boot/vmlinuz-...",
            });
        }
        if let Some(folder) = &unpacked.modules {
            let broken = |error: crate::image_error::ImageError| PackageError::BrokenPackage {
                path: folder.clone(),
                reason: Box::new(error.into()),
            };
            let index = modules::Index::read(folder).map_err(broken)?;
            for (file, text) in [("modules.dep", index.to_dep()), ("modules.softdep", index.to_softdep())] {
                fs::write(folder.join(file), text).map_err(|source| io(folder, source))?;
            }
        }
        Ok(sha256)
    }

    fn download_one(
        &self,
        stanza: &Stanza,
        (source, part): (&dyn Source, &Path),
        whole: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(deb::Unpacked, String), PackageError> {
        let io = |path: &Path, source| PackageError::Io { path: path.to_path_buf(), source };
        let mib =
            stanza.size_bytes.map(|bytes| format!(" ({} MiB)", bytes.div_ceil(1 << 20))).unwrap_or_default();
        progress(&format!("fetching {} {}{mib}", stanza.package, stanza.version));
        let folder = part.join("download");
        fs::create_dir_all(&folder).map_err(|source| io(&folder, source))?;
        let path = source.download(stanza, &folder)?;
        let mismatch = |what, expected: String, received: String| PackageError::Mismatch {
            package: stanza.package.clone(),
            what,
            expected,
            received,
        };
        let size = fs::metadata(&path).map_err(|source| io(&path, source))?.len();
        if let Some(expected) = stanza.size_bytes.filter(|expected| *expected != size) {
            return Err(mismatch("its size", expected.to_string(), size.to_string()));
        }
        let received = sha256(&path).map_err(|source| io(&path, source))?;
        let expected =
            stanza.sha256.clone().unwrap_or_else(|| "a SHA-256 in the lists of packages".to_owned());
        if expected != received {
            return Err(mismatch("its SHA-256", expected, received));
        }
        progress(&format!("unpacking {}", stanza.package));
        let file = File::open(&path).map_err(|source| io(&path, source))?;
        let unpacked = deb::unpack(file, whole, deb::Limits::default()).map_err(|error| {
            PackageError::BrokenPackage { path: path.clone(), reason: Box::new(error.into()) }
        })?;
        fs::remove_file(&path).map_err(|source| io(&path, source))?;
        Ok((unpacked, received))
    }

    /// Removes what a process left that was killed.
    fn remove_remains(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let old = entry.metadata().and_then(|facts| facts.modified()).ok();
            let old = old.and_then(|changed| SystemTime::now().duration_since(changed).ok());
            let is_part = entry.file_name().to_string_lossy().starts_with(PART_PREFIX);
            if is_part && old.is_some_and(|age| age > PART_AGE) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn is_of(facts: &Facts, stanza: &Stanza) -> bool {
    facts.package.name == stanza.package
        && facts.package.version == stanza.version
        && stanza.sha256.as_ref().is_none_or(|sha256| *sha256 == facts.package.sha256)
}

fn load(folder: &Path) -> Result<(Kernel, Facts), PackageError> {
    let path = folder.join(FACTS_FILE);
    let broken =
        |reason: PackageDefect| PackageError::BrokenPackage { path: path.clone(), reason: reason.into() };
    let text = fs::read_to_string(&path).map_err(|source| PackageError::Io { path: path.clone(), source })?;
    let facts: Facts = serde_json::from_str(&text).map_err(|error| broken(error.into()))?;
    let kernel = Kernel::from_path(&folder.join("vmlinuz"), None)?;
    if kernel.sha256 != facts.sha256 {
        return Err(broken(PackageDefect::OtherKernel { received: kernel.sha256, expected: facts.sha256 }));
    }
    let modules = folder.join("lib/modules").join(&kernel.release);
    let kernel = Kernel {
        name: names::short(&facts.package.name),
        // Never the host's, should it run the same release.
        modules: modules.is_dir().then_some(modules),
        package: Some(facts.package.clone()),
        ..kernel
    };
    Ok((kernel, facts))
}

/// Replaced as a whole, as another process may read it.
fn write_facts(folder: &Path, facts: &Facts) -> io::Result<()> {
    let file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(file.as_file(), facts)?;
    file.persist(folder.join(FACTS_FILE))?;
    Ok(())
}

pub(super) fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{bzimage, deb, names};
    use super::*;
    use names::tests::Fixed;

    const PACKAGE: &str = "linux-image-6.1.0-56-rt-amd64";

    fn fit_config() -> String {
        let on =
            ["BLK_DEV_INITRD", "BINFMT_ELF", "SERIAL_8250_CONSOLE", "DEVTMPFS", "PCI", "TMPFS", "PREEMPT_RT"];
        let on: String = on.iter().map(|option| format!("CONFIG_{option}=y\n")).collect();
        on + "CONFIG_VIRTIO_PCI=m\nCONFIG_VIRTIO_CONSOLE=m\n"
    }

    fn distribution() -> Fixed {
        let vmlinuz = bzimage::sample("6.1.0-56-rt-amd64 (x) #1 SMP PREEMPT_RT Debian");
        let config = fit_config();
        let bytes = deb::tests::sample(&[
            ("./boot/vmlinuz-6.1.0-56-rt-amd64", &vmlinuz),
            ("./boot/config-6.1.0-56-rt-amd64", config.as_bytes()),
            ("./lib/modules/6.1.0-56-rt-amd64/modules.builtin", b"kernel/fs/ext4/ext4.ko\n"),
        ]);
        let mut source =
            Fixed::with(&[(PACKAGE, "6.1.192-2", "kmod"), ("linux-image-rt-amd64", "6.1.192-2", PACKAGE)]);
        source.stanzas[0].size_bytes = Some(bytes.len() as u64);
        source.stanzas[0].sha256 =
            Some(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect());
        source.packages.push((PACKAGE.into(), bytes));
        source
    }

    /// A kernel whose parts are packages of their own, as Debian has them since 7.0.
    fn in_parts() -> Fixed {
        const RELEASE: &str = "7.2.13+deb14-rt-amd64";
        let image = format!("linux-image-{RELEASE}");
        let [binary, base, modules] =
            ["binary", "base", "modules"].map(|part| format!("linux-{part}-{RELEASE}"));
        let depends = format!("linux-base {base} {binary} {modules}");
        let mut source = Fixed::with(&[
            (&image, "7.2.13-1", &depends),
            (&binary, "7.2.13-1", ""),
            (&base, "7.2.13-1", ""),
            (&modules, "7.2.13-1", ""),
        ]);
        let vmlinuz = bzimage::sample(&format!("{RELEASE} (x) #1 SMP PREEMPT_RT Debian"));
        let place = |file: &str| format!("./usr/lib/modules/{RELEASE}/{file}");
        let config = fit_config();
        source.packages = vec![
            (image, deb::tests::sample(&[("./usr/share/bug/none", b"")])),
            (binary, deb::tests::sample(&[(&place("vmlinuz"), &vmlinuz)])),
            (base, deb::tests::sample(&[(&place("config"), config.as_bytes())])),
            (modules, deb::tests::sample(&[(&place("modules.builtin"), b"kernel/fs/ext4/ext4.ko\n")])),
        ];
        for (stanza, (_, bytes)) in source.stanzas.iter_mut().zip(&source.packages) {
            let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            stanza.sha256 = Some(sha256);
        }
        source
    }

    fn store(folder: &Path, source: Fixed) -> Store {
        Store { folder: folder.to_path_buf(), source: Box::new(source) }
    }

    fn entries(folder: &Path) -> Vec<String> {
        fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn a_kernel_is_fetched_once_and_then_cached() {
        let folder = tempfile::tempdir().unwrap();
        let store_one = store(folder.path(), distribution());
        let mut lines = Vec::new();
        let kernel = store_one.get("rt", &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!((kernel.name.as_str(), kernel.release.as_str()), ("rt", "6.1.0-56-rt-amd64"));
        assert_eq!(kernel.preemption.unwrap().to_string(), "PREEMPT_RT");
        assert!(kernel.modules.as_ref().unwrap().join("modules.dep").is_file());
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(entries(folder.path()), [format!("{PACKAGE}_6.1.192-2")]);

        let mut again = Vec::new();
        assert_eq!(store_one.get("rt", &mut |line| again.push(line.to_owned())).unwrap(), kernel);
        assert!(again.is_empty(), "{again:?}");
        let (listed, error) = store_one.list().unwrap();
        assert!(error.is_none() && listed.len() == 1 && listed[0].cached.is_some());
        assert_eq!(listed[0].aliases, ["rt"]);
    }

    #[test]
    fn a_kernel_in_parts_is_put_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut lines = Vec::new();
        let kernel = store(folder.path(), in_parts())
            .get("7.2.13-rt", &mut |line| lines.push(line.to_owned()))
            .unwrap();
        assert_eq!(kernel.release, "7.2.13+deb14-rt-amd64");
        assert_eq!(kernel.preemption.unwrap().to_string(), "PREEMPT_RT");
        assert!(kernel.modules.unwrap().join("modules.dep").is_file());
        let fetched = lines.iter().filter(|line| line.starts_with("fetching ")).count();
        assert_eq!(fetched, 4, "{lines:?}");
    }

    #[test]
    fn what_is_cached_outlives_the_offer() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), distribution()).get("rt", &mut |_| ()).unwrap();
        let empty = store(folder.path(), Fixed::default());
        let mut lines = Vec::new();
        let kernel = empty.get("rt", &mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(kernel.release, "6.1.0-56-rt-amd64");
        assert!(lines[0].contains("cached"), "{lines:?}");
        assert!(empty.get("generic", &mut |_| ()).is_err());
        let (listed, _) = empty.list().unwrap();
        assert!(!listed[0].offered && listed[0].cached.is_some());
    }

    #[test]
    fn nothing_is_kept_of_what_is_not_as_promised() {
        let folder = tempfile::tempdir().unwrap();
        let mut wrong = distribution();
        wrong.packages[0].1.push(0);
        let error = store(folder.path(), wrong).get("rt", &mut |_| ()).unwrap_err();
        assert!(matches!(error, PackageError::Mismatch { what: "its size", .. }), "{error}");
        let mut wrong = distribution();
        let last = wrong.packages[0].1.len() - 1;
        wrong.packages[0].1[last] ^= 1;
        let error = store(folder.path(), wrong).get("rt", &mut |_| ()).unwrap_err();
        assert!(matches!(error, PackageError::Mismatch { what: "its SHA-256", .. }), "{error}");
        let mut gone = distribution();
        gone.packages.clear();
        let error = store(folder.path(), gone).get("rt", &mut |_| ()).unwrap_err();
        assert!(matches!(error, PackageError::Apt { .. }), "{error}");
        assert!(entries(folder.path()).is_empty(), "{:?}", entries(folder.path()));
    }

    #[test]
    fn a_damaged_cache_is_fetched_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), distribution());
        let kernel = store.get("rt", &mut |_| ()).unwrap();
        fs::write(&kernel.vmlinuz, "cut").unwrap();
        assert!(store.cached().unwrap().is_empty());
        assert_eq!(store.get("rt", &mut |_| ()).unwrap(), kernel);
    }
}
