use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use super::part::Engine;
use super::*;
use crate::report::ComponentReport;
use crate::tool::StressNg;
use crate::{processes, tool};

const CHILD: &str = "TAKT_LOAD_TEST_CHILD";

/// Whether `tool` is installed; without it a test is skipped, or fails where outside tools are
/// required.
fn has(tool: &str, argument: &str) -> bool {
    match tool::version(Path::new(tool), argument) {
        Ok(_) => true,
        Err(reason) => {
            assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"), "{reason}");
            takt_witness::skip!("{reason}");
            false
        }
    }
}

fn missing_tools() -> Tools {
    Tools {
        stress_ng: "/nonexistent/stress-ng".into(),
        hackbench: "/nonexistent/hackbench".into(),
        dd: "/nonexistent/dd".into(),
        du: "/nonexistent/du".into(),
        ping: "/nonexistent/ping".into(),
        ..Tools::default()
    }
}

/// The UAV profile, in a size that other tests beside it survive.
fn small_uav() -> Profile {
    Profile {
        name: "small-uav".into(),
        require_tools: false,
        components: vec![
            Component::Matrix { workers: 2 },
            Component::Memory { workers: 2, share: 0.75, cap_mib: Some(64), method: None },
            Component::Switch { workers: 1 },
            Component::Fork { workers: 1 },
        ],
    }
}

fn scratch() -> tempfile::TempDir {
    // Not in /tmp, which may lie in memory: the disk writer refuses that.
    tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Waits for what has to come; a machine under load may take its time.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn alive_in_group(group: i32) -> Vec<processes::Process> {
    processes::all().into_iter().filter(|process| process.group == group && process.alive).collect()
}

#[test]
fn nothing_runs_when_off() {
    let load = Load::start(&Profile::named("off").unwrap(), Path::new("/nonexistent")).unwrap();
    assert!(load.guard.is_none() && load.watch.is_none());
    load.check().unwrap();
    let report = load.stop();
    assert!(report.components.is_empty() && report.problems().is_empty());
}

#[test]
fn the_real_stress_ng_proves_its_work_and_leaves_nothing() {
    if !has("stress-ng", "--version") {
        return;
    }
    let scratch = scratch();
    // From a real-time thread: the tools must not inherit that.
    let load = std::thread::spawn({
        let path = scratch.path().to_owned();
        move || {
            if let Err(refusal) = (Policy::Fifo { priority: 2 }).apply(0) {
                takt_witness::skip!("in part: {refusal}");
            } else {
                let parameters = libc::sched_param { sched_priority: 2 };
                // Drops the flag that would keep children from inheriting.
                // SAFETY: the parameters outlive the call, which concerns the calling thread.
                assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) }, 0);
            }
            Load::start(&small_uav(), &path).unwrap()
        }
    })
    .join()
    .unwrap();
    let group = load.guard.as_ref().unwrap().group();
    let running = alive_in_group(group);
    assert!(running.len() > 6, "{running:?}");
    for process in &running {
        // One that ended meanwhile (forked, or a restarted worker) has no policy.
        if let Ok(policy) = Policy::read(process.pid) {
            assert_eq!(policy, Policy::Other { nice: 0 }, "{process:?}");
        }
    }
    std::thread::sleep(Duration::from_millis(700));
    load.check().unwrap();
    let report = load.stop();
    for component in &report.components {
        assert!(component.ran(), "{component:#?}");
        assert_eq!((component.tool.as_str(), &component.stand_in), ("stress-ng", &None));
        assert!(component.version.as_deref().unwrap().contains("stress-ng"), "{component:?}");
    }
    let proof = |index: usize, key: &str| report.components[index].proof[key];
    assert!(
        proof(0, "matrix_bogo_ops") > 0 && proof(2, "switch_bogo_ops") > 0 && proof(3, "fork_bogo_ops") > 0
    );
    assert!(report.components[1].asked.contains("--vm-bytes 64m"), "{}", report.components[1].asked);
    assert!(proof(1, "resident_bytes") < 512 << 20);
    assert!(report.system.switches_per_s > 0.0 && report.system.forks_per_s > 0.0);
    assert!(report.problems().is_empty(), "{:?}", report.problems());
    assert_eq!(alive_in_group(group), []);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn memory_by_one_method_is_filled_first_and_counted_to_the_end() {
    if !has("stress-ng", "--version") {
        return;
    }
    let method = Some("write64".to_owned());
    let memory = Component::Memory { workers: 2, share: 0.75, cap_mib: Some(32), method };
    let profile = Profile { name: "m".into(), require_tools: true, components: vec![memory] };
    let scratch = scratch();
    let load = Load::start(&profile, scratch.path()).unwrap();
    // Held when the load counts as started, and written to afterwards.
    std::thread::sleep(Duration::from_millis(200));
    let report = load.stop();
    let proof = &report.components[0].proof;
    assert!(proof["resident_bytes"] >= 28 << 20, "{proof:?}");
    assert!(proof["memory_bogo_ops"] > 0, "{proof:?}");
    let work = report.work();
    assert!(work["memory_resident_mib"] >= 28.0 && work["memory_bogo_ops_per_s"] > 0.0, "{work:?}");
}

