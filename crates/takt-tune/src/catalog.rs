//! The knobs that this machine and this loop offer, each tried; what cannot be set is said with the
//! reason.

use std::path::Path;

use takt_host::doctor::{Journal, Scope, Setting};
use takt_rt::kernel_file::NR_MIGRATE;
use takt_rt::placement::CpuSet;
use takt_rt::policy::Policy;
use takt_rt::procfs::{self, Stat};

/// One way of a knob.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    /// Its name; empty where the knob has but one.
    pub name: String,
    /// Settings that it changes; none for a placebo.
    pub settings: Vec<Setting>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Knob {
    pub name: String,
    /// The ways to set it; leaving it as found is none of them.
    pub ways: Vec<Alternative>,
    /// Its cost elsewhere.
    pub cost: &'static str,
    /// It changes nothing.
    pub placebo: bool,
}

/// A knob that cannot be set here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The knob, with its way.
    pub name: String,
    pub why: String,
}

/// Properties of the loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop {
    /// Process and thread.
    pub scope: Scope,
    /// Names of both.
    pub process: String,
    /// Name of the thread.
    pub thread: String,
    pub period_ns: Option<f64>,
    /// Share of a CPU that it uses, 0 to 1.
    pub share: f64,
    /// Its policy as found.
    pub policy: Policy,
    /// Its CPUs as found.
    pub cpus: CpuSet,
}

/// A loop that uses more of a CPU gets no real-time policy: it would starve whoever is to take the
/// policy away again.
const MAX_SHARE: f64 = 0.7;
/// CPUs that are tried for the loop at most: each takes blocks of its own.
const MAX_CPUS: usize = 3;

const CPUS: &str = "/sys/devices/system/cpu";

/// A file that the kernel may or may not have.
pub(crate) fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn file(path: &str, value: &str) -> Setting {
    Setting::File { path: path.into(), value: value.to_owned() }
}

/// Knobs with what they would set, not yet tried.
struct Offers<'a> {
    about: &'a Loop,
    online: CpuSet,
    /// CPUs that the loop may be put on.
    candidates: Vec<usize>,
    knobs: Vec<Knob>,
    missing: Vec<Missing>,
}

/// All knobs for this loop, and on these interfaces. `busy` is how much of each CPU others used, to
/// choose CPUs by.
pub fn offers(
    about: &Loop,
    online: CpuSet,
    busy: &[(usize, f64)],
    links: &[String],
) -> (Vec<Knob>, Vec<Missing>) {
    let mut candidates: Vec<usize> =
        busy.iter().map(|entry| entry.0).filter(|cpu| online.contains(*cpu)).collect();
    let load = |cpu: usize| busy.iter().find(|entry| entry.0 == cpu).map_or(0.0, |entry| entry.1);
    candidates.sort_by(|a, b| load(*a).total_cmp(&load(*b)));
    // One that it is bound to is among them, so that others can be kept off it.
    if let Some(own) = about.cpus.iter().next().filter(|_| about.cpus.len() == 1) {
        candidates.retain(|&cpu| cpu != own);
        candidates.insert(0, own);
    }
    candidates.truncate(MAX_CPUS);
    let mut offers = Offers { about, online, candidates, knobs: Vec::new(), missing: Vec::new() };
    offers.policy();
    offers.placement();
    offers.timer_slack();
    offers.interrupts();
    offers.kernel_threads();
    offers.power();
    offers.scheduler();
    offers.memory();
    offers.cache();
    offers.network(links);
    offers.placebos();
    (offers.knobs, offers.missing)
}

