//! Files as the ends of a delivery: weights of a run under the names that parameters are declared with.

use std::path::Path;

use checkpoint::{FileError, TensorEntry, TensorReader, TensorWriter};
use config::{ModelSpec, ParamSpec, all_params, router_corrections};
use mesh::Region;

use crate::setup::source::{SourceError, TensorSource};
use crate::storage::sink::TensorSink;

/// A file for every parameter of `model`, whole or not at all.
///
/// # Errors
/// A folder that cannot be written.
pub fn weights_writer(model: &ModelSpec, path: &Path) -> Result<TensorWriter, FileError> {
    let entry = |param: ParamSpec| TensorEntry { name: param.name, shape: param.shape };
    let entries: Vec<TensorEntry> = all_params(model).chain(router_corrections(model)).map(entry).collect();
    TensorWriter::create(path, &entries)
}

impl TensorSink for TensorWriter {
    fn put(&self, param: &ParamSpec, region: &Region, values: &[f32]) {
        TensorWriter::put(self, &param.name, region, values);
    }
}

impl TensorSource for TensorReader {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        let name = || param.name.clone();
        let found = self.shape(&param.name).ok_or_else(|| SourceError::Missing { name: name() })?;
        if found != param.shape {
            return Err(SourceError::Shape { name: name(), found: found.to_vec(), expected: param.shape.clone() });
        }
        TensorReader::get(self, &param.name, region, values)
            .map_err(|error| SourceError::Read { name: name(), cause: error.to_string() })
    }
}
