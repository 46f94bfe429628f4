//! Which tokens a sequence of a step has.

use std::ops::Range;

use config::{IGNORED_LABEL, Positions, Visible};
use philox::Permutation;

use crate::blanks::{Blanks, Slot};
use crate::corpus::Corpus;
use crate::error::DataError;
use crate::mixture::{Mixture, MixturePart, Packing, Shares};
use crate::packs::{LeftOut, Packs};

/// The order in which windows of the text become sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A permutation per epoch and corpus, a function of the seed, the epoch and the place of the corpus in its
    /// mixture: corpora of one length have orders of their own.
    Shuffled {
        /// Seed of the run.
        seed: u64,
    },
    /// From beginning to end, corpus after corpus, whatever their weights: for evaluation.
    AsWritten,
}

/// Sequences as a pure function of (step, sequence within the step).
///
/// The text of each corpus is cut into windows that overlap by one token: window `w` has the tokens `w S ..= w S + S`,
/// the first `S` as inputs and the last `S` as their targets, so every token but the first is a target exactly once per
/// epoch. The end of a corpus that is shorter than a window is a window, too, where text is read as it is written, with
/// places without targets; where windows are shuffled it is not used. Documents follow one another without
/// a gap: a window may begin in the middle of one and hold several; [`Visible`] says whether they see each other.
#[derive(Clone, Debug)]
pub struct Batches {
    mixture: Mixture,
    /// Its name in messages.
    part: &'static str,
    shares: Shares,
    order: Order,
    sequence_length: usize,
    batches: config::BatchSizes,
    /// Windows of each corpus.
    num_windows: Vec<u64>,
    /// The conversations or rows of each window, by corpus; `None` where documents are cut into windows.
    packs: Vec<Option<Packs>>,
    blanks: Option<Blanks>,
}

/// The end of a corpus that is shorter than a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It is a window, with places without targets.
    Window,
    /// It is not used.
    LeftOut,
}

fn rest_of(order: Order) -> Rest {
    match order {
        // Steps have equally many targets.
        Order::Shuffled { .. } => Rest::LeftOut,
        // All of the text is measured, whatever the length of sequences.
        Order::AsWritten => Rest::Window,
    }
}

/// Windows of `sequence_length` targets in a text.
fn windows(
    MixturePart { name, corpus, .. }: &MixturePart,
    part: &'static str,
    sequence_length: usize,
    rest: Rest,
) -> Result<u64, DataError> {
    let (tokens, source_name) = (corpus.len(), name.clone());
    // The first token is not a target.
    let targets = tokens.saturating_sub(1);
    match rest {
        Rest::Window if targets == 0 => Err(DataError::NoTargets { part, source_name, tokens }),
        Rest::Window => Ok(targets.div_ceil(sequence_length.max(1)) as u64),
        Rest::LeftOut if sequence_length == 0 || targets < sequence_length => {
            Err(DataError::TooShort { part, source_name, tokens, sequence_length })
        }
        Rest::LeftOut => Ok((targets / sequence_length) as u64),
    }
}

/// The tokens that are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Each from those before it.
    All,
    /// The labels of blanks.
    Blanks,
    /// The labels of answers in conversations.
    Answers,
    /// Those that labels or masks next to tokens of a table name.
    Labels,
}

/// A window: the corpus and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Place of the corpus in its mixture.
    pub corpus: usize,
    /// Number of the window in the corpus.
    pub number: u64,
}

