//! Run directories: everything that a run was asked, granted and saw, in files that outlive a kill.
//!
//! | file | content | written |
//! |---|---|---|
//! | `run.json` | what was asked and granted, machine, census | at the start, again at the end |
//! | `samples/*.csv` | raw samples, one line each, units in the column names | while running, flushed every second |
//! | `summary.json` | figures computed from the samples | at the end |
//! | `hashes.json` | SHA-256 of every other file | last |

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::Error;

/// File of facts and settings.
pub const RUN_FILE: &str = "run.json";
/// File of computed figures.
pub const SUMMARY_FILE: &str = "summary.json";
/// File of hashes.
pub const HASHES_FILE: &str = "hashes.json";
/// Folder of raw samples.
pub const SAMPLES_FOLDER: &str = "samples";

/// A run directory.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

/// Now, as a name that sorts: `2026-11-21T15-52-02Z`.
pub fn utc_name() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(':', "-")
}

/// Now, RFC 3339.
pub fn utc_now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

impl RunDir {
    /// Makes a new directory `<root>/<time>-<label>`, with a number behind it where that exists.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be made.
    pub fn create(root: &Path, label: &str) -> Result<Self, Error> {
        fs::create_dir_all(root).map_err(Error::io(root))?;
        let base = format!("{}-{label}", utc_name());
        for attempt in 1..1000 {
            let name = if attempt == 1 { base.clone() } else { format!("{base}-{attempt}") };
            let path = root.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self::at(path),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(source) => return Err(Error::Io { path, source }),
            }
        }
        let source = std::io::Error::from(ErrorKind::AlreadyExists);
        Err(Error::Io { path: root.join(base), source })
    }

    /// Makes the directory `path` itself, which must not exist.
    ///
    /// # Errors
    /// [`Error::Io`] when it exists or cannot be made.
    pub fn create_at(path: &Path) -> Result<Self, Error> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(Error::io(path))?;
        fs::create_dir(path)
            .map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => std::io::Error::new(
                    ErrorKind::AlreadyExists,
                    "exists already, and runs are never overwritten; name a folder that does not exist",
                ),
                _ => error,
            })
            .map_err(Error::io(path))?;
        Self::at(path.to_owned())
    }

    fn at(path: PathBuf) -> Result<Self, Error> {
        let samples = path.join(SAMPLES_FOLDER);
        fs::create_dir_all(&samples).map_err(Error::io(samples))?;
        Ok(Self { path })
    }

    /// Opens an existing run directory.
    ///
    /// # Errors
    /// [`Error::Damaged`] where there is no `run.json`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path.join(RUN_FILE).is_file() {
            return Ok(Self { path: path.to_owned() });
        }
        Err(Error::Damaged {
            path: path.to_owned(),
            found: format!("no {RUN_FILE}"),
            expected: "a run directory",
        })
    }

    /// Removes the directory of a run that could not begin; one that holds anything stays.
    pub fn discard_empty(&self) {
        // remove_dir refuses what is not empty, and that is wanted.
        let _ = fs::remove_dir(self.path.join(SAMPLES_FOLDER));
        let _ = fs::remove_dir(&self.path);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `value` to `name` whole or not at all: a temporary file, synced, then renamed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_json<T: Serialize>(&self, name: &str, value: &T) -> Result<(), Error> {
        write_json(&self.path.join(name), value)
    }

    /// Reads `name`.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Damaged`] where it does not hold a `T`.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        read_json(&self.path.join(name))
    }

    /// Whether the run came to its end.
    pub fn is_complete(&self) -> bool {
        self.path.join(HASHES_FILE).is_file()
    }

    /// Opens a new sample file.
    ///
    /// # Errors
    /// [`Error::Io`] where it exists already: samples are never overwritten.
    pub fn samples(&self, name: &str) -> Result<SampleFile, Error> {
        let path = self.sample_path(name);
        let file = File::create_new(&path).map_err(Error::io(&path))?;
        Ok(SampleFile { writer: csv::Writer::from_writer(BufWriter::with_capacity(1 << 16, file)), path })
    }

    /// Path of a sample file.
    pub fn sample_path(&self, name: &str) -> PathBuf {
        self.path.join(SAMPLES_FOLDER).join(format!("{name}.csv"))
    }

    /// Hashes every file and writes `hashes.json`, which marks the run as complete.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn seal(&self) -> Result<(), Error> {
        let mut hashes = serde_json::Map::new();
        for folder in [self.path.clone(), self.path.join(SAMPLES_FOLDER)] {
            let mut files: Vec<PathBuf> = fs::read_dir(&folder)
                .map_err(Error::io(&folder))?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.is_file() && path.file_name().is_some_and(|n| n != HASHES_FILE))
                .collect();
            files.sort();
            for file in files {
                let name = file.strip_prefix(&self.path).unwrap_or(&file).display().to_string();
                hashes.insert(name, sha256(&file)?.into());
            }
        }
        self.write_json(HASHES_FILE, &hashes)
    }
}

/// SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// [`Error::Io`].
pub fn sha256(path: &Path) -> Result<String, Error> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher).map_err(Error::io(path))?;
    Ok(hex(&hasher.finalize()))
}

/// SHA-256 of bytes, in hexadecimal.
pub fn sha256_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes JSON whole or not at all.
///
/// # Errors
/// [`Error::Io`].
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), Error> {
    let temporary = path.with_extension("json.tmp");
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(&temporary)?);
        serde_json::to_writer_pretty(&mut file, value)?;
        file.write_all(b"\n")?;
        file.into_inner()?.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(Error::io(path))
}

/// Reads JSON.
///
/// # Errors
/// [`Error::Io`], or [`Error::Damaged`] where it does not hold a `T`.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = fs::read_to_string(path).map_err(Error::io(path))?;
    serde_json::from_str(&text).map_err(|error| Error::Damaged {
        path: path.to_owned(),
        found: error.to_string(),
        expected: "a file written by this version of takt",
    })
}

/// A CSV file that grows while the run goes on.
#[derive(Debug)]
pub struct SampleFile {
    writer: csv::Writer<BufWriter<File>>,
    path: PathBuf,
}

impl SampleFile {
    /// Appends one line; the first one writes the column names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn push<T: Serialize>(&mut self, row: &T) -> Result<(), Error> {
        self.writer.serialize(row).map_err(|e| Error::Io { path: self.path.clone(), source: e.into() })
    }

    /// Hands everything to the kernel, so that a kill loses nothing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().map_err(Error::io(&self.path))
    }
}

/// Reads the rows of a sample file. A last line that a kill cut in half is left out; any other broken line is
/// an error.
///
/// # Errors
/// [`Error::Io`], or [`Error::Damaged`] with the line number.
pub fn read_samples<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    let mut bytes = fs::read(path).map_err(Error::io(path))?;
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
    bytes.truncate(whole);
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    reader
        .deserialize()
        .map(|row| {
            row.map_err(|error| Error::Damaged {
                path: path.to_owned(),
                found: error.to_string(),
                expected: "samples written by this version of takt",
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        index: u64,
        lateness_ns: i64,
    }

    #[test]
    fn samples_survive_a_kill_in_the_middle_of_a_line() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        let mut file = dir.samples("jobs").unwrap();
        for index in 0..3 {
            file.push(&Row { index, lateness_ns: -5 }).unwrap();
        }
        file.flush().unwrap();
        let path = dir.sample_path("jobs");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("3,4");
        fs::write(&path, &text).unwrap();
        assert_eq!(read_samples::<Row>(&path).unwrap().len(), 3);
        fs::write(&path, text.replace("1,-5", "1,x")).unwrap();
        let error = read_samples::<Row>(&path).unwrap_err().to_string();
        assert!(error.contains("jobs.csv") && error.contains("line: 3"), "{error}");
        assert!(dir.samples("jobs").is_err(), "samples are never overwritten");
    }

    #[test]
    fn a_sealed_directory_names_the_hash_of_every_file() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "test").unwrap();
        assert!(RunDir::open(dir.path()).is_err());
        dir.write_json(RUN_FILE, &1).unwrap();
        dir.samples("jobs").unwrap().flush().unwrap();
        assert!(!dir.is_complete());
        dir.seal().unwrap();
        assert!(RunDir::open(dir.path()).unwrap().is_complete());
        let hashes: serde_json::Value = dir.read_json(HASHES_FILE).unwrap();
        // SHA-256 of "1\n" and of nothing.
        assert_eq!(hashes[RUN_FILE], "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865");
        assert_eq!(
            hashes["samples/jobs.csv"],
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn two_runs_in_one_second_do_not_collide() {
        let root = tempfile::tempdir().unwrap();
        let dirs: Vec<_> = (0..4).map(|_| RunDir::create(root.path(), "same").unwrap()).collect();
        let mut paths: Vec<_> = dirs.iter().map(RunDir::path).collect();
        paths.dedup();
        assert_eq!(paths.len(), 4);
    }
}
