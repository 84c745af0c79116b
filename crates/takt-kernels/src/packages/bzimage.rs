//! The head of an x86 kernel file: that it is one, and which.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Offsets of the boot protocol (Documentation/arch/x86/boot.rst).
const BOOT_FLAG_AT: usize = 0x1fe;
const MAGIC_AT: usize = 0x202;
const VERSION_AT: usize = 0x206;
const NAME_AT: usize = 0x20e;
/// The setup part of a kernel is at most 64 sectors long, and the name lies in it.
const HEAD_BYTES: u64 = 32 * 1024 + 0x200;
/// Protocol 2.03 and later load an initramfs of any place below 2 GiB.
const VERSION_MIN: u16 = 0x0203;

/// The kernel's own name of itself, "6.1.0-56-amd64 (...) #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2
/// (2026-11-16)".
pub(super) fn describe(path: &Path) -> io::Result<Result<String, String>> {
    // A FIFO would be waited for.
    if !std::fs::metadata(path)?.is_file() {
        return Ok(Err("it is not a regular file".into()));
    }
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(description(&head))
}

fn description(head: &[u8]) -> Result<String, String> {
    let word = |at: usize| head.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    if word(BOOT_FLAG_AT) != Some(0xaa55) || head.get(MAGIC_AT..MAGIC_AT + 4) != Some(b"HdrS") {
        return Err("it has no boot header (expected 55 aa at 0x1fe and HdrS at 0x202)".into());
    }
    let version = word(VERSION_AT).unwrap_or(0);
    if version < VERSION_MIN {
        return Err(format!("its boot protocol is {version:#06x}, expected {VERSION_MIN:#06x} or later"));
    }
    let at = usize::from(word(NAME_AT).unwrap_or(0)) + 0x200;
    let rest = head.get(at..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == 0).ok_or("its version is not in its head")?;
    let text = String::from_utf8_lossy(&rest[..end]).into_owned();
    if text.split_whitespace().next().is_none_or(|release| !release.starts_with(|c: char| c.is_ascii_digit()))
    {
        return Err(format!("its version reads {text:?}"));
    }
    Ok(text)
}

#[cfg(test)]
pub(super) fn sample(version: &str) -> Vec<u8> {
    let mut head = vec![0; 0x400];
    head[BOOT_FLAG_AT..BOOT_FLAG_AT + 2].copy_from_slice(&[0x55, 0xaa]);
    head[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(b"HdrS");
    head[VERSION_AT..VERSION_AT + 2].copy_from_slice(&[0x0f, 0x02]);
    head[NAME_AT..NAME_AT + 2].copy_from_slice(&0x200u16.to_le_bytes());
    head.extend_from_slice(version.as_bytes());
    head.push(0);
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_name_is_read() {
        let name = "6.1.0-56-amd64 (x) #1 SMP PREEMPT_DYNAMIC";
        assert_eq!(description(&sample(name)).unwrap(), name);
        assert!(description(&sample("no version")).unwrap_err().contains("no version"));
        assert!(description(b"\x7fELF").unwrap_err().contains("boot header"));
    }

    proptest! {
        #[test]
        fn a_damaged_head_never_panics(at in 0usize..1100, value: u8, cut in 0usize..1100) {
            let mut head = sample("6.1.0");
            if let Some(byte) = head.get_mut(at) { *byte = value; }
            head.truncate(cut);
            let _ = description(&head);
        }
    }
}
