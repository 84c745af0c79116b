use sha2::{Digest, Sha256};

use super::*;

fn embedded() -> Engine {
    Engine::open(&EngineConfig { backend: Backend::Embedded, ..EngineConfig::default() }).unwrap()
}

/// The ONNX Runtime engine, or `None` (with a note) where it is not installed.
pub(crate) fn onnxruntime() -> Option<Engine> {
    match Engine::open(&EngineConfig { backend: Backend::Onnxruntime, ..EngineConfig::default() }) {
        Ok(engine) => Some(engine),
        Err(error) => {
            let required = std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some_and(|value| value == "1");
            assert!(!required, "TAKT_REQUIRE_OUTSIDE=1, but {error}");
            takt_witness::skip!("{error}");
            None
        }
    }
}

/// Values in 0..1 without a pattern that a network could cancel out.
fn noise(length: usize) -> Vec<f32> {
    let mut state = 1u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        })
        .collect()
}

#[test]
fn built_in_models_have_the_published_checksums() {
    let sums = include_str!("../../../../models/SHA256SUMS");
    for model in &BUILTIN_MODELS {
        let sum: String = Sha256::digest(model.bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("{sum}  {}.onnx", model.name);
        assert!(sums.lines().any(|known| known == line), "{line} is not in SHA256SUMS");
    }
    assert_eq!(sums.lines().count(), BUILTIN_MODELS.len());
}

#[test]
fn both_engines_agree() {
    let Some(reference) = onnxruntime() else { return };
    for model in &BUILTIN_MODELS {
        let source = ModelSource::Builtin(model.name.into());
        let mut ours = embedded().load(&source, None).unwrap();
        let mut theirs = reference.load(&source, None).unwrap();
        assert_eq!(ours.network.input_shape(), theirs.network.input_shape());
        let input = noise(ours.network.input_shape().iter().product());
        let (ours, theirs) = (ours.network.run(&input).unwrap(), theirs.network.run(&input).unwrap());
        assert_eq!(ours.len(), theirs.len());
        for (a, b) in ours.iter().zip(theirs) {
            assert_eq!(a.shape, b.shape, "{}", model.name);
            assert!(a.data.iter().any(|&v| v != a.data[0]), "{}: constant output", model.name);
            let worst = a.data.iter().zip(&b.data).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{} output {}: differs by {worst}", model.name, b.name);
        }
    }
}

#[test]
fn the_choice_is_reported() {
    assert!(embedded().is_embedded());
    assert!(embedded().description().contains("embedded"));
    let auto = Engine::open(&EngineConfig::default()).unwrap();
    match onnxruntime() {
        Some(_) => assert!(auto.description().contains("ONNX Runtime")),
        None => assert!(auto.description().contains("no ONNX Runtime library found")),
    }
}

#[test]
fn a_gpu_without_onnx_runtime_is_refused_with_the_way_out() {
    let config =
        EngineConfig { backend: Backend::Embedded, provider: Provider::Cuda, ..EngineConfig::default() };
    let message = Engine::open(&config).unwrap_err().to_string();
    assert!(message.contains("Cuda") && message.contains("onnxruntime"), "{message}");
}

#[test]
fn a_provider_that_is_absent_is_refused_with_the_way_out() {
    if onnxruntime().is_none() {
        return;
    }
    for provider in [Provider::Cuda, Provider::Tensorrt] {
        let config = EngineConfig { provider, ..EngineConfig::default() };
        let engine = Engine::open(&config).unwrap();
        match engine.load(&ModelSource::from("builtin:selfie_landscape_144x256"), None) {
            Ok(_) => takt_witness::skip!("this machine has {provider:?}"),
            Err(error) => {
                let message = error.to_string();
                assert!(matches!(error, EngineError::Provider { .. }), "{message}");
                assert!(message.contains("onnxruntime-gpu"), "{message}");
            }
        }
    }
}

#[test]
fn models_that_are_not_there_or_not_models_are_named() {
    let missing = embedded().load(&ModelSource::from("/nowhere/x.onnx"), None).unwrap_err().to_string();
    assert!(missing.contains("/nowhere/x.onnx"));
    let not_a_model = ModelSource::File(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into());
    for engine in [Some(embedded()), onnxruntime()].into_iter().flatten() {
        let error = engine.load(&not_a_model, None).unwrap_err();
        assert!(error.to_string().contains("Cargo.toml"), "{error}");
    }
    let unknown = embedded().load(&ModelSource::from("builtin:x"), None).unwrap_err().to_string();
    assert!(unknown.contains("builtin:nanodet_g_416"), "{unknown}");
}

#[test]
fn an_input_of_the_wrong_length_is_refused() {
    let source = ModelSource::from("builtin:selfie_landscape_144x256");
    for engine in [Some(embedded()), onnxruntime()].into_iter().flatten() {
        let mut network = engine.load(&source, None).unwrap();
        let error = network.network.run(&[0.0; 5]).unwrap_err();
        assert!(matches!(error, EngineError::InputLength { expected: 110_592, found: 5 }), "{error}");
    }
}

#[test]
fn open_dimensions_need_a_size_and_fixed_ones_keep_theirs() {
    assert_eq!(fix_shape("m", &[None, Some(3), None, None], Some([480, 640])).unwrap(), [1, 3, 480, 640]);
    assert_eq!(fix_shape("m", &[Some(1), Some(3), Some(4), Some(5)], None).unwrap(), [1, 3, 4, 5]);
    let open = fix_shape("m", &[Some(1), Some(3), None, None], None).unwrap_err().to_string();
    assert!(open.contains("input_size") && open.contains("[1, 3, ?, ?]"), "{open}");
    assert!(fix_shape("m", &[Some(1), Some(1), Some(4), Some(5)], None).is_err());
    assert!(fix_shape("m", &[Some(1), Some(3), Some(4), Some(5)], Some([8, 8])).is_err());
    assert!(fix_shape("m", &[Some(3), Some(4)], None).is_err());
}

#[test]
fn models_are_written_as_they_are_read() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        model: ModelSource,
    }
    for text in ["builtin:nanodet_g_416", "models/mine.onnx"] {
        let holder: Holder = toml::from_str(&format!("model = \"{text}\"")).unwrap();
        assert_eq!(holder.model.to_string(), text);
        assert_eq!(toml::from_str::<Holder>(&toml::to_string(&holder).unwrap()).unwrap(), holder);
    }
    assert!(toml::from_str::<Holder>("model = \"builtin:y\"").unwrap_err().to_string().contains("nanodet"));
}
