//! A folder of the Hugging Face library, open for reading. Nothing but what is asked for is read, beside headers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use checkpoint::TensorReader;
use mesh::Region;
use serde_json::{Map, Value};
use spec::{ModelSpec, ParamSpec, all_params};

use crate::config;
use crate::error::InterchangeError;
use crate::family::Family;
use crate::fields::Fields;
use crate::names::place;
use crate::place::{Orientation, transposed};

/// The configuration of a folder.
pub const CONFIG: &str = "config.json";
/// Its tensors, in one file.
pub const TENSORS: &str = "model.safetensors";
/// The file of each tensor, where there are several.
const INDEX: &str = "model.safetensors.index.json";

/// An open folder, all of whose tensors are there and have the shapes of its model.
#[derive(Debug)]
pub struct HuggingFaceFolder {
    path: PathBuf,
    /// The class of its model.
    pub family: Family,
    /// Its model.
    pub model: ModelSpec,
    files: Vec<TensorReader>,
    /// By short name, the number of the file and the name there.
    tensors: BTreeMap<String, (usize, String)>,
}

impl HuggingFaceFolder {
    /// Opens the folder and holds its tensors against its configuration.
    ///
    /// # Errors
    /// A model that is not built here; files that cannot be read; a tensor that is missing, left over, or of another shape.
    pub fn open(path: &Path) -> Result<HuggingFaceFolder, InterchangeError> {
        let file = path.join(CONFIG);
        let map = read_object(&file)?;
        let fields = Fields { path: &file, map: &map };
        let family = config::family(&fields)?;
        let model = config::read(family, &fields)?;
        let mut files = vec![];
        for name in files_of(path)? {
            files.push(TensorReader::open(&path.join(name))?);
        }
        let mut tensors = BTreeMap::new();
        for (number, file) in files.iter().enumerate() {
            let named = file.names().map(|name| (family.short_name(name).to_string(), (number, name.to_string())));
            tensors.extend(named);
        }
        let folder = HuggingFaceFolder { path: path.to_path_buf(), family, model, files, tensors };
        folder.check()?;
        Ok(folder)
    }

    fn check(&self) -> Result<(), InterchangeError> {
        let mut read = BTreeSet::new();
        for param in all_params(&self.model) {
            let missing = |tensor: String| InterchangeError::Missing {
                folder: self.path.clone(),
                tensor: self.family.full_name(&tensor),
                parameter: param.name.clone(),
            };
            let place = place(self.family, &self.model, &param).ok_or_else(|| missing(param.name.clone()))?;
            let (number, name) = self.tensors.get(&place.tensor).ok_or_else(|| missing(place.tensor.clone()))?;
            let found = self.files[*number].shape(name).unwrap_or_default();
            if found != place.shape {
                let (folder, tensor) = (self.path.clone(), name.clone());
                return Err(InterchangeError::Shape { folder, tensor, found: found.to_vec(), expected: place.shape });
            }
            read.insert(place.tensor);
        }
        let left_over = self.tensors.iter().find(|(short, _)| !read.contains(*short) && !self.is_beside_weights(short));
        match left_over {
            None => Ok(()),
            Some((_, (_, tensor))) => {
                Err(InterchangeError::Extra { folder: self.path.clone(), tensor: tensor.clone() })
            }
        }
    }

    fn is_beside_weights(&self, short: &str) -> bool {
        self.family.is_beside_weights(short) || self.family.is_beside_weights(&format!(".{short}"))
    }

    /// Assigns all of `values`, row-major: box `region` of `param`.
    ///
    /// # Errors
    /// A tensor that the folder does not have, or a file that cannot be read.
    pub fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), InterchangeError> {
        let found = place(self.family, &self.model, param).and_then(|place| {
            let (number, name) = self.tensors.get(&place.tensor)?;
            Some((place, &self.files[*number], name))
        });
        let Some((place, file, name)) = found else {
            let (folder, tensor) = (self.path.clone(), param.name.clone());
            return Err(InterchangeError::Missing { folder, tensor, parameter: param.name.clone() });
        };
        let cols: usize = region.extent[1..].iter().product();
        for run in place.runs(region) {
            let values = &mut values[run.offset * cols..(run.offset + run.len) * cols];
            file.get(name, &run.stored, values)?;
            if place.orientation == Orientation::InputsFirst && region.ndim() == 2 {
                values.copy_from_slice(&transposed(values, cols, run.len));
            }
        }
        Ok(())
    }

    /// Bytes that were read of all files so far, their headers among them.
    pub fn read_bytes(&self) -> u64 {
        self.files.iter().map(TensorReader::read_bytes).sum()
    }
}

/// The files of tensors: that of the index, or the only one.
fn files_of(path: &Path) -> Result<BTreeSet<String>, InterchangeError> {
    let index = path.join(INDEX);
    if path.join(TENSORS).exists() || !index.exists() {
        return Ok(BTreeSet::from([TENSORS.to_string()]));
    }
    let map = read_object(&index)?;
    let files = map.get("weight_map").and_then(Value::as_object);
    let files = files.ok_or_else(|| InterchangeError::Json { path: index, reason: "there is no weight_map".into() })?;
    Ok(files.values().filter_map(Value::as_str).map(str::to_string).collect())
}

fn read_object(path: &Path) -> Result<Map<String, Value>, InterchangeError> {
    let text =
        std::fs::read_to_string(path).map_err(|reason| InterchangeError::Read { path: path.to_path_buf(), reason })?;
    serde_json::from_str(&text)
        .map_err(|error| InterchangeError::Json { path: path.to_path_buf(), reason: error.to_string() })
}
