//! Compiled kernels on disk, so that only the first start compiles. A file that is torn, or was
//! made by another compiler, for another device or from another text, is never used: its name and
//! its first bytes say what it was made from.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::GpuError;
use crate::nvrtc::{Compiled, Compiler};
use crate::source::Source;

const MAGIC: &[u8; 8] = b"TAKTGPU1";
const HEAD: usize = 8 + 32 + 32;

/// `$XDG_CACHE_HOME/takt/gpu` or `~/.cache/takt/gpu`; `None` without a home.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        takt_files::environment::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("takt/gpu"))
}

fn key(source: &Source, architecture: &str, compiler: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [source.name, source.text, architecture, compiler].iter().chain(source.options) {
        // With its length, so that no two lists of parts read the same.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// The payload of a cache file, if it is whole and was made from `key`.
fn unpack<'a>(file: &'a [u8], key: &[u8; 32]) -> Option<&'a [u8]> {
    let payload = file.get(HEAD..)?;
    let sum: [u8; 32] = Sha256::digest(payload).into();
    (file[..8] == MAGIC[..] && file[8..40] == key[..] && file[40..HEAD] == sum[..] && !payload.is_empty())
        .then_some(payload)
}

fn store(path: &Path, key: &[u8; 32], payload: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // A name of its own, then renamed: of two programs that start at once, each reads a whole file
    // or none.
    let draft = path.with_extension(format!("{}-{}", std::process::id(), takt_rt::clock::monotonic_ns()));
    let write = || {
        let mut file = fs::File::create_new(&draft)?;
        file.write_all(MAGIC)?;
        file.write_all(key)?;
        file.write_all(&Sha256::digest(payload))?;
        file.write_all(payload)?;
        fs::rename(&draft, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// `source` for a device of `capability`: from `folder` if it is there and good, else compiled and
/// put there. A cache that cannot be written costs time at the next start and nothing else.
pub(crate) fn compiled(
    compiler: &Compiler,
    source: &Source,
    capability: (u32, u32),
    folder: Option<&Path>,
) -> Result<Compiled, GpuError> {
    let Some((folder, architecture)) = folder.zip(compiler.architecture(capability)) else {
        return compiler.compile(source, capability);
    };
    let key = key(source, &architecture, &compiler.identity());
    let short: String = key[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let path = folder.join(format!("{}-{short}.bin", source.name));
    if let Ok(file) = takt_files::read(&path, takt_files::FIGURES_BYTES)
        && let Some(payload) = unpack(&file, &key)
    {
        return Ok(Compiled::new(payload.to_vec()));
    }
    let compiled = compiler.compile(source, capability)?;
    let _ = store(&path, &key, compiled.bytes());
    Ok(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOURCE: Source = Source { name: "a", text: "b", options: &["c"] };

    #[test]
    fn everything_that_matters_is_in_the_key() {
        let base = key(&SOURCE, "sm_90", "12.4");
        assert_eq!(base, key(&SOURCE, "sm_90", "12.4"));
        for other in [
            key(&Source { text: "bc", options: &[], ..SOURCE }, "sm_90", "12.4"),
            key(&Source { options: &["c", ""], ..SOURCE }, "sm_90", "12.4"),
            key(&SOURCE, "sm_80", "12.4"),
            key(&SOURCE, "sm_90", "12.5"),
            key(&SOURCE, "sm_9", "012.4"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn what_is_stored_is_read_and_another_key_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.bin");
        store(&path, &[1; 32], b"payload").unwrap();
        store(&path, &[1; 32], b"payload").unwrap();
        let file = fs::read(&path).unwrap();
        assert_eq!(unpack(&file, &[1; 32]), Some(&b"payload"[..]));
        assert_eq!(unpack(&file, &[2; 32]), None);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no drafts are left");
    }

    proptest! {
        #[test]
        fn a_torn_or_changed_file_is_no_payload(cut in 0usize..100, at in 0usize..100, flip in 1u8..) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.bin");
            store(&path, &[7; 32], &[3; 28]).unwrap();
            let mut file = fs::read(&path).unwrap();
            prop_assert_eq!(file.len(), 100);
            prop_assert!(unpack(&file[..cut], &[7; 32]).is_none());
            file[at] ^= flip;
            prop_assert!(unpack(&file, &[7; 32]).is_none());
        }
    }
}
