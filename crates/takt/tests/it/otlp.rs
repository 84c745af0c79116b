//! `--otlp`: what a real server has got of each robot, a watch and a managed system, the queries of
//! the shipped dashboard, the verdict as OpenTelemetry's own messages have it, and collectors that
//! are no help.

#![allow(clippy::unwrap_used)]
#![cfg(feature = "otlp")]

use crate::takt;
#[path = "../otlp/threads.rs"]
mod threads;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use takt::{Beside, TAKT, alone, goals_of, has, missing, read_json, refusal, root, stderr, wait_for};
use takt::{takt as run, untraced};
use threads::{Counted, Seen};

/// The server that `tools/install-outside` builds.
fn victoria_metrics() -> Option<PathBuf> {
    let cache = std::env::var_os("TAKT_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/takt")))?;
    let tools = std::fs::read_dir(cache.join("tools")).ok()?;
    let found = tools.flatten().map(|entry| entry.path().join("victoria-metrics"));
    found.filter(|path| path.is_file()).max()
}

struct Server {
    child: Child,
    port: u16,
    _data: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(program: &Path) -> Self {
        let data = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.arg(format!("-httpListenAddr=127.0.0.1:{port}"));
        command.arg(format!("-storageDataPath={}", data.path().display()));
        // Names as Prometheus makes them of the same points.
        command.args(["-opentelemetry.usePrometheusNaming", "-search.latencyOffset=0s"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { child, port, _data: data };
        wait_for("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
        server
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/opentelemetry", self.port)
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The rows that a query gives.
    fn query(&self, query: &str) -> Vec<Value> {
        self.rows("query?nocache=1", query)
    }

    /// The lines that a panel draws of the time since `since`, as Grafana asks for them. A query
    /// at this moment alone would find nothing of a robot that ran so long ago that its figures
    /// have left the window of the query, as on a full machine.
    fn lines(&self, query: &str, since: SystemTime) -> Vec<Value> {
        let unix = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (from, to) = (unix(since), unix(SystemTime::now()) + 1);
        self.rows(&format!("query_range?nocache=1&start={from}&end={to}&step=1"), query)
    }

    fn rows(&self, path: &str, query: &str) -> Vec<Value> {
        let hex = query.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let text = self.get(&format!("/api/v1/{path}&query={hex}"));
        let body = text.split_once("\r\n\r\n").unwrap().1;
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{query}: {text}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    #[track_caller]
    fn count(&self, query: &str) -> u64 {
        let rows = self.query(query);
        let value = rows.first().unwrap_or_else(|| panic!("{query}: nothing"))["value"][1].clone();
        let number: f64 = value.as_str().unwrap().parse().unwrap();
        number as u64
    }

    /// Compares what is here of the only run of `robot` with its own summary.
    fn has_run(&self, robot: &str, dir: &Path) {
        // It came with the last figures, which this server shows after a while.
        let verdicts = wait_for("the verdict", || {
            let rows = self.query(&format!("takt_verdict{{robot=\"{robot}\"}}"));
            (!rows.is_empty()).then_some(rows)
        });
        // A robot may have a summary of its own; the common one is made for reports.
        let summary = common_summary(dir);
        for measure in summary["measures"].as_array().unwrap() {
            let of = format!("{{measure={}, robot=\"{robot}\"}}", measure["name"]);
            let query = format!("sum({{__name__=~\"takt_.*_seconds_count\", {})", &of[1..]);
            // The last of them may be shown later than the verdict.
            let all = measure["us"]["count"].as_u64().unwrap();
            wait_for(&format!("{all} values of {robot}: {measure}"), || {
                (self.count(&query) == all).then_some(())
            });
            if let Some(misses) = measure["misses"].as_u64() {
                assert_eq!(self.count(&format!("sum(takt_misses_total{of})")), misses, "{robot}: {measure}");
            }
        }
        assert_eq!((verdicts.len(), &verdicts[0]["metric"]["verdict"]), (1, &summary["verdict"]));
    }
}

/// The summary as robots in general have it.
fn common_summary(dir: &Path) -> Value {
    let own = read_json(&dir.join("summary.json"));
    match own["measures"].is_array() {
        true => own,
        false => serde_json::to_value(
            takt_lab::summary::summarise(&takt_rundir::RunDir::open(dir).unwrap()).unwrap(),
        )
        .unwrap(),
    }
}

fn with(mut command: Command, url: &str) -> Command {
    command.args(["--otlp", url]).env("OTEL_METRIC_EXPORT_INTERVAL", "300");
    command
}

fn robot(name: &str, seconds: &str, dir: &Path) -> Command {
    let config = root().join("robots").join(name).with_extension("toml");
    let mut command =
        run(["run", config.to_str().unwrap(), "--seconds", seconds, "--view", "none", "--json"]);
    command.arg("--run-dir").arg(dir);
    command
}

#[test]
#[ignore = "takes 35 s"]
fn a_real_server_has_the_figures_of_robots_watch_and_manager_and_the_dashboard_shows_them() {
    let _machine = alone();
    // Not required: not every machine that has the rest has a Go that is new enough to build it.
    let Some(program) = victoria_metrics() else {
        takt_witness::skip!("there is no victoria-metrics (tools/install-outside builds it with Go 1.26)");
        return;
    };
    let server = Server::start(&program);
    let since = SystemTime::now();
    let workspace = tempfile::tempdir().unwrap();
    let robots = std::env::var("TAKT_TEST_ROBOTS").unwrap_or_else(|_| "uav daq synthetic".to_owned());
    for name in robots.split(' ') {
        let dir = workspace.path().join(name);
        let output = with(robot(name, "1", &dir), &server.url()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // All figures have arrived; this server takes no logs.
        has(&stderr(&output), &["1 log records were lost", "/v1/logs", "the run is not affected"]);
        assert!(!stderr(&output).contains("not delivered"), "{}", stderr(&output));
    }
    // A flight recorder knows causes.
    let dir = workspace.path().join("cyclic");
    let mut command = with(robot("cyclic", "1", &dir), &server.url());
    let output = command.args(["--flight-recorder", "--late-us", "1"]).output().unwrap();
    let traced = takt::traced_json(&output);
    // A managed task, and a watch of it.
    let config = workspace.path().join("beat.toml");
    let text = "robot = \"cyclic\"\nname = \"beat\"\nrate_hz = 50\npolicy = \"other:0\"\nwork_us = 500\n";
    std::fs::write(&config, text).unwrap();
    let mut command = with(run(["manage", "--json"]), &server.url());
    command.arg(goals_of(workspace.path(), "beat", ["cyclic"; 2], "50 ms")).args(["--", TAKT, "run"]);
    command.arg(&config).args(["--view", "none", "--seconds", "10", "--run-dir"]);
    let mut manager = Beside::start({
        command.arg(workspace.path().join("managed"));
        command
    });
    let mut command = with(run(["watch", "--seconds", "3", "--late-us", "1", "--json"]), &server.url());
    command.arg("--out").arg(workspace.path().join("watch"));
    let watched = command.args(["--pid", &manager.pid().to_string()]).output().unwrap();
    let status = manager.end();
    let may_reserve = !["may not", "CAP_SYS_NICE"].iter().any(|word| manager.output("stderr").contains(word));
    assert!(status.success() || !may_reserve, "{}", manager.output("stderr"));

    for name in robots.split(' ').chain(["cyclic"]) {
        let robot = read_json(&workspace.path().join(name).join("run.json"))["robot"].clone();
        server.has_run(robot.as_str().unwrap(), &workspace.path().join(name));
    }
    if !untraced(&traced) {
        for cause in traced["causes"].as_array().unwrap() {
            let labels = format!("cause={}, who={}", cause["cause"], cause["who"]);
            let reported = server.count(&format!("sum(takt_late_total{{robot=\"cyclic\", {labels}}})"));
            assert_eq!(reported, cause["count"].as_u64().unwrap(), "{cause}");
        }
        let report: Value = serde_json::from_slice(&watched.stdout).unwrap();
        let releases: u64 =
            report["threads"].as_array().unwrap().iter().map(|one| one["releases"].as_u64().unwrap()).sum();
        assert_eq!(server.count("sum(takt_releases_total)"), releases, "{}", stderr(&watched));
    }
    let all: Value = serde_json::from_str(&manager.output("stdout")).unwrap();
    // A machine that is full leaves nothing to reserve, or no time to learn what.
    let reserves = !all["status"]["reservations"].as_array().unwrap().is_empty();
    let verdict = format!("takt_verdict{{robot=\"\", verdict={}}}", all["verdict"]);
    wait_for("the manager's verdict", || (server.query(&verdict).len() == 1).then_some(()));
    let chain = &all["status"]["chains"][0];
    let completions = server.count("takt_chain_latency_seconds_count{chain=\"beat\"}");
    assert_eq!(completions, chain["completions"].as_u64().unwrap());

    let has_values = |kind: &str| {
        let of_kind = |one: &Value| {
            one["name"].as_str().unwrap().contains(kind) && one["us"]["count"].as_u64().is_some_and(|n| n > 0)
        };
        robots.split(' ').any(|name| {
            common_summary(&workspace.path().join(name))["measures"].as_array().unwrap().iter().any(of_kind)
        })
    };
    // The dashboard: each query has something to show, and nothing of figures that nobody sends.
    let dashboard = read_json(&root().join("docs/grafana/takt.json"));
    for panel in dashboard["panels"].as_array().unwrap() {
        // What the published types of Grafana's dashboards ask for beside what it shows.
        let options = &panel["options"];
        assert!(options["legend"]["showLegend"] == true && options["legend"]["calcs"].is_array(), "{panel}");
        assert!(options["tooltip"]["sort"].is_string(), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            // Grafana's least.
            let asked = query.replace("$__rate_interval", "1m").replace("$__range", "1h");
            let asked = asked.replace("$host", ".*");
            // A robot that was slow to start has sent its figures once: no rate comes of that.
            let once = asked.replace("rate(", "(").replace("increase(", "(").replace("[1m]", "");
            let shows = |query: &str| !server.lines(query, since).is_empty();
            let needs_trace = ["takt_late_total", "takt_events"].iter().any(|name| query.contains(name));
            let excused = (needs_trace && untraced(&traced))
                || (query.contains("takt_reservation") && !reserves)
                || ["reaction", "latency"]
                    .iter()
                    .any(|kind| query.contains(&format!("takt_{kind}_seconds")) && !has_values(kind));
            if excused {
                eprintln!("excused: {}: {asked}", panel["title"]);
            }
            assert!(
                shows(&asked) || shows(&once) || excused,
                "{}: nothing for {asked}; {robots}: {:?}",
                panel["title"],
                ["reaction", "latency"].map(has_values)
            );
            for altered in [asked, once].map(|query| query.replace("takt_", "takt_other_")) {
                assert!(!shows(&altered), "{}: {altered} shows something", panel["title"]);
            }
        }
    }
    // A value that came once, among thousands: its bucket is there from then on, so that its rate
    // is 0 in this server, and a panel of rates would leave out just what matters.
    let panel = |quantile: &str| {
        let all = dashboard["panels"].as_array().unwrap().iter();
        let expr = all.filter_map(|panel| panel["targets"][0]["expr"].as_str());
        let expr = expr.clone().find(|expr| expr.contains("takt_lateness_seconds")).unwrap();
        let asked = expr.replace("0.99", quantile).replace("$__rate_interval", "5m");
        asked.replace("$host", ".*").replace("host=~", "robot=\"rare\", host=~")
    };
    rare(&server);
    let greatest = |quantile: &str| {
        let rows = server.query(&panel(quantile));
        rows.first()?["value"][1].as_str()?.parse::<f64>().ok()
    };
    let shown = wait_for("the rare value", || greatest("0.9999").filter(|_| greatest("0.5").is_some()));
    assert!((0.009..0.011).contains(&shown), "{shown}");
}

/// Sends 2000 values of 10 us, in two requests, and with the second one of 10 ms, which stays the
/// only one in a third.
fn rare(server: &Server) {
    let sent = Arc::new(AtomicU64::new(0));
    let source = {
        let sent = Arc::clone(&sent);
        move |points: &mut takt_otlp::Points| {
            let mut all = takt_otlp::Exponential::default();
            let before = sent.fetch_add(1, Ordering::Relaxed);
            all.add(10_000, 1000 * (before + 1));
            all.add(10_000_000, before.min(1));
            let labels = [("robot", "rare"), ("host", "here"), ("measure", "lateness")];
            points.times(["takt.lateness", "Times."], &labels, &all);
        }
    };
    let endpoint = takt_otlp::Endpoint::new(&server.url(), &std::collections::BTreeMap::new()).unwrap();
    let (interval, resource) = (Duration::from_secs(1), Vec::new());
    let options = takt_otlp::Options { endpoint, interval, resource, labels: Vec::new() };
    let exporter = takt_otlp::Exporter::start(options, source).unwrap();
    wait_for("four requests", || (sent.load(Ordering::Relaxed) >= 4).then_some(()));
    assert_eq!(exporter.finish(Duration::from_secs(10)).failed, 0);
}

#[test]
fn the_verdict_comes_as_a_log_record_that_leads_to_the_late_window() {
    let _machine = alone();
    let probe = "import opentelemetry.proto.collector.logs.v1.logs_service_pb2";
    let there = Command::new("python3").args(["-c", probe]).stderr(Stdio::null()).status();
    if missing("python3 has no opentelemetry-proto", there.is_ok_and(|status| status.success())) {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    command.arg(root().join("crates/takt/tests/otlp/receiver.py")).stdin(Stdio::null());
    let mut collector = Beside::start(command);
    let port = collector.line("stdout", "");
    let dir = workspace.path().join("run");
    let mut command = with(robot("cyclic", "1", &dir), &format!("http://127.0.0.1:{port}"));
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20hushhush");
    command.env("OTEL_RESOURCE_ATTRIBUTES", "site=hall%203%2C%20north");
    let output = command.args(["--flight-recorder", "--late-us", "1"]).output().unwrap();
    let traced = takt::traced_json(&output);
    let requests: Vec<Value> = collector.output("stdout").lines().skip(1).map(parse).collect();
    assert!(requests.iter().all(|one| one["unknown"] == false), "{requests:?}");
    assert!(requests.iter().all(|one| one["authorization"] == "Bearer hushhush"), "{requests:?}");
    let logs: Vec<&Value> = requests.iter().filter(|one| one["path"] == "/v1/logs").collect();
    assert_eq!(logs.len(), 1, "{requests:?}");
    let resource = &logs[0]["request"]["resourceLogs"][0];
    assert_eq!(attribute(&resource["resource"], "takt.robot"), "cyclic");
    assert_eq!(attribute(&resource["resource"], "site"), "hall 3, north");
    let record = &resource["scopeLogs"][0]["logRecords"][0];
    let summary = read_json(&dir.join("summary.json"));
    assert_eq!(record["body"]["stringValue"], summary["sentence"]);
    assert_eq!(attribute(record, "takt.verdict"), summary["verdict"]);
    assert_eq!(record["severityText"] == "INFO", summary["verdict"] == "PASS", "{record}");
    let link = attribute(record, "url.full");
    let (_, place) = link.as_str().unwrap().strip_prefix("file://").unwrap().split_once('/').unwrap();
    let place = PathBuf::from(format!("/{}", place.split('#').next().unwrap()));
    assert!(place.exists() && place.starts_with(dir.canonicalize().unwrap()), "{link}");
    if !untraced(&traced) {
        assert_eq!(place, dir.canonicalize().unwrap().join("late.perfetto-trace"));
    }
    // Credentials are nowhere but in the request.
    let found = Command::new("grep").args(["-r", "hushhush"]).arg(&dir).output().unwrap();
    assert_eq!(found.status.code(), Some(1), "{}", takt::stdout(&found));
    assert!(!stderr(&output).contains("hushhush"), "{}", stderr(&output));
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The text of an attribute.
fn attribute(of: &Value, name: &str) -> Value {
    let all = of["attributes"].as_array().unwrap();
    let found = all.iter().find(|one| one["key"] == name).unwrap_or_else(|| panic!("no {name}: {of}"));
    found["value"]["stringValue"].clone()
}

/// A collector that does `answer` to each connection, and how many it has taken.
fn collector(answer: impl Fn(TcpStream) + Send + Sync + 'static) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (taken, answer) = (Arc::new(AtomicU64::new(0)), Arc::new(answer));
    let count = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || answer(stream));
        }
    });
    (address, taken)
}

/// Writes `first`, and `part` again and again until nobody takes it.
fn pour(mut stream: TcpStream, first: &str, part: &[u8], pause: Duration) {
    let _ = stream.write_all(first.as_bytes());
    while stream.write_all(part).is_ok() {
        std::thread::sleep(pause);
    }
}

/// Takes everything and answers nothing.
fn silent(mut stream: TcpStream) {
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    std::thread::sleep(Duration::from_secs(60));
}

/// Closes with what was sent unread, so that the kernel resets the connection.
fn reset(stream: &TcpStream) {
    let _ = stream.peek(&mut [0]);
}

/// A run beside a collector: its summary, what it wrote, the most memory that it had, and what its
/// real-time thread did meanwhile.
struct Watched {
    summary: Value,
    message: String,
    most_kb: u64,
    task: Seen,
}

/// `other`: a thread that is watched, too, to see that the probe sees.
fn watched(counted: &Counted, mut command: Command, other: Option<&str>) -> Watched {
    counted.count(&mut command);
    let mut beside = Beside::start({
        command.stdin(Stdio::null());
        command
    });
    let task = counted.watch(beside.pid(), "takt-cyclic");
    if let Some(other) = other {
        let seen = counted.watch(beside.pid(), other);
        assert!(seen.allocations > 0 && seen.calls.len() > 1, "{other}: {seen:?}");
    }
    let status = format!("/proc/{}/status", beside.pid());
    let mut most_kb = 0;
    while beside.runs() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        most_kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(most_kb);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (out, message) = (beside.output("stdout"), beside.output("stderr"));
    assert!(beside.end().success(), "{message}");
    let summary = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    Watched { summary, message, most_kb, task }
}

#[test]
#[ignore = "takes 60 s"]
fn collectors_that_are_no_help_change_no_run_and_touch_no_real_time_thread() {
    let _machine = alone();
    let workspace = tempfile::tempdir().unwrap();
    if missing("perf cannot count system calls here", threads::can_count(workspace.path())) {
        return;
    }
    let counted = Counted::new(workspace.path());
    // Releases so far apart that no other load of the machine makes a verdict of its own.
    let config = workspace.path().join("calm.toml");
    let text = "robot = \"cyclic\"\nname = \"calm\"\nrate_hz = 25\npolicy = \"fifo:80\"\n";
    std::fs::write(&config, text).unwrap();
    let task = |name: &str| {
        let mut command =
            run(["run", config.to_str().unwrap(), "--seconds", "6", "--view", "none", "--json"]);
        command.arg("--run-dir").arg(workspace.path().join(name));
        command
    };
    let plain = watched(&counted, task("plain"), Some("takt-collector"));
    let jobs = |task: &Seen| task.calls.values().sum::<u64>();
    let only_sleeps = |task: &Seen| {
        // Its releases are what it leaves the CPU for, and nothing else.
        task.calls.keys().eq([&libc::SYS_clock_nanosleep])
            && (task.allocations, task.faults) == (0, 0)
            && task.switches as f64 <= 25.0 * task.elapsed.as_secs_f64() + 2.0
    };
    assert!(only_sleeps(&plain.task) && jobs(&plain.task) >= 10, "{:?}", plain.task);

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (none, second) = (Duration::ZERO, Duration::from_secs(1));
    let ok = "HTTP/1.1 200 OK\r\n";
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
    let header = b"x-more: 12345678\r\n".repeat(1000);
    let noise: Vec<u8> = (0..65536u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let garbage = noise.clone();
    let cases = [
        ("nobody", (nobody, Arc::new(AtomicU64::new(1)))),
        ("silent", collector(silent)),
        ("a byte a second", collector(move |stream| pour(stream, "", b"H", second))),
        ("a header a second", collector(move |stream| pour(stream, ok, b"x: y\r\n", second))),
        ("endless header", collector(move |stream| pour(stream, ok, &header, none))),
        ("huge answer", collector(move |stream| pour(stream, huge, &noise, none))),
        ("garbage", collector(move |stream| pour(stream, "", &garbage, none))),
        ("resets", collector(|stream| reset(&stream))),
    ];
    // All at once: each takes a thousandth of a CPU.
    std::thread::scope(|scope| {
        for (name, (address, taken)) in &cases {
            let (task, counted, plain, folder) = (&task, &counted, &plain, workspace.path());
            scope.spawn(move || {
                let mut command = task(name);
                command.args(["--otlp", &format!("http://{address}")]);
                command.env("OTEL_METRIC_EXPORT_INTERVAL", "100");
                let with = watched(counted, command, None);
                let (seen, summary, message) = (&with.task, &with.summary, &with.message);
                assert!(only_sleeps(seen) && jobs(seen) >= 10, "{name}: {seen:?}");
                assert!(taken.load(Ordering::Relaxed) > 0, "{name}: nobody asked");
                // That one has said that it accepts.
                if *name == "huge answer" {
                    assert!(!message.contains("--otlp"), "{message}");
                } else {
                    has(message, &["--otlp: ", "the run is not affected", "1 log records were lost"]);
                }
                assert!(folder.join(name).join("hashes.json").is_file(), "{name}");
                for key in ["robot", "label", "verdict", "records_lost", "losses"] {
                    assert_eq!(summary[key], plain.summary[key], "{name}: {key}");
                }
                let most_kb = with.most_kb;
                assert!(
                    most_kb < plain.most_kb + (16 << 10),
                    "{name}: {most_kb} kB, {} without",
                    plain.most_kb
                );
            });
        }
    });
}

#[test]
#[ignore = "takes 15 s"]
#[cfg(feature = "tls")]
fn a_collector_over_tls_is_reported_to_only_where_its_authority_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut proxy) = takt::tls_proxy(folder.path(), None) else { return };
    let port = proxy.line("stdout", "");
    // No real-time thread: what is measured matters to nobody here.
    let config = folder.path().join("beat.toml");
    let text = "robot = \"cyclic\"\nname = \"beat\"\nrate_hz = 50\npolicy = \"other:0\"\n";
    std::fs::write(&config, text).unwrap();
    let report = |url: String, authorities: Option<&str>| {
        let mut command = with(run(["run", config.to_str().unwrap(), "--view", "none"]), &url);
        command.args(["--seconds", "0.5", "--run-dir"]).arg(folder.path().join(format!("{authorities:?}")));
        command.env_remove("SSL_CERT_FILE").env_remove("OTEL_EXPORTER_OTLP_CERTIFICATE");
        if let Some(file) = authorities {
            command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", folder.path().join(file));
        }
        command.output().unwrap()
    };
    let output = report(format!("https://127.0.0.1:{port}"), Some("authority.pem"));
    assert!(output.status.success() && !stderr(&output).contains("--otlp"), "{}", stderr(&output));
    let requests = proxy.output("stdout");
    has(&requests, &["POST /v1/metrics HTTP/1.1", "POST /v1/logs HTTP/1.1"]);
    // Nobody gets a word of the run who is not who was meant.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let no_tls = plain.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in plain.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    for (url, authorities, words) in [
        (format!("https://127.0.0.1:{port}"), None, "set OTEL_EXPORTER_OTLP_CERTIFICATE to a PEM file"),
        (format!("https://localhost:{port}"), Some("authority.pem"), "not valid for name"),
        (format!("https://127.0.0.2:{port}"), Some("authority.pem"), "basicConstraints=CA:FALSE"),
        (format!("https://127.0.0.1:{no_tls}"), Some("authority.pem"), "use http://"),
    ] {
        std::fs::remove_dir_all(folder.path().join(format!("{authorities:?}"))).unwrap_or_default();
        let output = report(url, authorities);
        assert!(output.status.success(), "{}", stderr(&output));
        has(&stderr(&output), &["--otlp: ", words, "1 log records were lost", "the run is not affected"]);
    }
    assert_eq!(proxy.output("stdout"), requests);
    let output = report(format!("https://127.0.0.1:{port}"), Some("server.key"));
    has(&refusal(&output), &["OTEL_EXPORTER_OTLP_CERTIFICATE=", "it contains no certificate"]);
}

#[test]
fn what_cannot_be_a_collector_is_refused_before_anything_is_measured() {
    let workspace = tempfile::tempdir().unwrap();
    let dir = workspace.path().join("run");
    for (url, word) in [
        ("localhost:4318", "http://HOST:PORT"),
        ("http://a:hushhush@b", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://a:hush/hushhush@b", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("https://a:4318/?token=hushhush", "without spaces, queries"),
    ] {
        let message = refusal(&with(robot("cyclic", "1", &dir), url).output().unwrap());
        has(&message, &[word]);
        assert!(!message.contains("hushhush") && message.trim_end().lines().count() == 1, "{message}");
        assert!(!dir.exists());
    }
    let mut watch = with(run(["watch", "--seconds", "1", "--pid", "1"]), "ftp://x");
    has(&refusal(&watch.output().unwrap()), &["http://HOST:PORT"]);
    let goals = goals_of(workspace.path(), "beat", ["cyclic"; 2], "50 ms");
    let mut manage = with(run(["manage"]), "ftp://x");
    has(&refusal(&manage.arg(goals).args(["--", "true"]).output().unwrap()), &["http://HOST:PORT"]);
}
