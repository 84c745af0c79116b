//! The modules of a kernel: which there are, what each needs, and in which order they load.
//!
//! Packages carry no `modules.dep`, as `depmod` makes it at installation. Without that file, each
//! module's dependencies are read from the modules themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};

use super::near_names;
use crate::image_error::ImageError;

/// No module is that large; a file that unpacks to more is damaged.
const MODULE_BYTES_MAX: u64 = 256 << 20;
/// Memory for unpacking one module or package, KiB. `xz -9` needs 65 MiB.
pub(super) const XZ_MEMORY_KIB: u32 = 256 << 10;

/// Dependencies of one module.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Entry {
    /// Its file, below the folder of the release.
    file: String,
    /// Modules it cannot be without, by name.
    needs: Vec<String>,
    /// Modules that should be there first, where there are any (`softdep pre:`).
    wishes: Vec<String>,
}

/// The modules of one kernel.
#[derive(Debug, Default)]
pub struct Index {
    modules: BTreeMap<String, Entry>,
    built_in: BTreeSet<String>,
}

impl Index {
    /// The modules in `folder`, which is `lib/modules/RELEASE`.
    pub fn read(folder: &Path) -> Result<Self, ImageError> {
        let mut index = match fs::read_to_string(folder.join("modules.dep")) {
            Ok(text) => {
                let mut index = Self::parse(&text);
                index.parse_wishes(&fs::read_to_string(folder.join("modules.softdep")).unwrap_or_default());
                index
            }
            Err(_) => Self::from_files(folder)?,
        };
        let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        index.built_in = built_in.lines().filter_map(module_name).collect();
        Ok(index)
    }

    /// Reads the text of a `modules.dep`. Lines that are none are passed over.
    pub fn parse(text: &str) -> Self {
        let mut index = Self::default();
        for line in text.lines() {
            let Some((file, needs)) = line.split_once(':') else { continue };
            let file = file.trim();
            let Some(name) = module_name(file).filter(|_| inside(file)) else { continue };
            let needs = needs.split_whitespace().filter_map(module_name).collect();
            index.modules.insert(name, Entry { file: file.to_owned(), needs, wishes: Vec::new() });
        }
        index
    }

