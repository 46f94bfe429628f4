//! Compressed files, and tables of parquet and Arrow, read in parts of bounded size.
//!
//! The readers of this crate hold one page of a parquet file, or a few blocks of an Arrow file, at a time: neither the
//! rows of a group nor those of a batch matter for memory. The file itself is a slice of bytes, which a caller maps. A
//! table is read for one column, of text or of tokens ([`Rows`]), or of nested values, which are read as JSON
//! ([`Nesting`]). All sizes that a file announces are compared with
//! limits before memory is taken, and what a file holds may be at most [`Growth::FACTOR`] times its own bytes.

#![deny(unsafe_code)]

pub mod arrow;
mod compressed;
mod error;
mod format;
mod growth;
mod json;
mod kinds;
pub mod parquet;
mod part;

pub use compressed::{Compression, Decompressed};
pub use error::{FormatError, Problem};
pub use format::Format;
pub use growth::Growth;
pub use kinds::{Cell, ColumnChoice, Nesting, Rows};
pub use part::Part;

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as formats;
#[cfg(test)]
mod tests;
