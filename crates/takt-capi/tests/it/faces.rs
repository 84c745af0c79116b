//! Programs in C11 and C++17, with gcc and clang, shared and static, under ThreadSanitizer, by
//! pkg-config and CMake.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::prefix::{has, prefix, root, run};

const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion", "-O2"];

fn example(name: &str) -> PathBuf {
    root().join("crates/takt-capi/examples").join(name)
}

/// Compiles a source into `folder`; a shared library is found where it was installed.
fn compile(compiler: &str, standard: &str, source: &Path, more: &[&str], folder: &Path) -> PathBuf {
    let program = folder.join("program");
    let lib = prefix().join("lib");
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(WARNINGS).arg("-I").arg(prefix().join("include"));
    command.arg(source).arg("-o").arg(&program);
    if more.contains(&"static") {
        command.arg(lib.join("libtakt.a")).args(["-lgcc_s", "-lpthread", "-ldl"]);
    } else {
        command.arg("-L").arg(&lib).arg("-ltakt").arg(format!("-Wl,-rpath,{}", lib.display()));
    }
    run(command.args(more.iter().filter(|one| **one != "static")));
    program
}

/// What the C example wrote down: release, begin, end, passed over.
fn log(path: &Path) -> Vec<[u64; 4]> {
    let row = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        <[u64; 4]>::try_from(numbers).unwrap()
    };
    std::fs::read_to_string(path).unwrap().lines().map(row).collect()
}

#[test]
fn the_c_face_runs_a_loop_with_both_compilers_shared_and_static() {
    for compiler in ["gcc", "clang"] {
        if !has(compiler) {
            continue;
        }
        // Sanitizers of clang are packages of their own.
        let more = [&[][..], &["static"], &["-fsanitize=undefined"]];
        for more in &more[..if compiler == "gcc" { 3 } else { 2 }] {
            let folder = tempfile::tempdir().unwrap();
            let program = compile(compiler, "c11", &example("control.c"), more, folder.path());
            let rows = folder.path().join("log");
            run(Command::new(&program).arg("0.2").arg(&rows));
            let rows = log(&rows);
            assert!(!rows.is_empty());
            for pair in rows.windows(2) {
                let [before, [release, begin, end, skipped]] = pair else { unreachable!() };
                assert_eq!(release - before[0], 2_000_000 * (skipped + 1), "the grid of {compiler} {more:?}");
                assert!(release <= begin && begin < end);
            }
        }
    }
}

#[test]
fn the_cpp_face_runs_with_both_compilers() {
    for compiler in ["g++", "clang++"] {
        if !has(compiler) {
            continue;
        }
        for standard in ["c++17", "c++20"] {
            let folder = tempfile::tempdir().unwrap();
            let program = compile(compiler, standard, &example("control.cpp"), &["-pthread"], folder.path());
            let output = run(Command::new(&program).arg("0.3"));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains(" 0 torn"), "{text}");
        }
    }
}

#[test]
fn what_the_book_shows_compiles_and_runs_until_it_is_told_to_end() {
    let page = std::fs::read_to_string(root().join("docs/src/own-loop.md")).unwrap();
    let shown = |language: &str| {
        let after = page.split_once(&format!("```{language}\n")).unwrap().1;
        after.split_once("\n```").unwrap().0.to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    for (language, compiler, standard) in [("c", "gcc", "c11"), ("cpp", "g++", "c++17")] {
        if !has(compiler) {
            continue;
        }
        let source = folder.path().join(format!("shown.{language}"));
        std::fs::write(&source, shown(language)).unwrap();
        let program = compile(compiler, standard, &source, &[], folder.path());
        let script = format!("timeout --foreground --preserve-status --signal INT 0.5 {}", program.display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), words.trim()), (Some(0), "ready"), "{language}: {output:?}");
    }
}

