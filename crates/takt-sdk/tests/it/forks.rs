//! A forked child has no loops of its parent's, and may have its own.

use std::time::Duration;

use takt_sdk::Loop;

/// What `/proc/self/fd` shows of the memory of loops: name and inode.
fn memories() -> Vec<u64> {
    use std::os::unix::fs::MetadataExt;
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let named = all.filter(|path| {
        std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:takt-loops-1"))
    });
    named.map(|path| path.metadata().unwrap().ino()).collect()
}

#[test]
fn a_child_begins_anew() {
    let mut parents = Loop::periodic("parents", Duration::from_millis(1)).open().unwrap();
    parents.wait().unwrap();
    let before = memories();
    assert_eq!(before.len(), 1);
    // SAFETY: the child calls what a child of a program with threads may call in practice (glibc's
    // malloc is usable in it), and ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut run = || -> Option<()> {
            // The parent's loop goes on in vain, and harms nobody.
            parents.wait().ok()?;
            parents.end().ok()?;
            let nothing = memories().is_empty();
            let mut own = Loop::periodic("parents", Duration::from_millis(1)).open().ok()?;
            own.wait().ok()?;
            let now = memories();
            (nothing && now.len() == 1 && now != before).then_some(())
        };
        let status = i32::from(run().is_none());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:x}");
    assert_eq!(memories(), before);
    parents.wait().unwrap();
}
