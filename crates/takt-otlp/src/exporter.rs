//! The thread that sends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prost::Message;
use takt_rt::policy::Policy;

use crate::endpoint::Endpoint;
use crate::http;
use crate::messages::{
    LogRecord, LogsRequest, MetricsRequest, Resource, ResourceLogs, ResourceMetrics, Response, Scope,
    ScopeLogs, ScopeMetrics,
};
use crate::pause::Pause;
use crate::points::{Points, Value, any, attribute};

/// Log records that wait at most, in the queue and again in the thread.
const MAX_RECORDS: usize = 256;

/// Longest time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same of the last requests, for which a program waits that wants to end.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// Options of sending.
#[derive(Clone, Debug)]
pub struct Options {
    /// Destination.
    pub endpoint: Endpoint,
    /// Time between two requests.
    pub interval: Duration,
    /// Resource of all data: `service.name`, `host.name`, the robot.
    pub resource: Vec<(String, Value)>,
    /// Additional labels of every point of a metric: servers keep the resource apart from the
    /// points, each in its own way, and queries would differ by server.
    pub labels: Vec<(String, String)>,
}

/// Severity of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// All is well.
    Info,
    /// Something is to be looked at.
    Warn,
    /// Something failed.
    Error,
}

/// A log record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Name of the event, as a program knows it: `takt.verdict`.
    pub event: String,
    /// Its severity.
    pub severity: Severity,
    /// In words.
    pub body: String,
    /// Facts.
    pub attributes: Vec<(String, Value)>,
}

/// Reason why nothing is sent.
#[derive(Debug, thiserror::Error)]
#[error("--otlp: cannot start its thread: {0}")]
pub struct StartError(#[source] takt_rt::Error);

/// Result of sending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests that were accepted.
    pub accepted: u64,
    /// Requests that were not.
    pub failed: u64,
    /// Points and records that the collector rejected of accepted requests.
    pub rejected: u64,
    /// Log records that were not delivered.
    pub records_lost: u64,
    /// Points that were too many for one request, all requests together.
    pub points_left_out: u64,
    /// Reason of the last failure.
    pub last_error: Option<String>,
    /// Whether the last metrics were delivered.
    pub complete: bool,
}

impl Outcome {
    /// Sentence that the user must see; `None` if everything arrived.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let mut parts = Vec::new();
        let all = self.accepted + self.failed;
        if self.failed > 0 {
            parts.push(format!("{} of {all} requests were not accepted", self.failed));
        }
        if !self.complete {
            parts.push("the last figures were not delivered".to_owned());
        }
        if self.rejected > 0 {
            parts.push(format!("{} points or records of accepted requests were rejected", self.rejected));
        }
        if self.records_lost > 0 {
            parts.push(format!("{} log records were lost", self.records_lost));
        }
        if self.points_left_out > 0 {
            parts.push(format!("{} points exceeded the limit", self.points_left_out));
        }
        if parts.is_empty() {
            return None;
        }
        let why = self.last_error.as_ref().map(|error| format!(" (last: {error})")).unwrap_or_default();
        Some(format!("{}{why}", parts.join(", ")))
    }
}

enum Queued {
    Record(Record, u64),
    /// Only so that the thread looks.
    Wake,
}

/// Counts for a caller that does not wait for the end of a call.
#[derive(Debug, Default)]
struct Counts {
    /// Records that were not delivered.
    lost: AtomicU64,
    /// Records that were handed over, of which nothing is known yet.
    waiting: AtomicU64,
    /// Held for the time of an addition.
    outcome: Mutex<Outcome>,
}