/// CPU time of what a tool has started.
fn ticks_used(stress: &StressNg) -> u64 {
    let all = processes::all();
    let family = processes::descendants(stress.pid().unwrap(), &all);
    family.iter().map(|each| each.cpu_ticks).sum()
}

/// The start-up time of the profile's other stressors is not part of the memory's working time.
#[test]
fn memory_stress_is_held_still_outside_the_window() {
    if !has("stress-ng", "--version") {
        return;
    }
    let arguments =
        "--vm 1 --vm-bytes 16m --vm-method write64 --vm-keep --vm-populate --timeout 0 --metrics-brief";
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let guard = Guard::start().unwrap();
    let stress = StressNg::start("stress-ng".as_ref(), "vm", &arguments, guard.group()).unwrap();
    let mut stress = stress.counting_to_the_end(true);
    let until = Instant::now() + Duration::from_secs(20);
    stress.await_workers(1, until).unwrap();
    stress.await_resident(16 << 20, until).unwrap();
    stress.pause();
    let paused = ticks_used(&stress);
    std::thread::sleep(Duration::from_millis(300));
    assert!(ticks_used(&stress) <= paused + 1, "it works while it is held still");
    stress.resume();
    eventually("it works again", || ticks_used(&stress) > paused + 5);
    stress.pause();
    let (_, operations) = stress.end();
    assert!(operations > 0, "one that is held still ends with its count");
}

/// A walk that the end cuts off is work, too: kernels would differ by a whole walk else.
#[test]
fn an_unfinished_walk_through_memory_is_counted() {
    if !has("stress-ng", "--version") {
        return;
    }
    // A count is a MiB.
    let arguments =
        "--vm 1 --vm-bytes 256m --vm-method write64 --vm-keep --vm-populate --timeout 0 --metrics-brief";
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let partial = (2..12).any(|ticks| {
        let guard = Guard::start().unwrap();
        let stress = StressNg::start("stress-ng".as_ref(), "vm", &arguments, guard.group()).unwrap();
        let mut stress = stress.counting_to_the_end(true);
        let until = Instant::now() + Duration::from_secs(20);
        stress.await_workers(1, until).unwrap();
        stress.await_resident(256 << 20, until).unwrap();
        let filled = ticks_used(&stress);
        stress.resume();
        eventually("it works", || ticks_used(&stress) >= filled + ticks);
        stress.pause();
        let (_, operations) = stress.end();
        println!("{operations} MiB");
        operations > 0 && operations % 256 != 0
    });
    assert!(partial, "only whole walks are counted");
}

#[test]
fn hackbench_goes_on_and_on() {
    if !has("hackbench", "--help") {
        return;
    }
    let component = Component::Hackbench { groups: 1, loops: 20, kill_every_s: None };
    let profile = Profile { name: "h".into(), require_tools: true, components: vec![component] };
    let load = Load::start(&profile, Path::new("/nonexistent")).unwrap();
    let group = load.guard.as_ref().unwrap().group();
    eventually("a third run", || match &load.shared.lock()[0].engine {
        Engine::Repeated(_, hackbench) => hackbench.runs_started() >= 3,
        _ => false,
    });
    load.check().unwrap();
    let report = load.stop();
    let component = &report.components[0];
    assert!(component.ran() && component.cpu_s > 0.0, "{component:#?}");
    assert!(component.proof["runs_finished"] >= 2);
    assert_eq!(component.proof["messages"], component.proof["runs_finished"] * 20 * 20 * 20);
    assert_eq!(component.processes, 40);
    assert_eq!(alive_in_group(group), []);
}