impl Batches {
    /// Sequences of `sequence_length` tokens from `text`, as many per step as `train` says. `part` names the text in
    /// messages.
    ///
    /// # Errors
    /// Less text than one window, or a token outside `vocabulary`.
    pub fn new(
        text: impl Into<Mixture>,
        part: &'static str,
        train: &config::TrainSpec,
        vocabulary: usize,
        order: Order,
    ) -> Result<Batches, DataError> {
        let (mixture, sequence_length) = (text.into(), train.sequence_length);
        let (mut num_windows, mut packs) = (Vec::with_capacity(mixture.ingredients.len()), vec![]);
        for ingredient in &mixture.ingredients {
            let own = Packs::of(ingredient, part, sequence_length, mixture.packing_of(&ingredient.corpus))?;
            ingredient.corpus.check_vocabulary(vocabulary)?;
            num_windows.push(match &own {
                Some(own) => own.len() as u64,
                None => windows(ingredient, part, sequence_length, rest_of(order))?,
            });
            packs.push(own);
        }
        if num_windows.is_empty() {
            return Err(DataError::TooShort { part, source_name: String::new(), tokens: 0, sequence_length });
        }
        let shares = Shares::new(mixture.ingredients.iter().map(|ingredient| ingredient.weight));
        Ok(Batches {
            mixture,
            part,
            shares,
            order,
            sequence_length,
            batches: train.batches(),
            num_windows,
            packs,
            blanks: None,
        })
    }

    /// The same text with blanks to fill, where there are any: in whole windows only.
    ///
    /// # Errors
    /// Less text than one window; labels next to the tokens.
    pub fn with_blanks(self, blanks: Option<Blanks>) -> Result<Batches, DataError> {
        if blanks.is_none() {
            return Ok(self);
        }
        if let Some(corpus) = self.packs.iter().position(Option::is_some) {
            let source_name = self.mixture.ingredients[corpus].name.clone();
            return Err(DataError::LabelsWithBlanks { part: self.part, source_name });
        }
        let whole = |own| windows(own, self.part, self.sequence_length, Rest::LeftOut);
        let num_windows = self.mixture.ingredients.iter().map(whole).collect::<Result<_, _>>()?;
        Ok(Batches { blanks, num_windows, ..self })
    }

    /// The tokens that are learned.
    pub fn targets(&self) -> Targets {
        match (&self.blanks, self.mixture.packing) {
            (Some(_), _) => Targets::Blanks,
            (None, Packing::Conversations(_)) => Targets::Answers,
            (None, Packing::Continuous | Packing::Rows) => match self.packs.iter().any(Option::is_some) {
                true => Targets::Labels,
                false => Targets::All,
            },
        }
    }

    /// Conversations that the sequences have not, or not whole; none where documents are cut into windows.
    pub fn left_out(&self) -> LeftOut {
        self.packs.iter().flatten().map(Packs::left_out).fold(LeftOut::default(), LeftOut::and)
    }

    /// Sequences of one epoch of every corpus together.
    pub fn num_windows(&self) -> u64 {
        self.num_windows.iter().sum()
    }

    /// The text, of all sources.
    pub fn corpus(&self) -> &Mixture {
        &self.mixture
    }

    /// The window of sequence `sequence` of `step`, both counted from 0. Steps take up sequences one after the other,
    /// whatever their size.
    pub fn window(&self, step: u32, sequence: u64) -> Window {
        self.window_of(self.batches.at(step).first_sequence + sequence)
    }

    /// The window of the run's sequence `index` of text.
    fn window_of(&self, index: u64) -> Window {
        match self.order {
            Order::Shuffled { seed } => {
                let (corpus, index) = self.shares.get(index);
                let len = self.num_windows[corpus];
                // Epochs of all corpora are numbered through; of a single one they are its own.
                let epoch = (index / len) * self.num_windows.len() as u64 + corpus as u64;
                let number = Permutation::new(seed, epoch, len).get(index % len);
                Window { corpus, number }
            }
            Order::AsWritten => {
                let mut number = index % self.num_windows();
                let mut corpus = 0;
                while number >= self.num_windows[corpus] {
                    number -= self.num_windows[corpus];
                    corpus += 1;
                }
                Window { corpus, number }
            }
        }
    }

