//! Tensor-parallel shards: the parts of a model that Megatron-LM and its like write to a file each.
//!
//! They are split as parameters are split here ([`config::Sharding`]): outputs of maps into heads and columns, inputs
//! of those back, rows of the vocabulary; what is replicated is in every shard ([`crate::names::Copies`]). A folder in
//! one piece is a single shard.

use config::{ParamSpec, Sharding};
use mesh::Region;

/// Whether each shard has all of `param`.
pub fn is_replicated(param: &ParamSpec) -> bool {
    split_dim(param).is_none()
}

/// The dim along which shards have parts of `param`; `None` where each has all of it.
fn split_dim(param: &ParamSpec) -> Option<usize> {
    match param.sharding {
        Sharding::Replicated => None,
        Sharding::Split { dim, .. } => Some(dim),
        Sharding::VocabularyRows { .. } => Some(0),
    }
}

/// Shape of the part of `param` that one of `shards` has.
pub fn shape(param: &ParamSpec, shards: usize) -> Vec<usize> {
    let mut shape = param.shape.clone();
    if let Some(dim) = split_dim(param) {
        shape[dim] /= shards;
    }
    shape
}

/// The boxes of `param` that the shards have, in their order; what is replicated is one box.
pub fn regions(param: &ParamSpec, shards: usize) -> impl Iterator<Item = Region> + use<> {
    let (extent, dim) = (shape(param, shards), split_dim(param));
    let number = if dim.is_some() { shards } else { 1 };
    (0..number).map(move |shard| {
        let mut region = Region::whole(&extent);
        if let Some(dim) = dim {
            region.start[dim] = shard * extent[dim];
        }
        region
    })
}
