//! The command line as it is read: the groups of `takt --help`, negative numbers, and mistakes with
//! the way out.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};

use crate::args::Args;

/// The commands of `takt --help`, by what a user wants to do.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run a robot", &["new", "run", "check", "demo", "robots"]),
    ("Measure", &["bench", "campaign", "kernels"]),
    ("Find out why", &["watch", "trace", "ethercat", "doctor"]),
    ("Keep it on time", &["tune", "manage", "goals", "clock", "gate", "history"]),
    ("Data", &["events", "runs", "report", "compare", "export", "store"]),
    ("Devices", &["simulate", "segment", "workload", "record", "background", "gpu"]),
];

/// Words that users write for an option, and the options that may be meant.
const SYNONYMS: [(&str, &[&str]); 17] = [
    ("secs", &["seconds"]),
    ("sec", &["seconds"]),
    ("duration", &["seconds"]),
    ("time", &["seconds"]),
    ("length", &["seconds"]),
    ("timeout", &["limit", "seconds"]),
    ("output", &["out", "run-dir", "runs"]),
    ("folder", &["runs", "out"]),
    ("dir", &["runs", "out"]),
    ("threads", &["noise"]),
    ("thread", &["name", "thread"]),
    ("process", &["pid", "name"]),
    ("priority", &["policy", "policies"]),
    ("scheduler", &["policy", "policies"]),
    ("repeat", &["repetitions", "repeat"]),
    ("repetitions", &["repeat", "repetitions"]),
    ("format", &["json"]),
];

/// Messages of Rust's parsers, and the expected value in a user's words.
const VALUES: [(&str, &str); 8] = [
    ("invalid digit found in string", "expected a whole number, 0 or more"),
    ("number too large to fit in target type", "expected a smaller number"),
    ("number too small to fit in target type", "expected a larger number"),
    ("cannot parse integer from empty string", "expected a whole number, received nothing"),
    ("invalid float literal", "expected a number, such as 0.5"),
    ("cannot parse float from empty string", "expected a number, received nothing"),
    ("invalid socket address syntax", "expected an address with a port, such as 127.0.0.1:9464"),
    ("invalid IP address syntax", "expected an IP address, such as 127.0.0.1"),
];

/// The definition of the command line, with the groups of `takt --help`.
pub fn command() -> Command {
    let command = negative_numbers(Args::command());
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\n`takt COMMAND --help` lists every option of a command.\n\n\
         Options:\n{{options}}{{after-help}}",
        groups(&command)
    );
    command.help_template(template)
}

/// `-1` behind an option is its value, so that the option can say what it takes.
fn negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_action().takes_values() && !arg.is_positional() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
        .mut_subcommands(negative_numbers)
}

/// Each group with its commands; those that are in none, which completions and pages are, last.
fn groups(command: &Command) -> String {
    let visible: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    let grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others: Vec<&str> = visible.iter().map(|sub| sub.get_name()).filter(|name| !grouped(name)).collect();
    let width = visible.iter().map(|sub| sub.get_name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in GROUPS.into_iter().chain([("Shell", others.as_slice())]) {
        let found: Vec<&Command> = names
            .iter()
            .filter_map(|name| visible.iter().copied().find(|sub| sub.get_name() == *name))
            .collect();
        if found.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{title}:\n"));
        for sub in found {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {:width$}  {about}\n", sub.get_name()));
        }
    }
    text
}

/// The command line of this process.
///
/// # Errors
/// The mistake, or the requested help.
pub fn parse() -> Result<Args, clap::Error> {
    let given: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let mut command = command();
    let read = command.try_get_matches_from_mut(std::env::args_os());
    read.and_then(|mut matches| {
        Args::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    })
    .map_err(|error| explained(error, &command, &given))
}

/// The text of `error` for a user, if a parser's own words need others; `None` if they do not.
pub fn in_plain_words(message: &str) -> Option<String> {
    let first = message.lines().next()?;
    let (words, plain) = VALUES.iter().find(|(words, _)| first.ends_with(words))?;
    Some(message.replacen(words, plain, 1))
}

/// `error` with the option, the command or the value that was probably meant.
fn explained(mut error: clap::Error, command: &Command, given: &[String]) -> clap::Error {
    let command = of_subcommand(command, given);
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => unknown_argument(&mut error, command),
        ErrorKind::InvalidSubcommand => unknown_command(&error, command),
        ErrorKind::MissingRequiredArgument => missing(&error, command),
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

/// The command that the words name.
fn of_subcommand<'a>(command: &'a Command, given: &[String]) -> &'a Command {
    let mut found = command;
    for word in given {
        let Some(sub) = found.find_subcommand(word) else { break };
        found = sub;
    }
    found
}

