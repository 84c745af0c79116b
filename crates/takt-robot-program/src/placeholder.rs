//! `{name}` in a text stands for a value; `{{` and `}}` stand for braces.

use std::collections::BTreeMap;

use takt_rt::config::SettingError;

/// A name that a placeholder may have.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A value as it stands in a text.
///
/// # Errors
/// [`SettingError`] for a value that is neither text, number nor truth value.
pub fn as_text(name: &str, value: &toml::Value) -> Result<String, SettingError> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => Ok(value.to_string()),
        _ => {
            let accepted = "accepted: texts, numbers, true and false";
            Err(SettingError::value(format!("values.{name}"), value, accepted))
        }
    }
}

/// `text` with the values in the place of the placeholders; `key` is where it stands.
///
/// # Errors
/// [`SettingError`] for a placeholder that has no value, and for a brace that is none.
pub fn fill(key: &str, text: &str, values: &BTreeMap<String, toml::Value>) -> Result<String, SettingError> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{") {
            filled.push('{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("}}") {
            filled.push('}');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'))
            && is_name(name)
        {
            let value = values.get(name).ok_or_else(|| {
                let known: Vec<&str> = values.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let accepted = format!(
                    "accepted: placeholders with a value in [values] (there: {known}); for a literal brace, write it twice"
                );
                SettingError::value(key, format!("{{{name}}}"), accepted)
            })?;
            filled.push_str(&as_text(name, value)?);
            rest = after;
        } else {
            let accepted = "accepted: placeholders such as {rate}; for a literal brace, write it twice";
            return Err(SettingError::value(key, takt_files::shortened(rest), accepted));
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn values() -> BTreeMap<String, toml::Value> {
        toml::from_str("rate = 500\nname = 'left arm'\nfast = true\nlist = [1]").unwrap()
    }

    #[test]
    fn values_stand_where_their_names_are() {
        for (text, expected) in [
            ("--rate={rate}", "--rate=500"),
            ("{name}/{rate}", "left arm/500"),
            ("{fast}", "true"),
            ("plain", "plain"),
            ("{{rate}}", "{rate}"),
            ("{{{rate}}}", "{500}"),
            ("", ""),
        ] {
            assert_eq!(fill("command", text, &values()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_placeholder_without_a_value_and_a_lone_brace_are_refused() {
        for (text, part) in [
            ("{rat}", "there: fast, list, name, rate"),
            ("{ rate }", "write it twice"),
            ("{", "write it twice"),
            ("}", "write it twice"),
            ("{1}", "write it twice"),
            ("{list}", "values.list"),
        ] {
            let error = fill("command", text, &values()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_text_with_doubled_braces_is_itself(text in "\\PC{0,60}") {
            let doubled = text.replace('{', "{{").replace('}', "}}");
            assert_eq!(fill("command", &doubled, &values()).unwrap(), text);
            let _ = fill("command", &text, &values());
        }
    }
}
