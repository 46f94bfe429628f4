//! Tensors in files, under the names that parameters are declared with.
//!
//! A [`TensorWriter`] takes boxes of global tensors in any order from any number of threads and leaves a whole file or
//! none; a [`TensorReader`] gives boxes back. Neither knows a layout: what one layout wrote, every other reads.

#![forbid(unsafe_code)]

mod error;
mod partial;
mod reader;
mod writer;

pub use error::FileError;
pub use reader::TensorReader;
pub use writer::{TensorEntry, TensorWriter};
