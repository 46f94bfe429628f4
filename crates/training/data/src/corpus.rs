//! Text as documents, and as rows of tokens.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3Default;

use crate::document::{Document, Rendered};
use crate::error::DataError;
use crate::learned_tokens::Learned;
use crate::tokenizer::Tokenizer;
use crate::tokens::{TokenType, Tokens};

/// Where documents have their names from.
#[derive(Clone, Debug)]
enum Names {
    /// One per document of the row.
    Given(Arc<[String]>),
    /// Documents of a token file have numbers, counted from 0.
    Numbers(PathBuf),
}

/// A document's tokens within the row, and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Extent {
    range: Range<usize>,
    number: usize,
}

/// Documents, one after another, as tokens: all documents of a row of tokens, or some of them.
#[derive(Clone, Debug)]
pub struct Corpus {
    tokens: Tokens,
    /// Whether each token of the row is of an answer; `None` where all are learned.
    answers: Option<Arc<[bool]>>,
    names: Names,
    extents: Vec<Extent>,
    /// Tokens of the corpus before each extent, and after the last.
    starts: Vec<usize>,
}

impl Corpus {
    /// The corpus of these documents, in their order; those without tokens are left out.
    ///
    /// # Errors
    /// The error of the tokenizer.
    pub fn new(documents: &[Document], tokenizer: &Tokenizer) -> Result<Corpus, DataError> {
        let token_type = TokenType::of_vocabulary(tokenizer.vocabulary());
        let (mut row, mut behind, mut ranges) = (Vec::new(), 0, Vec::new());
        for document in documents {
            let tokens = tokenizer.encode_marked(document)?;
            tokens.iter().for_each(|token| token_type.encode(*token, &mut row));
            ranges.push(behind..behind + tokens.len());
            behind += tokens.len();
        }
        let names = documents.iter().map(|document| document.name.clone());
        Ok(Corpus::of(Tokens::owned(row, token_type), None, Names::Given(names.collect()), ranges))
    }

    /// The corpus of these conversations, in their order, with the tokens of their answers.
    ///
    /// # Errors
    /// The error of the tokenizer.
    pub fn of_conversations(conversations: &[Rendered], tokenizer: &Tokenizer) -> Result<Corpus, DataError> {
        let token_type = TokenType::of_vocabulary(tokenizer.vocabulary());
        let (mut row, mut is_answer, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
        for Rendered { document, answers } in conversations {
            let (tokens, own) = tokenizer.encode_answers(document, answers)?;
            tokens.iter().for_each(|token| token_type.encode(*token, &mut row));
            ranges.push(is_answer.len()..is_answer.len() + tokens.len());
            is_answer.extend(own);
        }
        let names = conversations.iter().map(|own| own.document.name.clone());
        let tokens = Tokens::owned(row, token_type);
        Ok(Corpus::of(tokens, Some(is_answer.into()), Names::Given(names.collect()), ranges))
    }

    /// Documents of tokens with their names, and whether each token is learned.
    pub(crate) fn of_rows(rows: Vec<(String, Learned)>) -> Corpus {
        let (mut row, mut end, mut ranges, mut names) = (Vec::new(), 0, Vec::new(), Vec::new());
        let (mut is_learned, is_partly) = (Vec::new(), rows.iter().any(|(_, row)| row.learned.is_some()));
        for (name, Learned { tokens, learned }) in rows {
            tokens.iter().for_each(|token| TokenType::U32.encode(*token, &mut row));
            if is_partly {
                is_learned.extend(learned.unwrap_or_else(|| vec![true; tokens.len()]));
            }
            ranges.push(end..end + tokens.len());
            end += tokens.len();
            names.push(name);
        }
        let learned = is_partly.then(|| is_learned.into());
        Corpus::of(Tokens::owned(row, TokenType::U32), learned, Names::Given(names.into()), ranges)
    }

    /// The documents of the file `path`, at `ranges` of its tokens; those without tokens are left out.
    pub(crate) fn of_file(path: PathBuf, tokens: Tokens, ranges: Vec<Range<usize>>) -> Corpus {
        Corpus::of(tokens, None, Names::Numbers(path), ranges)
    }

    fn of(tokens: Tokens, answers: Option<Arc<[bool]>>, names: Names, ranges: Vec<Range<usize>>) -> Corpus {
        let extents = ranges.into_iter().enumerate().map(|(number, range)| Extent { range, number });
        let empty = Corpus { tokens, answers, names, extents: vec![], starts: vec![0] };
        empty.with(extents.filter(|extent| !extent.range.is_empty()).collect())
    }

    fn with(&self, extents: Vec<Extent>) -> Corpus {
        let mut starts = Vec::with_capacity(extents.len() + 1);
        let mut behind = 0;
        starts.push(0);
        for extent in &extents {
            behind += extent.range.len();
            starts.push(behind);
        }
        let (tokens, answers, names) = (self.tokens.clone(), self.answers.clone(), self.names.clone());
        Corpus { tokens, answers, names, extents, starts }
    }

    /// The documents whose place in this corpus `holds` for.
    pub fn select(&self, holds: impl Fn(usize) -> bool) -> Corpus {
        let extents = self.extents.iter().enumerate().filter(|(index, _)| holds(*index));
        self.with(extents.map(|(_, extent)| extent.clone()).collect())
    }

    /// The tokens before `at` and those from there on. A document in which `at` is is in both, in two parts.
    pub fn cut(&self, at: usize) -> [Corpus; 2] {
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        for (extent, start) in self.extents.iter().zip(&self.starts) {
            let middle = extent.range.start + at.saturating_sub(*start).min(extent.range.len());
            head.push(Extent { range: extent.range.start..middle, number: extent.number });
            tail.push(Extent { range: middle..extent.range.end, number: extent.number });
        }
        [head, tail].map(|mut part| {
            part.retain(|extent| !extent.range.is_empty());
            self.with(part)
        })
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of documents.
    pub fn num_documents(&self) -> usize {
        self.extents.len()
    }

    /// Number of tokens of document `index`.
    pub fn document_len(&self, index: usize) -> usize {
        self.extents[index].range.len()
    }

    /// Name of document `index`.
    pub fn document_name(&self, index: usize) -> String {
        let number = self.extents[index].number;
        match &self.names {
            Names::Given(names) => names[number].clone(),
            Names::Numbers(path) => format!("document {number} of {}", path.display()),
        }
    }

    /// The tokens of document `index`.
    pub fn document_tokens(&self, index: usize) -> impl Iterator<Item = i64> + '_ {
        self.tokens.iter(self.extents[index].range.clone())
    }

    /// Whether some of its tokens may not be learned.
    pub(crate) fn is_partly_learned(&self) -> bool {
        self.answers.is_some()
    }

    /// Whether each token of document `index` is of an answer: all, where everything is learned.
    pub fn document_answers(&self, index: usize) -> impl Iterator<Item = bool> + '_ {
        let mut tokens = self.extents[index].range.clone();
        std::iter::from_fn(move || {
            let token = tokens.next()?;
            Some(self.answers.as_ref().is_none_or(|answers| answers[token]))
        })
    }

