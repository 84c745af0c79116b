//! A run as MCAP, which Foxglove and Rerun open beside recordings of cameras and robots.
//!
//! | topic | schema | a message for |
//! |---|---|---|
//! | `/measures/NAME` | `takt.Sample` | each sample of a measure within its window: `ns`, `us`, `missed` |
//! | `/samples/FILE` | `takt.FILE` | each row of a sample file, with the columns as they are (`separation_m`, `following_rad`, …) |
//! | `/causes` | `foxglove.Log` | what went wrong, with its cause: late releases of a trace, late frames, faults, misses, failures |
//!
//! Messages are Protocol Buffers with their description. Times are those of the samples
//! (CLOCK_MONOTONIC); the metadata `takt` has when the run began. `run.json` and `summary.json` are
//! attachments.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Seek, Write};
use std::path::Path;

use mcap::records::{MessageHeader, Metadata};
use mcap::{Attachment, Compression, McapError, WriteOptions, Writer};
use prost::Message;
use serde_json::{Map, Value, json};
use takt_rundir::{ColumnKind, Measure, RUN_FILE, RunDir, RunHeader, SUMMARY_FILE};

use super::proto::{self, Row};
use crate::Error;
use crate::supplement::Supplements;
use crate::traces;
use crate::words::{clean, time};

/// Encoding of messages and their descriptions, by MCAP's name.
const ENCODING: &str = "protobuf";
/// Chunks of so many bytes before compression: what a viewer reads to show a moment.
const CHUNK: u64 = 1 << 20;
/// Most misses of a measure that are reported one by one.
const MAX_MISSES: u64 = 10_000;
/// Longest text from a file beside the samples.
const LONGEST: usize = 2000;
/// Columns of words whose words are causes: reported when they change.
const CAUSES: [&str; 4] = ["fault", "cause", "loss", "why"];
/// Columns that report when a row was, where no measure says so.
const TIMES: [&str; 6] = ["time_ns", "planned_ns", "arrival_ns", "sent_ns", "began_ns", "event_ns"];

/// Levels of `foxglove.Log`.
#[derive(Clone, Copy)]
enum Level {
    Info = 2,
    Warning = 3,
    Error = 4,
}

/// Messages of each topic that was written.
pub type Exported = BTreeMap<String, u64>;

/// A file that is being written.
struct Out<W: Write + Seek> {
    writer: Writer<W>,
    counts: Exported,
    causes: u16,
    run: String,
}

