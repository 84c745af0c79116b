//! Adds the way out to messages of TOML parsers: an unquoted address, a number in quotation marks,
//! a misspelt key, a key with another unit than the existing one.
//!
//! It works on the finished message, because errors of TOML come from a dozen crates and reach the
//! user through one function, [`shortened`](crate::shortened). The replacements match none of the
//! patterns, so a second pass changes nothing.

use crate::near::did_you_mean;
use crate::text::quoted;
use crate::units;

/// Longest quoted line that is looked at: in a longer one nothing was typed by hand.
const MAX_LINE_BYTES: usize = 1000;

/// A line of a file that an error quotes.
#[derive(Clone, Copy)]
pub(crate) struct Excerpt<'a> {
    /// The line.
    pub(crate) code: &'a str,
    /// Index of its first marked character.
    pub(crate) column: usize,
}

impl<'a> Excerpt<'a> {
    /// The line of a file within `line` ("12 | rate_hz = 5"), of which the character `place` is
    /// marked.
    pub(crate) fn new(line: &'a str, place: usize) -> Option<Self> {
        let (number, code) = line.split_once("| ")?;
        let is_number = !number.trim().is_empty() && number.trim().bytes().all(|byte| byte.is_ascii_digit());
        let column = place.checked_sub(number.chars().count() + 2)?;
        (is_number && code.len() <= MAX_LINE_BYTES).then_some(Self { code, column })
    }

    /// The marked value.
    fn value(&self) -> Option<Marked<'a>> {
        let place = self.code.char_indices().nth(self.column).map_or(self.code.len(), |(at, _)| at);
        // A mark may lie behind the value's beginning, or on it.
        let equals = match self.code.get(..place)?.rfind('=') {
            Some(at) => at,
            None => self.code.find('=')?,
        };
        let before = self.code.get(..equals)?;
        let key = before.rsplit(['{', ',', '[']).next()?.trim();
        let nested = before.contains('{');
        let behind = self.code.get(equals + 1..)?;
        let list = behind.trim_start().starts_with('[');
        let value = if list || nested {
            // The element that is marked.
            let from = self.code.get(..place)?.rfind(['=', '[', ',']).map_or(equals + 1, |at| at + 1);
            let rest = self.code.get(from..)?;
            rest.split([',', ']', '}', '#']).next()?
        } else {
            behind.split('#').next()?
        };
        (!key.is_empty()).then_some(Marked { key, value: value.trim(), in_list: list })
    }
}

/// A value that an error marks.
struct Marked<'a> {
    key: &'a str,
    value: &'a str,
    /// It is one of a list.
    in_list: bool,
}

impl Marked<'_> {
    /// The text to write instead.
    fn write(&self, value: &str) -> String {
        if self.in_list { format!("`{value}`") } else { format!("`{} = {value}`", self.key) }
    }
}

/// Beginnings of what the parser says of a value that is no TOML.
const NO_VALUE: [&str; 7] = [
    "string values must be quoted",
    "invalid float",
    "invalid integer",
    "invalid date",
    "invalid time",
    "invalid boolean",
    "unexpected leading zero",
];

/// `message`, which the parser says of the excerpt, in words that a user can act on; `None` where
/// it says enough itself.
pub(crate) fn explained(message: &str, excerpt: Excerpt<'_>) -> Option<String> {
    syntax(message, excerpt).or_else(|| of_type(message, excerpt)).or_else(|| unknown(message, Some(excerpt)))
}

/// Explains a syntax error.
fn syntax(message: &str, excerpt: Excerpt<'_>) -> Option<String> {
    if message.starts_with("key with no value") {
        let (key, value) = excerpt.code.trim().split_once([':', ' '])?;
        let value = value.trim_start_matches([':', ' ']).split('#').next()?.trim();
        let write = quoted(&written(key.trim(), value));
        return Some(format!("expected `=` between a key and its value: write `{write}`"));
    }
    let fixed = [
        (
            "cannot extend value of type",
            "this is a table here but a key with a value above: remove one of them",
        ),
        ("duplicate key", "this key is in the file twice: remove one of them"),
        ("extra `=`", "expected one `=` between a key and its value, received two"),
        ("invalid literal string, expected `'`", "this text has no quotation mark at its end: write one"),
        ("invalid basic string, expected `\"`", "this text has no quotation mark at its end: write one"),
    ];
    if let Some((_, words)) = fixed.iter().find(|(begin, _)| message.starts_with(begin)) {
        return Some((*words).to_owned());
    }
    // "expected newline" and "expected nothing" come of what stands behind a value.
    let behind = message.contains("expected newline") || message.ends_with("expected nothing");
    if !behind && !NO_VALUE.iter().any(|begin| message.starts_with(begin)) {
        return None;
    }
    let marked = excerpt.value()?;
    if marked.value.starts_with(['"', '\'', '{', '[']) {
        return None;
    }
    of_bare_value(&marked)
}

