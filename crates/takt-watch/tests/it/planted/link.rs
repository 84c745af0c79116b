//! A robot in a network namespace of its own sends a packet every 20 ms, a program here answers
//! each, and delays are planted on the way.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use takt_watch::link::{LinkPlace, LinkReport};
use takt_watch::{FollowBy, Settings};

use crate::planted::rig::{MS, Role, Watch, can_trace, follow, pause};
use crate::planted::{CPU, FEW, MANY, OTHER_CPU, alone, kernel};

/// Sends its own clock as RTDE does: big-endian seconds, behind a header. "late": the next packet
/// is made late; "held": it is stamped in time and sent late; "marked": slow filters look at it for
/// long.
const ROBOT: &str = "
import os, select, socket, struct, sys, time
os.sched_setaffinity(0, {OTHER_CPU})
try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(40))
except PermissionError: pass
sys.stdin.readline()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('HOST.2', 0))
print('ready', flush=True)
late = 0
due = time.monotonic()
while True:
    due += 0.02
    ready = select.select([sys.stdin], [], [], 0)[0]
    plant = sys.stdin.readline().strip() if ready else ''
    time.sleep(max(0, due - time.monotonic()))
    if plant == 'late': time.sleep(0.009)
    stamp = time.monotonic()
    if plant == 'held': time.sleep(0.009)
    mark = MARK if plant == 'marked' else 1
    s.sendto(struct.pack('>HHd', 60, mark, stamp) + bytes(48), ('HOST.1', PORT))
    if stamp - due > 0.003: late += 1
    if plant == 'counts': print(late, flush=True)
    elif plant: print(plant, flush=True)
";

/// Answers each packet. "long": the next takes long; "full": before the next answer it fills the
/// interface's queue; "counts": how often it got a packet late after its arrival, and took long, by
/// its own clock and the socket's time stamps.
const PROGRAM: &str = "
import os, select, socket, struct, sys, time
os.sched_setaffinity(0, {CPU})
try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(40))
except PermissionError: pass
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', PORT))
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 35, 1)
woken = own = 0
print('ready', flush=True)
while True:
    data, stamps, _, robot = s.recvmsg(2048, 64)
    begun = time.time()
    seconds, ns = struct.unpack('qq', stamps[0][2])
    ready = select.select([sys.stdin], [], [], 0)[0]
    plant = sys.stdin.readline().strip() if ready else ''
    if plant == 'long':
        begin = time.monotonic()
        while time.monotonic() < begin + 0.009: pass
    if plant == 'full':
        for _ in range(8): other.sendto(bytes(1400), (robot[0], 9))
    s.sendto(b'answer' + bytes(50), robot)
    woken += begun - seconds - ns / 1e9 > 0.003
    own += time.time() - begun > 0.003
    if plant == 'counts': print(woken, own, flush=True)
    elif plant: print(plant, flush=True)
";

/// A Python program that is steered by lines.
pub struct Steered {
    pub child: Child,
    steer: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Steered {
    pub fn start(command: &mut Command) -> Option<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (steer, lines) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        Some(Self { child, steer, lines })
    }

    /// Waits for a line; false at the end.
    pub fn prints(&mut self, expected: &str) -> bool {
        let mut line = String::new();
        self.lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.trim() == expected
    }

