//! Names of threads that are the same in another watch of the same programs: thread numbers are
//! not.

use std::collections::{BTreeMap, BTreeSet};

use crate::target::{Target, Thread};

/// Longest part of a name: those of the kernel have 15 bytes.
const MAX_LETTERS: usize = 40;
/// Letters of a command that are kept: it may hold a whole program.
const MAX_OF_COMMAND: usize = 120;

/// Rank of a thread in a watch, the most important first: other threads of its name that come and
/// go must not change the number of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Its own timer begins its cycles, or it spins.
    Loop,
    /// Something else begins them.
    Driven,
    /// It is seen often enough to be measured.
    Busy,
    Other,
}

/// The names of `threads` by their numbers: `PROCESS` for the first thread of a process and
/// `PROCESS.THREAD` for the others. Processes that are called alike have a number behind it, from 2
/// on, in the order of their command lines, and those with the same one by their rank and then in
/// the order in which they began; so have threads of one process.
pub(crate) fn names(threads: &BTreeMap<i32, Thread>, rank: &dyn Fn(i32) -> Rank) -> BTreeMap<i32, String> {
    let mut of_process: BTreeMap<i32, Vec<(Rank, u64, i32, &str)>> = BTreeMap::new();
    for (&tid, thread) in threads {
        of_process.entry(thread.pid).or_default().push((rank(tid), thread.started, tid, &thread.name));
    }
    let mut processes: BTreeSet<(&str, &str, Rank, u64, i32)> = BTreeSet::new();
    for thread in threads.values() {
        let (command, began) = &*thread.command;
        let best = of_process.get(&thread.pid).and_then(|all| all.iter().map(|one| one.0).min());
        let best = best.unwrap_or(Rank::Other);
        processes.insert((&thread.process, command, best, *began, thread.pid));
    }
    let mut found = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (process, _, _, _, pid) in processes {
        let Some(mut threads) = of_process.remove(&pid) else { continue };
        let process = free(plain(process), &mut taken);
        threads.sort_unstable();
        let mut taken = BTreeSet::new();
        for (_, _, tid, name) in threads {
            let name = match tid == pid {
                true => process.clone(),
                false => format!("{process}.{}", free(plain(name), &mut taken)),
            };
            found.insert(tid, name);
        }
    }
    found
}

/// `name`, or the first of `name-2`, `name-3`, … that nobody has; taken from now on.
fn free(name: String, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let found = std::iter::once(name.clone()).chain(numbered).find(|one| !taken.contains(one));
    let found = found.unwrap_or(name);
    taken.insert(found.clone());
    found
}

