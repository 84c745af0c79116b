//! Content of a report before it is written as HTML or Markdown: one content, so that the two
//! cannot differ.

use takt_stats::Verdict;

use crate::figure::Figure;
use crate::table::Table;
use crate::words::clean;

/// A piece of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// A heading within a section.
    Heading(String),
    Paragraph(String),
    List(Vec<String>),
    /// Something the reader must not miss: what is missing, damaged or not comparable.
    Warning(Vec<String>),
    /// A verdict with the sentence behind it.
    Verdict(Verdict, String),
    Table(Table),
    Figure(Box<Figure>),
}

#[derive(Clone, Debug)]
pub struct Section {
    /// Anchor, unique in the document.
    pub id: String,
    /// Heading.
    pub title: String,
    /// A page shows the heading alone until a reader opens it.
    pub is_folded: bool,
    blocks: Vec<Block>,
}

impl Section {
    /// An empty section.
    pub fn new(id: impl Into<String>, title: impl AsRef<str>) -> Self {
        Self { id: id.into(), title: clean(title.as_ref()), is_folded: false, blocks: Vec::new() }
    }

    /// Takes a figure out, to be shown elsewhere.
    pub fn take_figure(&mut self, id: &str) -> Option<Figure> {
        let is_it = |block: &Block| matches!(block, Block::Figure(figure) if figure.id == id);
        match self.blocks.remove(self.blocks.iter().position(is_it)?) {
            Block::Figure(figure) => Some(*figure),
            _ => None,
        }
    }

    /// The section, folded on a page.
    #[must_use]
    pub fn folded(self) -> Self {
        Self { is_folded: true, ..self }
    }

    /// Its blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Adds a block. Texts may come from files: what a terminal or a page would obey is taken out
    /// here, once for all renderings.
    pub fn add(&mut self, block: Block) {
        let all = |items: Vec<String>| items.iter().map(|item| clean(item)).collect();
        self.blocks.push(match block {
            Block::Heading(text) => Block::Heading(clean(&text)),
            Block::Paragraph(text) => Block::Paragraph(clean(&text)),
            Block::List(items) => Block::List(all(items)),
            Block::Warning(items) => Block::Warning(all(items)),
            Block::Verdict(verdict, text) => Block::Verdict(verdict, clean(&text)),
            tidy @ (Block::Table(_) | Block::Figure(_)) => tidy,
        });
    }
}

/// A report.
#[derive(Clone, Debug)]
pub struct Document {
    pub title: String,
    /// Its sections: those of papers that the runs reproduce, then the introduction, then the
    /// others.
    pub sections: Vec<Section>,
    /// Number of the papers' sections.
    pub papers: usize,
}

impl Document {
    /// All figures, in order.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.sections.iter().flat_map(|s| s.blocks()).filter_map(|block| match block {
            Block::Figure(figure) => Some(&**figure),
            _ => None,
        })
    }

    /// All tables, in order.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.sections.iter().flat_map(|s| s.blocks()).filter_map(|block| match block {
            Block::Table(table) => Some(table),
            _ => None,
        })
    }
}
