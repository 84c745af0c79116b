//! Writing a report into a folder.

use std::path::{Path, PathBuf};

use takt_files::Folder;

use crate::build::build;
use crate::collect::{Collection, collect};
use crate::document::Document;
use crate::markdown::FIGURES_FOLDER;
use crate::supplement::Supplements;
use crate::{Error, html, markdown};

/// A report that was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The self-contained page.
    pub html: PathBuf,
    /// The same as Markdown.
    pub markdown: PathBuf,
    /// The pictures beside the Markdown.
    pub figures: Vec<PathBuf>,
    /// Its content.
    pub document: Document,
    /// Its source.
    pub collection: Collection,
}

/// Reports on the runs at `paths` (run directories, campaigns, folders of them): writes
/// `report.html`, `report.md` and `figures/*.svg` into `out`, which is made where it does not
/// exist.
///
/// # Errors
/// As [`collect`]; [`Error::RunDir`] where something cannot be written.
pub fn write(paths: &[impl AsRef<Path>], out: &Path, supplements: &Supplements) -> Result<Written, Error> {
    let collection = collect(paths)?;
    let document = build(&collection, supplements);
    // The folder may be another user's, and this may be root: what is written takes the place of
    // links, and follows none.
    let folder = Folder::output(out).map_err(Error::io(out))?;
    let figures_path = out.join(FIGURES_FOLDER);
    let figures_folder = folder.subfolder(FIGURES_FOLDER).map_err(Error::io(&figures_path))?;
    let put = |folder: &Folder, at: &Path, name: &str, text: &str| -> Result<PathBuf, Error> {
        let path = at.join(name);
        folder.write(name, text).map_err(Error::io(&path))?;
        Ok(path)
    };
    let figures = document
        .figures()
        .map(|figure| put(&figures_folder, &figures_path, &format!("{}.svg", figure.id), &figure.svg))
        .collect::<Result<_, _>>()?;
    let html = put(&folder, out, "report.html", &html(&document))?;
    let markdown = put(&folder, out, "report.md", &markdown(&document))?;
    Ok(Written { html, markdown, figures, document, collection })
}
