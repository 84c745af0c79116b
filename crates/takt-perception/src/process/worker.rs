//! The worker process: `takt perception-worker` with the shared memory as its standard input.

use std::any::Any;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use takt_rt::census::CensusKeeper;
use takt_rt::child;
use takt_rt::clock::monotonic_ns;
use takt_rt::memory;
use takt_rt::thread;

use crate::Detections;
use crate::gpu::GpuPerceptionError;
use crate::process::channel::{Answerer, Channel, Taken};
use crate::process::frame_judge::{FrameJudge, JudgeError, PixelMemory, StageSpans};
use crate::process::futex;
use crate::process::message::{About, Message, WorkerThread};
use crate::process::planted::{FAULT_VARIABLE, Plan, PlanError, Planted};
use crate::process::region::{Region, Setup};
use crate::process::wire::{Answer, Question};

/// Period at which the worker checks itself: its threads, the request to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest time that a judging thread without frames takes to notice that it shall end,
/// nanoseconds.
const IDLE_NS: u64 = 500_000_000;
/// Period of the search for threads of libraries.
const CENSUS_PERIOD: Duration = Duration::from_millis(500);

/// The judges of a worker.
pub struct Judges {
    /// One a camera.
    pub judges: Vec<Box<dyn FrameJudge>>,
    pub about: About,
    /// State that must live as long as they do.
    pub keep: Box<dyn Any>,
    /// In place of `judges`: one for all cameras.
    together: Option<Box<dyn BatchJudge>>,
}

impl Judges {
    /// One a camera.
    pub fn new(judges: Vec<Box<dyn FrameJudge>>, about: About, keep: Box<dyn Any>) -> Self {
        Self { judges, about, keep, together: None }
    }

    pub(crate) fn together(judge: Box<dyn BatchJudge>, about: About, keep: Box<dyn Any>) -> Self {
        Self { judges: Vec::new(), about, keep, together: Some(judge) }
    }
}

/// Outcome of each camera's frame; `None` if it had none.
pub(crate) type Outcomes = [Option<Result<StageSpans, JudgeError>>; MAX_TOGETHER];
/// Most cameras of one judge.
pub(crate) const MAX_TOGETHER: usize = futex::MAX_WORDS;

/// Judges what has arrived of all cameras at once.
pub(crate) trait BatchJudge: Send {
    /// Reports where the frames of each camera lie.
    fn adopt(&mut self, memory: &[PixelMemory]) -> Result<(), JudgeError>;