/// Writes the sealed run at `run` to what `create` makes, once it is known to be one. Returns how
/// many messages each topic has.
///
/// # Errors
/// [`Error::RunDir`] for a run that cannot be read; [`Error::NotWhole`] for one that is not sealed,
/// or not as it was sealed; [`Error::Mcap`] where the file cannot be made or written.
pub fn mcap<W: Write + Seek>(
    run: &Path,
    supplements: &Supplements,
    create: impl FnOnce() -> io::Result<W>,
) -> Result<Exported, Error> {
    let dir = RunDir::open(run)?;
    let header = dir.header()?;
    let seal = dir.seal_state();
    if !matches!(seal, takt_rundir::SealState::Whole(_)) {
        let doubt = seal.doubt_of(&header);
        let remark = doubt.unwrap_or_else(|| "it is not sealed, so its samples have no types yet".to_owned());
        return Err(Error::NotWhole { run: header.label, remark });
    }
    let mut writer = WriteOptions::new()
        .compression(Some(Compression::Zstd))
        .compression_level(1)
        .chunk_size(Some(CHUNK))
        .library(concat!("takt/", env!("CARGO_PKG_VERSION")))
        .create(create().map_err(McapError::Io)?)?;
    writer.write_metadata(&about(&dir, &header))?;
    let log = writer.add_schema("foxglove.Log", ENCODING, &proto::log_schema())?;
    let causes = writer.add_channel(log, "/causes", ENCODING, &BTreeMap::new())?;
    let mut out = Out { writer, counts: BTreeMap::new(), causes, run: clean(&header.label) };
    let row = sample();
    let schema = out.writer.add_schema(&row.full_name(), ENCODING, &row.schema())?;
    let names: Vec<&str> = header.measures.iter().map(|measure| measure.name.as_str()).collect();
    for (measure, word) in header.measures.iter().zip(apart(&names, word)) {
        out.measure(&dir, measure, &format!("/measures/{word}"), &row, schema)?;
    }
    let files = dir.sealed_files()?;
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    // Types are apart from the one of measures, too.
    let types = apart(&[&["Sample"][..], &names].concat(), proto::identifier);
    for ((file, word), name) in names.iter().zip(apart(&names, word)).zip(&types[1..]) {
        out.rows(&dir, file, &format!("/samples/{word}"), name, &header)?;
    }
    out.write_facts(&dir, &header)?;
    for moment in supplements.of(&header.robot).map_or(Ok(Vec::new()), |added| added.moments(&dir))? {
        out.log(moment.at_ns, Level::Warning, moment.name, &moment.why)?;
    }
    for name in [RUN_FILE, SUMMARY_FILE] {
        if let Some(value) = dir.find_json::<Value>(name)? {
            let data = serde_json::to_vec_pretty(&value).unwrap_or_default();
            out.writer.attach(&Attachment {
                log_time: 0,
                create_time: 0,
                name: name.to_owned(),
                media_type: "application/json".to_owned(),
                data: data.into(),
            })?;
        }
    }
    out.writer.finish()?;
    Ok(out.counts)
}

impl<W: Write + Seek> Out<W> {
    fn write(&mut self, channel: u16, topic: &str, at_ns: u64, message: &[u8]) -> Result<(), Error> {
        let count = self.counts.entry(topic.to_owned()).or_default();
        let header = MessageHeader {
            channel_id: channel,
            sequence: u32::try_from(*count).unwrap_or(u32::MAX),
            log_time: at_ns,
            publish_time: at_ns,
        };
        *count += 1;
        Ok(self.writer.write_to_known_channel(&header, message)?)
    }

    fn log(&mut self, at_ns: u64, level: Level, name: &str, text: &str) -> Result<(), Error> {
        let timestamp = proto::Timestamp {
            seconds: (at_ns / 1_000_000_000).cast_signed(),
            nanos: (at_ns % 1_000_000_000) as i32,
        };
        let message = proto::Log {
            timestamp: Some(timestamp),
            level: level as i32,
            message: crate::words::shorten(&clean(text), LONGEST),
            name: name.to_owned(),
            file: self.run.clone(),
            line: 0,
        };
        self.write(self.causes, "/causes", at_ns, &message.encode_to_vec())
    }

    /// The samples of a measure, and its misses in words.
    fn measure(
        &mut self,
        dir: &RunDir,
        measure: &Measure,
        topic: &str,
        row: &Row,
        schema: u16,
    ) -> Result<(), Error> {
        // A chain of which nothing came through has no file.
        if !dir.has_samples(&measure.file)? || !measure.column.ends_with("_ns") {
            return Ok(());
        }
        let series = dir.series(measure)?;
        let mut about = BTreeMap::from([
            ("measure".to_owned(), clean(&measure.name)),
            ("title".to_owned(), clean(&measure.title)),
        ]);
        about.extend(measure.deadline_ns.map(|ns| ("deadline_ns".to_owned(), ns.to_string())));
        let channel = self.writer.add_channel(schema, topic, ENCODING, &about)?;
        let from_ns = measure.window_ns.map_or(0, |[from, _]| from);
        let mut misses = 0u64;
        for (index, value) in series.values_ns.iter().enumerate() {
            let at_ns = series.times_ns.get(index).copied().unwrap_or(from_ns);
            let missed = measure.deadline_ns.filter(|deadline| value > deadline);
            let message = [
                ("ns".to_owned(), json!(value)),
                ("us".to_owned(), json!(*value as f64 / 1e3)),
                ("missed".to_owned(), json!(missed.is_some())),
            ];
            self.write(channel, topic, at_ns, &row.encode(&message.into_iter().collect()))?;
            let Some(deadline) = missed else { continue };
            misses += 1;
            if misses <= MAX_MISSES {
                let text = format!(
                    "{}: {}, the deadline is {}",
                    measure.name,
                    time(*value as f64),
                    time(deadline as f64)
                );
                self.log(at_ns, Level::Warning, &measure.name, &text)?;
            } else if misses == MAX_MISSES + 1 {
                let text = format!("{}: further misses are only in {topic}", measure.name);
                self.log(at_ns, Level::Warning, &measure.name, &text)?;
            }
        }
        Ok(())
    }

