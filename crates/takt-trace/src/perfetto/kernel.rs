//! Kernel events: what Perfetto knows goes into bundles of ftrace events, the rest onto tracks.

use std::io::Write;

use super::proto::{self, Data, Ftrace, FtraceEvent, FtraceEventBundle, TracePacket, TrackDescriptor};
use super::writer::{Argument, PerfettoError, Writer, argument, number};
use crate::event::{Event, Kind, State};

/// Events in one bundle: some 30 KiB; a bundle too long makes one packet that readers must hold
/// whole.
const BUNDLE: usize = 512;

/// State kept for a CPU.
#[derive(Debug, Default)]
pub(super) struct CpuState {
    bundle: Vec<FtraceEvent>,
    /// The first event of the bundle comes after lost ones.
    after_loss: bool,
    track: Option<u64>,
    /// Open slices of `track`.
    depth: u32,
}

impl<W: Write> Writer<W> {
    /// Writes kernel events; those of one CPU in their order.
    ///
    /// # Errors
    /// [`PerfettoError::Write`].
    pub fn events(&mut self, events: &[Event]) -> Result<(), PerfettoError> {
        for event in events {
            self.kernel_event(event)?;
        }
        Ok(())
    }

    fn kernel_event(&mut self, event: &Event) -> Result<(), PerfettoError> {
        self.written.events += 1;
        let time_ns = event.time_ns;
        match event.kind {
            Kind::VectorEntry(vector) => self.enter(event, vector.name(), Vec::new())?,
            Kind::VectorExit(_) => self.leave(event)?,
            Kind::TimerExpireEntry { timer, function, now_ns } => {
                self.enter(
                    event,
                    "hrtimer",
                    vec![
                        argument("timer", Argument::Address(timer)),
                        argument("function", Argument::Address(function)),
                        number("now_ns", now_ns),
                    ],
                )?;
            }
            Kind::TimerExpireExit { .. } => self.leave(event)?,
            Kind::PageFault { address, ip, user } => {
                let track = self.thread_track(event.tid)?;
                let name = if user { "page fault (user)" } else { "page fault (kernel)" };
                let details = vec![
                    argument("address", Argument::Address(address)),
                    argument("ip", Argument::Address(ip)),
                ];
                self.instant(track, time_ns, name, details)?;
            }
            Kind::ContentionBegin { lock, .. } => {
                let track = self.thread_track(event.tid)?;
                *self.waiting.entry(event.tid).or_default() += 1;
                let details = vec![argument("lock", Argument::Address(lock))];
                self.begin(track, time_ns, "waits for a kernel lock", details)?;
            }
            Kind::ContentionEnd { .. } => {
                // Waits that began before the trace have no slice to end.
                if let Some(depth) = self.waiting.get_mut(&event.tid).filter(|depth| **depth > 0) {
                    *depth -= 1;
                    let track = self.thread_track(event.tid)?;
                    self.end(track, time_ns)?;
                }
            }
            Kind::Lost { count } => {
                let track = self.cpu_track(event.cpu)?;
                // Whatever was open may have ended in the hole, and its end may be among what is
                // missing.
                for _ in 0..std::mem::take(&mut self.cpu(event.cpu).depth) {
                    self.end(track, time_ns)?;
                }
                match count {
                    0 => self.instant(track, time_ns, "events left out", Vec::new())?,
                    _ => self.instant(track, time_ns, "events lost", vec![number("count", count)])?,
                }
                self.flush_bundle(event.cpu)?;
                self.cpu(event.cpu).after_loss = true;
            }
            _ => {}
        }
        if let Some(ftrace) = self.ftrace(event) {
            let entry = FtraceEvent {
                timestamp: Some(time_ns),
                pid: Some(event.tid.unsigned_abs()),
                event: Some(ftrace),
            };
            let cpu = self.cpu(event.cpu);
            cpu.bundle.push(entry);
            if cpu.bundle.len() >= BUNDLE {
                self.flush_bundle(event.cpu)?;
            }
        }
        Ok(())
    }

