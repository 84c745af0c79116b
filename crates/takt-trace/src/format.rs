//! Formats of tracepoints (tracefs `events/*/*/format`), and records decoded by them.

use std::collections::HashMap;

use crate::error::TraceError;
use crate::event::{Kind, PacketStep, Softirq, State, Trace, Vector};

/// One field of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Offset in the record.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Whether a smaller integer is extended by its sign.
    pub signed: bool,
    /// Whether it holds offset and length of a string elsewhere in the record (`__data_loc`).
    pub data_loc: bool,
}

impl Field {
    /// The field as an integer; None where the record is shorter.
    pub fn integer(&self, raw: &[u8]) -> Option<i64> {
        let bytes = raw.get(self.offset..self.offset.checked_add(self.size)?)?;
        Some(match (bytes.len(), self.signed) {
            (8, _) => i64::from_ne_bytes(bytes.try_into().ok()?),
            (4, true) => i64::from(i32::from_ne_bytes(bytes.try_into().ok()?)),
            (4, false) => i64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            (2, true) => i64::from(i16::from_ne_bytes(bytes.try_into().ok()?)),
            (2, false) => i64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            (1, true) => i64::from(bytes[0] as i8),
            (1, false) => i64::from(bytes[0]),
            _ => return None,
        })
    }

    /// The field as text up to its NUL; empty where the record is shorter.
    pub fn text<'a>(&self, raw: &'a [u8]) -> &'a [u8] {
        let (offset, size) = if self.data_loc {
            let place = Field { size: 4, signed: false, data_loc: false, ..*self }.integer(raw).unwrap_or(0);
            ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize)
        } else {
            (self.offset, self.size)
        };
        let bytes = raw.get(offset..offset.saturating_add(size)).unwrap_or_default();
        bytes.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

/// A tracepoint's number and fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// `system:name`.
    pub name: String,
    /// The number in `common_type`.
    pub id: u16,
    /// Its fields by name.
    pub fields: HashMap<String, Field>,
}

impl Format {
    /// Parses the text of a format file of tracepoint `name` (`system:name`).
    ///
    /// # Errors
    /// [`TraceError::Format`].
    pub fn parse(name: &str, text: &str) -> Result<Self, TraceError> {
        let error = |found: &str, expected: &str| TraceError::Format {
            tracepoint: name.to_owned(),
            found: format!("{:?}", found.chars().take(80).collect::<String>()),
            expected: expected.to_owned(),
        };
        let mut id = None;
        let mut fields = HashMap::new();
        for line in text.lines().map(str::trim) {
            if let Some(number) = line.strip_prefix("ID:") {
                id = Some(number.trim().parse().map_err(|_| error(line, "`ID: ` and a number below 65536"))?);
            } else if let Some(rest) = line.strip_prefix("field:") {
                let mut parts = rest.split(';').map(str::trim);
                let declaration = parts.next().unwrap_or_default();
                let mut number = |key: &str| -> Result<usize, TraceError> {
                    let part = parts.next().unwrap_or_default();
                    let value = part.strip_prefix(key).and_then(|value| value.parse().ok());
                    value.ok_or_else(|| error(line, &format!("`{key}` and a number")))
                };
                let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")? != 0);
                let word = declaration.rsplit([' ', '*']).next().unwrap_or_default();
                let key = word.split('[').next().unwrap_or_default();
                let data_loc = declaration.starts_with("__data_loc");
                fields.insert(key.to_owned(), Field { offset, size, signed, data_loc });
            }
        }
        let id = id.ok_or_else(|| error(text, "a line `ID: NUMBER`"))?;
        Ok(Self { name: name.to_owned(), id, fields })
    }

    pub(crate) fn field(&self, name: &str) -> Result<Field, TraceError> {
        self.fields.get(name).copied().ok_or_else(|| TraceError::Format {
            tracepoint: self.name.clone(),
            found: "without it".to_owned(),
            expected: format!("a field `{name}`"),
        })
    }
}

