//! When a command is ready, and which of its threads are the loops of its file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use takt_rt::duration;
use takt_watch::declared::{Declared, Scanner};
use takt_watch::target::Watched;
use takt_watch::{CycleFeed, Settings, Target, Watcher};

use crate::ProgramError;
use crate::config::{Loop, ReadyConfig};
use crate::keeper::Program;
use crate::output::Output;

/// Period of checking.
const LOOK: Duration = Duration::from_millis(10);
/// How often it is looked at all open files, which some programs have thousands of.
const SCAN: Duration = Duration::from_millis(50);
/// A loop with threads of the same name is recognised by its period within so many of them.
const PERIODS: u64 = 32;
/// At least and at most so long.
const RECOGNISED: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(20)];
/// A period is the loop's where it is as near as that to the file's.
const NEAR: f64 = 0.25;
/// The threads of the loops' names must have been the same for so long.
const SETTLED: Duration = Duration::from_millis(300);
/// Threads that a message names.
const MAX_NAMES: usize = 12;

/// A thread of the command.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) tid: i32,
    pub(crate) pid: i32,
    pub(crate) process: String,
    /// The loop that the thread declares; `None`: it has the loop's name.
    pub(crate) declared: Option<Declared>,
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        let identity = |one: &Self| one.declared.as_ref().map(Declared::identity);
        (self.tid, self.pid, identity(self)) == (other.tid, other.pid, identity(other))
    }
}

/// Properties of a file that change when it is written.
type Version = Option<(u64, SystemTime)>;

fn version(path: &Path) -> Version {
    use std::os::unix::fs::MetadataExt;
    let data = path.metadata().ok()?;
    Some((data.ino(), data.modified().ok()?))
}

/// Condition to wait for, set up before the command is started.
#[derive(Debug)]
pub(crate) struct Ready {
    config: ReadyConfig,
    file: Option<(PathBuf, Version)>,
}

impl Ready {
    /// Looks at what is there before the command.
    pub(crate) fn before(config: &ReadyConfig, folder: &Path) -> Self {
        let file = config.file.as_ref().map(|file| folder.join(file));
        let file = file.map(|path| {
            let before = version(&path);
            (path, before)
        });
        Self { config: config.clone(), file }
    }

    /// Waits until the command is ready and each loop has a thread.
    ///
    /// # Errors
    /// [`ProgramError`]; the command is the caller's to end.
    pub(crate) fn wait(
        &self,
        program: &Program,
        output: &Output,
        loops: &[Loop],
        stop: &AtomicBool,
        scanner: &mut Scanner,
    ) -> Result<Vec<Found>, ProgramError> {
        self.wait_for(program, output, stop, &self.in_words(), &mut || self.is_there(program, output))?;
        let target = Target::Offspring(program.keeper_pid());
        let (mut found, mut since) = (Err(String::new()), Instant::now());
        let mut scanned: Option<Instant> = None;
        let waited = self.wait_for(program, output, stop, "its threads were there", &mut || {
            let mut watched = Watched::new(target.clone());
            watched.refresh();
            if scanned.is_none_or(|at| at.elapsed() >= SCAN) {
                scanner.scan(watched.processes.iter().copied());
                scanned = Some(Instant::now());
            }
            let now = threads(&watched, loops, &scanner.loops());
            // Threads begin under the name of the one that starts them: of the first of a name
            // nobody knows whether others follow.
            if now != found {
                since = Instant::now();
            }
            found = now;
            found.is_ok() && since.elapsed() >= SETTLED
        });
        match (waited, found) {
            (Ok(()), Ok(found)) => recognise(&target, loops, found),
            (Err(ProgramError::NotReady { .. }), Err(name)) => {
                Err(ProgramError::NoThread { name, threads: all_names(&target, scanner) })
            }
            (Err(error), _) => Err(error),
            (Ok(()), Err(name)) => Err(ProgramError::NoThread { name, threads: all_names(&target, scanner) }),
        }
    }