/// Without exceptions: what cannot be opened is an error code.
const NO_EXCEPTIONS: &str = r#"
#include <takt.hpp>
#include <cstdio>
using namespace std::chrono_literals;
int main() {
    std::error_code failed;
    auto none = takt::loop::open("control", 0ms, 0ms, failed);
    if (none || failed.value() != TAKT_EPERIOD || failed.category() != takt::category()) return 1;
    std::puts(failed.message().c_str());
    auto one = takt::loop::open("control", 1ms, 0ms, failed);
    if (!one || failed) return 2;
    auto again = takt::loop::open("control", 1ms, 0ms, failed);
    if (again || failed.value() != TAKT_ETWICE) return 3;
    if (one.wait() < 0 || one.stage("sense") != 0 || one.end() != 0) return 4;
    takt::loop moved = std::move(one);
    if (one || !moved || one.wait() != -TAKT_EARGUMENT) return 5;
    takt::mutex lock;
    lock.lock();
    if (lock.try_lock()) return 6;
    lock.unlock();
    takt_thread_granted granted = TAKT_THREAD_GRANTED;
    if (takt::thread_settings().fifo(120).apply(granted) != -TAKT_EARGUMENT) return 7;
    if (takt::thread_settings().cpus("0-1023").apply(granted) < 0) return 8;
    return 0;
}
"#;

/// What may not be done with the C face, each with its number.
const MISUSE: &str = r#"
#include <takt.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#define IS(what) do { if (!(what)) return __LINE__; } while (0)
int main(void) {
    int error = 7;
    IS(takt_abi_version() == TAKT_ABI_VERSION);
    IS(takt_loop_open(NULL, 1, 0, &error) == NULL && error == -TAKT_EARGUMENT);
    IS(takt_loop_open("", 1, 0, NULL) == NULL);
    IS(takt_loop_open("\xff", 1, 0, &error) == NULL && error == -TAKT_ENAME);
    IS(takt_loop_open("x", 0, 0, &error) == NULL && error == -TAKT_EPERIOD);
    IS(strstr(takt_strerror(error), "period") != NULL);
    IS(takt_loop_wait(NULL) == -TAKT_EARGUMENT && takt_loop_end(NULL) == -TAKT_EARGUMENT);
    IS(takt_loop_release_ns(NULL) == 0 && takt_loop_attached(NULL) == 0);
    takt_loop_close(NULL);
    takt_exchange_destroy(NULL);
    takt_mutex_destroy(NULL);
    takt_loop *one = takt_loop_open("one", 1000000, 0, &error);
    IS(one != NULL && error == 0);
    IS(takt_loop_open("one", 1000000, 0, &error) == NULL && error == -TAKT_ETWICE);
    IS(takt_loop_end(one) == -TAKT_EJOB && takt_loop_begin(one) == -TAKT_EJOB);
    IS(takt_loop_release(one, 0) == -TAKT_EKIND);
    IS(takt_loop_wait(one) >= 0 && takt_loop_release_ns(one) <= takt_loop_begin_ns(one));
    IS(takt_loop_stage(one, NULL) == -TAKT_EARGUMENT);
    uint64_t due = 0;
    IS(takt_loop_next(one, NULL) == -TAKT_EARGUMENT && takt_loop_next(one, &due) >= 0 && due > 0);
    IS(takt_loop_begin(one) == 0 && takt_loop_release_ns(one) >= due);
    takt_loop *driven = takt_loop_open_driven("driven", 500000, &error);
    IS(driven != NULL && takt_loop_wait(driven) == -TAKT_EKIND);
    IS(takt_loop_spin_margin(driven, 5) == -TAKT_EKIND && takt_loop_spin_margin(one, 5) == 0);
    IS(takt_loop_release(driven, 77) == 0 && takt_loop_release_ns(driven) == 77);
    char name[32] = "0";
    for (int at = 2; at < TAKT_MAX_LOOPS; at++) {
        name[0] = (char)('0' + at / 10);
        name[1] = (char)('0' + at % 10);
        IS(takt_loop_open(name, 1000, 0, &error) != NULL);
    }
    IS(takt_loop_open("one more", 1000, 0, &error) == NULL && error == -TAKT_ELOOPS);
    IS(takt_exchange_create(0, &error) == NULL && error == -TAKT_EARGUMENT);
    takt_exchange *newest = takt_exchange_create(sizeof due, &error);
    uint64_t sequence = 1;
    IS(*(const uint64_t *)takt_exchange_read(newest, &sequence) == 0 && sequence == 0);
    IS(takt_exchange_write(newest, &due) == 0 && takt_exchange_write(newest, NULL) == -TAKT_EARGUMENT);
    IS(*(const uint64_t *)takt_exchange_read(newest, &sequence) == due && sequence == 1);
    *(uint64_t *)takt_exchange_buffer(newest) = 9;
    IS(takt_exchange_publish(newest) == 0 && *(const uint64_t *)takt_exchange_read(newest, NULL) == 9);
    takt_exchange_destroy(newest);
    takt_mutex *lock = takt_mutex_create(&error);
    IS(takt_mutex_unlock(lock) == -TAKT_ESYSTEM && takt_mutex_lock(lock) == 0);
    IS(takt_mutex_lock(lock) == -TAKT_EDEADLOCK && takt_mutex_try_lock(lock) < 0);
    IS(takt_mutex_unlock(lock) == 0);
    takt_mutex_destroy(lock);
    takt_thread_settings asked = TAKT_THREAD_SETTINGS;
    takt_thread_granted granted = TAKT_THREAD_GRANTED;
    IS(takt_thread_apply(&asked, &granted) == 0 && granted.cpus[0] != 0 && granted.why[0] == 0);
    asked.cpus = "1023";
    asked.prefault_stack_bytes = 1u << 30;
    IS(takt_thread_apply(&asked, &granted) == 2);
    IS(granted.differences == (TAKT_DIFFERS_CPUS | TAKT_DIFFERS_STACK) && strstr(granted.why, "cpus: asked 1023") != NULL);
    asked.cpus = "fast";
    IS(takt_thread_apply(&asked, NULL) == -TAKT_EARGUMENT);
    asked.size = 4;
    IS(takt_thread_apply(&asked, NULL) == -TAKT_EARGUMENT);
    pid_t child = fork();
    if (child == 0) _exit(takt_loop_wait(one) >= 0 && takt_loop_open("one", 1000, 0, NULL) != NULL ? 0 : 1);
    int status = 1;
    IS(waitpid(child, &status, 0) == child && status == 0);
    takt_loop_close(one);
    takt_loop_close(driven);
    return 0;
}
"#;

