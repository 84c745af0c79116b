//! `takt --version --verbose`: what this binary is made of, for reports of errors.

/// Several lines.
pub fn in_full() -> String {
    let data = takt_files::data::folder();
    let data = data.map_or_else(|| "in the binary alone".to_owned(), |folder| folder.display().to_string());
    format!(
        "takt {}\ncommit: {}\nfeatures: {}\ntarget: {}\nprofile: {}\ncompiler: {}\nshipped files: {data}\n",
        env!("CARGO_PKG_VERSION"),
        env!("TAKT_COMMIT"),
        env!("TAKT_FEATURES"),
        env!("TAKT_TARGET"),
        env!("TAKT_PROFILE"),
        env!("TAKT_COMPILER"),
    )
}