/// A value that is neither a number nor in quotation marks.
fn of_bare_value(marked: &Marked<'_>) -> Option<String> {
    let (key, value) = (marked.key, marked.value);
    let in_marks = marked.write(&format!("\"{value}\""));
    let ended = value.trim_end_matches([',', ';']);
    Some(match value.to_ascii_lowercase().as_str() {
        "" => format!("the key `{key}` has no value: write one behind the `=`"),
        word @ ("true" | "false") => {
            format!("expected true or false in lower case, received {value}: write {}", marked.write(word))
        }
        word @ ("yes" | "no" | "on" | "off") => {
            let truth = if matches!(word, "yes" | "on") { "true" } else { "false" };
            let truth = marked.write(truth);
            format!(
                "expected true, false or a text in quotation marks, received {value}: write {truth} or {in_marks}"
            )
        }
        _ if ended != value && !ended.is_empty() && ended.parse::<f64>().is_ok() => {
            format!("a value ends with its line, without a mark: write {}", marked.write(ended))
        }
        _ if decimal_comma(value) => {
            let point = marked.write(&value.replacen(',', ".", 1));
            format!("expected a number with a decimal point, received {value}: write {point}")
        }
        _ if value.len() > 1 && value.bytes().all(|byte| byte.is_ascii_digit()) => {
            let number = value.trim_start_matches('0');
            let number = marked.write(if number.is_empty() { "0" } else { number });
            format!(
                "expected a number without leading zeros or a text in quotation marks, received {value}: write {in_marks} \
                 for a text such as a serial number, {number} for a number"
            )
        }
        _ if value.contains(['"', '`', '\u{201c}', '\u{201d}', '\u{2019}']) => {
            let text = value.trim_matches(['"', '`', '\'', '\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}']);
            let text = marked.write(&format!("\"{}\"", quoted(text)));
            format!("expected straight quotation marks around a text: write {text}")
        }
        _ => match units::without_unit(key, value) {
            Some(number) => format!(
                "expected a number, whose unit is in the name of the key, received {value}: write {}",
                marked.write(&number)
            ),
            None => format!(
                "expected a number, or a text in quotation marks, received {}: write {}",
                quoted(value),
                quoted(&in_marks)
            ),
        },
    })
}

/// `0,5`.
fn decimal_comma(value: &str) -> bool {
    value.split_once(',').is_some_and(|(whole, part)| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits(whole.trim_start_matches(['-', '+'])) && digits(part)
    })
}

/// `key = value`, the value in quotation marks unless it needs none.
fn written(key: &str, value: &str) -> String {
    let bare = value.parse::<f64>().is_ok()
        || matches!(value, "true" | "false")
        || value.starts_with(['"', '\'', '[', '{']);
    if bare { format!("{key} = {value}") } else { format!("{key} = \"{value}\"") }
}

