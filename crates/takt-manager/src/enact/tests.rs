//! Enactment on the simulated kernel: sequences of plans, threads that come, go and sleep, and an
//! end at every single step.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::restore;
use crate::system::Attributes;
use crate::system::sim::Sim;

const MS: u64 = 1_000_000;

fn platform() -> Platform {
    Platform::new(vec![1, 2, 3], 0, 0.9)
}

fn options(folder: &Path, modes: &[Mode]) -> Options {
    Options { modes: modes.to_vec(), state: folder.join("state.json"), ..Options::default() }
}

/// Two processes: threads 10 to 15 and 20 to 25, and kernel threads.
fn system() -> Sim {
    let mut sim = Sim::new(4);
    for pid in [10, 20] {
        for tid in pid..pid + 6 {
            sim.spawn(pid, tid, "worker");
        }
    }
    sim.spawn(2, 30, "kernel-free");
    sim.spawn(2, 31, "kernel-bound");
    sim.threads.get_mut(&30).unwrap().pid = 30;
    sim.threads.get_mut(&31).unwrap().pid = 31;
    sim.threads.get_mut(&24).unwrap().attributes = Attributes::reservation(MS, 20 * MS, false);
    // One that its application has bound, and one that it made real-time.
    sim.threads.get_mut(&15).unwrap().cpus = CpuSet::single(2).unwrap();
    sim.threads.get_mut(&25).unwrap().attributes =
        Attributes { policy: libc::SCHED_FIFO as u32, priority: 3, ..Attributes::default() };
    sim
}

fn wanted(tid: u32, percent: u64, core: usize) -> Wanted {
    let held = Held { budget_ns: percent * MS / 10, period_ns: 10 * MS, core };
    Wanted { pid: tid / 10 * 10, tid, name: format!("t{tid}"), held, patience_ns: 20 * MS }
}

fn target(reservations: Vec<Wanted>, best_effort: &[u32]) -> Target {
    Target {
        reservations,
        best_effort: best_effort.iter().map(|&tid| (tid / 10 * 10, tid)).collect(),
        processes: BTreeSet::from([10, 20]),
        alone: false,
    }
}

#[test]
fn a_plan_is_made_so_and_undone() {
    for mode in [Mode::ExclusiveSets, Mode::AdmissionOff] {
        let folder = tempfile::tempdir().unwrap();
        let mut sim = system();
        for tid in [10, 11, 20] {
            sim.threads.get_mut(&tid).unwrap().last = 0;
        }
        let before = sim.settings();
        let mut enactor = Enactor::new(sim, &platform(), options(folder.path(), &[mode])).unwrap();
        let plan = target(vec![wanted(10, 50, 1), wanted(11, 40, 1), wanted(20, 70, 2)], &[12, 21]);
        let enacted = enactor.enact(&plan).unwrap();
        assert!(enacted.holds(), "{:?}", enacted.differences);
        assert_eq!(enacted.differences, [], "{mode}");
        assert_eq!((enacted.reserved.len(), enacted.best_effort), (3, 2), "{mode}");
        // 12 threads less five named and the two that their application made real-time.
        assert_eq!(enacted.helpers, 5, "{mode}");
        // Nothing is known of it yet.
        assert_eq!(attributes_of(&enactor, 13), Attributes::other(0), "{mode}");
        assert_eq!(attributes_of(&enactor, 25).priority, 3, "{mode}");
        assert_eq!(enactor.kernel.affinity(30).unwrap(), CpuSet::single(0).unwrap(), "{mode}");
        let kernel = enactor.kernel.clone();
        assert!(enactor.journal.state().threads.len() >= 12);
        let undone = enactor.journal.undo(&mut enactor.kernel).unwrap();
        assert!(undone.is_complete(), "{mode}: {undone}");
        assert_eq!(enactor.kernel.settings(), before, "{mode}");
        // And again, as a second party may: nothing is left to do.
        assert_ne!(kernel.settings(), before, "{mode}");
        assert_eq!(enactor.restore().unwrap(), Restored::default(), "{mode}");
    }
}

fn attributes_of(enactor: &Enactor<Sim>, tid: u32) -> Attributes {
    enactor.kernel.attributes(tid).unwrap()
}

