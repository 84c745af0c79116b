//! Children of the preload probe's tests: calls as `rclcpp` makes them, and possible failures
//! around them.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_ros::standin::Tracepoints;
use takt_rt::proof::system_calls_beyond;

/// The variable that makes a child of this executable.
pub const ROLE: &str = "TAKT_TEST_ROLE";
/// Begins what a child says to its parent.
pub const SIGN: &str = "the child says:";
/// Rounds of a thread of the role `plain`.
pub const ROUNDS: u64 = 1000;
/// Threads of the role `plain`.
pub const THREADS: u64 = 4;

fn address<T>(value: u64) -> *const T {
    std::ptr::without_provenance(value as usize)
}

/// One callback that publishes, as `rclcpp` of Jazzy reports it.
fn round(calls: &Tracepoints, callback: u64, number: u64) {
    calls.rclcpp_executor_get_next_ready();
    calls.rclcpp_executor_execute(address(callback + 1));
    calls.rmw_take(address(callback + 2), address(number), number as i64, true);
    calls.rcl_take(address(number));
    calls.callback_start(address(callback), number.is_multiple_of(2));
    calls.rclcpp_publish(address(7), address(number));
    calls.rcl_publish(address(callback + 3), address(number));
    calls.rmw_publish(address(callback + 4), address(number), -(number as i64) - 1);
    calls.callback_end(address(callback));
    calls.rclcpp_executor_wait_for_work(-1);
}

/// Events of one round that the model knows (`rcl_take` it does not).
pub const EVENTS_A_ROUND: usize = 9;

fn init(calls: &Tracepoints) {
    calls.rcl_init(address(1));
    calls.rcl_node_init(address(10), address(11), c"camera driver", c"/front");
    calls.rcl_publisher_init(address(20), address(10), address(21), c"/rgb", 5);
    calls.rcl_subscription_init(address(30), address(10), address(31), c"/tick", 6);
    calls.rclcpp_subscription_init(address(30), address(32));
    calls.rclcpp_subscription_callback_added(address(32), address(33));
    calls.rcl_timer_init(address(40), 100_000_000);
    calls.rclcpp_timer_callback_added(address(40), address(41));
    calls.rclcpp_timer_link_node(address(40), address(10));
    let long = std::ffi::CString::new("x".repeat(5000)).unwrap();
    calls.rclcpp_callback_register(address(41), &long);
    calls.rcl_lifecycle_transition(address(50), c"inactive", c"active");
}

/// Plays a role.
pub fn play(role: &str) {
    let calls = Tracepoints::find();
    assert!(calls.count() == 40 || role == "module", "the stand-in is not loaded");
    match role {
        "plain" => {
            init(&calls);
            std::thread::scope(|scope| {
                for thread in 1..=THREADS {
                    let work = move || {
                        for number in 1..=ROUNDS {
                            round(&calls, thread * 1000, number);
                        }
                    };
                    std::thread::Builder::new()
                        .name(format!("executor {thread}"))
                        .spawn_scoped(scope, work)
                        .unwrap();
                }
            });
        }
        "old" => {
            // Before Jazzy: the message alone; what stands in the other registers is no argument.
            for number in 1..=10 {
                calls.rcl_publish(address(20), address(number));
                calls.rmw_publish(address(number), address(99), 98);
            }
        }
        "flood" => {
            for number in 0..100_000 {
                calls.callback_end(address(number));
            }
            // The reader drains now; then there is room to say what was lost.
            println!("\n{SIGN}");
            std::io::stdin().read_line(&mut String::new()).unwrap();
            calls.callback_end(address(100_000));
        }
        "fork" => {
            calls.callback_start(address(1), false);
            // SAFETY: the child only calls the probe and leaves.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                (0..10).for_each(|number| calls.callback_end(address(number)));
                // SAFETY: leaves at once, as a forked child of a program with threads should.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child made above.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0);
            calls.callback_end(address(1));
        }
        "crash" => {
            calls.callback_start(address(1), false);
            std::process::abort();
        }
        "threads" => {
            // More threads one after the other than there are rings.
            calls.rcl_init(address(1));
            for number in 0..600 {
                std::thread::spawn(move || calls.callback_end(address(number))).join().unwrap();
            }
        }
        "exec" => {
            use std::os::unix::process::CommandExt;
            calls.callback_end(address(1));
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "preload::child", "--test-threads=1"]).env(ROLE, "old");
            panic!("{}", command.exec());
        }
        "wait" => {
            calls.callback_end(address(1));
            println!("\n{SIGN}");
            std::io::stdin().read_line(&mut String::new()).unwrap();
            calls.callback_end(address(2));
        }
        "module" => {
            let module = std::ffi::CString::new(std::env::var("TAKT_TEST_MODULE").unwrap()).unwrap();
            // SAFETY: a library of this test, whose one function takes nothing.
            unsafe {
                let library = libc::dlopen(module.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
                assert!(!library.is_null());
                let call = libc::dlsym(library, c"call".as_ptr());
                assert!(!call.is_null());
                std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(call)();
            }
        }
        "quiet" => measure(&calls),
        "idle" => {}
        other => panic!("no role {other}"),
    }
}

/// Rounds in which nothing may be taken, in so many windows.
pub const QUIET_ROUNDS: u64 = 100;
const WINDOWS: u64 = 5;
/// Activations after which a thread's callbacks are known.
const LEARNT: u64 = 256;

/// Cost of an event besides time, in the child itself.
fn measure(calls: &Tracepoints) {
    let calls = *calls;
    let heap = std::sync::Arc::new(AtomicU64::new(u64::MAX));
    let grown = std::sync::Arc::clone(&heap);
    let outcome = system_calls_beyond(&[], move || {
        init(&calls);
        // A thread's first activations are looked at more closely.
        (0..=LEARNT).for_each(|_| round(&calls, 1000, 1));
        move || {
            // The heap is the whole process's, and the harness has other threads: what events took
            // would show in every window.
            for _ in 0..WINDOWS {
                let before = in_use();
                (0..QUIET_ROUNDS / WINDOWS).for_each(|number| round(&calls, 1000, number));
                grown.fetch_min(in_use().abs_diff(before), Ordering::Relaxed);
            }
        }
    });
    match outcome {
        Ok(outcome) => println!("\n{SIGN} {} {}", outcome.calls, heap.load(Ordering::Relaxed)),
        Err(error) => println!("\n{SIGN} no seccomp filter: {error}"),
    }
}

fn in_use() -> u64 {
    // SAFETY: takes nothing; no lock is held by this thread.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}
