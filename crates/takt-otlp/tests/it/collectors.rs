//! Behaviour of collectors towards the exporter: good ones, slow ones, dead ones and hostile ones.

#![allow(clippy::unwrap_used)]
#![cfg(feature = "send")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;
use takt_otlp::messages::{Data, LogsRequest, Metric, MetricsRequest, PartialSuccess, Response};
use takt_otlp::{Endpoint, Exponential, Exporter, Options, Outcome, Record, Severity, Value};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A collector that does `answer` to each request: path and body, and the stream.
fn collector(answer: impl Fn(&str, Vec<u8>, &mut TcpStream) + Send + 'static) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while let Some((path, body)) = request(&mut reader) {
                answer(&path, body, &mut stream);
            }
        }
    });
    Endpoint::new(&format!("http://{address}"), &BTreeMap::new()).unwrap()
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}

fn values() -> Exponential {
    let mut all = Exponential::default();
    (1..=1000).for_each(|n| all.add(n * 1000, 1));
    all
}

fn start(endpoint: Endpoint) -> Exporter {
    let resource = vec![("service.name".to_owned(), Value::from("takt"))];
    let labels = vec![("robot".to_owned(), "cyclic".to_owned())];
    let options = Options { endpoint, interval: Duration::from_millis(50), resource, labels };
    let all = values();
    Exporter::start(options, move |points| {
        points.times(["takt.lateness", "Lateness."], &[("measure", "lateness")], &all);
        points.sum(["takt.misses", "{job}", "Misses."], &[("measure", "lateness")], 7);
        points.gauge(["takt.chain.goal", "s", "Goal."], &[("chain", "c")], 0.5);
        let counts = [(0.001, 2), (0.002, 5)];
        points.times_at_most(["takt.chain.latency", "Latency."], &[], &counts, 6, 0.01);
    })
    .unwrap()
}

fn record(text: &str) -> Record {
    let attributes = vec![("takt.verdict".to_owned(), Value::from("FAIL"))];
    Record { event: "takt.verdict".to_owned(), severity: Severity::Error, body: text.to_owned(), attributes }
}

fn end(exporter: Exporter) -> Outcome {
    exporter.finish(Duration::from_secs(5))
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn wait_until(what: impl Fn() -> bool) {
    for _ in 0..2000 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never came");
}

#[test]
fn a_good_collector_gets_all() {
    let got: Arc<Mutex<(Vec<MetricsRequest>, Vec<LogsRequest>)>> = Arc::default();
    let endpoint = {
        let got = Arc::clone(&got);
        collector(move |path, body, stream| {
            let mut got = got.lock().unwrap();
            match path {
                "/v1/metrics" => got.0.push(MetricsRequest::decode(&body[..]).unwrap()),
                "/v1/logs" => got.1.push(LogsRequest::decode(&body[..]).unwrap()),
                other => panic!("{other}"),
            }
            stream.write_all(OK).unwrap();
        })
    };
    let exporter = start(endpoint);
    exporter.log(record("FAIL: 7 misses"));
    wait_until(|| got.lock().unwrap().0.len() >= 2);
    let outcome = end(exporter);
    assert!(outcome.complete && outcome.failed == 0 && outcome.trouble().is_none(), "{outcome:?}");
    let (metrics, logs) = &*got.lock().unwrap();
    let resource = &metrics.last().unwrap().resource_metrics[0];
    assert_eq!(resource.resource.as_ref().unwrap().attributes[0].key, "service.name");
    let find = |name: &str| -> Metric {
        resource.scope_metrics[0].metrics.iter().find(|metric| metric.name == name).unwrap().clone()
    };
    let Some(Data::Exponential(times)) = find("takt.lateness").data else { panic!() };
    let point = &times.data_points[0];
    assert_eq!(point.attributes.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["robot", "measure"]);
    assert_eq!((point.count, times.aggregation_temporality), (1000, 2));
    assert!((point.sum.unwrap() - 0.5005).abs() < 1e-9 && point.max == Some(0.001));
    let buckets = point.positive.as_ref().unwrap();
    assert_eq!(buckets.bucket_counts.iter().sum::<u64>() + point.zero_count, 1000);
    assert!(point.start_time_unix_nano > 0 && point.time_unix_nano > point.start_time_unix_nano);
    let Some(Data::Histogram(chains)) = find("takt.chain.latency").data else { panic!() };
    assert_eq!(chains.data_points[0].bucket_counts, [2, 3, 1]);
    assert!(matches!(find("takt.misses").data, Some(Data::Sum(sum)) if sum.is_monotonic));
    let all: Vec<_> = logs.iter().flat_map(|logs| &logs.resource_logs[0].scope_logs[0].log_records).collect();
    assert_eq!((all.len(), all[0].severity_text.as_str()), (1, "ERROR"));
    assert_eq!(all[0].attributes[0].key, "takt.verdict");
}

#[test]
fn one_that_asks_for_time_gets_it_and_what_is_rejected_is_reported() {
    let asked = Arc::new(AtomicU64::new(0));
    let endpoint = {
        let asked = Arc::clone(&asked);
        collector(move |_, _, stream| {
            asked.fetch_add(1, Ordering::SeqCst);
            let answer = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 600\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
        })
    };
    let exporter = start(endpoint);
    wait_until(|| asked.load(Ordering::SeqCst) >= 1);
    // Intervals go by in which nothing is sent; at the end it is tried once more.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let outcome = end(exporter);
    assert_eq!((outcome.accepted, outcome.failed, asked.load(Ordering::SeqCst)), (0, 2, 2));
    assert!(outcome.trouble().unwrap().contains("429"), "{outcome:?}");

    let exporter = start(collector(|_, _, stream| {
        let message = PartialSuccess { rejected: 3, error_message: "too old\u{1b}[31m".to_owned() };
        let body = Response { partial_success: Some(message) }.encode_to_vec();
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).unwrap();
        stream.write_all(&body).unwrap();
    }));
    let outcome = end(exporter);
    let trouble = outcome.trouble().unwrap();
    assert!(outcome.rejected >= 3 && trouble.contains("too old") && !trouble.contains('\u{1b}'), "{trouble}");
}