/// The options of a command, as they are typed.
fn options(command: &Command) -> Vec<&str> {
    command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()).collect()
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

fn unknown_argument(error: &mut clap::Error, command: &Command) -> Option<String> {
    let given = context(error, ContextKind::InvalidArg)?;
    let Some(name) = given.strip_prefix("--") else {
        // A word that no argument takes: of a command that starts another one, that command.
        let runs_another = command.get_positionals().any(|arg| arg.is_last_set());
        return (runs_another && !given.starts_with('-'))
            .then(|| format!("put the command to run after `--`, with its own arguments: -- {given}"));
    };
    let known = options(command);
    let synonym = SYNONYMS
        .iter()
        .filter(|(word, _)| *word == name)
        .flat_map(|(_, meant)| meant.iter().copied())
        .find(|meant| known.contains(meant));
    let meant = synonym.or_else(|| takt_files::meant(name, known.iter().copied()));
    // A suggestion by letters alone may be far off: `--secs` is no `--stress`.
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Usage);
    match meant {
        Some(meant) => {
            error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{meant}")));
            None
        }
        None => Some(match known.is_empty() {
            true => "this command takes no options".to_owned(),
            false => format!("the options of this command are --{}", known.join(", --")),
        }),
    }
}

fn unknown_command(error: &clap::Error, command: &Command) -> Option<String> {
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return None;
    }
    let given = context(error, ContextKind::InvalidSubcommand)?;
    if given.ends_with(".toml") {
        return Some(format!("to run a robot's file: `takt run {given}`"));
    }
    let shown = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
    let names: Vec<&str> = command.get_subcommands().filter(shown).map(Command::get_name).collect();
    Some(match names.len() {
        0..=10 => format!("there are {}", names.join(", ")),
        _ => "`takt --help` lists the commands".to_owned(),
    })
}

/// Describes the missing arguments.
fn missing(error: &clap::Error, command: &Command) -> Option<String> {
    let ContextValue::Strings(names) = error.get(ContextKind::InvalidArg)? else { return None };
    let about = |name: &String| {
        let bare = |text: &str| text.trim_matches(['[', ']', '<', '>']).to_owned();
        let arg = command.get_arguments().find(|arg| bare(&arg.to_string()) == bare(name))?;
        Some(format!("{name} is: {}", arg.get_help()?))
    };
    let all: Vec<String> = names.iter().filter_map(about).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let command = command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = sub.get_name();
            let count = GROUPS.iter().flat_map(|(_, names)| *names).filter(|known| **known == name).count();
            let expected = usize::from(!matches!(name, "completions" | "man"));
            assert_eq!(count, expected, "{name}: put it into one of GROUPS");
        }
    }

    #[test]
    fn synonyms_are_options_of_some_command() {
        fn all(command: &Command, longs: &mut Vec<String>) {
            longs.extend(options(command).into_iter().map(str::to_owned));
            command.get_subcommands().for_each(|sub| all(sub, longs));
        }
        let mut longs = Vec::new();
        all(&command(), &mut longs);
        for (_, meant) in SYNONYMS {
            for option in meant {
                assert!(longs.iter().any(|long| long == option), "--{option} is no option");
            }
        }
    }
}