/// A value of another type than the key has.
fn of_type(message: &str, excerpt: Excerpt<'_>) -> Option<String> {
    let rest = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (received, expected) = rest.rsplit_once(", expected ")?;
    let marked = excerpt.value()?;
    let plain = plain_type(expected)?;
    let (kind, value) = match received.split_once(' ') {
        Some(("string", text)) => ("the text", text.trim_matches('"')),
        Some(("integer", number)) => ("the number", number.trim_matches('`')),
        Some(("floating", number)) => ("the number", number.trim_start_matches("point ").trim_matches('`')),
        Some(("boolean", value)) => ("", value.trim_matches('`')),
        _ if received == "map" => ("a table", ""),
        _ if received == "sequence" => ("a list", ""),
        _ => (received, ""),
    };
    let received = [kind, value].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    let is_text = kind == "the text";
    let fix = match plain {
        TEXT if !value.is_empty() => Some(format!("\"{value}\"")),
        WHOLE if is_text && value.parse::<u64>().is_ok() => Some(value.to_owned()),
        SIGNED if is_text && value.parse::<i64>().is_ok() => Some(value.to_owned()),
        NUMBER if is_text && value.parse::<f64>().is_ok() => Some(value.to_owned()),
        TRUTH if matches!(value, "true" | "false") => Some(value.to_owned()),
        LIST if !value.is_empty() && is_text => Some(format!("[\"{value}\"]")),
        LIST if !value.is_empty() => Some(format!("[{value}]")),
        _ => None,
    };
    let fix = fix.map_or_else(String::new, |fix| format!(": write {}", marked.write(&fix)));
    Some(format!("expected {plain} for `{}`, received {}{}", marked.key, quoted(&received), quoted(&fix)))
}

const TEXT: &str = "a text in quotation marks";
const NUMBER: &str = "a number without quotation marks";
const WHOLE: &str = "a whole number, 0 or more, without quotation marks";
const SIGNED: &str = "a whole number without quotation marks";
const TRUTH: &str = "true or false without quotation marks";
const LIST: &str = "a list in square brackets";
const TABLE: &str = "a table with keys of its own";

/// A type of Rust's as a user knows it.
fn plain_type(expected: &str) -> Option<&'static str> {
    Some(match expected {
        "a string" | "string" => TEXT,
        "f64" | "f32" => NUMBER,
        "u8" | "u16" | "u32" | "u64" | "usize" => WHOLE,
        "i8" | "i16" | "i32" | "i64" | "isize" => SIGNED,
        "a boolean" => TRUTH,
        "a sequence" => LIST,
        _ if expected.starts_with("struct ") || expected.contains("tagged enum ") => TABLE,
        _ => return None,
    })
}

/// A key or a value that does not exist beside one that does.
pub(crate) fn unknown(message: &str, excerpt: Option<Excerpt<'_>>) -> Option<String> {
    let kind = ["unknown field `", "unknown variant `"].into_iter().find(|kind| message.starts_with(kind))?;
    if message.contains("did you mean") || message.contains("; the key with") {
        return None;
    }
    let (name, rest) = message.strip_prefix(kind)?.split_once('`')?;
    let (_, list) = rest.split_once("expected ")?;
    let known: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    if kind.starts_with("unknown field")
        && let Some((other, factor)) = units::other_unit(name, &known)
    {
        let value = excerpt.and_then(|excerpt| excerpt.value()?.value.parse::<f64>().ok());
        let write = value.map_or_else(
            || format!("`{other}`"),
            |value| format!("`{other} = {}`", units::number(value * factor)),
        );
        return Some(format!("{message}; the key with another unit is meant: write {write}"));
    }
    let meant = did_you_mean(name, known);
    (!meant.is_empty()).then(|| format!("{message}{meant}"))
}

/// A sentence about a number outside its range, whose key ends with a unit: with the unit, and
/// where the number would be accepted in another one, with that: degrees for radians, millimetres
/// for metres.
pub(crate) fn with_unit(line: &str) -> Option<String> {
    let (at, marker) = ["accepted are ", "accepted: ", "accepted is "]
        .iter()
        .find_map(|m| Some((line.find(m)?, m.len())))?;
    let before = line.get(..at)?.trim_end_matches([' ', ':', ';']);
    let (key, value) = match before.rsplit_once("` is ") {
        Some((left, value)) => (left.rsplit('`').next()?, value),
        None => before.rsplit_once(" = ")?,
    };
    let symbol = units::unit_of(key)?;
    let values: Vec<f64> = value
        .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+')))
        .filter_map(|part| part.parse().ok())
        .collect();
    let (&first, accepted) = (values.first()?, line.get(at + marker..)?);
    let Some((low, high, end)) = range(accepted) else {
        let has_unit = line.split([' ', ',', ';', ')']).any(|word| word == symbol);
        return (!has_unit).then(|| format!("{line} (in {symbol})"));
    };
    let (shown, rest) = line.split_at_checked(at + marker + end)?;
    if rest.trim_start().starts_with(symbol) {
        return None;
    }
    let outside = values.iter().copied().find(|value| !(low..=high).contains(value)).unwrap_or(first);
    let converted = units::in_other_unit(key, outside, low, high);
    let converted = converted.map_or_else(String::new, |words| format!("; {words}"));
    Some(format!("{shown} {symbol}{rest}{converted}"))
}