    /// Judges the frames of the cameras whose outcome is still `None`.
    fn judge(&mut self, frames: &[Option<Taken<'_>>], outs: &mut [Detections], outcomes: &mut Outcomes);

    /// Called once the answers are out, for what nobody waits for.
    fn after(&mut self);
}

/// Makes the judges that a setup asks for. Gets a function to report progress.
pub type Make = dyn Fn(&Setup, &CensusKeeper, &(dyn Fn(String) + Sync)) -> Result<Judges, SetupError>;

/// Reason why a worker cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Its shared memory or its standard input and output.
    #[error("{0}; this command is started by a cell, with its shared memory as standard input")]
    Region(#[source] io::Error),
    /// The supervisor cannot be informed.
    #[error("standard output: {0}")]
    Reply(#[source] io::Error),
    /// The kernel will not end this process with its cell.
    #[error("prctl(PR_SET_PDEATHSIG): {0}")]
    DeathSignal(#[source] io::Error),
    /// The cell is gone.
    #[error("the cell that started this worker has ended already")]
    Orphan,
    /// The threads of libraries cannot be watched.
    #[error("census: {0}")]
    Census(#[source] takt_rt::Error),
    /// A judging thread.
    #[error(transparent)]
    Thread(#[from] takt_rt::Error),
    #[error(transparent)]
    Device(#[from] GpuPerceptionError),
    /// The device cannot use the frames' memory.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// A planted fault that cannot be planted.
    #[error(transparent)]
    Fault(#[from] PlanError),
    /// Judges and cameras do not match.
    #[error("{judges} judges for {cameras} cameras")]
    Count { judges: usize, cameras: usize },
}

impl From<takt_gpu::GpuError> for SetupError {
    fn from(error: takt_gpu::GpuError) -> Self {
        Self::Device(error.into())
    }
}

/// Ends the process when a judge panics: its camera would be silent, and its device in no known
/// state.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn send(message: &Message) -> io::Result<()> {
    // On a line of its own, whatever a library has written before it.
    let line = format!("\n{}\n", serde_json::to_string(message).map_err(io::Error::other)?);
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// Runs the worker until it shall end, or its cell has ended. `make` makes the judges.
pub fn run(make: &Make) -> ExitCode {
    match serve(make) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The supervisor may be gone; then nobody wants to know.
            let _ = send(&Message::Failed(error.to_string()));
            ExitCode::from(2)
        }
    }
}

/// Lets the kernel end this process when the thread that started it ends.
fn end_with(cell: u32) -> Result<(), SetupError> {
    child::end_with(cell, libc::SIGKILL).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SetupError::Orphan,
        _ => SetupError::DeathSignal(error),
    })
}

fn serve(make: &Make) -> Result<(), SetupError> {
    let file = io::stdin().as_fd().try_clone_to_owned().map_err(SetupError::Region)?;
    let region = Region::open(file).map_err(SetupError::Region)?;
    end_with(region.cell())?;
    let generation = region.generation();
    let setup = &region.setup;
    memory::keep_heap();
    let census = CensusKeeper::start(setup.library_policy, CENSUS_PERIOD).map_err(SetupError::Census)?;
    let progress = |text: String| drop(send(&Message::Progress(text)));
    let Judges { mut judges, mut about, keep, together } = make(setup, &census, &progress)?;
    if let Some(plan) = planted(generation)? {
        if together.is_some() {
            return Err(PlanError::Batch.into());
        }
        about.labels.push(format!("planted fault: {plan}"));
        judges = judges
            .into_iter()
            .map(|judge| Box::new(Planted::new(judge, plan)) as Box<dyn FrameJudge>)
            .collect();
    }
    let region = Arc::new(region);
    // Mapped until the process ends, as the device was instructed: what it still copies for a frame
    // that was given up outlives the judges.
    std::mem::forget(Arc::clone(&region));
    let channels = region.channels().map_err(SetupError::Region)?;
    if together.is_none() && judges.len() != channels.len() {
        return Err(SetupError::Count { judges: judges.len(), cameras: channels.len() });
    }
    let mut threads = Vec::new();
    let mut handles = Vec::new();
    let wakers: Vec<Channel> = channels.iter().map(Channel::again).collect();
    if let Some(mut judge) = together {
        let answerers: Vec<Answerer> =
            wakers.iter().map(|channel| Answerer::new(channel.again(), generation)).collect();
        let memory: Vec<PixelMemory> = answerers.iter().map(Answerer::pixel_memory).collect();
        judge.adopt(&memory)?;
        let region = Arc::clone(&region);
        let handle = thread::spawn("judge-all", &region.setup.threads.clone(), move || {
            let _abort = AbortOnPanic;
            answer_together(judge, &answerers, &region);
        })?;
        threads.push(WorkerThread { name: handle.name().to_owned(), granted: handle.granted().clone() });
        handles.push(handle);
    }
    for (index, (mut judge, channel)) in judges.into_iter().zip(channels).enumerate() {
        let region = Arc::clone(&region);
        let answerer = Answerer::new(channel, generation);
        judge.adopt(answerer.pixel_memory())?;
        let handle = thread::spawn(&format!("judge-{index}"), &region.setup.threads.clone(), move || {
            let _abort = AbortOnPanic;
            answer_all(judge, answerer, &region);
        })?;
        threads.push(WorkerThread { name: handle.name().to_owned(), granted: handle.granted().clone() });
        handles.push(handle);
    }
    send(&Message::Ready { about, threads }).map_err(SetupError::Reply)?;
    let mut counted = 0;
    while !region.shall_stop() && handles.iter().any(|handle| !handle.is_finished()) {
        if let Ok(report) = census.report() {
            let living = report.threads.iter().filter(|thread| !thread.ended).count();
            if living != counted {
                counted = living;
                send(&Message::Census(report)).map_err(SetupError::Reply)?;
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    wakers.iter().for_each(Channel::wake_worker);
    for handle in handles {
        handle.join()?;
    }
    drop(keep);
    Ok(())
}

/// The fault that this process shall have.
fn planted(generation: u32) -> Result<Option<Plan>, PlanError> {
    let Some(text) = std::env::var(FAULT_VARIABLE).ok().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let plan: Plan = text.parse()?;
    Ok((plan.all || generation == 1).then_some(plan))
}

/// Judges every frame of one camera.
fn answer_all(mut judge: Box<dyn FrameJudge>, answerer: Answerer, region: &Region) {
    let mut out = Detections::default();
    while !region.shall_stop() {
        let Some(taken) = answerer.next(monotonic_ns() + IDLE_NS) else { continue };
        let question = taken.question;
        let taken_ns = monotonic_ns();
        let outcome = if let Some(expired) = expired(taken_ns, &question) {
            Err(expired)
        } else {
            let (start_ns, deadline_ns) = (question.start_ns, question.deadline_ns);
            judge.judge(&taken.seen(), question.pose.as_ref(), start_ns, deadline_ns, &mut out)
        };
        let lost = matches!(outcome, Err(JudgeError::Lost(_)));
        // Before the answer: who has it may already post the next frame.
        drop(taken);
        answerer.answer(&Answer::new(question.ticket, taken_ns, monotonic_ns(), outcome, &out));
        judge.after();
        if lost {
            // Its device would refuse every call from now on; the supervisor ends this process.
            return;
        }
    }
}

/// Reason why a frame is not even started.
fn expired(taken_ns: u64, question: &Question) -> Option<JudgeError> {
    let late_ns = taken_ns.checked_sub(question.deadline_ns)?;
    Some(JudgeError::Overrun(format!("started {:.1} ms after its deadline", late_ns as f64 / 1e6)))
}

/// Judges the frames of all cameras, those together that have arrived.
fn answer_together(mut judge: Box<dyn BatchJudge>, answerers: &[Answerer], region: &Region) {
    let mut outs = vec![Detections::default(); answerers.len()];
    while !region.shall_stop() {
        let frames: [Option<Taken<'_>>; MAX_TOGETHER] =
            std::array::from_fn(|camera| answerers.get(camera).and_then(Answerer::take));
        if frames.iter().all(Option::is_none) {
            Answerer::wait_any(answerers, monotonic_ns() + IDLE_NS);
            continue;
        }
        let taken_ns = monotonic_ns();
        let mut outcomes: Outcomes = std::array::from_fn(|camera| {
            frames[camera].as_ref().and_then(|frame| expired(taken_ns, &frame.question)).map(Err)
        });
        judge.judge(&frames[..answerers.len()], &mut outs, &mut outcomes);
        let mut lost = false;
        let answered = frames.into_iter().zip(outcomes).zip(answerers.iter().zip(&outs));
        for ((frame, outcome), (answerer, out)) in answered {
            let Some(frame) = frame else { continue };
            let ticket = frame.question.ticket;
            drop(frame);
            let outcome =
                outcome.unwrap_or_else(|| Err(JudgeError::Frame("not included in its batch".to_owned())));
            lost |= matches!(outcome, Err(JudgeError::Lost(_)));
            answerer.answer(&Answer::new(ticket, taken_ns, monotonic_ns(), outcome, out));
        }
        judge.after();
        if lost {
            return;
        }
    }
}
