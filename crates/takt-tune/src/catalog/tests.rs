use super::*;

fn about() -> Loop {
    Loop {
        scope: Scope { pid: 1, tid: 1 },
        process: "control".to_owned(),
        thread: "loop".to_owned(),
        period_ns: Some(1e6),
        share: 0.1,
        policy: Policy::Other { nice: 0 },
        cpus: "0-3".parse().unwrap(),
    }
}

fn names(about: &Loop) -> (Vec<String>, Vec<Missing>) {
    let online = "0-3".parse().unwrap();
    let (knobs, missing) = offers(about, online, &[(0, 0.9), (1, 0.5), (2, 0.0), (3, 0.1)], &[]);
    let way = |knob: &Knob, way: &Way| format!("{}: {}", knob.name, way.name);
    (knobs.iter().flat_map(|knob| knob.ways.iter().map(move |one| way(knob, one))).collect(), missing)
}

#[test]
fn what_is_offered_fits_the_loop() {
    let (all, _) = names(&about());
    for name in [
        "policy of the loop: fifo:49",
        "policy of the loop: fifo:98",
        "policy of the loop: deadline:300us/1000us/1000us",
        "CPU of the loop: 2",
        "CPU of the loop: 3 alone",
        "timer slack: 1 ns",
        "placebo: nothing: ",
    ] {
        assert!(all.iter().any(|one| one == name), "{name} is not in {all:?}");
    }
    // The busiest CPU is not worth a try.
    assert!(!all.iter().any(|name| name.starts_with("CPU of the loop: 0")), "{all:?}");
    let bound = Loop { cpus: "0".parse().unwrap(), policy: Policy::Fifo { priority: 80 }, ..about() };
    let (all, missing) = names(&bound);
    assert!(all.iter().any(|name| name == "CPU of the loop: 0 alone"), "{all:?}");
    assert!(!all.iter().any(|name| name == "CPU of the loop: 0"), "it is there already");
    let policies: Vec<&String> = all.iter().filter(|name| name.starts_with("policy")).collect();
    assert_eq!(policies, ["policy of the loop: fifo:98"]);
    assert!(missing.iter().any(|one| one.name == "timer slack" && one.why.contains("real-time")));
    let greedy = Loop { share: 0.9, ..about() };
    assert!(names(&greedy).1.iter().any(|one| one.name.starts_with("policy") && one.why.contains("90 %")));
}

#[test]
fn masks_are_as_long_as_those_that_are_there() {
    let cpus: CpuSet = "0,33".parse().unwrap();
    assert_eq!(mask_like("3", &"1".parse().unwrap()), "2");
    assert_eq!(mask_like("ff,ffffffff", &cpus), "02,00000001");
    assert_eq!(mask_like("", &cpus), "1");
}