/// Kind of a tracepoint, for a fast choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Switch,
    Waking,
    Wakeup,
    WakeupNew,
    Migrate,
    PiSetprio,
    Runtime,
    Fork,
    Exit,
    TimerStart,
    TimerCancel,
    TimerExpireEntry,
    TimerExpireExit,
    IrqEntry,
    IrqExit,
    SoftirqRaise,
    SoftirqEntry,
    SoftirqExit,
    PageFaultUser,
    PageFaultKernel,
    CpuIdle,
    CpuFrequency,
    SignalGenerate,
    ContentionBegin,
    ContentionEnd,
    SysEnter,
    SysExit,
    VectorEntry,
    VectorExit,
    Packet(PacketStep),
}

/// The tracepoints that [`Decoder`] understands, with the fields it reads, in the order that it
/// reads them.
const KNOWN: &[(&str, Tag, &[&str])] = &[
    (
        "sched:sched_switch",
        Tag::Switch,
        &["prev_pid", "prev_prio", "prev_state", "next_pid", "next_prio", "next_comm", "prev_comm"],
    ),
    ("sched:sched_waking", Tag::Waking, &["pid", "prio", "target_cpu", "comm"]),
    ("sched:sched_wakeup", Tag::Wakeup, &["pid", "prio", "target_cpu", "comm"]),
    ("sched:sched_wakeup_new", Tag::WakeupNew, &["pid", "prio", "target_cpu", "comm"]),
    ("sched:sched_migrate_task", Tag::Migrate, &["pid", "orig_cpu", "dest_cpu"]),
    ("sched:sched_pi_setprio", Tag::PiSetprio, &["pid", "oldprio", "newprio", "comm"]),
    ("sched:sched_stat_runtime", Tag::Runtime, &["pid", "runtime"]),
    ("sched:sched_process_fork", Tag::Fork, &["child_pid", "child_comm"]),
    ("sched:sched_process_exit", Tag::Exit, &["pid"]),
    ("timer:hrtimer_start", Tag::TimerStart, &["hrtimer", "function", "expires", "softexpires"]),
    ("timer:hrtimer_cancel", Tag::TimerCancel, &["hrtimer"]),
    ("timer:hrtimer_expire_entry", Tag::TimerExpireEntry, &["hrtimer", "function", "now"]),
    ("timer:hrtimer_expire_exit", Tag::TimerExpireExit, &["hrtimer"]),
    ("irq:irq_handler_entry", Tag::IrqEntry, &["irq", "name"]),
    ("irq:irq_handler_exit", Tag::IrqExit, &["irq"]),
    ("irq:softirq_raise", Tag::SoftirqRaise, &["vec"]),
    ("irq:softirq_entry", Tag::SoftirqEntry, &["vec"]),
    ("irq:softirq_exit", Tag::SoftirqExit, &["vec"]),
    ("exceptions:page_fault_user", Tag::PageFaultUser, &["address", "ip"]),
    ("exceptions:page_fault_kernel", Tag::PageFaultKernel, &["address", "ip"]),
    ("power:cpu_idle", Tag::CpuIdle, &["state"]),
    ("power:cpu_frequency", Tag::CpuFrequency, &["state", "cpu_id"]),
    ("signal:signal_generate", Tag::SignalGenerate, &["sig", "pid"]),
    ("lock:contention_begin", Tag::ContentionBegin, &["lock_addr", "flags"]),
    ("lock:contention_end", Tag::ContentionEnd, &["lock_addr"]),
    ("raw_syscalls:sys_enter", Tag::SysEnter, &["id"]),
    ("raw_syscalls:sys_exit", Tag::SysExit, &["id"]),
    ("net:netif_receive_skb", Tag::Packet(PacketStep::Received), &["skbaddr", "len"]),
    ("skb:skb_copy_datagram_iovec", Tag::Packet(PacketStep::Copied), &["skbaddr", "len"]),
    ("net:net_dev_queue", Tag::Packet(PacketStep::Queued), &["skbaddr", "len"]),
    ("net:net_dev_xmit", Tag::Packet(PacketStep::Sent), &["skbaddr", "len"]),
    ("irq_vectors:local_timer_entry", Tag::VectorEntry, &[]),
    ("irq_vectors:local_timer_exit", Tag::VectorExit, &[]),
    ("irq_vectors:reschedule_entry", Tag::VectorEntry, &[]),
    ("irq_vectors:reschedule_exit", Tag::VectorExit, &[]),
    ("irq_vectors:call_function_entry", Tag::VectorEntry, &[]),
    ("irq_vectors:call_function_exit", Tag::VectorExit, &[]),
    ("irq_vectors:call_function_single_entry", Tag::VectorEntry, &[]),
    ("irq_vectors:call_function_single_exit", Tag::VectorExit, &[]),
    ("irq_vectors:irq_work_entry", Tag::VectorEntry, &[]),
    ("irq_vectors:irq_work_exit", Tag::VectorExit, &[]),
    ("irq_vectors:thermal_apic_entry", Tag::VectorEntry, &[]),
    ("irq_vectors:thermal_apic_exit", Tag::VectorExit, &[]),
];

