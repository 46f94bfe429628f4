//! A tokenizer that is trained on sources as they are read, in memory for their different words.

use config::{OddFiles, SourceSpec};
use formats::Cell;

use super::{Input, inputs};
use crate::error::DataError;
use crate::long_runs;
use crate::odd_files::OddFilesRule;
use crate::records::{Record, Records};
use crate::tokenizer::Tokenizer;

/// A byte-level byte-pair encoding of `vocabulary` tokens, trained on the text of `sources`: the same as
/// [`Tokenizer::train`] gives for their documents, without the files that `odd_files` leaves out. The sources are read
/// twice, so they must be files.
///
/// # Errors
/// A source that cannot be read, has no text or has a column of tokens, and what the library says.
pub fn train(sources: &[SourceSpec], odd_files: OddFiles, vocabulary: usize) -> Result<Tokenizer, DataError> {
    // They are reported where the text is tokenized.
    let inputs = inputs(sources, &OddFilesRule { odd_files, skipped: &|_| {} })?;
    let mut bytes = 0;
    let mut texts = Texts::new(&inputs, vocabulary);
    while let Some(text) = texts.next_text()? {
        bytes += text.len();
    }
    let mut texts = Texts::new(&inputs, vocabulary);
    let mut failure = None;
    let read = std::iter::from_fn(|| match texts.next_text() {
        Ok(text) => text,
        Err(error) => {
            failure = Some(error);
            None
        }
    });
    let parts = read.flat_map(|text| long_runs::parts(&text).into_iter().map(str::to_string).collect::<Vec<_>>());
    let trained = Tokenizer::train_on(parts, bytes, vocabulary);
    failure.map_or(trained, Err)
}

/// The text of inputs, record after record.
struct Texts<'a> {
    inputs: std::slice::Iter<'a, Input>,
    open: Option<Records>,
    /// Of the tokenizer that is to be trained.
    vocabulary: usize,
}

impl<'a> Texts<'a> {
    fn new(inputs: &'a [Input], vocabulary: usize) -> Texts<'a> {
        Texts { inputs: inputs.iter(), open: None, vocabulary }
    }

    fn next_text(&mut self) -> Result<Option<String>, DataError> {
        loop {
            if let Some(records) = &mut self.open {
                match records.next_record()? {
                    Some(Record { content: Cell::Text(text), .. }) => return Ok(Some(text)),
                    Some(Record { content: Cell::Tokens(_), name, .. }) => {
                        return Err(DataError::TokensWithoutTokenizer { place: name, vocabulary: self.vocabulary });
                    }
                    None => self.open = None,
                }
            }
            match self.inputs.next() {
                Some(Input::Records(path, column)) => self.open = Some(Records::open(path, column.as_deref())?),
                Some(Input::TokenFile(_) | Input::Pair(_)) => {}
                None => return Ok(None),
            }
        }
    }
}
