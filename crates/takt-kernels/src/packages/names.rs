//! The short names of kernels and the packages behind them.

use super::apt::{ARCHITECTURE, Source, Stanza};
use super::{Kernel, PackageError, Preemption, near_names, version};

const PREFIX: &str = "linux-image-";

/// Short names, with the packages that distributions have for them (Debian, then Ubuntu).
const ALIASES: &[(&str, &[&str])] = &[
    ("generic", &["linux-image-amd64", "linux-image-generic"]),
    ("rt", &["linux-image-rt-amd64", "linux-image-realtime"]),
    ("cloud", &["linux-image-cloud-amd64", "linux-image-virtual"]),
    ("lowlatency", &["linux-image-lowlatency"]),
];

/// One kernel that can be had.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its short name, "6.1.0-56-rt".
    pub name: String,
    /// Names that mean it now: `generic`, `rt`, `6.12`.
    pub aliases: Vec<String>,
    pub package: String,
    /// The package's version.
    pub version: String,
    /// Bytes to download.
    pub size_bytes: Option<u64>,
    /// Whether the distribution offers it now.
    pub offered: bool,
    /// Its preemption: as configured where it is in the cache, else PREEMPT_RT where the package
    /// says so.
    pub preemption: Option<Preemption>,
    /// The kernel, where it is in the cache.
    pub cached: Option<Kernel>,
}

/// Without the words that all packages have.
pub(super) fn short(package: &str) -> String {
    let name = package.strip_prefix(PREFIX).unwrap_or(package);
    name.strip_suffix(&format!("-{ARCHITECTURE}")).unwrap_or(name).to_owned()
}

/// Whether this is a kernel to start: no debugging symbols, no template, not the unsigned
/// counterpart of a signed one.
fn is_kernel(package: &str) -> bool {
    let noise = ["-dbg", "-dbgsym", "-signed-template", "-unsigned"];
    !noise.iter().any(|suffix| package.ends_with(suffix)) && !package.starts_with("linux-image-unsigned-")
}

/// Kernels of a source, newest first, with the metapackages' names as aliases.
pub(super) fn offered(source: &dyn Source) -> Result<Vec<(Stanza, Vec<String>)>, PackageError> {
    let names = source.names(PREFIX)?;
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_kernel(name)).collect();
    let (meta, real): (Vec<Stanza>, Vec<Stanza>) =
        source.show(&names)?.into_iter().partition(|stanza| stanza.dependency(PREFIX).is_some());
    let mut kernels: Vec<(Stanza, Vec<String>)> =
        real.into_iter().map(|stanza| (stanza, Vec::new())).collect();
    for stanza in &meta {
        let target = stanza.dependency(PREFIX).unwrap_or_default();
        let fixed = ALIASES.iter().find(|(_, packages)| packages.contains(&stanza.package.as_str()));
        let alias = fixed.map_or_else(|| short(&stanza.package), |(alias, _)| (*alias).to_owned());
        if let Some((_, aliases)) = kernels.iter_mut().find(|(kernel, _)| kernel.package == target) {
            aliases.push(alias);
        }
    }
    kernels.sort_by(|(a, _), (b, _)| {
        version::compare(&b.version, &a.version).then_with(|| a.package.cmp(&b.package))
    });
    Ok(kernels)
}

/// The package that a name means: an exact package, an alias, a short name, or the newest of a
/// version ("6.1", "6.1-rt").
pub(super) fn resolve(source: &dyn Source, name: &str) -> Result<Stanza, PackageError> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let mut candidates: Vec<String> = match alias {
        Some((_, packages)) => packages.iter().map(|package| (*package).to_owned()).collect(),
        None => vec![format!("{PREFIX}{name}-{ARCHITECTURE}"), format!("{PREFIX}{name}")],
    };
    if name.starts_with(PREFIX) {
        candidates = vec![name.to_owned()];
    }
    for candidate in &candidates {
        if let Some(stanza) = show_one(source, candidate)? {
            return follow(source, stanza);
        }
    }
    let kernels = offered(source)?;
    let newest = kernels.iter().find(|(stanza, _)| of_version(&short(&stanza.package), name));
    if let Some((stanza, _)) = newest {
        return Ok(stanza.clone());
    }
    let mut known: Vec<String> = kernels.iter().flat_map(|(_, aliases)| aliases.iter().cloned()).collect();
    let all: Vec<String> = kernels.iter().map(|(stanza, _)| short(&stanza.package)).collect();
    let short_name = short(name);
    let mut near = near_names(&short_name, all.iter().map(String::as_str));
    if near.is_empty() {
        known.sort();
        known.dedup();
        near = known;
    }
    Err(PackageError::NotOffered {
        name: name.to_owned(),
        near,
        fix: if kernels.is_empty() {
            "the lists of packages are empty: `apt-get update` as root, or pass the path of a kernel"
        } else {
            "name one that `takt kernels list --all` shows, or pass the path of a kernel"
        },
    })
}

/// Whether the short name "6.1.0-56-rt" is of version "6.1-rt".
fn of_version(short: &str, wanted: &str) -> bool {
    let split = |text: &str| -> (String, String) {
        let end = text.find(|c: char| c.is_ascii_alphabetic() && c != 'd').unwrap_or(text.len());
        let flavour = text[end..].to_owned();
        (text[..end].trim_end_matches('-').to_owned(), flavour)
    };
    // "+deb12" belongs to the version.
    let clean = |text: &str| text.replace("+deb", "+");
    let ((version, flavour), (wanted, wanted_flavour)) = (split(&clean(short)), split(&clean(wanted)));
    let rest = version.strip_prefix(wanted.as_str());
    !wanted.is_empty()
        && flavour == wanted_flavour
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
}

