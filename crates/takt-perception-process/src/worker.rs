//! The worker process: `takt perception-worker` with the shared memory as its standard input.

use std::any::Any;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use takt_perception::{
    Detections, DetectorSchedule, DetectorService, Device, Engine, Perception, PerceptionConfig,
};
use takt_rt::census::CensusKeeper;
use takt_rt::clock::monotonic_ns;
use takt_rt::memory::{self, MemoryLock};
use takt_rt::settings::ThreadSettings;
use takt_rt::thread;

use crate::channel::{Answerer, Channel, Taken};
use crate::futex;
use crate::gpu;
use crate::judge::{CpuJudge, Judge, JudgeError, PixelMemory, Stages};
use crate::message::{About, Message, WorkerThread};
use crate::planted::{FAULT_VARIABLE, Plan, Planted};
use crate::region::{Region, Setup};
use crate::wire::{Answer, Question};

/// How often the worker looks after itself: its threads, the wish to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest time that a judging thread without frames takes to notice that it shall end, nanoseconds.
const IDLE_NS: u64 = 500_000_000;
/// How often threads of libraries are looked for.
const CENSUS_PERIOD: Duration = Duration::from_millis(500);

/// The judges of a worker.
pub struct Judges {
    /// One a camera.
    pub judges: Vec<Box<dyn Judge>>,
    /// What they are.
    pub about: About,
    /// What must live as long as they do.
    pub keep: Box<dyn Any>,
    /// In place of `judges`: one for all cameras.
    together: Option<Box<dyn Together>>,
}

impl Judges {
    /// One a camera.
    pub fn new(judges: Vec<Box<dyn Judge>>, about: About, keep: Box<dyn Any>) -> Self {
        Self { judges, about, keep, together: None }
    }

    pub(crate) fn together(judge: Box<dyn Together>, about: About, keep: Box<dyn Any>) -> Self {
        Self { judges: Vec::new(), about, keep, together: Some(judge) }
    }
}

/// What becomes of each camera's frame; `None` where it had none.
pub(crate) type Outcomes = [Option<Result<Stages, JudgeError>>; MAX_TOGETHER];
/// Most cameras of one judge.
pub(crate) const MAX_TOGETHER: usize = futex::MOST_WORDS;

/// Judges what has arrived of all cameras at once.
pub(crate) trait Together: Send {
    /// Tells where the frames of each camera lie.
    fn adopt(&mut self, memory: &[PixelMemory]) -> Result<(), JudgeError>;

    /// Judges the frames of the cameras whose outcome is still `None`.
    fn judge(&mut self, frames: &[Option<Taken<'_>>], outs: &mut [Detections], outcomes: &mut Outcomes);

    /// Called once the answers are out, for what nobody waits for.
    fn after(&mut self);
}

/// Makes the judges that a setup asks for. Gets a function to tell of progress; returns one sentence on failure.
pub type Make = dyn Fn(&Setup, &CensusKeeper, &(dyn Fn(String) + Sync)) -> Result<Judges, String>;

/// Ends the process when a judge panics: its camera would be silent, and its device in no known state.
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
        Err(sentence) => {
            // The supervisor may be gone; then nobody wants to know.
            let _ = send(&Message::Failed(sentence));
            ExitCode::from(2)
        }
    }
}

/// Lets the kernel end this process when the thread that started it ends.
fn end_with(cell: u32) -> Result<(), String> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(format!("prctl(PR_SET_PDEATHSIG): {}", io::Error::last_os_error()));
    }
    if std::os::unix::process::parent_id() == cell {
        return Ok(());
    }
    Err("the cell that started this worker has ended already".to_owned())
}

