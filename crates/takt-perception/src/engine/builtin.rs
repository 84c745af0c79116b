//! The models compiled into the binary, so that it works from any folder. Provenance and licences:
//! `models/README.md`.

/// A model compiled into the binary.
#[derive(Clone, Copy)]
pub struct BuiltinModel {
    /// Name, without `builtin:`.
    pub name: &'static str,
    /// The ONNX file.
    pub bytes: &'static [u8],
}

impl std::fmt::Debug for BuiltinModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "builtin:{} ({} bytes)", self.name, self.bytes.len())
    }
}

/// All of them.
pub static BUILTIN_MODELS: [BuiltinModel; 3] = [
    BuiltinModel { name: "nanodet_g_416", bytes: include_bytes!("../../../../models/nanodet_g_416.onnx") },
    BuiltinModel {
        name: "selfie_square_256",
        bytes: include_bytes!("../../../../models/selfie_square_256.onnx"),
    },
    BuiltinModel {
        name: "selfie_landscape_144x256",
        bytes: include_bytes!("../../../../models/selfie_landscape_144x256.onnx"),
    },
];

/// The built-in model of that name.
pub fn builtin_model(name: &str) -> Option<&'static BuiltinModel> {
    BUILTIN_MODELS.iter().find(|model| model.name == name)
}
