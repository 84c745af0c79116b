//! Writes CTF traces as LTTng lays them out, for tests and benches: every byte under control.

#![allow(dead_code, reason = "each test and bench uses a part")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Events of the provider `ros2`, as [`metadata`] numbers them.
pub mod id {
    pub const CALLBACK_START: u32 = 0;
    pub const CALLBACK_END: u32 = 1;
    pub const RCLCPP_PUBLISH: u32 = 2;
    pub const RCL_PUBLISH: u32 = 3;
    pub const RMW_PUBLISH: u32 = 4;
    pub const RMW_TAKE: u32 = 5;
    pub const NODE_INIT: u32 = 6;
    pub const WAIT: u32 = 7;
    /// Not one of ours.
    pub const OTHER: u32 = 8;
}

/// Kind of LTTng's event headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    Compact,
    Large,
}

pub const UUID: [u8; 16] = *b"\x09\x14\x71\x4e\x60\x6b\x49\x34\x8f\xce\xbc\x5b\x3e\xb5\x5b\xa6";
const UUID_TEXT: &str = "0914714e-606b-4934-8fce-bc5b3eb55ba6";

/// Metadata as LTTng writes it.
pub fn metadata(header: Header) -> String {
    let header = match header {
        Header::Compact => "event_header_compact",
        Header::Large => "event_header_large",
    };
    let mut text = format!(
        r#"/* CTF 1.8 */

typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := unsigned long;
typealias integer {{ size = 5; align = 1; signed = false; }} := uint5_t;
typealias integer {{ size = 27; align = 1; signed = false; }} := uint27_t;
trace {{
	major = 1; minor = 8; uuid = "{UUID_TEXT}"; byte_order = le;
	packet.header := struct {{ uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; uint64_t stream_instance_id; }};
}};
env {{ domain = "ust"; tracer_name = "lttng-ust"; tracer_major = 2; hostname = "here"; }};
clock {{
	name = "monotonic"; uuid = "f734e23f-4e6c-4955-89b3-3d5d7ac3043d";
	description = "Monotonic Clock"; freq = 1000000000; offset = 1655772632839550660;
}};
typealias integer {{ size = 27; align = 1; signed = false; map = clock.monotonic.value; }} := uint27_clock_monotonic_t;
typealias integer {{ size = 32; align = 8; signed = false; map = clock.monotonic.value; }} := uint32_clock_monotonic_t;
typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := uint64_clock_monotonic_t;
struct packet_context {{
	uint64_clock_monotonic_t timestamp_begin; uint64_clock_monotonic_t timestamp_end; uint64_t content_size;
	uint64_t packet_size; uint64_t packet_seq_num; unsigned long events_discarded; uint32_t cpu_id;
}};
struct event_header_compact {{
	enum : uint5_t {{ compact = 0 ... 30, extended = 31 }} id;
	variant <id> {{
		struct {{ uint27_clock_monotonic_t timestamp; }} compact;
		struct {{ uint32_t id; uint64_clock_monotonic_t timestamp; }} extended;
	}} v;
}} align(8);
struct event_header_large {{
	enum : uint16_t {{ compact = 0 ... 65534, extended = 65535 }} id;
	variant <id> {{
		struct {{ uint32_clock_monotonic_t timestamp; }} compact;
		struct {{ uint32_t id; uint64_clock_monotonic_t timestamp; }} extended;
	}} v;
}} align(8);
stream {{
	id = 0; event.header := struct {header}; packet.context := struct packet_context;
	event.context := struct {{
		integer {{ size = 32; align = 8; signed = 1; encoding = none; base = 10; }} _vpid;
		integer {{ size = 8; align = 8; signed = 1; encoding = UTF8; base = 10; }} _procname[17];
		integer {{ size = 32; align = 8; signed = 1; encoding = none; base = 10; }} _vtid;
	}};
}};
"#
    );
    const P: &str = "integer { size = 64; align = 8; signed = 0; encoding = none; base = 16; }";
    const I: &str = "integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; }";
    const L: &str = "integer { size = 64; align = 8; signed = 1; encoding = none; base = 10; }";
    let events: [(&str, &[(&str, &str)]); 9] = [
        ("ros2:callback_start", &[(P, "_callback"), (I, "_is_intra_process")]),
        ("ros2:callback_end", &[(P, "_callback")]),
        ("ros2:rclcpp_publish", &[(P, "_message")]),
        ("ros2:rcl_publish", &[(P, "_publisher_handle"), (P, "_message")]),
        ("ros2:rmw_publish", &[(P, "_rmw_publisher_handle"), (P, "_message"), (L, "_timestamp")]),
        (
            "ros2:rmw_take",
            &[(P, "_rmw_subscription_handle"), (P, "_message"), (L, "_source_timestamp"), (I, "_taken")],
        ),
        (
            "ros2:rcl_node_init",
            &[(P, "_node_handle"), (P, "_rmw_handle"), ("string", "_node_name"), ("string", "_namespace")],
        ),
        ("ros2:rclcpp_executor_wait_for_work", &[(L, "_timeout")]),
        ("other:event", &[("string", "_text"), (I, "_number")]),
    ];
    for (id, (name, fields)) in events.iter().enumerate() {
        let _ = write!(
            text,
            "event {{ name = \"{name}\"; id = {id}; stream_id = 0; loglevel = 13; fields := struct {{"
        );
        for (of, field) in *fields {
            let _ = write!(text, " {of} {field};");
        }
        text.push_str(" }; };\n");
    }
    text
}

