//! The command line that made a run.

use std::path::Path;

/// Key of `run.json` that holds [`command_line`].
pub const COMMAND_KEY: &str = "command";

/// The command line of this process as one could type it again: the program by its file's name,
/// each argument quoted for a shell where it needs to be. Arguments that are not UTF-8 are shown
/// with replacement characters.
pub fn command_line() -> String {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let rest = words.map(|word| word.to_string_lossy().into_owned());
    std::iter::once(program).chain(rest).map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_every_word_back() {
        for word in
            ["robots/uav.toml", "", "a b", "it's", "$(false)", "--seconds=3", "*", "\"", "\n", "fifo:80", "ä"]
        {
            let script = format!("printf %s {}", quoted(word));
            let read = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(read.stdout).unwrap(), word, "{script}");
        }
        assert_eq!(quoted("robots/uav.toml"), "robots/uav.toml");
    }
}