    fn wait_for(
        &self,
        program: &Program,
        output: &Output,
        stop: &AtomicBool,
        until: &str,
        is_there: &mut dyn FnMut() -> bool,
    ) -> Result<(), ProgramError> {
        let since = Instant::now();
        let within = self.config.within.0;
        loop {
            if is_there() {
                return Ok(());
            }
            if stop.load(Ordering::Acquire) {
                return Err(ProgramError::Stopped);
            }
            let state = program.state();
            if state.gone {
                return Err(program.ended_early(state, output, until));
            }
            if since.elapsed() >= within {
                let missing = format!("Takt waited until {until}");
                return Err(ProgramError::NotReady { within, missing, words: self.words(output) });
            }
            std::thread::sleep(LOOK);
        }
    }

    fn is_there(&self, program: &Program, output: &Output) -> bool {
        let ReadyConfig { line, port, time, .. } = &self.config;
        if line.is_some() {
            return output.is_ready();
        }
        if let Some(port) = port {
            return listens(program.pid, *port);
        }
        if let Some((path, before)) = &self.file {
            let now = version(path);
            return now.is_some() && now != *before;
        }
        time.is_none_or(|time| program.since.elapsed() >= time.0)
    }

    fn in_words(&self) -> String {
        let ReadyConfig { line, port, time, .. } = &self.config;
        if let Some(line) = line {
            return format!("it printed a line with \"{}\"", takt_files::quoted(line));
        }
        if let Some(port) = port {
            return format!("it listened on port {port}");
        }
        if let Some((path, _)) = &self.file {
            return format!("it had written {}", path.display());
        }
        match time {
            Some(time) => format!("{} had passed", duration::format(time.0)),
            None => "it ran".to_owned(),
        }
    }

    /// The output so far, and a common reason for a missing line.
    fn words(&self, output: &Output) -> String {
        if self.config.line.is_none() {
            return output.words();
        }
        format!(
            "{} Many programs buffer their output when it is a pipe: flush it (Python: print(…, flush=True); C: fflush(stdout)).",
            output.words()
        )
    }
}

/// Whether a socket of that port waits for others, in the network of the process.
fn listens(pid: i32, port: u16) -> bool {
    // Local address, and the state: 0A is a listening TCP socket, 07 any UDP socket without a peer.
    let of = |name: &str, state: &str| {
        let path = PathBuf::from(format!("/proc/{pid}/net/{name}"));
        let text = takt_files::read_to_string(&path, takt_files::PROCESS_BYTES).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().take(4).collect();
            let own = fields.get(1).and_then(|address| address.rsplit_once(':'));
            let is_port = own.is_some_and(|(_, text)| u16::from_str_radix(text, 16) == Ok(port));
            is_port && fields.get(3) == Some(&state)
        })
    };
    of("tcp", "0A") || of("tcp6", "0A") || of("udp", "07") || of("udp6", "07")
}

/// The threads that declare each loop, or else have its name; the first loop that has none.
fn threads(watched: &Watched, loops: &[Loop], declared: &[Declared]) -> Result<Vec<Vec<Found>>, String> {
    let of = |one: &Loop| {
        let own = declared.iter().filter(|declared| {
            declared.name == one.name
                && watched.processes.contains(&declared.pid)
                && one.process.as_ref().is_none_or(|process| *process == declared.process)
        });
        let own: Vec<Found> = own
            .filter_map(|declared| {
                let (tid, pid, process) = (declared.tid?, declared.pid, declared.process.clone());
                Some(Found { tid, pid, process, declared: Some(declared.clone()) })
            })
            .collect();
        if !own.is_empty() {
            return Ok(own);
        }
        let named = watched.threads.iter().filter(|(_, thread)| {
            thread.name == one.thread_name()
                && one.process.as_ref().is_none_or(|process| *process == thread.process)
        });
        let found: Vec<Found> = named
            .map(|(&tid, thread)| {
                let (pid, process) = (thread.pid, thread.process.clone());
                Found { tid, pid, process, declared: None }
            })
            .collect();
        if found.is_empty() { Err(one.name.clone()) } else { Ok(found) }
    };
    loops.iter().map(of).collect()
}

