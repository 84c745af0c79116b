//! Folders that a command makes and then leaves nothing in, because it was refused.

use std::fs;
use std::path::{Path, PathBuf};

/// Takes away a folder that was not there before and is empty, with those above it that were not
/// there either.
#[derive(Debug)]
pub struct Tidy(Vec<PathBuf>);

impl Tidy {
    /// Looks what of `folder` is not there yet.
    pub fn before(folder: &Path) -> Self {
        let absent = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        Self(folder.ancestors().take_while(absent).map(Path::to_owned).collect())
    }
}

impl Drop for Tidy {
    fn drop(&mut self) {
        // The innermost first; what is not empty stays, and so does all above it.
        for folder in &self.0 {
            if fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_and_empty_is_taken_away() {
        let workspace = tempfile::tempdir().unwrap();
        let old = workspace.path().join("old");
        fs::create_dir(&old).unwrap();
        for (folder, content) in [(old.clone(), None), (old.join("a/b"), None), (old.join("c/d"), Some("e"))]
        {
            let _tidy = Tidy::before(&folder);
            fs::create_dir_all(&folder).unwrap();
            if let Some(content) = content {
                fs::write(folder.join(content), "x").unwrap();
            }
        }
        assert!(old.is_dir() && !old.join("a").exists() && old.join("c/d/e").is_file());
        // Never made.
        drop(Tidy::before(&workspace.path().join("never/made")));
        assert!(!workspace.path().join("never").exists());
    }
}
