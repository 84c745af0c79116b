//! The words of TSDL.

use super::error::{TsdlError, TsdlProblem};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// A name or keyword.
    Name(String),
    /// A number without sign.
    Number(u64),
    /// A text in quotes.
    Quoted(String),
    /// One of `{ } ( ) [ ] < > ; : , . = + - *`.
    Sign(char),
    /// `:=`
    Assign,
    Dots,
    End,
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Name(name) => write!(f, "`{name}`"),
            Word::Number(number) => write!(f, "{number}"),
            Word::Quoted(text) => write!(f, "{text:?}"),
            Word::Sign(sign) => write!(f, "`{sign}`"),
            Word::Assign => f.write_str("`:=`"),
            Word::Dots => f.write_str("`...`"),
            Word::End => f.write_str("the end of the metadata"),
        }
    }
}

/// Cuts `text` into words, each with its place.
pub fn words(text: &str) -> Result<Vec<(Word, usize)>, TsdlError> {
    let bytes = text.as_bytes();
    let mut words = Vec::with_capacity(bytes.len() / 6);
    let mut at = 0;
    let fail = |at: usize, what: TsdlProblem| TsdlError::at(text, at, what);
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let rest = text.get(at + 2..).unwrap_or("");
                let length = rest.find("*/").ok_or_else(|| fail(start, TsdlProblem::OpenComment))?;
                at += length + 4;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at);
            }
            b'"' => {
                let (value, next) = quoted(bytes, at).ok_or_else(|| fail(start, TsdlProblem::OpenQuote))?;
                words.push((Word::Quoted(value), start));
                at = next;
            }
            b'0'..=b'9' => {
                while bytes.get(at).is_some_and(u8::is_ascii_alphanumeric) {
                    at += 1;
                }
                let digits = &text[start..at];
                let value = number(digits)
                    .ok_or_else(|| fail(start, TsdlProblem::Number { found: digits.to_owned() }))?;
                words.push((Word::Number(value), start));
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                while bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_') {
                    at += 1;
                }
                words.push((Word::Name(text[start..at].to_owned()), start));
            }
            b':' if bytes.get(at + 1) == Some(&b'=') => {
                words.push((Word::Assign, start));
                at += 2;
            }
            b'.' if bytes[at..].starts_with(b"...") => {
                words.push((Word::Dots, start));
                at += 3;
            }
            b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'<' | b'>' | b';' | b':' | b',' | b'.' | b'='
            | b'+' | b'-' | b'*' => {
                words.push((Word::Sign(char::from(byte)), start));
                at += 1;
            }
            _ => {
                let found = text.get(at..).and_then(|rest| rest.chars().next()).unwrap_or('\u{fffd}');
                return Err(fail(start, TsdlProblem::Letter { found }));
            }
        }
    }
    words.push((Word::End, bytes.len()));
    Ok(words)
}

fn number(digits: &str) -> Option<u64> {
    let plain = digits.trim_end_matches(['u', 'U', 'l', 'L']);
    if let Some(hex) = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16).ok()
    } else if plain.len() > 1 && plain.starts_with('0') {
        u64::from_str_radix(&plain[1..], 8).ok()
    } else {
        plain.parse().ok()
    }
}

/// The text in quotes that begins at `at`, and what follows it.
fn quoted(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut value = Vec::new();
    loop {
        at += 1;
        match bytes.get(at)? {
            b'"' => return Some((String::from_utf8_lossy(&value).into_owned(), at + 1)),
            b'\\' => {
                at += 1;
                value.push(match bytes.get(at)? {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'a' => 7,
                    b'b' => 8,
                    b'f' => 12,
                    b'v' => 11,
                    b'x' => {
                        let hex = bytes.get(at + 1..at + 3)?;
                        at += 2;
                        u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?
                    }
                    b'0'..=b'7' => {
                        let length =
                            bytes[at..].iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
                        let octal = std::str::from_utf8(&bytes[at..at + length]).ok()?;
                        at += length - 1;
                        u8::from_str_radix(octal, 8).ok()?
                    }
                    other => *other,
                });
            }
            other => value.push(*other),
        }
    }
}
