//! Every kernel of the workspace through the real run-time compiler, which needs no GPU: what only
//! the emulated device's compiler takes is found here. A program of its own: tests of the emulated
//! device set the process's compiler.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::path::{Path, PathBuf};

use takt_gpu::interference::INTERFERENCE_KERNELS;
use takt_gpu::{Compiler, GpuError, Source, prebuilt, set_libraries};

/// NVRTC of the system, of the Python environment in use, and of the one that
/// `tools/install-outside` makes: one of each version.
fn compilers() -> Vec<Compiler> {
    let mut found = Compiler::all();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let versions = std::fs::read_dir(root.join(".venv/lib")).into_iter().flatten().flatten();
    let nvidia: Vec<PathBuf> = versions.map(|version| version.path().join("site-packages/nvidia")).collect();
    for library in ["cuda_nvrtc/lib/libnvrtc.so.12", "cu13/lib/libnvrtc.so.13"] {
        for path in nvidia.iter().map(|folder| folder.join(library)).filter(|path| path.exists()) {
            set_libraries(None, Some(path));
            let compiler = Compiler::open().unwrap();
            if found.iter().all(|known| known.version() != compiler.version()) {
                found.push(compiler);
            }
        }
    }
    let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
    for major in [12, 13] {
        if found.iter().all(|compiler| compiler.version().0 != major) {
            assert!(!required, "no NVRTC of CUDA {major}");
            takt_witness::skip!("no NVRTC of CUDA {major}");
        }
    }
    found
}

/// All `.cu` files below `folder`: each compiles by itself.
fn kernels(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && !entry.ends_with("target") {
            kernels(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "cu") {
            found.push(entry);
        }
    }
}

/// Machine code for sm_MAJOR MINOR: a CUDA ELF file (machine 190) whose flags hold the
/// architecture, in the second byte with CUDA 13's layout and in the first with the older one.
fn is_cubin(bytes: &[u8], (major, minor): (u32, u32)) -> bool {
    let architecture = (major * 10 + minor) as u8;
    bytes.starts_with(b"\x7fELF") && bytes[18..20] == [190, 0] && bytes[48..50].contains(&architecture)
}

/// As NVRTC has one log and one set of options at a time, all of it is one test.
#[test]
fn every_kernel_compiles_for_data_centre_gpus_by_cuda_12_and_13() {
    let mut files = Vec::new();
    kernels(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    assert!(files.len() >= 3, "{files:?}");
    // Sources are made for the whole run of a program; so are these.
    let sources: Vec<Source> = files
        .iter()
        .map(|file| Source {
            name: Box::leak(file.file_stem().unwrap().to_string_lossy().into_owned().into_boxed_str()),
            text: Box::leak(std::fs::read_to_string(file).unwrap().into_boxed_str()),
            // As perception has it, whose roundings are the CPU's.
            options: if file.ends_with("gpu/kernels.cu") { &["--fmad=false"] } else { &[] },
        })
        .collect();
    let all: Vec<&Source> = sources.iter().collect();
    let capabilities = [(8, 0), (8, 9), (9, 0)];
    let folder = tempfile::tempdir().unwrap();
    let compilers = compilers();
    for compiler in &compilers {
        eprintln!("NVRTC {:?}", compiler.version());
        let made = prebuilt::build(compiler, &all, &capabilities, folder.path())
            .unwrap_or_else(|error| panic!("NVRTC {:?}: {error}", compiler.version()));
        assert_eq!(made.len(), all.len() * (capabilities.len() + 1));
        for entry in made {
            let bytes = std::fs::read(folder.path().join(&entry.file)).unwrap();
            assert_eq!(entry.cuda, compiler.version());
            if entry.ptx {
                let text = String::from_utf8_lossy(&bytes);
                assert!(text.contains(".target sm_80") && text.ends_with('\0'), "{entry}: {}", &text[..200]);
            } else {
                assert!(is_cubin(&bytes, entry.capability), "{entry}: {:?}", &bytes[48..52]);
            }
        }
    }
    // What one compiler makes, the other leaves there.
    let list = std::fs::read_to_string(folder.path().join("kernels.json")).unwrap_or_default();
    assert_eq!(list.matches("\"ptx\": true").count(), compilers.len() * all.len());

    let Some(compiler) = compilers.first() else { return };
    // A device that this compiler does not know gets PTX of the nearest older one.
    let ptx = compiler.compile(&INTERFERENCE_KERNELS, (199, 0)).unwrap();
    let text = String::from_utf8_lossy(ptx.bytes());
    assert!(text.contains(".entry interfere_compute") && text.ends_with('\0'), "{}", &text[..200]);
    match compiler.compile(&INTERFERENCE_KERNELS, (1, 0)) {
        Err(GpuError::Compile { log, .. }) => assert!(log.contains("compute capability 1.0"), "{log}"),
        other => panic!("{other:?}"),
    }
    let broken = Source { name: "broken", text: "__global__ void f() { gibberish; }", options: &[] };
    match compiler.compile(&broken, (9, 0)) {
        Err(GpuError::Compile { log, .. }) => {
            assert!(log.contains("gibberish") && log.contains("broken.cu"), "{log}");
        }
        other => panic!("{other:?}"),
    }
}
