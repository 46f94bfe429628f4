//! Names of the library's files.

/// The configuration of a folder.
pub const CONFIG: &str = "config.json";
/// Its tensors, in one file.
pub const TENSORS: &str = "model.safetensors";
/// The file of each tensor, where there are several.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