#[derive(Debug, Clone)]
struct Plan {
    tag: Tag,
    vector: Vector,
    fields: Vec<Field>,
}

/// Decodes raw records of the tracepoints that it was given formats of.
#[derive(Debug, Clone)]
pub struct Decoder {
    plans: Vec<Plan>,
    /// By the number in `common_type`: place in `plans` from 1, or 0. Looked up for every event.
    places: Vec<u16>,
    common_pid: Field,
}

impl Default for Decoder {
    fn default() -> Self {
        let common_pid = Field { offset: 4, size: 4, signed: true, data_loc: false };
        Self { plans: Vec::new(), places: Vec::new(), common_pid }
    }
}

impl Decoder {
    /// Names of all tracepoints that can be decoded.
    pub fn known() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|entry| entry.0)
    }

    /// Adds a tracepoint; false where it is none of [`Self::known`].
    ///
    /// # Errors
    /// [`TraceError::Format`] where a field is missing.
    pub fn add(&mut self, format: &Format) -> Result<bool, TraceError> {
        let Some(known) = KNOWN.iter().position(|entry| entry.0 == format.name) else { return Ok(false) };
        let fields = KNOWN[known].2.iter().map(|name| format.field(name)).collect::<Result<Vec<_>, _>>()?;
        if let Some(&field) = format.fields.get("common_pid") {
            self.common_pid = field;
        }
        let short = format.name.strip_prefix("irq_vectors:").unwrap_or_default();
        let vector = Vector::TRACED
            .iter()
            .find(|entry| short.strip_prefix(entry.1).is_some_and(|rest| rest == "_entry" || rest == "_exit"))
            .map_or(Vector::Other, |entry| entry.0);
        let place = usize::from(format.id);
        if self.places.len() <= place {
            self.places.resize(place + 1, 0);
        }
        self.plans.push(Plan { tag: KNOWN[known].1, vector, fields });
        self.places[place] = u16::try_from(self.plans.len()).unwrap_or(0);
        Ok(true)
    }

    /// Decodes a raw record: the current thread and what happened. Names that it brings go into
    /// `trace`. None for a tracepoint that was not added, and for a record that is too short.
    pub fn decode(&self, raw: &[u8], trace: &mut Trace) -> Option<(i32, Kind)> {
        self.decode_named(raw, trace, &mut note_name)
    }

    /// As [`Self::decode`]; names of threads go to `note`.
    pub(crate) fn decode_named(
        &self,
        raw: &[u8],
        trace: &mut Trace,
        note: &mut dyn FnMut(&mut Trace, i32, &[u8]),
    ) -> Option<(i32, Kind)> {
        let kind = Field { offset: 0, size: 2, signed: false, data_loc: false }.integer(raw)?;
        let place = *self.places.get(usize::from(kind as u16))?;
        let plan = self.plans.get(usize::from(place.checked_sub(1)?))?;
        let tid = self.common_pid.integer(raw)? as i32;
        let get = |index: usize| plan.fields.get(index).and_then(|field: &Field| field.integer(raw));
        let thread = |index: usize| get(index).map(|value| value as i32);
        let prio = |index: usize| get(index).map(|value| value as i16);
        let cpu = |index: usize| get(index).map(|value| value as u16);
        let address = |index: usize| get(index).map(|value| value as u64);
        let mut name = |tid: i32, index: usize| {
            if let Some(field) = plan.fields.get(index) {
                note(trace, tid, field.text(raw));
            }
        };
        let kind = match plan.tag {
            Tag::Switch => {
                name(thread(3)?, 5);
                name(thread(0)?, 6);
                Kind::Switch {
                    prev_tid: thread(0)?,
                    prev_prio: prio(1)?,
                    prev_state: State::from_raw(get(2)?),
                    next_tid: thread(3)?,
                    next_prio: prio(4)?,
                }
            }
            Tag::Waking => {
                name(thread(0)?, 3);
                Kind::Waking { tid: thread(0)?, prio: prio(1)?, target_cpu: cpu(2)? }
            }
            Tag::Wakeup => Kind::Wakeup { tid: thread(0)?, prio: prio(1)?, target_cpu: cpu(2)? },
            Tag::WakeupNew => {
                name(thread(0)?, 3);
                Kind::WakeupNew { tid: thread(0)?, prio: prio(1)?, target_cpu: cpu(2)? }
            }
            Tag::Migrate => Kind::Migrate { tid: thread(0)?, from_cpu: cpu(1)?, to_cpu: cpu(2)? },
            Tag::PiSetprio => {
                name(thread(0)?, 3);
                Kind::PiSetprio { tid: thread(0)?, old_prio: prio(1)?, new_prio: prio(2)? }
            }
            Tag::Runtime => Kind::Runtime { tid: thread(0)?, runtime_ns: address(1)? },
            Tag::Fork => {
                name(thread(0)?, 1);
                Kind::Fork { child_tid: thread(0)? }
            }
            Tag::Exit => Kind::Exit { tid: thread(0)? },
            Tag::TimerStart => {
                let (timer, function) = (address(0)?, address(1)?);
                let expires_ns = address(2)?;
                let slack_ns = u32::try_from(expires_ns.saturating_sub(address(3)?)).unwrap_or(u32::MAX);
                Kind::TimerStart { timer, function, expires_ns, slack_ns }
            }
            Tag::TimerCancel => Kind::TimerCancel { timer: address(0)? },
            Tag::TimerExpireEntry => {
                Kind::TimerExpireEntry { timer: address(0)?, function: address(1)?, now_ns: address(2)? }
            }
            Tag::TimerExpireExit => Kind::TimerExpireExit { timer: address(0)? },
            Tag::IrqEntry => {
                let irq = get(0)? as u32;
                if let Some(field) = plan.fields.get(1) {
                    let text = field.text(raw);
                    trace.irqs.entry(irq).or_insert_with(|| String::from_utf8_lossy(text).into_owned());
                }
                Kind::IrqEntry { irq }
            }
            Tag::IrqExit => Kind::IrqExit { irq: get(0)? as u32 },
            Tag::SoftirqRaise => Kind::SoftirqRaise(Softirq(get(0)? as u8)),
            Tag::SoftirqEntry => Kind::SoftirqEntry(Softirq(get(0)? as u8)),
            Tag::SoftirqExit => Kind::SoftirqExit(Softirq(get(0)? as u8)),
            Tag::PageFaultUser => Kind::PageFault { address: address(0)?, ip: address(1)?, user: true },
            Tag::PageFaultKernel => Kind::PageFault { address: address(0)?, ip: address(1)?, user: false },
            Tag::CpuIdle => {
                let state = get(0)? as u32;
                // PWR_EVENT_EXIT is (u32)-1.
                Kind::CpuIdle { state: (state != u32::MAX).then_some(state) }
            }
            Tag::CpuFrequency => Kind::CpuFrequency { khz: get(0)? as u32, cpu: cpu(1)? },
            Tag::SignalGenerate => Kind::SignalGenerate { signal: thread(0)?, tid: thread(1)? },
            Tag::ContentionBegin => Kind::ContentionBegin { lock: address(0)?, flags: get(1)? as u32 },
            Tag::ContentionEnd => Kind::ContentionEnd { lock: address(0)? },
            Tag::SysEnter => Kind::SysEnter { number: get(0)? },
            Tag::SysExit => Kind::SysExit { number: get(0)? },
            Tag::Packet(step) => Kind::Packet { step, buffer: address(0)?, bytes: get(1)? as u32 },
            Tag::VectorEntry => Kind::VectorEntry(plan.vector),
            Tag::VectorExit => Kind::VectorExit(plan.vector),
        };
        Some((tid, kind))
    }
}

