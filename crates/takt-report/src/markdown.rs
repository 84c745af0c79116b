//! The report as Markdown: the same content as the HTML file; figures lie beside it.

use crate::document::{Block, Document};
use crate::figure::Source;
use crate::table::escape_markdown;

/// Folder of the pictures, beside the report.
pub const FIGURES_FOLDER: &str = "figures";

/// Writes the document as Markdown. Pictures are taken from the folder `figures` beside it.
pub fn markdown(document: &Document) -> String {
    let mut text = format!("# {}\n\n", escape_markdown(&document.title));
    for section in &document.sections {
        text += &format!("## {}\n\n", escape_markdown(&section.title));
        for block in section.blocks() {
            text += &block_markdown(block);
        }
    }
    text
}

fn list(items: &[String], before: &str) -> String {
    let lines: Vec<String> =
        items.iter().map(|item| format!("{before}- {}\n", escape_markdown(item))).collect();
    format!("{}\n", lines.concat())
}

fn block_markdown(block: &Block) -> String {
    match block {
        Block::Heading(text) => format!("### {}\n\n", escape_markdown(text)),
        Block::Paragraph(text) => format!("{}\n\n", escape_markdown(text)),
        Block::List(items) => list(items, ""),
        Block::Warning(items) => list(items, "> "),
        Block::Verdict(verdict, text) => format!("**{verdict}** {}\n\n", escape_markdown(text)),
        Block::Table(table) => table.markdown(),
        Block::Figure(figure) => {
            let title = escape_markdown(&figure.title);
            let sources: Vec<String> = figure.sources.iter().map(Source::line).collect();
            let mut text = format!("![{title}]({FIGURES_FOLDER}/{}.svg)\n\n", figure.id);
            text += &format!("*{title}.* {}\n\n", escape_markdown(&figure.caption));
            if !figure.key.is_empty() {
                let key: Vec<String> =
                    figure.key.iter().map(|(short, long)| format!("{short}: {long}")).collect();
                text += &list(&key, "");
            }
            text + &format!("Drawn from: {}\n\n", escape_markdown(&sources.join("; ")))
        }
    }
}
