//! Opens a Parquet file after its footer has been looked at.
//!
//! The library builds the tree of a schema by recursion, as deep as the file says: a footer of a
//! megabyte overflows any stack, which ends the process. So the footer is walked here first,
//! without recursion, and refused beyond limits that no sample file comes near. Its format is
//! Thrift's compact protocol (thrift-compact-protocol.md; `FileMetaData` in parquet.thrift).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// Bytes of a footer. A sample file's has about 100 for each column and group of rows.
pub const MAX_FOOTER_BYTES: u32 = 64 << 20;
/// Columns and groups of columns of a schema. A robot's rows have some tens.
pub const MAX_SCHEMA_ELEMENTS: u64 = 10_000;
/// Groups of columns within each other. Sample files have one: the row.
pub const MAX_SCHEMA_DEPTH: usize = 32;
/// Values within each other in a footer, whatever they mean. Parquet's own nest seven deep.
const MAX_FOOTER_DEPTH: usize = 32;
/// Rows for each byte of a file. A time stamp takes half a byte at least, packed.
pub const MAX_ROWS_PER_BYTE: u64 = 64;
/// Files of at most this many rows are exempt.
pub const MIN_ROWS: u64 = 1 << 20;

const MAGIC: &[u8] = b"PAR1";

/// Opens the sample file at `path`.
///
/// # Errors
/// The damage of the file, or the limit that it exceeds.
pub(crate) fn open(path: &Path) -> Result<SerializedFileReader<File>, ParquetError> {
    let mut file = takt_files::open(path)?;
    let bytes = file.metadata()?.len();
    let mut tail = [0; 8];
    if bytes >= 12 {
        file.seek(SeekFrom::End(-8))?;
        file.read_exact(&mut tail)?;
    }
    if let Some(length) = footer_bytes(&tail, bytes)? {
        file.seek(SeekFrom::End(-8 - i64::from(length)))?;
        let mut footer = vec![0; length as usize];
        file.read_exact(&mut footer)?;
        check(&footer)?;
    }
    file.rewind()?;
    let reader = SerializedFileReader::new(file)?;
    check_rows(&reader, bytes)?;
    Ok(reader)
}

/// Looks at the footer of a whole Parquet file in memory, before the library does.
///
/// # Errors
/// The limit that it exceeds.
pub fn check_bytes(file: &[u8]) -> Result<(), ParquetError> {
    let Some(tail) = file.last_chunk::<8>().filter(|_| file.len() >= 12) else { return Ok(()) };
    let Some(length) = footer_bytes(tail, file.len() as u64)? else { return Ok(()) };
    let end = file.len() - 8;
    check(&file[end - length as usize..end])
}

/// The footer's length; None for what is no Parquet file, which the library says in its words.
fn footer_bytes(tail: &[u8; 8], file_bytes: u64) -> Result<Option<u32>, ParquetError> {
    let [a, b, c, d, magic @ ..] = *tail;
    let length = u32::from_le_bytes([a, b, c, d]);
    if magic != *MAGIC || u64::from(length) + 12 > file_bytes {
        return Ok(None);
    }
    match length <= MAX_FOOTER_BYTES {
        true => Ok(Some(length)),
        false => Err(beyond("bytes of the footer", u64::from(length), u64::from(MAX_FOOTER_BYTES))),
    }
}

fn beyond(what: &str, received: u64, most: u64) -> ParquetError {
    ParquetError::General(format!(
        "{what}: {received}, but at most {most} are read; write the file again with fewer"
    ))
}

/// A file of a few bytes can claim any number of rows, all alike.
fn check_rows(reader: &SerializedFileReader<File>, bytes: u64) -> Result<(), ParquetError> {
    let metadata = reader.metadata();
    let groups = metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
    let grouped = groups.fold(0, u64::saturating_add);
    let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0).max(grouped);
    let most = bytes.saturating_mul(MAX_ROWS_PER_BYTE).max(MIN_ROWS);
    if rows > most { Err(beyond("rows in a file of this length", rows, most)) } else { Ok(()) }
}

