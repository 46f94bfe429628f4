//! A folder of the Hugging Face library, open for reading. Only headers and requested tensors are read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use checkpoint::TensorReader;
use config::{ModelSpec, ParamSpec, Unit, all_params, params};
use files::{InputError, InputKind, read_text};
use mesh::{CopyRun, Region, copy_runs};
use serde_json::{Map, Value};

use crate::adapters::{ADAPTER_CONFIG, ADAPTER_TENSORS};
use crate::error::InterchangeError;
use crate::family::Family;
use crate::fields::Fields;
use crate::file_names::INDEX;
use crate::names::{Copies, copies, stored_rows};
use crate::shards;
use crate::stacks::matrices;
use crate::stored_rows::{Orientation, StoredRows, transposed};

pub use crate::file_names::{CONFIG, TENSORS};

/// The tensors of a tensor-parallel shard, counted from 0, where there are several.
fn shard_file(shard: usize) -> String {
    format!("model_part-{shard}.safetensors")
}

/// Whether a file of this name in a folder holds weights of the library or their description: a file of tensors or a
/// part of one, an index, `config.json`, and those of adapters.
pub fn is_exported(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let part = name.strip_suffix(".safetensors").unwrap_or_default();
    let numbers = part.strip_prefix("model-").and_then(|numbers| numbers.split_once("-of-"));
    let is_part = numbers.is_some_and(|(number, of)| digits(number) && digits(of));
    let is_shard = part.strip_prefix("model_part-").is_some_and(digits);
    is_part || is_shard || [CONFIG, TENSORS, INDEX, ADAPTER_CONFIG, ADAPTER_TENSORS].contains(&name)
}

/// Files of older folders in place of [`TENSORS`] and [`INDEX`].
const PICKLED: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Rows of two matrices that are compared at once.
const COMPARED_ROWS: usize = 256;

/// An open folder, all of whose tensors are there and have the shapes of its model.
#[derive(Debug)]
pub struct HuggingFaceFolder {
    path: PathBuf,
    /// The class of its model.
    pub family: Family,
    pub model: ModelSpec,
    files: Vec<TensorReader>,
    /// By short name, the number of the file and the name there: of each shard.
    shards: Vec<BTreeMap<String, (usize, String)>>,
}

impl HuggingFaceFolder {
    /// Opens the folder and holds its tensors against its configuration.
    ///
    /// # Errors
    /// A model that is not built here; files that cannot be read; a tensor that is missing, left over, or of another
    /// shape.
    pub fn open(path: &Path) -> Result<HuggingFaceFolder, InterchangeError> {
        let file = path.join(CONFIG);
        let map = read_object(&file)?;
        let fields = Fields { path: &file, map: &map };
        let family = Family::of(&fields)?;
        let model = family.read(&fields)?;
        let (mut files, mut shards) = (vec![], vec![]);
        for ShardFiles { names, place } in files_of_shards(path)? {
            let mut tensors = BTreeMap::new();
            for name in names {
                let file = TensorReader::open(&files::within(path, &name)?)?;
                // Of a tensor that is in several files, the index says which one counts.
                let own = file.names().filter(|tensor| place.get(*tensor).is_none_or(|place| *place == name));
                let entry = |name: &str| (family.short_name(name).to_string(), (files.len(), name.to_string()));
                tensors.extend(own.map(entry));
                files.push(file);
            }
            shards.push(tensors);
        }
        let folder = HuggingFaceFolder { path: path.to_path_buf(), family, model, files, shards };
        folder.shards.iter().try_for_each(|tensors| folder.check(tensors))?;
        Ok(folder)
    }