    /// The rows of a sample file, and what its words report of causes.
    fn rows(
        &mut self,
        dir: &RunDir,
        file: &str,
        topic: &str,
        name: &str,
        header: &RunHeader,
    ) -> Result<(), Error> {
        let columns = dir.sealed_columns(file)?;
        if columns.is_empty() {
            return Ok(());
        }
        let has = |name: &str| columns.iter().any(|column| column.name == name);
        let by_measure =
            header.measures.iter().filter(|m| m.file == file).find_map(|m| m.time_column.as_deref());
        let any = || columns.iter().map(|c| c.name.as_str()).find(|name| name.ends_with("_ns"));
        let time =
            by_measure.or_else(|| TIMES.into_iter().find(|name| has(name))).or_else(any).map(str::to_owned);
        let typed = Row::of_columns(name, &columns);
        let schema = self.writer.add_schema(&typed.full_name(), ENCODING, &typed.schema())?;
        let channel = self.writer.add_channel(schema, topic, ENCODING, &BTreeMap::new())?;
        let mut last: BTreeMap<&str, String> = BTreeMap::new();
        let mut at_ns = 0;
        dir.each_row(file, |row: Map<String, Value>| {
            let reported = time.as_ref().and_then(|time| row.get(time)).and_then(Value::as_u64);
            at_ns = reported.unwrap_or(at_ns);
            for name in CAUSES {
                let text = row.get(name).and_then(Value::as_str).unwrap_or_default();
                if last.get(name).map_or("", String::as_str) != text {
                    let (level, words) = match text {
                        "" => (Level::Info, format!("{file}: {name} is over")),
                        text => (Level::Warning, format!("{file}: {name}: {text}")),
                    };
                    last.insert(name, text.to_owned());
                    self.log(at_ns, level, file, &words)?;
                }
            }
            self.write(channel, topic, at_ns, &typed.encode(&row))
        })?
    }

    /// Writes the facts that the run itself and its trace report.
    fn write_facts(&mut self, dir: &RunDir, header: &RunHeader) -> Result<(), Error> {
        let main = header.measures.first();
        let [from_ns, to_ns] = main.and_then(|m| m.window_ns).unwrap_or([0, 0]);
        let to_ns = if to_ns == u64::MAX { from_ns } else { to_ns };
        let sentences = [
            (to_ns, Level::Error, "failures", &header.failures),
            (to_ns, Level::Warning, "doubts", &header.doubts),
            (to_ns, Level::Warning, "problems", &header.problems),
            (from_ns, Level::Warning, "not-granted", &header.not_granted),
        ];
        for (at_ns, level, name, sentences) in sentences {
            for sentence in sentences {
                self.log(at_ns, level, name, sentence)?;
            }
        }
        self.trace(dir, main, from_ns)
    }

