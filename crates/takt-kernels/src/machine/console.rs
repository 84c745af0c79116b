//! Interprets a guest's console output.

use crate::guest::CONSOLE_ERROR;

/// Meaning of the console output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing was ever written.
    Silent,
    /// The kernel panicked, in these words.
    Panicked(String),
    /// Memory ran out, in these words.
    OutOfMemory(String),
    /// The initramfs or its first process could not be used, in these words.
    NoInit(String),
    /// The guest's first process failed, in these words.
    Guest(String),
    Nothing,
}

/// A kernel without memory says that in many ways, and often panics about the consequence; so
/// memory goes before panics.
const MEMORY: [&str; 7] = [
    "Cannot find place for new RAMDISK",
    "Out of memory: Killed process",
    "Out of memory and no killable processes",
    "System is deadlocked on memory",
    "Initramfs unpacking failed: write error",
    "page allocation failure",
    "Initramfs unpacking failed: no space",
];

/// The first process, asked for before panics, since the panic that follows says less.
const INIT: [&str; 7] = [
    "No working init found",
    "Unable to mount root fs",
    "Failed to execute /init",
    "Initramfs unpacking failed",
    "Attempted to kill init!",
    "System too small for initrd",
    "Requested init /init failed",
];

const PANIC: &str = "Kernel panic - not syncing";

/// Text of the first line that holds one of these, without the kernel's time stamp.
fn find(console: &str, phrases: &[&str]) -> Option<String> {
    console.lines().find(|line| phrases.iter().any(|phrase| line.contains(phrase))).map(strip)
}

fn strip(line: &str) -> String {
    let line = line.trim();
    match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((time, text)) if time.trim().parse::<f64>().is_ok() => text.trim().to_owned(),
        _ => line.to_owned(),
    }
}

/// Judges a console's log.
#[must_use]
pub fn judge(console: &[u8]) -> Judgement {
    let text = String::from_utf8_lossy(console);
    if text.trim().is_empty() {
        return Judgement::Silent;
    }
    if let Some(line) = find(&text, &MEMORY) {
        return Judgement::OutOfMemory(line);
    }
    if let Some(line) = find(&text, &INIT) {
        return Judgement::NoInit(line);
    }
    if let Some(line) = find(&text, &[PANIC]) {
        return Judgement::Panicked(line);
    }
    match text.lines().rev().find_map(|line| line.split_once(CONSOLE_ERROR)) {
        Some((_, why)) => Judgement::Guest(why.trim().to_owned()),
        None => Judgement::Nothing,
    }
}

/// Whether the kernel has panicked: nothing comes after that, but the end.
pub(super) fn has_panicked(console: &[u8]) -> bool {
    String::from_utf8_lossy(console).contains(PANIC)
}

/// The last lines, for a message.
pub(super) fn tail(console: &[u8], lines: usize) -> String {
    let text = String::from_utf8_lossy(console);
    let all: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_panic_is_reported_in_its_own_words() {
        let console = b"[    0.0] Linux version 6.1\r\n[    1.234567] Kernel panic - not syncing: sysrq triggered crash\r\n\
                        [    1.3] CPU: 0 PID: 1\r\n";
        assert_eq!(
            judge(console),
            Judgement::Panicked("Kernel panic - not syncing: sysrq triggered crash".into())
        );
    }

    #[test]
    fn memory_goes_before_the_panic_that_follows_from_it() {
        let console = b"[    9.1] Out of memory: Killed process 1 (init) total-vm:1kB\n\
                        [    9.2] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009\n";
        assert_eq!(
            judge(console),
            Judgement::OutOfMemory("Out of memory: Killed process 1 (init) total-vm:1kB".into())
        );
    }

    #[test]
    fn an_image_that_does_not_fit_is_a_lack_of_memory() {
        let console =
            b"[    0.007] Kernel panic - not syncing: Cannot find place for new RAMDISK of size 60936704\n";
        assert!(matches!(judge(console), Judgement::OutOfMemory(line) if line.contains("RAMDISK")));
        assert!(has_panicked(console) && !has_panicked(b"[    0.1] Out of memory: Killed process 1\n"));
    }

    #[test]
    fn a_kernel_without_initramfs_is_reported() {
        let console = b"[    1.0] VFS: Unable to mount root fs on unknown-block(0,0)\n\
                        [    1.1] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n";
        assert!(matches!(judge(console), Judgement::NoInit(line) if line.starts_with("VFS: Unable")));
    }

    #[test]
    fn silence_and_ordinary_words_are_no_panic() {
        assert_eq!(judge(b"\r\n"), Judgement::Silent);
        assert_eq!(judge(b"[    0.0] Linux version 6.1\n"), Judgement::Nothing);
        assert_eq!(
            judge(b"x\ntakt-guest: error: no way to the host\n"),
            Judgement::Guest("no way to the host".into())
        );
    }

    #[test]
    fn the_tail_leaves_out_what_is_empty() {
        assert_eq!(tail(b"a\r\n\r\nb\r\nc\r\n", 2), "b\nc");
        assert_eq!(tail(b"", 3), "");
    }

    proptest! {
        #[test]
        fn any_console_is_judged(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = judge(&bytes);
            let _ = tail(&bytes, 5);
        }
    }
}