    /// The files of its weights.
    pub fn weight_files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(TensorReader::path)
    }

    /// Holds the tensors of a shard against the model.
    fn check(&self, tensors: &BTreeMap<String, (usize, String)>) -> Result<(), InterchangeError> {
        let mut read = BTreeSet::new();
        for param in all_params(&self.model).flat_map(|param| matrices(&param)).map(|matrix| matrix.param) {
            let missing = |tensor: String| InterchangeError::Missing {
                folder: self.path.clone(),
                tensor: self.family.full_name(&tensor),
                parameter: param.name.clone(),
            };
            let stored_rows = self.stored_rows(&param).ok_or_else(|| missing(param.name.clone()))?;
            let (number, name) = tensors.get(&stored_rows.tensor).ok_or_else(|| missing(stored_rows.tensor.clone()))?;
            let found = self.files[*number].shape(name).unwrap_or_default();
            if found != stored_rows.shape {
                let (folder, tensor) = (self.path.clone(), name.clone());
                return Err(InterchangeError::Shape {
                    folder,
                    tensor,
                    found: found.to_vec(),
                    expected: stored_rows.shape,
                });
            }
            read.insert(stored_rows.tensor);
        }
        self.check_tied(tensors)?;
        let left_over = tensors.iter().find(|(short, _)| !read.contains(*short) && !self.is_beside_weights(short));
        match left_over {
            None => Ok(()),
            Some((_, (_, tensor))) => {
                Err(InterchangeError::Extra { folder: self.path.clone(), tensor: tensor.clone() })
            }
        }
    }

    /// Holds an output matrix that is next to a tied table against it, row by row.
    fn check_tied(&self, tensors: &BTreeMap<String, (usize, String)>) -> Result<(), InterchangeError> {
        let output = tensors.iter().find(|(short, _)| self.family.is_output(short));
        let tables = params(&self.model, Unit::Table);
        let (true, Some((_, (output_file, output))), [table]) = (self.model.tied_embeddings, output, tables.as_slice())
        else {
            return Ok(());
        };
        let table = self.stored_rows(table).and_then(|stored_rows| tensors.get(&stored_rows.tensor));
        let Some((table_file, table)) = table else { return Ok(()) };
        let (output_file, table_file) = (&self.files[*output_file], &self.files[*table_file]);
        let [found, expected] = [(output_file, output), (table_file, table)]
            .map(|(file, name)| file.shape(name).unwrap_or_default().to_vec());
        let folder = self.path.clone();
        if found != expected {
            return Err(InterchangeError::Shape { folder, tensor: output.clone(), found, expected });
        }
        let [rows, cols] = found[..] else { return Ok(()) };
        for row in (0..rows).step_by(COMPARED_ROWS) {
            let region = Region { start: vec![row, 0], extent: vec![COMPARED_ROWS.min(rows - row), cols] };
            let [mut one, mut other] = [(); 2].map(|()| vec![0.0; region.len()]);
            output_file.get(output, &region, &mut one)?;
            table_file.get(table, &region, &mut other)?;
            let differs = |(one, other): (&f32, &f32)| one.to_bits() != other.to_bits();
            if let Some(at) = one.iter().zip(&other).position(differs) {
                let (output, table, row) = (output.clone(), table.clone(), row + at / cols);
                return Err(InterchangeError::NotTied { folder, output, table, row });
            }
        }
        Ok(())
    }

    fn is_beside_weights(&self, short: &str) -> bool {
        self.family.is_beside_weights(short) || self.family.is_beside_weights(&format!(".{short}"))
    }

    fn stored_rows(&self, param: &ParamSpec) -> Option<StoredRows> {
        stored_rows(self.family.facts().names, &self.model, param, self.shards.len())
    }

    /// Assigns all of `values`, row-major: box `region` of `param`.
    ///
    /// # Errors
    /// A tensor that the folder does not have, or a file that cannot be read.
    pub fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), InterchangeError> {
        let mut rest = values;
        for matrix in matrices(param) {
            let Some(part) = matrix.part_of(region) else { continue };
            let (own, others) = rest.split_at_mut(part.len());
            self.get_matrix(&matrix.param, &part, own)?;
            rest = others;
        }
        Ok(())
    }

    /// The same of a parameter that is not a stack.
    fn get_matrix(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), InterchangeError> {
        let copies = copies(self.family.facts().copies, param);
        if shards::is_replicated(param) && copies != Copies::First {
            return self.get_of_copies(param, copies, region, values);
        }
        for (held, tensors) in shards::regions(param, self.shards.len()).zip(&self.shards) {
            let Some(common) = region.intersect(&held) else { continue };
            if common == *region {
                return self.get_of_shard(param, tensors, &inside(&common, &held), values);
            }
            let mut part = vec![0.0; common.len()];
            self.get_of_shard(param, tensors, &inside(&common, &held), &mut part)?;
            for CopyRun { source, target, len } in copy_runs(&common, region) {
                values[target..target + len].copy_from_slice(&part[source..source + len]);
            }
        }
        Ok(())
    }

    /// Box `region` of what all shards have copies of.
    fn get_of_copies(
        &self,
        param: &ParamSpec,
        copies: Copies,
        region: &Region,
        values: &mut [f32],
    ) -> Result<(), InterchangeError> {
        values.fill(0.0);
        let share = match copies {
            Copies::First | Copies::Sum => 1.0,
            Copies::Mean => 1.0 / self.shards.len() as f32,
        };
        let mut copy = vec![0.0; values.len()];
        for tensors in &self.shards {
            self.get_of_shard(param, tensors, region, &mut copy)?;
            values.iter_mut().zip(&copy).for_each(|(value, copy)| *value += share * copy);
        }
        Ok(())
    }

    /// Box `region` of the part of `param` that a shard has.
    fn get_of_shard(
        &self,
        param: &ParamSpec,
        tensors: &BTreeMap<String, (usize, String)>,
        region: &Region,
        values: &mut [f32],
    ) -> Result<(), InterchangeError> {
        let found = self.stored_rows(param).and_then(|stored_rows| {
            let (number, name) = tensors.get(&stored_rows.tensor)?;
            Some((stored_rows, &self.files[*number], name))
        });
        let Some((stored_rows, file, name)) = found else {
            let (folder, tensor) = (self.path.clone(), param.name.clone());
            return Err(InterchangeError::Missing { folder, tensor, parameter: param.name.clone() });
        };
        let cols: usize = region.extent[1..].iter().product();
        for run in stored_rows.runs(region) {
            let values = &mut values[run.offset * cols..(run.offset + run.len) * cols];
            file.get(name, &run.stored, values)?;
            if stored_rows.orientation == Orientation::InputsFirst && region.ndim() == 2 {
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

/// `region`, which is in `outer`, counted from its corner.
fn inside(region: &Region, outer: &Region) -> Region {
    let start = region.start.iter().zip(&outer.start).map(|(start, corner)| start - corner).collect();
    Region { start, extent: region.extent.clone() }
}

/// The files of tensors of a shard.
struct ShardFiles {
    names: BTreeSet<String>,
    /// By full name, the file of a tensor where an index says it.
    place: BTreeMap<String, String>,
}

impl ShardFiles {
    fn one(name: String) -> ShardFiles {
        ShardFiles { names: BTreeSet::from([name]), place: BTreeMap::new() }
    }
}

/// The files of tensors of each shard.
fn files_of_shards(path: &Path) -> Result<Vec<ShardFiles>, InterchangeError> {
    let shards: Vec<_> = (0..).map(shard_file).take_while(|name| path.join(name).exists()).collect();
    if shards.is_empty() {
        return Ok(vec![files_of(path)?]);
    }
    Ok(shards.into_iter().map(ShardFiles::one).collect())
}

/// The files of tensors of a folder in one piece: those of the index, or the only one.
fn files_of(path: &Path) -> Result<ShardFiles, InterchangeError> {
    let index = path.join(INDEX);
    let is_there = |file: &str| path.join(file).exists();
    if is_there(TENSORS) || !is_there(INDEX) {
        let pickled = PICKLED.into_iter().find(|file| !is_there(TENSORS) && is_there(file));
        return match pickled {
            Some(file) => Err(InterchangeError::Pickled { folder: path.to_path_buf(), file: file.into() }),
            None => Ok(ShardFiles::one(TENSORS.to_string())),
        };
    }
    let map = read_object(&index)?;
    let files = map.get("weight_map").and_then(Value::as_object);
    let files = files.ok_or_else(|| InterchangeError::Json { path: index, reason: "there is no weight_map".into() })?;
    let entry = |(tensor, file): (&String, &Value)| Some((tensor.clone(), file.as_str()?.to_string()));
    let place: BTreeMap<String, String> = files.iter().filter_map(entry).collect();
    Ok(ShardFiles { names: place.values().cloned().collect(), place })
}

pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>, InterchangeError> {
    let unreadable = |error: InputError| InterchangeError::Read { path: path.to_path_buf(), reason: error.into() };
    let text = read_text(path, InputKind::ModelDescription).map_err(unreadable)?;
    serde_json::from_str(&text)
        .map_err(|error| InterchangeError::Json { path: path.to_path_buf(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_export_are_known_by_their_names() {
        let exported =
            ["config.json", "model.safetensors", "model.safetensors.index.json", "model-00003-of-00003.safetensors"];
        let of_others = ["model_part-1.safetensors", "adapter_config.json", "adapter_model.safetensors"];
        assert!(exported.iter().chain(&of_others).all(|name| is_exported(name)));
        let kept =
            ["README.md", "model-a-of-b.safetensors", "model-1.safetensors", "weights.safetensors", "run.toml", ""];
        assert!(!kept.iter().any(|name| is_exported(name)));
    }
}
