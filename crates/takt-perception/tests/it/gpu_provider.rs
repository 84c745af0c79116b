//! The real CUDA and TensorRT providers of ONNX Runtime (`pip install onnxruntime-gpu`, 300 MB, so
//! it is not among the outside tools): what they say where their CUDA libraries, or a GPU, are
//! missing. Runs where ORT_DYLIB_PATH names a GPU build.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use takt_perception::{Backend, Engine, EngineConfig, EngineError, ModelSource, Provider};

/// The folder of a GPU build.
fn gpu_build() -> Option<PathBuf> {
    let named = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let folder = named.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let found = folder.filter(|folder| folder.join("libonnxruntime_providers_cuda.so").exists());
    if found.is_none() {
        takt_witness::skip!(
            "ORT_DYLIB_PATH names no ONNX Runtime with libonnxruntime_providers_cuda.so beside it"
        );
    }
    found
}

#[test]
fn a_provider_without_its_libraries_says_so_in_one_sentence() {
    if gpu_build().is_none() {
        return;
    }
    for provider in [Provider::Cuda, Provider::Tensorrt] {
        let config = EngineConfig { backend: Backend::Onnxruntime, provider, ..EngineConfig::default() };
        let engine = Engine::open(&config).unwrap();
        match engine.load(&ModelSource::from("builtin:selfie_landscape_144x256"), None) {
            Ok(_) => takt_witness::skip!("{provider:?} works here"),
            Err(error) => {
                let text = error.to_string();
                eprintln!("{provider:?}: {text}");
                assert!(matches!(error, EngineError::Provider { .. }), "{text}");
                assert!(!text.contains('\n') && text.len() < 700, "{text}");
            }
        }
    }
}

/// Makes empty libraries of the names that the providers need.
fn empty_libraries(folder: &Path) -> bool {
    std::fs::create_dir_all(folder).unwrap();
    let source = folder.join("empty.c");
    std::fs::write(&source, "").unwrap();
    let names =
        ["cublasLt.so.12", "cublas.so.12", "curand.so.10", "cufft.so.11", "cudart.so.12", "cudnn.so.9"];
    names.iter().all(|name| {
        let made = Command::new("cc")
            .args(["-shared", "-fPIC"])
            .arg(format!("-Wl,-soname,lib{name}"))
            .arg("-o")
            .arg(folder.join(format!("lib{name}")))
            .arg(&source)
            .status();
        made.is_ok_and(|status| status.success())
    })
}

/// Output of the first test in a separate process.
fn in_a_process_of_its_own(key: &str, value: &Path) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "gpu_provider::a_provider_without_its_libraries_says_so_in_one_sentence",
            "--nocapture",
        ])
        .env(key, value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success(), "{text}");
    text
}

/// Libraries of the right names that are of another version (here: empty) must not crash, and are
/// named.
#[test]
fn cuda_libraries_of_another_version_are_named() {
    if gpu_build().is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("takt-other-cuda-{}", std::process::id()));
    if empty_libraries(&folder) {
        // The loader reads its path at the start of a process.
        let text = in_a_process_of_its_own("LD_LIBRARY_PATH", &folder);
        assert!(text.contains("cannot be loaded") && text.contains("libcu"), "{text}");
    } else {
        takt_witness::skip!("no C compiler");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// CUDA libraries of Python packages are found beside the package of ONNX Runtime, without any path
/// set.
#[test]
fn cuda_libraries_of_python_packages_are_found() {
    let Some(build) = gpu_build() else { return };
    let packages = std::env::temp_dir().join(format!("takt-packages-{}", std::process::id()));
    let capi = packages.join("onnxruntime/capi");
    std::fs::create_dir_all(&capi).unwrap();
    let mut library = None;
    for entry in build.read_dir().unwrap().map(|entry| entry.unwrap()) {
        let file = capi.join(entry.file_name());
        // The library finds its providers beside itself, where links would lead it away from here.
        if entry.file_name().to_string_lossy().starts_with("libonnxruntime.so") {
            std::fs::copy(entry.path(), &file).unwrap();
            library = Some(file);
        } else {
            std::os::unix::fs::symlink(entry.path(), &file).unwrap();
        }
    }
    if empty_libraries(&packages.join("nvidia/all/lib")) {
        let text = in_a_process_of_its_own("ORT_DYLIB_PATH", &library.unwrap());
        // They are of another version here, and so it is not said that they are not there.
        // (TensorRT's own are not.)
        let cuda = text.lines().find(|line| line.starts_with("Cuda:")).unwrap_or_default();
        assert!(cuda.contains("cannot be loaded") && !cuda.contains("is missing"), "{text}");
    } else {
        takt_witness::skip!("no C compiler");
    }
    std::fs::remove_dir_all(&packages).unwrap();
}