/// `killall hackbench; sleep 5`, here every second: a run that would last for hours is killed and
/// begun anew, and that is no death.
#[test]
fn hackbench_is_killed_and_started_anew() {
    if !has("hackbench", "--help") {
        return;
    }
    let component = Component::Hackbench { groups: 1, loops: 1_000_000, kill_every_s: Some(1) };
    let profile = Profile { name: "h".into(), require_tools: true, components: vec![component] };
    let load = Load::start(&profile, Path::new("/nonexistent")).unwrap();
    let group = load.guard.as_ref().unwrap().group();
    eventually("a second run", || match &load.shared.lock()[0].engine {
        Engine::Repeated(_, hackbench) => hackbench.runs_started() >= 2,
        _ => false,
    });
    load.check().unwrap();
    let report = load.stop();
    let proof = &report.components[0].proof;
    assert!(proof["runs_killed"] >= 1 && proof["runs_finished"] == 0, "{proof:?}");
    assert_eq!(alive_in_group(group), []);
}

/// The other lines of the 2009 paper's Figure 5, by the programs that it names.
#[test]
fn the_papers_script_runs_its_own_programs() {
    if !has("dd", "--version") || !has("du", "--version") {
        return;
    }
    let scratch = scratch();
    let components =
        vec![Component::Dd { blocks: 4 }, Component::Du { folder: env!("CARGO_MANIFEST_DIR").into() }];
    let profile = Profile { name: "p".into(), require_tools: true, components };
    let load = Load::start(&profile, scratch.path()).unwrap();
    let group = load.guard.as_ref().unwrap().group();
    let finished = |part: usize| match &load.shared.lock()[part].engine {
        Engine::Repeated(_, tool) => tool.runs_started() >= 3,
        _ => false,
    };
    eventually("a third run of both", || finished(0) && finished(1));
    load.check().unwrap();
    let report = load.stop();
    let [dd, du] = [&report.components[0], &report.components[1]];
    assert!(dd.ran() && du.ran(), "{report:#?}");
    assert_eq!((dd.tool.as_str(), du.tool.as_str()), ("dd", "du"));
    assert!(dd.asked.starts_with("dd if=/dev/zero bs=1024000 count=4"), "{}", dd.asked);
    assert_eq!(dd.proof["bytes_written"], dd.proof["runs_finished"] * 4 * 1_024_000);
    assert!(dd.stand_in.is_none() && du.stand_in.is_none());
    assert_eq!(alive_in_group(group), []);
    // The file never had a name that anybody could find.
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_flood_of_pings_counts_its_requests() {
    if !has("ping", "-V") {
        return;
    }
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return takt_witness::skip!("a flood needs root");
    }
    let component = Component::Ping { preload: 100, payload_bytes: 10 };
    let profile = Profile { name: "p".into(), require_tools: true, components: vec![component] };
    let load = Load::start(&profile, Path::new("/nonexistent")).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    load.check().unwrap();
    let report = load.stop();
    assert!(report.components[0].proof["requests"] > 100, "{report:#?}");
}

#[test]
fn without_its_programs_the_script_has_stand_ins_that_say_so() {
    let scratch = scratch();
    let components = vec![
        Component::Dd { blocks: 4 },
        Component::Du { folder: env!("CARGO_MANIFEST_DIR").into() },
        Component::Ping { preload: 1, payload_bytes: 10 },
    ];
    let profile = Profile { name: "p".into(), require_tools: false, components };
    let load = Load::start_with(&profile, scratch.path(), &missing_tools()).unwrap();
    let report = load.stop();
    for component in &report.components {
        assert!(component.ran() && component.tool == "built-in", "{component:#?}");
        assert!(
            component.stand_in.as_deref().is_some_and(|why| why.contains("/nonexistent/")),
            "{component:#?}"
        );
    }
    let insists = Profile { require_tools: true, ..profile };
    let error = Load::start_with(&insists, scratch.path(), &missing_tools()).unwrap_err().to_string();
    assert!(error.contains("dd") && error.contains("coreutils"), "{error}");
}