#[test]
fn ways_are_tried_in_order_and_refusals_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = system();
    sim.has_cpusets = false;
    let before = sim.settings();
    let enactor = Enactor::new(sim.clone(), &platform(), options(folder.path(), &Mode::ALL)).unwrap();
    assert_eq!(enactor.mode(), Mode::AdmissionOff);
    let refused: Vec<Mode> = enactor.refusals().iter().map(|refusal| refusal.mode).collect();
    assert_eq!(refused, []);
    drop(enactor);

    sim.may_switch_admission_off = false;
    let error = Enactor::new(sim.clone(), &platform(), options(folder.path(), &Mode::ALL)).unwrap_err();
    assert!(matches!(&error, Error::NothingGranted { refusals } if refusals.len() == 3), "{error}");
    assert_eq!(sim.settings(), before);
    let offline = Platform { cores: vec![9], ..platform() };
    let error = Enactor::new(sim, &offline, options(folder.path(), &Mode::ALL)).unwrap_err();
    assert!(matches!(error, Error::Core { core: 9, .. }), "{error}");
}

#[test]
fn reservations_of_others_that_overfill_a_core_end_the_guarantee() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = system();
    sim.spawn(50, 50, "another program");
    sim.spawn(50, 51, "schedutil");
    let mut enactor = Enactor::new(sim, &platform(), options(folder.path(), &[Mode::AdmissionOff])).unwrap();
    let plan = target(vec![wanted(10, 80, 1)], &[]);
    let mut others = |percent: u64, cpus: &[usize], flags: u64| {
        let thread = enactor.kernel.threads.get_mut(&50).unwrap();
        thread.attributes = Attributes::reservation(percent * MS / 10, 10 * MS, false);
        thread.attributes.flags |= flags;
        thread.cpus = CpuSet::from_cpus(cpus.iter().copied()).unwrap();
        let enacted = enactor.enact(&plan).unwrap();
        (enacted.holds(), attributes_of(&enactor, 10).reclaims())
    };
    // Thread 24 of the plan's processes has 5 % of its own, wherever it runs.
    assert_eq!(others(30, &[2], 0), (true, false), "it shares a domain, so that nobody knows what is free");
    assert_eq!(others(30, &[1, 2], 0), (false, false));
    assert_eq!(others(10, &[1, 2], 0), (true, false));
    const SUGOV: u64 = 0x1000_0000;
    assert_eq!(others(30, &[1], SUGOV), (true, false), "the kernel's own has no bandwidth");
}

#[test]
fn a_thread_that_vanished_is_no_error_and_a_number_used_again_is_another_thread() {
    let folder = tempfile::tempdir().unwrap();
    let mut enactor =
        Enactor::new(system(), &platform(), options(folder.path(), &[Mode::ExclusiveSets])).unwrap();
    let plan = target(vec![wanted(10, 50, 1), wanted(11, 40, 1)], &[12]);
    enactor.enact(&plan).unwrap();
    enactor.kernel.threads.remove(&11);
    let enacted = enactor.enact(&plan).unwrap();
    assert_eq!((enacted.gone, enacted.reserved.len()), (1, 1));
    assert_eq!(enacted.differences, []);
    // Its room is free again.
    let plan = target(vec![wanted(10, 90, 1)], &[]);
    assert_eq!(enactor.enact(&plan).unwrap().differences, []);
    // Another thread has its number now: what was recorded of the former is not given to it.
    enactor.kernel.spawn(20, 11, "another");
    let mine = enactor.kernel.threads[&11].clone();
    enactor.journal.undo(&mut enactor.kernel).unwrap();
    assert_eq!(enactor.kernel.threads[&11], mine);
}

#[test]
fn a_helper_that_computes_goes_back_to_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut enactor =
        Enactor::new(system(), &platform(), options(folder.path(), &[Mode::AdmissionOff])).unwrap();
    let plan = target(vec![wanted(10, 50, 1)], &[]);
    enactor.enact(&plan).unwrap();
    let mut at_ns = monotonic_ns();
    // A second in which the threads of process 10 ran so many times for so long in all.
    let mut second = |enactor: &mut Enactor<Sim>, tid: u32, turns: u64, ran_ms: u64| {
        at_ns += 1_000 * MS;
        let thread = enactor.kernel.threads.get_mut(&tid).unwrap();
        thread.turns += turns;
        thread.run_ns += ran_ms * MS;
        enactor.watch(at_ns);
        enactor.kernel.attributes(tid).unwrap()
    };
    let everywhere = CpuSet::from_cpus(0..4).unwrap();
    let messenger = second(&mut enactor, 13, 100, 10);
    assert_eq!((messenger.policy, messenger.priority), (libc::SCHED_RR as u32, 10));
    assert_eq!(enactor.kernel.affinity(13).unwrap(), everywhere, "the kernel finds the free CPU");
    assert_eq!(attributes_of(&enactor, 14), Attributes::other(0), "it sleeps, and nothing is known of it");
    assert_eq!(second(&mut enactor, 13, 0, 0), messenger, "nothing to carry for once");
    // Long turns are a computation, however rare.
    assert_eq!(second(&mut enactor, 14, 4, 40), Attributes::other(0));
    // All messengers together may have a fifth of a CPU.
    for tid in [20, 21, 22, 23] {
        second(&mut enactor, tid, 1000, 45);
    }
    for _ in 0..2 {
        let computing = second(&mut enactor, 13, 10, 900);
        assert_eq!(computing, Attributes::other(0));
        assert_eq!(enactor.kernel.affinity(13).unwrap(), everywhere);
        enactor.enact(&plan).unwrap();
    }
    assert_eq!(second(&mut enactor, 13, 100, 10), Attributes::other(0), "never again");
}

