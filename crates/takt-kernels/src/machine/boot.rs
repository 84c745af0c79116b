//! A run of the machine from power on to power off.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use super::command::{CONSOLE, LINE, QEMU_LOG, STREAM};
use super::console::{Judgement, has_panicked, judge, tail};
use super::payload;
use super::process::{Qemu, probe_kvm};
use super::quiet::Quiet;
use super::{Accelerator, LOOK, Machine, MachineError};

use crate::transport::{Hello, JobEnd, Message, Receiver};

/// Lines of the console in an error.
const TAIL_LINES: usize = 12;

/// A kernel that panicked ends its machine at once, or, where it died too early for that, never.
const PANICKED_QUIET_S: u64 = 10;

/// Most of a console's log that is judged: its end. A guest can write gigabytes.
const CONSOLE_JUDGED_BYTES: u64 = 1 << 20;

/// Report while a guest runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The guest is up.
    Up(Hello),
    /// A job began.
    JobStart(String),
    JobEnd(JobEnd),
    /// A line of the guest's.
    Line(String),
    /// Bytes of results so far.
    Results(u64),
    /// Nothing new; reported several times a second, so that a listener can end a run that says
    /// nothing.
    Waiting,
}

/// End of the machine, besides its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The guest's CLOCK_MONOTONIC when it switched off, nanoseconds.
    pub guest_ns: u64,
    /// Host time in all.
    pub wall: Duration,
    /// Host time until the guest was up.
    pub boot_wall: Duration,
}

/// Results of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The guest's description of itself.
    pub hello: Hello,
    /// The jobs' ends, in their order.
    pub jobs: Vec<JobEnd>,
    /// Directory of the files that came out.
    pub results: PathBuf,
    /// The console's log.
    pub console: PathBuf,
    /// Times.
    pub ended: Ended,
}

impl Machine {
    /// Boots, waits for the end and unpacks what came out. `progress` is called with what goes on
    /// and may end it by returning false.
    ///
    /// # Errors
    /// [`MachineError`]; QEMU has ended then, and its logs are kept in the machine's directory.
    pub fn boot(&self, progress: &mut dyn FnMut(&Event) -> bool) -> Result<Outcome, MachineError> {
        self.settings.validate()?;
        for (what, path) in [("kernel", &self.kernel), ("initramfs", &self.initramfs)] {
            File::open(path).map_err(|source| file_error(what, path, source))?;
        }
        if self.settings.accelerator == Accelerator::Kvm {
            probe_kvm().map_err(|why| MachineError::NoKvm { why })?;
        }
        let results = self.directory.join("results");
        fs::create_dir_all(&self.directory)
            .map_err(|source| file_error("directory", &self.directory, source))?;
        for name in [CONSOLE, LINE, STREAM] {
            let path = self.directory.join(name);
            File::create(&path).map_err(|source| file_error("file", &path, source))?;
        }
        let unpacked = self.unpacked()?;
        let kernel = unpacked.as_ref().map_or(self.kernel.as_path(), |file| file.path());
        let mut run = Run::new(self, kernel)?;
        let ended = run.watch(progress);
        // A guest that spoke its last word is done, whatever became of QEMU after that.
        run.read(progress)?;
        match ended {
            _ if run.whole() => {}
            Err(error) => return Err(run.explain(error)),
            Ok(status) => return Err(run.unfinished(status)),
        }
        let outcome = run.outcome(results)?;
        for name in [LINE, STREAM] {
            let _ = fs::remove_file(self.directory.join(name));
        }
        Ok(outcome)
    }

    /// The kernel unpacked, in the machine's directory, where that is worth while.
    fn unpacked(&self) -> Result<Option<NamedTempFile>, MachineError> {
        if self.settings.accelerator == Accelerator::Kvm {
            return Ok(None);
        }
        let elf =
            payload::unpack(&self.kernel).map_err(|source| file_error("kernel", &self.kernel, source))?;
        let Some(elf) = elf else { return Ok(None) };
        let write = || {
            let mut file = tempfile::Builder::new().prefix("kernel-").tempfile_in(&self.directory)?;
            file.write_all(&elf)?;
            Ok(file)
        };
        write().map(Some).map_err(|source| file_error("unpacked kernel in", &self.directory, source))
    }

    fn console(&self) -> PathBuf {
        self.directory.join(CONSOLE)
    }
}

fn file_error(what: &'static str, path: &Path, source: std::io::Error) -> MachineError {
    MachineError::File { what, path: path.to_path_buf(), source }
}

/// A file that grows while it is read.
#[derive(Debug)]
struct Growing {
    file: File,
    path: PathBuf,
    read: u64,
}