/// Tools of a process that the kernel must not kill are the first that it may.
#[test]
fn a_protected_process_has_tools_that_are_not() {
    if !has("hackbench", "--help") {
        return;
    }
    let protected = match takt_rt::oom::Protected::begin() {
        Ok(protected) => protected,
        Err(error) => return takt_witness::skip!("no right to lower oom_score_adj: {error}"),
    };
    let component = Component::Hackbench { groups: 1, loops: 1_000_000, kill_every_s: None };
    let profile = Profile { name: "h".into(), require_tools: true, components: vec![component] };
    let load = Load::start(&profile, Path::new("/nonexistent")).unwrap();
    let running = alive_in_group(load.guard.as_ref().unwrap().group());
    let score = |pid: i32| fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap_or_default();
    let tools: Vec<String> = running
        .iter()
        .filter(|process| process.name.starts_with("hackbench"))
        .map(|process| score(process.pid).trim().to_owned())
        .collect();
    assert!(tools.len() > 40 && tools.iter().all(|score| score == "1000"), "{tools:?}");
    load.stop();
    drop(protected);
}

#[test]
fn hackbench_is_ended_in_the_middle_of_a_run() {
    if !has("hackbench", "--help") {
        return;
    }
    let component = Component::Hackbench { groups: 1, loops: 1_000_000, kill_every_s: None };
    let profile = Profile { name: "h".into(), require_tools: true, components: vec![component] };
    let load = Load::start(&profile, Path::new("/nonexistent")).unwrap();
    let group = load.guard.as_ref().unwrap().group();
    assert!(alive_in_group(group).len() > 40);
    let report = load.stop();
    assert!(report.components[0].ran(), "{report:#?}");
    assert_eq!(report.components[0].proof["runs_finished"], 0);
    assert_eq!(alive_in_group(group), []);
}

#[test]
fn built_in_components_prove_their_work() {
    let _alone = crate::noise::ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = scratch();
    let components = vec![
        Component::Disk { file_mib: 4, mib_per_s: 100 },
        Component::Walk { folder: env!("CARGO_MANIFEST_DIR").into() },
        Component::Network { datagrams_per_s: 5000, payload_bytes: 10 },
        Component::Noise { threads: 1 },
    ];
    let profile = Profile { name: "b".into(), require_tools: true, components };
    let load = match Load::start(&profile, scratch.path()) {
        Err(LoadError::File { component: "disk", source, .. }) if source.to_string().contains("tmpfs") => {
            takt_witness::skip!("the scratch folder is in memory");
            return;
        }
        outcome => outcome.unwrap(),
    };
    // More than the file holds: it has been begun anew. The name is gone all the while.
    let amount = |index: usize, unit: &str| match &load.shared.lock()[index].engine {
        Engine::Threads(workers) => workers.amounts().find(|(name, _)| *name == unit).unwrap().1,
        _ => 0,
    };
    eventually("the second round of the disk", || amount(0, "bytes_written") > 5 * MIB);
    eventually("an echo", || amount(2, "datagrams_echoed") > 10);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    load.check().unwrap();
    let report = load.stop();
    assert!(report.components.iter().all(ComponentReport::ran), "{report:#?}");
    let network = &report.components[2].proof;
    assert!(network["datagrams_echoed"] <= network["datagrams_sent"], "{network:?}");
    // The rates are bounds.
    assert!(network["datagrams_sent"] as f64 <= 5000.0 * (report.seconds + 1.0) + 10.0, "{network:?}");
    let written = report.components[0].proof["bytes_written"] as f64;
    assert!(written <= (100 * MIB) as f64 * (report.seconds + 1.0) + 2e6, "{written}");
}

