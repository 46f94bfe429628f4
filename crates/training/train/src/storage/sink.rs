//! Where pieces of global tensors go: storage for a run, a map in memory for tests.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::setup::source::{SourceError, TensorSource};
use config::ParamSpec;
use mesh::{Region, copy_runs};
use sync::{into_inner, lock};

/// Receives boxes of global tensors from all ranks. Over a whole delivery every element of every tensor comes once.
pub trait TensorSink: Sync {
    /// Takes `values`, row-major, of box `region` of `param`.
    fn put(&self, param: &ParamSpec, region: &Region, values: &[f32]);
}

/// Assembles whole tensors in memory.
#[derive(Debug, Default)]
pub struct TensorMap {
    tensors: Mutex<BTreeMap<String, Assembly>>,
}

/// One tensor with a count of the elements that have come.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembly {
    /// Global shape.
    pub shape: Vec<usize>,
    /// All elements, row-major.
    pub values: Vec<f32>,
    /// Elements received; equal to `values.len()` when the tensor is whole.
    pub received: usize,
}

impl TensorMap {
    /// Adds a whole tensor, row-major, in place of one of the same name.
    ///
    /// # Panics
    /// When `values` are not as many as `shape` says.
    pub fn insert(&mut self, name: &str, shape: &[usize], values: Vec<f32>) {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "elements of {name} {shape:?}");
        let assembly = Assembly { shape: shape.to_vec(), received: values.len(), values };
        lock(&self.tensors).insert(name.into(), assembly);
    }

    /// `reader`'s result for the tensor `name`, which may be there in part or not at all.
    pub fn read<R>(&self, name: &str, reader: impl FnOnce(Option<&Assembly>) -> R) -> R {
        reader(lock(&self.tensors).get(name))
    }

    /// The tensors by name.
    pub fn into_tensors(self) -> BTreeMap<String, Assembly> {
        into_inner(self.tensors)
    }
}

impl TensorSink for TensorMap {
    fn put(&self, param: &ParamSpec, region: &Region, values: &[f32]) {
        // A rank that panicked while it held the lock has already ended the run; its partial map is never read as
        // whole.
        let mut tensors = lock(&self.tensors);
        let assembly = tensors.entry(param.name.clone()).or_insert_with(|| Assembly {
            shape: param.shape.clone(),
            values: vec![f32::NAN; param.len()],
            received: 0,
        });
        for run in copy_runs(region, &Region::whole(&param.shape)) {
            assembly.values[run.target..run.target + run.len]
                .copy_from_slice(&values[run.source..run.source + run.len]);
        }
        assembly.received += values.len();
    }
}

/// Takes logits.
pub trait LogitsSink: Sync {
    /// `logits[R, V]`, row-major, of `R` tokens of sequence `sequence`, the first of which is `first_token`. Every row
    /// comes once, from the ranks' own threads.
    fn put(&self, sequence: u64, first_token: usize, logits: &[f32]);
}

/// Another run can start from the tensors that a run delivered.
impl TensorSource for TensorMap {
    fn get(&self, param: &ParamSpec, region: &Region, values: &mut [f32]) -> Result<(), SourceError> {
        self.read(&param.name, |assembly| {
            let assembly = assembly.ok_or_else(|| SourceError::Missing { name: param.name.clone() })?;
            check(param, assembly)?;
            for run in copy_runs(&Region::whole(&assembly.shape), region) {
                values[run.target..run.target + run.len]
                    .copy_from_slice(&assembly.values[run.source..run.source + run.len]);
            }
            Ok(())
        })
    }
}

fn check(param: &ParamSpec, assembly: &Assembly) -> Result<(), SourceError> {
    let name = || param.name.clone();
    let (received, len) = (assembly.received, assembly.values.len());
    if assembly.shape != param.shape {
        return Err(SourceError::Shape { name: name(), found: assembly.shape.clone(), expected: param.shape.clone() });
    }
    if received != len {
        return Err(SourceError::Partial { name: name(), received, len });
    }
    Ok(())
}
