//! Changes of the kernel's state between plans; budgets that are too small; and the return to the
//! guarantee.

use super::*;
use crate::system::Attributes;
use takt_rt::placement::CpuSet;

fn state(setup: &Setup, at_s: f64) -> ChainStatus {
    setup.live.status(setup.from_ns + (at_s * 1e9) as u64).chains[0].clone()
}

/// Somebody changes a reservation at 9.9 s: at the next look the word is gone and the reservation
/// is whole again.
fn tampered(change: impl FnOnce(&mut Sim, Attributes)) -> ChainStatus {
    let mut setup = setup(100, false);
    setup.pass(0.0, 9.5);
    assert_eq!(state(&setup, 9.5).state, "guaranteed");
    let plans = setup.live.plans();
    let asked = setup.kernel().attributes(10).unwrap();
    let cpus = setup.kernel().affinity(10).unwrap();
    change(setup.live.enactor.as_mut().unwrap().kernel_mut(), asked);
    setup.pass(10.0, 10.0);
    assert_ne!(state(&setup, 10.0).state, "guaranteed");
    assert_eq!(setup.live.plans(), plans + 1, "the next plan repairs it at once");
    assert_eq!(setup.kernel().attributes(10).unwrap(), asked);
    assert_eq!(setup.kernel().affinity(10).unwrap(), cpus);
    setup.pass(10.5, 15.5);
    assert_eq!(state(&setup, 15.5).state, "learning", "it has to hold for a plan period first");
    setup.pass(16.0, 20.0);
    let chain = state(&setup, 20.0);
    assert_eq!(chain.state, "guaranteed", "{chain:#?}");
    assert!(setup.live.finish().unwrap().restored.unwrap().is_complete());
    chain
}

#[test]
fn a_reservation_that_somebody_ends_takes_the_word_back_between_plans() {
    let chain = tampered(|sim, _| sim.set_attributes(10, &Attributes::other(0)).unwrap());
    let reported = &chain.run.refutations[0].1;
    assert!(
        reported.contains("thread 10 `driver`: requested deadline:") && reported.contains("in effect other"),
        "{reported}"
    );
}

#[test]
fn a_budget_or_an_affinity_that_somebody_changes_takes_the_word_back_between_plans() {
    let half = |sim: &mut Sim, asked: Attributes| {
        let less = Attributes { runtime_ns: asked.runtime_ns / 2, ..asked };
        sim.set_attributes(10, &less).unwrap();
    };
    assert_eq!(tampered(half).run.refuted_times, 1);
    let wide = |sim: &mut Sim, asked: Attributes| {
        // As `taskset` would where admission control is off.
        sim.set_attributes(10, &Attributes::other(0)).unwrap();
        sim.set_affinity(10, &CpuSet::from_cpus(0..2).unwrap()).unwrap();
        sim.set_attributes(10, &asked).unwrap();
    };
    let reported = tampered(wide).run.refutations[0].1.clone();
    assert!(reported.contains("on CPU 1") && reported.contains("on 0-1"), "{reported}");
}

/// The thread computes without end for a while, in work that no event shows.
#[test]
fn an_exhausted_budget_takes_the_word_back_and_the_next_plan_gives_more() {
    let mut setup = setup(100, false);
    setup.pass(0.0, 9.5);
    assert_eq!(state(&setup, 9.5).state, "guaranteed");
    let budget_ns = |setup: &Setup| setup.live.plan().unwrap().reservations[0].budget_ns;
    let (before_ns, plans) = (budget_ns(&setup), setup.live.plans());
    for half in 0..4 {
        let at_s = 10.0 + f64::from(half) / 2.0;
        let attributes = setup.kernel().attributes(10).unwrap();
        setup.live.enactor.as_mut().unwrap().kernel_mut().force(10, attributes, 500 * MS, true);
        setup.pass(at_s, at_s);
    }
    let during = state(&setup, 11.5);
    assert_ne!(during.state, "guaranteed");
    let reported = &during.run.refutations[0].1;
    assert!(reported.contains("budget overrun: thread 10 `driver` has"), "{reported}");
    assert!(setup.live.plans() > plans, "no waiting for the next period");
    assert!(budget_ns(&setup) > before_ns, "{} ns before, {} ns after", before_ns, budget_ns(&setup));
    let words = &setup.live.plan().unwrap().decisions;
    assert!(words.iter().any(|one| one.words.contains("its budget was exhausted")), "{words:#?}");
    let attributes = setup.kernel().attributes(10).unwrap();
    setup.live.enactor.as_mut().unwrap().kernel_mut().force(10, attributes, 0, false);
    setup.pass(12.0, 16.0);
    assert_eq!(state(&setup, 16.0).state, "learning", "six seconds without another one first");
    setup.pass(16.5, 25.0);
    let after = state(&setup, 25.0);
    assert_eq!(after.state, "guaranteed", "{after:#?}");
    use State::{Guaranteed, Learning, Refuted};
    let course: Vec<State> = after.run.intervals.iter().map(|interval| interval.state).collect();
    // Each plan that did not suffice is refuted, and none of them says the word.
    assert!(course.starts_with(&[Learning, Guaranteed, Refuted, Learning]), "{course:?}");
    assert!(course.ends_with(&[Learning, Guaranteed]), "{course:?}");
    assert_eq!(course.iter().filter(|state| **state == Guaranteed).count(), 2, "{course:?}");
}