/// `nice ros2 launch`, or `Nice=` of a unit: no thread chose that.
#[test]
fn a_nice_value_of_the_whole_process_keeps_no_messenger_from_being_raised() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = system();
    for tid in 10..16 {
        sim.threads.get_mut(&tid).unwrap().attributes = Attributes::other(5);
    }
    // One that is nicer than its process, by its own choice, and one that is alone in that in its
    // process.
    sim.threads.get_mut(&12).unwrap().attributes = Attributes::other(10);
    sim.threads.get_mut(&21).unwrap().attributes = Attributes::other(-5);
    let mut enactor = Enactor::new(sim, &platform(), options(folder.path(), &[Mode::AdmissionOff])).unwrap();
    enactor.enact(&target(vec![wanted(10, 50, 1)], &[])).unwrap();
    assert!(enactor.uncarried().is_empty(), "nothing is known yet");
    for tid in [11, 12, 21] {
        let thread = enactor.kernel.threads.get_mut(&tid).unwrap();
        (thread.turns, thread.run_ns) = (500, 10 * MS);
    }
    enactor.watch(monotonic_ns() + 1_000 * MS);
    let raised = |tid: u32| attributes_of(&enactor, tid).policy == libc::SCHED_RR as u32;
    assert_eq!([11, 12, 21].map(raised), [true, false, false]);
    // Nothing carries the messages of process 20.
    assert_eq!(enactor.uncarried(), BTreeSet::from([20]));
    enactor.journal.undo(&mut enactor.kernel).unwrap();
    assert_eq!(attributes_of(&enactor, 11), Attributes::other(5));
}

#[test]
fn messengers_together_get_no_more_than_one_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut enactor =
        Enactor::new(system(), &platform(), options(folder.path(), &[Mode::AdmissionOff])).unwrap();
    let plan = target(vec![], &[]);
    enactor.enact(&plan).unwrap();
    let tids = [11, 12, 13, 14, 20, 21];
    for (i, tid) in tids.iter().enumerate() {
        let thread = enactor.kernel.threads.get_mut(tid).unwrap();
        (thread.turns, thread.run_ns) = (500, (40 + i as u64) * MS);
    }
    enactor.watch(monotonic_ns() + 1_000 * MS);
    let raised = tids.iter().filter(|tid| attributes_of(&enactor, **tid).policy == libc::SCHED_RR as u32);
    // 40, 41, 42, 43 ms are 166; a fifth more would be above 200.
    assert_eq!(raised.copied().collect::<Vec<_>>(), [11, 12, 13, 14]);
}

#[test]
fn a_thread_that_a_reserved_one_makes_gets_the_cpus_of_its_process() {
    for mode in [Mode::AdmissionOff, Mode::ExclusiveSets] {
        let folder = tempfile::tempdir().unwrap();
        let mut sim = system();
        sim.threads.get_mut(&11).unwrap().last = 1;
        let mut enactor = Enactor::new(sim, &platform(), options(folder.path(), &[mode])).unwrap();
        enactor.enact(&target(vec![wanted(11, 50, 1)], &[])).unwrap();
        let now_ns = monotonic_ns();
        enactor.watch(now_ns);
        enactor.kernel.fork(11, 40);
        enactor.kernel.wake(40);
        assert_eq!(enactor.kernel.affinity(40).unwrap(), CpuSet::single(1).unwrap());
        enactor.watch(now_ns + 15 * MS);
        assert_eq!(enactor.kernel.affinity(40).unwrap(), CpuSet::from_cpus(0..4).unwrap(), "{mode}");
    }
}