fn show_one(source: &dyn Source, package: &str) -> Result<Option<Stanza>, PackageError> {
    Ok(source.show(&[package])?.into_iter().find(|stanza| stanza.package == package))
}

/// From a metapackage to what it stands for.
fn follow(source: &dyn Source, mut stanza: Stanza) -> Result<Stanza, PackageError> {
    for _ in 0..4 {
        let Some(next) = stanza.dependency(PREFIX).map(str::to_owned) else { return Ok(stanza) };
        stanza = show_one(source, &next)?.ok_or(PackageError::NotOffered {
            name: format!("{next} (which {} stands for)", stanza.package),
            near: Vec::new(),
            fix: "`apt-get update` as root: the lists contradict themselves",
        })?;
    }
    Err(PackageError::NoKernelInside { package: stanza.package, wanted: "kernel, only further packages," })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    /// A distribution of our own.
    #[derive(Default)]
    pub struct Fixed {
        pub stanzas: Vec<Stanza>,
        pub packages: Vec<(String, Vec<u8>)>,
    }

    impl Fixed {
        pub fn with(entries: &[(&str, &str, &str)]) -> Self {
            let stanza = |(package, version, depends): &(&str, &str, &str)| Stanza {
                package: (*package).into(),
                version: (*version).into(),
                depends: depends.split_whitespace().map(str::to_owned).collect(),
                ..Stanza::default()
            };
            Self { stanzas: entries.iter().map(stanza).collect(), packages: Vec::new() }
        }
    }

    impl Source for Fixed {
        fn names(&self, prefix: &str) -> Result<Vec<String>, PackageError> {
            let names = self.stanzas.iter().map(|stanza| stanza.package.clone());
            Ok(names.filter(|name| name.starts_with(prefix)).collect())
        }
        fn show(&self, packages: &[&str]) -> Result<Vec<Stanza>, PackageError> {
            let wanted = self.stanzas.iter().filter(|stanza| packages.contains(&stanza.package.as_str()));
            Ok(wanted.cloned().collect())
        }
        fn download(&self, stanza: &Stanza, folder: &Path) -> Result<PathBuf, PackageError> {
            let (_, bytes) =
                self.packages.iter().find(|(name, _)| *name == stanza.package).ok_or(PackageError::Apt {
                    command: "apt-get download".into(),
                    message: "E: 404 Not Found".into(),
                    fix: "none",
                })?;
            let path = folder.join("a.deb");
            std::fs::write(&path, bytes).unwrap();
            Ok(path)
        }
    }

    pub(crate) fn debian() -> Fixed {
        Fixed::with(&[
            ("linux-image-amd64", "6.1.192-2", "linux-image-6.1.0-56-amd64"),
            ("linux-image-rt-amd64", "6.1.192-2", "linux-image-6.1.0-56-rt-amd64"),
            ("linux-image-6.12-rt-amd64", "6.12.117-1", "linux-image-6.12.117+deb12-rt-amd64"),
            ("linux-image-6.1.0-9-amd64", "6.1.27-1", "kmod"),
            ("linux-image-6.1.0-56-amd64", "6.1.192-2", "kmod"),
            ("linux-image-6.1.0-56-amd64-dbg", "6.1.192-2", ""),
            ("linux-image-6.1.0-56-amd64-unsigned", "6.1.192-2", ""),
            ("linux-image-6.1.0-56-rt-amd64", "6.1.192-2", "kmod"),
            ("linux-image-6.12.117+deb12-rt-amd64", "6.12.117-1", "kmod"),
        ])
    }

    #[test]
    fn every_kind_of_name_leads_to_a_package() {
        let source = debian();
        for (name, package) in [
            ("generic", "linux-image-6.1.0-56-amd64"),
            ("rt", "linux-image-6.1.0-56-rt-amd64"),
            ("6.12-rt", "linux-image-6.12.117+deb12-rt-amd64"),
            ("6.12.117-rt", "linux-image-6.12.117+deb12-rt-amd64"),
            ("6.1", "linux-image-6.1.0-56-amd64"),
            ("6.1-rt", "linux-image-6.1.0-56-rt-amd64"),
            ("6.1.0-9", "linux-image-6.1.0-9-amd64"),
            ("linux-image-6.1.0-9-amd64", "linux-image-6.1.0-9-amd64"),
            ("linux-image-6.1.0-56-amd64-unsigned", "linux-image-6.1.0-56-amd64-unsigned"),
        ] {
            assert_eq!(resolve(&source, name).unwrap().package, package, "{name}");
        }
    }

    #[test]
    fn a_package_that_is_gone_is_refused_with_its_neighbours() {
        let error = resolve(&debian(), "linux-image-6.1.0-55-rt-amd64").unwrap_err().to_string();
        assert!(error.contains("6.1.0-56-rt"), "{error}");
        let error = resolve(&debian(), "nonsense").unwrap_err().to_string();
        assert!(error.contains("generic") && error.contains("rt"), "{error}");
        let error = resolve(&Fixed::default(), "generic").unwrap_err().to_string();
        assert!(error.contains("apt-get update"), "{error}");
    }

    #[test]
    fn the_list_is_newest_first_without_noise() {
        let offered = offered(&debian()).unwrap();
        let names: Vec<String> = offered.iter().map(|(stanza, _)| short(&stanza.package)).collect();
        assert_eq!(names, ["6.12.117+deb12-rt", "6.1.0-56", "6.1.0-56-rt", "6.1.0-9"]);
        assert_eq!(offered[0].1, ["6.12-rt"]);
        assert_eq!(offered[1].1, ["generic"]);
    }
}
