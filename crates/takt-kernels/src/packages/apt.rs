//! Kernels that the distribution offers, read from apt. Reads its lists and downloads into a
//! folder; installs nothing and needs no rights.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use super::PackageError;

/// Kernels run as guests of x86-64 machines.
pub(super) const ARCHITECTURE: &str = "amd64";

/// One package of the lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stanza {
    pub package: String,
    pub version: String,
    pub size_bytes: Option<u64>,
    pub sha256: Option<String>,
    pub depends: Vec<String>,
    pub description: String,
}

impl Stanza {
    /// The first package it depends on whose name starts like this.
    pub(crate) fn dependency(&self, prefix: &str) -> Option<&str> {
        self.depends.iter().map(String::as_str).find(|name| name.starts_with(prefix))
    }
}

/// Queries to a package manager; a trait so that tests need none.
pub(super) trait Source: Send + Sync {
    /// Names of all packages that start like this.
    fn names(&self, prefix: &str) -> Result<Vec<String>, PackageError>;
    /// The candidate versions of these packages, without those that are not there.
    fn show(&self, packages: &[&str]) -> Result<Vec<Stanza>, PackageError>;
    /// Downloads a package into a folder.
    fn download(&self, stanza: &Stanza, folder: &Path) -> Result<PathBuf, PackageError>;
}

/// The apt of this machine, as it is set up or for another suite of its distribution.
#[derive(Default)]
pub(super) struct Apt {
    /// Options of every command.
    options: Vec<String>,
}

/// Lists of another suite are fetched anew after this time.
const LISTS_AGE: Duration = Duration::from_secs(24 * 3600);

/// Output of `apt-get indextargets` for a list of packages, in the order of [`TARGET_FORMAT`].
struct Target<'a> {
    label: &'a str,
    component: &'a str,
    uri: &'a str,
}

const TARGET_FORMAT: &str = "$(LABEL)|$(COMPONENT)|$(REPO_URI)";

/// Keys of a distribution's archive, where its own package puts them. Sources may name them, and
/// apt does not show that.
fn keyring(label: &str) -> PathBuf {
    PathBuf::from(format!("/usr/share/keyrings/{}-archive-keyring.gpg", label.to_ascii_lowercase()))
}

/// The archive of the distribution itself, not that of its security updates or of others.
fn archive(targets: &str) -> Option<Target<'_>> {
    targets.lines().find_map(|line| {
        let fields: Vec<&str> = line.trim().split('|').collect();
        let &[label, component, uri] = fields.as_slice() else { return None };
        (matches!(label, "Debian" | "Ubuntu") && component == "main").then_some(Target {
            label,
            component,
            uri,
        })
    })
}

/// The line of a source list for another suite of that archive. Without a keyring, apt's own keys
/// count.
fn source_line(target: &Target<'_>, suite: &str, keyring: Option<&Path>) -> String {
    let signed_by = keyring.map(|keys| format!("[signed-by={}] ", keys.display())).unwrap_or_default();
    format!("deb {signed_by}{} {suite} {}\n", target.uri, target.component)
}