/// Another manager ends, restores what it found, and with that ends this one's reservations and
/// switches admission control on: nothing can be reserved any more, and nothing is called
/// guaranteed.
#[test]
fn what_the_kernel_refuses_to_reserve_is_never_called_guaranteed() {
    let mut setup = setup(100, false);
    setup.pass(0.0, 9.5);
    assert_eq!(state(&setup, 9.5).state, "guaranteed");
    let kernel = setup.live.enactor.as_mut().unwrap().kernel_mut();
    kernel.set_attributes(10, &Attributes::other(0)).unwrap();
    kernel.files.insert("/proc/sys/kernel/sched_rt_runtime_us".into(), "950000\n".to_owned());
    kernel.may_switch_admission_off = false;
    for step in 0..30 {
        let at_s = 10.0 + f64::from(step);
        setup.pass(at_s, at_s + 0.5);
        let chain = state(&setup, at_s + 0.5);
        assert!(!setup.kernel().attributes(10).unwrap().is_deadline());
        assert_ne!(chain.state, "guaranteed", "after {at_s} s: {chain:#?}");
    }
    let chain = state(&setup, 39.5);
    assert!(chain.why.contains("not as asked"), "{chain:#?}");
    assert!(!setup.live.enacted.holds(), "{:?}", setup.live.enacted);
}

const ADMISSION: &str = takt_host::reserve::ADMISSION_FILE;

/// Another program switches the admission test on; with `loses` it ends the reservation as well,
/// as another manager's end does.
fn switches_on(setup: &mut Setup, value: &str, loses: bool) {
    let kernel = setup.live.enactor.as_mut().unwrap().kernel_mut();
    if loses {
        kernel.set_attributes(10, &Attributes::other(0)).unwrap();
    }
    kernel.files.insert(ADMISSION.into(), format!("{value}\n"));
}

fn admission(setup: &Setup) -> &str {
    setup.kernel().files[std::path::Path::new(ADMISSION)].trim()
}

#[test]
fn an_admission_test_that_somebody_switches_on_is_switched_off_again_and_what_he_set_comes_back() {
    let mut setup = setup(100, false);
    setup.pass(0.0, 9.5);
    assert_eq!((state(&setup, 9.5).state.as_str(), admission(&setup)), ("guaranteed", "-1"));
    switches_on(&mut setup, "900000", true);
    setup.pass(10.0, 10.0);
    assert_eq!(admission(&setup), "-1");
    assert!(setup.kernel().attributes(10).unwrap().is_deadline());
    setup.pass(10.5, 20.0);
    assert_eq!(state(&setup, 20.0).state, "guaranteed", "{:#?}", state(&setup, 20.0));
    // The reservations that are there hold on, and so does the word.
    switches_on(&mut setup, "800000", false);
    setup.pass(20.5, 20.5);
    assert_eq!((state(&setup, 20.5).state.as_str(), admission(&setup)), ("guaranteed", "-1"));
    let journal = std::fs::read_to_string(setup.live.enactor.as_ref().unwrap().state_file()).unwrap();
    assert!(journal.contains(r#""undo": "800000""#) && !journal.contains("900000"), "{journal}");
}

#[test]
fn a_program_that_keeps_switching_admission_on_is_not_fought_for_ever() {
    let mut setup = setup(100, false);
    setup.pass(0.0, 9.5);
    for at_s in [10.0, 11.0, 12.0] {
        switches_on(&mut setup, "950000", true);
        setup.pass(at_s, at_s + 0.5);
        assert_eq!(admission(&setup), "-1", "{at_s}");
        assert!(setup.kernel().attributes(10).unwrap().is_deadline(), "{at_s}");
    }
    switches_on(&mut setup, "950000", true);
    setup.pass(13.0, 20.0);
    assert_eq!(admission(&setup), "950000");
    let chain = state(&setup, 20.0);
    assert_ne!(chain.state, "guaranteed");
    assert!(
        chain.why.contains("keeps switching admission control on") && chain.why.contains("sysctl"),
        "{chain:#?}"
    );
    // The program that did so has ended, and the user has switched it off.
    switches_on(&mut setup, "-1", false);
    setup.pass(20.5, 39.5);
    let chain = state(&setup, 39.5);
    assert_eq!(chain.state, "guaranteed", "{chain:#?}");
    let text = setup.text.text();
    assert_eq!(text.matches("It is off again, and 950000 will be restored").count(), 1, "{text}");
    assert!(text.contains("keeps switching admission control on"), "{text}");
}
