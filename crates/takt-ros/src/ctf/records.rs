//! Events as they were recorded, field by field, whatever they are.

use std::fmt;
use std::path::Path;

use super::error::Error;
use super::reader::Reader;
use super::stream::Damage;
use super::value::{self, Value};

/// One recorded event.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Nanoseconds of the trace's clock.
    pub at_ns: u64,
    /// Provider and event.
    pub name: String,
    pub cpu: Option<u64>,
    /// Context of all events of the stream.
    pub context: Option<Value>,
    pub event_context: Option<Value>,
    /// The payload.
    pub fields: Option<Value>,
}

/// As babeltrace2 shows it, from the event's name on.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        let mut first = true;
        let mut part = |f: &mut fmt::Formatter<'_>, text: String| {
            let before = if std::mem::take(&mut first) { " " } else { ", " };
            write!(f, "{before}{text}")
        };
        if let Some(cpu) = self.cpu {
            part(f, format!("{{ cpu_id = {cpu} }}"))?;
        }
        for value in [&self.context, &self.event_context, &self.fields].into_iter().flatten() {
            part(f, value.to_string())?;
        }
        Ok(())
    }
}

/// All events of a recording, one after the other: an iterator.
#[derive(Debug)]
pub struct Records {
    reader: Reader,
}

impl Records {
    /// All traces at or below `folder`.
    ///
    /// # Errors
    ///
    /// There is none, or one that cannot be read from its beginning on.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self { reader: Reader::below(folder.as_ref(), false)? })
    }

    /// Parts that could not be read so far, the first few hundred.
    pub fn damages(&self) -> &[Damage] {
        &self.reader.tally.damages
    }
}

impl Iterator for Records {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let mut record = None;
        while record.is_none() {
            let more = self.reader.next(&mut |trace, class, event, cpu, (mut cursor, saved), at_ns| {
                let Some(class) = trace.metadata.streams.get(class) else { return };
                let Some(event) = class.events.get(event as usize) else { return };
                let mut part = |of: Option<&super::tsdl::types::Type>| {
                    of.map(|of| value::read(of, &mut cursor, saved)).transpose()
                };
                let values = part(class.event_context.as_ref()).and_then(|context| {
                    Ok((context, part(event.context.as_ref())?, part(event.fields.as_ref())?))
                });
                // Unreadable fields are listed as damage when the event is left.
                if let Ok((context, event_context, fields)) = values {
                    record =
                        Some(Record { at_ns, name: event.name.clone(), cpu, context, event_context, fields });
                }
            });
            if !more {
                break;
            }
        }
        record
    }
}
