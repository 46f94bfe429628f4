//! The facts about a class of models: its names, and the ways between its `config.json` and a model.

use config::ModelSpec;
use serde_json::{Map, Value};

use crate::error::InterchangeError;
use crate::fields::Fields;
use crate::names::{Names, ShardCopies};

/// All that differs between classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Name of the class: `architectures` in `config.json`. Those of published files are what
    /// `tools/published_weights.py` writes.
    pub(crate) class: &'static str,
    /// `model_type` in `config.json`.
    pub(crate) model_type: &'static str,
    /// The prefixes of tensors' names, in full and as some files have them.
    pub(crate) prefixes: [&'static str; 2],
    /// Names and forms of its tensors.
    pub(crate) names: &'static Names,
    /// The parameters that are not split, in its shards.
    pub(crate) copies: ShardCopies,
    /// The model that a configuration describes. An error is a value that means something that is not built here, or a
    /// size that is not there.
    pub(crate) read: fn(&Fields) -> Result<ModelSpec, InterchangeError>,
    /// The configuration that comes nearest to a model.
    pub(crate) write: fn(&ModelSpec) -> Map<String, Value>,
}