#[test]
fn reclaiming_is_given_with_fillers_and_ended_for_who_takes_it_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = system();
    sim.threads.get_mut(&24).unwrap().attributes = Attributes::other(0);
    let mut enactor = Enactor::new(sim, &platform(), options(folder.path(), &[Mode::AdmissionOff])).unwrap();
    let plan = target(vec![wanted(10, 50, 1), wanted(11, 20, 2), wanted(20, 30, 2)], &[]);
    assert_eq!(enactor.enact(&plan).unwrap().differences, []);
    assert!(attributes_of(&enactor, 10).reclaims());
    // The same sum on every CPU, those without reservations among them.
    let filled = |enactor: &Enactor<Sim>, cpu| {
        enactor.kernel.fillers.get(&cpu).map_or(0.0, |f| f.runtime_ns as f64 / f.period_ns as f64)
    };
    for (cpu, expected) in [(0, 0.9), (1, 0.4), (2, 0.4), (3, 0.9)] {
        assert!((filled(&enactor, cpu) - expected).abs() < 1e-6, "{cpu}: {:?}", enactor.kernel.fillers);
    }
    let mut at_ns = monotonic_ns();
    let mut run = |enactor: &mut Enactor<Sim>, ran_ms: u64, wants: bool| {
        at_ns += 20 * MS;
        let thread = enactor.kernel.threads.get_mut(&10).unwrap();
        thread.run_ns += ran_ms * MS;
        thread.wants = wants;
        enactor.watch(at_ns);
        enactor.kernel.attributes(10).unwrap().reclaims()
    };
    run(&mut enactor, 0, false);
    let ended = (0..5).any(|_| !run(&mut enactor, 20, true));
    assert!(ended, "100 ms in 100 on a reservation of half a CPU");
    // It goes on without its reservation, until it has caught up or a new plan gives it back.
    assert!(!attributes_of(&enactor, 10).is_deadline());
    assert_eq!(enactor.enact(&plan).unwrap().differences, []);
    assert!(attributes_of(&enactor, 10).reclaims() && attributes_of(&enactor, 11).reclaims());
    assert!((0..5).any(|_| run(&mut enactor, 0, false)));
    enactor.end_fillers();
    assert!(enactor.kernel.fillers.is_empty());

    let mut old = system();
    old.files.insert("/proc/sys/kernel/osrelease".into(), "6.12.4\n".into());
    let folder = tempfile::tempdir().unwrap();
    let mut enactor = Enactor::new(old, &platform(), options(folder.path(), &[Mode::AdmissionOff])).unwrap();
    assert!(enactor.no_reclaim().is_some_and(|why| why.contains("6.12")));
    enactor.enact(&plan).unwrap();
    assert!(!attributes_of(&enactor, 10).reclaims() && enactor.kernel.fillers.is_empty());
}

/// GRUB and nothing beside it: who wants more without end is reported, and keeps its reservation.
#[test]
fn what_the_kernel_reclaims_is_all_that_the_papers_reservations_have() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = system();
    sim.threads.get_mut(&24).unwrap().attributes = Attributes::other(0);
    let options = Options { soft: Soft::Grub, ..options(folder.path(), &[Mode::AdmissionOff]) };
    let mut enactor = Enactor::new(sim, &platform(), options).unwrap();
    let plan = target(vec![wanted(10, 50, 1), wanted(20, 30, 2)], &[]);
    assert_eq!(enactor.enact(&plan).unwrap().differences, []);
    let (mut at_ns, mut overruns) = (monotonic_ns(), 0);
    for _ in 0..6 {
        at_ns += 20 * MS;
        let thread = enactor.kernel.threads.get_mut(&10).unwrap();
        thread.run_ns += 20 * MS;
        thread.wants = true;
        overruns += enactor.watch(at_ns).len();
        assert!(attributes_of(&enactor, 10).reclaims(), "it is never released");
    }
    assert!(overruns > 0, "120 ms in 120 on a reservation of half a CPU");
}

