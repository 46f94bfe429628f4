//! The section `[data]`.

use super::reader::{Choices, Reader, name_of};
use super::writer::Writer;
use crate::data_spec::{DataSpec, Tokenizer};

const TOKENIZERS: &Choices<Tokenizer> = &[("bytes", Tokenizer::Bytes)];

/// Reads the section.
pub fn read(reader: &mut Reader) -> DataSpec {
    DataSpec {
        path: reader.optional_text("data.path").map(Into::into),
        tokenizer: reader.choice("data.tokenizer", TOKENIZERS, Tokenizer::Bytes),
    }
}

/// Writes the section; without a path the embedded corpus is meant.
pub fn write(data: &DataSpec, writer: &mut Writer) {
    writer.section("data");
    if let Some(path) = &data.path {
        writer.text("path", &path.to_string_lossy());
    }
    writer.text("tokenizer", name_of(TOKENIZERS, data.tokenizer));
}