#[test]
fn misuse_is_a_number_and_never_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, compilers, standard, more) in [
        ("misuse.c", MISUSE, ["gcc", "clang"], "gnu11", &["-Wno-conversion"][..]),
        ("quiet.cpp", NO_EXCEPTIONS, ["g++", "clang++"], "c++17", &["-fno-exceptions"]),
        ("quiet.cpp", NO_EXCEPTIONS, ["g++", "clang++"], "c++17", &["-fno-exceptions", "-fno-rtti"]),
    ] {
        let source = folder.path().join(name);
        std::fs::write(&source, text).unwrap();
        for compiler in compilers.into_iter().filter(|compiler| has(compiler)) {
            let program = compile(compiler, standard, &source, more, folder.path());
            let output = Command::new(&program).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{name} with {compiler}: the line, or the case");
        }
    }
}

#[test]
fn the_thread_sanitizer_finds_nothing_in_it_and_a_planted_race() {
    let folder = tempfile::tempdir().unwrap();
    let racy = folder.path().join("racy.cpp");
    let text = std::fs::read_to_string(example("control.cpp")).unwrap();
    // The lock is left out on one side.
    let without = text.replacen("const std::lock_guard<takt::mutex> held(lock);", "", 1);
    assert_ne!(text, without);
    std::fs::write(&racy, without).unwrap();
    // The one of clang is a package of its own.
    let compiler = "g++";
    if has(compiler) {
        let more = ["-fsanitize=thread", "-g", "-pthread"];
        let run_it = |source: &Path| {
            let program = compile(compiler, "c++17", source, &more, folder.path());
            // Addresses at random places are more than the sanitizer of older compilers takes.
            let mut command = Command::new("setarch");
            command.arg("--addr-no-randomize").arg(&program).arg("0.5");
            command.env("TSAN_OPTIONS", "halt_on_error=0 exitcode=66").output().unwrap()
        };
        let sound = run_it(&example("control.cpp"));
        let words = String::from_utf8_lossy(&sound.stderr).into_owned();
        assert_eq!(sound.status.code(), Some(0), "{compiler}: {words}");
        assert!(!words.contains("WARNING"), "{compiler}: {words}");
        let racy = run_it(&racy);
        assert_eq!(racy.status.code(), Some(66), "{compiler} does not find the planted race");
        // That one, and none in the exchange, which no lock helps here.
        let words = String::from_utf8_lossy(&racy.stderr).into_owned();
        assert!(words.contains("racy.cpp") && !words.contains("exchange"), "{words}");
    }
}