    /// Reads every module below `folder`.
    fn from_files(folder: &Path) -> Result<Self, ImageError> {
        let mut index = Self::default();
        let mut folders = vec![folder.join("kernel"), folder.join("updates"), folder.join("extra")];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                    continue;
                }
                let relative = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
                let Some(name) = module_name(&relative) else { continue };
                let facts = facts_of(&read_uncompressed(&path)?)
                    .map_err(|reason| ImageError::BrokenModule { path: path.clone(), reason })?;
                index
                    .modules
                    .insert(name, Entry { file: relative, needs: facts.needs, wishes: facts.wishes });
            }
        }
        Ok(index)
    }

    /// The text of a `modules.dep`, with each module's direct needs.
    pub(super) fn to_dep(&self) -> String {
        let file_of = |name: &String| self.modules.get(name).map(|entry| format!(" {}", entry.file));
        let line = |entry: &Entry| {
            format!("{}:{}\n", entry.file, entry.needs.iter().filter_map(file_of).collect::<String>())
        };
        self.modules.values().map(line).collect()
    }

    /// The text of a `modules.softdep`.
    pub(super) fn to_softdep(&self) -> String {
        let wishes = self.modules.iter().filter(|(_, entry)| !entry.wishes.is_empty());
        wishes.map(|(name, entry)| format!("softdep {name} pre: {}\n", entry.wishes.join(" "))).collect()
    }

    /// Whether the kernel has this as a module or built in.
    pub fn has(&self, module: &str) -> bool {
        let name = plain_name(module);
        self.modules.contains_key(&name) || self.built_in.contains(&name)
    }

    /// The files of these modules and of all they need, below the folder of the release, in load
    /// order.
    pub fn closure(&self, release: &str, names: &[&str]) -> Result<Vec<String>, ImageError> {
        let mut order = Vec::new();
        let mut visited = BTreeSet::new();
        for name in names {
            self.visit(release, &plain_name(name), &mut visited, &mut order)?;
        }
        Ok(order)
    }

    /// Depth first without recursion: a chain in a damaged list may be of any length, and may close
    /// on itself.
    fn visit(
        &self,
        release: &str,
        name: &str,
        visited: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) -> Result<(), ImageError> {
        enum Step {
            Enter(String),
            Leave(String),
        }
        let mut stack = vec![Step::Enter(name.to_owned())];
        while let Some(step) = stack.pop() {
            let name = match step {
                Step::Leave(file) => {
                    order.push(file);
                    continue;
                }
                Step::Enter(name) => name,
            };
            if self.built_in.contains(&name) || !visited.insert(name.clone()) {
                continue;
            }
            let Some(entry) = self.modules.get(&name) else {
                return Err(ImageError::NoModule {
                    release: release.to_owned(),
                    near: near_names(&name, self.modules.keys().map(String::as_str)),
                    module: name,
                    fix: "name a module of this kernel; fetched kernels keep only the modules of virtual devices, so for others pass the \
                         path of a kernel with its complete modules folder",
                });
            };
            stack.push(Step::Leave(entry.file.clone()));
            let wished = entry.wishes.iter().filter(|wish| self.modules.contains_key(*wish));
            let first: Vec<&String> = entry.needs.iter().chain(wished).collect();
            stack.extend(first.into_iter().rev().map(|name| Step::Enter(name.clone())));
        }
        Ok(())
    }

    fn parse_wishes(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if words.next() != Some("softdep") {
                continue;
            }
            let Some(entry) = words.next().and_then(|name| self.modules.get_mut(&plain_name(name))) else {
                continue;
            };
            entry.wishes = wishes(words);
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Facts {
    needs: Vec<String>,
    wishes: Vec<String>,
}

/// Facts in a module's section `.modinfo`.
fn facts_of(bytes: &[u8]) -> Result<Facts, String> {
    let read = |error: object::Error| format!("it is not a kernel module: {error}");
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(read)?;
    let endian = header.endian().map_err(read)?;
    let sections = header.sections(endian, bytes).map_err(read)?;
    let (_, section) = sections.section_by_name(endian, b".modinfo").ok_or("it has no .modinfo")?;
    let mut facts = Facts::default();
    for line in section.data(endian, bytes).map_err(read)?.split(|byte| *byte == 0) {
        let line = String::from_utf8_lossy(line);
        match line.split_once('=') {
            Some(("depends", names)) => {
                facts.needs = names.split(',').filter(|name| !name.is_empty()).map(plain_name).collect();
            }
            Some(("softdep", text)) => facts.wishes.extend(wishes(text.split_whitespace())),
            _ => {}
        }
    }
    Ok(facts)
}

/// The names between `pre:` and `post:`.
fn wishes<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let after = words.skip_while(|word| *word != "pre:").skip(1);
    after.take_while(|word| *word != "post:").map(plain_name).collect()
}

/// Kernels know `a-b` and `a_b` as one.
fn plain_name(name: &str) -> String {
    name.replace('-', "_")
}

/// `kernel/drivers/char/virtio_console.ko.xz` is `virtio_console`.
fn module_name(file: &str) -> Option<String> {
    let name = file.rsplit('/').next()?;
    let (stem, packed) = name.split_once(".ko")?;
    (!stem.is_empty() && matches!(packed, "" | ".xz" | ".zst" | ".gz")).then(|| plain_name(stem))
}

/// A path that stays below its folder.
fn inside(file: &str) -> bool {
    !file.starts_with('/') && file.split('/').all(|part| part != "..")
}

/// A module's path without the suffix of its packing.
pub(crate) fn uncompressed_name(file: &str) -> String {
    [".xz", ".zst", ".gz"].iter().find_map(|suffix| file.strip_suffix(suffix)).unwrap_or(file).to_owned()
}

