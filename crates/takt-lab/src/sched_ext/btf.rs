//! The kernel's description of its own types (BTF, Documentation/bpf/btf.rst): as much of it as
//! finding a structure and its members needs.

/// `BTF_MAGIC` of linux/btf.h.
const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;

/// A description, read.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

/// A structure.
#[derive(Debug, PartialEq, Eq)]
pub struct Structure {
    /// Its number among the types.
    pub id: u32,
    pub bytes: usize,
    /// Names and places, bytes from the start. Fields of bits are left out.
    pub members: Vec<(String, usize)>,
}

impl Structure {
    /// Offset of a member.
    #[must_use]
    pub fn offset(&self, member: &str) -> Option<usize> {
        self.members.iter().find(|(name, _)| name == member).map(|(_, offset)| *offset)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Bytes behind the common part of a type.
fn rest(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        2 | 7..=12 | 16 | 18 => 0,
        1 | 14 | 17 => 4,
        3 => 12,
        4 | 5 | 15 | 19 => 12 * members,
        6 | 13 => 8 * members,
        _ => return None,
    })
}

impl<'a> Btf<'a> {
    /// From the bytes of `/sys/kernel/btf/vmlinux`; `None` where they are no such description.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(*bytes.first_chunk()?);
        let header = usize::try_from(word(bytes, 4)?).ok()?;
        let part = |offset: usize| -> Option<&'a [u8]> {
            let at = header.checked_add(usize::try_from(word(bytes, offset)?).ok()?)?;
            let length = usize::try_from(word(bytes, offset + 4)?).ok()?;
            bytes.get(at..at.checked_add(length)?)
        };
        (magic == MAGIC).then_some(Self { types: part(8)?, strings: part(16)? })
    }

    fn name(&self, offset: u32) -> Option<&'a str> {
        let text = self.strings.get(usize::try_from(offset).ok()?..)?;
        std::str::from_utf8(text.split(|byte| *byte == 0).next()?).ok()
    }

    /// The structure of this name.
    #[must_use]
    pub fn structure(&self, name: &str) -> Option<Structure> {
        // Number 0 is void, and is not written.
        let (mut at, mut id) = (0, 1);
        while at < self.types.len() {
            let info = word(self.types, at + 4)?;
            let (kind, members) = (info >> 24 & 0x1f, usize::try_from(info & 0xffff).ok()?);
            if kind == STRUCT && self.name(word(self.types, at)?)? == name {
                return self.members(at, id, members, info >> 31 == 1);
            }
            at += 12 + rest(kind, members)?;
            id += 1;
        }
        None
    }

    fn members(&self, at: usize, id: u32, count: usize, with_bits: bool) -> Option<Structure> {
        let bytes = usize::try_from(word(self.types, at + 8)?).ok()?;
        let mut members = Vec::new();
        for member in (0..count).map(|number| at + 12 + 12 * number) {
            let offset = word(self.types, member + 8)?;
            let (bits, width) = if with_bits { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
            if width == 0 && bits % 8 == 0 {
                members.push((
                    self.name(word(self.types, member)?)?.to_owned(),
                    usize::try_from(bits / 8).ok()?,
                ));
            }
        }
        Some(Structure { id, bytes, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `struct a { int x; struct b *y; }` behind an int, a pointer and an array.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0a\0x\0y\0";
        let mut types = Vec::new();
        let mut add =
            |words: &[u32]| words.iter().for_each(|word| types.extend_from_slice(&word.to_ne_bytes()));
        add(&[1, 1 << 24, 4, 32]);
        add(&[0, 2 << 24, 1]);
        add(&[0, 3 << 24, 0, 1, 1, 4]);
        add(&[5, 4 << 24 | 2, 16, 7, 1, 0, 9, 2, 64]);
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0]);
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&types);
        bytes.extend_from_slice(strings);
        bytes
    }

    #[test]
    fn a_structure_is_found_by_its_name() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).unwrap();
        let found = btf.structure("a").unwrap();
        assert_eq!((found.id, found.bytes), (4, 16));
        assert_eq!((found.offset("x"), found.offset("y"), found.offset("z")), (Some(0), Some(8), None));
        assert_eq!(btf.structure("int"), None, "an int is no structure");
        assert!(Btf::parse(b"no description").is_none());
    }

    #[test]
    fn this_kernels_own_types_are_read() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            takt_witness::skip!("this kernel does not describe its types");
            return;
        };
        let task = Btf::parse(&bytes).unwrap().structure("task_struct").unwrap();
        assert!(task.bytes > 1000 && task.offset("pid") < task.offset("comm"), "{task:?}");
    }

    proptest! {
        #[test]
        fn damaged_descriptions_are_survived(at in 0usize..170, value: u8, cut in 0usize..170) {
            let mut bytes = sample();
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            bytes.truncate(cut);
            let _ = Btf::parse(&bytes).and_then(|btf| btf.structure("a"));
        }
    }
}
