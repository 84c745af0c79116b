//! The report as one HTML file: no script, no link to anything outside, readable on a dark or a
//! light screen and on paper.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::document::{Block, Document, Section};
use crate::figure::{Figure, Source};
use crate::table::verdict_html;
use crate::words::count;

/// Sources up to this number stand in the caption itself; more are folded away behind it.
const SOURCES_SHOWN: usize = 6;

const STYLE: &str = include_str!("style.css");

/// Writes the document as HTML.
pub fn html(document: &Document) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content="takt";
                title { (document.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (document.title) } }
                main {
                    // A paper's tables are long: the way to the others stands before them.
                    @if document.papers > 0 { (contents(document, 0)) }
                    @for (index, section) in document.sections.iter().enumerate() {
                        (section_html(section))
                        @if document.papers == 0 && index == 0 { (contents(document, 1)) }
                    }
                }
            }
        }
    }
    .into_string()
}

fn contents(document: &Document, from: usize) -> Markup {
    html! {
        nav aria-label="Contents" {
            h2 { "Contents" }
            ol { @for section in document.sections.iter().skip(from) {
                li { a href={ "#" (section.id) } { (section.title) } }
            } }
        }
    }
}

fn section_html(section: &Section) -> Markup {
    html! {
        section id=(section.id) {
            @if section.is_folded {
                details {
                    summary { h2 { (section.title) } }
                    @for block in section.blocks() { (block_html(block)) }
                }
            } @else {
                h2 { (section.title) }
                @for block in section.blocks() { (block_html(block)) }
            }
        }
    }
}

fn block_html(block: &Block) -> Markup {
    match block {
        Block::Heading(text) => html! { h3 { (text) } },
        Block::Paragraph(text) => html! { p { (text) } },
        Block::List(items) => html! { ul { @for item in items { li { (item) } } } },
        Block::Warning(items) => {
            html! { aside.warning role="note" { ul { @for item in items { li { (item) } } } } }
        }
        Block::Verdict(verdict, text) => html! { p.answer { (verdict_html(*verdict)) " " (text) } },
        Block::Table(table) => table.html(),
        Block::Figure(figure) => figure_html(figure),
    }
}

fn figure_html(figure: &Figure) -> Markup {
    html! {
        figure id=(figure.id) {
            (PreEscaped(&figure.svg))
            figcaption {
                strong { (figure.title) "." } " " (figure.caption)
                @if !figure.key.is_empty() {
                    ul.key { @for (short, long) in &figure.key { li { b { (short) } " " (long) } } }
                }
                (sources(&figure.sources))
            }
        }
    }
}

fn sources(sources: &[Source]) -> Markup {
    let lines: Vec<String> = sources.iter().map(Source::line).collect();
    html! {
        @if lines.len() <= SOURCES_SHOWN {
            p.sources { "Drawn from: " (lines.join("; ")) }
        } @else {
            details.sources {
                summary { "Drawn from " (count(lines.len(), "run", "runs")) ": names and hashes" }
                (lines.join("; "))
            }
        }
    }
}