impl Offers<'_> {
    fn knob(&mut self, name: &str, ways: Vec<Alternative>, cost: &'static str) {
        if ways.is_empty() {
            return;
        }
        self.knobs.push(Knob { name: name.to_owned(), ways, cost, placebo: false });
    }

    fn missing(&mut self, name: &str, why: impl Into<String>) {
        self.missing.push(Missing { name: name.to_owned(), why: why.into() });
    }

    /// A knob of one file; what has no such file is said.
    fn switch(&mut self, name: &str, path: &str, value: &str, absent: &str, cost: &'static str) {
        match read(path) {
            Some(_) => self.knob(
                name,
                vec![Alternative { name: String::new(), settings: vec![file(path, value)] }],
                cost,
            ),
            None => self.missing(name, format!("{path} is missing: {absent}")),
        }
    }

    /// A knob of a file for each CPU, all together.
    fn of_cpus(&mut self, name: &str, path: &str, value: &str, absent: &str, cost: &'static str) {
        let paths = self.online.iter().map(|cpu| format!("{CPUS}/cpu{cpu}/{path}"));
        let settings: Vec<Setting> =
            paths.filter(|path| Path::new(path).exists()).map(|path| file(&path, value)).collect();
        if settings.is_empty() {
            return self.missing(name, format!("{CPUS}/cpu*/{path} is missing: {absent}"));
        }
        self.knob(name, vec![Alternative { name: String::new(), settings }], cost);
    }

    fn policy(&mut self) {
        const NAME: &str = "policy of the loop";
        let priority = match self.about.policy {
            Policy::Deadline { .. } => {
                return self
                    .missing(NAME, "it has a reservation (SCHED_DEADLINE), which takt leaves as it is");
            }
            Policy::Fifo { priority } | Policy::RoundRobin { priority } => priority,
            Policy::Other { .. } => 0,
        };
        if self.about.share > MAX_SHARE {
            let why = format!(
                "it uses {:.0} % of a CPU: a real-time policy would starve the other threads there",
                100.0 * self.about.share
            );
            return self.missing(NAME, why);
        }
        let (process, thread) = (self.about.process.clone(), self.about.thread.clone());
        let way = |policy: String| Alternative {
            name: policy.clone(),
            settings: vec![Setting::Policy { process: process.clone(), thread: thread.clone(), policy }],
        };
        // Below the kernel's threads of interrupts (50), above them, and above everybody but the
        // kernel's own 99.
        let mut ways: Vec<Alternative> =
            [49, 80, 98].into_iter().filter(|&p| p > priority).map(|p| way(format!("fifo:{p}"))).collect();
        // A reservation of thrice what it uses: the kernel grants it only to who may run on all
        // CPUs.
        if let (Some(period_ns), true) = (self.about.period_ns, self.about.cpus == self.online) {
            let budget_us = (3.0 * self.about.share * period_ns / 1e3).clamp(100.0, 0.5 * period_ns / 1e3);
            let period_us = (period_ns / 1e3) as u64;
            if period_us >= 200 {
                ways.push(way(format!("deadline:{}us/{period_us}us/{period_us}us", budget_us as u64)));
            }
        }
        self.knob(NAME, ways, "a loop that never sleeps takes its CPU from all threads of lower priority");
    }

    fn placement(&mut self) {
        const NAME: &str = "CPU of the loop";
        if self.online.len() < 2 {
            return self.missing(NAME, "there is only one CPU");
        }
        let (process, thread) = (self.about.process.clone(), self.about.thread.clone());
        let mut ways = Vec::new();
        for &cpu in &self.candidates {
            let Some(cpus) = CpuSet::from_cpus([cpu]) else { continue };
            let on = Setting::Cpus { process: process.clone(), thread: thread.clone(), cpus };
            if self.about.cpus != cpus {
                ways.push(Alternative { name: cpu.to_string(), settings: vec![on.clone()] });
            }
            let alone = Setting::Alone { process: process.clone(), cpus };
            ways.push(Alternative { name: format!("{cpu} alone"), settings: vec![alone, on] });
        }
        self.knob(NAME, ways, "alone: all other threads use only the other CPUs");
    }

    fn timer_slack(&mut self) {
        let (process, thread) = (self.about.process.clone(), self.about.thread.clone());
        if self.about.policy.is_real_time() {
            return self.missing("timer slack", "real-time threads have no timer slack");
        }
        let settings = vec![Setting::TimerSlack { process, thread, slack_ns: 1 }];
        self.knob("timer slack", vec![Alternative { name: "1 ns".to_owned(), settings }], "");
    }

    fn interrupts(&mut self) {
        const NAME: &str = "interrupts";
        let mut ways = Vec::new();
        for &cpu in &self.candidates {
            let Some(off) = CpuSet::from_cpus([cpu]) else { continue };
            let Ok(entries) = std::fs::read_dir("/proc/irq") else { break };
            let mut settings = Vec::new();
            for entry in entries.flatten() {
                let path = entry.path().join("smp_affinity_list");
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let Ok(allowed) = text.trim().parse::<CpuSet>() else { continue };
                let rest = self.online.without(&off);
                if allowed.contains(cpu) && !rest.is_empty() {
                    let left = allowed.both(&rest);
                    let left = if left.is_empty() { rest } else { left };
                    settings.push(Setting::File { path, value: left.to_string() });
                }
            }
            if !settings.is_empty() {
                ways.push(Alternative { name: format!("off CPU {cpu}"), settings });
            }
        }
        if ways.is_empty() {
            return self.missing(NAME, "/proc/irq has no interrupt that can be moved");
        }
        self.knob(NAME, ways, "the other CPUs serve all devices");
    }

    /// Priority and CPUs of the threads that serve interrupts, of those named.
    fn interrupt_threads(&mut self, irqs: &[&String]) {
        let names = ["priority of interrupt threads", "CPUs of interrupt threads"];
        if irqs.is_empty() {
            let why = "this kernel has no interrupt threads (no PREEMPT_RT, not booted with threadirqs)";
            names.into_iter().for_each(|name| self.missing(name, why));
            return;
        }
        let way = |name: &str, policy: &str| Alternative {
            name: name.to_owned(),
            settings: irqs
                .iter()
                .map(|irq| Setting::Policy {
                    process: (*irq).clone(),
                    thread: (*irq).clone(),
                    policy: policy.to_owned(),
                })
                .collect(),
        };
        let ways = vec![way("above the loop (fifo:90)", "fifo:90"), way("below it (fifo:2)", "fifo:2")];
        self.knob(names[0], ways, "devices are served before or after the loop");
        let ways = self.off_each(&|rest| only_on(irqs, rest));
        self.knob(names[1], ways, "the other CPUs serve all devices");
    }

    /// A way for each CPU of the loop, with what the others of it get.
    fn off_each(&self, settings: &dyn Fn(&CpuSet) -> Vec<Setting>) -> Vec<Alternative> {
        let ways = self.candidates.iter().filter_map(|&cpu| {
            let rest = CpuSet::from_cpus([cpu]).map(|off| self.online.without(&off));
            let settings = settings(&rest.filter(|rest| !rest.is_empty())?);
            Some(Alternative { name: format!("off CPU {cpu}"), settings })
        });
        ways.filter(|way| !way.settings.is_empty()).collect()
    }

    /// Threads of interrupts and of RCU, and where workqueues may run.
    fn kernel_threads(&mut self) {
        let threads = kernel_threads();
        let irqs: Vec<&String> = threads.iter().filter(|name| name.starts_with("irq/")).collect();
        self.interrupt_threads(&irqs);
        const WORKQUEUES: &str = "/sys/devices/virtual/workqueue/cpumask";
        let now = read(WORKQUEUES);
        let queues = self.off_each(&|rest| match &now {
            Some(now) => vec![file(WORKQUEUES, &mask_like(now, rest))],
            None => Vec::new(),
        });
        // Of each CPU's own threads none can be moved; those of all can.
        let rcu: Vec<&String> =
            threads.iter().filter(|name| name.starts_with("rcu_") || name.starts_with("rcuo")).collect();
        let rcus = self.off_each(&|rest| only_on(&rcu, rest));
        if queues.is_empty() {
            self.missing("workqueues", format!("{WORKQUEUES} is missing, or there is only one CPU"));
        }
        if rcus.is_empty() {
            self.missing("threads of RCU", "none are visible (a container), or there is only one CPU");
        }
        self.knob("workqueues", queues, "");
        self.knob("threads of RCU", rcus, "");
        self.switch(
            "expedited RCU",
            "/sys/kernel/rcu_expedited",
            "1",
            "not in this kernel",
            "interrupts all CPUs at each grace period",
        );
    }

    fn power(&mut self) {
        let power = "power: the CPUs never sleep deeply";
        if Path::new(&format!("{CPUS}/cpu0/cpuidle/state1")).exists() {
            self.of_cpus(
                "idle states",
                "power/pm_qos_resume_latency_us",
                "n/a",
                "the kernel has no PM QoS",
                power,
            );
            // The request is a limit that the governor keeps; a state that is switched off is off
            // for any governor.
            let states = |at: usize| format!("cpuidle/state{at}/disable");
            let deeper: Vec<String> = (1..10)
                .map(states)
                .filter(|path| Path::new(&format!("{CPUS}/cpu0/{path}")).exists())
                .collect();
            let settings: Vec<Setting> = self
                .online
                .iter()
                .flat_map(|cpu| deeper.iter().map(move |path| format!("{CPUS}/cpu{cpu}/{path}")))
                .map(|path| file(&path, "1"))
                .collect();
            if let Some(knob) = self.knobs.iter_mut().find(|knob| knob.name == "idle states") {
                knob.ways[0].name = "PM QoS".to_owned();
                knob.ways.push(Alternative { name: "all but polling disabled".to_owned(), settings });
            }
        } else {
            self.missing("idle states", "this kernel has no idle states (no cpuidle driver)");
        }
        let absent = "the hypervisor or the firmware sets the frequency";
        self.of_cpus(
            "frequency governor",
            "cpufreq/scaling_governor",
            "performance",
            absent,
            "power: full frequency",
        );
    }

    fn scheduler(&mut self) {
        let kernel = "/proc/sys/kernel";
        let spin = "a loop that never sleeps takes its CPU completely";
        self.switch(
            "real-time throttling off",
            &format!("{kernel}/sched_rt_runtime_us"),
            "-1",
            "hidden",
            spin,
        );
        const SERVER: &str = "/sys/kernel/debug/sched/fair_server";
        let servers: Vec<Setting> = self
            .online
            .iter()
            .map(|cpu| format!("{SERVER}/cpu{cpu}/runtime"))
            .filter(|path| Path::new(path).exists())
            .map(|path| file(&path, "0"))
            .collect();
        if servers.is_empty() {
            self.missing(
                "fair server off",
                format!("{SERVER} is missing: the kernel is older than 6.12, or debugfs is not mounted"),
            );
        }
        let ways = vec![Alternative { name: String::new(), settings: servers }];
        self.knob("fair server off", ways.into_iter().filter(|way| !way.settings.is_empty()).collect(), spin);
        self.switch(
            "timer migration off",
            &format!("{kernel}/timer_migration"),
            "0",
            "not in this kernel",
            "power: idle CPUs wake for their own timers",
        );
        self.switch(
            "autogroup off",
            &format!("{kernel}/sched_autogroup_enabled"),
            "0",
            "not in this kernel",
            "",
        );
        self.switch(
            "NUMA balancing off",
            &format!("{kernel}/numa_balancing"),
            "0",
            "one memory node, or not in this kernel",
            "",
        );
        self.switch(
            "lockup detector off",
            &format!("{kernel}/nmi_watchdog"),
            "0",
            "not in this kernel",
            "a CPU that hangs is not reported",
        );
        self.migration();
        let preempt = "/sys/kernel/debug/sched/preempt";
        self.switch(
            "full preemption",
            preempt,
            "full",
            "the kernel has no PREEMPT_DYNAMIC, or debugfs is not mounted",
            "throughput: some per cent",
        );
    }

    /// Number of tasks that the scheduler moves at once, with interrupts off (Linux Symposium 2009,
    /// section 4).
    fn migration(&mut self) {
        const NAME: &str = "tasks moved at once";
        match NR_MIGRATE.iter().find(|path| Path::new(path).exists()) {
            Some(path) => {
                let way =
                    |tasks: &str| Alternative { name: tasks.to_owned(), settings: vec![file(path, tasks)] };
                self.knob(NAME, ["8", "2"].map(way).into(), "CPUs are balanced more slowly");
            }
            None => self.missing(
                NAME,
                format!(
                    "{} are missing: the kernel was built without CONFIG_SCHED_DEBUG, or debugfs is not mounted",
                    NR_MIGRATE.join(" and ")
                ),
            ),
        }
    }

    /// Process that the kernel kills when memory runs out: the paper's other recommendation. It
    /// does not make cycles earlier; a search shows that it does not make them later either.
    fn oom_victim(&mut self) {
        let settings =
            vec![Setting::OomScore { process: self.about.process.clone(), score_adj: takt_rt::oom::NEVER }];
        let ways = vec![Alternative { name: "never the loop".to_owned(), settings }];
        self.knob("OOM victim", ways, "others are killed first when memory runs out");
    }

    fn memory(&mut self) {
        self.oom_victim();
        let huge = "/sys/kernel/mm/transparent_hugepage";
        self.switch(
            "huge pages never",
            &format!("{huge}/enabled"),
            "never",
            "not in this kernel",
            "programs that use much memory get slower",
        );
        self.switch(
            "huge pages without compaction",
            &format!("{huge}/defrag"),
            "never",
            "not in this kernel",
            "",
        );
        let vm = "/proc/sys/vm";
        self.switch(
            "memory is compacted only on demand",
            &format!("{vm}/compaction_proactiveness"),
            "0",
            "not in this kernel",
            "",
        );
        self.switch(
            "statistics of memory every 2 minutes",
            &format!("{vm}/stat_interval"),
            "120",
            "not in this kernel",
            "",
        );
        self.switch("page merging off", "/sys/kernel/mm/ksm/run", "0", "not in this kernel", "memory");
        let swaps = read("/proc/swaps").map_or(0, |text| text.lines().count().saturating_sub(1));
        if swaps == 0 {
            return self.missing("no swapping", "no swap is in use");
        }
        self.switch("no swapping", &format!("{vm}/swappiness"), "0", "hidden", "memory");
    }

    /// Ways of the last cache that nobody else fills.
    fn cache(&mut self) {
        const NAME: &str = "own cache";
        match takt_host::doctor::cache_ways_offered() {
            Err(why) => self.missing(NAME, why.to_string()),
            Ok(()) => {
                let (process, thread) = (self.about.process.clone(), self.about.thread.clone());
                let settings = vec![Setting::CacheWays { process, thread }];
                let cost = "a quarter of the last-level cache is reserved for it";
                self.knob(NAME, vec![Alternative { name: String::new(), settings }], cost);
            }
        }
    }

    fn network(&mut self, links: &[String]) {
        if links.is_empty() {
            self.missing("network", "no interface was named (--link)");
            return;
        }
        for link in links {
            let class = format!("/sys/class/net/{link}");
            let way = |settings| vec![Alternative { name: String::new(), settings }];
            let coalescing = Setting::Coalescing { interface: link.clone(), rx_us: 0, tx_us: 0 };
            self.knob(
                &format!("interrupt coalescing of {link}"),
                way(vec![coalescing]),
                "an interrupt for each frame",
            );
            let defer = vec![
                file(&format!("{class}/napi_defer_hard_irqs"), "2"),
                file(&format!("{class}/gro_flush_timeout"), "20000"),
            ];
            self.knob(&format!("deferred interrupts of {link}"), way(defer), "CPU time of polling");
            let queues = std::fs::read_dir(format!("{class}/queues")).into_iter().flatten().flatten();
            let receive: Vec<String> = queues
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter(|name| name.starts_with("rx-"))
                .collect();
            let mut ways = Vec::new();
            for &cpu in &self.candidates {
                let Some(only) = CpuSet::from_cpus([cpu]) else { continue };
                let settings: Vec<Setting> = receive
                    .iter()
                    .map(|queue| format!("{class}/queues/{queue}/rps_cpus"))
                    .filter_map(|path| Some(file(&path, &mask_like(&read(&path)?, &only))))
                    .collect();
                ways.push(Alternative { name: format!("on CPU {cpu}"), settings });
            }
            ways.retain(|way| !way.settings.is_empty());
            self.knob(&format!("received frames of {link}"), ways, "");
        }
        let core = "/proc/sys/net/core";
        let poll = vec![file(&format!("{core}/busy_poll"), "50"), file(&format!("{core}/busy_read"), "50")];
        let ways = vec![Alternative { name: "50 us".to_owned(), settings: poll }];
        self.knob("busy polling of sockets", ways, "CPU time of every thread that waits for frames");
    }

    /// They run through every search: one that is switched on by writing what is there already, and
    /// one that does nothing at all.
    fn placebos(&mut self) {
        let idle = Alternative { name: String::new(), settings: Vec::new() };
        let mut writes = idle.clone();
        let path = "/proc/sys/vm/swappiness";
        writes.settings.extend(read(path).map(|now| file(path, &now)));
        for (name, way) in
            [("placebo: nothing", idle), ("placebo: writes a value that is already set", writes)]
        {
            self.knobs.push(Knob { name: name.to_owned(), ways: vec![way], cost: "", placebo: true });
        }
    }
}