/// The numbers of "0.1 to 3", and where they end.
fn range(text: &str) -> Option<(f64, f64, usize)> {
    let (left, right) = text.split_once(" to ")?;
    let low = left.rsplit(' ').next()?.parse().ok()?;
    let length = right.find([' ', ';', ',', ':']).unwrap_or(right.len());
    let high = right.get(..length)?.parse().ok()?;
    Some((low, high, left.len() + " to ".len() + length))
}

#[cfg(test)]
mod tests {
    use crate::shortened;

    #[test]
    fn a_range_has_the_unit_of_its_key_and_another_unit_is_converted() {
        for (message, words) in [
            (
                "x.toml: robot.shape.margin_m = 25: accepted are 0 to 0.1; people are not seen within it",
                "accepted are 0 to 0.1 m; people are not seen within it; 25 mm are 0.025 m",
            ),
            (
                "cameras (west): mount.rotation_rad = 90: accepted are -6.3 to 6.3",
                "accepted are -6.3 to 6.3 rad; 90° are 1.5708 rad",
            ),
            (
                "motion.amplitude_rad = [0.0, 30.0]: accepted: six angles of -6.2832 to 6.2832",
                "of -6.2832 to 6.2832 rad; 30° are 0.5236 rad",
            ),
            (
                "perception: perception setting `occupancy.floor_m` is 500.0; accepted: -20 to 20",
                "accepted: -20 to 20 m; 500 mm are 0.5 m",
            ),
            ("reach_m = -1: accepted are numbers above 0", "numbers above 0 (in m)"),
            ("far_m = -1: accepted are 0 to 2.5", "accepted are 0 to 2.5 m"),
        ] {
            let once = shortened(message);
            assert!(once.ends_with(words), "{once}");
            assert_eq!(shortened(&once), once);
        }
        for message in ["edges = 0: accepted are 1 to 5", "work_us = 7: accepted are 1 µs to 5 µs"] {
            assert_eq!(shortened(message), message);
        }
    }

    /// Text below the quoted line for a user, for an error at the character `column` of `code`.
    fn read(code: &str, column: usize, message: &str) -> String {
        let blanks = " ".repeat(column);
        let whole = format!(
            "x.toml: TOML parse error at line 12, column {}\n   |\n12 | {code}\n   | {blanks}^^\n{message}",
            column + 1
        );
        let once = shortened(&whole);
        assert_eq!(shortened(&once), once, "a second pass changes nothing");
        assert!(once.contains(&format!("12 | {code}\n")), "the line stays: {once}");
        once.lines().last().unwrap().to_owned()
    }

    #[test]
    fn a_bare_value_gets_quotation_marks() {
        let float = "invalid float, expected nothing";
        let bare = "string values must be quoted, expected literal string";
        for (code, column, message, write) in [
            ("host = 192.168.1.10", 14, float, "write `host = \"192.168.1.10\"`"),
            ("host = 192.168.1.10 # the arm", 14, float, "write `host = \"192.168.1.10\"`"),
            ("serial = 123.456.789", 16, float, "received 123.456.789: write `serial = \"123.456.789\"`"),
            ("mac = 00:11:22:33:44:55", 6, "invalid datetime", "write `mac = \"00:11:22:33:44:55\"`"),
            ("robot = cyclic", 8, bare, "write `robot = \"cyclic\"`"),
            ("cpus = 0-3", 7, "invalid date, expected `-` (MM-DD)", "write `cpus = \"0-3\"`"),
            ("policy = fifo:80", 9, "invalid boolean, expected `false`", "write `policy = \"fifo:80\"`"),
            ("a = { host = 1.2.3.4, port = 5 }", 16, float, "write `host = \"1.2.3.4\"`"),
            ("hosts = [1.2.3.4, \"x\"]", 12, float, "write `\"1.2.3.4\"`"),
            (
                "robot=\u{201c}cyclic\u{201d}",
                6,
                bare,
                "straight quotation marks around a text: write `robot = \"cyclic\"`",
            ),
        ] {
            let words = read(code, column, message);
            assert!(words.ends_with(write) && words.starts_with("expected "), "{code}: {words}");
        }
        let words = read("serial = 007", 9, "unexpected leading zero, expected nothing");
        assert!(words.contains("write `serial = \"007\"`") && words.contains("`serial = 7`"), "{words}");
    }