impl Counts {
    fn count(&self, change: impl FnOnce(&mut Outcome)) {
        change(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// So many of the records that wait will not be delivered.
    fn lose(&self, records: u64) {
        self.lost.fetch_add(records, Ordering::Relaxed);
        self.waiting.fetch_sub(records, Ordering::Relaxed);
    }

    fn outcome(&self) -> Outcome {
        let counted = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost = self.lost.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed);
        Outcome { records_lost: lost, ..counted }
    }
}

/// Sends until it is dropped, or finished.
#[derive(Debug)]
pub struct Exporter {
    queue: SyncSender<Queued>,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    done: Receiver<()>,
    // Dropped without waiting: the thread may be within a call.
    _thread: takt_rt::thread::Handle,
}

impl Exporter {
    /// Starts to send what `source` fills in. Nothing is asked of the collector before: one that is
    /// not there is reported at the end.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        options: Options,
        source: impl FnMut(&mut Points) + Send + 'static,
    ) -> Result<Self, StartError> {
        let (queue, records) = sync_channel(MAX_RECORDS);
        // One answer, for which there is always room.
        let (answer, done) = sync_channel(1);
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::<Counts>::default());
        let mut sender = Sender::new(options, source, Arc::clone(&counts));
        let thread = {
            let stop = Arc::clone(&stop);
            takt_rt::thread::spawn_exempt("takt-otlp", "best-effort telemetry", move || {
                // If that is refused, it stays an ordinary best-effort thread.
                let _ = Policy::Other { nice: 19 }.apply(0);
                sender.work(&records, &stop);
                // Nobody may wait any more.
                let _ = answer.send(());
            })
        };
        Ok(Self { queue, stop, counts, done, _thread: thread.map_err(StartError)? })
    }

    /// Hands a record over, without waiting.
    pub fn log(&self, record: Record) {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(Queued::Record(record, unix_ns())).is_err() {
            self.counts.lose(1);
        }
    }

    /// Sends what is left, and waits for that, but not longer than `patience`.
    pub fn finish(self, patience: Duration) -> Outcome {
        self.stop.store(true, Ordering::Release);
        // A full queue wakes it as well.
        let _ = self.queue.try_send(Queued::Wake);
        let ended = self.done.recv_timeout(patience).is_ok();
        let outcome = self.counts.outcome();
        if ended {
            return outcome;
        }
        // The request under way has failed for whoever waits no longer.
        let why = format!("no answer within {} s", patience.as_secs());
        Outcome { failed: outcome.failed + 1, complete: false, last_error: Some(why), ..outcome }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.queue.try_send(Queued::Wake);
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A collector's message, or its failure, in a form for one line.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

/// Result of a request.
enum Answer {
    /// Accepted; of its parts so many not, for this reason.
    Accepted { rejected: u64, why: String },
    /// Not now.
    Later { after: Option<Duration>, why: String },
    /// Never.
    Refused { why: String },
}

struct Sender<S> {
    options: Options,
    source: S,
    start_unix_ns: u64,
    pending: VecDeque<LogRecord>,
    metrics_pause: Pause,
    logs_pause: Pause,
    counts: Arc<Counts>,
}

impl<S: FnMut(&mut Points)> Sender<S> {
    fn new(options: Options, source: S, counts: Arc<Counts>) -> Self {
        let [metrics_pause, logs_pause] = [options.interval; 2].map(Pause::new);
        let (start_unix_ns, pending) = (unix_ns(), VecDeque::new());
        Self { options, source, start_unix_ns, pending, metrics_pause, logs_pause, counts }
    }

    fn work(&mut self, records: &Receiver<Queued>, stop: &AtomicBool) {
        loop {
            let due = self.metrics_pause.next().min(self.logs_pause.next());
            let left = due.saturating_duration_since(Instant::now());
            let mut next = match records.recv_timeout(left) {
                Ok(queued) => Some(queued),
                Err(RecvTimeoutError::Timeout) => None,
                // Dropped: whoever would have finished it has gone.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // As many as wait at most: whoever never stops must not keep this from sending.
            for _ in 0..MAX_RECORDS {
                let Some(queued) = next.take() else { break };
                self.take(queued);
                next = records.try_recv().ok();
            }
            next.into_iter().for_each(|queued| self.take(queued));
            let last = stop.load(Ordering::Acquire);
            // A collector that takes no metrics may take logs: neither waits for the other.
            let patience = if last { LAST_PATIENCE } else { PATIENCE };
            if last || Instant::now() >= self.metrics_pause.next() {
                self.send_metrics(patience);
            }
            if last || Instant::now() >= self.logs_pause.next() {
                self.send_logs(patience);
            }
            if last {
                return;
            }
        }
    }

    fn take(&mut self, queued: Queued) {
        let Queued::Record(record, at_unix_ns) = queued else { return };
        if self.pending.len() >= MAX_RECORDS {
            self.counts.lose(1);
            return;
        }
        // The numbers of the protocol.
        let (number, text) = match record.severity {
            Severity::Info => (9, "INFO"),
            Severity::Warn => (13, "WARN"),
            Severity::Error => (17, "ERROR"),
        };
        self.pending.push_back(LogRecord {
            time_unix_nano: at_unix_ns,
            observed_time_unix_nano: at_unix_ns,
            severity_number: number,
            severity_text: text.to_owned(),
            body: Some(any(Value::Text(record.body))),
            attributes: record.attributes.into_iter().map(|(name, value)| attribute(&name, value)).collect(),
            event_name: record.event,
        });
    }

    fn resource(&self) -> Resource {
        let all = self.options.resource.iter();
        Resource { attributes: all.map(|(name, value)| attribute(name, value.clone())).collect() }
    }

    fn send_metrics(&mut self, patience: Duration) {
        let metrics = self.metrics();
        let answer = self.post(&self.options.endpoint.metrics, &metrics, patience);
        let complete = matches!(answer, Answer::Accepted { .. });
        self.counts.count(|outcome| outcome.complete = complete);
        judge(&self.counts, &mut self.metrics_pause, answer);
    }

    fn send_logs(&mut self, patience: Duration) {
        if self.pending.is_empty() {
            // Until there are some: as often as metrics.
            return self.logs_pause.is_over();
        }
        let answer = self.post(&self.options.endpoint.logs, &self.logs(), patience);
        let sent = self.pending.len() as u64;
        match answer {
            Answer::Accepted { .. } => {
                self.counts.waiting.fetch_sub(sent, Ordering::Relaxed);
                self.pending.clear();
            }
            // A refused batch would be refused again.
            Answer::Refused { .. } => {
                self.counts.lose(sent);
                self.pending.clear();
            }
            Answer::Later { .. } => {}
        }
        judge(&self.counts, &mut self.logs_pause, answer);
    }

    fn post(&self, url: &str, body: &[u8], patience: Duration) -> Answer {
        let endpoint = &self.options.endpoint;
        let reply = match http::post(url, &endpoint.tls, &endpoint.headers, body, patience) {
            Ok(reply) => reply,
            Err(why) => return Answer::Later { after: None, why },
        };
        match reply.status {
            200..=299 => {
                // An answer that cannot be read rejects nothing.
                let message = Response::decode(&reply.body[..]).unwrap_or_default();
                let message = message.partial_success.unwrap_or_default();
                Answer::Accepted {
                    rejected: u64::try_from(message.rejected).unwrap_or(0),
                    why: message.error_message,
                }
            }
            status @ (429 | 502 | 503 | 504) => {
                Answer::Later { after: reply.retry_after, why: format!("it answered {status}") }
            }
            status => Answer::Refused { why: format!("it answered {status} to {url}") },
        }
    }

    fn metrics(&mut self) -> Vec<u8> {
        let mut points = Points::at(self.start_unix_ns, unix_ns(), self.options.labels.clone());
        (self.source)(&mut points);
        let Outcome { failed, .. } = self.counts.outcome();
        let lost = self.counts.lost.load(Ordering::Relaxed);
        points.sum(["takt.otlp.records.lost", "{record}", "Log records that were not delivered."], &[], lost);
        points.sum(
            ["takt.otlp.requests.failed", "{request}", "Requests that were not accepted."],
            &[],
            failed,
        );
        self.counts.count(|outcome| outcome.points_left_out += points.left_out);
        let scope_metrics = vec![ScopeMetrics { scope: scope(), metrics: points.into_metrics() }];
        let resource_metrics = vec![ResourceMetrics { resource: Some(self.resource()), scope_metrics }];
        MetricsRequest { resource_metrics }.encode_to_vec()
    }

    fn logs(&self) -> Vec<u8> {
        let log_records = self.pending.iter().cloned().collect();
        let scope_logs = vec![ScopeLogs { scope: scope(), log_records }];
        let resource_logs = vec![ResourceLogs { resource: Some(self.resource()), scope_logs }];
        LogsRequest { resource_logs }.encode_to_vec()
    }
}

/// Counts the answer, and says when the next request of its kind is due.
fn judge(counts: &Counts, pause: &mut Pause, answer: Answer) {
    let (after, why) = match answer {
        Answer::Accepted { rejected, why } => {
            counts.count(|outcome| {
                outcome.accepted += 1;
                outcome.rejected += rejected;
                if rejected > 0 {
                    outcome.last_error = Some(clean(&why));
                }
            });
            return pause.is_over();
        }
        Answer::Later { after, why } => (after, why),
        Answer::Refused { why } => (None, why),
    };
    counts.count(|outcome| {
        outcome.failed += 1;
        outcome.last_error = Some(clean(&why));
    });
    pause.grow(after);
}

fn scope() -> Option<Scope> {
    let (name, version) = ("takt".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Some(Scope { name, version })
}
