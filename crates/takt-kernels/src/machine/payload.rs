//! The kernel inside a compressed kernel file. A translated guest needs 4 s of its time to unpack
//! itself, most of its whole start; the host does it in one. QEMU starts the unpacked kernel by its
//! PVH entry, where it has one.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Offsets of the boot protocol (Documentation/arch/x86/boot.rst): sectors of the setup part, its
/// mark, the protocol's version, place and length of the payload.
const SETUP_SECTORS_AT: usize = 0x1f1;
const MAGIC_AT: usize = 0x202;
const VERSION_AT: usize = 0x206;
const PAYLOAD_AT: usize = 0x248;

/// The payload is reported since this version.
const VERSION_MIN: u16 = 0x0208;

/// Kernels are well below; a damaged file must not fill the memory.
const UNPACKED_MAX_BYTES: u64 = 512 << 20;

/// Type of the note that holds the entry, in the name space "Xen".
const PVH_ENTRY: u32 = 18;

/// The kernel as an ELF file, if this file is a compressed one whose packing is known and whose
/// kernel starts without its own unpacker. `None` in all other cases: it is started as it is then.
pub(super) fn unpack(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = Vec::new();
    File::open(path)?.take(UNPACKED_MAX_BYTES).read_to_end(&mut file)?;
    Ok(kernel_within(&file, UNPACKED_MAX_BYTES))
}

/// The kernel as an ELF file within a compressed kernel file, of at most `most_bytes`; `None` where
/// there is none that starts by itself.
#[must_use]
pub fn kernel_within(file: &[u8], most_bytes: u64) -> Option<Vec<u8>> {
    payload(file).and_then(|payload| unpacked(payload, most_bytes)).filter(|elf| has_pvh_entry(elf))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn payload(file: &[u8]) -> Option<&[u8]> {
    if file.get(MAGIC_AT..MAGIC_AT + 4)? != b"HdrS" {
        return None;
    }
    if u16::from_le_bytes(*file.get(VERSION_AT..)?.first_chunk()?) < VERSION_MIN {
        return None;
    }
    // 0 means 4, for the sake of kernels of the nineties.
    let sectors = match *file.get(SETUP_SECTORS_AT)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let begin = ((sectors + 1) * 512).checked_add(usize::try_from(u32_at(file, PAYLOAD_AT)?).ok()?)?;
    let length = usize::try_from(u32_at(file, PAYLOAD_AT + 4)?).ok()?;
    file.get(begin..begin.checked_add(length)?)
}

fn unpacked(payload: &[u8], most_bytes: u64) -> Option<Vec<u8>> {
    let mut elf = Vec::new();
    // The kernel's build appends the unpacked length to most formats; readers of one stream stop
    // before it.
    let read = match payload {
        [0x1f, 0x8b, ..] => flate2::bufread::GzDecoder::new(payload).take(most_bytes).read_to_end(&mut elf),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            lzma_rust2::XzReader::new(payload, false).take(most_bytes).read_to_end(&mut elf)
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            ruzstd::decoding::StreamingDecoder::new(payload).ok()?.take(most_bytes).read_to_end(&mut elf)
        }
        _ => return None,
    };
    read.ok()?;
    elf.starts_with(b"\x7fELF").then_some(elf)
}

fn has_pvh_entry(elf: &[u8]) -> bool {
    use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
    let Ok(file) = ElfFile64::<object::Endianness>::parse(elf) else { return false };
    let (endian, header) = (file.endian(), file.elf_header());
    let Ok(segments) = header.program_headers(endian, elf) else { return false };
    segments.iter().any(|segment| {
        let Ok(Some(mut notes)) = segment.notes(endian, elf) else { return false };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"Xen" && note.n_type(endian) == object::elf::NoteType(PVH_ENTRY) {
                return true;
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn file(payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 1024];
        file[SETUP_SECTORS_AT] = 1;
        file[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(b"HdrS");
        file[VERSION_AT..VERSION_AT + 2].copy_from_slice(&[0x0f, 0x02]);
        file[PAYLOAD_AT..PAYLOAD_AT + 4].copy_from_slice(&16u32.to_le_bytes());
        file[PAYLOAD_AT + 4..PAYLOAD_AT + 8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        file.extend_from_slice(&[0; 16]);
        file.extend_from_slice(payload);
        file
    }

    /// Header, one segment of notes, one note.
    fn elf(note: u32) -> Vec<u8> {
        let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        for value in [2u16, 62] {
            elf.extend_from_slice(&value.to_le_bytes());
        }
        elf.extend_from_slice(&1u32.to_le_bytes());
        for value in [0u64, 64, 0] {
            elf.extend_from_slice(&value.to_le_bytes());
        }
        elf.extend_from_slice(&0u32.to_le_bytes());
        for value in [64u16, 56, 1, 64, 0, 0] {
            elf.extend_from_slice(&value.to_le_bytes());
        }
        for value in [4u32, 4] {
            elf.extend_from_slice(&value.to_le_bytes());
        }
        for value in [120u64, 0, 0, 24, 24, 4] {
            elf.extend_from_slice(&value.to_le_bytes());
        }
        for value in [4u32, 8, note] {
            elf.extend_from_slice(&value.to_le_bytes());
        }
        elf.extend_from_slice(b"Xen\0\0\0\0\0\0\0\0\0");
        elf
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    fn read(file: &[u8]) -> Option<Vec<u8>> {
        let mut path = tempfile::NamedTempFile::new().unwrap();
        path.write_all(file).unwrap();
        unpack(path.path()).unwrap()
    }

    #[test]
    fn a_packed_kernel_with_an_entry_of_its_own_is_unpacked() {
        let mut packed = gzip(&elf(PVH_ENTRY));
        packed.extend_from_slice(&144u32.to_le_bytes());
        assert_eq!(read(&file(&packed)).unwrap(), elf(PVH_ENTRY));
    }

    #[test]
    fn all_others_are_started_as_they_are() {
        assert_eq!(read(&file(&gzip(&elf(17)))), None);
        assert_eq!(read(&file(&gzip(b"no ELF"))), None);
        assert_eq!(read(&file(b"\x02\x21unknown packing")), None);
        assert_eq!(read(&elf(PVH_ENTRY)), None);
        assert_eq!(read(b""), None);
    }

    proptest! {
        #[test]
        fn damaged_files_are_survived(at in 0usize..1300, value: u8, cut in 0usize..1300) {
            let mut file = file(&gzip(&elf(PVH_ENTRY)));
            if let Some(byte) = file.get_mut(at) { *byte = value; }
            file.truncate(cut);
            let _ = kernel_within(&file, 1 << 20);
        }
    }
}