impl Growing {
    fn open(path: PathBuf) -> Result<Self, MachineError> {
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path, read: 0 }),
            Err(source) => Err(file_error("file", &path, source)),
        }
    }

    /// The next piece; empty: nothing new.
    fn piece<'a>(&mut self, buffer: &'a mut [u8]) -> Result<&'a [u8], MachineError> {
        let length = self.file.read(buffer).map_err(|source| file_error("file", &self.path, source))?;
        self.read += length as u64;
        Ok(&buffer[..length])
    }

    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }
}

struct Run<'a> {
    machine: &'a Machine,
    qemu: Qemu,
    start: Instant,
    stream: Growing,
    line: Growing,
    console: Growing,
    receiver: Receiver,
    archive: File,
    archive_bytes: u64,
    archive_whole: bool,
    hello: Option<(Hello, Duration)>,
    running: Option<String>,
    jobs: Vec<JobEnd>,
    failure: Option<String>,
    guest_ns: Option<u64>,
}

impl<'a> Run<'a> {
    fn new(machine: &'a Machine, kernel: &Path) -> Result<Self, MachineError> {
        let directory = &machine.directory;
        let archive =
            tempfile::tempfile_in(directory).map_err(|source| file_error("file", directory, source))?;
        Ok(Self {
            stream: Growing::open(directory.join(STREAM))?,
            line: Growing::open(directory.join(LINE))?,
            console: Growing::open(directory.join(CONSOLE))?,
            receiver: Receiver::default(),
            archive,
            archive_bytes: 0,
            archive_whole: false,
            hello: None,
            running: None,
            jobs: Vec::new(),
            failure: None,
            guest_ns: None,
            start: Instant::now(),
            qemu: Qemu::start(machine, kernel)?,
            machine,
        })
    }

