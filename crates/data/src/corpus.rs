//! Text as documents, and as one row of tokens.

use std::ops::Range;

use crate::error::DataError;

/// One text with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Name for messages: a path.
    pub name: String,
    /// The text.
    pub text: String,
}

/// Documents, one after another, as tokens. A token is a byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corpus {
    tokens: Vec<u8>,
    documents: Vec<(String, Range<usize>)>,
}

impl Corpus {
    /// The corpus of these documents, in their order; those without text are left out.
    pub fn new(documents: impl IntoIterator<Item = Document>) -> Corpus {
        let mut corpus = Corpus::default();
        for document in documents.into_iter().filter(|document| !document.text.is_empty()) {
            let start = corpus.tokens.len();
            corpus.tokens.extend_from_slice(document.text.as_bytes());
            corpus.documents.push((document.name, start..corpus.tokens.len()));
        }
        corpus
    }

    /// All tokens.
    pub fn tokens(&self) -> &[u8] {
        &self.tokens
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Names of the documents and where their tokens are, in order.
    pub fn documents(&self) -> &[(String, Range<usize>)] {
        &self.documents
    }

    /// The document that token `index` belongs to, and its offset there.
    pub fn locate(&self, index: usize) -> Option<(&str, usize)> {
        let document = self.documents.partition_point(|(_, range)| range.end <= index);
        let (name, range) = self.documents.get(document)?;
        Some((name, index.checked_sub(range.start)?))
    }

    /// Whether a model of `vocabulary` tokens knows every token.
    ///
    /// # Errors
    /// The first token that it does not, with its document and offset.
    pub fn check_vocabulary(&self, vocabulary: usize) -> Result<(), DataError> {
        let Some(index) = self.tokens.iter().position(|token| usize::from(*token) >= vocabulary) else { return Ok(()) };
        let (document, offset) = self.locate(index).unwrap_or(("the corpus", index));
        let token = usize::from(self.tokens[index]);
        Err(DataError::OutsideVocabulary { token, document: document.into(), offset, vocabulary })
    }
}
