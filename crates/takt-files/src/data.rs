//! Files that are shipped beside the program: recordings, networks, configurations.
//!
//! They lie where a package puts them, beside the program (`bin/takt`, `share/takt`), or in the
//! tree that it was built in. `TAKT_DATA` names another folder; a program with rights from its file
//! does not believe it, and takes what only root can have put there.

use std::path::{Path, PathBuf};

use crate::environment;

/// Where a distribution's packages put them.
const PACKAGED: &str = "/usr/share/takt";

/// What every folder of shipped files has.
const MARK: &str = "recordings/pedestrians/SHA256SUMS";

/// The folder of shipped files; `None` where there is none.
pub fn folder() -> Option<PathBuf> {
    if environment::is_secure() {
        return environment::check_library(&Path::new(PACKAGED).join(MARK)).ok().map(|_| PACKAGED.into());
    }
    let given = environment::var_os("TAKT_DATA").filter(|value| !value.is_empty()).map(PathBuf::from);
    if given.is_some() {
        return given;
    }
    let program = std::env::current_exe().ok();
    beside(program.as_deref()).into_iter().chain([PACKAGED.into()]).find(|folder| folder.join(MARK).is_file())
}

/// Where they may lie beside this program.
fn beside(program: Option<&Path>) -> Vec<PathBuf> {
    let Some(bin) = program.and_then(Path::parent) else { return Vec::new() };
    // target/release, target/TARGET/release, folders of targets below it, and their `deps`.
    let trees = bin.ancestors().take(5).filter(|folder| folder.join("Cargo.toml").is_file());
    let mut found: Vec<PathBuf> = bin.parent().map(|prefix| prefix.join("share/takt")).into_iter().collect();
    found.extend(trees.map(Path::to_owned));
    found
}

/// The shipped file with this name below the folder, where it is there.
pub fn file(name: &Path) -> Option<PathBuf> {
    let path = folder()?.join(name);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_beside_the_program_or_in_its_tree() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("prefix/bin")).unwrap();
        let found = beside(Some(&at("prefix/bin/takt")));
        assert_eq!(found, [at("prefix/share/takt")]);
        fs::create_dir_all(at("tree/target/release")).unwrap();
        fs::write(at("tree/Cargo.toml"), "").unwrap();
        let found = beside(Some(&at("tree/target/release/takt")));
        assert_eq!(found, [at("tree/target/share/takt"), at("tree")]);
        assert_eq!(beside(None), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_tree_that_tests_run_in_has_them() {
        if folder().is_none() {
            takt_witness::skip!("these tests run far from their tree");
            return;
        }
        let recording = file(Path::new("recordings/pedestrians/cam0.mcap"));
        assert!(recording.is_some_and(|path| path.metadata().unwrap().len() > 1_000_000));
        assert_eq!(file(Path::new("recordings/none.mcap")), None);
    }
}