impl Apt {
    /// For another suite of this machine's distribution (`sid`, `trixie-backports`). Its lists are
    /// kept below `folder`; apt's own lists and sources stay as they are.
    pub(super) fn of_suite(suite: &str, folder: &Path) -> Result<Self, PackageError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '/');
        if suite.is_empty() || suite.starts_with('/') || suite.contains("..") || !suite.chars().all(fits) {
            return Err(PackageError::Apt {
                command: format!("suite {suite:?}"),
                message: "not the name of a suite".to_owned(),
                fix: "name a suite of the distribution, such as sid or trixie-backports",
            });
        }
        let folder = folder.join(format!(".lists-{}", suite.replace('/', "-")));
        let io = |path: &Path, source| PackageError::Io { path: path.to_path_buf(), source };
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            std::fs::create_dir_all(&part).map_err(|source| io(&part, source))?;
        }
        let shown = run(
            "apt-get",
            &["indextargets", "--format", TARGET_FORMAT, "Created-By: Packages"].map(str::to_owned),
            None,
        )?;
        let shown = String::from_utf8_lossy(&shown.stdout);
        let target = archive(&shown).ok_or_else(|| PackageError::Apt {
            command: "apt-get indextargets".to_owned(),
            message: "the sources contain no archive of Debian or Ubuntu".to_owned(),
            fix: "`apt-get update` as root, or pass the path of a kernel",
        })?;
        let list = folder.join("sources.list");
        std::fs::write(
            &list,
            source_line(&target, suite, Some(keyring(target.label)).filter(|keys| keys.is_file()).as_deref()),
        )
        .map_err(|source| io(&list, source))?;
        let directory = |key: &str, place: &str| format!("Dir::{key}={}", folder.join(place).display());
        let settings = [
            directory("Etc::sourcelist", "sources.list"),
            "Dir::Etc::sourceparts=-".to_owned(),
            directory("State::lists", "lists"),
            directory("Cache", "cache"),
            // The folder is this user's, and so is what apt writes into it.
            "APT::Sandbox::User=".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ];
        let options: Vec<String> = settings.into_iter().flat_map(|one| ["-o".to_owned(), one]).collect();
        let stamp = folder.join("updated");
        let age = std::fs::metadata(&stamp).and_then(|data| data.modified()).ok();
        let fresh = age.and_then(|at| at.elapsed().ok()).is_some_and(|age| age < LISTS_AGE);
        if !fresh {
            let update = [options.as_slice(), &["-q".to_owned(), "update".to_owned()]].concat();
            let output = run("apt-get", &update, None)?;
            if !output.status.success() {
                return Err(PackageError::Apt {
                    command: format!("apt-get update, suite {suite} of {}", target.label),
                    message: last_errors(&output),
                    fix: "check the suite's name and the network, or pass the path of a kernel",
                });
            }
            std::fs::write(&stamp, "").map_err(|source| io(&stamp, source))?;
        }
        Ok(Self { options })
    }

    fn run(
        &self,
        program: &'static str,
        arguments: &[&str],
        folder: Option<&Path>,
    ) -> Result<Output, PackageError> {
        let all: Vec<String> =
            self.options.iter().cloned().chain(arguments.iter().map(|&word| word.to_owned())).collect();
        run(program, &all, folder)
    }
}

impl Source for Apt {
    fn names(&self, prefix: &str) -> Result<Vec<String>, PackageError> {
        let output = self.run("apt-cache", &["pkgnames", prefix], None)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut names: Vec<String> = text.lines().map(str::trim).map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    fn show(&self, packages: &[&str]) -> Result<Vec<Stanza>, PackageError> {
        if packages.is_empty() {
            return Ok(Vec::new());
        }
        // A name that is not there makes it say so and go on; none at all makes it fail, which is
        // no error here.
        let arguments = [&["show", "--no-all-versions"], packages].concat();
        Ok(parse(&String::from_utf8_lossy(&self.run("apt-cache", &arguments, None)?.stdout)))
    }

    fn download(&self, stanza: &Stanza, folder: &Path) -> Result<PathBuf, PackageError> {
        let asked = format!("{}={}", stanza.package, stanza.version);
        let arguments =
            ["-q", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30", "download", &asked];
        let output = self.run("apt-get", &arguments, Some(folder))?;
        let file = std::fs::read_dir(folder)
            .map_err(|source| PackageError::Io { path: folder.to_path_buf(), source })?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|suffix| suffix == "deb"));
        match file {
            Some(file) if output.status.success() => Ok(file),
            _ => Err(PackageError::Apt {
                command: format!("apt-get download {asked}"),
                message: last_errors(&output),
                fix: "check the network; if the lists are old (404 Not Found), `apt-get update` as root; or pass the path of a kernel",
            }),
        }
    }
}