    /// The document that token `index` belongs to; one binary search.
    pub fn document_of(&self, index: usize) -> usize {
        self.starts.partition_point(|start| *start <= index) - 1
    }

    /// The tokens of the corpus that document `index` has.
    pub fn document_range(&self, index: usize) -> Range<usize> {
        self.starts[index]..self.starts[index + 1]
    }

    /// Fills `tokens` with those from `start` on.
    ///
    /// # Panics
    /// Where the corpus ends earlier.
    pub fn read(&self, start: usize, tokens: &mut [i32]) {
        assert!(start + tokens.len() <= self.len(), "{} tokens from {start} of {}", tokens.len(), self.len());
        let mut filled = 0;
        let mut document = self.document_of(start);
        while filled < tokens.len() {
            let extent = &self.extents[document].range;
            let first = extent.start + (start + filled - self.starts[document]);
            let count = (extent.end - first).min(tokens.len() - filled);
            let places = tokens[filled..filled + count].iter_mut();
            for (place, token) in places.zip(self.tokens.iter(first..first + count)) {
                // Tokens are below the vocabulary, which is below 2^31.
                *place = token as i32;
            }
            filled += count;
            document += 1;
        }
    }

    /// Continues `hash` with the tokens of every document and where it ends. Names do not count, nor where tokens are
    /// stored.
    pub(crate) fn hash_into(&self, hash: &mut Xxh3Default) {
        hash.update(&(self.tokens.width_bytes() as u64).to_le_bytes());
        for Extent { range, .. } in &self.extents {
            hash.update(&(range.len() as u64).to_le_bytes());
            hash.update(self.tokens.bytes(range.clone()));
            if let Some(answers) = &self.answers {
                let bits: Vec<u8> = answers[range.clone()].iter().map(|answer| u8::from(*answer)).collect();
                hash.update(&bits);
            }
        }
    }

    /// The largest token; less than 0 without tokens.
    pub(crate) fn largest_token(&self) -> i64 {
        let largest = |extent: &Extent| self.tokens.iter(extent.range.clone()).max();
        self.extents.iter().filter_map(largest).max().unwrap_or(-1)
    }

    /// Whether a model of `vocabulary` tokens knows every token.
    ///
    /// # Errors
    /// The first token that it does not, with its document and offset, and the largest one.
    pub fn check_vocabulary(&self, vocabulary: usize) -> Result<(), DataError> {
        for (index, extent) in self.extents.iter().enumerate() {
            if let Some((at, token)) = self.tokens.first_outside(extent.range.clone(), vocabulary) {
                let (document, offset) = (self.document_name(index), at - extent.range.start);
                let place = match &self.names {
                    Names::Given(_) => format!("token {offset} of {document}"),
                    Names::Numbers(_) => {
                        format!("token {offset} of {document} (byte {})", self.tokens.offset_bytes(at))
                    }
                };
                return Err(DataError::outside_vocabulary(token, place, vocabulary).up_to(self.largest_token()));
            }
        }
        Ok(())
    }
}

impl PartialEq for Corpus {
    /// Whether they have the same documents with the same tokens, wherever these are stored.
    fn eq(&self, other: &Corpus) -> bool {
        self.starts == other.starts
            && (0..self.num_documents()).all(|index| {
                self.document_name(index) == other.document_name(index)
                    && self.document_tokens(index).eq(other.document_tokens(index))
                    && self.document_answers(index).eq(other.document_answers(index))
            })
    }
}