#[test]
fn threads_stand_in_for_missing_tools_and_are_labelled() {
    let mut profile = small_uav();
    profile.components.push(Component::Hackbench { groups: 1, loops: 100, kill_every_s: None });
    let scratch = scratch();
    let load = Load::start_with(&profile, scratch.path(), &missing_tools()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    load.check().unwrap();
    let report = load.stop();
    for component in &report.components {
        assert!(component.ran() && component.tool == "built-in", "{component:#?}");
        assert!(component.stand_in.as_deref().unwrap().contains("/nonexistent"), "{component:?}");
    }
    assert_eq!(report.problems().len(), 5);

    profile.require_tools = true;
    let error = Load::start_with(&profile, scratch.path(), &missing_tools()).unwrap_err();
    assert!(matches!(error, LoadError::ToolMissing { tool: "stress-ng", .. }), "{error}");
    assert!(error.to_string().contains("apt-get install stress-ng"), "{error}");
}

#[test]
fn a_tool_that_is_none_is_an_error_before_anything_is_measured() {
    // `true` answers to --version and ends at once.
    let tools = Tools { stress_ng: "true".into(), hackbench: "false".into(), ..Tools::default() };
    let scratch = scratch();
    let error = Load::start_with(&small_uav(), scratch.path(), &tools).unwrap_err();
    assert!(error.to_string().contains("ended before it ran"), "{error}");
    let components = vec![Component::Hackbench { groups: 1, loops: 1, kill_every_s: None }];
    let profile = Profile { name: "h".into(), require_tools: false, components };
    let error = Load::start_with(&profile, scratch.path(), &tools).unwrap_err();
    assert!(error.to_string().contains("ended before it ran"), "{error}");
}

#[test]
fn a_scratch_folder_that_is_not_there_is_named() {
    let profile = Profile::named("disk").unwrap();
    let error = Load::start(&profile, Path::new("/nonexistent/folder")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/folder"), "{error}");
}

#[test]
fn a_dying_tool_is_noticed() {
    if !has("stress-ng", "--version") {
        return;
    }
    let scratch = scratch();
    let matrix = Component::Matrix { workers: 2 };
    let profile = Profile { name: "m".into(), require_tools: true, components: vec![matrix.clone(), matrix] };
    let load = Load::start(&profile, scratch.path()).unwrap();
    load.check().unwrap();
    // One loses a worker, the other its main process.
    let group = load.guard.as_ref().unwrap().group();
    let all = alive_in_group(group);
    let mains: Vec<_> = all.iter().filter(|process| process.name == "stress-ng").collect();
    assert_eq!(mains.len(), 2, "{all:?}");
    let worker = all.iter().find(|process| process.parent == mains[0].pid).unwrap();
    for pid in [worker.pid, mains[1].pid] {
        // SAFETY: kill takes two integers; both are processes of this load.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    }
    eventually("the watch", || load.shared.lock().iter().all(|part| part.died.is_some()));
    let error = load.check().unwrap_err().to_string();
    assert!(error.contains("matrix (stress-ng) ended"), "{error}");
    let report = load.stop();
    let whys: Vec<_> = report.components.iter().map(|part| part.died.clone().unwrap().why).collect();
    assert!(whys.iter().any(|why| why.contains("1 of 2 workers ended")), "{whys:?}");
    assert!(whys.iter().any(|why| why.contains("signal: 9")), "{whys:?}");
    assert!(report.components.iter().all(|component| !component.ran()));
    assert_eq!(report.problems().len(), 2);
    assert_eq!(alive_in_group(group), []);
}

#[test]
fn a_memory_component_is_given_up_with_a_reason() {
    let mut profile = small_uav();
    profile.components.truncate(2);
    let scratch = scratch();
    let load = Load::start_with(&profile, scratch.path(), &missing_tools()).unwrap();
    load.shared.lock()[1].give_up(1.5, "ended by Takt: memory".into());
    // The first cause stays.
    load.shared.lock()[1].give_up(2.5, "again".into());
    let error = load.check().unwrap_err();
    assert!(matches!(&error, LoadError::Died { component, .. } if component == "memory"), "{error}");
    let report = load.stop();
    assert!(report.components[0].ran() && !report.components[1].ran());
    assert!(report.problems().iter().any(|problem| problem.contains("after 1.5 s: ended by Takt")));
}

/// Not a test of its own: what [`killing_the_program_leaves_nothing`] starts in another process.
#[test]
fn child_that_is_killed() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let mut profile = small_uav();
    profile.components.push(Component::Hackbench { groups: 1, loops: 1_000_000, kill_every_s: None });
    profile.components.push(Component::Disk { file_mib: 4, mib_per_s: 10 });
    let load = Load::start(&profile, Path::new(&folder)).unwrap();
    println!("GROUP {}", load.guard.as_ref().unwrap().group());
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn killing_the_program_leaves_nothing() {
    use std::io::{BufRead, BufReader};
    if !has("stress-ng", "--version") || !has("hackbench", "--help") {
        return;
    }
    let scratch = scratch();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "load::tests::child_that_is_killed", "--nocapture"])
        .env(CHILD, scratch.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let group = lines.find_map(|line| line.split_once("GROUP ")?.1.trim().parse::<i32>().ok());
    child.kill().unwrap();
    child.wait().unwrap();
    let group = group.expect("the child started its load");
    eventually("the end of the group", || alive_in_group(group).is_empty());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_report_is_read_back() {
    let report = LoadReport {
        profile: "x".into(),
        seconds: 1.5,
        components: vec![ComponentReport {
            kind: "noise".into(),
            tool: "built-in".into(),
            version: None,
            stand_in: None,
            asked: "2 noise threads".into(),
            processes: 2,
            cpu_s: 0.5,
            cpu_share: 0.25,
            proof: BTreeMap::from([("operations".into(), 7)]),
            died: Some(Death { after_s: 1.0, why: "signal: 9".into() }),
        }],
        system: crate::system::Rates { forks_per_s: 3.0, ..Default::default() },
    };
    let text = toml::to_string(&report).unwrap();
    assert_eq!(toml::from_str::<LoadReport>(&text).unwrap(), report);
}

/// Not a test of its own: the process with GPU interference, which the tests below start.
#[test]
fn gpu_child() {
    if std::env::var_os(CHILD).is_some_and(|which| which == "gpu") {
        let config = std::env::args().next_back().unwrap_or_default();
        let code = takt_gpu::interference_process::run(&config);
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
}

/// Tools with the above, on the emulated device or on a driver that is not there.
fn gpu_tools(emulated: bool) -> Option<Tools> {
    let mut arguments: Vec<String> = [format!("{CHILD}=gpu")].into();
    if emulated {
        let emulator = takt_gpu::testing::emulator().inspect_err(|why| takt_witness::skip!("{why}")).ok()?;
        let environment = emulator.environment("");
        arguments.extend(environment.map(|(name, value)| format!("{name}={}", value.display())));
    } else {
        arguments.push("TAKT_CUDA_LIBRARY=/nonexistent/libcuda.so.1".into());
    }
    let exe = std::env::current_exe().unwrap();
    arguments.push(exe.display().to_string());
    arguments.extend(["--exact", "load::tests::gpu_child", "--nocapture"].map(str::to_owned));
    Some(Tools { gpu: ("/usr/bin/env".into(), arguments), ..Tools::default() })
}

fn gpu_profile() -> Profile {
    let work = crate::profile::GpuWork { kernel_us: Some(100), ..Default::default() };
    let mut copies = work.clone();
    (copies.work, copies.mib) = (crate::gpu::GpuLoadKind::Copies, Some(1));
    let components = vec![Component::Gpu(work), Component::Gpu(copies)];
    Profile { name: "gpu".into(), require_tools: false, components }
}

#[test]
fn work_on_a_gpu_proves_itself_and_ends_with_the_load() {
    let Some(tools) = gpu_tools(true) else { return };
    let load = Load::start_with(&gpu_profile(), Path::new("/var/tmp"), &tools).unwrap();
    load.check().unwrap();
    let group = load.guard.as_ref().unwrap().group();
    assert!(alive_in_group(group).len() >= 3);
    let report = load.stop();
    for component in &report.components {
        assert!(component.ran(), "{component:?}");
        assert!(component.proof["launches"] > 0 && component.proof["device_ns"] > 0, "{component:?}");
    }
    assert!(report.components[1].proof["bytes_moved"] > 0);
    assert_eq!(report.components[0].kind, "gpu.compute");
    // The label: these were no figures of a GPU.
    assert!(
        report.problems().iter().all(|problem| problem.contains("emulated device, no GPU")),
        "{report:?}"
    );
    assert_eq!(report.problems().len(), 2);
    assert!(alive_in_group(group).is_empty());
}

#[test]
fn no_gpu_is_no_load_but_one_sentence() {
    let tools = gpu_tools(false).unwrap();
    let error = Load::start_with(&gpu_profile(), Path::new("/var/tmp"), &tools).unwrap_err().to_string();
    assert!(
        error.contains("gpu.compute") && error.contains("no CUDA driver: looked for /nonexistent"),
        "{error}"
    );
}

#[test]
fn work_on_a_gpu_that_is_killed_is_a_death() {
    let Some(tools) = gpu_tools(true) else { return };
    let mut profile = gpu_profile();
    profile.components.truncate(1);
    let load = Load::start_with(&profile, Path::new("/var/tmp"), &tools).unwrap();
    let group = load.guard.as_ref().unwrap().group();
    for process in alive_in_group(group).iter().filter(|process| process.pid != group) {
        if process.name.starts_with("takt_load") {
            // SAFETY: kill takes two integers; the process is this load's.
            unsafe { libc::kill(process.pid, libc::SIGKILL) };
        }
    }
    eventually("the death", || load.check().is_err());
    let report = load.stop();
    assert!(!report.components[0].ran() && !report.problems().is_empty());
}