/// Reader of a footer.
struct Footer<'a> {
    rest: &'a [u8],
}

/// Kinds of values of the compact protocol.
mod kind {
    pub const STOP: u8 = 0;
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const I16: u8 = 4;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const MAP: u8 = 11;
    pub const STRUCT: u8 = 12;
    pub const UUID: u8 = 13;
}

/// The list of the schema's elements in `FileMetaData`, and the number of children in an element.
const FIELD_SCHEMA: i64 = 2;
const FIELD_CHILDREN: i64 = 5;

/// The container around the next value.
#[derive(Clone, Copy)]
enum Open {
    /// A struct, the field that was read last, and whether it is an element of the schema.
    Struct { field: i64, element: bool },
    /// So many values of a kind, of the schema's list or another.
    List { left: u64, kind: u8, schema: bool },
}

/// Walks a footer. Anything that is not a footer passes: the library reports its faults.
fn check(footer: &[u8]) -> Result<(), ParquetError> {
    let mut footer = Footer { rest: footer };
    let mut schema = Schema::default();
    let mut open = vec![Open::Struct { field: 0, element: false }];
    while let Some(top) = open.last_mut() {
        let (kind, children, in_schema) = match top {
            Open::List { left: 0, .. } => {
                open.pop();
                continue;
            }
            Open::List { left, kind, schema } => {
                *left -= 1;
                (*kind, false, *schema)
            }
            Open::Struct { field, element } => {
                let element = *element;
                let Some(head) = footer.byte() else { return Ok(()) };
                if head & 0x0f == kind::STOP {
                    if element {
                        schema.end()?;
                    }
                    open.pop();
                    continue;
                }
                *field = match head >> 4 {
                    0 => match footer.zigzag() {
                        Some(field) => field,
                        None => return Ok(()),
                    },
                    delta => *field + i64::from(delta),
                };
                let field = *field;
                let schema = open.len() == 1 && field == FIELD_SCHEMA;
                (head & 0x0f, element && field == FIELD_CHILDREN, schema)
            }
        };
        // A true or false of a field is in its head; in a list it is a byte.
        let in_list = matches!(open.last(), Some(Open::List { .. }));
        let Some(()) = (match kind {
            kind::TRUE | kind::FALSE if !in_list => Some(()),
            kind::TRUE | kind::FALSE | kind::BYTE => footer.byte().map(|_| ()),
            kind::I16..=kind::I64 => footer.zigzag().map(|value| {
                if children {
                    schema.children = u64::try_from(value).unwrap_or(0);
                }
            }),
            kind::DOUBLE => footer.skip(8),
            kind::UUID => footer.skip(16),
            kind::BINARY => footer.varint().and_then(|length| footer.skip(length)),
            kind::STRUCT => {
                open.push(Open::Struct { field: 0, element: in_schema && in_list });
                Some(())
            }
            kind::LIST | kind::SET => footer.list().map(|(left, kind)| {
                open.push(Open::List { left, kind, schema: in_schema });
            }),
            // No version of Parquet has one, and the library skips it without a limit.
            kind::MAP => {
                return Err(ParquetError::General(
                    "a map in the footer, which no version of Parquet has".into(),
                ));
            }
            _ => None,
        }) else {
            return Ok(());
        };
        if open.len() > MAX_FOOTER_DEPTH {
            return Err(beyond(
                "values within each other in the footer",
                open.len() as u64,
                MAX_FOOTER_DEPTH as u64,
            ));
        }
    }
    Ok(())
}

/// The tree of the schema, which stands in the file as a list: each element, then its children.
#[derive(Default)]
struct Schema {
    elements: u64,
    /// Children of the element that is being read.
    children: u64,
    /// Children that are still to come, by depth.
    left: Vec<u64>,
}