fn run(program: &'static str, arguments: &[String], folder: Option<&Path>) -> Result<Output, PackageError> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    command.output().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => PackageError::NoApt { program, source },
        _ => PackageError::Apt {
            command: program.to_owned(),
            message: source.to_string(),
            fix: "repair apt, or pass the path of a kernel",
        },
    })
}

/// The lines of its errors, or the last ones of all.
fn last_errors(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("E:")).collect();
    let lines = if errors.is_empty() { text.lines().collect() } else { errors };
    match lines.as_slice() {
        [] => format!("{} without a message", output.status),
        lines => lines[lines.len().saturating_sub(3)..].join("; "),
    }
}

/// Reads the stanzas of `apt-cache show`. A stanza without a package and version is passed over.
fn parse(text: &str) -> Vec<Stanza> {
    let stanza = |block: &str| {
        let mut stanza = Stanza::default();
        for line in block.lines().filter(|line| !line.starts_with(' ')) {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match key {
                "Package" => stanza.package = value.to_owned(),
                "Version" => stanza.version = value.to_owned(),
                "Size" => stanza.size_bytes = value.parse().ok(),
                "SHA256" => stanza.sha256 = Some(value.to_ascii_lowercase()),
                "Description" | "Description-en" => stanza.description = value.to_owned(),
                "Depends" | "Pre-Depends" => {
                    // The first of alternatives, without its version.
                    let first = value.split(',').filter_map(|one| one.split_whitespace().next());
                    stanza
                        .depends
                        .extend(first.map(|name| name.split(':').next().unwrap_or(name).to_owned()));
                }
                _ => {}
            }
        }
        let harmless = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.~:_".contains(c))
        };
        // Both become part of a file name.
        (harmless(&stanza.package) && harmless(&stanza.version)).then_some(stanza)
    };
    text.split("\n\n").filter_map(stanza).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stanzas_are_read() {
        let text = "Package: linux-image-rt-amd64\nSource: x (6.1+2)\nVersion: 6.1.192-2\nDepends: linux-image-6.1.0-56-rt-amd64 \
            (= 6.1.192-2), kmod | a\nDescription: Linux\n more: text\nSize: 1484\nSHA256: AB\n\nPackage: ../../etc\nVersion: 1\n";
        let read = parse(text);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].dependency("linux-image-"), Some("linux-image-6.1.0-56-rt-amd64"));
        assert_eq!(read[0].depends, ["linux-image-6.1.0-56-rt-amd64", "kmod"]);
        assert_eq!((read[0].size_bytes, read[0].sha256.as_deref()), (Some(1484), Some("ab")));
    }

    #[test]
    fn another_suite_is_of_the_same_archive() {
        let shown = "Debian-Security|main|http://a/security/\ncloud|main|http://b/\nDebian|contrib|http://a/debian/\n\
                     Debian|main|http://a/debian/\n";
        let target = archive(shown).unwrap();
        assert_eq!(keyring(target.label), Path::new("/usr/share/keyrings/debian-archive-keyring.gpg"));
        assert_eq!(
            source_line(&target, "sid", Some(Path::new("/k.gpg"))),
            "deb [signed-by=/k.gpg] http://a/debian/ sid main\n"
        );
        let plain = archive("Ubuntu|main|http://u/\n").unwrap();
        assert_eq!(source_line(&plain, "noble-updates", None), "deb http://u/ noble-updates main\n");
        assert!(archive("").is_none() && archive("Debian|main").is_none());
        let folder = tempfile::tempdir().unwrap();
        for suite in ["", "a b", "../x", "/x", "a|b", "x\n"] {
            assert!(Apt::of_suite(suite, folder.path()).is_err(), "{suite:?}");
        }
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "nothing is made for a name that is none"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "((Package|Version|Depends|Size|x): ?[a-z0-9 ,|:()]{0,20}\n{1,2}){0,20}") {
            let _ = parse(&text);
        }
    }
}
