//! Reads the tensors of a file of vectors by case and name.

use device::Dtype;
use safetensors::SafeTensors;

/// A file that is part of the test.
pub struct File(SafeTensors<'static>);

/// The tensors of one case.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    file: &'a File,
    name: &'a str,
}

impl File {
    pub fn open(bytes: &'static [u8]) -> File {
        File(SafeTensors::deserialize(bytes).expect("a file of tensors"))
    }

    pub fn case<'a>(&'a self, name: &'a str) -> Case<'a> {
        Case { file: self, name }
    }
}

impl Case<'_> {
    fn tensor(&self, name: &str, dtype: safetensors::Dtype) -> (Vec<usize>, &[u8]) {
        let name = format!("{}/{name}", self.name);
        let tensor = self.file.0.tensor(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(tensor.dtype(), dtype, "{name}");
        (tensor.shape().to_vec(), tensor.data())
    }

    /// Rows and columns; a vector is one row.
    pub fn shape(&self, name: &str, dtype: Dtype) -> (usize, usize) {
        let dtype = if dtype == Dtype::F32 { safetensors::Dtype::F32 } else { safetensors::Dtype::I32 };
        match self.tensor(name, dtype).0[..] {
            [rows, cols] => (rows, cols),
            ref other => (1, other.iter().product()),
        }
    }

    /// An input.
    pub fn floats(&self, name: &str) -> Vec<f32> {
        let (_, data) = self.tensor(name, safetensors::Dtype::F32);
        data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// Indices.
    pub fn ints(&self, name: &str) -> Vec<i32> {
        let (_, data) = self.tensor(name, safetensors::Dtype::I32);
        data.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect()
    }

    /// A result.
    pub fn doubles(&self, name: &str) -> Vec<f64> {
        let (_, data) = self.tensor(name, safetensors::Dtype::F64);
        data.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
    }

    /// An input in double precision.
    pub fn widened(&self, name: &str) -> Vec<f64> {
        self.floats(name).into_iter().map(f64::from).collect()
    }
}
