//! Time slices: how long a program has the device when others wait (`nvidia-smi compute-policy`,
//! driver R455 and newer).

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::guard::{Guard, Lock};
use super::{SharingError, find};

const TOOL: &str = "nvidia-smi";

/// Restores what was set when nobody holds standard input any more.
const RESTORE: &str = r#"trap '' HUP INT TERM
read -r line
"$1" compute-policy -i "$2" --set-timeslice="$3" >/dev/null 2>&1"#;

/// Length of a time slice, in the driver's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slice {
    /// The driver's own choice.
    Default,
    /// The shortest: others are waited for least. The default where slices are set at all.
    #[default]
    Short,
    /// Between.
    Medium,
    /// The longest.
    Long,
}

impl Slice {
    const ALL: [Self; 4] = [Self::Default, Self::Short, Self::Medium, Self::Long];

    fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
        }
    }

    /// The tool's number for it.
    fn number(self) -> u32 {
        self as u32
    }

    /// The one that the tool names. Its output is made for people: unless it is one of the four
    /// words, it is not trusted.
    fn in_text(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let mut named = Self::ALL.into_iter().filter(|slice| words.contains(&slice.word()));
        named.next().filter(|_| named.next().is_none())
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

fn policy(program: &Path, ordinal: u32, argument: &str) -> Result<String, SharingError> {
    let refused = |why: String| SharingError::Tool {
        tool: TOOL,
        why: format!("compute-policy -i {ordinal} {argument}: {why}"),
        fix: "run as root on a machine whose driver can set time slices (R455 or newer), or use another gpu.sharing.way",
    };
    let ordinal = ordinal.to_string();
    let output = Command::new(program)
        .args(["compute-policy", "-i", &ordinal, argument])
        .output()
        .map_err(|error| refused(error.to_string()))?;
    let message = [output.stdout, output.stderr].concat();
    let message = String::from_utf8_lossy(&message);
    if output.status.success() {
        return Ok(message.into_owned());
    }
    let message: Vec<&str> = message.split_whitespace().collect();
    Err(refused(format!("{} ({})", message.join(" "), output.status)))
}

fn read(program: &Path, ordinal: u32) -> Result<Slice, SharingError> {
    let message = policy(program, ordinal, "--list")?;
    Slice::in_text(&message).ok_or_else(|| {
        let message: Vec<&str> = message.split_whitespace().collect();
        let why = format!(
            "compute-policy --list names none or several of default, short, medium, long: {}",
            message.join(" ")
        );
        SharingError::Tool {
            tool: TOOL,
            why,
            fix: "use another gpu.sharing.way: takt does not set a value that it could not restore",
        }
    })
}

/// Time slices set here.
#[derive(Debug)]
pub(super) struct Set {
    program: PathBuf,
    ordinal: u32,
    before: Slice,
    guard: Guard,
}

impl Set {
    /// Sets them, after a look at what they were.
    pub(super) fn new(ordinal: u32, slice: Slice) -> Result<Self, SharingError> {
        let program = find(TOOL, "install the driver's tools, or use another gpu.sharing.way")?;
        let lock = Lock::take(ordinal)?;
        let before = read(&program, ordinal)?;
        let (which, number) = (ordinal.to_string(), before.number().to_string());
        let arguments = [program.as_os_str(), which.as_ref(), number.as_ref()];
        // First who restores, then what is to be restored.
        let guard = Guard::start(RESTORE, &arguments, &[], lock)
            .map_err(|error| SharingError::System { what: "/bin/sh".to_owned(), why: error.to_string() })?;
        let set = Self { program, ordinal, before, guard };
        policy(&set.program, ordinal, &format!("--set-timeslice={}", slice.number()))?;
        let after = read(&set.program, ordinal)?;
        if after != slice {
            let why = format!("requested {slice} time slices, but they are {after}");
            return Err(SharingError::Tool { tool: TOOL, why, fix: "another gpu.sharing.way" });
        }
        Ok(set)
    }

    pub(super) fn before(&self) -> Slice {
        self.before
    }

    /// Restores what was.
    pub(super) fn end(mut self) -> Result<(), SharingError> {
        self.guard.end();
        let now = read(&self.program, self.ordinal)?;
        if now == self.before {
            return Ok(());
        }
        let why = format!("time slices of GPU {} are {now}, but were {}", self.ordinal, self.before);
        Err(SharingError::Tool {
            tool: TOOL,
            why,
            fix: "run `nvidia-smi compute-policy --set-timeslice=` with the previous value",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tool_prints_is_believed_where_it_names_one() {
        let table = "+---+\n| GPU compute policies: |\n| GPU 0: timeslice = SHORT |\n+---+";
        assert_eq!(Slice::in_text(table), Some(Slice::Short));
        assert_eq!(Slice::in_text("timeslice Default"), Some(Slice::Default));
        assert_eq!(Slice::in_text("0=DEFAULT, 1=SHORT"), None);
        assert_eq!(Slice::in_text("No devices were found; shortly"), None);
        assert_eq!(Slice::ALL.map(Slice::number), [0, 1, 2, 3]);
    }
}