fn serve(make: &Make) -> Result<(), String> {
    let hint = "this command is started by a cell, with its shared memory as standard input";
    let file = io::stdin().as_fd().try_clone_to_owned().map_err(|e| format!("{e}; {hint}"))?;
    let region = Region::open(file).map_err(|e| format!("{e}; {hint}"))?;
    end_with(region.cell())?;
    let generation = region.generation();
    let setup = &region.setup;
    memory::keep_heap();
    let mut labels = Vec::new();
    if setup.lock_memory
        && let Err(error) = MemoryLock::All.apply()
    {
        labels.push(format!("tasks.lock_memory in the perception process: {error}"));
    }
    let census =
        CensusKeeper::start(setup.library_policy, CENSUS_PERIOD).map_err(|e| format!("census: {e}"))?;
    let progress = |text: String| drop(send(&Message::Progress(text)));
    let Judges { mut judges, mut about, keep, together } = make(setup, &census, &progress)?;
    if let Some(plan) = planted(generation)? {
        if together.is_some() {
            return Err(format!("{FAULT_VARIABLE}: not with perception.gpu.streams = \"batch\""));
        }
        labels.push(format!("planted fault: {plan}"));
        judges =
            judges.into_iter().map(|judge| Box::new(Planted::new(judge, plan)) as Box<dyn Judge>).collect();
    }
    about.labels.append(&mut labels);
    let region = Arc::new(region);
    let channels = region.channels().map_err(|e| e.to_string())?;
    if together.is_none() && judges.len() != channels.len() {
        return Err(format!("{} judges for {} cameras", judges.len(), channels.len()));
    }
    let mut threads = Vec::new();
    let mut handles = Vec::new();
    let wakers: Vec<Channel> = channels.iter().map(Channel::again).collect();
    if let Some(mut judge) = together {
        let answerers: Vec<Answerer> =
            wakers.iter().map(|channel| Answerer::new(channel.again(), generation)).collect();
        let memory: Vec<PixelMemory> = answerers.iter().map(Answerer::pixel_memory).collect();
        judge.adopt(&memory).map_err(|e| e.to_string())?;
        let region = Arc::clone(&region);
        let handle = thread::spawn("judge-all", &region.setup.threads.clone(), move || {
            let _abort = AbortOnPanic;
            answer_together(judge, &answerers, &region);
        })
        .map_err(|e| e.to_string())?;
        threads.push(WorkerThread { name: handle.name().to_owned(), granted: handle.granted().clone() });
        handles.push(handle);
    }
    for (index, (mut judge, channel)) in judges.into_iter().zip(channels).enumerate() {
        let region = Arc::clone(&region);
        let answerer = Answerer::new(channel, generation);
        judge.adopt(answerer.pixel_memory()).map_err(|e| e.to_string())?;
        let handle = thread::spawn(&format!("judge-{index}"), &region.setup.threads.clone(), move || {
            let _abort = AbortOnPanic;
            answer_all(judge, answerer, &region);
        })
        .map_err(|e| e.to_string())?;
        threads.push(WorkerThread { name: handle.name().to_owned(), granted: handle.granted().clone() });
        handles.push(handle);
    }
    send(&Message::Ready { about, threads }).map_err(|e| e.to_string())?;
    let mut counted = 0;
    while !region.shall_stop() && handles.iter().any(|handle| !handle.is_finished()) {
        if let Ok(report) = census.report() {
            let living = report.threads.iter().filter(|thread| !thread.ended).count();
            if living != counted {
                counted = living;
                send(&Message::Census(report)).map_err(|e| e.to_string())?;
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    wakers.iter().for_each(Channel::wake_worker);
    for handle in handles {
        handle.join().map_err(|e| e.to_string())?;
    }
    drop(keep);
    Ok(())
}

/// The fault that this process shall have.
fn planted(generation: u32) -> Result<Option<Plan>, String> {
    let Some(text) = std::env::var(FAULT_VARIABLE).ok().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let plan: Plan = text.parse()?;
    Ok((plan.all || generation == 1).then_some(plan))
}

/// Judges every frame of one camera.
fn answer_all(mut judge: Box<dyn Judge>, answerer: Answerer, region: &Region) {
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

/// Why a frame is not even begun.
fn expired(taken_ns: u64, question: &Question) -> Option<JudgeError> {
    let late_ns = taken_ns.checked_sub(question.deadline_ns)?;
    Some(JudgeError::Overrun(format!("taken up {:.1} ms after its time was over", late_ns as f64 / 1e6)))
}

/// Judges the frames of all cameras, those together that have arrived.
fn answer_together(mut judge: Box<dyn Together>, answerers: &[Answerer], region: &Region) {
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
                outcome.unwrap_or_else(|| Err(JudgeError::Frame("left out of its batch".to_owned())));
            lost |= matches!(outcome, Err(JudgeError::Lost(_)));
            answerer.answer(&Answer::new(ticket, taken_ns, monotonic_ns(), outcome, out));
        }
        judge.after();
        if lost {
            return;
        }
    }
}

/// Judges on the CPU, as in the cell's own process.
///
/// # Errors
/// One sentence.
pub fn cpu_judges(setup: &Setup, census: &CensusKeeper) -> Result<Judges, String> {
    let config: &PerceptionConfig = &setup.perception;
    let engine = Engine::open(&config.engine).map_err(|e| e.to_string())?;
    let sizes: Vec<_> = setup.cameras.iter().map(|camera| (camera.width, camera.height)).collect();
    let shared = config.detector.enabled && config.detector.schedule == DetectorSchedule::Shared;
    let mut thread = None;
    let (service, handles) = if shared {
        let settings = ThreadSettings { policy: setup.detector_policy, ..ThreadSettings::default() };
        let (service, handles) = census
            .attribute_with("detector", setup.detector_policy, || {
                DetectorService::start(&engine, &config.detector, &sizes, |body| {
                    thread = Some(thread::spawn("detector", &settings, body).map_err(|e| e.to_string())?);
                    Ok(())
                })
            })
            .map_err(|e| e.to_string())?;
        (Some(service), handles.into_iter().map(Some).collect())
    } else {
        (None, setup.cameras.iter().map(|_| None).collect::<Vec<_>>())
    };
    let judges = census.attribute("perception", || {
        let cameras = setup.cameras.iter().zip(handles).enumerate();
        cameras
            .map(|(index, (camera, handle))| {
                let perception = Perception::new(config, index as u32, *camera, &engine, handle)?;
                Ok(Box::new(CpuJudge::new(perception)) as Box<dyn Judge>)
            })
            .collect::<Result<Vec<_>, takt_perception::PerceptionError>>()
    });
    let about = About { device: "CPU".to_owned(), engine: engine.description(), ..About::default() };
    Ok(Judges::new(judges.map_err(|e| e.to_string())?, about, Box::new((service, thread))))
}

/// Judges on the device that the setup names.
///
/// # Errors
/// One sentence.
pub fn judges(
    setup: &Setup,
    census: &CensusKeeper,
    progress: &(dyn Fn(String) + Sync),
) -> Result<Judges, String> {
    match setup.device {
        Device::Cpu | Device::Auto => cpu_judges(setup, census),
        Device::Cuda | Device::Tensorrt => gpu::judges(setup, census, progress),
    }
}