    #[test]
    fn other_slips_of_the_syntax_have_a_way_out() {
        let line_end = "unexpected key or value, expected newline, `#`";
        let bare = "string values must be quoted, expected literal string";
        for (code, column, message, words) in [
            ("rate_hz = 0,5", 11, line_end, "write `rate_hz = 0.5`"),
            ("rate_hz = 500,", 13, line_end, "write `rate_hz = 500`"),
            ("rate_hz = 500;", 10, bare, "write `rate_hz = 500`"),
            ("rate_hz = 0.5kHz", 10, bare, "write `rate_hz = 500`"),
            ("strict = True", 9, "invalid boolean, expected `true`", "write `strict = true`"),
            ("strict = yes", 9, bare, "write `strict = true` or `strict = \"yes\"`"),
            ("rate_hz =", 9, bare, "has no value: write one"),
            ("name: cell", 10, "key with no value, expected `=`", "write `name = \"cell\"`"),
            ("rate_hz 500", 11, "key with no value, expected `=`", "write `rate_hz = 500`"),
            ("rate_hz = 5", 0, "duplicate key", "twice: remove one"),
        ] {
            let found = read(code, column, message);
            assert!(found.contains(words), "{code}: {found}");
        }
    }

    #[test]
    fn types_are_in_a_users_words() {
        for (code, column, message, words) in [
            ("rate_hz = \"500\"", 10, "invalid type: string \"500\", expected f64", "write `rate_hz = 500`"),
            (
                "serial = 12345",
                9,
                "invalid type: integer `12345`, expected a string",
                "write `serial = \"12345\"`",
            ),
            (
                "strict = \"true\"",
                9,
                "invalid type: string \"true\", expected a boolean",
                "write `strict = true`",
            ),
            ("n = 1.5", 4, "invalid type: floating point `1.5`, expected u64", "received the number 1.5"),
            ("n = -5", 4, "invalid value: integer `-5`, expected u64", "expected a whole number, 0 or more"),
            ("cpus = [0, 1]", 7, "invalid type: sequence, expected a string", "received a list"),
            ("only = \"a\"", 7, "invalid type: string \"a\", expected a sequence", "write `only = [\"a\"]`"),
            (
                "motion = \"sine\"",
                9,
                "invalid type: string \"sine\", expected internally tagged enum M",
                "a table",
            ),
        ] {
            let found = read(code, column, message);
            assert!(found.contains(words), "{code}: {found}");
        }
    }

    #[test]
    fn a_misspelt_key_or_value_finds_the_right_one() {
        let keys = "expected one of `rate_hz`, `deadline_ms`, `policy`";
        for (code, message, words) in [
            ("polcy = 1", format!("unknown field `polcy`, {keys}"), "did you mean `policy`?"),
            (
                "deadline_us = 500",
                format!("unknown field `deadline_us`, {keys}"),
                "write `deadline_ms = 0.5`",
            ),
            ("a = \"policie\"", format!("unknown variant `policie`, {keys}"), "did you mean `policy`?"),
        ] {
            let found = read(code, 0, &message);
            assert!(found.starts_with(&message) && found.ends_with(words), "{code}: {found}");
        }
        let none = read("camera = 1", 0, &format!("unknown field `camera`, {keys}"));
        assert!(none.ends_with("`policy`"), "nothing is guessed: {none}");
        // Of JSON, too, and in the middle of a sentence.
        let json = "a/run.json: unknown field `polcy`, expected one of `policy`, `x` at line 1 column 2";
        assert!(shortened(json).ends_with("column 2; did you mean `policy`?"), "{}", shortened(json));
    }

    #[test]
    fn what_says_enough_stays() {
        for message in ["missing field `name`", "unclosed table, expected `]`"] {
            assert_eq!(read("[verdict", 0, message), message);
        }
    }
}