/// These threads of the kernel on these CPUs alone.
fn only_on(threads: &[&String], cpus: &CpuSet) -> Vec<Setting> {
    let of =
        |name: &&String| Setting::Cpus { process: (*name).clone(), thread: (*name).clone(), cpus: *cpus };
    threads.iter().map(of).collect()
}

/// Names of the kernel's threads: children of kthreadd, which is process 2.
fn kernel_threads() -> Vec<String> {
    let stats = procfs::numbers::<u32>("/proc").filter_map(Stat::of);
    let mut names: Vec<String> =
        stats.filter(|stat| stat.parent() == Some(2)).map(|stat| stat.name()).collect();
    names.sort();
    names.dedup();
    names
}

/// A mask as long as the one that is there: the kernel prints it so, and what is read back is
/// compared.
fn mask_like(now: &str, cpus: &CpuSet) -> String {
    let digits = now.chars().filter(char::is_ascii_hexdigit).count().clamp(1, 1024);
    takt_host::doctor::mask(cpus, digits)
}

/// Tries every way of every knob and takes it back at once: what cannot be set, or is set already,
/// falls out and is said, and so is what was not tried because the time is `over`.
pub fn tried(
    journal: &mut Journal,
    scope: Scope,
    knobs: Vec<Knob>,
    missing: &mut Vec<Missing>,
    over: &dyn Fn() -> bool,
) -> Vec<Knob> {
    // All at once, where nothing of it is refused: each note waits for the disk.
    let settings = knobs.iter().flat_map(|knob| knob.ways.iter().flat_map(|way| &way.settings));
    let actions: Vec<_> = settings.filter_map(|one| one.resolve(Some(scope)).ok()).flatten().collect();
    let _ = journal.note(&actions);
    let mut left = Vec::new();
    for mut knob in knobs {
        let title = knob.name.clone();
        let placebo = knob.placebo;
        let mut out = |way: &str, why: String| {
            let name = if way.is_empty() { title.clone() } else { format!("{title}: {way}") };
            missing.push(Missing { name, why });
        };
        knob.ways.retain_mut(|way| {
            if way.settings.is_empty() {
                return placebo;
            }
            if over() {
                out(&way.name, "the time ended before it was tried".to_owned());
                return false;
            }
            let (mut settable, mut refused, mut set_already) = (Vec::new(), None, 0);
            for setting in std::mem::take(&mut way.settings) {
                match attempt(journal, &setting, scope) {
                    Ok(true) => settable.push(setting),
                    Ok(false) => set_already += 1,
                    Err(why) => refused = Some(why),
                }
            }
            // Of many of a kind some may be refused: interrupts that the kernel manages, threads
            // that it binds.
            let useful = !settable.is_empty() || (placebo && set_already > 0);
            if !useful {
                out(&way.name, refused.unwrap_or_else(|| "it already has this value".to_owned()));
            }
            way.settings = settable;
            useful
        });
        if !knob.ways.is_empty() {
            left.push(knob);
        }
    }
    left
}