/// A packet under way.
#[derive(Debug, Clone)]
pub struct Packet {
    pub header: Header,
    pub instance: u64,
    pub begin: u64,
    pub end: u64,
    pub sequence: u64,
    pub discarded: u64,
    pub cpu: u32,
    /// Content behind the packet's context.
    pub body: Vec<u8>,
    pub last: u64,
}

const CONTEXT_END: usize = 4 + 16 + 4 + 8 + 6 * 8 + 4;

impl Packet {
    pub fn new(header: Header, instance: u64, begin: u64) -> Self {
        let cpu = u32::try_from(instance).unwrap_or(0);
        Self {
            header,
            instance,
            begin,
            end: begin,
            sequence: 0,
            discarded: 0,
            cpu,
            body: Vec::new(),
            last: begin,
        }
    }

    /// The event's header: short if number and stamp fit, as LTTng decides.
    pub fn stamp(&mut self, id: u32, at: u64) -> &mut Self {
        let (bits, tag) = match self.header {
            Header::Compact => (27, 31),
            Header::Large => (32, 65535),
        };
        let fits = at - self.last < 1 << bits && id < tag;
        match (self.header, fits) {
            (Header::Compact, true) => {
                let stamp = (at & ((1 << 27) - 1)) as u32;
                self.body.extend((stamp << 5 | id).to_le_bytes());
            }
            (Header::Large, true) => {
                self.body.extend((id as u16).to_le_bytes());
                self.body.extend((at as u32).to_le_bytes());
            }
            (Header::Compact, false) => self.body.push(31),
            (Header::Large, false) => self.body.extend(u16::MAX.to_le_bytes()),
        }
        if !fits {
            self.body.extend(id.to_le_bytes());
            self.body.extend(at.to_le_bytes());
        }
        self.last = at;
        self.end = at;
        self
    }

    /// The context of an event.
    pub fn context(&mut self, pid: u32, tid: u32, name: &str) -> &mut Self {
        let mut letters = [0; 17];
        letters[..name.len()].copy_from_slice(name.as_bytes());
        self.body.extend(pid.to_le_bytes());
        self.body.extend(letters);
        self.body.extend(tid.to_le_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.body.extend(value.to_le_bytes());
        self
    }

    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.body.extend(value.to_le_bytes());
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.body.extend(text.as_bytes());
        self.body.push(0);
        self
    }

    pub fn callback_start(&mut self, at: u64, tid: u32, callback: u64) -> &mut Self {
        self.stamp(id::CALLBACK_START, at).context(100, tid, "worker").u64(callback).i32(0)
    }

    /// Its bytes, filled up to `size` (at least).
    pub fn bytes(&self, size: usize) -> Vec<u8> {
        let content = CONTEXT_END + self.body.len();
        let size = size.max(content);
        let mut bytes = Vec::with_capacity(size);
        bytes.extend(0xc1fc_1fc1_u32.to_le_bytes());
        bytes.extend(UUID);
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(self.instance.to_le_bytes());
        for field in
            [self.begin, self.end, content as u64 * 8, size as u64 * 8, self.sequence, self.discarded]
        {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(self.cpu.to_le_bytes());
        assert_eq!(bytes.len(), CONTEXT_END);
        bytes.extend(&self.body);
        bytes.resize(size, 0);
        bytes
    }
}

/// Writes a trace folder: metadata, and stream files by name.
pub fn write(folder: &Path, metadata: &str, streams: &[(&str, Vec<u8>)]) -> PathBuf {
    fs::create_dir_all(folder).expect("a folder");
    fs::write(folder.join("metadata"), metadata).expect("metadata");
    for (name, bytes) in streams {
        fs::write(folder.join(name), bytes).expect("a stream");
    }
    folder.to_owned()
}

/// A recording of `streams` processors with `rounds` rounds of seven events each, in packets of
/// `packet` bytes.
pub fn busy(folder: &Path, streams: u64, rounds: u64, packet: usize) -> u64 {
    let mut events = 0;
    let mut files = Vec::new();
    for stream in 0..streams {
        let mut file = Vec::new();
        let mut at = 1_000_000_000 + stream * 37;
        let mut open = Packet::new(Header::Large, stream, at);
        for round in 0..rounds {
            if open.body.len() + 7 * 96 > packet {
                let next = Packet { sequence: open.sequence + 1, ..Packet::new(Header::Large, stream, at) };
                file.extend(std::mem::replace(&mut open, next).bytes(packet));
            }
            let tid = 1000 + stream as u32 * 2 + (round / 3 % 2) as u32;
            let mut step = || {
                at += 900 + (round * 131 + stream * 17) % 700;
                at
            };
            let message = 0x7f00_0000 + round % 64;
            let p = &mut open;
            p.stamp(id::WAIT, step()).context(1000, tid, "executor").u64(u64::MAX);
            p.stamp(id::RMW_TAKE, step())
                .context(1000, tid, "executor")
                .u64(9)
                .u64(message)
                .u64(round)
                .i32(1);
            p.stamp(id::CALLBACK_START, step()).context(1000, tid, "executor").u64(77 + stream).i32(0);
            p.stamp(id::RCLCPP_PUBLISH, step()).context(1000, tid, "executor").u64(message);
            p.stamp(id::RCL_PUBLISH, step()).context(1000, tid, "executor").u64(5).u64(message);
            p.stamp(id::RMW_PUBLISH, step()).context(1000, tid, "executor").u64(6).u64(message).u64(round);
            p.stamp(id::CALLBACK_END, step()).context(1000, tid, "executor").u64(77 + stream);
            events += 7;
        }
        file.extend(open.bytes(packet));
        files.push((format!("channel_{stream}"), file));
    }
    let files: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    write(folder, &metadata(Header::Large), &files);
    events
}
