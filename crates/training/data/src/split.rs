//! The part of a text that is held out, to measure on text that was never seen.

use philox::Permutation;

use crate::corpus::Corpus;
use crate::document::{Document, Rendered};

/// The split is the same for every run of a corpus, so that losses of different seeds compare.
const SPLIT_SEED: u64 = 0;

/// A text in two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split<T> {
    /// To train on.
    pub train: T,
    /// Never trained on. Empty only where nothing is to be held out, or the text cannot be parted.
    pub held_out: T,
}

/// Splits by whole documents, so that nothing held out has its beginning in the training text; a single document is cut
/// at the end of a line instead. At most `share` of the bytes are held out, or the shortest document if that is longer;
/// nothing where `share` is 0.
pub fn split(documents: Vec<Document>, share: f32) -> Split<Vec<Document>> {
    let documents: Vec<Document> = documents.into_iter().filter(|document| !document.text.is_empty()).collect();
    if let [document] = documents.as_slice() {
        return cut(document, share);
    }
    let lengths: Vec<usize> = documents.iter().map(|document| document.text.len()).collect();
    parted(documents, &lengths, share)
}

/// Splits by whole conversations: the same rule. A single one is trained on.
pub(crate) fn split_conversations(conversations: Vec<Rendered>, share: f32) -> Split<Vec<Rendered>> {
    if conversations.len() == 1 {
        return Split { train: conversations, held_out: vec![] };
    }
    let lengths: Vec<usize> = conversations.iter().map(|own| own.document.text.len()).collect();
    parted(conversations, &lengths, share)
}

fn parted<T>(items: Vec<T>, lengths: &[usize], share: f32) -> Split<Vec<T>> {
    let mut parts = Split { train: vec![], held_out: vec![] };
    for (item, out) in items.into_iter().zip(choose(lengths, share)) {
        let part = if out { &mut parts.held_out } else { &mut parts.train };
        part.push(item);
    }
    parts
}

/// Splits what has become tokens already: the same rule, with tokens for bytes; a single document is cut between two
/// tokens.
pub fn split_tokens(corpus: &Corpus, share: f32) -> Split<Corpus> {
    if corpus.num_documents() == 1 {
        let [train, held_out] = corpus.cut(kept(corpus.len(), share));
        return Split { train, held_out };
    }
    let lengths: Vec<usize> = (0..corpus.num_documents()).map(|index| corpus.document_len(index)).collect();
    let is_held_out = choose(&lengths, share);
    Split { train: corpus.select(|index| !is_held_out[index]), held_out: corpus.select(|index| is_held_out[index]) }
}

/// The part of `len` that is left where a share of it is held out.
fn kept(len: usize, share: f32) -> usize {
    (len as f64 * (1.0 - share_of(share))) as usize
}

/// The share as it was written: 0.1 in 32 bits is a little more than a tenth.
fn share_of(share: f32) -> f64 {
    share.to_string().parse().unwrap_or(f64::from(share))
}

fn choose(lengths: &[usize], share: f32) -> Vec<bool> {
    let mut is_held_out = vec![false; lengths.len()];
    if share == 0.0 || lengths.is_empty() {
        return is_held_out;
    }
    let limit = (lengths.iter().sum::<usize>() as f64 * share_of(share)) as usize;
    let order = Permutation::new(SPLIT_SEED, 0, lengths.len() as u64);
    let mut held_out = 0;
    for position in 0..order.len() {
        let index = order.get(position) as usize;
        if held_out + lengths[index] <= limit {
            held_out += lengths[index];
            is_held_out[index] = true;
        }
    }
    if held_out == 0 {
        let shortest = (0..lengths.len()).min_by_key(|index| lengths[*index]);
        shortest.into_iter().for_each(|index| is_held_out[index] = true);
    }
    is_held_out
}

fn cut(document: &Document, share: f32) -> Split<Vec<Document>> {
    if share == 0.0 {
        return Split { train: vec![document.clone()], held_out: vec![] };
    }
    let aim = kept(document.text.len(), share);
    let line_ends = document.text.match_indices('\n').map(|(index, _)| index + 1);
    let at = line_ends.filter(|end| *end < document.text.len()).min_by_key(|end| end.abs_diff(aim));
    let (head, tail) = document.text.split_at(at.unwrap_or(document.text.len()));
    let part = |text: &str| -> Vec<Document> {
        let document = Document { name: document.name.clone(), text: text.into() };
        if text.is_empty() { vec![] } else { vec![document] }
    };
    Split { train: part(head), held_out: part(tail) }
}