/// Whether the setting can be set and would change anything.
fn attempt(journal: &mut Journal, setting: &Setting, scope: Scope) -> Result<bool, String> {
    let actions = setting.resolve(Some(scope)).map_err(|error| error.to_string())?;
    journal.note(&actions).map_err(|error| error.to_string())?;
    // Of many threads some end meanwhile, and one is enough to say that it can be done.
    let many = matches!(setting, Setting::Alone { .. });
    let wanted: Vec<_> = actions.iter().filter(|action| !journal.is_set(action)).collect();
    let mut outcome = Ok(());
    let mut done = 0;
    for &action in &wanted {
        match journal.set(action) {
            Ok(()) => done += 1,
            Err(why) => outcome = Err(why.to_string()),
        }
    }
    for action in wanted.iter().rev() {
        // A thread that has ended in the meantime needs nothing.
        if let Err(why) = journal.unset(action) {
            outcome = Err(format!("it cannot be undone: {why}"));
            done = 0;
        }
    }
    match outcome {
        Err(why) if !many || done == 0 => Err(why),
        _ => Ok(!wanted.is_empty()),
    }
}

#[cfg(test)]
mod tests {
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
        let way = |knob: &Knob, way: &Alternative| format!("{}: {}", knob.name, way.name);
        (knobs.iter().flat_map(|knob| knob.ways.iter().map(move |one| way(knob, one))).collect(), missing)
    }

    #[test]
    fn what_is_offered_fits_the_loop() {
        let (all, missing) = names(&about());
        // Offered where the kernel has the file, and said where not.
        let offered = all.iter().any(|name| name == "tasks moved at once: 2");
        let is_reported =
            missing.iter().any(|one| one.name == "tasks moved at once" && one.why.contains("debugfs"));
        assert!(offered != is_reported, "{all:?} {missing:?}");
        for name in [
            "policy of the loop: fifo:49",
            "policy of the loop: fifo:98",
            "policy of the loop: deadline:300us/1000us/1000us",
            "CPU of the loop: 2",
            "CPU of the loop: 3 alone",
            "timer slack: 1 ns",
            "OOM victim: never the loop",
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
        assert!(
            names(&greedy).1.iter().any(|one| one.name.starts_with("policy") && one.why.contains("90 %"))
        );
    }

    #[test]
    fn threads_of_interrupts_get_priorities_and_cpus() {
        let about = about();
        let offers = |irqs: &[&String]| {
            let online = about.cpus;
            let (knobs, missing) = (Vec::new(), Vec::new());
            let mut offers = Offers { about: &about, online, candidates: vec![2, 3], knobs, missing };
            offers.interrupt_threads(irqs);
            (offers.knobs, offers.missing)
        };
        let irq = "irq/31-eth0".to_owned();
        let (knobs, missing) = offers(&[&irq]);
        assert!(missing.is_empty() && knobs[0].ways.len() == 2);
        assert_eq!(knobs[1].name, "CPUs of interrupt threads");
        let cpus = "0-1,3".parse().unwrap();
        let settings = vec![Setting::Cpus { process: irq.clone(), thread: irq.clone(), cpus }];
        assert_eq!(knobs[1].ways[0], Alternative { name: "off CPU 2".to_owned(), settings });
        assert_eq!(knobs[1].ways[1].name, "off CPU 3");
        let (knobs, missing) = offers(&[]);
        assert!(knobs.is_empty() && missing.len() == 2 && missing[1].why.contains("threadirqs"));
    }

    #[test]
    fn masks_are_as_long_as_those_that_are_there() {
        let cpus: CpuSet = "0,33".parse().unwrap();
        assert_eq!(mask_like("3", &"1".parse().unwrap()), "2");
        assert_eq!(mask_like("ff,ffffffff", &cpus), "02,00000001");
        assert_eq!(mask_like("", &cpus), "1");
    }
}