/// Keeps the newest name of a thread.
pub(crate) fn note_name(trace: &mut Trace, tid: i32, name: &[u8]) {
    if tid == 0 || name.is_empty() {
        return;
    }
    let thread = trace.threads.entry(tid).or_default();
    if thread.name.as_bytes() != name {
        thread.name = String::from_utf8_lossy(name).into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WAKING: &str = "name: sched_waking\nID: 375\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n\nprint fmt: \"comm=%s\", REC->comm\n";

    fn waking() -> Decoder {
        let mut decoder = Decoder::default();
        assert!(decoder.add(&Format::parse("sched:sched_waking", WAKING).unwrap()).unwrap());
        decoder
    }

    #[test]
    fn a_record_is_read_by_its_format() {
        let mut raw = vec![0u8; 36];
        raw[0..2].copy_from_slice(&375u16.to_ne_bytes());
        raw[4..8].copy_from_slice(&7i32.to_ne_bytes());
        raw[8..11].copy_from_slice(b"uav");
        raw[24..28].copy_from_slice(&1234i32.to_ne_bytes());
        raw[28..32].copy_from_slice(&(-1i32).to_ne_bytes());
        raw[32..36].copy_from_slice(&1i32.to_ne_bytes());
        let mut trace = Trace::default();
        let decoded = waking().decode(&raw, &mut trace);
        assert_eq!(decoded, Some((7, Kind::Waking { tid: 1234, prio: -1, target_cpu: 1 })));
        assert_eq!(trace.name(1234), "uav");
    }

    #[test]
    fn strings_elsewhere_in_the_record_are_found() {
        let text = "ID: 225\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
            \tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n";
        let mut decoder = Decoder::default();
        decoder.add(&Format::parse("irq:irq_handler_entry", text).unwrap()).unwrap();
        let mut raw = vec![0u8; 16];
        raw[0..2].copy_from_slice(&225u16.to_ne_bytes());
        raw[8..12].copy_from_slice(&36i32.to_ne_bytes());
        raw[12..16].copy_from_slice(&(4u32 << 16 | 16).to_ne_bytes());
        raw.extend(b"eth\0");
        let mut trace = Trace::default();
        assert_eq!(decoder.decode(&raw, &mut trace), Some((0, Kind::IrqEntry { irq: 36 })));
        assert_eq!(trace.irqs[&36], "eth");
    }

    #[test]
    fn damaged_formats_are_reported() {
        for (text, word) in [
            ("", "ID"),
            ("ID: many", "number"),
            ("ID: 3\n field:int pid; offset:x; size:4; signed:1;", "offset"),
        ] {
            let error = Format::parse("sched:sched_waking", text).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("sched_waking"), "{error}");
        }
        let error = Decoder::default()
            .add(&Format::parse("sched:sched_waking", "ID: 3\n").unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains("`pid`"), "{error}");
    }

    proptest! {
        #[test]
        fn no_record_and_no_format_panics(mut raw in proptest::collection::vec(any::<u8>(), 0..60), text in ".{0,200}") {
            let mut trace = Trace::default();
            let decoder = waking();
            let _ = decoder.decode(&raw, &mut trace);
            if raw.len() >= 2 {
                raw[0..2].copy_from_slice(&375u16.to_ne_bytes());
            }
            prop_assert_eq!(decoder.decode(&raw, &mut trace).is_some(), raw.len() >= 36);
            let _ = Format::parse("sched:sched_waking", &text);
            let _ = Format::parse("x", &format!("ID: 3\nfield:{text}"));
        }
    }
}
