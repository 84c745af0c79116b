//! What the manager costs, on the same events again and again.
//!
//! ```text
//! price record EVENTS SECONDS [-- PROGRAM ARGUMENTS]   writes what the nodes of takt_bench, or of PROGRAM, said
//! price replay EVENTS GOALS [PERIOD_MS]                the loop of the manager over them, in their own time
//! price plans EVENTS GOALS                             a first plan of what was known every six seconds
//! price learn EVENTS GOALS RUN                         what is known at their end, for `price model`
//! price model RUN GOALS PLANS                          a first plan for the model that `takt manage --json` left, and PLANS after it, none repeated
//! ```
//!
//! Budgets are enforced exactly, or every `TICK_MS` milliseconds where that is set.
//!
//! A replay enacts nothing and needs no clock, so that two programs are compared by the
//! instructions that they take:
//! `valgrind --tool=callgrind target/debug/examples/price replay EVENTS GOALS`. PERIOD_MS is the
//! time between two looks, 15 by default.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use takt_manager::Manager;
use takt_manager::goals::Goals;
use takt_manager::live::launch::Launched;
use takt_manager::live::{Live, Options};
use takt_manager::plan::{ChainState, Plan, Platform};
use takt_model::Extractor;
use takt_ros::preload::{ProbeOptions, ProbeSession};
use takt_ros::{Event, Source};
use takt_ros_workload::{Program, Running, System, rclcpp};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["record", events, seconds, rest @ ..] => {
            record(Path::new(events), seconds.parse()?, rest.strip_prefix(&["--"]).unwrap_or_default())
        }
        ["replay", events, goals] => replay(Path::new(events), Path::new(goals), 15),
        ["replay", events, goals, period] => replay(Path::new(events), Path::new(goals), period.parse()?),
        ["plans", events, goals] => plans(Path::new(events), Path::new(goals)),
        ["learn", events, goals, run] => learn(Path::new(events), Path::new(goals), Path::new(run)),
        ["model", run, goals, count] => again(Path::new(run), Path::new(goals), count.parse()?),
        _ => {
            Err("price record EVENTS SECONDS [-- PROGRAM ...] | price replay EVENTS GOALS [PERIOD_MS]".into())
        }
    }
}

fn record(path: &Path, seconds: u64, command: &[&str]) -> Result<(), Failure> {
    let session = ProbeSession::create(&ProbeOptions::default())?;
    let mut probe = session.probe()?;
    let mut file = BufWriter::new(File::create(path)?);
    let length = Duration::from_secs(seconds);
    let (mut nodes, mut launched) = (None, None);
    match command.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            launched = Some(Launched::start(command, &session)?);
        }
        None => {
            let system = System::turtlebot().fitted(std::thread::available_parallelism()?.get()).0;
            let environment = session.environment(std::env::var_os("LD_PRELOAD"));
            let environment = environment.into_iter().map(|(name, value)| (name.into(), value)).collect();
            let program = rclcpp::find()?.program(&system, session.directory())?;
            let mut running = Running::start(&system, &Program { environment, ..program })?;
            running.begin(Duration::ZERO, length, system.phases.len())?;
            nodes = Some(running);
        }
    }
    let (began, mut failed, mut count) = (Instant::now(), None, 0_u64);
    while began.elapsed() < length && failed.is_none() {
        probe.poll(&mut |event| {
            count += 1;
            failed = write(&mut file, &event).err();
        })?;
        std::thread::sleep(Duration::from_millis(15));
    }
    drop(nodes);
    while let Some(launched) = &mut launched
        && launched.ended().is_ok_and(|status| status.is_none())
    {
        launched.end();
        std::thread::sleep(Duration::from_millis(50));
    }
    file.flush()?;
    println!("{count} events");
    failed.map_or(Ok(()), Err)
}

fn write(file: &mut impl Write, event: &Event) -> Result<(), Failure> {
    serde_json::to_writer(&mut *file, event)?;
    Ok(writeln!(file)?)
}

/// Events as they were, handed out when their time has come.
#[derive(Debug)]
struct Replay {
    events: VecDeque<Event>,
    now_ns: u64,
}

impl Source for Replay {
    type Error = std::io::Error;

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> Result<usize, Self::Error> {
        let mut count = 0;
        while self.events.front().is_some_and(|event| event.at_ns <= self.now_ns) {
            count += 1;
            self.events.pop_front().into_iter().for_each(&mut *sink);
        }
        Ok(count)
    }

    fn ended(&self) -> bool {
        self.events.is_empty()
    }
}

fn read(path: &Path) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        events.push(serde_json::from_str::<Event>(&line?)?);
    }
    events.sort_by_key(|event| event.at_ns);
    Ok(events)
}

fn platform() -> Platform {
    let mut platform = Platform::new(vec![0, 1], 0, 0.85);
    if let Some(ms) = std::env::var("TICK_MS").ok().and_then(|text| text.parse::<u64>().ok()) {
        platform.enforcement_ns = ms * 1_000_000;
    }
    platform
}

fn print(plan: &Plan) {
    println!("period {} shared {} room {:?}", plan.period_ns, plan.shared, plan.slack);
    for it in &plan.reservations {
        println!("  {} {} in {} on {}", it.name, it.budget_ns, it.period_ns, it.core);
    }
    for it in &plan.chains {
        println!("  {} {:?} {:?} {:?}", it.name, it.bound_ns, it.bound_parts, it.state);
    }
    if std::env::var_os("WORDS").is_some() {
        plan.decisions.iter().for_each(|d| println!("   {:?} {}", d.chain, d.words));
    }
}

