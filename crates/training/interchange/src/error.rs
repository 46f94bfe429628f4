//! Why a folder of another program cannot be used.

use std::path::PathBuf;

use checkpoint::FileError;

/// An error of a folder, or of a model to export.
#[derive(Debug, thiserror::Error)]
pub enum InterchangeError {
    /// A file of text cannot be read.
    #[error("{} cannot be read: {reason}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// A file of text cannot be written.
    #[error("{} cannot be written: {reason}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// A file that is not JSON, or lacks a required key.
    #[error("{}: {reason}", .path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A value of the configuration that means something that is not built here.
    #[error("{}: {key} = {value} {rule}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// Error and remedy.
        rule: String,
    },
    /// Weights in a form that runs code when it is read.
    #[error(
        "{}: {file} is pickled, which is not read; use model.safetensors, as save_pretrained of the library writes it",
        .folder.display()
    )]
    Pickled {
        /// The folder.
        folder: PathBuf,
        /// The file.
        file: String,
    },
    /// An index that names a file outside of its folder.
    #[error("{INDEX}: {0}", INDEX = crate::file_names::INDEX)]
    Outside(#[from] files::PathError),
    /// The folder lacks a tensor.
    #[error("{}: there is no tensor {tensor}, which {parameter} is read from", .folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
        /// The parameter.
        parameter: String,
    },
    /// The folder has a tensor that the model does not read.
    #[error("{}: there is a tensor {tensor}, which the model of config.json does not have", .folder.display())]
    Extra {
        /// The folder.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// An output matrix next to the token table that the configuration says it is, and is not.
    #[error(
        "{}: tensor {output} is not {table}: row {row} differs. tie_word_embeddings = true in config.json says that they are one; \
         use false to read both",
        .folder.display()
    )]
    NotTied {
        /// The folder.
        folder: PathBuf,
        /// The output matrix.
        output: String,
        /// The token table.
        table: String,
        /// A row with other numbers.
        row: usize,
    },
    /// A tensor has another shape than the configuration says.
    #[error("{}: tensor {tensor} is {found:?}, and {expected:?} by config.json", .folder.display())]
    Shape {
        /// The folder.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the model has.
        expected: Vec<usize>,
    },
    /// A file of tensors cannot be used.
    #[error(transparent)]
    Tensors(#[from] FileError),
    /// A weight that half precision does not reach.
    #[error("{parameter} has the value {value:e}, and the largest value of fp16 is 65504; use bf16 or fp32")]
    TooLarge {
        /// The parameter.
        parameter: String,
        /// Its value.
        value: f32,
    },
    /// Adapters of a model without any.
    #[error("the run has no adapters: it was trained without model.lora; leave --as adapters out for the whole model")]
    NoAdapters,
    /// No class of the library has this model.
    #[error("no Hugging Face class has this model: {reason}")]
    NoFamily {
        /// Which came nearest, and what it lacks.
        reason: String,
    },
}
