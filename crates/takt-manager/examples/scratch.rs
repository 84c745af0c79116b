use std::process::Command;
use takt_manager::{Goals, Manager, Platform};
use takt_model::extract::{Extractor, Options};
use takt_ros::Source;
use takt_ros::preload::{Session, SessionOptions};
fn now() -> u64 { let mut t = libc::timespec{tv_sec:0,tv_nsec:0}; unsafe{libc::clock_gettime(libc::CLOCK_MONOTONIC,&mut t)}; t.tv_sec as u64*1_000_000_000+t.tv_nsec as u64 }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let goals = Goals::read(a[1].as_ref()).unwrap();
    let session = Session::create(&SessionOptions{stand_in:true,..SessionOptions::default()}).unwrap();
    let mut probe = session.probe().unwrap();
    let mut command = Command::new(&a[2]); command.args(&a[3..]);
    session.prepare(&mut command);
    let mut child = command.spawn().unwrap();
    let mut ex = Extractor::new(Options::default());
    ex.begin(now());
    let cores: Vec<usize> = std::env::var("CORES").unwrap_or("0,1".into()).split(',').map(|c| c.parse().unwrap()).collect();
    let mut manager = Manager::new(goals, Platform { cores, system_core: 0, most_bandwidth: std::env::var("BW").unwrap_or("0.8".into()).parse().unwrap() });
    let mut last = now();
    let mut n = 0;
    loop {
        n += probe.poll(&mut |event| ex.event(&event)).unwrap();
        for b in probe.take_broken() { println!("{b:?}"); }
        if now() - last > 6_000_000_000 {
            last = now();
            let model = ex.snapshot(now());
            println!("---- events {n} {:?} lost {}", ex.counters(), model.lost_events);
            for u in &model.unanalysable { println!("unanalysable {u:?}"); }
            if std::env::var("MODEL").is_ok() { for c in &model.callbacks { println!("  {} seen {} cost1 {:?} exec {:?}", c.name, c.cost.seen, c.cost.most_ns.first(), c.executor); } }
            let plan = manager.plan(&model);
            for c in &plan.chains { println!("  {} goal {} bound {:?} {} {:?} {:?}", c.name, c.goal_ns/1000000, c.bound_ns.map(|b| b as f64/1e6), c.bound_by, c.state, c.path_names); }
            for r in &plan.reservations { println!("  {} {:.2} core {}", r.name, r.budget_ns as f64/r.period_ns as f64, r.core); }
            for d in &plan.decisions { println!("    {}", d.words); }
            println!("analysis {} us", plan.analysis_ns/1000);
        }
        if child.try_wait().unwrap().is_some() && probe.ended() { break; }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