    /// The worst late releases of a traced run, each at its time.
    fn trace(&mut self, dir: &RunDir, main: Option<&Measure>, from_ns: u64) -> Result<(), Error> {
        let Some(trace) = traces::of_run(dir) else { return Ok(()) };
        let trace = match trace {
            Ok(trace) => trace,
            Err(why) => return self.log(from_ns, Level::Warning, "trace", &why),
        };
        // Windows name their release by its number, which most sample files report.
        let times = main.and_then(|measure| {
            let time = measure.time_column.as_deref()?;
            let mut columns = dir.columns(&measure.file, &["index", time]).ok()?.into_iter();
            Some(columns.next()?.into_iter().zip(columns.next()?).collect::<BTreeMap<u64, u64>>())
        });
        for window in &trace.windows {
            let at_ns =
                window.index.and_then(|index| times.as_ref()?.get(&index).copied()).unwrap_or(from_ns);
            let who = if window.who.is_empty() { String::new() } else { format!(": {}", window.who) };
            let text = format!(
                "release {}: {}{who}, {} late",
                window.index.map_or_else(|| "unknown".to_owned(), |index| index.to_string()),
                traces::cause_title(&window.cause),
                time(1e3 * traces::sound(window.lateness_us).unwrap_or(0.0)),
            );
            self.log(at_ns, Level::Warning, "late-release", &text)?;
        }
        Ok(())
    }
}

impl From<McapError> for Error {
    fn from(source: McapError) -> Self {
        Self::Mcap(source.to_string())
    }
}

/// A name as a topic's: nothing in it may lead to another.
fn word(name: &str) -> String {
    let fits = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' || c == '.' { c } else { '_' };
    name.chars().map(fits).collect()
}

/// Names as `spell` writes them, each another: whoever is spelled as it is called keeps that, and
/// of those that come to the same a later one has a number behind it.
fn apart(names: &[&str], spell: fn(&str) -> String) -> Vec<String> {
    let called: BTreeSet<&str> = names.iter().copied().filter(|name| spell(name) == *name).collect();
    let mut given: BTreeSet<String> = BTreeSet::new();
    let of = |name: &&str| {
        let word = spell(name);
        let numbers = (2u64..).map(|number| format!("{word}_{number}"));
        let free = |one: &String| !given.contains(one) && (one == name || !called.contains(one.as_str()));
        let one = std::iter::once(word.clone()).chain(numbers).find(free).unwrap_or(word);
        given.insert(one.clone());
        one
    };
    names.iter().map(of).collect()
}

fn about(dir: &RunDir, header: &RunHeader) -> Metadata {
    let facts = [
        ("robot", header.robot.clone()),
        ("label", header.label.clone()),
        ("configuration", header.experiment.configuration()),
        ("started_utc", header.started_utc.clone()),
        ("takt", header.takt.clone()),
        ("clock", "CLOCK_MONOTONIC".to_owned()),
        ("kernel", header.machine.kernel.clone().unwrap_or_default()),
        ("seal_sha256", dir.seal_hash().unwrap_or_default()),
    ];
    let metadata = facts.into_iter().map(|(name, value)| (name.to_owned(), clean(&value))).collect();
    Metadata { name: "takt".to_owned(), metadata }
}

/// A sample of a measure: the value in nanoseconds, in microseconds, and whether it is above the
/// deadline.
fn sample() -> Row {
    let fields = [("ns", ColumnKind::Integer), ("us", ColumnKind::Number), ("missed", ColumnKind::Bool)];
    Row::new("Sample", &fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_spelled_alike_stay_apart() {
        assert_eq!(apart(&["a/b", "a b", "c"], word), ["a_b", "a_b_2", "c"]);
        assert_eq!(apart(&["a/b", "a_b", "a b", "a_b_2"], word), ["a_b_3", "a_b", "a_b_4", "a_b_2"]);
        assert_eq!(apart(&["a", "a", "", ""], word), ["a", "a_2", "", "_2"]);
        assert_eq!(apart(&["a-b", "a.b"], proto::identifier), ["a_b", "a_b_2"]);
    }
}
