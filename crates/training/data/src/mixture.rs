//! Several corpora from which the sequences of a run are taken in proportion to weights.

use config::{LongConversations, Positions, Visible};

use crate::corpus::Corpus;

/// A corpus of a mixture, with its weight.
#[derive(Clone, Debug)]
pub struct MixturePart {
    /// Its name in messages, after "text"; empty where it is the only one.
    pub name: String,
    /// The text.
    pub corpus: Corpus,
    /// Its sequences are in proportion to this; positive.
    pub weight: f32,
}

/// How documents become sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// One after the other without a gap, cut where a sequence ends.
    Continuous,
    /// Several whole conversations in a sequence, of which only answers are learned.
    Conversations(LongConversations),
    /// Several whole rows of tokens in a sequence, of which labels say what is learned.
    Rows,
}

/// Corpora with weights.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// The corpora.
    pub ingredients: Vec<MixturePart>,
    /// The tokens that a token attends to.
    pub visible: Visible,
    /// The start from which its position is counted.
    pub positions: Positions,
    /// How documents become sequences.
    pub packing: Packing,
}

impl From<Corpus> for Mixture {
    fn from(corpus: Corpus) -> Mixture {
        Mixture {
            ingredients: vec![MixturePart { name: String::new(), corpus, weight: 1.0 }],
            visible: Visible::Past,
            positions: Positions::Sequence,
            packing: Packing::Continuous,
        }
    }
}

impl Mixture {
    /// Tokens of all corpora.
    pub fn len(&self) -> usize {
        self.ingredients.iter().map(|ingredient| ingredient.corpus.len()).sum()
    }

    /// How the documents of one of its corpora become sequences.
    pub(crate) fn packing_of(&self, corpus: &Corpus) -> Packing {
        match self.packing {
            Packing::Continuous if corpus.is_partly_learned() => Packing::Rows,
            packing @ (Packing::Continuous | Packing::Conversations(_) | Packing::Rows) => packing,
        }
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Documents of all corpora.
    pub fn num_documents(&self) -> usize {
        self.ingredients.iter().map(|ingredient| ingredient.corpus.num_documents()).sum()
    }
}

/// One, in the fixed point of shares.
const ONE: u128 = 1 << 32;

/// Which corpus each sequence of a run is taken from, and which of that corpus' sequences it is: a function of the
/// sequence's number alone, that needs no memory of the sequences before.
///
/// The first corpus takes sequence `n` where `floor((n + 1) p) > floor(n p)` for its share `p`, so that it has `floor(n
/// p)` of the first `n`; what it leaves is shared among the others in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Of each corpus, its share of what the corpora before it leave, in units of `1 / ONE`; that of the last is `ONE`.
    shares: Vec<u128>,
}

impl Shares {
    /// Shares in proportion to positive `weights`.
    pub fn new(weights: impl IntoIterator<Item = f32>) -> Shares {
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let mut shares: Vec<u128> = Vec::with_capacity(weights.len());
        for (index, weight) in weights.iter().enumerate() {
            let left: f64 = weights[index..].iter().sum();
            // The last has all that is left, exactly: x / x is 1.
            shares.push(((weight / left) * ONE as f64).round() as u128);
        }
        Shares { shares }
    }

    /// The corpus of sequence `number`, and how many sequences that corpus has had before.
    pub fn get(&self, number: u64) -> (usize, u64) {
        let mut number = u128::from(number);
        for (index, share) in self.shares.iter().enumerate() {
            let (before, behind) = (number * share / ONE, (number + 1) * share / ONE);
            if behind > before || index + 1 == self.shares.len() {
                // It is at most the number that came in, which has 64 bits.
                return (index, before as u64);
            }
            number -= before;
        }
        (0, 0)
    }
}