#[test]
fn symbols_have_their_version_and_nothing_else_is_shown() {
    if !has("readelf") || !has("nm") {
        return;
    }
    let script = include_str!("../../takt.map");
    let wanted: BTreeSet<String> = script
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("takt_"))
        .map(str::to_owned)
        .collect();
    let lib = prefix().join("lib");
    let shared = run(Command::new("nm").args(["-D", "--defined-only"]).arg(lib.join("libtakt.so.1")));
    let names: BTreeSet<String> = String::from_utf8_lossy(&shared.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| *name != "TAKT_1" && *name != "TAKT_1@@TAKT_1")
        .map(str::to_owned)
        .collect();
    let versioned: BTreeSet<String> = wanted.iter().map(|name| format!("{name}@@TAKT_1")).collect();
    assert_eq!(names, versioned);
    let archive = run(Command::new("nm").args(["-g", "--defined-only"]).arg(lib.join("libtakt.a")));
    let names: BTreeSet<String> = String::from_utf8_lossy(&archive.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned))
        .collect();
    assert_eq!(names, wanted);
    let dynamic = run(Command::new("readelf").arg("-d").arg(lib.join("libtakt.so")));
    let dynamic = String::from_utf8_lossy(&dynamic.stdout).into_owned();
    assert!(dynamic.contains("libtakt.so.1]") && dynamic.contains("NODELETE"), "{dynamic}");
    // Nothing that only exists where it was built.
    assert!(!dynamic.contains("RUNPATH") && !dynamic.contains("RPATH"), "{dynamic}");
}

#[test]
fn pkg_config_and_cmake_find_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(example("control.c"), folder.path().join("control.c")).unwrap();
    if has("pkg-config") {
        let mut asked = Command::new("pkg-config");
        asked.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        let output = run(asked.args(["--cflags", "--libs", "takt >= 1.0"]));
        let flags = String::from_utf8(output.stdout).unwrap();
        let mut cc = Command::new("cc");
        cc.arg("control.c").args(flags.split_whitespace()).args(["-o", "control"]).current_dir(folder.path());
        run(&mut cc);
        run(Command::new(folder.path().join("control"))
            .arg("0.05")
            .env("LD_LIBRARY_PATH", prefix().join("lib")));
    }
    if has("cmake") {
        let text = "cmake_minimum_required(VERSION 3.16)\nproject(demo C)\nfind_package(takt 1 REQUIRED)\n\
                    add_executable(control control.c)\ntarget_link_libraries(control takt::takt)\n\
                    add_executable(alone control.c)\ntarget_link_libraries(alone takt::static)\n";
        std::fs::write(folder.path().join("CMakeLists.txt"), text).unwrap();
        let mut configure = Command::new("cmake");
        configure.args(["-B", "build", "-DCMAKE_BUILD_TYPE=Release"]).current_dir(folder.path());
        run(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
        run(Command::new("cmake").args(["--build", "build"]).current_dir(folder.path()));
        for name in ["control", "alone"] {
            run(Command::new(folder.path().join("build").join(name)).arg("0.05"));
        }
    }
}
