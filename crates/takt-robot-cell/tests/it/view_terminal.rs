//! The terminal view in a real pseudo-terminal, which `script` (util-linux) provides.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use crate::view_cell as cell;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use cell::Scene;
use takt_robot_cell::view::drawing;
use takt_view::{ViewExit, terminal};

/// Output to the terminal when the view has given it back: leave the alternate screen, show the
/// cursor.
const LEAVE: &str = "\x1b[?1049l";
/// Set for the process that is the view.
const IS_INSIDE: &str = "TAKT_TEST_IS_INSIDE";
const ENTER: &str = "\x1b[?1049h";

/// The view itself; started by the tests below inside the pseudo-terminal.
#[test]
fn inside() {
    if std::env::var_os(IS_INSIDE).is_none() {
        return;
    }
    let (mut cell, _sources, status) = cell::cell();
    cell.publish_status(900, Scene::Stopped);
    if std::env::var_os("TAKT_VIEW_PANIC").is_some() {
        // Another thread panics while the view is on; the view must give the terminal back all the
        // same.
        std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(500));
            panic!("as the test asks");
        });
    }
    let names = cell::NAMES.map(String::from);
    match terminal::show(&AtomicBool::new(false), drawing(status, "cell", &names)) {
        Ok(ViewExit::UserQuit) => println!("the user quit"),
        Ok(ViewExit::Stopped) => println!("the view stopped"),
        Err(error) => panic!("{error}"),
    }
}

/// Runs `inside` in a pseudo-terminal, types `keys` once the view is on, and returns what the
/// terminal got.
fn in_a_terminal(keys: &[u8], panics: bool) -> Option<String> {
    let own = std::env::current_exe().unwrap();
    let command = format!(
        "stty rows 34 cols 100; {IS_INSIDE}=1 '{}' --exact view_terminal::inside --nocapture",
        own.display()
    );
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    if panics {
        script.env("TAKT_VIEW_PANIC", "1");
    }
    let Ok(mut child) = script.spawn() else {
        takt_witness::skip!("no `script` is installed (apt-get install bsdutils)");
        return None;
    };
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut got, mut chunk, mut typed) = (Vec::new(), [0; 4096], false);
    while let Ok(count @ 1..) = screen.read(&mut chunk) {
        got.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&got);
        if !typed && text.contains("STOPPED") {
            typed = true;
            keyboard.write_all(keys).unwrap();
        }
    }
    child.wait().unwrap();
    Some(String::from_utf8_lossy(&got).into_owned())
}

#[test]
fn q_and_control_c_quit_and_give_the_terminal_back() {
    for keys in [b"q", b"\x03"] {
        let Some(text) = in_a_terminal(keys, false) else { return };
        let (enter, leave) = (text.find(ENTER).expect("not entered"), text.rfind(LEAVE).expect("not left"));
        assert!(enter < leave);
        assert!(text[leave..].contains("the user quit"), "{text:?}");
    }
}

#[test]
fn a_panic_gives_the_terminal_back_before_its_message() {
    let Some(text) = in_a_terminal(b"", true) else { return };
    let leave = text.find(LEAVE).expect("not left");
    assert!(text[leave..].contains("as the test asks"), "{text:?}");
    assert!(!text[..leave].contains("as the test asks"), "{text:?}");
    assert!(text.contains("the view stopped") && !text[leave..].contains(ENTER), "{text:?}");
}

#[test]
fn without_a_terminal_it_says_so() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "view_terminal::inside", "--nocapture"])
        .env(IS_INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && text.contains("switch the terminal view off"), "{text}");
}
