//! A text that is read as the command line reads it: a function of the place in the data, over more than one epoch.

use config::TrainSpec;
use data::{Batches, Corpus, Document, Order, Tokenizer};
use train::{SequenceBuffers, TokenSource};

/// Bytes of it are tokens. A step reads 24 of its 75 windows of four tokens.
const TEXT: &str = "A run that is stopped and resumed must read the windows that come next, each once in an epoch, in \
     the order that the seed gives. Where it begins again at the first window, or skips a few of them, it learns from \
     other tokens than the run that was not stopped; the loss still falls, and no message tells.";

/// The text of a run of `train`, shuffled with its seed.
pub fn shuffled(train: &TrainSpec) -> Box<dyn TokenSource> {
    shuffled_with(train.seed, train)
}

/// The same text in the order of another seed.
pub fn shuffled_with(seed: u64, train: &TrainSpec) -> Box<dyn TokenSource> {
    let document = Document { name: "text".into(), text: TEXT.into() };
    let corpus = Corpus::new(&[document], &Tokenizer::bytes()).expect("tokens");
    Box::new(Batches::new(corpus, "text", train, 257, Order::Shuffled { seed }).expect("windows"))
}

/// A text that is read from another step on.
pub struct Late<'a> {
    pub text: Box<dyn TokenSource + 'a>,
    /// Steps that are left out; negative where some are read again.
    pub steps: i32,
}

impl TokenSource for Late<'_> {
    fn fill(&self, step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        self.text.fill(step.saturating_add_signed(self.steps), sequence, buffers);
    }
}
