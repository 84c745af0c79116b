//! The report for a terminal: what it says and its tables, without figures.

use crate::document::{Block, Document};

/// Writes the document as text.
pub fn text(document: &Document) -> String {
    let mut text = format!("{}\n\n", document.title);
    for section in &document.sections {
        text += &format!("{}\n{}\n\n", section.title, "═".repeat(section.title.chars().count()));
        for block in section.blocks() {
            match block {
                Block::Heading(heading) => {
                    text += &format!("{heading}\n{}\n\n", "─".repeat(heading.chars().count()));
                }
                Block::Paragraph(paragraph) => text += &format!("{paragraph}\n\n"),
                Block::List(items) | Block::Warning(items) => {
                    for item in items {
                        text += &format!("· {item}\n");
                    }
                    text.push('\n');
                }
                Block::Verdict(verdict, sentence) => text += &format!("{verdict}: {sentence}\n\n"),
                Block::Table(table) => text += &format!("{}\n", table.text()),
                Block::Figure(_) => {}
            }
        }
    }
    text
}