    /// The event as Perfetto knows it; None for what it has no event for, or no picture.
    fn ftrace(&self, event: &Event) -> Option<Ftrace> {
        let wakeup = |tid: i32, prio: i16, target_cpu: u16| proto::SchedWakeup {
            comm: Some(self.comm(tid)),
            pid: Some(tid),
            prio: Some(prio.into()),
            success: Some(1),
            target_cpu: Some(target_cpu.into()),
        };
        Some(match event.kind {
            Kind::Switch { prev_tid, prev_prio, prev_state, next_tid, next_prio } => {
                Ftrace::SchedSwitch(proto::SchedSwitch {
                    prev_comm: Some(self.comm(prev_tid)),
                    prev_pid: Some(prev_tid),
                    prev_prio: Some(prev_prio.into()),
                    prev_state: Some(raw_state(prev_state)),
                    next_comm: Some(self.comm(next_tid)),
                    next_pid: Some(next_tid),
                    next_prio: Some(next_prio.into()),
                })
            }
            Kind::Waking { tid, prio, target_cpu } => Ftrace::SchedWaking(wakeup(tid, prio, target_cpu)),
            Kind::Wakeup { tid, prio, target_cpu } => Ftrace::SchedWakeup(wakeup(tid, prio, target_cpu)),
            Kind::WakeupNew { tid, prio, target_cpu } => {
                Ftrace::SchedWakeupNew(wakeup(tid, prio, target_cpu))
            }
            Kind::Migrate { tid, from_cpu, to_cpu } => Ftrace::SchedMigrateTask(proto::SchedMigrateTask {
                comm: Some(self.comm(tid)),
                pid: Some(tid),
                orig_cpu: Some(from_cpu.into()),
                dest_cpu: Some(to_cpu.into()),
            }),
            Kind::PiSetprio { tid, old_prio, new_prio } => Ftrace::SchedPiSetprio(proto::SchedPiSetprio {
                comm: Some(self.comm(tid)),
                newprio: Some(new_prio.into()),
                oldprio: Some(old_prio.into()),
                pid: Some(tid),
            }),
            Kind::Exit { tid } => Ftrace::SchedProcessExit(proto::SchedProcessExit {
                comm: Some(self.comm(tid)),
                pid: Some(tid),
                tgid: self.threads.get(&tid).and_then(|thread| thread.pid),
            }),
            Kind::IrqEntry { irq } => Ftrace::IrqHandlerEntry(proto::IrqHandlerEntry {
                irq: i32::try_from(irq).ok(),
                name: Some(self.irqs.get(&irq).cloned().unwrap_or_default()),
            }),
            Kind::IrqExit { irq } => {
                Ftrace::IrqHandlerExit(proto::IrqHandlerExit { irq: i32::try_from(irq).ok(), ret: Some(1) })
            }
            Kind::SoftirqRaise(softirq) => Ftrace::SoftirqRaise(vec_of(softirq.0)),
            Kind::SoftirqEntry(softirq) => Ftrace::SoftirqEntry(vec_of(softirq.0)),
            Kind::SoftirqExit(softirq) => Ftrace::SoftirqExit(vec_of(softirq.0)),
            // Leaving idle is PWR_EVENT_EXIT, -1.
            Kind::CpuIdle { state } => Ftrace::CpuIdle(proto::CpuState {
                state: Some(state.unwrap_or(u32::MAX)),
                cpu_id: Some(event.cpu.into()),
            }),
            Kind::CpuFrequency { cpu, khz } => {
                Ftrace::CpuFrequency(proto::CpuState { state: Some(khz), cpu_id: Some(cpu.into()) })
            }
            Kind::TimerStart { timer, function, expires_ns, slack_ns } => {
                Ftrace::HrtimerStart(proto::HrtimerStart {
                    hrtimer: Some(timer),
                    function: Some(function),
                    expires: Some(expires_ns.cast_signed()),
                    softexpires: Some(expires_ns.saturating_sub(slack_ns.into()).cast_signed()),
                })
            }
            Kind::TimerCancel { timer } => Ftrace::HrtimerCancel(proto::Hrtimer { hrtimer: Some(timer) }),
            Kind::TimerExpireEntry { timer, function, now_ns } => {
                Ftrace::HrtimerExpireEntry(proto::HrtimerExpireEntry {
                    hrtimer: Some(timer),
                    now: Some(now_ns.cast_signed()),
                    function: Some(function),
                })
            }
            Kind::TimerExpireExit { timer } => {
                Ftrace::HrtimerExpireExit(proto::Hrtimer { hrtimer: Some(timer) })
            }
            Kind::SignalGenerate { signal, tid } => Ftrace::SignalGenerate(proto::SignalGenerate {
                comm: Some(self.comm(tid)),
                pid: Some(tid),
                sig: Some(signal),
            }),
            Kind::SysEnter { number } => Ftrace::SysEnter(proto::Sys { id: Some(number) }),
            Kind::SysExit { number } => Ftrace::SysExit(proto::Sys { id: Some(number) }),
            // Fork: the names of all threads are in the process tree.
            Kind::VectorEntry(_)
            | Kind::VectorExit(_)
            | Kind::Runtime { .. }
            | Kind::PageFault { .. }
            | Kind::Fork { .. }
            | Kind::ContentionBegin { .. }
            | Kind::ContentionEnd { .. }
            | Kind::Packet { .. }
            | Kind::Lost { .. } => return None,
        })
    }