    /// Until QEMU ends or has to be ended.
    fn watch(&mut self, progress: &mut dyn FnMut(&Event) -> bool) -> Result<ExitStatus, MachineError> {
        let settings = &self.machine.settings;
        let mut quiet = Quiet::new(self.qemu.id());
        let mut looked_s = 0;
        loop {
            let ended = self.qemu.ended().map_err(|source| file_error("process", &settings.qemu, source))?;
            if let Some(status) = ended {
                return Ok(status);
            }
            self.read(progress)?;
            let produced = self.console.length() + self.stream.read + self.line.read;
            let quiet_s = quiet.look(produced).as_secs();
            // Not at every look: the log may be long.
            let panicked = quiet_s >= PANICKED_QUIET_S && quiet_s != looked_s && {
                looked_s = quiet_s;
                has_panicked(&self.console_text())
            };
            if quiet_s >= settings.quiet_limit_s || panicked {
                return Err(MachineError::Hung {
                    quiet_s,
                    stage: self.stage(),
                    tail: tail(&self.console_text(), TAIL_LINES),
                    console: self.machine.console(),
                });
            }
            if self.start.elapsed().as_secs() >= settings.wall_limit_s {
                return Err(MachineError::TooLong {
                    limit_s: settings.wall_limit_s,
                    stage: self.stage(),
                    console: self.machine.console(),
                });
            }
            if !progress(&Event::Waiting) {
                return Err(MachineError::Stopped);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Takes what has come since the last time.
    fn read(&mut self, progress: &mut dyn FnMut(&Event) -> bool) -> Result<(), MachineError> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            // One of the two: the guest chooses at its start.
            let mut piece = self.stream.piece(&mut buffer)?.len();
            if piece == 0 && self.stream.read == 0 {
                piece = self.line.piece(&mut buffer)?.len();
            }
            if piece == 0 {
                return Ok(());
            }
            self.receiver.push(&buffer[..piece]);
            let wrong = |source| MachineError::Stream { source, console: self.machine.console() };
            while let Some(message) = self.receiver.message().map_err(wrong)? {
                let event = self.take(message)?;
                if event.is_some_and(|event| !progress(&event)) {
                    return Err(MachineError::Stopped);
                }
            }
        }
    }

    fn take(&mut self, message: Message) -> Result<Option<Event>, MachineError> {
        Ok(match message {
            Message::Hello(hello) => {
                self.hello = Some((hello.clone(), self.start.elapsed()));
                Some(Event::Up(hello))
            }
            Message::Progress(line) => Some(Event::Line(line)),
            Message::JobStart(start) => {
                self.running = Some(start.name.clone());
                Some(Event::JobStart(start.name))
            }
            Message::JobEnd(end) => {
                self.running = None;
                self.jobs.push(end.clone());
                Some(Event::JobEnd(end))
            }
            Message::Archive(bytes) => {
                let directory = &self.machine.directory;
                self.archive
                    .write_all(&bytes)
                    .map_err(|source| file_error("archive in", directory, source))?;
                self.archive_bytes += bytes.len() as u64;
                Some(Event::Results(self.archive_bytes))
            }
            Message::ArchiveEnd(_) => {
                self.archive_whole = true;
                None
            }
            Message::Failure(why) => {
                self.failure = Some(why.clone());
                Some(Event::Line(why))
            }
            Message::Done(done) => {
                self.guest_ns = Some(done.at_ns);
                None
            }
        })
    }

    fn whole(&self) -> bool {
        self.hello.is_some() && self.archive_whole && self.guest_ns.is_some() && self.failure.is_none()
    }

    fn stage(&self) -> String {
        match (&self.hello, &self.running) {
            _ if self.archive_bytes > 0 => "while it sent its results".into(),
            (Some(_), Some(job)) => format!("in job {job}"),
            (Some(_), None) => "between jobs".into(),
            (None, _) if self.console.length() > 0 => "while it started up".into(),
            (None, _) => "before its kernel printed anything".into(),
        }
    }

    /// The end of the console's log.
    fn console_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(self.machine.console()) {
            let length = self.console.length();
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(CONSOLE_JUDGED_BYTES)));
            let _ = file.take(CONSOLE_JUDGED_BYTES).read_to_end(&mut text);
        }
        text
    }

    /// An end that was ours, unless the console knows better: a kernel that ran out of memory
    /// hangs, too.
    fn explain(&self, error: MachineError) -> MachineError {
        if !matches!(error, MachineError::Hung { .. } | MachineError::TooLong { .. }) {
            return error;
        }
        self.judged().unwrap_or(error)
    }

    fn judged(&self) -> Option<MachineError> {
        let text = self.console_text();
        let console = self.machine.console();
        match judge(&text) {
            Judgement::Panicked(reason) => {
                Some(MachineError::Panicked { reason, tail: tail(&text, TAIL_LINES), console })
            }
            Judgement::OutOfMemory(reason) => {
                let settings = &self.machine.settings;
                let mem = settings.boot_parameters.split_whitespace().find(|word| word.starts_with("mem="));
                let memory = match mem {
                    Some(mem) => format!("{} MiB and {mem}", settings.memory_mib),
                    None => format!("{} MiB", settings.memory_mib),
                };
                Some(MachineError::OutOfMemory { reason, memory, console })
            }
            Judgement::NoInit(reason) => Some(MachineError::NoInit { reason, console }),
            Judgement::Guest(why) => Some(MachineError::Guest { why, console }),
            Judgement::Silent => Some(MachineError::Silent {
                kernel: self.machine.kernel.clone(),
                waited_s: self.start.elapsed().as_secs(),
                hint: match self.machine.settings.accelerator {
                    Accelerator::Counted | Accelerator::RealTime => "",
                    Accelerator::Kvm => {
                        ". Inside a virtual machine, the host's KVM may fail to boot any kernel: try without it"
                    }
                },
                console,
            }),
            Judgement::Nothing => None,
        }
    }

    /// QEMU has ended, and the guest had not sent everything.
    fn unfinished(&self, status: ExitStatus) -> MachineError {
        let console = self.machine.console();
        if let Some(why) = &self.failure {
            return MachineError::Guest { why: why.clone(), console };
        }
        if !status.success() {
            let text = fs::read(self.machine.directory.join(QEMU_LOG)).unwrap_or_default();
            return MachineError::Qemu { status: status.to_string(), text: tail(&text, TAIL_LINES) };
        }
        if let Some(error) = self.judged() {
            return error;
        }
        if let Err(source) = self.receiver.finish() {
            return MachineError::Stream { source, console };
        }
        MachineError::Unfinished { stage: self.stage(), console }
    }

    fn outcome(mut self, results: PathBuf) -> Result<Outcome, MachineError> {
        let (hello, boot_wall) = self.hello.take().unwrap_or_default();
        let wall = self.start.elapsed();
        let failed = |source| file_error("results", &results, source);
        fs::create_dir_all(&results).map_err(failed)?;
        self.archive.seek(SeekFrom::Start(0)).map_err(failed)?;
        // The guest ran programs as its root: neither its owners nor its special files come out,
        // and tar refuses paths that leave the directory.
        let mut archive = tar::Archive::new(&self.archive);
        archive.set_preserve_permissions(false);
        archive.set_preserve_mtime(true);
        for entry in archive.entries().map_err(failed)? {
            let mut entry = entry.map_err(failed)?;
            if entry.header().entry_type().is_file() || entry.header().entry_type().is_dir() {
                entry.unpack_in(&results).map_err(failed)?;
            }
        }
        Ok(Outcome {
            hello,
            jobs: std::mem::take(&mut self.jobs),
            results: results.clone(),
            console: self.machine.console(),
            ended: Ended { guest_ns: self.guest_ns.unwrap_or(0), wall, boot_wall },
        })
    }
}
