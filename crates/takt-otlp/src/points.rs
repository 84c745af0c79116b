//! Data to send: points of metrics, by name.

use std::collections::BTreeMap;

use crate::Exponential;
use crate::messages::{
    self, AnyValue, Buckets, CUMULATIVE, Data, ExponentialHistogram, ExponentialPoint, Gauge, Histogram,
    HistogramPoint, KeyValue, Metric, Number, NumberPoint, Sum,
};

/// Points at most: what a source says too much is counted and left out, so that a request stays
/// small however many threads there are.
const MAX_POINTS: usize = 4096;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Count(i64),
    /// Any number.
    Number(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

pub(crate) fn any(value: Value) -> AnyValue {
    let value = match value {
        Value::Text(text) => messages::Value::Text(text),
        Value::Count(count) => messages::Value::Count(count),
        Value::Number(number) => messages::Value::Number(number),
    };
    AnyValue { value: Some(value) }
}

pub(crate) fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(any(value)) }
}

/// Points that a source fills in.
#[derive(Debug, Default)]
pub struct Points {
    pub(crate) start_unix_ns: u64,
    pub(crate) now_unix_ns: u64,
    /// Labels of every point: the robot and the machine.
    labels: Vec<(String, String)>,
    metrics: BTreeMap<String, Metric>,
    points: usize,
    /// Points that were too many.
    pub(crate) left_out: u64,
}

impl Points {
    pub(crate) fn at(start_unix_ns: u64, now_unix_ns: u64, labels: Vec<(String, String)>) -> Self {
        Self { start_unix_ns, now_unix_ns, labels, ..Self::default() }
    }

    fn attributes(&self, own: &[(&str, &str)]) -> Vec<KeyValue> {
        let all = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.chain(own.iter().copied()).map(|(name, value)| attribute(name, Value::from(value))).collect()
    }

    pub(crate) fn into_metrics(self) -> Vec<Metric> {
        self.metrics.into_values().collect()
    }

    fn data(
        &mut self,
        [name, unit, description]: [&str; 3],
        empty: impl FnOnce() -> Data,
    ) -> Option<&mut Data> {
        if self.points >= MAX_POINTS {
            self.left_out += 1;
            return None;
        }
        self.points += 1;
        let metric = self.metrics.entry(name.to_owned()).or_insert_with(|| Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            description: description.to_owned(),
            data: Some(empty()),
        });
        metric.data.as_mut()
    }

    fn number(&self, labels: &[(&str, &str)], value: Number) -> NumberPoint {
        NumberPoint {
            attributes: self.attributes(labels),
            start_time_unix_nano: self.start_unix_ns,
            time_unix_nano: self.now_unix_ns,
            value: Some(value),
        }
    }

    /// A count that only grows.
    pub fn sum(&mut self, [name, unit, description]: [&str; 3], labels: &[(&str, &str)], count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let point = self.number(labels, Number::Int(count));
        let empty = || {
            Data::Sum(Sum {
                data_points: Vec::new(),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: true,
            })
        };
        if let Some(Data::Sum(sum)) = self.data([name, unit, description], empty) {
            sum.data_points.push(point);
        }
    }

    /// A value as it stands.
    pub fn gauge(&mut self, [name, unit, description]: [&str; 3], labels: &[(&str, &str)], value: f64) {
        let point = self.number(labels, Number::Double(value));
        let empty = || Data::Gauge(Gauge::default());
        if let Some(Data::Gauge(gauge)) = self.data([name, unit, description], empty) {
            gauge.data_points.push(point);
        }
    }

    /// Times, seconds.
    pub fn times(&mut self, [name, description]: [&str; 2], labels: &[(&str, &str)], all: &Exponential) {
        let point = ExponentialPoint {
            attributes: self.attributes(labels),
            start_time_unix_nano: self.start_unix_ns,
            time_unix_nano: self.now_unix_ns,
            count: all.count,
            sum: Some(all.sum),
            scale: all.scale,
            zero_count: all.zeros,
            positive: Some(Buckets { offset: all.offset, bucket_counts: all.counts.clone() }),
            min: all.range.map(|range| range[0]),
            max: all.range.map(|range| range[1]),
        };
        let empty = || {
            Data::Exponential(ExponentialHistogram {
                data_points: Vec::new(),
                aggregation_temporality: CUMULATIVE,
            })
        };
        if let Some(Data::Exponential(data)) = self.data([name, "s", description], empty) {
            data.data_points.push(point);
        }
    }

    /// Times, seconds, in buckets that somebody else chose: upper bounds, and how many were no
    /// greater. `sum` is of all `count`.
    pub fn times_at_most(
        &mut self,
        [name, description]: [&str; 2],
        labels: &[(&str, &str)],
        at_most: &[(f64, u64)],
        count: u64,
        sum: f64,
    ) {
        let mut counts = Vec::with_capacity(at_most.len() + 1);
        let mut before = 0;
        for (_, no_greater) in at_most {
            counts.push(no_greater.saturating_sub(before));
            before = before.max(*no_greater);
        }
        counts.push(count.saturating_sub(before));
        let point = HistogramPoint {
            attributes: self.attributes(labels),
            start_time_unix_nano: self.start_unix_ns,
            time_unix_nano: self.now_unix_ns,
            count: counts.iter().sum(),
            sum: Some(sum),
            bucket_counts: counts,
            explicit_bounds: at_most.iter().map(|(bound, _)| *bound).collect(),
        };
        let empty =
            || Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality: CUMULATIVE });
        if let Some(Data::Histogram(data)) = self.data([name, "s", description], empty) {
            data.data_points.push(point);
        }
    }
}