impl Schema {
    /// An element has been read.
    fn end(&mut self) -> Result<(), ParquetError> {
        self.elements += 1;
        if self.elements > MAX_SCHEMA_ELEMENTS {
            return Err(beyond("columns", self.elements, MAX_SCHEMA_ELEMENTS));
        }
        if let Some(left) = self.left.last_mut() {
            *left = left.saturating_sub(1);
        }
        match std::mem::take(&mut self.children) {
            0 => {
                while self.left.last() == Some(&0) {
                    self.left.pop();
                }
            }
            children => self.left.push(children),
        }
        match self.left.len() <= MAX_SCHEMA_DEPTH {
            true => Ok(()),
            false => Err(beyond(
                "groups of columns within each other",
                self.left.len() as u64,
                MAX_SCHEMA_DEPTH as u64,
            )),
        }
    }
}

impl Footer<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Number and kind of the values that follow.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        // Each value has a byte at least: a count beyond that is damage.
        (count <= self.rest.len() as u64).then_some((count, head & 0x0f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer as Thrift writes it: the version, and a schema of `depth` groups with one child
    /// each, and a column in the last.
    fn nested(depth: usize) -> Vec<u8> {
        let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
        let mut count = depth as u64 + 1;
        while count >= 0x80 {
            footer.push(count as u8 | 0x80);
            count >>= 7;
        }
        footer.push(count as u8);
        for _ in 0..depth {
            // Field 3, required; field 4, the name `g`; field 5, one child.
            footer.extend([0x35, 0x00, 0x18, 0x01, b'g', 0x15, 0x02, 0x00]);
        }
        // Field 1, INT64; field 3, required; field 4, the name `x`.
        footer.extend([0x15, 0x04, 0x25, 0x00, 0x18, 0x01, b'x', 0x00]);
        // Field 3, no rows; field 4, no groups.
        footer.extend([0x16, 0x00, 0x19, 0x0c, 0x00]);
        footer
    }

    fn file(footer: &[u8]) -> Vec<u8> {
        let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
        [MAGIC, footer, &length, MAGIC].concat()
    }

    #[test]
    fn a_deep_schema_is_refused_and_not_followed() {
        // Within the limit, the library reads the same file.
        let shallow = file(&nested(MAX_SCHEMA_DEPTH));
        check_bytes(&shallow).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        std::fs::write(&path, &shallow).unwrap();
        let reader = open(&path).unwrap();
        assert_eq!(reader.metadata().file_metadata().schema_descr().num_columns(), 1);
        for depth in [MAX_SCHEMA_DEPTH + 1, 9000, 100_000] {
            std::fs::write(&path, file(&nested(depth))).unwrap();
            let error = open(&path).err().unwrap().to_string();
            assert!(
                error.contains("groups of columns within each other: 33, but at most 32"),
                "{depth}: {error}"
            );
        }
    }

    #[test]
    fn a_footer_has_limits_in_width_depth_and_length() {
        let mut wide = vec![0x15, 0x02, 0x19, 0xfc, 0xa0, 0x9c, 0x01]; // 20,000 elements
        wide.extend([0x38, 0x01, b'x', 0x00].repeat(20_000));
        let error = check(&wide).unwrap_err().to_string();
        assert!(error.contains("columns: 10001, but at most 10000"), "{error}");
        // Structs and lists of any meaning.
        for nest in [vec![0x1c; 100_000], [0x19, 0x19].repeat(100_000)] {
            let error = check(&nest).unwrap_err().to_string();
            assert!(error.contains("at most 32"), "{error}");
        }
        let mut tail = [0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0];
        tail[4..].copy_from_slice(MAGIC);
        assert!(footer_bytes(&tail, u64::MAX).unwrap_err().to_string().contains("bytes of the footer"));
        assert_eq!(footer_bytes(&tail, 1000).unwrap(), None, "cut off: the library says so");
        // No bytes panic or go on without end.
        for at in 0..2000u32 {
            let bytes: Vec<u8> =
                (0..200u32).map(|i| (at.wrapping_mul(2_654_435_761) >> (i % 24)) as u8 ^ i as u8).collect();
            let _ = check(&bytes);
        }
    }
}
