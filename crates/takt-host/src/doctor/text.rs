//! The report for people.

use std::fmt::Write;

use crate::doctor::report::{Check, Report, Status};

/// Columns of a terminal as it opens.
const WIDTH: usize = 100;

impl Status {
    /// The word in the first column.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

impl Report {
    /// Three lines with the answer, the worst finding and its fix; then a table: the worst first;
    /// for what is not well, why it matters and the fix.
    pub fn to_text(&self) -> String {
        let mut text = self.answer();
        let widest = self.checks.iter().map(|check| check.title.chars().count()).max().unwrap_or(0);
        let indent = 9 + widest + 2;
        let mut checks: Vec<_> = self.checks.iter().collect();
        // Stable: the order within a status stays.
        checks.sort_by_key(|check| std::cmp::Reverse(check.status));
        for check in checks {
            let head = format!("{:<7}  {:<widest$}  ", check.status.word(), check.title);
            paragraph(&mut text, &head, indent, &check.evidence);
            if check.status != Status::Ok {
                paragraph(&mut text, &" ".repeat(indent), indent, &check.why);
            }
            if let Some(fix) = &check.fix {
                let label = if check.safe { "fix (--apply does it): " } else { "fix: " };
                paragraph(&mut text, &" ".repeat(indent), indent, &format!("{label}{fix}"));
            }
        }
        // A reader who has scrolled through the table is at its end.
        let _ = writeln!(text, "\n{}", self.counts());
        text
    }

    /// Number of findings of each kind.
    fn counts(&self) -> String {
        let count = |status| self.count(status);
        let safe = self.checks.iter().filter(|check| check.safe).count();
        format!(
            "{} fail, {} warn, {} unknown, {} ok; `takt doctor --apply` can fix {safe} of them",
            count(Status::Fail),
            count(Status::Warn),
            count(Status::Unknown),
            count(Status::Ok)
        )
    }

    /// Summary in three lines of any length, for readers who read no further.
    fn answer(&self) -> String {
        let (word, fitness) = match self.worst() {
            Status::Fail => ("FAIL", "this machine is not fit for real time as configured"),
            Status::Warn => ("warn", "this machine is fit for real time, but its latency can be improved"),
            Status::Ok | Status::Unknown => ("ok", "no finding makes this machine unfit for real time"),
        };
        let mut text = format!("{word}: {fitness}: {}\n", self.counts());
        let is_worst = |check: &&Check| check.status == self.worst() && check.fix.is_some();
        // The first of them: the order of the findings is that of a reader's interest.
        let (worst, fix) = match self.checks.iter().find(is_worst) {
            Some(check) => {
                let by_itself = if check.safe { " (--apply does it)" } else { "" };
                let fix = check.fix.as_deref().unwrap_or_default();
                (format!("{}: {}", check.title, check.evidence), format!("{fix}{by_itself}"))
            }
            None => ("nothing".to_owned(), "none needed".to_owned()),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Worst: {}\nFix: {}\n", one_line(&worst), one_line(&fix));
        text
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds `head` and the words of `body`, wrapped and indented.
fn paragraph(text: &mut String, head: &str, indent: usize, body: &str) {
    text.push_str(head);
    let mut column = indent;
    let mut first = true;
    for word in body.split_whitespace() {
        let length = word.chars().count();
        if !first && column + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if !first {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
        first = false;
    }
    while text.ends_with(' ') {
        text.pop();
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_with_its_fix() {
        let check = |id: &str| Check::new(id, id, "matters a lot");
        let long = "word ".repeat(60);
        let report = Report {
            checks: vec![
                check("fine").ok("1 ns"),
                check("bad one").fail(&long, "do this"),
                check("hm").unknown("?"),
            ],
        };
        let text = report.to_text();
        let (answer, table) = text.split_once("\n\n").unwrap();
        let answer: Vec<_> = answer.lines().collect();
        assert_eq!(answer.len(), 3, "{text}");
        assert!(
            answer[0].starts_with("FAIL: this machine is not fit") && answer[0].contains("1 fail"),
            "{text}"
        );
        assert!(answer[1].starts_with("Worst: bad one: word word"), "{text}");
        assert_eq!(answer[2], "Fix: do this");
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("FAIL     bad one  word word"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH && !line.ends_with(' ')), "{text}");
        assert!(text.contains("         fix: do this") || text.contains("fix: do this"));
        assert!(text.contains("ok       fine     1 ns\n"), "{text}");
        assert!(
            text.ends_with("1 fail, 0 warn, 1 unknown, 1 ok; `takt doctor --apply` can fix 0 of them\n"),
            "{text}"
        );
        let none = Report::default().to_text();
        assert!(
            none.starts_with("ok: no finding") && none.contains("\nWorst: nothing\nFix: none needed\n"),
            "{none}"
        );
        assert_eq!(Report::default().worst(), Status::Ok);
        assert_eq!(report.worst(), Status::Fail);
    }

    #[test]
    fn a_report_is_a_list_for_programs() {
        let report =
            Report { checks: vec![Check::new("a", "A", "w").warn("e", "f").with_number("x_us", 1.5)] };
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(value[0]["status"], "warn");
        assert_eq!(
            (&value[0]["id"], &value[0]["fix"], &value[0]["measured"]["x_us"]),
            (&"a".into(), &"f".into(), &1.5.into())
        );
        assert_eq!(serde_json::from_value::<Report>(value).unwrap(), report);
    }
}