/// The model of all events.
fn learn(path: &Path, goals: &Path, run: &Path) -> Result<(), Failure> {
    let mut extractor = Extractor::new(Goals::read(goals)?.learning(&takt_model::Options::default()));
    let events = read(path)?;
    events.iter().for_each(|event| extractor.event(event));
    let model = extractor.snapshot(events.last().map_or(0, |event| event.at_ns));
    serde_json::to_writer(File::create(run)?, &serde_json::json!({ "model": model }))?;
    Ok(())
}

/// Plans for one model, as in a run in which each plan was seen broken.
fn again(path: &Path, goals: &Path, count: u32) -> Result<(), Failure> {
    let run: serde_json::Value = serde_json::from_reader(BufReader::new(File::open(path)?))?;
    let model = serde_json::from_value(run["model"].clone())?;
    let mut manager = Manager::new(Goals::read(goals)?, platform());
    for _ in 0..=count {
        let plan = manager.plan(&model);
        eprintln!("{:9.3} ms, {:?}", plan.analysis_ns as f64 / 1e6, manager.work());
        print(&plan);
        manager.broken();
    }
    Ok(())
}

/// Plans that know nothing of those before them.
fn plans(path: &Path, goals: &Path) -> Result<(), Failure> {
    let goals = Goals::read(goals)?;
    let mut extractor = Extractor::new(goals.learning(&takt_model::Options::default()));
    let mut next_ns = None;
    for event in read(path)? {
        if event.at_ns >= *next_ns.get_or_insert(event.at_ns + 6_000_000_000) {
            next_ns = Some(event.at_ns + 6_000_000_000);
            let model = extractor.snapshot(event.at_ns);
            let mut manager = Manager::new(goals.clone(), platform());
            let plan = manager.plan(&model);
            eprintln!("{:9.3} ms, {:?}", plan.analysis_ns as f64 / 1e6, manager.work());
            print(&plan);
        }
        extractor.event(&event);
    }
    Ok(())
}

fn replay(path: &Path, goals: &Path, period_ms: u64) -> Result<(), Failure> {
    let events = read(path)?;
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Err("no events".into()) };
    let (first_ns, last_ns, count) = (first.at_ns, last.at_ns, events.len());
    let source = Replay { events: events.into(), now_ns: first_ns };
    let platform = platform();
    let options = Options { observe: true, ..Options::default() };
    let mut live = Live::new(Goals::read(goals)?, platform, source, options)?;
    let (mut now_ns, mut plans) = (first_ns, 0);
    let mut spent = live.status(now_ns).cost;
    println!("plan      at_s  extract_ms  model_ms   plan_ms  analysis_ms");
    while now_ns < last_ns {
        live.source_mut().now_ns = now_ns;
        live.step(now_ns)?;
        if live.plans() > plans {
            plans = live.plans();
            let status = live.status(now_ns);
            let cost = status.cost;
            let ms = |ns: u64| ns as f64 / 1e6;
            let plan = live.plan();
            println!(
                "{plans:4} {:9.2} {:11.3} {:9.3} {:9.3} {:12.3} {}",
                (now_ns - first_ns) as f64 / 1e9,
                ms(cost.extract_ns - spent.extract_ns),
                ms(cost.model_ns - spent.model_ns),
                ms(cost.plan_ns - spent.plan_ns),
                plan.map_or(0.0, |plan| ms(plan.analysis_ns)),
                if plan.is_some_and(|plan| plan.cached) { "repeated" } else { "" },
            );
            spent = cost;
        }
        now_ns += period_ms * 1_000_000;
    }
    let status = live.status(now_ns);
    let seconds = (last_ns - first_ns) as f64 / 1e9;
    println!(
        "{count} events in {seconds:.1} s; per second: extract {:.3} ms, model {:.3} ms, plan {:.3} ms",
        status.cost.extract_ns as f64 / 1e6 / seconds,
        status.cost.model_ns as f64 / 1e6 / seconds,
        status.cost.plan_ns as f64 / 1e6 / seconds,
    );
    let Some(plan) = live.plan() else { return Ok(()) };
    println!("period {} ms", plan.period_ns as f64 / 1e6);
    for it in &plan.reservations {
        println!("  {:24} {:.3} ms on core {}", it.name, it.budget_ns as f64 / 1e6, it.core);
    }
    for (chain, measured) in plan.chains.iter().zip(&status.chains) {
        let bound = chain.bound_ns.map_or_else(|| "none".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e6));
        let sum = |part: fn(&takt_manager::plan::BoundPart) -> u64| {
            chain.bound_parts.iter().map(part).sum::<u64>() as f64 / 1e6
        };
        println!(
            "  {:16} goal {:6.1} bound {bound:>8} = transport {:.2} + own {:.2} + executor {:.2} + supply {:.2}; measured worst {:.2}, median {:.2}{}",
            chain.name,
            chain.goal_ns as f64 / 1e6,
            sum(|part| part.transport_ns),
            sum(|part| part.own_ns),
            sum(|part| part.executor_ns),
            sum(|part| part.supply_ns),
            measured.worst_ns as f64 / 1e6,
            measured.median_ns.unwrap_or(0) as f64 / 1e6,
            match &chain.state {
                ChainState::Guaranteed => String::new(),
                other => format!("; {other:?}"),
            }
        );
    }
    Ok(())
}
