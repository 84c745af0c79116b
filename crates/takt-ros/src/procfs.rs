//! What `/proc` says of processes.

use std::fs;

/// When the process of this number was started, clock ticks since boot; `None`: there is none, or only what is left of one.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    match fields.next()? {
        // A zombie writes no more.
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}
