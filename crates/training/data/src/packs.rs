//! Whole conversations in sequences: as many as fit, each of which sees itself only.
//!
//! Conversations are packed by best fit in descending order of length (Johnson 1973): each goes into the sequence with
//! the least room that is enough. Which share a sequence is a function of their lengths alone, so it is the same on all
//! ranks and in all runs of one length of sequences.

use std::collections::BTreeMap;

use config::{IGNORED_LABEL, LongConversations};

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::mixture::{MixturePart, Packing};

/// The conversations of each sequence of a corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packs {
    /// By sequence, ascending.
    documents: Vec<Vec<usize>>,
    left_out: LeftOut,
}

/// Conversations that sequences have not, or not whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Conversations in all.
    pub conversations: u64,
    /// Those without a token of an answer within a sequence, of which nothing is learned.
    pub without_answer: u64,
    /// Those that are in a sequence, and longer than it.
    pub cut: u64,
}

impl LeftOut {
    /// The sum of both.
    pub(crate) fn and(self, other: LeftOut) -> LeftOut {
        LeftOut {
            conversations: self.conversations + other.conversations,
            without_answer: self.without_answer + other.without_answer,
            cut: self.cut + other.cut,
        }
    }
}

impl Packs {
    /// Packs the conversations or rows of `ingredient` into sequences of `sequence_length` tokens; `None` where they
    /// are cut into windows. Those without a target are left out. `part` names the text in messages.
    ///
    /// # Errors
    /// A document that is too long, where `packing` refuses it, and documents of which nothing is learned.
    pub(crate) fn of(
        ingredient: &MixturePart,
        part: &'static str,
        sequence_length: usize,
        packing: Packing,
    ) -> Result<Option<Packs>, DataError> {
        if packing == Packing::Continuous {
            return Ok(None);
        }
        let corpus = &ingredient.corpus;
        let places = |document: usize| corpus.document_len(document) - 1;
        let too_long: Vec<usize> =
            (0..corpus.num_documents()).filter(|document| places(*document) > sequence_length).collect();
        if let Some(first) = too_long.first() {
            let (document, tokens, number) = (corpus.document_name(*first), places(*first) + 1, too_long.len());
            match packing {
                Packing::Continuous | Packing::Conversations(LongConversations::Cut) => {}
                Packing::Conversations(LongConversations::Refuse) => {
                    return Err(DataError::LongConversation { document, tokens, number, part, sequence_length });
                }
                Packing::Rows => {
                    let longest = too_long.iter().map(|document| places(*document) + 1).max().unwrap_or(tokens);
                    return Err(DataError::LongRow { document, tokens, number, longest, part, sequence_length });
                }
            }
        }
        let has_target =
            |document: &usize| corpus.document_answers(*document).skip(1).take(sequence_length).any(|answer| answer);
        let mut order: Vec<(usize, usize)> = (0..corpus.num_documents())
            .filter(has_target)
            .map(|document| (places(document).min(sequence_length), document))
            .collect();
        let left_out = LeftOut {
            conversations: corpus.num_documents() as u64,
            without_answer: (corpus.num_documents() - order.len()) as u64,
            cut: order.iter().filter(|(_, document)| places(*document) > sequence_length).count() as u64,
        };
        order.sort_by_key(|(length, document)| (std::cmp::Reverse(*length), *document));
        let mut documents: Vec<Vec<usize>> = vec![];
        // Sequences by the room that is left in them.
        let mut rooms: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (length, document) in order {
            let fitting = rooms.range(length..).next().map(|(room, _)| *room);
            let taken = fitting.and_then(|room| {
                let sequences = rooms.get_mut(&room)?;
                let sequence = sequences.pop()?;
                if sequences.is_empty() {
                    rooms.remove(&room);
                }
                Some((room, sequence))
            });
            let (room, sequence) = taken.unwrap_or_else(|| {
                documents.push(vec![]);
                (sequence_length, documents.len() - 1)
            });
            documents[sequence].push(document);
            if room > length {
                rooms.entry(room - length).or_default().push(sequence);
            }
        }
        if documents.is_empty() {
            let source_name = ingredient.name.clone();
            return Err(match packing {
                Packing::Rows => DataError::NoLabels { part, source_name },
                Packing::Continuous | Packing::Conversations(_) => {
                    DataError::NoAnswers { part, source_name, sequence_length }
                }
            });
        }
        documents.iter_mut().for_each(|own| own.sort_unstable());
        documents.sort_by_key(|own| own[0]);
        Ok(Some(Packs { documents, left_out }))
    }

    /// Conversations that the sequences have not, or not whole.
    pub(crate) fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Number of sequences.
    pub(crate) fn len(&self) -> usize {
        self.documents.len()
    }

    /// Fills sequence `number`: of each conversation the tokens but the last, which is a target only; as labels the
    /// next tokens, or [`IGNORED_LABEL`] where they are of no answer; positions and visible keys from the beginning of
    /// the conversation on. Places that are left have the token 0, no target, and see themselves.
    pub(crate) fn fill(
        &self,
        corpus: &Corpus,
        number: usize,
        tokens: &mut [i32],
        labels: &mut [i32],
        positions: &mut [i32],
        visible: &mut [i32],
    ) {
        let length = tokens.len();
        let mut place = 0;
        for document in &self.documents[number] {
            let first = place;
            // Tokens are below the vocabulary, which is below 2^31.
            let inputs = corpus.document_tokens(*document);
            let targets = corpus.document_tokens(*document).skip(1).zip(corpus.document_answers(*document).skip(1));
            for (input, (target, is_answer)) in inputs.zip(targets).take(length - first) {
                tokens[place] = input as i32;
                labels[place] = if is_answer { target as i32 } else { IGNORED_LABEL };
                positions[place] = (place - first) as i32;
                visible[2 * place..2 * place + 2].copy_from_slice(&[first as i32, place as i32 + 1]);
                place += 1;
            }
        }
        for place in place..length {
            (tokens[place], labels[place], positions[place]) = (0, IGNORED_LABEL, 0);
            visible[2 * place..2 * place + 2].copy_from_slice(&[place as i32, place as i32 + 1]);
        }
    }
}
