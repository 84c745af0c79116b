//! The status as Prometheus metrics, over HTTP on a loopback address.
//!
//! A client that dawdles delays nobody, and only requests that name this address are answered: a
//! page in a browser on this machine could have been led here otherwise. The thread has the lowest
//! urgency that still runs.
//!
//! `prometheus-client` (0.26) writes the same text in 91 us instead of 79 us, with 205 lines here
//! instead of 146: what is counted elsewhere needs a collector and a type for each set of labels.

use std::fmt::Write as _;
use std::net::SocketAddr;

use takt_view::{Answer, Body, Pages, Request, Urgency};

use super::status::{Board, Status};

/// Reason why there are no metrics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is open to others.
    #[error(
        "metrics address {0}: only loopback addresses are accepted, such as 127.0.0.1:9464; to make it public, put a proxy in front of it"
    )]
    NotLoopback(SocketAddr),
    /// It cannot be listened on, or there is no thread for it.
    #[error("metrics: {0}")]
    Serve(#[from] takt_view::Error),
}

/// Draws a page of status and model.
pub type Page = fn(&Status, &takt_model::Model) -> String;

/// Serves metrics until it is dropped.
#[derive(Debug)]
pub struct Server(takt_view::Server);

impl Server {
    /// Starts to serve what hangs on `board`.
    ///
    /// # Errors
    ///
    /// The address is not a loopback one, or taken.
    pub fn start(address: SocketAddr, board: Board) -> Result<Self, Error> {
        Self::start_with(address, board, None)
    }

    /// The same, with a page of the graph at `/graph`.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_with(address: SocketAddr, board: Board, graph: Option<Page>) -> Result<Self, Error> {
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        let content = Content { board, graph };
        Ok(Self(takt_view::Server::start("takt-metrics", address, Urgency::Low, content)?))
    }

    /// Address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

struct Content {
    board: Board,
    graph: Option<Page>,
}

impl Pages for Content {
    fn answer(&mut self, request: &Request<'_>, _now_ns: u64) -> Answer {
        let whole = |content_type, body: String| Answer {
            code: 200,
            content_type,
            extra: String::new(),
            inline_style: false,
            body: Body::Owned(body.into_bytes()),
        };
        let status = self.board.read();
        match (request.path, self.graph) {
            ("/graph", Some(page)) => Answer {
                inline_style: true,
                ..whole("text/html; charset=utf-8", page(&status, &self.board.model()))
            },
            ("/metrics" | "/", _) => whole("text/plain; version=0.0.4; charset=utf-8", prometheus(&status)),
            ("/status", _) => whole("application/json", serde_json::to_string(&*status).unwrap_or_default()),
            _ => Answer::text(404, "this server has /metrics and /status"),
        }
    }
}

/// A label's value, with what the format wants escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The status in Prometheus' text format, version 0.0.4.
#[must_use]
pub(crate) fn prometheus(status: &Status) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
        if samples.is_empty() {
            return;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let chain = |value: &dyn Fn(&super::ChainStatus) -> Option<f64>| -> Vec<(String, f64)> {
        let sample = |chain: &super::ChainStatus| {
            Some((format!("{{chain=\"{}\"}}", escaped(&chain.name)), value(chain)?))
        };
        status.chains.iter().filter_map(sample).collect()
    };
    family("takt_chain_goal_seconds", "gauge", "Latency goal.", chain(&|c| Some(seconds(c.goal_ns))));
    family(
        "takt_chain_bound_seconds",
        "gauge",
        "Bound on the latency by response-time analysis.",
        chain(&|c| c.bound_ns.map(seconds)),
    );
    family(
        "takt_chain_guaranteed",
        "gauge",
        "Whether the bound meets the goal.",
        chain(&|c| Some(f64::from(u8::from(c.state == "guaranteed")))),
    );
    family(
        "takt_chain_degraded",
        "gauge",
        "Whether the chain was given up in the declared order.",
        chain(&|c| Some(f64::from(u8::from(c.state == "degraded")))),
    );
    family(
        "takt_chain_violations_total",
        "counter",
        "Completions later than the goal.",
        chain(&|c| Some(c.violations as f64)),
    );
    family(
        "takt_chain_dropped_total",
        "counter",
        "Instances that never completed.",
        chain(&|c| Some(c.dropped as f64)),
    );
    family(
        "takt_chain_overdue",
        "gauge",
        "Instances under way for longer than the goal.",
        chain(&|c| Some(c.overdue as f64)),
    );
    family(
        "takt_chain_latency_max_seconds",
        "gauge",
        "Longest measured latency.",
        chain(&|c| (c.completions > 0).then(|| seconds(c.worst_ns))),
    );
    let thread = |value: &dyn Fn(&super::ReservationStatus) -> f64| -> Vec<(String, f64)> {
        let label = |one: &super::ReservationStatus| {
            let (name, cpus) = (escaped(&one.name), escaped(&one.cpus));
            format!("{{thread=\"{name}\",pid=\"{}\",tid=\"{}\",cpus=\"{cpus}\"}}", one.pid, one.tid)
        };
        status.reservations.iter().map(|one| (label(one), value(one))).collect()
    };
    family(
        "takt_reservation_bandwidth_ratio",
        "gauge",
        "Reserved share of a CPU.",
        thread(&super::ReservationStatus::bandwidth),
    );
    family(
        "takt_reservation_overruns_total",
        "counter",
        "Number of times a thread had used up its budget and wanted more.",
        thread(&|one| one.overruns as f64),
    );
    let one = |value: f64| vec![(String::new(), value)];
    let cost = status.cost;
    family("takt_plans_total", "counter", "Plans made.", one(status.plans as f64));
    family("takt_plans_cached_total", "counter", "Plans reused without analysis.", one(status.cached as f64));
    family(
        "takt_plan_holds",
        "gauge",
        "Whether all reservations hold.",
        one(f64::from(u8::from(status.holds))),
    );
    family(
        "takt_manager_cpu_seconds_total",
        "counter",
        "CPU time of the manager's process since its start.",
        one(cost.cpu_share * seconds(status.running_ns)),
    );
    family(
        "takt_analysis_cpu_seconds",
        "gauge",
        "CPU time of the last analysis.",
        one(seconds(cost.last_analysis_ns)),
    );
    family("takt_events_total", "counter", "Events read.", one(status.events as f64));
    family(
        "takt_events_lost_total",
        "counter",
        "Events lost before they were read.",
        one(status.lost as f64),
    );
    family("takt_processes", "gauge", "Processes observed.", one(status.processes as f64));
    histograms(&mut text, status);
    text
}

