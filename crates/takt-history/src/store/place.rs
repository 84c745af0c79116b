//! Place of a store: a folder, or a bucket of an object store.

use std::path::PathBuf;
use std::sync::Arc;

use crate::store::StoreError;
use crate::store::backend::Backend;
use crate::store::folder::Folder;

/// Prefix of a bucket's address.
const S3: &str = "s3";

/// An open place.
#[derive(Debug)]
pub(crate) struct Place {
    /// In words, without credentials.
    pub(crate) name: String,
    pub(crate) backend: Arc<dyn Backend>,
}

/// The text without what stands before the last `@` or behind `?`, where credentials would be. A
/// secret of AWS may have `/` in it.
fn without_credentials(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let rest = rest.rfind('@').map_or(rest.into(), |at| format!("…{}", &rest[at..]));
            format!("{scheme}://{}", rest.split('?').next().unwrap_or_default())
        }
        None => text.to_owned(),
    }
}

/// Checks what was given without touching it: credentials in it would end in what a run keeps of
/// its command line.
pub(crate) fn check(text: &str) -> Result<(), StoreError> {
    let place = without_credentials(text);
    let wrong = |why: &str| Err(StoreError::Place { place: place.clone(), why: why.to_owned() });
    let Some((scheme, rest)) = text.split_once("://") else {
        return if text.is_empty() { wrong("the folder's name is missing") } else { Ok(()) };
    };
    if scheme != S3 {
        return wrong("expected a folder, or s3://BUCKET/PREFIX");
    }
    if rest.contains(['@', '?']) {
        return wrong(
            "it must not contain credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which are stored in no run",
        );
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return wrong("the bucket's name is missing");
    }
    if let Some(character) = bucket.chars().find(|c| !(c.is_ascii_alphanumeric() || ".-_".contains(*c))) {
        return wrong(&format!(
            "{character:?} is not allowed in a bucket's name: accepted are letters, digits and . - _"
        ));
    }
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    if !prefix.is_empty() && !prefix.split('/').all(plain) {
        return wrong("a prefix is names with / between them");
    }
    if cfg!(not(feature = "s3")) {
        return wrong(
            "this takt was built without S3 (cargo build --release --features s3); or mount the bucket (s3fs, rclone mount) and \
             give that folder",
        );
    }
    #[cfg(feature = "s3")]
    if let Err(why) = crate::store::bucket::check(std::env::vars_os()) {
        return wrong(&why);
    }
    Ok(())
}

/// Opens it. A folder is made where there is none and `create` is set, a bucket never.
pub(crate) fn open(text: &str, create: bool) -> Result<Place, StoreError> {
    check(text)?;
    let name = without_credentials(text);
    let wrong = |why: String| StoreError::Place { place: name.clone(), why };
    #[cfg(feature = "s3")]
    if let Some((S3, rest)) = text.split_once("://") {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let opened = crate::store::bucket::Bucket::open(bucket, prefix.trim_end_matches('/'));
        let backend = Arc::new(opened.map_err(|error| wrong(error.to_string()))?);
        return Ok(Place { name, backend });
    }
    let folder = PathBuf::from(text);
    if create {
        std::fs::create_dir_all(&folder).map_err(|error| wrong(error.to_string()))?;
    } else if !folder.is_dir() {
        let why = if folder.exists() { "is not a folder" } else { "there is no such folder" };
        return Err(wrong(why.to_owned()));
    }
    let folder = folder.canonicalize().map_err(|error| wrong(error.to_string()))?;
    Ok(Place { name, backend: Arc::new(Folder(folder)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_refused_and_never_repeated() {
        for text in [
            "s3://key:hidden@bucket/runs",
            "s3://bucket/runs?secret=hidden",
            "s3://key:hid/hidden@bucket/runs",
            "s3://key@bucket/runs?secret=hidden",
            "s3://bucket?hidden@",
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(!error.contains("hid"), "{error}");
            assert!(error.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
        }
        for (text, word) in [
            ("", "missing"),
            ("s3://", "bucket"),
            ("s3://my bucket/runs", "' ' is not allowed in a bucket's name"),
            ("s3://bucket/a/../b", "a prefix is"),
            ("s3://bucket//b", "a prefix is"),
            ("gs://bucket", "expected a folder"),
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(check("some/folder").is_ok());
        for text in ["s3://bucket", "s3://bucket/", "s3://my-bucket.lab/a/b/"] {
            match (check(text), cfg!(feature = "s3")) {
                (Ok(()), true) => {}
                (Err(error), false) => assert!(error.to_string().contains("--features s3"), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_folder_is_made_only_where_it_may_be() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("a/store");
        let text = at.to_str().unwrap();
        assert!(open(text, false).unwrap_err().to_string().contains("no such folder"));
        assert!(open(text, true).is_ok() && at.is_dir());
        std::fs::write(root.path().join("file"), "").unwrap();
        let file = root.path().join("file");
        let file = file.to_str().unwrap();
        assert!(
            open(file, true).is_err()
                && open(file, false).unwrap_err().to_string().contains("is not a folder")
        );
    }
}