#[test]
fn logs_arrive_where_metrics_do_not_and_the_other_way_round() {
    const LATER: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 600\r\ncontent-length: 0\r\n\r\n";
    for refused in ["/v1/metrics", "/v1/logs"] {
        let (asked, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let endpoint = {
            let (asked, taken) = (Arc::clone(&asked), Arc::clone(&taken));
            collector(move |path, _, stream| {
                let (count, answer) = if path == refused { (&asked, LATER) } else { (&taken, OK) };
                count.fetch_add(1, Ordering::SeqCst);
                stream.write_all(answer).unwrap();
            })
        };
        let exporter = start(endpoint);
        exporter.log(record("FAIL: 7 misses"));
        wait_until(|| asked.load(Ordering::SeqCst) == 1 && taken.load(Ordering::SeqCst) >= 1);
        // Also while the other waits for what it was asked to wait.
        let before = taken.load(Ordering::SeqCst);
        exporter.log(record("FAIL: 8 misses"));
        wait_until(|| taken.load(Ordering::SeqCst) > before);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{refused} did not get its time");
        let outcome = end(exporter);
        assert_eq!((outcome.failed, asked.load(Ordering::SeqCst)), (2, 2), "{outcome:?}");
        let logs = refused == "/v1/logs";
        assert_eq!((outcome.complete, outcome.records_lost), (logs, if logs { 2 } else { 0 }), "{outcome:?}");
    }
}

#[test]
fn dead_and_hostile_ones_cost_no_memory_and_no_patience() {
    let sent = Arc::new(AtomicU64::new(0));
    let endless = |head: &'static str, filler: &'static [u8]| {
        let sent = Arc::clone(&sent);
        collector(move |_, _, stream| {
            let _ = stream.write_all(head.as_bytes());
            // Ten gigabytes, or until nobody listens any more.
            let block: Vec<u8> = filler.iter().copied().cycle().take(1 << 16).collect();
            for _ in 0..160_000 {
                match stream.write(&block) {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => sent.fetch_add(bytes as u64, Ordering::Relaxed),
                };
            }
        })
    };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cases: [(&str, Endpoint); 6] = [
        ("nobody", Endpoint::new(&format!("http://{closed}"), &BTreeMap::new()).unwrap()),
        ("closes", collector(|_, _, stream| stream.shutdown(std::net::Shutdown::Both).unwrap())),
        ("never answers", collector(|_, _, _| ())),
        ("10 GB", endless("HTTP/1.1 200 OK\r\ncontent-length: 10485760000\r\n\r\n", b"\0")),
        ("endless headers", endless("HTTP/1.1 200 OK\r\n", b"x-more: 1234567890\r\n")),
        ("no HTTP", endless("", b"\xff\xfe")),
    ];
    let before = resident();
    let exporters: Vec<(&str, Exporter)> =
        cases.into_iter().map(|(name, endpoint)| (name, start(endpoint))).collect();
    const FLOOD: u64 = 100_000;
    for n in 0..FLOOD {
        exporters.iter().for_each(|(_, exporter)| exporter.log(record(&format!("record {n}"))));
    }
    std::thread::sleep(Duration::from_secs(2));
    let grown = resident().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes");
    for (name, exporter) in exporters {
        let outcome = end(exporter);
        // What is accepted before it turns hostile is accepted.
        if name == "10 GB" {
            assert!(outcome.accepted > 0, "{outcome:?}");
        } else {
            assert!(!outcome.complete && outcome.trouble().is_some(), "{name}: {outcome:?}");
        }
        // Without an answer in time nothing is known of the records.
        assert!(outcome.records_lost > FLOOD / 2 || name == "never answers", "{name}: {outcome:?}");
    }
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 1 << 30, "{sent} bytes were taken");
}
