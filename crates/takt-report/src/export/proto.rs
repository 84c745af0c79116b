//! Messages as Protocol Buffers with their description, which viewers read as typed fields: Rerun
//! takes JSON for bytes.
//!
//! The fields of a sample file are known when a run is read and not before, so that descriptions
//! and rows are written field by field. Missing values of a row are left out (`optional`).

use prost::Message;
use prost::encoding;
use serde_json::{Map, Value};
use takt_rundir::{Column, ColumnKind};

/// `google.protobuf.FileDescriptorSet`, as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(message, repeated, tag = "1")]
    file: Vec<File>,
}

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(string, repeated, tag = "3")]
    dependency: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    message_type: Vec<Type>,
    #[prost(string, tag = "12")]
    syntax: String,
}

#[derive(Clone, PartialEq, Message)]
struct Type {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    field: Vec<Field>,
    #[prost(message, repeated, tag = "4")]
    enum_type: Vec<Enum>,
}

#[derive(Clone, PartialEq, Message)]
struct Field {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    number: i32,
    #[prost(int32, tag = "4")]
    label: i32,
    #[prost(int32, tag = "5")]
    kind: i32,
    #[prost(string, optional, tag = "6")]
    type_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Enum {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    value: Vec<EnumValue>,
}

#[derive(Clone, PartialEq, Message)]
struct EnumValue {
    #[prost(string, tag = "1")]
    name: String,
    // Written even where it is 0.
    #[prost(int32, optional, tag = "2")]
    number: Option<i32>,
}

/// `foxglove.Log`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Log {
    #[prost(message, optional, tag = "1")]
    pub timestamp: Option<Timestamp>,
    #[prost(int32, tag = "2")]
    pub level: i32,
    #[prost(string, tag = "3")]
    pub message: String,
    #[prost(string, tag = "4")]
    pub name: String,
    #[prost(string, tag = "5")]
    pub file: String,
    #[prost(fixed32, tag = "6")]
    pub line: u32,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Numbers that `google.protobuf.FieldDescriptorProto.Type` gives types.
const DOUBLE: i32 = 1;
const INT64: i32 = 3;
const INT32: i32 = 5;
const FIXED32: i32 = 7;
const BOOL: i32 = 8;
const STRING: i32 = 9;
const MESSAGE: i32 = 11;
const ENUM: i32 = 14;

fn field(place: usize, name: &str, kind: i32, type_name: Option<&str>) -> Field {
    let number = i32::try_from(place + 1).unwrap_or(i32::MAX);
    Field { name: name.to_owned(), number, label: 1, kind, type_name: type_name.map(str::to_owned) }
}

fn file(name: &str, package: &str, message: Type, syntax: &str) -> File {
    File {
        name: name.to_owned(),
        package: package.to_owned(),
        message_type: vec![message],
        syntax: syntax.to_owned(),
        ..File::default()
    }
}

/// The description of [`Log`], as Foxglove publishes it.
pub(super) fn log_schema() -> Vec<u8> {
    let time = Type {
        name: "Timestamp".to_owned(),
        field: vec![field(0, "seconds", INT64, None), field(1, "nanos", INT32, None)],
        ..Type::default()
    };
    let levels = ["UNKNOWN", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"];
    let value = |(number, name): (i32, &str)| EnumValue { name: name.to_owned(), number: Some(number) };
    let log = Type {
        name: "Log".to_owned(),
        field: vec![
            field(0, "timestamp", MESSAGE, Some(".google.protobuf.Timestamp")),
            field(1, "level", ENUM, Some(".foxglove.Log.Level")),
            field(2, "message", STRING, None),
            field(3, "name", STRING, None),
            field(4, "file", STRING, None),
            field(5, "line", FIXED32, None),
        ],
        enum_type: vec![Enum { name: "Level".to_owned(), value: (0..).zip(levels).map(value).collect() }],
    };
    let time = file("google/protobuf/timestamp.proto", "google.protobuf", time, "proto3");
    let mut log = file("foxglove/Log.proto", "foxglove", log, "proto3");
    log.dependency.push(time.name.clone());
    Files { file: vec![time, log] }.encode_to_vec()
}

/// The fields of a message `takt.NAME`.
pub(super) struct Row {
    name: String,
    fields: Vec<(String, ColumnKind)>,
}

/// A name that Protocol Buffers take.
pub(super) fn identifier(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = name.chars().map(fits).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() { format!("_{name}") } else { name }
}

impl Row {
    pub fn new(name: &str, fields: &[(&str, ColumnKind)]) -> Self {
        let fields = fields.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        Self { name: identifier(name), fields }
    }

    /// `takt.NAME`, for the rows of a sample file.
    pub(crate) fn of_columns(file: &str, columns: &[Column]) -> Self {
        let fields: Vec<_> = columns.iter().map(|column| (column.name.as_str(), column.kind)).collect();
        Self::new(file, &fields)
    }

    /// `takt.NAME`.
    pub(crate) fn full_name(&self) -> String {
        format!("takt.{}", self.name)
    }

    /// Its description.
    pub fn schema(&self) -> Vec<u8> {
        let kind = |kind: ColumnKind| match kind {
            ColumnKind::Bool => BOOL,
            ColumnKind::Integer => INT64,
            ColumnKind::Number => DOUBLE,
            ColumnKind::Text => STRING,
        };
        let fields = self.fields.iter().enumerate();
        let fields = fields.map(|(place, (name, of))| field(place, &identifier(name), kind(*of), None));
        let message = Type { name: self.name.clone(), field: fields.collect(), ..Type::default() };
        // Of the second version, in which every optional field knows whether it is there.
        let file = file(&format!("takt/{}.proto", self.name), "takt", message, "proto2");
        Files { file: vec![file] }.encode_to_vec()
    }

    /// A row. Integers beyond 63 bits are the largest that there is.
    pub fn encode(&self, row: &Map<String, Value>) -> Vec<u8> {
        let mut out = Vec::new();
        for (tag, (name, kind)) in (1..).zip(&self.fields) {
            let Some(value) = row.get(name) else { continue };
            match (kind, value) {
                (ColumnKind::Bool, Value::Bool(value)) => encoding::bool::encode(tag, value, &mut out),
                (ColumnKind::Integer, Value::Number(value)) => {
                    encoding::int64::encode(tag, &value.as_i64().unwrap_or(i64::MAX), &mut out);
                }
                (ColumnKind::Number, Value::Number(value)) => {
                    encoding::double::encode(tag, &value.as_f64().unwrap_or(f64::NAN), &mut out);
                }
                (ColumnKind::Text, Value::String(value)) => encoding::string::encode(tag, value, &mut out),
                _ => {}
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn rows_leave_out_what_they_have_not() {
        let row = Row::new(
            "a-b.c",
            &[("n", ColumnKind::Integer), ("t", ColumnKind::Text), ("x", ColumnKind::Number)],
        );
        assert_eq!(row.full_name(), "takt.a_b_c");
        let encoded = row.encode(json!({ "n": -1, "x": 0.0, "more": 1 }).as_object().unwrap());
        let mut expected = vec![0x08];
        expected.extend([0xff; 9]);
        expected.extend([0x01, 0x19]);
        expected.extend([0; 8]);
        assert_eq!(encoded, expected);
        assert_eq!(
            row.encode(json!({ "n": u64::MAX }).as_object().unwrap())[1..],
            [[0xff; 8].as_slice(), &[0x7f]].concat()
        );
        let files = Files::decode(&row.schema()[..]).unwrap();
        assert_eq!(files.file[0].message_type[0].field[1].name, "t");
        assert_eq!((identifier("9 a"), identifier("")), ("_9_a".to_owned(), "_".to_owned()));
    }
}
