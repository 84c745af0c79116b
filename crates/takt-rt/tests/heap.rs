//! Every thread has a malloc arena of its own after `keep_heap`. In a process of its own: glibc
//! settles the number of arenas once.
#![cfg(target_env = "gnu")]

use std::sync::{Arc, Barrier};

use takt_rt::memory::keep_heap;

/// Arenas of this process, by glibc's own account.
fn arenas() -> usize {
    let mut text: *mut libc::c_char = std::ptr::null_mut();
    let mut length = 0;
    // SAFETY: the stream writes to the two locals, which outlive it; they are read after it is
    // closed, which completes the text, and the text is freed once.
    unsafe {
        let stream = libc::open_memstream(&mut text, &mut length);
        assert!(!stream.is_null());
        assert_eq!(libc::malloc_info(0, stream), 0);
        libc::fclose(stream);
        let copy = std::slice::from_raw_parts(text.cast::<u8>(), length).to_vec();
        libc::free(text.cast());
        String::from_utf8_lossy(&copy).matches("<heap nr=").count()
    }
}

#[test]
fn no_two_threads_share_an_arena() {
    keep_heap();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // glibc by itself stops at 8 arenas per CPU.
    let threads = 8 * cpus + 8;
    let met = Arc::new(Barrier::new(threads + 1));
    let handles: Vec<_> = (0..threads)
        .map(|size| {
            let met = Arc::clone(&met);
            std::thread::spawn(move || {
                let held = vec![1_u8; 1000 + size];
                met.wait();
                met.wait();
                held.len()
            })
        })
        .collect();
    met.wait();
    let found = arenas();
    met.wait();
    for handle in handles {
        assert!(handle.join().is_ok());
    }
    assert!(found >= threads, "{found} arenas for {threads} threads");
}