#[test]
fn a_sleeper_whose_domain_is_full_is_reserved_when_it_wakes() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = system();
    sim.threads.get_mut(&11).unwrap().last = 2;
    for tid in [10, 20] {
        sim.threads.get_mut(&tid).unwrap().last = 1;
    }
    let mut enactor = Enactor::new(sim, &platform(), options(folder.path(), &[Mode::ExclusiveSets])).unwrap();
    enactor.enact(&target(vec![wanted(20, 80, 2)], &[])).unwrap();
    let enacted = enactor.enact(&target(vec![wanted(20, 80, 2), wanted(11, 50, 1)], &[])).unwrap();
    assert!(!enacted.holds());
    enactor.watch(1);
    assert!(!attributes_of(&enactor, 11).is_deadline());
    enactor.kernel.wake(11);
    enactor.watch(2);
    assert!(attributes_of(&enactor, 11).is_deadline());
    assert_eq!(enactor.kernel.affinity(11).unwrap(), CpuSet::single(1).unwrap());
}

/// Plans that fit, with threads that wake between them.
fn plans() -> impl Strategy<Value = Vec<(Target, Vec<u32>)>> {
    let tids = proptest::sample::select(vec![10_u32, 11, 12, 20, 21, 22]);
    let one = (tids.clone(), 1_u64..90, 1_usize..4);
    let plan = proptest::collection::vec(one, 0..7).prop_map(|all| {
        let mut used = [0; 4];
        let mut chosen: BTreeMap<u32, Wanted> = BTreeMap::new();
        for (tid, percent, core) in all {
            if !chosen.contains_key(&tid) && used[core] + percent <= 90 {
                used[core] += percent;
                chosen.insert(tid, wanted(tid, percent, core));
            }
        }
        let rest: Vec<u32> =
            [10, 11, 12, 20, 21, 22].into_iter().filter(|tid| !chosen.contains_key(tid)).collect();
        target(chosen.into_values().collect(), &rest)
    });
    proptest::collection::vec((plan, proptest::collection::vec(tids, 0..6)), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Wherever the manager is stopped, the state file brings everything back, for threads made
    /// meanwhile too.
    #[test]
    fn an_end_at_any_step_is_undone(
        plans in plans(),
        mode in proptest::sample::select(vec![Mode::ExclusiveSets, Mode::AdmissionOff]),
        left in 0_usize..200,
        again in 0_usize..60,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let sim = system();
        let before = sim.settings();
        sim.left.set(Some(left));
        let options = options(folder.path(), &[mode]);
        let (mut kernel, state) = match Enactor::new(sim, &platform(), options) {
            Ok(mut enactor) => {
                for (plan, wakes) in &plans {
                    let _ = enactor.enact(plan);
                    for tid in wakes {
                        enactor.kernel.wake(*tid);
                    }
                }
                // Killed: nothing of it runs any more.
                (enactor.kernel.clone(), enactor.journal.state().clone())
            }
            // Killed while it was looking for a way: nothing but its own thread was touched.
            Err(_) => return Ok(()),
        };
        kernel.end_scratch();
        kernel.fork(10, 40);
        // The first attempt at undoing may be killed too.
        kernel.left.set(Some(again));
        restore::undo(&mut kernel, &state);
        kernel.left.set(None);
        let restored = restore::undo(&mut kernel, &state);
        prop_assert!(restored.is_complete(), "{}", restored);
        let child = kernel.threads.remove(&40).unwrap();
        prop_assert_eq!(child.group, "/");
        prop_assert_eq!(child.cpus, CpuSet::from_cpus(0..4).unwrap());
        prop_assert_eq!(kernel.settings(), before);
    }

    /// Whatever follows whatever, a plan that fits holds; nobody who was asleep is an exception but
    /// those who sleep in a full domain.
    #[test]
    fn plans_that_fit_are_enacted(plans in plans(), mode in proptest::sample::select(vec![Mode::ExclusiveSets, Mode::AdmissionOff])) {
        let folder = tempfile::tempdir().unwrap();
        let mut enactor = Enactor::new(system(), &platform(), options(folder.path(), &[mode])).unwrap();
        for (plan, _) in &plans {
            let enacted = enactor.enact(plan).unwrap();
            for tid in [10, 11, 12, 20, 21, 22] {
                enactor.kernel.wake(tid);
            }
            enactor.watch(1);
            prop_assert!(enacted.differences.iter().all(|d| d.has.contains("unavailable")), "{:?}", enacted.differences);
            for one in &plan.reservations {
                let held = attributes_of(&enactor, one.tid);
                prop_assert!(held.is_deadline() && held.runtime_ns == one.held.budget_ns, "{:?} {}", one, held);
                prop_assert_eq!(enactor.kernel.affinity(one.tid).unwrap(), CpuSet::single(one.held.core).unwrap());
            }
        }
    }
}