    fn comm(&self, tid: i32) -> String {
        match self.threads.get(&tid) {
            // The idle threads: Perfetto knows them by number and name.
            _ if tid == 0 => "swapper".to_owned(),
            Some(thread) => thread.name.clone(),
            None => String::new(),
        }
    }

    fn cpu(&mut self, cpu: u16) -> &mut CpuState {
        let index = usize::from(cpu);
        if self.cpus.len() <= index {
            self.cpus.resize_with(index + 1, CpuState::default);
        }
        &mut self.cpus[index]
    }

    fn cpu_track(&mut self, cpu: u16) -> Result<u64, PerfettoError> {
        if let Some(track) = self.cpu(cpu).track {
            return Ok(track);
        }
        let group = match self.cpu_group {
            Some(group) => group,
            None => {
                let group = self.track(TrackDescriptor {
                    name: Some("CPU interrupts".to_owned()),
                    child_ordering: Some(3),
                    ..TrackDescriptor::default()
                })?;
                *self.cpu_group.insert(group)
            }
        };
        let track = self.child(group, &format!("CPU {cpu} interrupts"), cpu.into())?;
        self.cpu(cpu).track = Some(track);
        Ok(track)
    }

    fn enter(
        &mut self,
        event: &Event,
        name: &str,
        details: Vec<proto::DebugAnnotation>,
    ) -> Result<(), PerfettoError> {
        let track = self.cpu_track(event.cpu)?;
        self.cpu(event.cpu).depth += 1;
        self.begin(track, event.time_ns, name, details)
    }

    fn leave(&mut self, event: &Event) -> Result<(), PerfettoError> {
        // A function entered before the trace began has no slice to end.
        let cpu = self.cpu(event.cpu);
        match cpu.track {
            Some(track) if cpu.depth > 0 => {
                cpu.depth -= 1;
                self.end(track, event.time_ns)
            }
            _ => Ok(()),
        }
    }

    /// The thread's own track; without a known process it stands alone.
    fn thread_track(&mut self, tid: i32) -> Result<u64, PerfettoError> {
        if let Some(&track) = self.thread_tracks.get(&tid) {
            return Ok(track);
        }
        let name = self.comm(tid);
        let descriptor = match self.threads.get(&tid).and_then(|thread| thread.pid) {
            Some(pid) => TrackDescriptor {
                thread: Some(proto::ThreadDescriptor {
                    pid: Some(pid),
                    tid: Some(tid.into()),
                    thread_name: Some(name),
                }),
                ..TrackDescriptor::default()
            },
            None => TrackDescriptor { name: Some(format!("{name} {tid}")), ..TrackDescriptor::default() },
        };
        let track = self.track(descriptor)?;
        self.thread_tracks.insert(tid, track);
        Ok(track)
    }

    fn flush_bundle(&mut self, cpu: u16) -> Result<(), PerfettoError> {
        let state = self.cpu(cpu);
        if state.bundle.is_empty() {
            return Ok(());
        }
        let bundle = FtraceEventBundle {
            cpu: Some(cpu.into()),
            event: std::mem::take(&mut state.bundle),
            lost_events: std::mem::take(&mut state.after_loss).then_some(true),
        };
        self.packet(TracePacket { data: Some(Data::FtraceEvents(bundle)), ..TracePacket::default() })
    }

    pub(super) fn flush_bundles(&mut self) -> Result<(), PerfettoError> {
        for cpu in 0..self.cpus.len() {
            self.flush_bundle(u16::try_from(cpu).unwrap_or(u16::MAX))?;
        }
        Ok(())
    }
}

fn vec_of(number: u8) -> proto::Softirq {
    proto::Softirq { vec: Some(number.into()) }
}

/// The state's bits, of which S to Z mean the same in all kernels. Perfetto reads higher ones (P,
/// I) by the kernel's version, which we do not report; such threads sleep.
fn raw_state(state: State) -> i64 {
    match state {
        State::Runnable => 0,
        State::Sleeping | State::Other => 1,
        State::Blocked => 2,
        State::Stopped => 4,
        State::Traced => 8,
        State::Dead => 0x10,
    }
}