fn histograms(text: &mut String, status: &Status) {
    let name = "takt_chain_latency_seconds";
    let measured: Vec<_> = status.chains.iter().filter(|chain| !chain.histogram.is_empty()).collect();
    if measured.is_empty() {
        return;
    }
    let _ = writeln!(text, "# HELP {name} Measured end-to-end latency.\n# TYPE {name} histogram");
    for chain in measured {
        let label = escaped(&chain.name);
        // Ends of one instance counted twice are in the histogram too.
        let all = chain.histogram.iter().map(|(_, count)| *count).max().unwrap_or(0).max(chain.completions);
        for (bound_ns, count) in &chain.histogram {
            let _ =
                writeln!(text, "{name}_bucket{{chain=\"{label}\",le=\"{}\"}} {count}", seconds(*bound_ns));
        }
        let sum = chain.mean_ns.unwrap_or(0.0) * all as f64 / 1e9;
        let _ = writeln!(text, "{name}_bucket{{chain=\"{label}\",le=\"+Inf\"}} {all}");
        let _ =
            writeln!(text, "{name}_sum{{chain=\"{label}\"}} {sum}\n{name}_count{{chain=\"{label}\"}} {all}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::TcpStream;

    use super::super::{ChainStatus, ReservationStatus};
    use super::*;

    fn status() -> Status {
        let chain = ChainStatus {
            name: "pi\"lot".into(),
            goal_ns: 125_000_000,
            state: "guaranteed".into(),
            bound_ns: Some(90_000_000),
            completions: 3,
            worst_ns: 80_000_000,
            mean_ns: Some(50_000_000.0),
            histogram: vec![(64_000_000, 2), (128_000_000, 3)],
            ..ChainStatus::default()
        };
        let reservation = ReservationStatus {
            name: "planner".into(),
            tid: 7,
            budget_ns: 3_000_000,
            period_ns: 10_000_000,
            cpus: "1".into(),
            ..ReservationStatus::default()
        };
        Status { chains: vec![chain], reservations: vec![reservation], ..Status::default() }
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample() {
        let text = prometheus(&status());
        assert!(text.contains("takt_chain_bound_seconds{chain=\"pi\\\"lot\"} 0.09\n"), "{text}");
        assert!(
            text.contains("takt_chain_latency_seconds_bucket{chain=\"pi\\\"lot\",le=\"0.128\"} 3\n"),
            "{text}"
        );
        assert!(text.contains("takt_chain_latency_seconds_sum{chain=\"pi\\\"lot\"} 0.15\n"), "{text}");
        assert!(text.contains(
            "takt_reservation_bandwidth_ratio{thread=\"planner\",pid=\"0\",tid=\"7\",cpus=\"1\"} 0.3\n"
        ));
        for line in text.lines() {
            let sample = line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
            assert!(line.starts_with("# ") || sample, "{line}");
        }
        assert_eq!(prometheus(&Status::default()).matches("chain").count(), 0);
    }

    /// Checks the rules of the exposition format and the naming conventions of Prometheus.
    #[test]
    fn families_are_reported_once_and_named_as_is_usual() {
        let second = ChainStatus { name: "odometry".into(), ..status().chains[0].clone() };
        let mut both = status();
        both.chains.push(second);
        let text = prometheus(&both);
        let mut known: Vec<String> = Vec::new();
        let mut family = (String::new(), String::new());
        let mut series: Vec<&str> = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let name = rest.split(' ').next().unwrap().to_owned();
                assert!(rest.len() > name.len() + 1, "{line} helps nobody");
                assert!(!known.contains(&name), "{name} is reported twice");
                assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
                known.push(name);
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(Some(name), known.last().map(String::as_str), "HELP comes before TYPE");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
                for unit in ["_ms", "_us", "_ns", "_percent", "_milliseconds"] {
                    assert!(!name.contains(unit), "{name} has not the base unit");
                }
                family = (name.to_owned(), kind.to_owned());
                continue;
            }
            let (sample, _) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let (of, kind) = (&family.0, family.1.as_str());
            let parts = ["_bucket", "_sum", "_count"];
            let fits = match kind {
                "histogram" => parts.iter().any(|part| *name == format!("{of}{part}")),
                _ => name == of,
            };
            assert!(fits, "{line} stands below {of}");
            assert!(!series.contains(&sample), "{sample} is reported twice");
            series.push(sample);
        }
        // Each chain's buckets grow up to its count.
        for name in ["pi\\\"lot", "odometry"] {
            let of = |part: &str| format!("takt_chain_latency_seconds_{part}{{chain=\"{name}\"");
            let value = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
            let buckets: Vec<f64> =
                text.lines().filter(|line| line.starts_with(&of("bucket"))).map(value).collect();
            let count: Vec<f64> =
                text.lines().filter(|line| line.starts_with(&of("count"))).map(value).collect();
            assert!(buckets.len() == 3 && buckets.is_sorted() && buckets.last() == count.first(), "{text}");
        }
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        // The answer ends where the server closes.
        let request = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_requests_for_this_address_are_answered() {
        let server = Server::start(([127, 0, 0, 1], 0).into(), Board::default()).unwrap();
        let address = server.address();
        let port = address.port();
        let code = |host: &str| {
            let answer = ask(address, &format!("GET /metrics HTTP/1.1\r\n{host}\r\n"));
            assert!(!answer.contains("takt_") || answer.starts_with("HTTP/1.1 200"), "{answer}");
            answer[9..12].to_owned()
        };
        // A foreign page whose name server now says 127.0.0.1.
        assert_eq!(code(&format!("Host: evil.example:{port}\r\n")), "403");
        assert_eq!(code("Host: evil.example\r\n"), "403");
        assert_eq!(code(""), "400");
        assert_eq!(code(&format!("Host: {address}\r\nHost: evil.example\r\n")), "400");
        assert_eq!(code(&format!("Host: {address}\r\n")), "200");
        assert_eq!(code(&format!("host: LocalHost:{port}\r\n")), "200");
        assert!(ask(address, &format!("POST / HTTP/1.1\r\nHost: {address}\r\n\r\n")).contains(" 405 "));
    }

    /// Five silent clients once delayed a scrape by ten seconds: two for each, until each was given
    /// up.
    #[test]
    fn silent_clients_delay_no_scrape() {
        let server = Server::start(([127, 0, 0, 1], 0).into(), Board::default()).unwrap();
        let address = server.address();
        let scrape = || ask(address, &format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        let silent = || {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(b"GET /metrics HTT");
            stream
        };
        // Answered while all five still have their time: nobody was waited for. The machine may
        // stall for that long by itself.
        let answered_beside = || {
            let mut clients: Vec<TcpStream> = (0..5).map(|_| silent()).collect();
            assert!(scrape().contains(" 200 "));
            clients.iter_mut().all(|client| {
                client.set_nonblocking(true).unwrap();
                client.read(&mut [0; 16]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            })
        };
        assert!((0..5).any(|_| answered_beside()));
        // More than are kept at once.
        let clients: Vec<TcpStream> = (0..100).map(|_| silent()).collect();
        assert!(scrape().contains(" 200 "));
        drop(clients);
    }

    #[test]
    fn served_over_http_and_ended_with_the_server() {
        let board = Board::default();
        board.put(status());
        let server = Server::start(([127, 0, 0, 1], 0).into(), board).unwrap();
        let address = server.address();
        let get = |path: &str| ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        assert!(get("/metrics").contains("takt_plan_holds"));
        let answer = get("/status");
        let json = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(serde_json::from_str::<Status>(json).unwrap(), status());
        assert!(get("/etc/passwd").starts_with("HTTP/1.1 404"));
        // Garbage and a client that says nothing harm nobody.
        let _ = TcpStream::connect(server.address()).unwrap().write_all(&[0xff; 10_000]);
        drop(TcpStream::connect(server.address()).unwrap());
        assert!(get("/").starts_with("HTTP/1.1 200"));
        drop(server);
        let open = Server::start(([0, 0, 0, 0], 0).into(), Board::default());
        assert!(matches!(open, Err(Error::NotLoopback(_))));
    }
}
