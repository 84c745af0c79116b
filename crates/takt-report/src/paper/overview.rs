//! Every table and figure of the papers, and whether ours is the same: the book's table.

use super::{Definition, Paper};
use crate::table::{Cell, Table, escape_inline};

/// Markdown: a section for each paper, a row for each of its tables and figures.
pub fn overview(papers: &[&Paper]) -> String {
    let mut text = String::new();
    for paper in papers {
        text += &format!("## {}\n\n", escape_inline(paper.name));
        text += &format!(
            "*{}*. Their measurements were made on {}.\n\n",
            escape_inline(paper.title),
            escape_inline(paper.setup)
        );
        let mut table =
            Table::new("Published, and ours", &["published", "what it shows", "ours", "same definition?"]);
        for item in paper.items {
            let (ours, same) = match item.definition {
                Definition::Same => (item.ours, "yes".to_owned()),
                Definition::Differs(how) => (item.ours, format!("no: {how}")),
                Definition::Absent(why) => ("–", format!("not reproduced: {why}")),
            };
            table.push(vec![
                Cell::text(item.number),
                Cell::text(item.caption),
                Cell::text(ours),
                Cell::text(same),
            ]);
        }
        text += &table.markdown();
        if !paper.differs.is_empty() {
            text += "In every run of ours:\n\n";
            for sentence in paper.differs {
                text += &format!("- {}\n", escape_inline(sentence));
            }
            text.push('\n');
        }
    }
    text
}
