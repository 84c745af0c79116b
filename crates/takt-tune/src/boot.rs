//! Boot parameters that are worth a try: what only a reboot sets, nobody has measured here.

use takt_rt::placement::CpuSet;

use crate::catalog::{Loop, read};
use crate::tuned::Proposed;

/// The CPU of a guest's loop.
const GUEST_CPU: usize = 1;

/// Boot parameters for this loop that the machine was not booted with.
pub fn boot_parameters(about: &Loop, online: CpuSet) -> Vec<Proposed> {
    let line = read("/proc/cmdline").unwrap_or_default();
    let has = |name: &str| line.split_whitespace().any(|word| word.split('=').next() == Some(name));
    // The last CPU: firmware and most interrupts leave it alone.
    let cpu = if about.cpus.len() == 1 { about.cpus.iter().next() } else { online.iter().last() };
    let realtime = read("/sys/kernel/realtime").as_deref() == Some("1");
    let mut proposed = Vec::new();
    if let Some(cpu) = cpu.filter(|_| online.len() > 1 && !has("isolcpus")) {
        let isolated = |cpu: usize| {
            let domain = format!("managed_irq,domain,{cpu}");
            let all = [("isolcpus", domain), ("nohz_full", cpu.to_string()), ("rcu_nocbs", cpu.to_string())];
            all.map(|(name, value)| (name.to_owned(), value)).to_vec()
        };
        proposed.push(of_guest(words(&isolated(cpu)), isolated(GUEST_CPU)));
    }
    let single = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    if !realtime && !has("threadirqs") {
        proposed.push(of_guest("threadirqs".to_owned(), single("threadirqs", "")));
    }
    if !realtime && !has("preempt") {
        proposed.push(of_guest("preempt=full".to_owned(), single("preempt", "full")));
    }
    if !has("idle") && !has("processor.max_cstate") {
        let parameters = "processor.max_cstate=1 intel_idle.max_cstate=1".to_owned();
        let note = "a guest has no idle states".to_owned();
        proposed.push(Proposed { note, ..of_guest(parameters, Vec::new()) });
    }
    proposed
}

fn words(parameters: &[(String, String)]) -> String {
    parameters.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn of_guest(parameters: String, for_guest: Vec<(String, String)>) -> Proposed {
    Proposed { parameters, for_guest, in_guests: None, note: String::new() }
}
