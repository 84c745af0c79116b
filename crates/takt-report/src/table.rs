//! One table, three renderings: HTML, Markdown, terminal.

use maud::{Markup, html};
use takt_stats::Verdict;

use crate::words::clean;

/// Content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number, already in the unit of its column.
    Number(String),
    /// A number with its interval: value, low end, high end; `None` where the sample is too short
    /// to give an end.
    Estimate(String, Option<String>, Option<String>),
    Verdict(Verdict),
    /// Nothing can stand here, and why. Never silently empty.
    Gap(String),
}

impl Cell {
    /// Words.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::Text(clean(text.as_ref()))
    }

    pub fn number(text: impl ToString) -> Self {
        Self::Number(text.to_string())
    }

    pub fn gap(reason: impl AsRef<str>) -> Self {
        Self::Gap(clean(reason.as_ref()))
    }

    /// The cell within a Markdown table. Numbers are our own writing and stay as they are.
    fn markdown(&self) -> String {
        match self {
            Self::Number(_) | Self::Estimate(..) | Self::Verdict(_) => {
                self.plain().replace('|', "\\|").replace('<', "&lt;")
            }
            Self::Text(_) | Self::Gap(_) => escape_inline(&self.plain()),
        }
    }

    /// The cell as plain text.
    pub fn plain(&self) -> String {
        match self {
            Self::Text(text) | Self::Number(text) => text.clone(),
            Self::Estimate(value, low, high) => format!("{value} {}", ends(low, high)),
            Self::Verdict(verdict) => verdict.to_string(),
            Self::Gap(reason) => format!("– ({reason})"),
        }
    }
}

/// `[low, high]`, with a dash for an end that is not known.
fn ends(low: &Option<String>, high: &Option<String>) -> String {
    let end = |end: &Option<String>| end.clone().unwrap_or_else(|| "–".to_owned());
    format!("[{}, {}]", end(low), end(high))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its head, with the unit: `Max (µs)`.
    pub title: String,
    /// Set to the right.
    pub numeric: bool,
}

/// A table. All rows have as many cells as there are columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    notes: Vec<String>,
}

/// Text of more characters gets room in the page: in a column of a few letters it would make rows
/// of many lines.
const LONG: usize = 40;

fn text_class(column: &Column, text: &str) -> Option<&'static str> {
    let is_long = text.chars().count() > LONG;
    column.numeric.then_some("n").or_else(|| is_long.then_some("long"))
}

