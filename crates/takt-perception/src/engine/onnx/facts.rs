//! Metadata of an export: Ultralytics and others write task, classes and layout into the file.

use std::collections::BTreeMap;

use super::model::Model;

/// Task of a network (`task`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Task {
    /// Not said.
    #[default]
    Unsaid,
    Detect,
    Segment,
    /// Something else, which gives no boxes of people that are understood here.
    Other,
}

/// Facts about a network from its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) task: Task,
    /// The task, as written.
    pub(crate) task_name: String,
    /// Names of the classes.
    pub(crate) names: Option<BTreeMap<usize, String>>,
    /// Whether the network gives final boxes (`end2end`): YOLOv10, YOLO26.
    pub(crate) end2end: Option<bool>,
    /// Whether non-maximum suppression is part of the export (`args`, `nms`).
    pub(crate) nms: bool,
    /// Height and width that it was exported for (`imgsz`).
    pub(crate) size: Option<[usize; 2]>,
    /// The architecture, as written (`description`, `head`).
    pub(crate) description: String,
}

impl Facts {
    pub(super) fn of(model: &Model) -> Self {
        let value = |key: &str| model.metadata.iter().rev().find(|(found, _)| *found == key).map(|(_, v)| *v);
        let text = |key: &str| value(key).unwrap_or_default();
        let boolean = |text: &str| match text.trim() {
            "True" | "true" | "1" => Some(true),
            "False" | "false" | "0" => Some(false),
            _ => None,
        };
        let task_name = super::short(text("task").trim());
        let task = match task_name.as_str() {
            "" => Task::Unsaid,
            "detect" => Task::Detect,
            "segment" => Task::Segment,
            _ => Task::Other,
        };
        let size: Vec<usize> = numbers(text("imgsz")).collect();
        let size = match size[..] {
            [side] => Some([side, side]),
            [height, width] => Some([height, width]),
            _ => None,
        };
        Self {
            task,
            task_name,
            names: value("names").and_then(names),
            end2end: value("end2end").and_then(boolean),
            nms: text("args").contains("'nms': True") || boolean(text("nms")) == Some(true),
            size: size.filter(|size| size.iter().all(|&side| (1..=4096).contains(&side))),
            description: super::short(text("description")),
        }
    }

    /// The class that is called a person, where one is.
    pub(crate) fn person(&self) -> Option<usize> {
        let names = self.names.as_ref()?;
        names.iter().find(|(_, name)| name.trim().eq_ignore_ascii_case("person")).map(|(&index, _)| index)
    }
}

fn numbers(text: &str) -> impl Iterator<Item = usize> + '_ {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok())
}

/// Names of classes: a dictionary as Python or JSON writes it (`{0: 'person'}`, `{"0": "person"}`),
/// or a list (`['person']`). `None` for anything else.
fn names(text: &str) -> Option<BTreeMap<usize, String>> {
    let mut rest = text.trim();
    let (close, keyed) = match rest.chars().next()? {
        '{' => ('}', true),
        '[' => (']', false),
        _ => return None,
    };
    rest = rest[1..].trim_start();
    let mut names = BTreeMap::new();
    while !rest.starts_with(close) {
        let mut index = names.len();
        if keyed {
            let (key, after) = rest.split_once(':')?;
            index = key.trim().trim_matches(['\'', '"']).parse().ok()?;
            rest = after.trim_start();
        }
        let (name, after) = quoted(rest)?;
        names.insert(index, name);
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    (!names.is_empty()).then_some(names)
}

/// A string in quotes of either kind, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut name = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            c if c == quote => return Some((name, &text[1 + at + 1..])),
            c => name.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_python_and_json_write_them() {
        let of = |text: &str| names(text).map(|names| names.into_iter().collect::<Vec<_>>());
        let two = Some(vec![(0, "person".to_owned()), (1, "driver's cab".to_owned())]);
        assert_eq!(of("{0: 'person', 1: \"driver's cab\"}"), two);
        assert_eq!(of(r#"{"0": "person", "1": "driver's cab"}"#), two);
        assert_eq!(of(r"['person', 'driver\'s cab']"), two);
        assert_eq!(of("{ 0 : 'person' , }"), Some(vec![(0, "person".to_owned())]));
        for damaged in
            ["", "person", "{}", "{0: 'person'", "{0 'person'}", "{x: 'person'}", "{0: person}", "["]
        {
            assert_eq!(of(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn an_export_says_what_it_is() {
        let model = Model {
            metadata: vec![
                ("task", "segment"),
                ("names", "{0: 'cat', 1: 'Person'}"),
                ("end2end", "True"),
                ("imgsz", "[480, 640]"),
                ("args", "{'batch': 1, 'half': False, 'nms': True}"),
            ],
            ..Model::default()
        };
        let facts = Facts::of(&model);
        assert_eq!((facts.task, facts.end2end, facts.nms), (Task::Segment, Some(true), true));
        assert_eq!((facts.size, facts.person()), (Some([480, 640]), Some(1)));
        assert_eq!(Facts::of(&Model::default()), Facts::default());
    }
}
