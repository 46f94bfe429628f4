//! The part of a corpus that is held out, to measure on text that was never seen.

use philox::Permutation;

use crate::corpus::{Corpus, Document};

/// Share of the text that is held out, at most.
const HELD_OUT_SHARE: f64 = 0.1;
/// The split is the same for every run of a corpus, so that losses of different seeds compare.
const SPLIT_SEED: u64 = 0;

/// A corpus in two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// To train on.
    pub train: Corpus,
    /// Never trained on. Empty only where the corpus is a single line.
    pub held_out: Corpus,
}

/// Splits by whole documents, so that nothing held out has its beginning in the training text; a corpus of one document is cut at the end of a
/// line instead. At most a tenth is held out, or the shortest document if that is longer than a tenth.
pub fn split(documents: Vec<Document>) -> Split {
    let documents: Vec<Document> = documents.into_iter().filter(|document| !document.text.is_empty()).collect();
    if let [document] = documents.as_slice() {
        return cut(document);
    }
    let limit = (documents.iter().map(|document| document.text.len()).sum::<usize>() as f64 * HELD_OUT_SHARE) as usize;
    let is_held_out = choose(&documents, limit);
    let (mut train, mut held_out) = (Vec::new(), Vec::new());
    for (document, out) in documents.into_iter().zip(is_held_out) {
        if out { held_out.push(document) } else { train.push(document) }
    }
    Split { train: Corpus::new(train), held_out: Corpus::new(held_out) }
}

fn choose(documents: &[Document], limit: usize) -> Vec<bool> {
    let mut is_held_out = vec![false; documents.len()];
    let order = Permutation::new(SPLIT_SEED, 0, documents.len() as u64);
    let mut held_out = 0;
    for position in 0..order.len() {
        let index = order.get(position) as usize;
        let len = documents[index].text.len();
        if held_out + len <= limit {
            held_out += len;
            is_held_out[index] = true;
        }
    }
    if held_out == 0 {
        let shortest = (0..documents.len()).min_by_key(|index| documents[*index].text.len());
        shortest.into_iter().for_each(|index| is_held_out[index] = true);
    }
    is_held_out
}

fn cut(document: &Document) -> Split {
    let aim = (document.text.len() as f64 * (1.0 - HELD_OUT_SHARE)) as usize;
    let line_ends = document.text.match_indices('\n').map(|(index, _)| index + 1);
    let at = line_ends.filter(|end| *end < document.text.len()).min_by_key(|end| end.abs_diff(aim));
    let (head, tail) = document.text.split_at(at.unwrap_or(document.text.len()));
    let part = |text: &str| Corpus::new([Document { name: document.name.clone(), text: text.into() }]);
    Split { train: part(head), held_out: part(tail) }
}