impl Table {
    /// An empty table. A head that begins with `#` belongs to a column of numbers.
    pub fn new(title: impl AsRef<str>, heads: &[impl AsRef<str>]) -> Self {
        let column = |head: &str| Column {
            title: clean(head.strip_prefix('#').unwrap_or(head)),
            numeric: head.starts_with('#'),
        };
        Self {
            title: clean(title.as_ref()),
            columns: heads.iter().map(|head| column(head.as_ref())).collect(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Appends a row. Cells that are missing are labelled, and what is too much is folded into the
    /// last one.
    pub fn push(&mut self, mut cells: Vec<Cell>) {
        let width = self.columns.len();
        while cells.len() > width.max(1) {
            let extra = cells.pop().map(|c| c.plain()).unwrap_or_default();
            if let Some(last) = cells.last_mut() {
                *last = Cell::Text(format!("{} {extra}", last.plain()));
            }
        }
        cells.resize_with(width, || Cell::gap("not reported"));
        self.rows.push(cells);
    }

    /// Adds a remark below the table.
    pub fn note(&mut self, note: impl AsRef<str>) {
        self.notes.push(clean(note.as_ref()));
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// The remarks.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub fn html(&self) -> Markup {
        html! {
            div.tablebox { table {
                caption { (self.title) }
                thead { tr { @for column in &self.columns {
                    th scope="col" class=[column.numeric.then_some("n")] { (column.title) }
                } } }
                tbody { @for row in &self.rows { tr {
                    @for (column, entry) in self.columns.iter().zip(row) {
                        @match entry {
                            Cell::Text(text) => td class=[text_class(column, text)] { (text) },
                            Cell::Number(text) => td.n { (text) },
                            Cell::Estimate(value, low, high) => td.n.e { (value) " " small { (ends(low, high)) } },
                            Cell::Verdict(verdict) => td { (verdict_html(*verdict)) },
                            Cell::Gap(reason) => td.gap { "– (" (reason) ")" },
                        }
                    }
                } } }
            } }
            @if !self.notes.is_empty() { ul.notes { @for note in &self.notes { li { (note) } } } }
        }
    }

    /// As Markdown (GitHub's tables).
    pub fn markdown(&self) -> String {
        let mut text = format!("**{}**\n\n", escape_markdown(&self.title));
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        text += &line(self.columns.iter().map(|c| escape_inline(&c.title)).collect());
        text +=
            &line(self.columns.iter().map(|c| if c.numeric { "---:" } else { "---" }.to_owned()).collect());
        for row in &self.rows {
            text += &line(row.iter().map(Cell::markdown).collect());
        }
        text.push('\n');
        for note in &self.notes {
            text += &format!("- {}\n", escape_markdown(note));
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text
    }

    /// For a terminal: columns aligned by characters.
    pub fn text(&self) -> String {
        let mut lines: Vec<Vec<String>> = vec![self.columns.iter().map(|c| c.title.clone()).collect()];
        lines.extend(self.rows.iter().map(|row| row.iter().map(Cell::plain).collect()));
        let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = format!("{}\n", self.title);
        for (index, line) in lines.iter().enumerate() {
            let cells: Vec<String> = line
                .iter()
                .zip(&self.columns)
                .zip(&widths)
                .map(|((entry, column), width)| {
                    let space = " ".repeat(width - entry.chars().count());
                    if column.numeric { format!("{space}{entry}") } else { format!("{entry}{space}") }
                })
                .collect();
            text += cells.join("  ").trim_end();
            text.push('\n');
            if index == 0 {
                let rules: Vec<String> = widths.iter().map(|w| "─".repeat(*w)).collect();
                text += &rules.join("  ");
                text.push('\n');
            }
        }
        for note in &self.notes {
            text += &format!("· {note}\n");
        }
        text
    }
}

/// A verdict, distinguished by word and frame and not by colour alone.
pub(crate) fn verdict_html(verdict: Verdict) -> Markup {
    let class = match verdict {
        Verdict::Pass => "verdict pass",
        Verdict::Fail => "verdict fail",
        Verdict::Inconclusive => "verdict open",
    };
    html! { span class=(class) { (verdict.to_string()) } }
}

/// Escapes a text that begins a line of Markdown.
pub(crate) fn escape_markdown(text: &str) -> String {
    let escaped = escape_inline(text);
    // A line that began with one of these would be a list, a quotation or a rule.
    if escaped.starts_with(['-', '+', '=']) { format!("\\{escaped}") } else { escaped }
}

/// Escapes what Markdown or the HTML within it would take for markup. An underscore between letters
/// or digits is left alone, for Markdown leaves it alone too and names stay searchable.
pub fn escape_inline(text: &str) -> String {
    let chars: Vec<char> = clean(text).chars().collect();
    let word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric());
    let mut escaped = String::with_capacity(chars.len());
    for (index, &c) in chars.iter().enumerate() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '_' if index > 0 && word(chars.get(index - 1)) && word(chars.get(index + 1)) => escaped.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' | '!' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Table {
        let mut table = Table::new("Latency", &["Configuration", "#Max (µs)", "Verdict"]);
        table.push(vec![Cell::text("a|b"), Cell::number("12.50"), Cell::Verdict(Verdict::Fail)]);
        table.push(vec![Cell::text("<script>")]);
        table.note("one *note*");
        table
    }

    #[test]
    fn the_three_renderings_hold_the_same_cells() {
        let table = sample();
        let (html, markdown, text) = (table.html().into_string(), table.markdown(), table.text());
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"), "{html}");
        assert!(markdown.contains(r"| a\|b | 12.50 | FAIL |"), "{markdown}");
        assert!(markdown.contains("| &lt;script&gt; | – (not reported) | – (not reported) |"), "{markdown}");
        assert!(text.contains("a|b            ") && text.contains("12.50  FAIL"), "{text}");
        assert!(html.contains("not reported") && text.contains("not reported"));
    }

    #[test]
    fn too_many_cells_are_not_lost() {
        let mut table = Table::new("t", &["a"]);
        table.push(vec![Cell::text("x"), Cell::text("y")]);
        assert_eq!(table.rows()[0], vec![Cell::text("x y")]);
    }

    /// Cells of a Markdown row, read as GitHub does.
    fn split_row(line: &str) -> usize {
        let mut cells = 0;
        let mut escaped = false;
        for c in line.chars() {
            match c {
                '\\' => escaped = !escaped,
                '|' if !escaped => cells += 1,
                _ => escaped = false,
            }
            if c == '|' {
                escaped = false;
            }
        }
        cells - 1
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_table(texts in proptest::collection::vec(any::<String>(), 6)) {
            let mut table = Table::new(&texts[0], &[&texts[1], &texts[2]]);
            table.push(vec![Cell::text(&texts[3]), Cell::gap(&texts[4])]);
            table.note(&texts[5]);
            let markdown = table.markdown();
            for line in markdown.lines().filter(|l| l.starts_with("| ")) {
                prop_assert_eq!(split_row(line), 2, "{}", line);
            }
            prop_assert!(!table.html().into_string().contains('\0'));
            prop_assert_eq!(table.text().lines().count(), 5);
        }
    }
}