    /// Reads lines up to this one; false at the end.
    pub fn comes_to(&mut self, expected: &str) -> bool {
        let mut line = String::new();
        while self.lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if line.trim() == expected {
                return true;
            }
            line.clear();
        }
        false
    }

    pub fn plant(&mut self, what: &str) {
        writeln!(self.steer, "{what}").unwrap();
        assert!(self.prints(what), "{what} was not planted");
    }

    /// Its own counts.
    fn counted(&mut self) -> Vec<u64> {
        writeln!(self.steer, "counts").unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends; with the robot its namespace and the cable are gone.
struct Cable {
    robot: Steered,
    program: Steered,
    /// This program, where it takes another to plant.
    role: Option<Role>,
    interface: String,
    port: u16,
}

pub fn done(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    let good = output.as_ref().is_ok_and(|output| output.status.success());
    if !good {
        eprintln!("{program} {}: {output:?}", arguments.join(" "));
    }
    good
}

impl Cable {
    fn lay() -> Option<Self> {
        let id = std::process::id();
        // A namespace goes some time after its last process.
        static CABLES: AtomicU32 = AtomicU32::new(0);
        let cable = CABLES.fetch_add(1, Ordering::Relaxed);
        let interface = format!("tw{}x{cable}", id % 100_000);
        // The range for benchmarks of RFC 2544.
        let host = format!("198.18.{}", (id + cable) % 250);
        let port = 20_000 + ((id + 100 * cable) % 20_000) as u16;
        let code = |text: &str| {
            let text = text.replace("HOST", &host).replace("PORT", &port.to_string());
            let text = text.replace("MARK", &kernel::MARK.to_string());
            text.replace("OTHER_CPU", &OTHER_CPU.to_string()).replace("CPU", &CPU.to_string())
        };
        let mut robot = Steered::start(Command::new("unshare").args(["-n", "python3", "-c", &code(ROBOT)]))?;
        let pid = robot.child.id().to_string();
        // Until it is in its own namespace.
        let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        for _ in 0..500 {
            if link(&pid) != link("self") {
                break;
            }
            pause(10 * MS);
        }
        if link(&pid) == link("self") {
            return None;
        }
        let (ours, theirs) = (format!("{host}.1/30"), format!("{host}.2/30"));
        let within = ["-t", &pid, "-n", "ip"];
        let laid =
            done("ip", &["link", "add", &interface, "type", "veth", "peer", "name", "robot", "netns", &pid])
                && done("ip", &["addr", "add", &ours, "dev", &interface])
                && done("ip", &["link", "set", &interface, "up"])
                && done("nsenter", &[&within[..], &["addr", "add", &theirs, "dev", "robot"]].concat())
                && done("nsenter", &[&within[..], &["link", "set", "robot", "up"]].concat());
        if !laid {
            return None;
        }
        let mut program = Steered::start(Command::new("python3").args(["-c", &code(PROGRAM)]))?;
        writeln!(robot.steer, "go").ok()?;
        let ready = program.prints("ready") && robot.prints("ready");
        ready.then_some(Self { robot, program, role: None, interface, port })
    }

    fn by_role(&mut self) {
        self.role.as_mut().unwrap().plant();
    }

    /// From here on the queue of the interface is as slow as a field bus: 8 Mbit/s.
    fn slow_queue(&self) -> bool {
        let shaper = ["root", "tbf", "rate", "8mbit", "burst", "2kb", "latency", "200ms"];
        done("tc", &[&["qdisc", "add", "dev", &self.interface][..], &shaper].concat())
    }
}

/// Watches the link while `plant` plants `count` delays, with the help of a role of this program
/// where one is named, and shows how many of each place were blamed; and how often the robot sent
/// late, the program got a packet late, and took long, by their own clocks.
fn watched(
    count: usize,
    follow: FollowBy,
    role: &str,
    plant: impl Fn(&mut Cable),
) -> Option<(LinkReport, [u64; 3])> {
    let Some(mut cable) = Cable::lay() else {
        takt_witness::skip!(
            "no network namespace with a veth pair can be had (root, ip, unshare, nsenter, python3)"
        );
        return None;
    };
    if !cable.slow_queue() {
        takt_witness::skip!("no queue tbf (tc, CONFIG_NET_SCH_TBF)");
        return None;
    }
    cable.role = (!role.is_empty()).then(|| Role::start(role));
    let settings = Settings {
        links: [format!("udp:{}", cable.port).parse().ok(), None, None, None],
        late_ns: Some(6 * MS),
        deadline_ns: Some(6 * MS),
        windows: 1000,
        follow,
        ..Settings::default()
    };
    let watch = Watch::start(cable.program.child.id(), settings);
    for _ in 0..count {
        plant(&mut cable);
        pause(90 * MS);
    }
    let report = watch.finish();
    println!("{:?} {:?}", report.followed_by, report.links);
    let (sent, got) = (cable.robot.counted(), cable.program.counted());
    Some((report.links.into_iter().next()?, [sent[0], got[0], got[1]]))
}

pub fn blamed(link: &LinkReport, place: LinkPlace) -> usize {
    link.blame.iter().filter(|blame| blame.place == place).map(|blame| blame.count as usize).sum()
}

/// A class that is planted: name, place, the role that it takes, and how.
type Class = (&'static str, LinkPlace, &'static str, fn(&mut Cable));

const CLASSES: [Class; 7] = [
    ("a slow robot", LinkPlace::RobotOrNetwork, "", |cable| cable.robot.plant("late")),
    ("a slow network", LinkPlace::RobotOrNetwork, "", |cable| cable.robot.plant("held")),
    ("its software interrupt held up", LinkPlace::Interrupt, "long softirq", |cable| {
        // The packets are handed to the CPU whose software interrupt is busy.
        let cpus = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", cable.interface);
        std::fs::write(cpus, format!("{:x}", 1 << CPU)).unwrap();
        cable.by_role();
    }),
    ("slow protocols", LinkPlace::KernelStack, "protocols", |cable| cable.robot.plant("marked")),
    ("kept from running", LinkPlace::WokenLate, "long hog", Cable::by_role),
    ("its own code", LinkPlace::UserCode, "", |cable| cable.program.plant("long")),
    ("the interface's queue", LinkPlace::SendPath, "", |cable| cable.program.plant("full")),
];

#[test]
fn delays_of_a_link_are_put_down_to_their_places() {
    let _machine = alone();
    if !can_trace() {
        return;
    }
    let [_, network, .., queue] = CLASSES;
    for ((name, place, role, plant), follow) in [(network, FollowBy::Events), (queue, FollowBy::Auto)] {
        for attempt in 1..=3 {
            let Some((link, _)) = watched(FEW, follow, role, plant) else { return };
            assert!(link.packets > 50 && link.answered > 0, "{link:?}");
            let right = blamed(&link, place) >= 1;
            let stamped =
                name != "a slow network" || link.robot_clock.is_some_and(|clock| clock.slow_network > 0);
            if right && stamped && link.period_us.is_some_and(|us| (us - 20_000.0).abs() < 100.0) {
                break;
            }
            // What else this machine does may hide a few.
            assert!(attempt < 3, "{name}: {link:?}");
        }
    }
}

/// Twenty of every class that can be planted.
#[test]
#[ignore = "a campaign of half a minute on a quiet machine"]
fn campaign_eighteen_of_twenty_places_are_named() {
    let _machine = alone();
    assert!(can_trace());
    let mut short = Vec::new();
    let mut judge_case = |name: &str, place: LinkPlace, link: LinkReport| {
        println!("{name}: {} of {MANY} put down to {place:?}; {:?}", blamed(&link, place), link.blame);
        if blamed(&link, place) * 10 < MANY * 9 {
            short.push(name.to_owned());
        }
    };
    let only = std::env::var("TAKT_CLASS").unwrap_or_default();
    for (name, place, role, plant) in CLASSES.into_iter().filter(|class| class.0.contains(&only)) {
        judge_case(name, place, watched(MANY, follow(), role, plant).unwrap().0);
    }
    // Nothing planted: nobody is blamed but who was late by the clocks of robot and program.
    let (none, [sent, got, own]) = watched(MANY, follow(), "", |_| pause(20 * MS)).unwrap();
    println!("nothing planted: {:?}; late by their own clocks: {sent}, {got}, {own}", none.blame);
    for (place, most) in [
        (LinkPlace::RobotOrNetwork, sent),
        (LinkPlace::Interrupt, got),
        (LinkPlace::KernelStack, got),
        (LinkPlace::WokenLate, got),
        (LinkPlace::UserCode, own),
        (LinkPlace::SendPath, 0),
    ] {
        assert!(blamed(&none, place) as u64 <= most, "{place:?}: {none:?}");
    }
    assert!(short.is_empty(), "less than 18 of 20: {short:?}");
}
