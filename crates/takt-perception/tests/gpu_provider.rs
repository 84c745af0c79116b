//! The real CUDA and TensorRT providers of ONNX Runtime (`pip install onnxruntime-gpu`, 300 MB, so it is not among the
//! outside tools): what they say where their CUDA libraries, or a GPU, are missing. Runs where ORT_DYLIB_PATH names a
//! GPU build.
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
        eprintln!(
            "SKIPPED: ORT_DYLIB_PATH names no ONNX Runtime with libonnxruntime_providers_cuda.so beside it"
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
            Ok(_) => eprintln!("SKIPPED: {provider:?} works here"),
            Err(error) => {
                let text = error.to_string();
                eprintln!("{provider:?}: {text}");
                assert!(matches!(error, EngineError::Provider { .. }), "{text}");
                assert!(!text.contains('\n') && text.len() < 700, "{text}");
            }
        }
    }
}

/// Libraries of the right names that are of another version (here: empty) must not crash, and are named. In a process of
/// its own, as the loader reads its path at the start.
#[test]
fn cuda_libraries_of_another_version_are_named() {
    if gpu_build().is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("takt-other-cuda-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("empty.c");
    std::fs::write(&source, "").unwrap();
    for name in
        ["cublasLt.so.12", "cublas.so.12", "curand.so.10", "cufft.so.11", "cudart.so.12", "cudnn.so.9"]
    {
        let made = Command::new("cc")
            .args(["-shared", "-fPIC"])
            .arg(format!("-Wl,-soname,lib{name}"))
            .arg("-o")
            .arg(folder.join(format!("lib{name}")))
            .arg(&source)
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no C compiler");
            return;
        }
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_provider_without_its_libraries_says_so_in_one_sentence", "--nocapture"])
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{text}");
    assert!(text.contains("does not load") && text.contains("libcu"), "{text}");
}
