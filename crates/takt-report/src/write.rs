//! Writing a report into a folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::build::build;
use crate::collect::{Collection, collect};
use crate::document::Document;
use crate::{Error, FIGURES_FOLDER, html, markdown};

/// A report that was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The self-contained page.
    pub html: PathBuf,
    /// Its Markdown twin.
    pub markdown: PathBuf,
    /// The pictures beside the twin.
    pub figures: Vec<PathBuf>,
    /// What it says.
    pub document: Document,
    /// What it was made from.
    pub collection: Collection,
}

/// Reports on the runs at `paths` (run directories, campaigns, folders of them): writes `report.html`, `report.md` and
/// `figures/*.svg` into `out`, which is made where it does not exist.
///
/// # Errors
/// As [`collect`]; [`Error::RunDir`] where something cannot be written.
pub fn write(paths: &[impl AsRef<Path>], out: &Path) -> Result<Written, Error> {
    let collection = collect(paths)?;
    let document = build(&collection);
    let figures_folder = out.join(FIGURES_FOLDER);
    fs::create_dir_all(&figures_folder).map_err(Error::io(&figures_folder))?;
    let put = |path: PathBuf, text: &str| -> Result<PathBuf, Error> {
        fs::write(&path, text).map_err(Error::io(&path))?;
        Ok(path)
    };
    let figures = document
        .figures()
        .map(|figure| put(figures_folder.join(format!("{}.svg", figure.id)), &figure.svg))
        .collect::<Result<_, _>>()?;
    let html = put(out.join("report.html"), &html(&document))?;
    let markdown = put(out.join("report.md"), &markdown(&document))?;
    Ok(Written { html, markdown, figures, document, collection })
}