/// A name as part of a file's, and as a word on a command line.
fn plain(name: &str) -> String {
    let letter = |one: char| match one {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '+' => one,
        _ => '_',
    };
    let name: String = name.chars().take(MAX_LETTERS).map(letter).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Label of a watch of `target`, the same for the next watch.
pub fn label(target: &Target, command: &str) -> String {
    match target {
        Target::Process(pid) => {
            let name = takt_rt::procfs::thread_name(pid, pid).unwrap_or_default();
            format!("process {name}")
        }
        Target::Tree(_) => {
            let words: Vec<&str> = command.split_whitespace().collect();
            let line: String = words.join(" ").chars().take(MAX_OF_COMMAND).collect();
            format!("command {line}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Threads by number, process, names of both, command line and begin.
    fn threads(all: &[(i32, i32, &str, &str, &str, u64)]) -> BTreeMap<i32, Thread> {
        let thread = |&(tid, pid, process, name, command, started): &(i32, i32, &str, &str, &str, u64)| {
            let began = all.iter().find(|one| one.0 == pid).map_or(0, |one| one.5);
            let thread = Thread {
                name: name.to_owned(),
                pid,
                process: process.to_owned(),
                started,
                command: Arc::new((command.to_owned(), began)),
            };
            (tid, thread)
        };
        all.iter().map(thread).collect()
    }

    fn by_name(threads: &BTreeMap<i32, Thread>) -> BTreeMap<String, String> {
        let called = |(tid, name)| {
            let thread = &threads[&tid];
            (name, format!("{} {} {}", thread.command.0, thread.name, thread.started - thread.command.1))
        };
        names(threads, &|_| Rank::Loop).into_iter().map(called).collect()
    }

    #[test]
    fn threads_that_come_and_go_leave_a_loop_its_name() {
        // Three helpers before the loop in one run, one in the other; all are called `worker`. One
        // process has ended before the other began.
        let first = threads(&[
            (10, 10, "robot", "robot", "robot", 100),
            (11, 10, "robot", "worker", "robot", 101),
            (12, 10, "robot", "worker", "robot", 102),
            (13, 10, "robot", "worker", "robot", 103),
            (14, 10, "robot", "worker", "robot", 104),
            (15, 10, "robot", "worker", "robot", 105),
            (5, 5, "robot", "robot", "robot", 90),
        ]);
        let second = threads(&[
            (20, 20, "robot", "robot", "robot", 100),
            (21, 20, "robot", "worker", "robot", 101),
            (22, 20, "robot", "worker", "robot", 102),
            (23, 20, "robot", "worker", "robot", 103),
        ]);
        let loops = |of: [i32; 2]| move |tid: i32| if of.contains(&tid) { Rank::Loop } else { Rank::Other };
        let first = names(&first, &loops([14, 15]));
        let second = names(&second, &loops([22, 23]));
        for (before, after) in [(10, 20), (14, 22), (15, 23)] {
            assert_eq!(first[&before], second[&after]);
        }
        assert_eq!([&first[&14], &first[&15], &first[&5]], ["robot.worker", "robot.worker-2", "robot-2"]);
    }

    #[test]
    fn the_same_programs_have_the_same_names_whatever_their_numbers() {
        let first = threads(&[
            (10, 10, "python3", "python3", "python3 arm.py", 100),
            (11, 10, "python3", "python3", "python3 arm.py", 101),
            (12, 10, "python3", "camera", "python3 arm.py", 102),
            (20, 20, "python3", "python3", "python3 base.py", 90),
            (30, 30, "drive", "drive", "drive", 200),
            (31, 30, "drive", "a/b c", "drive", 200),
            (32, 30, "drive", "drive", "drive", 200),
            (40, 40, "drive", "drive", "drive", 300),
        ]);
        // Begun in another order, with numbers that have begun anew in the middle.
        let second = threads(&[
            (910, 910, "python3", "python3", "python3 arm.py", 80),
            (5, 910, "python3", "python3", "python3 arm.py", 81),
            (6, 910, "python3", "camera", "python3 arm.py", 82),
            (920, 920, "python3", "python3", "python3 base.py", 95),
            (3, 3, "drive", "drive", "drive", 500),
            (930, 930, "drive", "drive", "drive", 400),
            (931, 930, "drive", "a/b c", "drive", 400),
            (932, 930, "drive", "drive", "drive", 400),
        ]);
        assert_eq!(by_name(&first), by_name(&second));
        let called: Vec<String> = by_name(&first).into_keys().collect();
        let expected = [
            "drive",
            "drive-2",
            "drive.a_b_c",
            "drive.drive",
            "python3",
            "python3-2",
            "python3.camera",
            "python3.python3",
        ];
        assert_eq!(called, expected);
    }

    #[test]
    fn any_names_give_different_words() {
        let odd = threads(&[
            (1, 1, "", "", "", 0),
            (2, 2, "a-2", "a-2", "x", 0),
            (3, 3, "a", "a", "y", 0),
            (4, 4, "a", "a", "z", 0),
            (5, 4, "a", "..", "z", 0),
            (6, 4, "a", "/\0\u{e9}", "z", 0),
        ]);
        let names = names(&odd, &|_| Rank::Loop);
        let different: BTreeSet<&String> = names.values().collect();
        assert_eq!(different.len(), odd.len(), "{names:?}");
        for name in names.values() {
            assert!(!name.contains(['/', '\\', ' ', '\0']) && !name.starts_with('.'), "{name}");
        }
    }
}