    /// Fills one sequence: `tokens[S]`; `labels[S]`, the token after each, or [`IGNORED_LABEL`] after a document that
    /// sees only itself; `positions[S]`, counted as [`Positions`] says; `visible[2 S]`, for each token the first key
    /// that it sees and the one after the last, which is the token itself. Where there are blanks, all four are those
    /// of [`Blanks::sequence`];
    /// of conversations they are those of [`Packs::fill`].
    ///
    /// # Panics
    /// When a slice has another length.
    pub fn fill(
        &self,
        step: u32,
        sequence: u64,
        tokens: &mut [i32],
        labels: &mut [i32],
        positions: &mut [i32],
        visible: &mut [i32],
    ) {
        let length = self.sequence_length;
        let lengths = [tokens.len(), labels.len(), positions.len(), visible.len()];
        assert!(lengths == [length, length, length, 2 * length], "a sequence has {length} tokens, not {lengths:?}");
        if let Some(blanks) = &self.blanks {
            let number = self.batches.at(step).first_sequence + sequence;
            let slots = blanks.sequence(number, |text, tokens| self.read(self.window_of(text), tokens));
            let places = tokens.iter_mut().zip(labels).zip(positions).zip(visible.chunks_exact_mut(2));
            for (Slot { token, label, position, sees }, (((tokens, labels), positions), visible)) in
                slots.into_iter().zip(places)
            {
                (*tokens, *labels, *positions) = (token, label, position);
                visible.copy_from_slice(&sees);
            }
            return;
        }
        let window = self.window(step, sequence);
        let corpus = &self.mixture.ingredients[window.corpus].corpus;
        if let Some(packs) = &self.packs[window.corpus] {
            return packs.fill(corpus, window.number as usize, tokens, labels, positions, visible);
        }
        let start = window.number as usize * length;
        let targets = length.min(corpus.len() - 1 - start);
        corpus.read(start, &mut tokens[..targets]);
        corpus.read(start + 1, &mut labels[..targets]);
        // Places after the text stand for themselves, and have no target.
        tokens[targets..].fill(0);
        labels[targets..].fill(IGNORED_LABEL);
        // A sequence length is below 2^31 wherever it is read.
        for (index, (position, seen)) in positions.iter_mut().zip(visible.chunks_exact_mut(2)).enumerate() {
            *position = index as i32;
            seen[0] = if index < targets { 0 } else { index as i32 };
            seen[1] = index as i32 + 1;
        }
        let (labels, positions, visible) =
            (&mut labels[..targets], &mut positions[..targets], &mut visible[..2 * targets]);
        match self.mixture.visible {
            Visible::Past => {}
            Visible::Document => separate_documents(corpus, start, labels, visible),
        }
        match self.mixture.positions {
            Positions::Sequence => {}
            Positions::Document => {
                for document in documents(corpus, start..start + targets) {
                    (0..).zip(&mut positions[document]).for_each(|(place, position)| *position = place);
                }
            }
        }
    }

    /// Fills `tokens`, at most a sequence and one more, with the first of `window`.
    fn read(&self, window: Window, tokens: &mut [i32]) {
        self.mixture.ingredients[window.corpus].corpus.read(window.number as usize * self.sequence_length, tokens);
    }
}

/// The parts of `window` that are of one document each, as places in it.
fn documents(corpus: &Corpus, window: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut document = corpus.document_of(window.start);
    let mut place = 0;
    std::iter::from_fn(move || {
        let first = place;
        if first == window.len() {
            return None;
        }
        place = corpus.document_range(document).end.min(window.end) - window.start;
        document += 1;
        Some(first..place)
    })
}

/// Lets each token of the window from `start` see its own document only, and takes the target of each document's last
/// token away.
fn separate_documents(corpus: &Corpus, start: usize, labels: &mut [i32], visible: &mut [i32]) {
    for part in documents(corpus, start..start + labels.len()) {
        visible[2 * part.start..2 * part.end].chunks_exact_mut(2).for_each(|seen| seen[0] = part.start as i32);
        let last = part.end - 1;
        if corpus.document_range(corpus.document_of(start + last)).end == start + part.end {
            labels[last] = IGNORED_LABEL;
        }
    }
}
