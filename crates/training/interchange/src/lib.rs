//! Models as other programs keep them: folders in the format of the Hugging Face library, and tensors under the names
//! that their makers published them with, in one file per tensor-parallel shard.
//!
//! Such a folder has a `config.json`, from which a [`config::ModelSpec`] follows, and tensors in one safetensors file
//! or in several with an index. Their names and forms are data ([`names`]): a parameter is a part of a tensor, some of
//! its rows, transposed or not. So a rank reads its own elements and no others, whatever the layout, and the same table
//! serves the way back.

#![forbid(unsafe_code)]

mod adapters;
pub mod config_json;
pub mod error;
pub mod export;
mod facts;
pub mod family;
pub mod fields;
mod file_names;
pub mod folder;
pub mod names;
pub mod shards;
pub mod special_tokens;
mod stacks;
pub mod stored_rows;

pub use adapters::{ADAPTER_CONFIG, ADAPTER_TENSORS, export_adapters};
pub use error::InterchangeError;
pub use export::export;
pub use family::Family;
pub use folder::{HuggingFaceFolder, is_exported};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as interchange;
#[cfg(test)]
mod tests;
