//! Every kernel of the workspace through the real run-time compiler, which needs no GPU: what only the emulated device's compiler
//! takes is found here.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::path::{Path, PathBuf};

use takt_gpu::interference::INTERFERENCE_KERNELS;
use takt_gpu::{Compiled, Compiler, GpuError, Source, set_libraries};

/// NVRTC of the system, of the Python environment in use, or of the one that `tools/install-outside` makes.
fn compiler() -> Option<Compiler> {
    let first = match Compiler::open() {
        Ok(compiler) => return Some(compiler),
        Err(error) => error,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let versions = std::fs::read_dir(root.join(".venv/lib")).into_iter().flatten().flatten();
    let own = versions
        .map(|version| version.path().join("site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
        .find(|path| path.exists());
    if let Some(path) = own {
        set_libraries(None, Some(path));
        return Some(Compiler::open().unwrap());
    }
    assert!(std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_none_or(|value| value != "1"), "{first}");
    eprintln!("SKIPPED: {first}");
    None
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

/// A CUDA ELF file: machine 190.
fn is_cubin(compiled: &Compiled) -> bool {
    let bytes = compiled.bytes();
    bytes.starts_with(b"\x7fELF") && bytes[18..20] == [190, 0]
}

/// As NVRTC has one log and one set of options at a time, all of it is one test.
#[test]
fn every_kernel_compiles_for_data_centre_gpus() {
    let Some(compiler) = compiler() else { return };
    eprintln!("NVRTC {:?}", compiler.version());
    let mut files = Vec::new();
    kernels(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    assert!(!files.is_empty());
    for file in &files {
        // A source is made for the whole run of a program; so is this one.
        let text: &'static str = Box::leak(std::fs::read_to_string(file).unwrap().into_boxed_str());
        for options in [&["--fmad=false"][..], &[]] {
            let source = Source { name: "workspace", text, options };
            for capability in [(8, 0), (8, 9), (9, 0)] {
                match compiler.compile(&source, capability) {
                    Ok(compiled) => assert!(is_cubin(&compiled), "{}", file.display()),
                    Err(error) => {
                        panic!("{} for sm_{}{}: {error}", file.display(), capability.0, capability.1)
                    }
                }
            }
        }
    }

    // A device that this compiler does not know gets PTX of the nearest older one.
    let ptx = compiler.compile(&INTERFERENCE_KERNELS, (99, 0)).unwrap();
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