/// A module's bytes, unpacked where it is packed.
pub(crate) fn read_uncompressed(path: &Path) -> Result<Vec<u8>, ImageError> {
    let read = |source| ImageError::Read { path: path.to_path_buf(), source };
    let broken = |reason: String| ImageError::BrokenModule { path: path.to_path_buf(), reason };
    let file = File::open(path).map_err(read)?;
    let name = path.to_string_lossy();
    let mut source =
        unpacker(file, &name).map_err(|source| broken(source.to_string()))?.take(MODULE_BYTES_MAX + 1);
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes).map_err(|source| broken(source.to_string()))?;
    if bytes.len() as u64 > MODULE_BYTES_MAX {
        return Err(broken(format!("it unpacks to more than {MODULE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// A reader of what `name`'s suffix says it is packed with.
pub(super) fn unpacker<'a>(source: impl Read + 'a, name: &str) -> std::io::Result<Box<dyn Read + 'a>> {
    Ok(match name.rsplit('.').next() {
        Some("xz") => Box::new(lzma_rust2::XzReader::new_mem_limit(
            std::io::BufReader::new(source),
            true,
            XZ_MEMORY_KIB,
        )),
        Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(source)),
        Some("zst") => {
            Box::new(ruzstd::decoding::StreamingDecoder::new(source).map_err(std::io::Error::other)?)
        }
        _ => Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const DEP: &str = "kernel/drivers/char/virtio_console.ko: kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko\n\
        kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko\n\
        kernel/drivers/virtio/virtio_ring.ko:\n\
        kernel/lib/crc32c-intel.ko.xz:\n\
        ../../outside.ko:\n";

    #[test]
    fn what_a_module_needs_is_loaded_before_it() {
        let index = Index::parse(DEP);
        let order = index.closure("6.1", &["virtio_console", "crc32c_intel", "virtio"]).unwrap();
        assert_eq!(
            order,
            [
                "kernel/drivers/virtio/virtio_ring.ko",
                "kernel/drivers/virtio/virtio.ko",
                "kernel/drivers/char/virtio_console.ko",
                "kernel/lib/crc32c-intel.ko.xz"
            ]
        );
    }

    #[test]
    fn an_unknown_module_is_refused_with_its_neighbours() {
        let error = Index::parse(DEP).closure("6.1", &["virtio-consol"]).unwrap_err().to_string();
        assert!(error.contains("virtio_consol") && error.contains("there are virtio_console"), "{error}");
    }

    #[test]
    fn built_in_modules_need_no_file_and_paths_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("modules.dep"), DEP).unwrap();
        fs::write(folder.path().join("modules.builtin"), "kernel/fs/ext4/ext4.ko\n").unwrap();
        fs::write(
            folder.path().join("modules.softdep"),
            "softdep virtio_ring pre: crc32c_intel nowhere post: x\n",
        )
        .unwrap();
        let index = Index::read(folder.path()).unwrap();
        assert!(index.has("ext4") && index.has("virtio-ring") && !index.has("outside"));
        let order = index.closure("6.1", &["ext4", "virtio_ring"]).unwrap();
        assert_eq!(order, ["kernel/lib/crc32c-intel.ko.xz", "kernel/drivers/virtio/virtio_ring.ko"]);
    }

    #[test]
    fn a_circle_ends() {
        let index = Index::parse("a.ko: b.ko\nb.ko: a.ko\n");
        assert_eq!(index.closure("6.1", &["a"]).unwrap(), ["b.ko", "a.ko"]);
    }

    #[test]
    fn packed_modules_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ko.gz");
        let mut packer =
            flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        packer.write_all(b"content").unwrap();
        packer.finish().unwrap();
        assert_eq!(read_uncompressed(&path).unwrap(), b"content");
        fs::write(folder.path().join("b.ko.xz"), b"no xz").unwrap();
        let error = read_uncompressed(&folder.path().join("b.ko.xz")).unwrap_err();
        assert!(matches!(error, ImageError::BrokenModule { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_what_is_written_is_read_back(text in "([a-c/.:-]{0,12}(\\.ko)?[: \n]){0,40}") {
            let index = Index::parse(&text);
            for name in index.modules.keys() {
                let _ = index.closure("r", &[name]);
            }
            let again = Index::parse(&index.to_dep());
            prop_assert_eq!(again.modules.keys().collect::<Vec<_>>(), index.modules.keys().collect::<Vec<_>>());
        }

        #[test]
        fn a_damaged_module_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
            elf.extend(bytes);
            let _ = facts_of(&elf);
        }
    }
}