/// The names of all threads of the command and of the loops that it declares, for a message.
fn all_names(target: &Target, scanner: &Scanner) -> String {
    let mut watched = Watched::new(target.clone());
    watched.refresh();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for thread in watched.threads.values() {
        let process = if thread.name == thread.process { "" } else { thread.process.as_str() };
        let name = format!("\"{}\"", takt_files::quoted(&thread.name));
        let name = if process.is_empty() { name } else { format!("{name} of {process}") };
        *counts.entry(name).or_default() += 1;
    }
    let more = counts.len().saturating_sub(MAX_NAMES);
    let mut names: Vec<String> = counts
        .into_iter()
        .take(MAX_NAMES)
        .map(|(name, count)| if count > 1 { format!("{count} times {name}") } else { name })
        .collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let mut names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let declared: Vec<String> =
        scanner.loops().iter().map(|one| format!("\"{}\"", takt_files::quoted(&one.name))).collect();
    if !declared.is_empty() {
        names += &format!("; it declares the loops {}", declared.join(", "));
    }
    for refusal in scanner.refusals() {
        names += &format!("; {refusal}");
    }
    for problem in scanner.problems() {
        names += &format!("; {problem}");
    }
    names
}

/// Of several threads of a loop's name the one that has its period: threads inherit the name of the
/// one that starts them, so that a name alone says little.
fn recognise(target: &Target, loops: &[Loop], found: Vec<Vec<Found>>) -> Result<Vec<Found>, ProgramError> {
    let several = loops.iter().zip(&found).filter(|(_, found)| found.len() > 1);
    let slowest_ns = several.map(|(one, _)| one.period_ns).max();
    let periods = match slowest_ns {
        Some(ns) => periods(target, Duration::from_nanos(ns.saturating_mul(PERIODS)))?,
        None => BTreeMap::new(),
    };
    let choose = |(one, mut found): (&Loop, Vec<Found>)| {
        if found.len() == 1 {
            return Ok(found.remove(0));
        }
        let is_near = |found: &&Found| {
            let ns = periods.get(&found.tid);
            ns.is_some_and(|ns| (ns / one.period_ns as f64 - 1.0).abs() < NEAR)
        };
        let fitting: Vec<&Found> = found.iter().filter(is_near).collect();
        if let [one] = fitting[..] {
            return Ok(one.clone());
        }
        let words = |found: &Found| match periods.get(&found.tid) {
            Some(ns) => format!("{} every {:.3} ms", found.tid, ns / 1e6),
            None => format!("{} without a period", found.tid),
        };
        Err(ProgramError::Several {
            name: one.name.clone(),
            count: found.len(),
            fitting: if fitting.is_empty() { "none".to_owned() } else { fitting.len().to_string() },
            period: duration::format(Duration::from_nanos(one.period_ns)),
            threads: found.iter().take(MAX_NAMES).map(words).collect::<Vec<_>>().join(", "),
        })
    };
    loops.iter().zip(found).map(choose).collect()
}

/// The periods of all threads, as a watch of that length finds them.
fn periods(target: &Target, length: Duration) -> Result<BTreeMap<i32, f64>, ProgramError> {
    fn untraced(error: impl std::fmt::Display) -> ProgramError {
        ProgramError::Untraced(error.to_string())
    }
    let mut watcher = Watcher::new(target.clone(), Settings::default());
    watcher.refresh();
    let mut feed = CycleFeed::start(&mut watcher).map_err(untraced)?;
    let until = Instant::now() + length.clamp(RECOGNISED[0], RECOGNISED[1]);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        watcher.refresh();
        feed.take(&mut watcher, &mut |_, _| {}).map_err(untraced)?;
    }
    let report = watcher.report();
    Ok(report.threads.iter().filter_map(|one| Some((one.tid, one.period_us? * 1e3))).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_is_seen_and_another_is_not() {
        let own = i32::try_from(std::process::id()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(own, port));
        drop(listener);
        assert!(!listens(own, port));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(listens(own, socket.local_addr().unwrap().port()));
    }

    #[test]
    fn a_file_that_was_there_before_is_ready_when_it_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        assert_eq!(version(&path), None);
        std::fs::write(&path, "1").unwrap();
        let before = version(&path);
        assert_eq!(version(&path), before);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(folder.path().join("other"), "").unwrap();
        std::fs::write(&path, "1").unwrap();
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(2)).unwrap();
        assert_ne!(version(&path), before);
    }
}
